/* The proofs A4 to A9 and the messages M5, M6, M7, M9, M12 (facts/dump-analysis.md 3.5, 3.7). One thread. */
#pragma once

#include "analysis/scan.h"

/* The output that shows which token entered the model: of a call fed by integers alone. OBSERVATIONS_NONE: none among
 * the compared observations. */
uint32_t proofs_embedding_find(const struct scan *scan);

/* A4 and A5. Without an embedding (`observation` OBSERVATIONS_NONE) the first tensor of floats in the program stands
 * in, which is weak. */
void proofs_embedding(const struct scan *scan, uint32_t observation);

/* A6 to A9 with their messages, after verdict_make. */
void proofs_all(const struct scan *scan);
