/* Cells of maps: from pairs of rows to columns, from marks to classes of colour. */
#include "analysis/report_html.h"
#include "analysis/report_html_private.h"
#include "base/memory.h"

#include <inttypes.h>
#include <stdlib.h>

/* ---- colours ---- */

/* The last power of two of each class between 2 and REPORT_HTML_LEVEL_OTHER. */
static const struct {
    unsigned last_power;
    const char *name;
} classes[] = {{0, "1"},      {1, "2-3"},       {2, "4-7"},        {3, "8-15"},       {5, "16-63"},
               {7, "64-255"}, {10, "256-2^11"}, {14, "2^11-2^15"}, {20, "2^15-2^21"}, {253, "more"}};

unsigned report_html_level(uint8_t mark)
{
    if (mark < DIFF_MARK_ULP)
        return mark;
    if (mark >= DIFF_MARK_OTHER)
        return mark == DIFF_MARK_NAN ? REPORT_HTML_LEVEL_NAN : REPORT_HTML_LEVEL_OTHER;
    unsigned i = 0;
    while ((unsigned)mark - DIFF_MARK_ULP > classes[i].last_power)
        i++;
    return i + 2;
}

void report_html_legend(struct buffer *out)
{
    buffer_text(
        out, "<p class=\"legend\"><span><i class=\"l0\"></i>not compared</span><span><i class=\"l1\"></i>equal</span>"
             "<span class=\"unit\">ULP:</span>");
    for (unsigned i = 0; i < sizeof classes / sizeof classes[0]; i++)
        buffer_format(out, "<span><i class=\"l%u\"></i>%s</span>", i + 2, classes[i].name);
    buffer_text(out, "<span><i class=\"l12\"></i>unequal, no ULP</span><span><i class=\"l13\"></i>NaN</span></p>\n");
}

void report_html_cells(struct buffer *out, const uint8_t *marks, size_t count, const char *title)
{
    buffer_format(out, "<svg class=\"cells\" viewBox=\"0 0 %zu 1\" preserveAspectRatio=\"none\" role=\"img\"><title>",
                  count > 0 ? count : 1);
    report_html_name(out, title);
    buffer_text(out, "</title>");
    for (unsigned level = 1; level < REPORT_HTML_LEVELS; level++) {
        bool begun = false;
        for (size_t i = 0, end; i < count; i = end) {
            end = i + 1;
            if (report_html_level(marks[i]) != level)
                continue;
            while (end < count && report_html_level(marks[end]) == level)
                end++;
            if (!begun)
                buffer_format(out, "<path class=\"l%u\" d=\"", level);
            begun = true;
            buffer_format(out, "M%zu 0h%zuv1h-%zuz", i, end - i, end - i);
        }
        if (begun)
            buffer_text(out, "\"/>");
    }
    buffer_text(out, "</svg>");
}

/* ---- columns ---- */

static void find_bounds(const struct diff *diff, struct report_html_plan *plan)
{
    for (size_t q = 0; q < plan->requests; q++) {
        const struct diff_request *request = &diff->requests[q];
        int64_t low = INT64_MAX, high = INT64_MIN;
        for (size_t i = 0; i < request->pair_count && request->first_pair + i < diff->pair_count; i++) {
            int64_t position = diff->pairs[request->first_pair + i].position;
            low = position < low ? position : low;
            high = position > high ? position : high;
        }
        plan->block[q].low = low <= high ? low : 0;
        plan->block[q].high = low <= high ? high : 0;
    }
}

void report_html_plan_make(const struct diff *diff, struct report_html_plan *ret_plan)
{
    struct report_html_plan plan = {.requests = diff->request_count};
    if (plan.requests > REPORT_HTML_REQUESTS)
        plan.requests = REPORT_HTML_REQUESTS;
    plan.left_out = diff->request_count - plan.requests;
    plan.block = memory_new((plan.requests + 1) * sizeof *plan.block);
    plan.column = memory_new((diff->pair_count + 1) * sizeof *plan.column);
    find_bounds(diff, &plan);
    size_t total = 0;
    for (size_t q = 0; q < plan.requests; q++)
        total += (size_t)(plan.block[q].high - plan.block[q].low) + 1;
    plan.step = total / REPORT_HTML_COLUMNS + (total % REPORT_HTML_COLUMNS != 0);
    plan.step = plan.step > 0 ? plan.step : 1;
    for (size_t q = 0; q < plan.requests; q++) {
        plan.block[q].first = plan.columns;
        plan.block[q].count = (size_t)(plan.block[q].high - plan.block[q].low) / plan.step + 1;
        plan.columns += plan.block[q].count + (q + 1 < plan.requests);
    }
    for (size_t i = 0; i < diff->pair_count; i++) {
        const struct diff_pair *pair = &diff->pairs[i];
        plan.column[i] = pair->request >= plan.requests
                             ? UINT32_MAX
                             : (uint32_t)(plan.block[pair->request].first +
                                          (size_t)(pair->position - plan.block[pair->request].low) / plan.step);
    }
    *ret_plan = plan;
}

void report_html_plan_fini(struct report_html_plan *plan)
{
    free(plan->block);
    free(plan->column);
    *plan = (struct report_html_plan){0};
}

void report_html_plan_add(const struct report_html_plan *plan, const struct diff *diff, const uint8_t *marks,
                          uint8_t *cells)
{
    for (size_t i = 0; marks != NULL && i < diff->pair_count; i++)
        if (plan->column[i] < plan->columns && marks[i] > cells[plan->column[i]])
            cells[plan->column[i]] = marks[i];
}
