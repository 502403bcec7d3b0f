/* From two folders to a verdict. Happy path: both sides are read, their rows paired, the slots of their modules put in
 * the order of the program; the slots are compared up to the embedding, which proves the alignment, and then to the end
 * (or, with `first`, to the first difference); evidence, verdict, proofs. Failure: what a side or the alignment lacks
 * is a message of the diff, and nothing that comes behind it is done; an error is only what the machine or the paths
 * are to blame for. */
#include "analysis/alignment.h"
#include "analysis/compare.h"
#include "analysis/diff.h"
#include "analysis/evidence.h"
#include "analysis/observations.h"
#include "analysis/proofs.h"
#include "analysis/scan.h"
#include "analysis/side.h"
#include "analysis/verdict.h"
#include "base/list.h"
#include "base/memory.h"

#include <stdlib.h>
#include <string.h>

enum { STEP = 64 }; /* observations between two looks at what was found: does not depend on the threads */

struct reporter {
    const struct diff_options *options;
    const char *what;
};

static void report(void *context, uint64_t done, uint64_t total)
{
    const struct reporter *reporter = context;
    if (reporter->options->progress != NULL)
        reporter->options->progress(reporter->options->context, reporter->what, done, total);
}

/* The token of every row of the passes: [pass][row]; -1 where none is known. */
static int64_t **make_ids(const struct side *side)
{
    int64_t **ids = memory_new((side->pass_count + 1) * sizeof *ids);
    for (size_t i = 0; i < side->pass_count; i++) {
        ids[i] = memory_new((side->passes[i].tokens + 1) * sizeof **ids);
        memset(ids[i], 0xFF, side->passes[i].tokens * sizeof **ids);
    }
    for (size_t i = 0; i < side->sequence_count; i++)
        for (size_t k = 0; k < side->sequences[i].length; k++) {
            const struct side_token *token = &side->sequences[i].tokens[k];
            if (token->pass != SIDE_NOWHERE && token->row < side->passes[token->pass].tokens)
                ids[token->pass][token->row] = token->id;
        }
    return ids;
}

static void fill_pairs(const struct scan *scan)
{
    struct diff *diff = scan->diff;
    int64_t **ids = make_ids(scan->a);
    diff->pair_count = scan->alignment->pair_count;
    diff->target_count = scan->alignment->target_count;
    diff->pairs = memory_new((diff->pair_count + 1) * sizeof *diff->pairs);
    for (size_t i = 0; i < diff->pair_count; i++) {
        const struct alignment_pair *pair = &scan->alignment->pairs[i];
        const struct side_pass *a = &scan->a->passes[pair->a_pass], *b = &scan->b->passes[pair->b_pass];
        diff->pairs[i] = (struct diff_pair){.request = pair->request,
                                            .rank = a->rank,
                                            .position = pair->position,
                                            .id = pair->a_row < a->tokens ? ids[pair->a_pass][pair->a_row] : -1,
                                            .target = pair->target,
                                            .a_step = a->step,
                                            .b_step = b->step,
                                            .a_row = pair->a_row,
                                            .b_row = pair->b_row};
    }
    for (size_t i = 0; i < scan->a->pass_count; i++)
        free(ids[i]);
    free(ids);
}

static bool proofs_hold(const struct diff *diff)
{
    for (int id = 0; id < DIFF_PROOF_COUNT; id++)
        if (diff_proof_fatal((enum diff_proof_id)id) && diff->proofs[id].state != DIFF_PROOF_HOLDS &&
            diff->proofs[id].state != DIFF_PROOF_WEAK)
            return false;
    return true;
}

/* Compares until the embedding is proven; false: it is not, and there is nothing more to say. */
static bool compare_to_embedding(struct scan *scan)
{
    uint32_t embedding = OBSERVATIONS_NONE;
    while (scan->compared < scan->observations->count && embedding == OBSERVATIONS_NONE) {
        size_t next = scan->compared + STEP;
        next = next < scan->observations->count ? next : scan->observations->count;
        compare_range(scan->compare, scan->compared, next);
        scan->compared = next;
        embedding = proofs_embedding_find(scan);
    }
    proofs_embedding(scan, embedding);
    return proofs_hold(scan->diff);
}

static void compare_rest(struct scan *scan)
{
    size_t count = scan->observations->count;
    if (!scan->options->first) {
        compare_range(scan->compare, scan->compared, count);
        scan->compared = count;
        return;
    }
    while (scan->compared < count && !verdict_is_near(scan)) {
        size_t next = scan->compared + STEP < count ? scan->compared + STEP : count;
        compare_range(scan->compare, scan->compared, next);
        scan->compared = next;
    }
}

/* Files that are no dumps of tensors, and whether the verdict needed one of them. */
static void fill_refused(const struct scan *scan)
{
    struct diff *diff = scan->diff;
    struct list refused = {0};
    size_t place = diff->verdict.kind == DIFF_KIND_NONE ? scan->compared : diff->verdict.first_unequal;
    bool lost = false;
    for (size_t i = 0; i < scan->compared; i++) {
        const struct compare_trouble *trouble = &compare_found(scan->compare, i)->trouble;
        bool is_refused = pt_file_refuses(trouble->problem);
        if (trouble->text == NULL)
            continue;
        if (is_refused)
            list_add(&refused, trouble->text);
        diff->refused_needed |= is_refused && i <= place;
        lost |= !is_refused;
    }
    /* "Equal" is not said over files that cannot be read. */
    if (lost && diff->verdict.kind == DIFF_KIND_NONE)
        diff->usable = false;
    diff->refused = list_vector(&refused);
}

static void conclude(struct scan *scan)
{
    scan->diff->proven = compare_to_embedding(scan);
    if (scan->diff->proven)
        compare_rest(scan);
    evidence_fill(scan);
    if (scan->diff->proven)
        verdict_make(scan);
    else
        scan->diff->verdict.first_unequal = OBSERVATIONS_NONE;
    proofs_all(scan);
    if (scan->diff->proven)
        verdict_rate(scan);
    fill_refused(scan);
}

static enum error_code run(const struct diff_options *options, struct side *a, struct side *b,
                           struct alignment *alignment, struct diff *diff, struct error *err)
{
    struct reporter reporter = {.options = options, .what = "reading the decode side"};
    enum error_code code = side_read(options->a_paths, options->threads, report, &reporter, a, err);
    reporter.what = "reading the reference";
    if (code == ERROR_NONE)
        code = side_read(options->b_paths, options->threads, report, &reporter, b, err);
    diff->usable = true;
    if (code == ERROR_NONE)
        code = alignment_make(a, b, options->trust_slots, diff, alignment, err);
    if (code != ERROR_NONE)
        return code;
    diff->tp_size = a->tp_size;
    diff->ranks = a->ranks;
    struct scan scan = {.options = options, .a = a, .b = b, .alignment = alignment, .diff = diff};
    fill_pairs(&scan);
    if (alignment->pair_count == 0 || !diff->usable)
        return ERROR_NONE;
    struct observations observations;
    reporter.what = "comparing";
    struct compare_options how = {
        .threads = options->threads, .strict_zero = options->strict_zero, .progress = report, .context = &reporter};
    observations_make(a, b, alignment, options->stateful, diff, &observations);
    scan.observations = &observations;
    scan.compare = compare_new(a, b, alignment, &observations, &how, diff);
    conclude(&scan);
    compare_free(scan.compare);
    observations_fini(&observations);
    return ERROR_NONE;
}

static const char *last_of(const char *const *paths)
{
    while (paths[1] != NULL)
        paths++;
    return paths[0];
}

enum error_code diff_run(const struct diff_options *options, struct diff *ret_diff, struct error *err)
{
    struct side a = {0}, b = {0};
    struct alignment alignment = {0};
    struct diff diff = {.a_path = memory_copy(last_of(options->a_paths)),
                        .b_path = memory_copy(last_of(options->b_paths))};
    enum error_code code = run(options, &a, &b, &alignment, &diff, err);
    alignment_fini(&alignment);
    side_fini(&a);
    side_fini(&b);
    if (code != ERROR_NONE) {
        diff_fini(&diff);
        return code;
    }
    *ret_diff = diff;
    return ERROR_NONE;
}
