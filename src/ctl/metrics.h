/* What `metrics` prints: the figures of all live runs in the two text formats that Prometheus reads. Pure; one thread.
 */
#pragma once

#include "base/buffer.h"
#include "ctl/find.h"

enum metrics_format {
    METRICS_OPEN,     /* OpenMetrics 1.0: ends in "# EOF" */
    METRICS_TEXTFILE, /* text format 0.0.4, with counters and gauges alone: all that node_exporter's textfile collector
                         takes */
};

/* Appends the whole text. A run without a figure has no sample of it; two runs that cannot be told apart by their
 * labels are shown once. */
void metrics_text(const struct find_list *list, enum metrics_format format, struct buffer *out);
