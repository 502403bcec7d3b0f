/* Pairs are sorted by request, position, rank: one walk with a state for each rank. */
#include "analysis/history.h"

#include "base/memory.h"

#include <stdlib.h>

struct state {
    enum history history;
    int64_t next; /* the position that must come now */
};

/* Of a module that is known to carry state only because the user says so, every input may have been kept. */
static bool is_kept(const struct scan *scan, uint32_t call, const struct dump_name *name)
{
    return scan->diff->calls[call].class->class != MODULE_CLASS_STATE ||
           module_class_is_cache_row(name->module.at, name->module.length, name->argument.at, name->argument.length);
}

/* The rows of the pair itself. */
static enum history own(const struct scan *scan, const struct observations_span *span, uint32_t call, size_t pair,
                        bool *ret_seen)
{
    enum history result = HISTORY_EQUAL;
    for (uint32_t i = span->first; i <= span->last && i < scan->compared; i++) {
        const struct diff_observation *observation = &scan->diff->observations[i];
        const struct dump_name *name = &scan->observations->slots[i].name;
        if (observation->call != call || !observation->input || scan->observations->slots[i].place ||
            !is_kept(scan, call, name))
            continue;
        *ret_seen = true;
        uint8_t mark = observation->marks == NULL ? DIFF_MARK_NONE : observation->marks[pair];
        if (mark == DIFF_MARK_NONE)
            result = result == HISTORY_EQUAL ? HISTORY_UNKNOWN : result;
        else if (mark != DIFF_MARK_EQUAL)
            result = HISTORY_UNEQUAL;
    }
    return result;
}

static uint32_t highest_rank(const struct diff *diff)
{
    uint32_t highest = 0;
    for (size_t i = 0; i < diff->pair_count; i++)
        if (diff->pairs[i].rank > highest)
            highest = diff->pairs[i].rank;
    return highest;
}

uint8_t *history_make(const struct scan *scan, uint32_t call)
{
    const struct diff *diff = scan->diff;
    const struct observations_span *span = &scan->observations->spans[call];
    uint32_t ranks = highest_rank(diff) + 1;
    struct state *states = memory_new(ranks * sizeof *states);
    uint8_t *histories = memory_new(diff->pair_count + 1);
    bool seen = false;
    for (size_t i = 0; i < diff->pair_count; i++) {
        const struct diff_pair *pair = &diff->pairs[i];
        if (i == 0 || pair->request != diff->pairs[i - 1].request)
            for (uint32_t rank = 0; rank < ranks; rank++)
                states[rank] = (struct state){.history = HISTORY_EQUAL};
        struct state *state = &states[pair->rank];
        if (pair->position > state->next && state->history == HISTORY_EQUAL)
            state->history = HISTORY_UNKNOWN;
        histories[i] = (uint8_t)state->history;
        enum history here = own(scan, span, call, i, &seen);
        if (here == HISTORY_UNEQUAL || (here == HISTORY_UNKNOWN && state->history == HISTORY_EQUAL))
            state->history = here;
        state->next = pair->position + 1;
    }
    free(states);
    if (seen)
        return histories;
    free(histories);
    return NULL;
}
