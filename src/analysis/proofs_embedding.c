/* A4 and A5: the same token enters the model in both runs, and that is no accident. */
#include "analysis/evidence.h"
#include "analysis/proofs.h"
#include "base/buffer.h"

#include <inttypes.h>
#include <string.h>

enum { NONE = OBSERVATIONS_NONE, NEIGHBOURS = 256, ROWS = 65536 };

static bool is_number(enum pt_dtype dtype, bool whole)
{
    enum pt_dtype_kind kind = pt_dtype_kind(dtype);
    return (kind == PT_DTYPE_KIND_SIGNED || kind == PT_DTYPE_KIND_UNSIGNED) == whole;
}

/* All inputs are one integer a token, and there is one. */
static bool is_fed_by_ids(const struct scan *scan, uint32_t call, uint32_t output)
{
    bool fed = false;
    for (uint32_t i = scan->observations->spans[call].first; i < output; i++) {
        const struct diff_observation *observation = &scan->diff->observations[i];
        if (observation->call != call)
            continue;
        if (observation->rows != DIFF_ROWS_TOKEN || !is_number(observation->dtype, true) ||
            observation->row_elements != 1)
            return false;
        fed = true;
    }
    return fed;
}

uint32_t proofs_embedding_find(const struct scan *scan)
{
    for (uint32_t i = 0; i < scan->compared; i++) {
        const struct diff_observation *observation = &scan->diff->observations[i];
        uint32_t call = observation->call;
        if (observation->input || call == NONE || observation->rows != DIFF_ROWS_TOKEN ||
            is_number(observation->dtype, true) || !scan->diff->calls[call].leaf)
            continue;
        if (scan->diff->calls[call].class->embedding || is_fed_by_ids(scan, call, i))
            return i;
    }
    return NONE;
}

static uint32_t first_floats(const struct scan *scan)
{
    for (uint32_t i = 0; i < scan->compared; i++) {
        const struct diff_observation *observation = &scan->diff->observations[i];
        if (observation->rows == DIFF_ROWS_TOKEN && !is_number(observation->dtype, true) &&
            observation->row_elements > 1)
            return i;
    }
    return NONE;
}

static size_t first_bad_pair(const struct scan *scan, uint32_t observation)
{
    const uint8_t *marks = scan->diff->observations[observation].marks;
    for (size_t i = 0; i < scan->diff->pair_count; i++)
        if (marks[i] > DIFF_MARK_EQUAL)
            return i;
    return SIZE_MAX;
}

/* The row of the reference's pass that the unequal row of the other side fits; -1: none. */
static int64_t find_row(const struct scan *scan, uint32_t observation, size_t pair)
{
    const struct alignment_pair *of = &scan->alignment->pairs[pair];
    struct buffer row, other;
    int64_t found = -1;
    buffer_init(&row);
    buffer_init(&other);
    size_t rows = scan->b->passes[of->b_pass].tokens;
    if (compare_row(scan->compare, observation, pair, false, &row))
        for (size_t i = 0; i < rows && i < ROWS && found < 0; i++) {
            buffer_clear(&other);
            if (compare_row_at(scan->compare, observation, true, of->b_pass, i, &other) && other.length == row.length &&
                memcmp(other.data, row.data, row.length) == 0)
                found = (int64_t)i;
        }
    buffer_fini(&row);
    buffer_fini(&other);
    return found;
}

/* One token more or less at the front moves all rows by one: the first that differs and the last one. */
static bool is_leading_token(const struct scan *scan, uint32_t observation, int64_t shift)
{
    const uint8_t *marks = scan->diff->observations[observation].marks;
    size_t last = scan->diff->pair_count - 1;
    while (last > 0 && marks[last] <= DIFF_MARK_EQUAL)
        last--;
    return (shift == 1 || shift == -1) &&
           find_row(scan, observation, last) == (int64_t)scan->diff->pairs[last].b_row + shift;
}

static void prove_unequal(const struct scan *scan, uint32_t observation, size_t pair)
{
    struct diff *diff = scan->diff;
    const struct diff_observation *of = &diff->observations[observation];
    const struct diff_pair *where = &diff->pairs[pair];
    size_t tested = of->tested + of->control_tested, unequal = of->unequal + of->control_unequal;
    int64_t row = find_row(scan, observation, pair), shift = row - (int64_t)where->b_row;
    diff_prove(diff, DIFF_PROOF_A4, DIFF_PROOF_FAILS,
               "%s: %zu of %zu rows differ, the first at position %" PRId64 " (token %" PRId64 ")", of->name, unequal,
               tested, where->position, where->id);
    if (row >= 0)
        diff_tell(diff, is_leading_token(scan, observation, shift) ? DIFF_MESSAGE_M6 : DIFF_MESSAGE_M15,
                  "%s of position %" PRId64 " is row %" PRId64 " of the reference's pass at step %" PRIu64
                  ", expected row %" PRIu32 ": shifted by %+" PRId64,
                  of->name, where->position, row, where->b_step, where->b_row, shift);
    else if (of->note != NULL) /* of another type: there are no two elements side by side */
        diff_tell(diff, DIFF_MESSAGE_M12, "%s of token %" PRId64 " at position %" PRId64 ": %s", of->name, where->id,
                  where->position, of->note);
    else
        diff_tell(diff, DIFF_MESSAGE_M12,
                  "%s of token %" PRId64 " at position %" PRId64 ": %.9g here, %.9g in the reference", of->name,
                  where->id, where->position, of->numbers.first_a, of->numbers.first_b);
}

/* Rows of neighbouring positions with different tokens: whether the row of one fits the other's. */
static void prove_distinct(const struct scan *scan, uint32_t observation)
{
    struct diff *diff = scan->diff;
    struct buffer a, b;
    size_t tested = 0, alike = 0;
    buffer_init(&a);
    buffer_init(&b);
    for (size_t i = 1; i < diff->pair_count && tested < NEIGHBOURS; i++) {
        size_t before = i - 1;
        while (before > 0 && diff->pairs[before].rank != diff->pairs[i].rank &&
               diff->pairs[before].request == diff->pairs[i].request)
            before--; /* ranks alternate */
        if (diff->pairs[before].request != diff->pairs[i].request || diff->pairs[before].id == diff->pairs[i].id ||
            diff->pairs[before].rank != diff->pairs[i].rank)
            continue;
        for (int turn = 0; turn < 2; turn++) {
            buffer_clear(&a);
            buffer_clear(&b);
            if (!compare_row(scan->compare, observation, turn == 0 ? before : i, false, &a) ||
                !compare_row(scan->compare, observation, turn == 0 ? i : before, true, &b))
                continue;
            tested++;
            alike += a.length == b.length && memcmp(a.data, b.data, a.length) == 0;
        }
    }
    buffer_fini(&a);
    buffer_fini(&b);
    if (tested == 0)
        diff_prove(diff, DIFF_PROOF_A5, DIFF_PROOF_WEAK, "no two neighbouring positions with different tokens");
    else if (alike > 0)
        diff_prove(diff, DIFF_PROOF_A5, DIFF_PROOF_WEAK, "%zu of %zu rows fit the neighbour's, too", alike, tested);
    else
        diff_prove(diff, DIFF_PROOF_A5, DIFF_PROOF_HOLDS, "%zu of %zu rows of neighbours with other tokens are others",
                   tested, tested);
}

/* Pairs whose token was seen to enter the model: on their rank, or on the first stage of a pipeline. */
static size_t covered_pairs(const struct diff *diff, const uint8_t *marks)
{
    size_t covered = 0;
    for (size_t first = 0, end; first < diff->pair_count; first = end) {
        bool seen = false;
        for (end = first; end < diff->pair_count && diff->pairs[end].request == diff->pairs[first].request &&
                          diff->pairs[end].position == diff->pairs[first].position;
             end++)
            seen |= marks[end] == DIFF_MARK_EQUAL;
        covered += seen ? end - first : 0;
    }
    return covered;
}

void proofs_embedding(const struct scan *scan, uint32_t observation)
{
    struct diff *diff = scan->diff;
    bool stands_in = observation == NONE;
    if (stands_in)
        observation = first_floats(scan);
    if (observation == NONE || diff->observations[observation].marks == NULL) {
        diff_prove(diff, DIFF_PROOF_A4, DIFF_PROOF_UNKNOWN, "no embedding was dumped on both sides");
        diff_prove(diff, DIFF_PROOF_A5, DIFF_PROOF_UNKNOWN, "no embedding was dumped on both sides");
        return;
    }
    const struct diff_observation *of = &diff->observations[observation];
    size_t bad = first_bad_pair(scan, observation), tested = covered_pairs(diff, of->marks);
    if (bad != SIZE_MAX && stands_in)
        diff_prove(diff, DIFF_PROOF_A4, DIFF_PROOF_UNKNOWN,
                   "no embedding was dumped, and %s, the first tensor that was, differs already", of->name);
    else if (bad != SIZE_MAX)
        prove_unequal(scan, observation, bad);
    else if (tested < diff->pair_count)
        diff_prove(diff, DIFF_PROOF_A4, tested == 0 ? DIFF_PROOF_UNKNOWN : DIFF_PROOF_WEAK,
                   "%s: %zu of %zu pairs could be compared, all equal", of->name, tested, diff->pair_count);
    else
        diff_prove(diff, DIFF_PROOF_A4, stands_in ? DIFF_PROOF_WEAK : DIFF_PROOF_HOLDS, "%s%s: %zu of %zu pairs",
                   stands_in ? "no embedding was dumped; instead " : "", of->name, tested, tested);
    prove_distinct(scan, observation);
}
