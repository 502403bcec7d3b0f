#include "analysis/investigation_private.h"

#include "analysis/diff.h"
#include "analysis/invariance.h"
#include "analysis/report.h"
#include "base/buffer.h"
#include "base/memory.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

static bool is_dirty(enum kl_grade grade)
{
    return grade != KL_GRADE_NOT_MEASURED && !kl_grade_clean(grade);
}

static unsigned reading_of(const struct investigation_kl *kl)
{
    if (!kl->known)
        return INVESTIGATION_READ_UNKNOWN;
    switch (kl->condition) {
    case KL_CONDITION_NONE:
        return INVESTIGATION_READ_CLEAN;
    case KL_CONDITION_1:
        return INVESTIGATION_READ_OPERATOR;
    case KL_CONDITION_2:
        return kl->where == KL_WHERE_RESTORE ? INVESTIGATION_READ_RESTORE : INVESTIGATION_READ_DECODE;
    case KL_CONDITION_REFUSED:
        break;
    }
    return INVESTIGATION_READ_REFUSED;
}

static unsigned diff_of(const struct investigation *in)
{
    static const struct {
        enum diff_kind kind;
        unsigned bit;
    } kinds[] = {
        {DIFF_KIND_NONE, INVESTIGATION_DIFF_EQUAL},       {DIFF_KIND_OP, INVESTIGATION_DIFF_OPERATOR},
        {DIFF_KIND_GAP, INVESTIGATION_DIFF_BETWEEN},      {DIFF_KIND_GLUE, INVESTIGATION_DIFF_BETWEEN},
        {DIFF_KIND_OP_CACHE, INVESTIGATION_DIFF_CONTEXT}, {DIFF_KIND_STATE, INVESTIGATION_DIFF_CONTEXT},
    };
    if (!in->diff.known)
        return INVESTIGATION_DIFF_UNKNOWN;
    if (in->diff.status == STATUS_INCOMPLETE || in->diff.status == STATUS_REFUSED_FILE)
        return INVESTIGATION_DIFF_UNUSABLE;
    for (size_t i = 0; in->diff.proven && in->diff.kind != NULL && i < sizeof kinds / sizeof kinds[0]; i++)
        if (strcmp(in->diff.kind, diff_kind_word(kinds[i].kind)) == 0)
            return kinds[i].bit;
    return INVESTIGATION_DIFF_UNPROVEN;
}

static bool are_equal(const char *a, const char *b)
{
    return a == NULL || b == NULL || strcmp(a, b) == 0;
}

static void compare_measurements(struct investigation_facts *facts)
{
    const struct investigation_kl *own = &facts->in->own, *dump = &facts->in->dump;
    if (!own->known || !dump->known)
        return;
    facts->other_prompts = !are_equal(own->prompts_hash, dump->prompts_hash) || own->new_tokens != dump->new_tokens ||
                           own->temperature < dump->temperature || own->temperature > dump->temperature;
    for (size_t id = 0; id < KL_PATHS; id++) {
        facts->not_compared[id] = is_dirty(own->paths[id].grade) && dump->paths[id].grade == KL_GRADE_NOT_MEASURED;
        facts->some_not_compared = facts->some_not_compared || facts->not_compared[id];
    }
}

bool investigation_facts_has_axes(const struct investigation *in)
{
    return in->invariance_known && in->steps[INVESTIGATION_INVARIANCE].state != INVESTIGATION_FAILED;
}

static enum investigation_axes axes_of(const struct investigation *in)
{
    enum investigation_axes found = INVESTIGATION_AXES_UNKNOWN;
    for (size_t i = 0; investigation_facts_has_axes(in) && i < in->axis_count; i++) {
        const struct investigation_axis *axis = &in->axes[i];
        enum investigation_axes one = axis->cached           ? INVESTIGATION_AXES_CACHED
                                      : axis->first_size > 0 ? INVESTIGATION_AXES_CHANGED
                                      : strcmp(axis->state, invariance_state_word(INVARIANCE_UNCHANGED)) == 0
                                          ? INVESTIGATION_AXES_UNCHANGED
                                          : INVESTIGATION_AXES_UNKNOWN;
        found = one > found ? one : found;
    }
    return found;
}

/* Whether the dumps of an axis leave nothing but an operator: equal inputs, and of attention equal keys and values
 * written before; behind a restored prefix what it reads is what was restored, which may be wrong. */
static bool names_operator(const struct investigation_axis *axis)
{
    if (axis->module == NULL || axis->kind == NULL)
        return false;
    return strcmp(axis->kind, diff_kind_word(DIFF_KIND_OP)) == 0 ||
           (!axis->cached && strcmp(axis->kind, diff_kind_word(DIFF_KIND_OP_CACHE)) == 0);
}

/* The axis of decode first: it is decode that parts from prefill. */
static const struct investigation_axis *batch_of(const struct investigation *in)
{
    static const enum invariance_axis_id order[] = {INVARIANCE_DECODE, INVARIANCE_EXTEND, INVARIANCE_PREFILL};
    for (size_t o = 0; o < sizeof order / sizeof order[0]; o++)
        for (size_t i = 0; investigation_facts_has_axes(in) && i < in->axis_count; i++)
            if (strcmp(in->axes[i].word, invariance_axis_word(order[o])) == 0 && names_operator(&in->axes[i]))
                return &in->axes[i];
    return NULL;
}

void investigation_facts(const struct investigation *investigation, struct investigation_facts *ret_facts)
{
    struct investigation_facts facts = {
        .in = investigation,
        .own = reading_of(&investigation->own),
        .dump = reading_of(&investigation->dump),
        .diff = diff_of(investigation),
        .axes = axes_of(investigation),
        .batch = batch_of(investigation),
        .dump_needed = investigation->steps[INVESTIGATION_KL_DUMP].state != INVESTIGATION_NOT_NEEDED,
        .failed = INVESTIGATION_STEPS,
        .not_reached = INVESTIGATION_STEPS,
    };
    for (int id = INVESTIGATION_STEPS - 1; id >= 0; id--) {
        if (investigation->steps[id].state == INVESTIGATION_FAILED)
            facts.failed = (enum investigation_step_id)id;
        if (investigation->steps[id].state == INVESTIGATION_NOT_REACHED)
            facts.not_reached = (enum investigation_step_id)id;
    }
    if (facts.dump & INVESTIGATION_READ_DIRTY)
        facts.basis = &investigation->dump;
    else if (investigation->own.known)
        facts.basis = &investigation->own;
    facts.reading = facts.basis != NULL ? reading_of(facts.basis) : INVESTIGATION_READ_UNKNOWN;
    compare_measurements(&facts);
    *ret_facts = facts;
}

bool investigation_facts_has_failed(const struct investigation_facts *facts, enum investigation_step_id id)
{
    return facts->in->steps[id].state == INVESTIGATION_FAILED;
}

const char *investigation_facts_reading_word(unsigned reading)
{
    switch (reading) {
    case INVESTIGATION_READ_CLEAN:
        return "clean";
    case INVESTIGATION_READ_REFUSED:
        return "nothing that can be read";
    case INVESTIGATION_READ_OPERATOR:
        return "condition 1 (operators that are not batch-invariant)";
    case INVESTIGATION_READ_DECODE:
        return "condition 2 during decode";
    case INVESTIGATION_READ_RESTORE:
        return "condition 2 in the prefix restore";
    default:
        return "not measured";
    }
}

char *investigation_facts_operator(const struct investigation_facts *facts)
{
    const struct investigation *in = facts->in;
    char shorter[REPORT_SHORT];
    struct buffer text;
    if (in->diff.module == NULL)
        return memory_copy("no module that was dumped");
    buffer_init(&text);
    buffer_text(&text, report_short(in->diff.module, shorter));
    if (in->diff.has_layer || in->diff.class_kind != NULL || in->diff.class != NULL) {
        buffer_text(&text, " (");
        const char *before = "";
        if (in->diff.has_layer) {
            buffer_format(&text, "layer %" PRIu64, in->diff.layer);
            before = ", ";
        }
        if (in->diff.class_kind != NULL) {
            buffer_format(&text, "%s%s", before, in->diff.class_kind);
            before = ", ";
        }
        if (in->diff.class != NULL)
            buffer_format(&text, "%s%s", before, in->diff.class);
        buffer_text(&text, ")");
    }
    char *own = buffer_steal(&text);
    buffer_fini(&text);
    return own;
}

/* "match 35 of 96 tokens beyond stray, mean k3 0.0002, ...; clean: restore (96 tokens)" */
char *investigation_facts_amount(const struct investigation_kl *kl)
{
    struct buffer dirty, clean;
    buffer_init(&dirty);
    buffer_init(&clean);
    for (int id = 0; id < KL_PATHS; id++) {
        const char *word = kl_path_word((enum kl_path_id)id);
        if (is_dirty(kl->paths[id].grade))
            buffer_format(&dirty, "%s%s %zu of %zu tokens beyond stray, mean k3 %.2g (%s)",
                          dirty.length > 0 ? "; " : "", word, kl->paths[id].beyond, kl->paths[id].tokens,
                          kl->paths[id].mean, kl_grade_word(kl->paths[id].grade));
        else if (kl_grade_clean(kl->paths[id].grade))
            buffer_format(&clean, "%s%s (%zu tokens of %zu requests, %s)", clean.length > 0 ? ", " : "", word,
                          kl->paths[id].tokens, kl->paths[id].kept, kl_grade_word(kl->paths[id].grade));
    }
    if (clean.length > 0)
        buffer_format(&dirty, "%sclean: %s", dirty.length > 0 ? "; " : "", clean.data);
    if (dirty.length == 0)
        buffer_text(&dirty, "no path was measured");
    buffer_fini(&clean);
    char *own = buffer_steal(&dirty);
    buffer_fini(&dirty);
    return own;
}

/* "none of 480 tokens is beyond stray: match, restore" */
char *investigation_facts_clean(const struct investigation_kl *kl)
{
    struct buffer words;
    size_t tokens = 0, requests = 0;
    buffer_init(&words);
    for (int id = 0; id < KL_PATHS; id++) {
        if (kl->paths[id].grade == KL_GRADE_NOT_MEASURED)
            continue;
        buffer_format(&words, "%s%s", words.length > 0 ? "; " : "", kl_path_word((enum kl_path_id)id));
        tokens += kl->paths[id].tokens;
        requests = kl->paths[id].kept > requests ? kl->paths[id].kept : requests;
    }
    char *text =
        memory_format("of %zu tokens of %zu requests none differs by more than two ways of taking one logprob do "
                      "(%s)",
                      tokens, requests, words.data);
    buffer_fini(&words);
    return text;
}

/* ---- words ---- */

const char *investigation_step_name(enum investigation_step_id id)
{
    static const char *const names[] = {
#define X(constant, name, word) name,
#include "analysis/investigation_steps.def"
#undef X
    };
    return names[id];
}

const char *investigation_step_word(enum investigation_step_id id)
{
    static const char *const words[] = {
#define X(constant, name, word) word,
#include "analysis/investigation_steps.def"
#undef X
    };
    return words[id];
}

const char *investigation_state_word(enum investigation_state state)
{
    static const char *const words[] = {"not reached", "not needed", "failed", "done"};
    return words[state];
}

/* ---- memory ---- */

static void kl_fini(struct investigation_kl *kl)
{
    free(kl->signature);
    free(kl->text);
    list_vector_free(kl->evidence);
    list_vector_free(kl->next);
    for (size_t id = 0; id < KL_PATHS; id++)
        free(kl->paths[id].why_not);
    free(kl->prompts_hash);
    free(kl->version);
    free(kl->model);
}

static void diff_fini_texts(struct investigation *in)
{
    char *texts[] = {in->diff.kind,  in->diff.module,        in->diff.class,   in->diff.class_kind,
                     in->diff.needs, in->diff.confidence,    in->diff.reading, in->diff.what,
                     in->diff.after, in->diff.first_unequal, in->diff.page};
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++)
        free(texts[i]);
    list_vector_free(in->diff.certificate);
    list_vector_free(in->diff.against);
    list_vector_free(in->diff.blind);
}

void investigation_fini(struct investigation *investigation)
{
    free(investigation->name);
    free(investigation->directory);
    free(investigation->command);
    for (size_t id = 0; id < INVESTIGATION_STEPS; id++) {
        free(investigation->steps[id].why);
        free(investigation->steps[id].command);
        free(investigation->steps[id].result);
    }
    kl_fini(&investigation->own);
    kl_fini(&investigation->dump);
    list_vector_free(investigation->settings);
    free(investigation->invariance_condition);
    for (size_t i = 0; i < investigation->axis_count; i++) {
        free(investigation->axes[i].word);
        free(investigation->axes[i].state);
        free(investigation->axes[i].module);
        free(investigation->axes[i].kind);
        free(investigation->axes[i].why_not);
    }
    free(investigation->axes);
    list_vector_free(investigation->capture.reasons);
    diff_fini_texts(investigation);
    *investigation = (struct investigation){0};
}
