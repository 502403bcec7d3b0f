/* Calls of modules from the order of their slots, and the names that people read. Private to observations.c. */
#pragma once

#include "analysis/observations.h"

/* Fills the spans, `around` and `place` of `observations`, and of `diff` the calls and every observation's call and
 * name. */
void observations_calls_make(struct observations *observations, const char *const *stateful, struct diff *diff);
