/* The evidence table: for each call of a module, in how many pairs its inputs were bit-identical and in how many of
 * those its output was not; valid also behind the first difference. One thread. */
#pragma once

#include "analysis/scan.h"

/* Fills tested, unequal, first_pair, max_ulp and history_equal of every call, and the growth of layer outputs. */
void evidence_fill(const struct scan *scan);

enum evidence_state {
    EVIDENCE_NONE,  /* not all of them were compared at this pair, or there are none */
    EVIDENCE_EQUAL, /* all were, and are bit-identical */
    EVIDENCE_UNEQUAL,
};

/* Of the inputs of a call (or, `outputs`, of its outputs) at one pair. */
enum evidence_state evidence_of(const struct scan *scan, uint32_t call, bool outputs, size_t pair);

/* True of "model.layers.1": a layer as a whole. */
bool evidence_is_layer(const char *module);
