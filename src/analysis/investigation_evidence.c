/* What decided, with numbers, and what nothing is said about: both made of what the steps' results tell. */
#include "analysis/investigation_private.h"

#include "analysis/report.h"
#include "base/buffer.h"
#include "base/memory.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

static void add_all(struct list *list, const char *before, char *const *items)
{
    for (; items != NULL && *items != NULL; items++)
        list_add_format(list, "%s%s", before, *items);
}

/* ---- evidence ---- */

static void add_amount(const struct investigation *in, struct list *list)
{
    char *own = investigation_facts_amount(&in->own), *dump = investigation_facts_amount(&in->dump);
    if (in->own.known && in->dump.known && strcmp(own, dump) == 0) {
        list_add_format(list, "your own flags and those of a dump alike: %s", own);
    } else {
        if (in->own.known)
            list_add_format(list, "your own flags: %s", own);
        if (in->dump.known)
            list_add_format(list, "flags of a dump: %s", dump);
    }
    free(own);
    free(dump);
}

static void add_kl(const struct investigation_facts *facts, const struct investigation_kl *kl, const char *flags,
                   struct list *list)
{
    if (!kl->known)
        return;
    if (kl->signature != NULL && kl->condition != KL_CONDITION_NONE)
        list_add_format(list, "%s: signature %s", flags, kl->signature);
    if (kl->few > 0)
        list_add_format(list, "%s: %zu of %zu requests in match have a token beyond stray", flags, kl->few,
                        kl->requests);
    if (kl == facts->basis)
        add_all(list, "kl: ", kl->evidence);
}

static void add_axes(const struct investigation_facts *facts, struct list *list)
{
    const struct investigation *in = facts->in;
    if (!investigation_facts_has_axes(in))
        return;
    for (size_t i = 0; i < in->axis_count; i++) {
        const struct investigation_axis *axis = &in->axes[i];
        char *first = axis->cached ? memory_copy(", first by one row on a cached prefix")
                      : axis->first_size > 0
                          ? memory_format(", first at %s %" PRIu64,
                                          strcmp(axis->word, "extend") == 0 ? "rows:" : "a batch of", axis->first_size)
                          : memory_copy("");
        char shorter[REPORT_SHORT];
        list_add_format(list, "invariance, %s: %s%s%s%s", axis->word, axis->state, first,
                        axis->module != NULL ? ", in " : "",
                        axis->module != NULL ? report_short(axis->module, shorter) : "");
        free(first);
    }
    list_add_format(list, "invariance: condition 1 %s",
                    in->invariance_condition != NULL ? in->invariance_condition : "not told");
    if (facts->axes == INVESTIGATION_AXES_CACHED && facts->reading == INVESTIGATION_READ_RESTORE)
        list_add(list,
                 "invariance: the row on a cached prefix reads what was restored, so here it speaks of condition 2");
}

static void add_capture(const struct investigation *in, struct list *list)
{
    if (!in->capture.known)
        return;
    const char *other = in->capture.restore ? "behind a restored prefix as in a whole prefill" : "decoded as scored";
    list_add_format(list,
                    "capture: %zu requests %s, %zu tokens, of which %zu have the same logprob bit for bit %s; largest "
                    "difference %.2g",
                    in->capture.requests, in->capture.alone ? "one at a time" : "in a batch", in->capture.tokens,
                    in->capture.bit_equal, other, in->capture.largest);
    add_all(list, "capture is not complete: ", in->capture.reasons);
}

static void add_diff(const struct investigation_facts *facts, struct list *list)
{
    const struct investigation *in = facts->in;
    if (!in->diff.known)
        return;
    if (facts->diff & (INVESTIGATION_DIFF_DIFFERENT | INVESTIGATION_DIFF_EQUAL)) {
        const char *sure = in->diff.confidence != NULL ? in->diff.confidence : "confidence not told";
        char *name = investigation_facts_operator(facts);
        if (facts->diff == INVESTIGATION_DIFF_EQUAL)
            list_add_format(list, "diff: %s, %s: every comparable row is bit-identical", in->diff.kind, sure);
        else
            list_add_format(list, "diff: %s, %s: %s; %" PRIu64 " of %" PRIu64 " rows with equal inputs differ there",
                            in->diff.kind, sure, name, in->diff.unequal, in->diff.tested);
        free(name);
        if (in->diff.has_position)
            list_add_format(list, "diff: first at position %" PRId64, in->diff.position);
        if (in->diff.reading != NULL && in->diff.reading[0] != '\0')
            list_add_format(list, "diff: the numbers look like %s", in->diff.reading);
    }
    add_all(list, "diff: ", in->diff.certificate);
    add_all(list, "diff: ", in->diff.against);
}

void investigation_evidence(const struct investigation_facts *facts, struct list *list)
{
    const struct investigation *in = facts->in;
    bool expects = facts->own == INVESTIGATION_READ_OPERATOR || facts->dump == INVESTIGATION_READ_OPERATOR;
    add_amount(in, list);
    add_kl(facts, &in->own, "your own flags", list);
    add_kl(facts, &in->dump, "flags of a dump", list);
    if (expects && !facts->basis->deterministic)
        list_add(list, "deterministic inference is off: condition 1 cannot be expected to hold");
    add_all(list, "changed for a dump: ", in->settings);
    add_axes(facts, list);
    add_capture(in, list);
    add_diff(facts, list);
}

/* ---- what nothing is said about ---- */

static void add_paths(const struct investigation_kl *kl, const struct investigation_kl *before, const char *flags,
                      struct list *list)
{
    for (int id = 0; kl->known && id < KL_PATHS; id++) {
        const char *why = kl->paths[id].why_not;
        bool told = before != NULL && before->known && before->paths[id].grade == KL_GRADE_NOT_MEASURED;
        if (kl->paths[id].grade == KL_GRADE_NOT_MEASURED && !told)
            list_add_format(list, "%s under %s%s%s", kl_path_word((enum kl_path_id)id), flags, why != NULL ? ": " : "",
                            why != NULL ? why : "");
    }
}

static bool same_fate(const struct investigation_step *a, const struct investigation_step *b)
{
    const char *why = a->why != NULL ? a->why : "", *other = b->why != NULL ? b->why : "";
    return a->state == b->state && strcmp(why, other) == 0;
}

/* Steps that follow each other and were left out for one reason are one line. */
static void add_steps(const struct investigation *in, struct list *list)
{
    for (int id = 0, end; id < INVESTIGATION_STEPS; id = end) {
        const struct investigation_step *step = &in->steps[id];
        struct buffer names;
        buffer_init(&names);
        for (end = id; end < INVESTIGATION_STEPS && same_fate(step, &in->steps[end]); end++)
            buffer_format(&names, "%s%s", end > id ? ", " : "",
                          investigation_step_name((enum investigation_step_id)end));
        if (step->state != INVESTIGATION_DONE)
            list_add_format(list, "%s: %s%s%s", investigation_state_word(step->state), names.data,
                            step->why != NULL ? ": " : "", step->why != NULL ? step->why : "");
        buffer_fini(&names);
    }
}

static void add_axis_gaps(const struct investigation *in, struct list *list)
{
    for (size_t i = 0; investigation_facts_has_axes(in) && i < in->axis_count; i++)
        if (in->axes[i].why_not != NULL)
            list_add_format(list, "invariance, %s: %s", in->axes[i].word, in->axes[i].why_not);
    if (investigation_facts_has_axes(in) && in->invariance_most > 0)
        list_add_format(list, "batches of more than %" PRIu64, in->invariance_most);
}

/* What the measurement was made with, and so says nothing beyond. */
static void add_limits(const struct investigation *in, struct list *list)
{
    const struct investigation_kl *kl = &in->own;
    if (!kl->known)
        return;
    list_add_format(list,
                    "other prompts, lengths and traffic than these: %" PRIu64 " prompts, %" PRIu64
                    " new tokens each, temperature %g",
                    kl->prompt_count, kl->new_tokens, kl->temperature);
    if (kl->window > 0 && !kl->past_window)
        list_add_format(list,
                        "positions past the sliding window of %" PRIu64 " tokens: take longer prompts or more new "
                        "tokens",
                        kl->window);
    if (kl->tp > 1)
        list_add_format(list, "another tensor-parallel size than %" PRIu64, kl->tp);
}

static void add_dump_gaps(const struct investigation *in, struct list *list)
{
    if (!in->diff.known)
        return;
    if (!in->own.graphs_known || !in->own.graphs_off)
        list_add(list, "what only a CUDA graph does: a dump is made without them");
    if (in->diff.tp > 1)
        list_add_format(list,
                        "inside of an all-reduce over %" PRIu64 " ranks: hooks see what goes in and what comes out",
                        in->diff.tp);
    list_add(list, in->diff.prefills ? "decode, layer by layer: the capture has prefills alone"
                                     : "a prefill behind a restored prefix, layer by layer: the capture has none");
    if (in->capture.known && in->own.known && in->capture.requests < in->own.prompt_count)
        list_add_format(list, "%zu of %" PRIu64 " prompts were dumped: the others are known by their logprobs alone",
                        in->capture.requests, in->own.prompt_count);
    if (in->capture.known && in->capture.alone)
        list_add(list, "several requests in one batch, layer by layer: the capture took one at a time");
    else if (in->capture.known)
        list_add(list,
                 "one request at a time, layer by layer: the capture was one batch, in which one-row faults vanish");
    add_all(list, "not seen by the dump: ", in->diff.blind);
}

void investigation_gaps(const struct investigation_facts *facts, bool condition_1_first, struct list *list)
{
    const struct investigation *in = facts->in;
    add_steps(in, list);
    add_paths(&in->own, NULL, "your own flags", list);
    add_paths(&in->dump, &in->own, "the flags of a dump", list);
    if (condition_1_first)
        list_add(list, "whether condition 2 holds during decode: condition 1 hides it");
    add_limits(in, list);
    add_axis_gaps(in, list);
    add_dump_gaps(in, list);
}
