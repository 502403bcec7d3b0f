/* The charts: difference by position with the requests laid over each other, sizes of the differences, growth over the
 * layers. A plot is stretched over the room there is; its labels are text beside it, so that they keep their size. */
#include "analysis/report.h"
#include "analysis/report_html.h"
#include "analysis/report_html_private.h"
#include "base/memory.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { CHART_COLUMNS = 600, SERIES = 6, Y_TICKS = 5 };

static void open_plot(struct buffer *out, size_t columns, const char *title, const char *description)
{
    buffer_format(out,
                  "<svg class=\"area\" viewBox=\"0 0 %zu 100\" preserveAspectRatio=\"none\" "
                  "role=\"img\"><title>%s</title><desc>%s</desc>",
                  columns > 0 ? columns : 1, title, description);
    for (int i = 0; i <= 4; i++)
        buffer_format(out, "<path class=\"grid\" d=\"M0 %dh%zu\"/>", i * 25, columns > 0 ? columns : 1);
}

/* The labels stand below the middle of the first and of the last column. */
static void close_plot(struct buffer *out, size_t columns, int64_t low, int64_t high, const char *axis)
{
    buffer_format(out,
                  "</svg></div>\n<div class=\"x\"><span style=\"left:%.2f%%\">%" PRId64
                  "</span><span style=\"left:50%%\">%s"
                  "</span><span style=\"left:%.2f%%\">%" PRId64 "</span></div></figure>\n",
                  50.0 / (double)columns, low, axis, 100 - 50.0 / (double)columns, high);
}

/* ---- positions ---- */

struct positions {
    int64_t low, high;
    size_t columns;
    uint8_t *cells; /* [requests][columns] */
    unsigned top;   /* highest power of two + 1 */
};

static size_t column_of(const struct positions *p, int64_t position)
{
    int64_t span = p->high - p->low + 1;
    return span <= CHART_COLUMNS ? (size_t)(position - p->low)
                                 : (size_t)((double)(position - p->low) * CHART_COLUMNS / (double)span);
}

static void collect(const struct diff *diff, const uint8_t *marks, size_t requests, struct positions *ret_positions)
{
    struct positions p = {.low = INT64_MAX, .high = INT64_MIN, .top = 4};
    for (size_t i = 0; i < diff->pair_count; i++) {
        if (diff->pairs[i].request >= requests)
            continue;
        p.low = diff->pairs[i].position < p.low ? diff->pairs[i].position : p.low;
        p.high = diff->pairs[i].position > p.high ? diff->pairs[i].position : p.high;
    }
    int64_t span = p.high - p.low + 1;
    p.columns = span < CHART_COLUMNS ? (size_t)span : CHART_COLUMNS;
    p.cells = memory_new(requests * p.columns + 1);
    for (size_t i = 0; i < diff->pair_count; i++) {
        const struct diff_pair *pair = &diff->pairs[i];
        if (pair->request >= requests)
            continue;
        uint8_t *cell = &p.cells[pair->request * p.columns + column_of(&p, pair->position)];
        *cell = marks[i] > *cell ? marks[i] : *cell;
        unsigned power = marks[i] >= DIFF_MARK_ULP && marks[i] < DIFF_MARK_OTHER ? marks[i] - DIFF_MARK_ULP + 1u : 0;
        p.top = power > p.top ? power : p.top;
    }
    p.top += p.top % 2;
    *ret_positions = p;
}

/* A dot for each column: a line without length, whose round end keeps its shape however the plot is stretched. */
static void add_dots(struct buffer *out, const struct positions *p, size_t request, size_t series)
{
    bool begun = false;
    for (size_t c = 0; c < p->columns; c++) {
        uint8_t mark = p->cells[request * p->columns + c];
        if (mark == DIFF_MARK_NONE)
            continue;
        unsigned power = mark >= DIFF_MARK_OTHER ? p->top : mark >= DIFF_MARK_ULP ? mark - DIFF_MARK_ULP + 1u : 0;
        if (!begun)
            buffer_format(out, "<path class=\"dots s%zu\" d=\"", series);
        begun = true;
        buffer_format(out, "M%zu.5 %.1fh0", c, 96 - 92.0 * power / p->top);
    }
    if (begun)
        buffer_text(out, "\"/>");
}

static void add_series_names(struct buffer *out, const struct diff *diff, size_t shown)
{
    if (diff->request_count < 2)
        return;
    buffer_text(out, "<p class=\"legend\">");
    for (size_t q = 0; q < shown; q++) {
        buffer_format(out, "<span><i class=\"key s%zu\"></i>", q);
        report_html_name(out, diff->requests[q].a_rid != NULL ? diff->requests[q].a_rid : "no id");
        buffer_text(out, "</span>");
    }
    if (shown < diff->request_count)
        buffer_format(out, "<span>and %zu more, below</span>", diff->request_count - shown);
    buffer_text(out, "</p>\n");
}

static void add_position_chart(struct buffer *out, const struct diff *diff, const struct positions *p)
{
    size_t shown = diff->request_count < SERIES ? diff->request_count : SERIES;
    buffer_text(out, "<figure class=\"chart\"><figcaption>Largest difference by position, in ULP</figcaption>\n");
    add_series_names(out, diff, shown);
    buffer_text(out, "<div class=\"plot\"><div class=\"y\">");
    buffer_text(out, "<span style=\"bottom:4%\">equal</span>");
    for (unsigned i = p->top / 2; i <= p->top; i += p->top / 2)
        buffer_format(out, "<span style=\"bottom:%.1f%%\">2<sup>%u</sup></span>", 4 + 92.0 * i / p->top, i - 1);
    buffer_text(out, "</div>");
    open_plot(out, p->columns, "Largest difference by position",
              "One dot for each position that was compared, the higher the "
              "larger the difference; at the bottom the rows are equal.");
    const struct diff_verdict *v = &diff->verdict;
    bool boundary = v->one_position && v->first_pair < diff->pair_count;
    if (boundary)
        buffer_format(out, "<path class=\"boundary\" d=\"M%zu 0v100\"/>",
                      column_of(p, diff->pairs[v->first_pair].position));
    for (size_t q = shown; q-- > 0;)
        add_dots(out, p, q, q);
    close_plot(out, p->columns, p->low, p->high, "position");
    if (boundary)
        buffer_format(out,
                      "<p class=\"hint\">All requests begin to differ at position %" PRId64
                      " (the dashed line), whatever the length of their prompts.</p>\n",
                      diff->pairs[v->first_pair].position);
}

/* The requests below each other on one axis of positions: what begins at one position shows as a line from top to
 * bottom. */
static void add_lanes(struct buffer *out, const struct diff *diff, const struct positions *p, size_t requests)
{
    if (requests < 2)
        return;
    buffer_text(out, "<table class=\"map names\"><caption>The same, a row for each request</caption><tbody>\n");
    for (size_t q = 0; q < requests; q++) {
        const char *name = diff->requests[q].a_rid != NULL ? diff->requests[q].a_rid : "no id";
        buffer_text(out, "<tr><th scope=\"row\">");
        report_html_name(out, name);
        buffer_text(out, "</th><td>");
        report_html_cells(out, p->cells + q * p->columns, p->columns, name);
        buffer_text(out, "</td></tr>\n");
    }
    buffer_format(out,
                  "<tr class=\"axis\"><th scope=\"row\">position</th><td><div><span style=\"left:0\">%" PRId64
                  "</span><span class=\"end\">%" PRId64 "</span></div></td></tr></tbody></table>\n",
                  p->low, p->high);
    if (requests < diff->request_count)
        buffer_format(out, "<p class=\"hint\">%zu more requests are left out.</p>\n", diff->request_count - requests);
}

static void add_positions(const struct diff *diff, const struct diff_observation *first, struct buffer *out)
{
    struct positions p;
    size_t requests = diff->request_count < REPORT_HTML_REQUESTS ? diff->request_count : REPORT_HTML_REQUESTS;
    if (first->marks == NULL || requests == 0)
        return;
    collect(diff, first->marks, requests, &p);
    report_html_section(out, "positions", "Difference by position", NULL);
    buffer_text(out, "<p class=\"intro\">The first unequal tensor, <code>");
    report_html_name(out, first->name);
    buffer_text(out, "</code>, at every position; requests share the axis.</p>\n");
    add_position_chart(out, diff, &p);
    add_lanes(out, diff, &p, requests);
    buffer_text(out, "</section>\n");
    free(p.cells);
}

/* ---- sizes ---- */

void report_html_histogram(const struct numbers *n, struct buffer *out)
{
    uint64_t most = 1;
    for (unsigned i = 0; i < NUMBERS_BUCKETS; i++)
        most = n->histogram[i] > most ? n->histogram[i] : most;
    buffer_text(
        out,
        "<table class=\"bars\"><caption>Elements by size of their difference, bars on a logarithmic "
        "scale</caption><thead><tr><th scope=\"col\">ULP</th><th scope=\"col\"><span class=\"hidden\">Bar</span></th>"
        "<th scope=\"col\" class=\"num\">Elements</th></tr></thead><tbody>\n");
    for (unsigned i = 0; i < NUMBERS_BUCKETS; i++) {
        if (n->histogram[i] == 0)
            continue;
        double width = 100 * log1p((double)n->histogram[i]) / log1p((double)most);
        buffer_format(out,
                      "<tr><th scope=\"row\">%s</th><td><svg class=\"bar\" viewBox=\"0 0 100 1\" "
                      "preserveAspectRatio=\"none\" aria-hidden=\"true\"><rect width=\"%.1f\" height=\"1\"/></svg></td>"
                      "<td class=\"num\">%" PRIu64 "</td></tr>\n",
                      numbers_bucket_name(i), width, n->histogram[i]);
    }
    buffer_text(out, "</tbody></table>\n");
}

static double growth_of(const struct diff_observation *o)
{
    double relative = report_relative_rms(&o->numbers);
    return relative > 0 && isfinite(relative) ? log10(relative) : NAN;
}

static void add_growth_plot(struct buffer *out, const double *values, size_t layers, size_t from, double low,
                            double high)
{
    char description[160];
    snprintf(description, sizeof description,
             "Root mean square of the difference over that of the value, from 1e%.1f to 1e%.1f, by layer", low, high);
    buffer_text(out,
                "<figure class=\"chart\"><figcaption>Growth over the layers: relative size of the difference (RMS) of "
                "each layer&#39;s last output</figcaption>\n<div class=\"plot\"><div class=\"y\">");
    double floor_power = floor(low), top = ceil(high) > floor_power ? ceil(high) : floor_power + 1;
    for (double p = floor_power; p <= top; p += fmax(1, ceil((top - floor_power) / Y_TICKS)))
        buffer_format(out, "<span style=\"bottom:%.1f%%\">10<sup>%.0f</sup></span>",
                      4 + 92 * (p - floor_power) / (top - floor_power), p);
    buffer_text(out, "</div>");
    open_plot(out, layers - from, "Growth over the layers", description);
    struct buffer dots;
    buffer_init(&dots);
    bool begun = false;
    buffer_text(out, "<path class=\"line s0\" d=\"");
    for (size_t layer = from; layer < layers; layer++) {
        if (isnan(values[layer]))
            continue;
        double y = 96 - 92 * (values[layer] - floor_power) / (top - floor_power);
        buffer_format(out, "%s%zu.5 %.1f", begun ? "L" : "M", layer - from, y);
        buffer_format(&dots, "M%zu.5 %.1fh0", layer - from, y);
        begun = true;
    }
    buffer_format(out, "\"/><path class=\"dots s0\" d=\"%s\"/>", dots.data);
    buffer_fini(&dots);
    close_plot(out, layers - from, (int64_t)from, (int64_t)layers - 1, "layer");
}

static void add_growth(const struct diff *diff, struct buffer *out)
{
    double values[REPORT_HTML_LAYERS], low = INFINITY, high = -INFINITY;
    size_t layers = 0, from = REPORT_HTML_LAYERS, points = 0;
    for (size_t i = 0; i < REPORT_HTML_LAYERS; i++)
        values[i] = NAN;
    for (size_t i = 0; i < diff->observation_count; i++) {
        const struct diff_observation *o = &diff->observations[i];
        if (o->has_layer && o->layer < REPORT_HTML_LAYERS && !o->input && o->unequal > 0)
            values[o->layer] = growth_of(o);
    }
    for (size_t i = 0; i < REPORT_HTML_LAYERS; i++) {
        if (isnan(values[i]))
            continue;
        points++;
        from = i < from ? i : from;
        layers = i + 1;
        low = fmin(low, values[i]);
        high = fmax(high, values[i]);
    }
    if (points > 1)
        add_growth_plot(out, values, layers, from, low, high);
}

void report_html_charts(const struct diff *diff, struct buffer *out)
{
    uint32_t index = diff->verdict.first_unequal;
    if (index >= diff->observation_count || diff->pair_count == 0)
        return;
    const struct diff_observation *first = &diff->observations[index];
    add_positions(diff, first, out);
    if (first->numbers.unequal == 0)
        return;
    report_html_section(out, "sizes", "Size of the differences", NULL);
    buffer_text(out, "<p class=\"intro\">All elements of the rows that differ in <code>");
    report_html_name(out, first->name);
    buffer_text(out, "</code>.</p>\n");
    report_html_histogram(&first->numbers, out);
    add_growth(diff, out);
    buffer_text(out, "</section>\n");
}
