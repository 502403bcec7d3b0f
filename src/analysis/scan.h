/* What the parts of diff_run share while one diff is made: all of it belongs to diff_run. One thread. */
#pragma once

#include "analysis/alignment.h"
#include "analysis/compare.h"
#include "analysis/diff.h"
#include "analysis/observations.h"
#include "analysis/side.h"

struct scan {
    const struct diff_options *options;
    const struct side *a, *b;
    const struct alignment *alignment;
    const struct observations *observations;
    struct compare *compare;
    struct diff *diff;
    size_t compared; /* observations that were compared: the first ones */
};
