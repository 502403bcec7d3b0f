/* A diff as one page of HTML: readable without script and network, in light and dark, from 320 pixels on. */
#pragma once

#include "analysis/diff.h"
#include "base/buffer.h"

enum {
    REPORT_HTML_COLUMNS = 300,    /* of a map: more positions share a column, the worst mark counts */
    REPORT_HTML_LAYERS = 512,     /* rows of the map of layers */
    REPORT_HTML_ROWS = 160,       /* rows of the map inside the layer of the verdict */
    REPORT_HTML_REQUESTS = 64,    /* rows of the map of requests, and of the table of requests */
    REPORT_HTML_CULPRITS = 100,   /* operators with their numbers */
    REPORT_HTML_TENSORS = 6000,   /* lines of the list of all tensors */
    REPORT_HTML_BLIND = 400,      /* lines of the list of blind spots */
    REPORT_HTML_BYTES = 16 << 20, /* what no page is longer than */
};

/* Appends the page. All text from the dump is escaped. What a limit above leaves out is counted on the page. Any
 * thread. */
void report_html(const struct diff *diff, struct buffer *out);
