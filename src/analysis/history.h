/* Proof A7: whether the key and value rows that a call of attention could read were produced equal in both runs. What
 * was written to the cache is an input of that call in the pass of each earlier position, and each such pass is a pair
 * of the alignment (facts/dump-analysis.md 3.5). One thread. */
#pragma once

#include "analysis/scan.h"

enum history {
    HISTORY_UNKNOWN, /* no such rows were dumped, or some earlier position has no pair */
    HISTORY_EQUAL,
    HISTORY_UNEQUAL,
};

/* For every pair of the alignment, one enum history of the call: [pair_count], to be freed. NULL: no rows of keys and
 * values were seen in it. */
uint8_t *history_make(const struct scan *scan, uint32_t call);
