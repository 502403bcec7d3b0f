#include "analysis/audit_work.h"
#include "analysis/audit_probe.h"
#include "base/memory.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- the last step of each rank ---- */

static int by_value(const void *a, const void *b)
{
    const uint32_t *x = a, *y = b;
    return (*x > *y) - (*x < *y);
}

/* The names of a pass as numbers; in the order of dump_index, or sorted. The caller frees. */
static uint32_t *names_of(const struct audit_work *work, size_t pass, bool sorted)
{
    const struct audit_span *span = &work->spans[pass];
    uint32_t *names = memory_new((span->count + 1) * sizeof *names);
    for (size_t i = 0; i < span->count; i++)
        names[i] = work->table.files[span->first + i].suffix;
    if (sorted)
        qsort(names, span->count, sizeof *names, by_value);
    return names;
}

/* Looks for a pass among first..last-1, of the same phase and without broken files, that `last` equals (whole: as a
 * set) or only begins like (not whole: fewer files, the same names in the same order). */
static bool has_model(const struct audit_work *work, size_t first, size_t last, bool whole)
{
    const struct audit_pass *passes = work->audit->passes;
    size_t count = work->spans[last].count;
    uint32_t *names = names_of(work, last, whole);
    bool found = false;
    for (size_t i = last; !found && i-- > first;) {
        size_t other = work->spans[i].count;
        if (passes[i].phase != passes[last].phase || work->spans[i].broken || (whole ? other != count : other <= count))
            continue;
        uint32_t *model = names_of(work, i, whole);
        found = memcmp(model, names, count * sizeof *names) == 0;
        free(model);
    }
    free(names);
    return found;
}

/* Passes first..last are those of one rank. A step below the last counter that was read is known to have ended; where
 * nothing is known, a last step that only begins like an earlier one is called cut. */
static void check_last_step(struct audit_work *work, size_t first, size_t last)
{
    const struct audit_expected *expected = work->expected;
    const struct audit_pass *pass = &work->audit->passes[last];
    if (expected->known &&
        (expected->exact || (pass->rank < expected->rank_count && pass->step < expected->ranks[pass->rank].step_to)))
        return;
    bool whole = expected->known ? !work->spans[last].broken && has_model(work, first, last, true)
                                 : !has_model(work, first, last, false);
    if (whole)
        return;
    work->spans[last].cut = true;
    char usable[64] = "no step is usable";
    if (last > first)
        snprintf(usable, sizeof usable, "usable: steps %" PRIu64 "-%" PRIu64, pass[-(ptrdiff_t)(last - first)].step,
                 pass[-1].step);
    audit_reasons_add(&work->reasons, AUDIT_REASON_LAST_STEP, 1,
                      "rank %" PRIu32 " step %" PRIu64 " has %" PRIu64 " files, unlike every earlier %s step; %s",
                      pass->rank, pass->step, pass->files, audit_phase_name(pass->phase), usable);
}

/* The writer ended on its own terms on no rank: a step that one rank has and another has not is not usable. */
static void compare_last_steps(struct audit_work *work, const size_t *last, size_t count)
{
    const struct audit_pass *passes = work->audit->passes;
    size_t furthest = 0;
    for (size_t i = 1; i < count; i++)
        if (passes[last[i]].step > passes[last[furthest]].step)
            furthest = i;
    for (size_t i = 0; i < count; i++)
        if (passes[last[i]].step < passes[last[furthest]].step)
            audit_reasons_add(&work->reasons, AUDIT_REASON_LAST_STEP, 1,
                              "rank %" PRIu32 " ends with step %" PRIu64 ", rank %" PRIu32 " with step %" PRIu64,
                              passes[last[i]].rank, passes[last[i]].step, passes[last[furthest]].rank,
                              passes[last[furthest]].step);
}

static void check_last_steps(struct audit_work *work)
{
    const struct audit_pass *passes = work->audit->passes;
    size_t *last = memory_new((work->audit->ranks + 1) * sizeof *last), count = 0, first = 0;
    for (size_t i = 0; i < work->audit->pass_count; i++) {
        if (i > 0 && passes[i].rank != passes[i - 1].rank)
            first = i;
        if (i + 1 == work->audit->pass_count || passes[i + 1].rank != passes[i].rank) {
            check_last_step(work, first, i);
            last[count++] = i;
        }
    }
    if (work->expected->known && !work->expected->exact)
        compare_last_steps(work, last, count);
    free(last);
}

/* ---- files ---- */

static const enum audit_reason kinds[AUDIT_TABLE_STATES] = {
    [AUDIT_TABLE_EMPTY] = AUDIT_REASON_EMPTY,
    [AUDIT_TABLE_TRUNCATED] = AUDIT_REASON_TRUNCATED,
    [AUDIT_TABLE_FOREIGN] = AUDIT_REASON_FOREIGN_FORMAT,
    [AUDIT_TABLE_DAMAGED] = AUDIT_REASON_DAMAGED,
    [AUDIT_TABLE_VALUELESS] = AUDIT_REASON_VALUELESS,
    [AUDIT_TABLE_ROWS] = AUDIT_REASON_ROWS,
    [AUDIT_TABLE_IRREGULAR] = AUDIT_REASON_IRREGULAR,
    [AUDIT_TABLE_UNREADABLE] = AUDIT_REASON_UNREADABLE,
};

static void check_files(struct audit_work *work, const struct audit_span *span)
{
    for (size_t i = span->first; i < span->first + span->count; i++) {
        const struct audit_table_file *file = &work->table.files[i];
        if (file->state == AUDIT_TABLE_FINE)
            continue;
        enum audit_reason kind = kinds[file->state];
        char text[AUDIT_TABLE_NAME];
        struct error err = ERROR_INIT;
        if (file->state == AUDIT_TABLE_EMPTY || !audit_reasons_wants(&work->reasons, kind))
            audit_reasons_add(&work->reasons, kind, 1, "%s", audit_table_describe(&work->table, file, text));
        else if (audit_probe_explain(&work->table, work->folder_fd, file, &err) != ERROR_NONE)
            audit_reasons_add(&work->reasons, kind, 1, "%s (%s)", audit_table_describe(&work->table, file, text),
                              err.message);
        else
            audit_reasons_add(&work->reasons, kind, 1, "%s (fine at a second look: it is still being written)",
                              audit_table_describe(&work->table, file, text));
    }
}

/* ---- what the pattern of files says ---- */

/* A replayed prefill graph writes the root's inputs, the logits and nothing between, and never rids. */
static bool is_graph_replay(const struct audit_pass *pass, const struct audit_span *span)
{
    return span->hooks && !span->no_inputs && span->no_ids_file && pass->layer_files == 0;
}

/* With data-parallel attention a rank that has nothing to do runs along with an empty batch. */
static bool is_idle(const struct audit_pass *pass, const struct audit_span *span)
{
    return !span->no_inputs && pass->tokens == 0 && pass->requests == 0;
}

static void check_patterns(struct audit_work *work)
{
    bool hooks = false;
    for (size_t i = 0; i < work->audit->pass_count; i++)
        hooks |= work->spans[i].hooks;
    if (work->audit->pass_count > 0 && !hooks)
        audit_reasons_add(&work->reasons, AUDIT_REASON_CORE_MODE, 1, "%s", "");
    for (size_t i = 0; i < work->audit->pass_count; i++) {
        const struct audit_pass *pass = &work->audit->passes[i];
        const struct audit_span *span = &work->spans[i];
        if (span->cut)
            continue;
        if (is_graph_replay(pass, span))
            audit_reasons_add(&work->reasons, AUDIT_REASON_GRAPH_REPLAY, 1,
                              "step %" PRIu64 " rank %" PRIu32 " with %" PRIu64 " files", pass->step, pass->rank,
                              pass->files);
        else if (work->expected->own_request_ids.count > 0 && span->no_ids_file && !is_idle(pass, span))
            audit_reasons_add(&work->reasons, AUDIT_REASON_NO_REQUEST_IDS, 1, "step %" PRIu64 " rank %" PRIu32,
                              pass->step, pass->rank);
    }
}

void audit_signatures_check(struct audit_work *work)
{
    check_last_steps(work);
    for (size_t i = 0; i < work->audit->pass_count; i++)
        if (!work->spans[i].cut)
            check_files(work, &work->spans[i]);
    check_patterns(work);
    if (work->expected->failed_saves > 0)
        audit_reasons_add(&work->reasons, AUDIT_REASON_FAILED_SAVES, work->expected->failed_saves, "%s", "");
}
