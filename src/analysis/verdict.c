/* Kind, place and bracket. The words are made in verdict_text.c. */
#include "analysis/verdict.h"

#include "analysis/evidence.h"
#include "analysis/history.h"
#include "analysis/verdict_text.h"
#include "base/buffer.h"
#include "base/list.h"
#include "base/memory.h"

#include <stdlib.h>
#include <string.h>

enum { NONE = OBSERVATIONS_NONE, PRODUCERS = 512 };

static uint32_t first_unequal(const struct scan *scan)
{
    for (uint32_t i = 0; i < scan->compared; i++)
        if (scan->diff->observations[i].unequal > 0)
            return i;
    return NONE;
}

bool verdict_is_near(const struct scan *scan)
{
    return first_unequal(scan) != NONE;
}

static uint8_t mark_at(const struct scan *scan, uint32_t observation, size_t pair)
{
    const uint8_t *marks = scan->diff->observations[observation].marks;
    return marks == NULL ? DIFF_MARK_NONE : marks[pair];
}

static uint32_t last_equal_before(const struct scan *scan, uint32_t place, size_t pair)
{
    while (place-- > 0)
        if (mark_at(scan, place, pair) == DIFF_MARK_EQUAL)
            return place;
    return NONE;
}

/* The last call directly inside `call` that ended before `place`. */
static uint32_t last_part(const struct scan *scan, uint32_t call, uint32_t place)
{
    uint32_t found = NONE, end = 0;
    for (uint32_t i = 0; i < scan->diff->call_count; i++) {
        const struct observations_span *span = &scan->observations->spans[i];
        if (scan->diff->calls[i].parent == call && span->last < place && (found == NONE || span->last > end)) {
            found = i;
            end = span->last;
        }
    }
    return found;
}

/* True where a part of the call carries state itself: then the call's own code does not. */
static bool has_stateful_part(const struct scan *scan, uint32_t call)
{
    for (uint32_t i = 0; i < scan->diff->call_count; i++)
        if (scan->observations->spans[i].stateful)
            for (uint32_t up = scan->diff->calls[i].parent; up != NONE; up = scan->diff->calls[up].parent)
                if (up == call)
                    return true;
    return false;
}

/* The observation whose row the input passes on: the last one before it with the same bytes on one of the sides. */
static uint32_t find_producer(const struct scan *scan, uint32_t place, size_t pair, bool *ret_in_b)
{
    struct buffer row[2], other;
    uint32_t found = NONE;
    buffer_init(&row[0]);
    buffer_init(&row[1]);
    buffer_init(&other);
    bool there[2] = {compare_row(scan->compare, place, pair, false, &row[0]),
                     compare_row(scan->compare, place, pair, true, &row[1])};
    for (uint32_t i = place, looks = 0; i-- > 0 && found == NONE && looks < PRODUCERS; looks++) {
        if (mark_at(scan, i, pair) != DIFF_MARK_EQUAL)
            continue;
        buffer_clear(&other);
        if (!compare_row(scan->compare, i, pair, true, &other) || other.length < sizeof(uint64_t))
            continue;
        for (int side = 1; side >= 0 && found == NONE; side--)
            if (there[side] && other.length == row[side].length &&
                memcmp(other.data, row[side].data, other.length) == 0) {
                found = i;
                *ret_in_b = side == 1;
            }
    }
    buffer_fini(&row[0]);
    buffer_fini(&row[1]);
    buffer_fini(&other);
    return found;
}

static void judge_gap(const struct scan *scan, struct diff_verdict *verdict)
{
    bool in_b = false;
    uint32_t producer = find_producer(scan, verdict->first_unequal, verdict->first_pair, &in_b);
    verdict->kind = DIFF_KIND_GAP;
    if (producer == NONE)
        return;
    verdict->last_equal = producer;
    verdict->after = scan->diff->observations[producer].call;
    verdict_text_producer(scan, producer, in_b);
}

/* An operator that carries state: is what it read proven equal in a pair where its output is not? */
static void judge_state(const struct scan *scan, struct diff_verdict *verdict)
{
    uint8_t *histories = history_make(scan, verdict->call);
    const uint8_t *marks = scan->diff->observations[verdict->first_unequal].marks;
    verdict->kind = DIFF_KIND_STATE;
    for (size_t i = 0; i < scan->diff->pair_count && histories != NULL; i++)
        if (scan->diff->pairs[i].target && marks[i] > DIFF_MARK_EQUAL && histories[i] == HISTORY_EQUAL)
            verdict->kind = DIFF_KIND_OP_CACHE;
    free(histories);
}

static void judge_output(const struct scan *scan, struct diff_verdict *verdict)
{
    const struct observations_span *span = &scan->observations->spans[verdict->call];
    bool inputs = evidence_of(scan, verdict->call, false, verdict->first_pair) == EVIDENCE_EQUAL;
    if (span->stateful && (span->children == 0 || !has_stateful_part(scan, verdict->call))) {
        judge_state(scan, verdict);
    } else if (span->children > 0) {
        verdict->kind = DIFF_KIND_GLUE;
        verdict->after = last_part(scan, verdict->call, verdict->first_unequal);
    } else if (inputs) {
        verdict->kind = DIFF_KIND_OP;
    } else {
        judge_gap(scan, verdict);
    }
}

/* The call of the place, or of what comes next where the place belongs to none. */
static uint32_t call_of(const struct scan *scan, uint32_t place)
{
    for (uint32_t i = place; i < scan->observations->count; i++)
        if (scan->diff->observations[i].call != NONE)
            return scan->diff->observations[i].call;
    return scan->observations->slots[place].around;
}

static void judge_place(const struct scan *scan, struct diff_verdict *verdict, uint32_t place)
{
    const struct diff_observation *observation = &scan->diff->observations[place];
    verdict->first_unequal = place;
    verdict->first_pair = observation->first_unequal_pair;
    const struct alignment_pair *pair = &scan->alignment->pairs[verdict->first_pair];
    const struct side_pass *a = &scan->a->passes[pair->a_pass], *b = &scan->b->passes[pair->b_pass];
    bool is_of_requests = observation->rows == DIFF_ROWS_REQUEST;
    verdict->a_rows = is_of_requests ? a->requests : a->tokens;
    verdict->b_rows = is_of_requests ? b->requests : b->tokens;
    verdict->tested = observation->tested;
    verdict->unequal = observation->unequal;
    verdict->last_equal = last_equal_before(scan, place, verdict->first_pair);
    verdict->call = call_of(scan, place);
    if (observation->input || observation->call == NONE)
        judge_gap(scan, verdict);
    else
        judge_output(scan, verdict);
}

/* Per request: how many pairs were tested at the place, which is the first unequal position. */
struct request {
    size_t tested, unequal;
    int64_t first;
    bool equal_before; /* a tested pair before the first unequal one is equal */
};

static void judge_requests(const struct scan *scan, struct diff_verdict *verdict)
{
    const struct diff *diff = scan->diff;
    struct request *requests = memory_new((diff->request_count + 1) * sizeof *requests);
    for (size_t i = 0; i < diff->pair_count; i++) {
        uint8_t mark = mark_at(scan, verdict->first_unequal, i);
        if (!diff->pairs[i].target || mark == DIFF_MARK_NONE)
            continue;
        struct request *request = &requests[diff->pairs[i].request];
        request->tested++;
        if (mark == DIFF_MARK_EQUAL)
            request->equal_before |= request->unequal == 0;
        else if (request->unequal++ == 0)
            request->first = diff->pairs[i].position;
    }
    size_t tested = 0, unequal = 0;
    int64_t position = 0;
    bool one_position = true;
    for (size_t i = 0; i < diff->request_count; i++) {
        tested += requests[i].tested > 0;
        if (requests[i].unequal == 0)
            continue;
        one_position &= requests[i].equal_before && (unequal == 0 || position == requests[i].first);
        position = requests[i].first;
        unequal++;
    }
    verdict->one_request = tested > 1 && unequal == 1;
    verdict->one_position = unequal > 1 && one_position;
    free(requests);
}

/* All ranks have the same rows at the first place: what they share went wrong, not one of them. */
static void judge_ranks(const struct scan *scan, struct diff_verdict *verdict)
{
    const struct diff *diff = scan->diff;
    const struct diff_pair *first = &diff->pairs[verdict->first_pair];
    struct buffer row[2], other;
    buffer_init(&row[0]);
    buffer_init(&row[1]);
    buffer_init(&other);
    size_t ranks = 0;
    bool agree = compare_row(scan->compare, verdict->first_unequal, verdict->first_pair, false, &row[0]) &&
                 compare_row(scan->compare, verdict->first_unequal, verdict->first_pair, true, &row[1]);
    for (size_t i = 0; i < diff->pair_count && agree; i++) {
        const struct diff_pair *pair = &diff->pairs[i];
        if (pair->request != first->request || pair->position != first->position || !pair->target ||
            pair->rank == first->rank)
            continue;
        ranks++;
        for (int side = 0; side < 2 && agree; side++) {
            buffer_clear(&other);
            agree = compare_row(scan->compare, verdict->first_unequal, i, side == 1, &other) &&
                    other.length == row[side].length && memcmp(other.data, row[side].data, other.length) == 0;
        }
    }
    verdict->ranks_agree = agree && ranks > 0;
    buffer_fini(&row[0]);
    buffer_fini(&row[1]);
    buffer_fini(&other);
}

/* The bracket begins with the first input of an operator, else with the last equal observation. */
static uint32_t bracket_begin(const struct scan *scan, const struct diff_verdict *verdict)
{
    if (verdict->kind == DIFF_KIND_OP || verdict->kind == DIFF_KIND_OP_CACHE || verdict->kind == DIFF_KIND_STATE)
        return scan->observations->spans[verdict->call].first;
    if (verdict->kind == DIFF_KIND_GLUE && verdict->after != NONE)
        return scan->observations->spans[verdict->after].last + 1;
    return verdict->last_equal == NONE ? 0 : verdict->last_equal + 1;
}

void verdict_make(const struct scan *scan)
{
    struct diff_verdict *verdict = &scan->diff->verdict;
    *verdict = (struct diff_verdict){.kind = DIFF_KIND_NONE,
                                     .call = NONE,
                                     .last_equal = NONE,
                                     .first_unequal = NONE,
                                     .after = NONE,
                                     .first_pair = SIZE_MAX};
    uint32_t place = first_unequal(scan), from = 0, to = (uint32_t)scan->observations->count;
    if (place != NONE) {
        judge_place(scan, verdict, place);
        judge_requests(scan, verdict);
        judge_ranks(scan, verdict);
        from = bracket_begin(scan, verdict);
        to = place;
    }
    struct list blind = {0};
    for (uint32_t i = from; i < to && i < scan->compared; i++)
        verdict_text_blind(scan, i, verdict->first_pair, &blind);
    verdict->blind = list_vector(&blind);
    verdict_text_fill(scan);
}

void verdict_rate(const struct scan *scan)
{
    struct diff_verdict *verdict = &scan->diff->verdict;
    static const enum diff_proof_id needed[] = {DIFF_PROOF_A1, DIFF_PROOF_A2, DIFF_PROOF_A3, DIFF_PROOF_A4,
                                                DIFF_PROOF_A5, DIFF_PROOF_A7, DIFF_PROOF_A9};
    bool blind = verdict->blind != NULL && verdict->blind[0] != NULL;
    verdict->confidence = DIFF_CONFIDENCE_PROVEN;
    /* Equal values of other types, or of other modules, are no proof that nothing differs. */
    if (verdict->kind == DIFF_KIND_NONE && scan->diff->proofs[DIFF_PROOF_A6].state != DIFF_PROOF_HOLDS)
        verdict->confidence = DIFF_CONFIDENCE_LIKELY;
    for (size_t i = 0; i < sizeof needed / sizeof *needed; i++)
        if (scan->diff->proofs[needed[i]].state != DIFF_PROOF_HOLDS)
            verdict->confidence = DIFF_CONFIDENCE_LIKELY;
    /* A gap is unseen by nature, and equality is claimed only of what was compared. */
    if (blind)
        verdict->confidence = verdict->kind == DIFF_KIND_GAP || verdict->kind == DIFF_KIND_NONE
                                  ? DIFF_CONFIDENCE_LIKELY
                                  : DIFF_CONFIDENCE_UNPROVEN;
}
