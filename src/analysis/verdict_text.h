/* The words of a verdict. Private to verdict.c. */
#pragma once

#include "analysis/scan.h"
#include "base/list.h"

/* Adds why an observation is not seen at a pair (SIZE_MAX: in general), if it is not. */
void verdict_text_blind(const struct scan *scan, uint32_t observation, size_t pair, struct list *list);

/* Begins `what` with the observation whose row the input passes on in one of the runs. */
void verdict_text_producer(const struct scan *scan, uint32_t producer, bool in_b);

/* Fills `reading` and `what`. */
void verdict_text_fill(const struct scan *scan);
