/* Diffs made by hand: what the reports of a diff are tested with. A little model (norm, attention, mlp in each layer),
 * requests with a prompt and generated tokens, and a difference that begins at one operator and goes on from there. */
#pragma once

#include "analysis/diff.h"

#include <stddef.h>

/* Every scenario there is; NULL ends it. Each "m1" .. "m15" is not proven, with that message. */
extern const char *const diff_world_scenarios[];

/* Fills a zeroed diff; ends the process on an unknown name. diff_fini frees it. */
void diff_world_make(const char *scenario, struct diff *ret_diff);
