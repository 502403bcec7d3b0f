#include "diff_world.h"

#include "base/buffer.h"
#include "base/memory.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char *const diff_world_scenarios[] = {
    "clean",   "op",    "op-cache", "state", "gap", "glue", "nan",      "requests", "ranks",   "moe", "long",
    "hostile", "first", "swapped",  "m1",    "m2",  "m3",   "m4",       "m5",       "m6",      "m7",  "m8",
    "m9",      "m10",   "m11",      "m12",   "m13", "m14", "m15",  "unusable", "refused",  "nothing", NULL};

struct shape {
    unsigned layers, ranks, requests;
    size_t prompt, generated;
    unsigned culprit_layer;
    const char *culprit; /* its part of the layer; NULL: none */
    enum diff_kind kind;
    size_t from; /* first position that differs */
    bool hostile;
};

static const struct module_class_fact norm = {.class = MODULE_CLASS_TOKEN_WISE,
                                              .kind = "normalisation",
                                              .needs = "one reduction order for every number of rows"},
                                      linear = {.class = MODULE_CLASS_TOKEN_WISE,
                                                .kind = "matrix product",
                                                .needs = "one tiling and no split-K, whatever the number of rows"},
                                      down = {.class = MODULE_CLASS_REDUCES,
                                              .kind = "matrix product, all-reduce",
                                              .needs = "one tiling, and an all-reduce in a fixed order of ranks"},
                                      attention = {.class = MODULE_CLASS_STATE,
                                                   .kind = "attention",
                                                   .needs = "one split of the keys, whatever the number of queries"},
                                      experts = {.class = MODULE_CLASS_REDUCES,
                                                 .kind = "experts",
                                                 .needs = "a fixed order of the experts' sums"},
                                      unknown = {.kind = "unknown kind", .needs = "not known: look at its code"};

/* The parts of a layer in the order of the program; a part without a class is a container. */
static const struct part {
    const char *path;
    const struct module_class_fact *class;
    uint64_t elements;
} parts[] = {
    {"", NULL, 64},
    {".input_layernorm", &norm, 64},
    {".self_attn", NULL, 64},
    {".self_attn.qkv_proj", &linear, 192},
    {".self_attn.attn", &attention, 64},
    {".self_attn.o_proj", &down, 64},
    {".post_attention_layernorm", &norm, 64},
    {".mlp", NULL, 64},
    {".mlp.gate", &unknown, 8},
    {".mlp.experts", &experts, 64},
};
enum { PARTS = sizeof parts / sizeof parts[0] };

/* ---- requests and pairs ---- */

static void add_pairs(struct diff *diff, const struct shape *s)
{
    size_t length = s->prompt + s->generated;
    diff->requests = memory_resize(NULL, s->requests, sizeof *diff->requests);
    diff->pairs = memory_resize(NULL, (length + 8 * s->requests) * s->requests * s->ranks, sizeof *diff->pairs);
    for (unsigned q = 0; q < s->requests; q++) {
        size_t prompt = s->prompt + 8 * q, first = diff->pair_count;
        for (size_t position = 0; position < prompt + s->generated; position++)
            for (unsigned rank = 0; rank < s->ranks; rank++)
                diff->pairs[diff->pair_count++] = (struct diff_pair){
                    .request = q,
                    .rank = rank,
                    .position = (int64_t)position,
                    .id = (int64_t)(position * 31 % 500 + 3),
                    .target = position >= prompt,
                    .a_step = position < prompt ? 0 : position - prompt + 1,
                    .b_step = 7 + q,
                    .a_row = position < prompt ? (uint32_t)position : q,
                    .b_row = (uint32_t)position,
                };
        diff->requests[diff->request_count++] = (struct diff_request){
            .a_rid = s->hostile ? memory_copy("<script>alert('rid')</script>&\"\033[31m\xff\n</style>")
                                : memory_format("dec-%u", q),
            .b_rid = memory_format("pre-%u", q),
            .prompt_length = prompt,
            .a_length = prompt + s->generated,
            .b_length = prompt + s->generated,
            .first_pair = first,
            .pair_count = diff->pair_count - first,
            .target_count = s->generated * s->ranks,
        };
        diff->target_count += s->generated * s->ranks;
    }
}

/* ---- calls and observations ---- */

static void fill_numbers(struct numbers *n, size_t rows, uint64_t elements, uint64_t max_ulp)
{
    n->elements = rows * elements;
    n->unequal = n->elements / 7 + 1;
    n->first_unequal = 3;
    n->first_a = 0.4375;
    n->first_b = 0.43798828125;
    n->first_bits_a = 0x3ee00000;
    n->first_bits_b = 0x3ee04000;
    n->max_ulp = max_ulp;
    n->ulp_sum_up = max_ulp * 3;
    n->ulp_sum_down = max_ulp * 2;
    n->max_abs = 4.8828125e-4 * (double)max_ulp;
    n->max_relative = 0.0011;
    n->max_abs_index = 17;
    n->sum_squares_a = n->sum_squares_b = (double)n->elements;
    n->sum_squares_difference = (double)n->elements * 1e-12 * (double)max_ulp * (double)max_ulp;
    n->dot = (double)n->elements * (1 - 1e-9);
    n->histogram[0] = n->elements - n->unequal;
    n->histogram[1] = 2;
    for (unsigned i = 2; i < 7; i++)
        n->histogram[i] = n->unequal >> (i - 1);
}

/* Whether the observation differs at a pair, and by which mark. */
static uint8_t mark_of(const struct shape *s, const struct diff_pair *pair, bool differs, unsigned depth)
{
    if (!differs || pair->position < (int64_t)s->from || !pair->target)
        return DIFF_MARK_EQUAL;
    unsigned power = depth / 3 + (unsigned)(pair->position * 7 % 5);
    return (uint8_t)(DIFF_MARK_ULP + (power < 30 ? power : 30));
}

static void fill_marks(struct diff *diff, const struct shape *s, struct diff_observation *o, bool differs,
                       unsigned depth)
{
    uint8_t worst = DIFF_MARK_EQUAL;
    o->marks = memory_new(diff->pair_count);
    o->first_unequal_pair = SIZE_MAX;
    for (size_t i = 0; i < diff->pair_count; i++) {
        o->marks[i] = mark_of(s, &diff->pairs[i], differs, depth);
        worst = o->marks[i] > worst ? o->marks[i] : worst;
        if (!diff->pairs[i].target) {
            o->control_tested++;
            continue;
        }
        o->tested++;
        if (o->marks[i] == DIFF_MARK_EQUAL)
            continue;
        o->unequal++;
        if (o->first_unequal_pair == SIZE_MAX)
            o->first_unequal_pair = i;
    }
    numbers_init(&o->numbers);
    if (o->unequal > 0)
        fill_numbers(&o->numbers, o->unequal, o->row_elements, UINT64_C(1) << (worst - DIFF_MARK_ULP));
}

static struct diff_observation *add_observation(struct diff *diff, const char *module, const char *slot, uint32_t call)
{
    struct diff_observation *o = &diff->observations[diff->observation_count++];
    *o = (struct diff_observation){
        .name = module[0] != '\0' ? memory_format("%s.%s", module, slot) : memory_copy(slot),
        .call = call,
        .input = slot[0] == 'i',
        .rows = DIFF_ROWS_TOKEN,
        .factor = 1,
        .dtype = PT_DTYPE_BFLOAT16,
        .row_elements = 64,
        .first_unequal_pair = SIZE_MAX,
    };
    return o;
}

static uint32_t add_call(struct diff *diff, const char *name, const struct module_class_fact *class)
{
    diff->calls[diff->call_count] = (struct diff_call){
        .module = memory_copy(name),
        .name = memory_copy(name),
        .parent = UINT32_MAX,
        .leaf = class != NULL,
        .class = class,
        .first_pair = SIZE_MAX,
    };
    return (uint32_t)diff->call_count++;
}

static void settle(struct diff *diff, uint32_t call, const struct diff_observation *in,
                   const struct diff_observation *out)
{
    struct diff_call *c = &diff->calls[call];
    c->tested = in->tested - in->unequal;
    if (in->unequal > 0)
        return;
    c->unequal = out->unequal;
    c->first_pair = out->first_unequal_pair;
    c->max_ulp = out->numbers.max_ulp;
    c->history_equal = c->unequal;
}

static void note_culprit(struct diff *diff, const struct shape *s, uint32_t call, uint32_t observation)
{
    struct diff_verdict *v = &diff->verdict;
    v->kind = s->kind;
    v->confidence = DIFF_CONFIDENCE_PROVEN;
    v->call = call;
    v->first_unequal = observation;
    v->last_equal = observation - 1;
    v->first_pair = diff->observations[observation].first_unequal_pair;
    v->tested = diff->observations[observation].tested;
    v->unequal = diff->observations[observation].unequal;
    if (s->kind == DIFF_KIND_GAP || s->kind == DIFF_KIND_GLUE)
        v->after = call - 1;
}

static void add_layer(struct diff *diff, const struct shape *s, unsigned layer, bool *differs, unsigned *depth)
{
    struct buffer name;
    buffer_init(&name);
    for (size_t p = 0; p < PARTS; p++) {
        buffer_clear(&name);
        buffer_format(&name, "model.layers.%u%s%s", layer, s->hostile ? "<b onload=x>\"'&\033[2J" : "", parts[p].path);
        for (int i = 0; s->hostile && p == 4 && i < 800; i++)
            buffer_text(&name, "name-long-");
        uint32_t call = add_call(diff, name.data, parts[p].class);
        diff->calls[call].has_layer = true;
        diff->calls[call].layer = layer;
        bool here = s->culprit != NULL && layer == s->culprit_layer && strcmp(parts[p].path, s->culprit) == 0;
        bool at_input = here && s->kind == DIFF_KIND_GAP;
        for (int side = 0; side < 2; side++) {
            struct diff_observation *o = add_observation(diff, name.data, side == 0 ? "inputs.0" : "output", call);
            bool begins = here && side == (at_input ? 0 : 1);
            *differs = *differs || begins;
            *depth += *differs;
            o->has_layer = true;
            o->layer = layer;
            o->row_elements = parts[p].elements;
            fill_marks(diff, s, o, *differs, *depth);
            o->growth = side == 1 && o->unequal > 0 ? 1.3 : 0;
            if (begins)
                note_culprit(diff, s, call, (uint32_t)diff->observation_count - 1);
        }
        settle(diff, call, &diff->observations[diff->observation_count - 2],
               &diff->observations[diff->observation_count - 1]);
    }
    buffer_fini(&name);
}

static void add_model(struct diff *diff, const struct shape *s)
{
    bool differs = false;
    unsigned depth = 0;
    size_t most = (size_t)s->layers * PARTS + 4;
    diff->calls = memory_resize(NULL, most, sizeof *diff->calls);
    diff->observations = memory_resize(NULL, 2 * most, sizeof *diff->observations);
    static const char *const ends[] = {"model.embed_tokens", "model.norm", "logits_processor"};
    for (size_t i = 0; i < 3; i++) {
        uint32_t call = add_call(diff, ends[i], i == 0 ? &unknown : &norm);
        for (int side = 0; side < 2; side++)
            fill_marks(diff, s, add_observation(diff, ends[i], side == 0 ? "inputs.0" : "output", call), differs,
                       depth);
        settle(diff, call, &diff->observations[diff->observation_count - 2],
               &diff->observations[diff->observation_count - 1]);
        for (unsigned layer = 0; i == 0 && layer < s->layers; layer++)
            add_layer(diff, s, layer, &differs, &depth);
    }
}

static void add_certificate(struct diff *diff)
{
    for (int i = 0; i < DIFF_PROOF_COUNT; i++)
        diff_prove(diff, (enum diff_proof_id)i, DIFF_PROOF_HOLDS, "%zu of %zu pairs", diff->target_count,
                   diff->target_count);
    diff->proven = diff->usable = true;
    diff->control_elements = 123456;
    diff->files_opened = 2184;
    diff->bytes_read = 12345678;
}

/* ---- scenarios ---- */

static struct shape shape_of(const char *scenario)
{
    struct shape s = {.layers = 4,
                      .ranks = 1,
                      .requests = 1,
                      .prompt = 12,
                      .generated = 8,
                      .culprit_layer = 1,
                      .culprit = ".input_layernorm",
                      .kind = DIFF_KIND_OP};
    if (strcmp(scenario, "clean") == 0)
        s.culprit = NULL;
    if (strcmp(scenario, "op-cache") == 0)
        s = (struct shape){4, 1, 3, 12, 100, 0, ".self_attn.attn", DIFF_KIND_OP_CACHE, 96, false};
    if (strcmp(scenario, "state") == 0)
        s.culprit = ".self_attn.attn", s.kind = DIFF_KIND_STATE;
    if (strcmp(scenario, "gap") == 0)
        s.culprit = ".mlp", s.kind = DIFF_KIND_GAP;
    if (strcmp(scenario, "glue") == 0)
        s.culprit = ".mlp", s.kind = DIFF_KIND_GLUE;
    if (strcmp(scenario, "requests") == 0)
        s.requests = 5, s.generated = 40;
    if (strcmp(scenario, "ranks") == 0)
        s.ranks = 4, s.culprit = ".self_attn.o_proj";
    if (strcmp(scenario, "moe") == 0)
        s.layers = 48, s.culprit = ".mlp.gate", s.culprit_layer = 17, s.generated = 64, s.prompt = 200;
    if (strcmp(scenario, "long") == 0)
        s.layers = 36, s.prompt = 1000, s.generated = 20000, s.from = 9000;
    if (strcmp(scenario, "hostile") == 0)
        s.hostile = true, s.culprit = ".self_attn.attn";
    return s;
}

static void spoil(const char *scenario, struct diff *diff)
{
    unsigned number = 0;
    if (sscanf(scenario, "m%u", &number) == 1 && number >= 1 && number <= DIFF_MESSAGE_COUNT) {
        diff_tell(diff, (enum diff_message_id)(number - 1), "step 12 rank 0: evidence number %u", number);
        if (diff_message_fatal((enum diff_message_id)(number - 1))) {
            diff->proven = false;
            diff_prove(diff, DIFF_PROOF_A2, DIFF_PROOF_FAILS, "differs at position 87 (id 315, reference 264)");
            diff_prove(diff, DIFF_PROOF_A7, DIFF_PROOF_UNKNOWN, "not asked");
        } else {
            diff_prove(diff, DIFF_PROOF_A5, DIFF_PROOF_WEAK, "two ids have one embedding");
        }
    }
    if (strcmp(scenario, "unusable") == 0) {
        diff->usable = diff->proven = false;
        diff_tell(diff, DIFF_MESSAGE_M11, "12 of 12 passes");
    }
    if (strcmp(scenario, "refused") == 0) {
        diff->refused = memory_new(2 * sizeof *diff->refused);
        diff->refused[0] = memory_copy("dec/step=1.pt: global 'posix system' in data.pkl");
        diff->refused_needed = true;
    }
    if (strcmp(scenario, "swapped") == 0)
        diff->swapped = true;
}

/* Blind spots, a NaN, flipped integers: what is not simply equal or unequal. */
static void decorate(const char *scenario, struct diff *diff, const struct shape *s)
{
    struct diff_observation *o = &diff->observations[diff->observation_count - 6];
    o->presence = DIFF_PRESENCE_A_ONLY;
    o->note = memory_copy("attn_mqa runs in decode only");
    free(o->marks);
    o->marks = NULL;
    diff->observations[diff->observation_count - 5].rows = DIFF_ROWS_NONE;
    if (strcmp(scenario, "moe") == 0)
        for (size_t i = 0; i < diff->pair_count; i++) {
            uint8_t *mark = &diff->observations[diff->verdict.first_unequal].marks[i];
            *mark = *mark >= DIFF_MARK_ULP ? DIFF_MARK_OTHER : *mark;
        }
    if (strcmp(scenario, "nan") == 0)
        diff->observations[diff->verdict.first_unequal].marks[s->prompt + 2] = DIFF_MARK_NAN;
}

void diff_world_make(const char *scenario, struct diff *ret_diff)
{
    const struct shape s = shape_of(scenario);
    struct diff diff = {
        .a_path = memory_copy("dumps/dec"), .b_path = memory_copy("dumps/pre"), .ranks = s.ranks, .tp_size = s.ranks};
    size_t known = 0;
    while (diff_world_scenarios[known] != NULL && strcmp(diff_world_scenarios[known], scenario) != 0)
        known++;
    if (diff_world_scenarios[known] == NULL) {
        fprintf(stderr, "there is no scenario '%s'\n", scenario);
        exit(2);
    }
    diff.verdict = (struct diff_verdict){.confidence = DIFF_CONFIDENCE_PROVEN,
                                         .call = UINT32_MAX,
                                         .last_equal = UINT32_MAX,
                                         .first_unequal = UINT32_MAX,
                                         .after = UINT32_MAX,
                                         .first_pair = SIZE_MAX};
    if (strcmp(scenario, "nothing") == 0) { /* no pass, no pair: as from two empty folders */
        diff_tell(&diff, DIFF_MESSAGE_M13, "no pass on either side");
        *ret_diff = diff;
        return;
    }
    add_pairs(&diff, &s);
    add_certificate(&diff);
    add_model(&diff, &s);
    diff.verdict.what =
        memory_copy(s.culprit != NULL ? "run the kernel alone on the equal input, once with 1 row and once with 20"
                                      : "a difference in logprobs, if there is one, lies behind the logits");
    diff.verdict.reading = memory_copy(s.culprit != NULL ? "sparse, +-1 ULP, no bias: reduction order" : "");
    diff.verdict.one_position = strcmp(scenario, "op-cache") == 0;
    diff.verdict.ranks_agree = s.ranks > 1;
    if (strcmp(scenario, "gap") == 0) {
        diff.verdict.blind = memory_new(2 * sizeof *diff.verdict.blind);
        diff.verdict.blind[0] = memory_copy("model.layers.1.fused_norm.output: only in PRE");
    }
    decorate(scenario, &diff, &s);
    spoil(scenario, &diff);
    *ret_diff = diff;
}
