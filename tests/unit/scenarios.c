#include "scenarios.h"

#include <stdlib.h>

const int64_t scenarios_tokens[64] = {3, 1, 4, 1,  5, 9, 2,  6, 5, 3,  5,  8, 9, 7, 9, 3,  2, 3, 8, 4, 6, 26,
                                      4, 3, 3, 8,  3, 2, 7,  9, 5, 30, 28, 8, 4, 1, 9, 7,  1, 6, 9, 3, 9, 9,
                                      3, 7, 5, 10, 5, 8, 20, 9, 7, 4,  9,  4, 4, 5, 9, 23, 0, 7, 8, 16};
static const int64_t other_tokens[] = {7, 7, 2, 9, 11, 13, 17, 19, 23, 29, 31, 1, 2, 4, 8, 16};

static struct scenario *begin(void)
{
    struct scenario_model model = scenario_small();
    return scenario_begin(&model);
}

static void one(struct scenario *s, struct scenario_part part)
{
    scenario_pass(s, &(struct scenario_pass){.parts = {part}, .part_count = 1});
}

/* A prompt, decode passes for the rest of `count` tokens into dec. */
static void generate(struct scenario *s, const char *folder, const char *rid, unsigned prompt, unsigned count)
{
    unsigned request = scenario_request(s, rid, scenarios_tokens, count);
    scenario_open(s, folder);
    scenario_prefill(s, request, prompt);
    scenario_decode(s, request, prompt, count - 1);
}

static void score(struct scenario *s, const char *folder, const char *rid, unsigned count)
{
    unsigned request = scenario_request(s, rid, scenarios_tokens, count);
    scenario_open(s, folder);
    scenario_prefill(s, request, count);
}

/* What most cases are: 8 tokens of prompt, 4 decoded, scored at once; the fault is in the first folder. */
static void write_usual(const struct scenario_model *model, const struct scenario_fault *fault,
                        const struct scenarios_folders *f)
{
    struct scenario *s = scenario_begin(model);
    if (fault != NULL)
        scenario_fault(s, fault);
    generate(s, f->dec, "dec-0", 8, 12);
    scenario_heal(s);
    score(s, f->pre, "pre-0", 12);
    scenario_end(s);
}

static void write_equal(const struct scenarios_folders *f)
{
    struct scenario_model model = scenario_small();
    write_usual(&model, NULL, f);
}

/* ---- one change, one place ---- */

static void write_one_ulp(const struct scenarios_folders *f)
{
    struct scenario_model model = scenario_small();
    model.type = TORCH_FILE_BFLOAT16;
    write_usual(&model,
                &(struct scenario_fault){.name = "model.layers.1.self_attn.attn.output",
                                         .change = SCENARIO_ULP,
                                         .when = SCENARIO_DECODE,
                                         .first = 9,
                                         .element = 5,
                                         .elements = 1,
                                         .amount = 1},
                f);
}

static void write_down_proj(const struct scenarios_folders *f)
{
    struct scenario_model model = scenario_small();
    write_usual(&model,
                &(struct scenario_fault){.name = "model.layers.2.mlp.down_proj.output",
                                         .change = SCENARIO_ULP,
                                         .when = SCENARIO_DECODE,
                                         .first = 10,
                                         .amount = 1},
                f);
}

static void write_gap(const struct scenarios_folders *f)
{
    struct scenario_model model = scenario_small();
    write_usual(
        &model,
        &(struct scenario_fault){
            .name = "model.layers.1.mlp.inputs.0", .change = SCENARIO_ULP, .when = SCENARIO_DECODE, .amount = 1},
        f);
}

/* ---- prefix cache ---- */

static void write_cached_reference(const struct scenarios_folders *f)
{
    struct scenario *s = begin();
    generate(s, f->dec, "dec-0", 8, 16);
    scenario_open(s, f->pre);
    unsigned request = scenario_request(s, "pre-0", scenarios_tokens, 16);
    one(s, (struct scenario_part){.request = request, .position = 4, .rows = 12});
    scenario_end(s);
}

static void write_cached_reference_told(const struct scenarios_folders *f)
{
    struct scenario *s = begin();
    generate(s, f->dec, "dec-0", 8, 16);
    score(s, f->pre, "pre-filler", 6);
    unsigned request = scenario_request(s, "pre-0", scenarios_tokens, 16);
    one(s, (struct scenario_part){.request = request, .position = 4, .rows = 12});
    scenario_end(s);
}

static void write_cached_behind_decode(const struct scenarios_folders *f)
{
    struct scenario *s = begin();
    generate(s, f->dec, "dec-0", 8, 16);
    unsigned request = scenario_request(s, "pre-0", scenarios_tokens, 17);
    one(s, (struct scenario_part){.request = request, .position = 16, .rows = 1});
    scenario_end(s);
}

static void write_one_row_behind_cache(const struct scenarios_folders *f)
{
    struct scenario *s = begin();
    generate(s, f->dec, "dec-0", 8, 12);
    for (unsigned length = 9; length <= 12; length++) {
        char rid[16];
        rid[0] = (char)('a' + length - 9);
        rid[1] = '\0';
        unsigned request = scenario_request(s, rid, scenarios_tokens, length);
        one(s, (struct scenario_part){.request = request, .position = length - 1, .rows = 1});
    }
    scenario_end(s);
}

static void write_cached_decode(const struct scenarios_folders *f, bool fault)
{
    struct scenario *s = begin();
    if (fault)
        scenario_fault(s, &(struct scenario_fault){.name = "model.layers.1.self_attn.attn.output",
                                                   .change = SCENARIO_RANDOM,
                                                   .when = SCENARIO_DECODE,
                                                   .first = 9});
    score(s, f->dec, "warm", 6);
    unsigned request = scenario_request(s, "dec-0", scenarios_tokens, 12);
    one(s, (struct scenario_part){.request = request, .position = 4, .rows = 4});
    scenario_decode(s, request, 8, 11);
    scenario_heal(s);
    score(s, f->pre, "pre-0", 12);
    scenario_end(s);
}

static void write_cached_decode_side(const struct scenarios_folders *f)
{
    write_cached_decode(f, false);
}

static void write_cached_decode_side_unequal(const struct scenarios_folders *f)
{
    write_cached_decode(f, true);
}

/* ---- batches ---- */

static void write_padded(const struct scenarios_folders *f)
{
    struct scenario *s = begin();
    unsigned requests[5];
    struct scenario_pass pass = {.part_count = 5, .padding = 3, .padding_requests = 3};
    scenario_open(s, f->dec);
    for (unsigned i = 0; i < 5; i++) {
        char rid[] = {'d', (char)('0' + i), '\0'};
        int64_t tokens[6] = {(int64_t)i + 1, 2, 3, 4, 5, 6};
        requests[i] = scenario_request(s, rid, tokens, 6);
        scenario_prefill(s, requests[i], 4);
        pass.parts[i] = (struct scenario_part){.request = requests[i], .position = 4, .rows = 1};
    }
    scenario_pass(s, &pass);
    scenario_open(s, f->pre);
    for (unsigned i = 0; i < 5; i++) {
        char rid[] = {'p', (char)('0' + i), '\0'};
        int64_t tokens[6] = {(int64_t)i + 1, 2, 3, 4, 5, 6};
        scenario_prefill(s, scenario_request(s, rid, tokens, 6), 6);
    }
    scenario_end(s);
}

static void write_mixed_chunks(const struct scenarios_folders *f)
{
    struct scenario *s = begin();
    unsigned a = scenario_request(s, "a", scenarios_tokens, 16), b = scenario_request(s, "b", other_tokens, 16);
    scenario_open(s, f->dec);
    scenario_prefill(s, a, 8);
    scenario_pass(s, &(struct scenario_pass){
                         .parts = {{.request = a, .position = 8, .rows = 1}, {.request = b, .position = 0, .rows = 6}},
                         .part_count = 2});
    scenario_pass(s, &(struct scenario_pass){
                         .parts = {{.request = b, .position = 6, .rows = 4}, {.request = a, .position = 9, .rows = 1}},
                         .part_count = 2});
    scenario_pass(s, &(struct scenario_pass){.parts = {{.request = a, .position = 10, .rows = 1},
                                                       {.request = b, .position = 10, .rows = 1}},
                                             .part_count = 2});
    scenario_open(s, f->pre);
    scenario_prefill(s, scenario_request(s, "pb", other_tokens, 16), 11);
    scenario_prefill(s, scenario_request(s, "pa", scenarios_tokens, 16), 11);
    scenario_end(s);
}

static void write_drafts(const struct scenarios_folders *f)
{
    static const int64_t drafts[] = {5, 0, 0}; /* the second and third are rejected */
    struct scenario *s = begin();
    unsigned request = scenario_request(s, "dec-0", scenarios_tokens, 16);
    scenario_open(s, f->dec);
    scenario_prefill(s, request, 8);
    scenario_fault(
        s, &(struct scenario_fault){
               .name = "model.layers.1.mlp.gate_up_proj.output", .change = SCENARIO_ULP, .first = 9, .amount = 2});
    one(s, (struct scenario_part){.request = request, .position = 8, .rows = 3, .verify = true, .ids = drafts});
    one(s, (struct scenario_part){.request = request, .position = 9, .rows = 3, .verify = true});
    one(s, (struct scenario_part){.request = request, .position = 12, .rows = 3, .verify = true});
    scenario_heal(s);
    score(s, f->pre, "pre-0", 16);
    scenario_end(s);
}

static void write_chunked_against_whole(const struct scenarios_folders *f, bool fault)
{
    struct scenario *s = begin();
    unsigned request = scenario_request(s, "dec-0", scenarios_tokens, 64);
    scenario_open(s, f->dec);
    scenario_prefill(s, request, 16);
    if (fault)
        scenario_fault(s, &(struct scenario_fault){.name = "model.layers.0.mlp.down_proj.output",
                                                   .change = SCENARIO_ULP,
                                                   .first = 40,
                                                   .last = 40,
                                                   .amount = 1});
    one(s, (struct scenario_part){.request = request, .position = 16, .rows = 48});
    scenario_heal(s);
    score(s, f->pre, "pre-0", 64);
    scenario_end(s);
}

static void write_chunked(const struct scenarios_folders *f)
{
    write_chunked_against_whole(f, false);
}

static void write_chunked_unequal(const struct scenarios_folders *f)
{
    write_chunked_against_whole(f, true);
}

static void write_chunk_positions(const struct scenarios_folders *f)
{
    static const int64_t wrong[] = {0, 1, 2, 3};
    struct scenario *s = begin();
    unsigned request = scenario_request(s, "dec-0", scenarios_tokens, 12);
    scenario_open(s, f->dec);
    scenario_prefill(s, request, 4);
    scenario_pass(s, &(struct scenario_pass){.parts = {{.request = request, .position = 4, .rows = 4}},
                                             .part_count = 1,
                                             .positions = wrong});
    scenario_decode(s, request, 8, 11);
    score(s, f->pre, "pre-0", 12);
    scenario_end(s);
}

static void write_chunk_positions_no_decode(const struct scenarios_folders *f)
{
    static const int64_t wrong[] = {0, 1, 2, 3, 4, 5, 6, 7};
    struct scenario *s = begin();
    unsigned request = scenario_request(s, "dec-0", scenarios_tokens, 12);
    scenario_open(s, f->dec);
    scenario_prefill(s, request, 4);
    scenario_pass(s, &(struct scenario_pass){.parts = {{.request = request, .position = 4, .rows = 8}},
                                             .part_count = 1,
                                             .positions = wrong});
    score(s, f->pre, "pre-0", 12);
    scenario_end(s);
}

/* ---- other tokens, other weights ---- */

static void write_other_weights(const struct scenarios_folders *f)
{
    struct scenario_model model = scenario_small();
    struct scenario *s = scenario_begin(&model);
    generate(s, f->dec, "dec-0", 8, 12);
    scenario_end(s);
    model.weights = 7;
    s = scenario_begin(&model);
    score(s, f->pre, "pre-0", 12);
    scenario_end(s);
}

static void write_retokenised(const struct scenarios_folders *f)
{
    int64_t tokens[12];
    struct scenario *s = begin();
    generate(s, f->dec, "dec-0", 8, 12);
    for (unsigned i = 0; i < 12; i++)
        tokens[i] = i == 5 ? 21 : scenarios_tokens[i];
    scenario_open(s, f->pre);
    scenario_prefill(s, scenario_request(s, "pre-0", tokens, 12), 12);
    scenario_end(s);
}

static void write_retokenised_in_one(const struct scenarios_folders *f)
{
    write_retokenised(&(struct scenarios_folders){f->dec, f->dec, f->history});
}

static void write_scoring_that_decodes(const struct scenarios_folders *f)
{
    struct scenario *s = begin();
    generate(s, f->dec, "dec-0", 8, 12);
    generate(s, f->pre, "pre-0", 11, 12);
    scenario_end(s);
}

static void write_parted_later(const struct scenarios_folders *f)
{
    int64_t tokens[12];
    struct scenario *s = begin();
    generate(s, f->dec, "dec-0", 8, 12);
    for (unsigned i = 0; i < 12; i++)
        tokens[i] = i == 10 ? 21 : scenarios_tokens[i];
    scenario_open(s, f->pre);
    scenario_prefill(s, scenario_request(s, "pre-0", tokens, 12), 12);
    scenario_end(s);
}

static void write_leading_token(const struct scenarios_folders *f)
{
    int64_t tokens[13] = {1};
    struct scenario *s = begin();
    generate(s, f->dec, "dec-0", 8, 12);
    for (unsigned i = 0; i < 12; i++)
        tokens[i + 1] = scenarios_tokens[i];
    scenario_open(s, f->pre);
    scenario_prefill(s, scenario_request(s, "pre-0", tokens, 13), 13);
    scenario_end(s);
}

static void write_prompt_only(const struct scenarios_folders *f)
{
    struct scenario *s = begin();
    generate(s, f->dec, "dec-0", 8, 12);
    score(s, f->pre, "pre-0", 8);
    scenario_end(s);
}

static void write_nothing_common(const struct scenarios_folders *f)
{
    struct scenario *s = begin();
    score(s, f->dec, "dec-0", 12);
    scenario_open(s, f->pre);
    scenario_prefill(s, scenario_request(s, "pre-0", other_tokens, 12), 12);
    scenario_end(s);
}

/* The rows of the module do not belong to the tokens that the core tensors name. */
static void write_misaligned_rows(const struct scenarios_folders *f)
{
    struct scenario_model model = scenario_small();
    struct scenario *s = scenario_begin(&model);
    generate(s, f->dec, "dec-0", 8, 12);
    scenario_fault(s,
                   &(struct scenario_fault){.name = "model.embed_tokens.output", .change = SCENARIO_ROW, .amount = 1});
    score(s, f->pre, "pre-0", 12);
    scenario_end(s);
}

/* ---- graphs and modes ---- */

static void write_decode_in_a_graph(const struct scenarios_folders *f)
{
    struct scenario *s = begin();
    unsigned request = scenario_request(s, "dec-0", scenarios_tokens, 12);
    scenario_open(s, f->dec);
    scenario_prefill(s, request, 8);
    for (unsigned position = 8; position < 12; position++)
        scenario_pass(s, &(struct scenario_pass){.parts = {{.request = request, .position = position, .rows = 1}},
                                                 .part_count = 1,
                                                 .core_only = true});
    score(s, f->pre, "pre-0", 12);
    scenario_end(s);
}

static void write_core_mode(const struct scenarios_folders *f)
{
    struct scenario *s = begin();
    unsigned request = scenario_request(s, "dec-0", scenarios_tokens, 12);
    scenario_open(s, f->dec);
    scenario_pass(
        s, &(struct scenario_pass){.parts = {{.request = request, .rows = 8}}, .part_count = 1, .core_only = true});
    for (unsigned position = 8; position < 12; position++)
        scenario_pass(s, &(struct scenario_pass){.parts = {{.request = request, .position = position, .rows = 1}},
                                                 .part_count = 1,
                                                 .core_only = true});
    score(s, f->pre, "pre-0", 12);
    scenario_end(s);
}

static void write_one_frame(const struct scenarios_folders *f)
{
    struct scenario *s = begin();
    unsigned request = scenario_request(s, "dec-0", scenarios_tokens, 48);
    scenario_open(s, f->dec);
    scenario_prefill(s, request, 32);
    scenario_decode(s, request, 40, 40);
    score(s, f->pre, "pre-0", 48);
    scenario_end(s);
}

/* ---- folders ---- */

static void write_one_folder(const struct scenarios_folders *f)
{
    struct scenario *s = begin();
    generate(s, f->dec, "dec-0", 8, 12);
    score(s, f->dec, "pre-0", 12);
    scenario_end(s);
}

static void write_two_nodes(const struct scenarios_folders *f)
{
    struct scenario *s = begin();
    unsigned request = scenario_request(s, "dec-0", scenarios_tokens, 12);
    scenario_open(s, f->history);
    scenario_prefill(s, request, 8);
    scenario_counters(s, 0, 0);
    scenario_open(s, f->dec);
    scenario_fault(s, &(struct scenario_fault){.name = "model.layers.1.self_attn.attn.output",
                                               .change = SCENARIO_RANDOM,
                                               .when = SCENARIO_DECODE});
    scenario_decode(s, request, 8, 11);
    scenario_heal(s);
    score(s, f->pre, "pre-0", 12);
    scenario_end(s);
}

/* Two decoded tokens the other way round do not outweigh four. */
static void write_both_ways(const struct scenarios_folders *f)
{
    struct scenario *s = begin();
    generate(s, f->dec, "dec-0", 8, 12);
    scenario_prefill(s, scenario_request(s, "pre-1", other_tokens, 6), 6);
    score(s, f->pre, "pre-0", 12);
    unsigned request = scenario_request(s, "dec-1", other_tokens, 6);
    scenario_prefill(s, request, 4);
    scenario_decode(s, request, 4, 5);
    scenario_end(s);
}

static void write_two_runs(const struct scenarios_folders *f)
{
    struct scenario *s = begin();
    generate(s, f->dec, "run-1", 8, 12);
    generate(s, f->pre, "run-2", 8, 12);
    scenario_end(s);
}

/* ---- ranks ---- */

static void write_ranks(const struct scenarios_folders *f)
{
    struct scenario_model model = scenario_small();
    model.tp_size = 2;
    write_usual(&model,
                &(struct scenario_fault){.name = "model.layers.1.self_attn.o_proj.output",
                                         .change = SCENARIO_ULP,
                                         .when = SCENARIO_DECODE,
                                         .amount = 1},
                f);
}

static void write_other_layout(const struct scenarios_folders *f)
{
    struct scenario_model model = scenario_small();
    model.tp_size = 2;
    struct scenario *s = scenario_begin(&model);
    generate(s, f->dec, "dec-0", 8, 12);
    scenario_end(s);
    model.tp_size = 1;
    s = scenario_begin(&model);
    score(s, f->pre, "pre-0", 12);
    scenario_end(s);
}

static void write_replicas(const struct scenarios_folders *f)
{
    struct scenario_model model = scenario_small();
    model.tp_size = 2;
    model.replicas = true;
    struct scenario *s = scenario_begin(&model);
    unsigned a = scenario_request(s, "a", scenarios_tokens, 12), b = scenario_request(s, "b", other_tokens, 12);
    scenario_open(s, f->dec);
    for (unsigned position = 0; position < 12; position += position == 0 ? 8 : 1) {
        unsigned rows = position == 0 ? 8 : 1;
        scenario_pass(s, &(struct scenario_pass){.parts = {{.request = a, .position = position, .rows = rows}},
                                                 .part_count = 1,
                                                 .padding = 2,
                                                 .padding_requests = 2,
                                                 .rank = 0});
        scenario_pass(s, &(struct scenario_pass){.parts = {{.request = b, .position = position, .rows = rows}},
                                                 .part_count = 1,
                                                 .rank = 1});
    }
    scenario_open(s, f->pre); /* the other way round */
    unsigned pa = scenario_request(s, "pa", scenarios_tokens, 12), pb = scenario_request(s, "pb", other_tokens, 12);
    scenario_pass(s, &(struct scenario_pass){.parts = {{.request = pb, .rows = 12}}, .part_count = 1, .rank = 0});
    scenario_pass(s, &(struct scenario_pass){.parts = {{.request = pa, .rows = 12}}, .part_count = 1, .rank = 1});
    scenario_end(s);
}

/* ---- retraction, requests without ids ---- */

static void write_retraction(const struct scenarios_folders *f)
{
    struct scenario *s = begin();
    unsigned request = scenario_request(s, "dec-0", scenarios_tokens, 14);
    scenario_open(s, f->dec);
    scenario_prefill(s, request, 8);
    scenario_decode(s, request, 8, 10);
    scenario_prefill(s, request, 11);
    scenario_decode(s, request, 11, 13);
    score(s, f->pre, "pre-0", 14);
    scenario_end(s);
}

static void write_without_ids(const struct scenarios_folders *f, bool reused)
{
    struct scenario *s = begin();
    scenario_open(s, f->dec);
    for (unsigned i = 0; i < 2; i++) {
        unsigned request = scenario_request(s, "x", i == 0 ? scenarios_tokens : other_tokens, 12);
        scenario_slot(s, request, reused ? 7 : 7 + i);
        for (unsigned position = 0; position < 12; position += position == 0 ? 8 : 1)
            scenario_pass(s, &(struct scenario_pass){
                                 .parts = {{.request = request, .position = position, .rows = position == 0 ? 8 : 1}},
                                 .part_count = 1,
                                 .no_rids = true});
    }
    score(s, f->pre, "pre-0", 12);
    scenario_prefill(s, scenario_request(s, "pre-1", other_tokens, 12), 12);
    scenario_end(s);
}

static void write_slots(const struct scenarios_folders *f)
{
    write_without_ids(f, false);
}

static void write_slots_reused(const struct scenarios_folders *f)
{
    write_without_ids(f, true);
}

static void write_more_requests(const struct scenarios_folders *f)
{
    struct scenario *s = begin();
    generate(s, f->dec, "dec-0", 8, 12);
    unsigned other = scenario_request(s, "other", other_tokens, 8);
    scenario_prefill(s, other, 4);
    scenario_decode(s, other, 4, 6);
    score(s, f->pre, "pre-0", 12);
    scenario_prefill(s, scenario_request(s, "another", other_tokens + 1, 8), 8);
    scenario_end(s);
}

#define HOLDS                            .fails = SCENARIOS_NONE, .message = SCENARIOS_NONE
#define NOTHING                          .kind = DIFF_KIND_NONE, .layer = -1, .position = -1
#define SAYS(id, part)                   .message = DIFF_MESSAGE_##id, .says = part
#define FAILS(proof, id, part)           .fails = DIFF_PROOF_##proof, SAYS(id, part), NOTHING
#define FINDS(what, where, in_layer, at) .kind = DIFF_KIND_##what, .module = where, .layer = in_layer, .position = at

const struct scenarios_case scenarios_all[] = {
#include "scenarios.def"
};
const size_t scenarios_count = sizeof scenarios_all / sizeof scenarios_all[0];
