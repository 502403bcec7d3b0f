#include "analysis/evidence.h"

#include "analysis/history.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum evidence_state evidence_of(const struct scan *scan, uint32_t call, bool outputs, size_t pair)
{
    const struct observations_span *span = &scan->observations->spans[call];
    enum evidence_state state = EVIDENCE_NONE;
    bool missing = false;
    for (uint32_t i = span->first; i <= span->last && i < scan->compared; i++) {
        const struct diff_observation *observation = &scan->diff->observations[i];
        if (observation->call != call || observation->input == outputs || scan->observations->slots[i].place)
            continue;
        uint8_t mark = observation->marks == NULL ? DIFF_MARK_NONE : observation->marks[pair];
        if (mark == DIFF_MARK_NONE)
            missing = true;
        else if (mark != DIFF_MARK_EQUAL)
            return EVIDENCE_UNEQUAL;
        else
            state = EVIDENCE_EQUAL;
    }
    /* One output of several may be left out (logits of rows that are not the last); of inputs all count. */
    return missing && !outputs ? EVIDENCE_NONE : state;
}

/* The largest distance in the outputs at this pair, to a power of two. */
static uint64_t ulp_at(const struct scan *scan, uint32_t call, size_t pair)
{
    const struct observations_span *span = &scan->observations->spans[call];
    uint64_t most = 0;
    for (uint32_t i = span->first; i <= span->last && i < scan->compared; i++) {
        const struct diff_observation *observation = &scan->diff->observations[i];
        if (observation->call != call || observation->input || observation->marks == NULL)
            continue;
        uint8_t mark = observation->marks[pair];
        if (mark < DIFF_MARK_ULP || mark >= DIFF_MARK_OTHER)
            continue;
        /* The exact figure where only one row is unequal or the row is as bad as the worst. */
        unsigned power = (unsigned)mark - DIFF_MARK_ULP;
        uint64_t ulp = power > 62 ? INT64_MAX : (uint64_t)1 << power;
        if (observation->numbers.max_ulp >> power == 1)
            ulp = observation->numbers.max_ulp;
        most = ulp > most ? ulp : most;
    }
    return most;
}

/* Experts are told by words that no hook sees which rows to take: behind a choice that differs, theirs are other rows.
 * The router is a part of the same module. */
static bool is_chosen_alike(const struct scan *scan, uint32_t number, size_t pair)
{
    const struct diff *diff = scan->diff;
    const struct observations_span *spans = scan->observations->spans;
    uint32_t parent = diff->calls[number].parent;
    if (!diff->calls[number].class->experts)
        return true;
    for (uint32_t i = number; i-- > 0 && (parent == OBSERVATIONS_NONE || spans[i].last >= spans[parent].first);)
        if (diff->calls[i].class->router && diff->calls[i].parent == parent &&
            evidence_of(scan, i, true, pair) == EVIDENCE_UNEQUAL)
            return false;
    return true;
}

static void fill_call(const struct scan *scan, uint32_t number)
{
    struct diff *diff = scan->diff;
    struct diff_call *call = &diff->calls[number];
    uint8_t *histories = scan->observations->spans[number].stateful ? history_make(scan, number) : NULL;
    for (size_t i = 0; i < diff->pair_count; i++) {
        if (!diff->pairs[i].target || evidence_of(scan, number, false, i) != EVIDENCE_EQUAL ||
            !is_chosen_alike(scan, number, i))
            continue;
        enum evidence_state outputs = evidence_of(scan, number, true, i);
        if (outputs == EVIDENCE_NONE)
            continue;
        call->tested++;
        if (outputs == EVIDENCE_EQUAL)
            continue;
        if (call->unequal++ == 0)
            call->first_pair = i;
        uint64_t ulp = ulp_at(scan, number, i);
        if (ulp > call->max_ulp)
            call->max_ulp = ulp;
        if (histories != NULL && histories[i] == HISTORY_EQUAL)
            call->history_equal++;
    }
    free(histories);
}

bool evidence_is_layer(const char *module)
{
    const char *dot = strrchr(module, '.');
    return dot != NULL && dot[1] != '\0' && strspn(dot + 1, "0123456789") == strlen(dot + 1);
}

/* How much larger the relative difference is than behind the layer before. */
static void fill_growth(const struct scan *scan)
{
    double before = 0;
    for (size_t i = 0; i < scan->compared; i++) {
        struct diff_observation *observation = &scan->diff->observations[i];
        if (observation->input || observation->call == OBSERVATIONS_NONE ||
            !evidence_is_layer(scan->diff->calls[observation->call].module))
            continue;
        if (observation->call != OBSERVATIONS_NONE && scan->observations->spans[observation->call].output != i)
            continue;
        const struct numbers *numbers = &observation->numbers;
        double now = numbers->sum_squares_b > 0 ? sqrt(numbers->sum_squares_difference / numbers->sum_squares_b) : 0;
        if (before > 0)
            observation->growth = now / before;
        before = now;
    }
}

void evidence_fill(const struct scan *scan)
{
    for (uint32_t i = 0; i < scan->diff->call_count; i++)
        fill_call(scan, i);
    fill_growth(scan);
}
