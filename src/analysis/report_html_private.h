/* What the files of the page share; the page of an investigation (investigation_html.c) looks the same. */
#pragma once

#include "analysis/diff.h"
#include "base/buffer.h"

#include <stddef.h>
#include <stdint.h>

extern const char report_html_style[];

/* Appends text from outside: valid UTF-8 without control characters, at most 1600 bytes of it, escaped for content
 * and for attributes in double quotes. A name loses its middle where it is very long. */
void report_html_text(struct buffer *out, const char *text);
void report_html_name(struct buffer *out, const char *name);

/* The page from its beginning to that of its body, with the style, and a link that skips to `id`, which `skip` names.
 * Nothing is fetched and nothing runs. `title` is from outside, the others are ours. */
void report_html_begin(struct buffer *out, const char *title, const char *id, const char *skip);

/* "<section id=ID><h2>TITLE</h2>", and below it a paragraph of introduction (NULL: none). Both are ours. */
void report_html_section(struct buffer *out, const char *id, const char *title, const char *introduction);

/* Classes of cells: 0 not compared, 1 equal, 2.. by size, then unequal without a measure, NaN. */
enum { REPORT_HTML_LEVEL_OTHER = 12, REPORT_HTML_LEVEL_NAN = 13, REPORT_HTML_LEVELS = 14 };
unsigned report_html_level(uint8_t mark);
void report_html_legend(struct buffer *out);

/* One row of cells, stretched over the room there is; `title` says in words what it shows. */
void report_html_cells(struct buffer *out, const uint8_t *marks, size_t count, const char *title);

/* Which column of a map a pair is in: the requests side by side with a column between, of each the positions that have
 * pairs. More positions than REPORT_HTML_COLUMNS share columns; ranks always do. */
struct report_html_plan {
    uint32_t *column; /* [pair_count]; UINT32_MAX: of a request that is left out */
    size_t columns;
    size_t step; /* positions a column */
    size_t requests, left_out;
    struct {
        size_t first, count; /* columns */
        int64_t low, high;   /* positions */
    } * block;               /* [requests] */
};
void report_html_plan_make(const struct diff *diff, struct report_html_plan *ret_plan);
void report_html_plan_fini(struct report_html_plan *plan);
/* Adds the marks of one observation to `cells` [columns]: the worst of what shares a column. */
void report_html_plan_add(const struct report_html_plan *plan, const struct diff *diff, const uint8_t *marks,
                          uint8_t *cells);

/* Elements by size of their difference: a row for each size that occurs. */
void report_html_histogram(const struct numbers *numbers, struct buffer *out);

/* The sections. Each appends itself, or nothing where there is nothing to show. */
void report_html_maps(const struct diff *diff, struct buffer *out);   /* layers, inside the layer, program order */
void report_html_charts(const struct diff *diff, struct buffer *out); /* positions, histogram, growth */
void report_html_detail(const struct diff *diff, struct buffer *out); /* evidence, operators, all tensors */
void report_html_blind(const struct diff *diff, struct buffer *out);  /* blind spots, ranks, requests */
