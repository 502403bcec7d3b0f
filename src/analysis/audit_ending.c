#include "analysis/audit_work.h"
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

static bool is_last_of_rank(const struct audit_work *work, size_t pass)
{
    const struct audit *audit = work->audit;
    return pass + 1 == audit->pass_count || audit->passes[pass + 1].rank != audit->passes[pass].rank;
}

/* Passes first..last are those of one rank. */
static bool is_whole(const struct audit_work *work, size_t first, size_t last)
{
    const struct audit_expected *expected = work->expected;
    const struct audit_pass *pass = &work->audit->passes[last];
    if (!expected->known)
        return !has_model(work, first, last, false);
    if (expected->exact || (pass->rank < expected->rank_count && pass->step < expected->ranks[pass->rank].step_to))
        return true;
    return !work->spans[last].broken && has_model(work, first, last, true);
}

void audit_ending_mark(struct audit_work *work)
{
    for (size_t first = 0, i = 0; i < work->audit->pass_count; i++) {
        if (!is_last_of_rank(work, i))
            continue;
        work->spans[i].cut = !is_whole(work, first, i);
        first = i + 1;
    }
}

/* ---- usable steps ---- */

static const struct audit_table_file *first_file(const struct audit_work *work, size_t pass)
{
    return &work->table.files[work->spans[pass].first];
}

static const struct audit_table_file *last_file(const struct audit_work *work, size_t pass)
{
    return first_file(work, pass) + work->spans[pass].count - 1;
}

/* No file of the pass can be missing. Where one is missing between two passes it may be of either. */
static bool has_all_files(const struct audit_work *work, size_t pass)
{
    const struct audit_expected *expected = work->expected;
    const struct audit_table_file *first = first_file(work, pass), *last = last_file(work, pass);
    bool begins = pass == 0 || is_last_of_rank(work, pass - 1), ends = is_last_of_rank(work, pass);
    if (last->dump_index - first->dump_index != work->spans[pass].count - 1)
        return false;
    if (!begins && first->dump_index != last_file(work, pass - 1)->dump_index + 1)
        return false;
    if (!ends && last->dump_index + 1 != first_file(work, pass + 1)->dump_index)
        return false;
    if (!expected->known)
        return true;
    if (first->rank >= expected->rank_count)
        return false;
    const struct audit_expected_rank *counted = &expected->ranks[first->rank];
    if (first->dump_index <= counted->index_from || (begins && first->dump_index != counted->index_from + 1))
        return false;
    return expected->exact ? last->dump_index <= counted->index_to && (!ends || last->dump_index == counted->index_to)
                           : !ends || last->dump_index >= counted->index_to;
}

static int by_step(const void *a, const void *b)
{
    const uint64_t *x = a, *y = b;
    return (*x > *y) - (*x < *y);
}

static void find_usable(struct audit_work *work)
{
    struct audit *audit = work->audit;
    uint64_t ranks = work->expected->known ? work->expected->rank_count : audit->ranks;
    uint64_t *steps = memory_new((audit->pass_count + 1) * sizeof *steps);
    size_t count = 0;
    for (size_t i = 0; i < audit->pass_count; i++)
        if (!work->spans[i].broken && !work->spans[i].cut && !work->spans[i].replayed && has_all_files(work, i))
            steps[count++] = audit->passes[i].step;
    qsort(steps, count, sizeof *steps, by_step);
    for (size_t i = 0, same = 0; i < count; i++) {
        same = i > 0 && steps[i] == steps[i - 1] ? same + 1 : 1;
        if (same == ranks)
            audit_add_usable(audit, steps[i]);
    }
    free(steps);
}

/* ---- what is told ---- */

static void tell(struct audit_work *work, const char *what)
{
    char usable[200];
    audit_usable_text(work->audit, usable, sizeof usable);
    if (work->reasons.kinds[AUDIT_REASON_LAST_STEP].count > 0) /* once is enough */
        audit_reasons_add(&work->reasons, AUDIT_REASON_LAST_STEP, 1, "%s", what);
    else if (work->audit->usable_count > 0)
        audit_reasons_add(&work->reasons, AUDIT_REASON_LAST_STEP, 1, "%s; usable: %s", what, usable);
    else
        audit_reasons_add(&work->reasons, AUDIT_REASON_LAST_STEP, 1, "%s; no step is usable", what);
}

static void tell_cut(struct audit_work *work, const struct audit_pass *pass)
{
    char text[200];
    snprintf(text, sizeof text,
             "rank %" PRIu32 " step %" PRIu64 " has %" PRIu64 " file%s, unlike every earlier %s step", pass->rank,
             pass->step, pass->files, pass->files == 1 ? "" : "s", audit_phase_name(pass->phase));
    tell(work, text);
}

/* The writer ended on its own terms on no rank: a step that one rank has and another has not is not usable. */
static void tell_behind(struct audit_work *work, const struct audit_pass *pass, const struct audit_pass *furthest)
{
    char text[200];
    snprintf(text, sizeof text, "rank %" PRIu32 " ends with step %" PRIu64 ", rank %" PRIu32 " with step %" PRIu64,
             pass->rank, pass->step, furthest->rank, furthest->step);
    tell(work, text);
}

void audit_ending_tell(struct audit_work *work)
{
    const struct audit *audit = work->audit;
    const struct audit_pass *furthest = audit->passes;
    find_usable(work);
    for (size_t i = 0; i < audit->pass_count; i++) {
        if (is_last_of_rank(work, i) && audit->passes[i].step > furthest->step)
            furthest = &audit->passes[i];
        if (work->spans[i].cut)
            tell_cut(work, &audit->passes[i]);
    }
    for (size_t i = 0; work->expected->known && !work->expected->exact && i < audit->pass_count; i++)
        if (is_last_of_rank(work, i) && audit->passes[i].step < furthest->step)
            tell_behind(work, &audit->passes[i], furthest);
}
