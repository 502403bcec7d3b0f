/* Finds the first place of the program where rows with equal inputs differ (facts/dump-analysis.md 4.4).
 *
 * "First" is by the order of the program, then by request and position: both are causal, and at a later place an
 * earlier position may differ only because older key and value rows do. All that comes before that place is equal in
 * every target pair, so the bracket has no exception. One thread. */
#pragma once

#include "analysis/scan.h"

/* True once the observations that were compared contain a difference in a target pair. */
bool verdict_is_near(const struct scan *scan);

/* Fills the verdict of the diff but for `confidence`, after evidence_fill. */
void verdict_make(const struct scan *scan);

/* After the proofs. */
void verdict_rate(const struct scan *scan);
