/* Each rank has its own dump_index (with pipeline parallelism each stage writes another number of files), so a rank is
 * only ever held against its own numbers; steps are the same on all ranks. Everything here is linear in the number of
 * files, whatever numbers the names claim. */
#include "analysis/audit_work.h"
#include "base/memory.h"
#include "base/number.h"

#include <inttypes.h>
#include <stdlib.h>

static const struct audit_expected_rank *expected_rank(const struct audit_work *work, uint32_t rank)
{
    const struct audit_expected *expected = work->expected;
    return expected->known && rank < expected->rank_count ? &expected->ranks[rank] : NULL;
}

/* "17" or "17-20", with the rank before it where there are several. */
static void add_range(struct audit_work *work, enum audit_reason kind, uint32_t rank, const char *what, uint64_t first,
                      uint64_t last)
{
    if (last == first)
        audit_reasons_add(&work->reasons, kind, 1, "rank %" PRIu32 " %s %" PRIu64, rank, what, first);
    else
        audit_reasons_add(&work->reasons, kind, last - first + 1, "rank %" PRIu32 " %s %" PRIu64 "-%" PRIu64, rank,
                          what, first, last);
}

static bool went_back(const struct audit_expected_rank *rank)
{
    return rank->index_to < rank->index_from || rank->step_to < rank->step_from;
}

/* ---- dump_index ---- */

static void note_file(struct audit_work *work, enum audit_reason kind, const struct audit_table_file *file)
{
    char text[AUDIT_TABLE_NAME];
    audit_reasons_add(&work->reasons, kind, 1, "%s", audit_table_describe(&work->table, file, text));
}

/* Files first..end-1 are those of one rank, by dump_index. */
static void check_rank_index(struct audit_work *work, size_t first, size_t end)
{
    const struct audit_table_file *files = work->table.files;
    uint32_t rank = files[first].rank;
    const struct audit_expected_rank *expected = expected_rank(work, rank);
    uint64_t from = number_subtract(files[first].dump_index, 1), to = files[end - 1].dump_index;
    bool bounded = expected != NULL && !went_back(expected);
    if (bounded) {
        from = expected->index_from;
        if (work->expected->exact || to < expected->index_to)
            to = expected->index_to;
    }
    uint64_t next = from + 1;
    for (size_t i = first; i < end; i++) {
        uint64_t index = files[i].dump_index;
        if (i > first && files[i].step < files[i - 1].step)
            note_file(work, AUDIT_REASON_STEP_ORDER, &files[i]);
        if (index <= from || index > to)
            note_file(work, AUDIT_REASON_INDEX_OUTSIDE, &files[i]);
        else if (index < next)
            note_file(work, AUDIT_REASON_INDEX_TWICE, &files[i]);
        else if (index > next)
            add_range(work, AUDIT_REASON_INDEX_MISSING, rank, "dump_index", next, index - 1);
        if (index >= next && index <= to)
            next = index + 1;
    }
    if (next <= to)
        add_range(work, AUDIT_REASON_INDEX_MISSING, rank, "dump_index", next, to);
}

void audit_counters_check_index(struct audit_work *work)
{
    const struct audit_table_file *files = work->table.files;
    for (size_t first = 0; first < work->table.file_count;) {
        size_t end = first + 1;
        while (end < work->table.file_count && files[end].rank == files[first].rank)
            end++;
        check_rank_index(work, first, end);
        first = end;
    }
}

/* ---- steps ---- */

static void note_missing_steps(struct audit_work *work, uint32_t rank, uint64_t first, uint64_t last)
{
    /* Without a gap in dump_index nothing was lost: these passes ran and no hook fired. */
    bool lost = work->reasons.kinds[AUDIT_REASON_INDEX_MISSING].count > 0;
    add_range(work, lost ? AUDIT_REASON_STEP_MISSING : AUDIT_REASON_SILENT_STEP, rank, "step", first, last);
}

/* Passes first..end-1 are those of one rank. */
static void check_rank_steps(struct audit_work *work, size_t first, size_t end)
{
    const struct audit_pass *passes = work->audit->passes;
    uint32_t rank = passes[first].rank;
    const struct audit_expected_rank *expected = expected_rank(work, rank);
    uint64_t next = passes[first].step, to = passes[end - 1].step + 1;
    if (expected != NULL && !went_back(expected)) {
        next = expected->step_from;
        if (work->expected->exact || to < expected->step_to)
            to = expected->step_to;
    }
    uint64_t from = next;
    for (size_t i = first; i < end; i++) {
        uint64_t step = passes[i].step;
        if (step < from || step >= to) {
            audit_reasons_add(&work->reasons, AUDIT_REASON_STEP_OUTSIDE, 1, "rank %" PRIu32 " step %" PRIu64, rank,
                              step);
            continue;
        }
        if (step > next)
            note_missing_steps(work, rank, next, step - 1);
        next = step + 1;
    }
    if (next < to)
        note_missing_steps(work, rank, next, to - 1);
}

static void check_counted_rank(struct audit_work *work, uint32_t rank, bool has_files)
{
    const struct audit_expected_rank *expected = &work->expected->ranks[rank];
    if (went_back(expected)) {
        audit_reasons_add(&work->reasons, AUDIT_REASON_RESET, 1,
                          "rank %" PRIu32 " dump_index %" PRIu64 " to %" PRIu64 ", step %" PRIu64 " to %" PRIu64, rank,
                          expected->index_from, expected->index_to, expected->step_from, expected->step_to);
        return;
    }
    uint64_t ran = expected->step_to - expected->step_from, wrote = expected->index_to - expected->index_from;
    if (wrote == 0 && ran > 0)
        audit_reasons_add(&work->reasons, AUDIT_REASON_SILENT_RANK, 1,
                          "rank %" PRIu32 " ran %" PRIu64 " steps and dump_index stayed at %" PRIu64, rank, ran,
                          expected->index_to);
    else if (wrote > 0 && !has_files)
        audit_reasons_add(&work->reasons, AUDIT_REASON_RANK_MISSING, 1,
                          "rank %" PRIu32 " wrote %" PRIu64 " files in %" PRIu64 " steps", rank, wrote, ran);
    const struct audit_expected_rank *base = &work->expected->ranks[0];
    if (rank > 0 && !went_back(base) && ran != base->step_to - base->step_from)
        audit_reasons_add(&work->reasons, AUDIT_REASON_STEP_DELTA, 1,
                          "rank 0 ran %" PRIu64 ", rank %" PRIu32 " ran %" PRIu64, base->step_to - base->step_from,
                          rank, ran);
}

/* Nothing is known about the writer: the ranks are held against each other. */
static void compare_ranks(struct audit_work *work, const size_t *first, size_t count)
{
    const struct audit_pass *passes = work->audit->passes;
    for (size_t i = 1; i < count; i++) {
        uint32_t rank = passes[first[i]].rank, before = passes[first[i - 1]].rank;
        if (rank > before + 1)
            add_range(work, AUDIT_REASON_RANK_MISSING, before, "is there, but not rank", before + UINT64_C(1),
                      rank - 1);
        uint64_t here = first[i + 1] - first[i], base = first[1] - first[0];
        uint64_t here_last = passes[first[i + 1] - 1].step, base_last = passes[first[1] - 1].step;
        if (here != base || passes[first[i]].step != passes[0].step || here_last != base_last)
            audit_reasons_add(&work->reasons, AUDIT_REASON_STEP_DELTA, 1,
                              "rank %" PRIu32 " has %" PRIu64 " steps (%" PRIu64 "-%" PRIu64 "), rank %" PRIu32
                              " has %" PRIu64 " (%" PRIu64 "-%" PRIu64 ")",
                              passes[0].rank, base, passes[0].step, base_last, rank, here, passes[first[i]].step,
                              here_last);
    }
}

void audit_counters_check_steps(struct audit_work *work)
{
    const struct audit *audit = work->audit;
    const struct audit_expected *expected = work->expected;
    size_t *first = memory_new((audit->ranks + 1) * sizeof *first), count = 0;
    for (size_t i = 0; i < audit->pass_count; i++)
        if (i == 0 || audit->passes[i].rank != audit->passes[i - 1].rank)
            first[count++] = i;
    first[count] = audit->pass_count;

    size_t next = 0;
    for (size_t rank = 0; expected->known && rank < expected->rank_count && rank <= UINT32_MAX; rank++) {
        while (next < count && audit->passes[first[next]].rank < rank)
            next++;
        check_counted_rank(work, (uint32_t)rank, next < count && audit->passes[first[next]].rank == rank);
    }
    for (size_t i = 0; i < count; i++) {
        uint32_t rank = audit->passes[first[i]].rank;
        check_rank_steps(work, first[i], first[i + 1]);
        if (expected->known && rank >= expected->rank_count)
            audit_reasons_add(&work->reasons, AUDIT_REASON_RANK_OUTSIDE, 1, "rank %" PRIu32 " of %zu", rank,
                              expected->rank_count);
    }
    if (!expected->known)
        compare_ranks(work, first, count);
    free(first);
}
