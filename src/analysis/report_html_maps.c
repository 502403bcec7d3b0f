/* The bracket, and the maps: layers by positions, the tensors of one layer by positions, tensors in the program's
 * order. */
#include "analysis/report.h"
#include "analysis/report_html.h"
#include "analysis/report_html_private.h"
#include "base/memory.h"
#include "base/text.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BRACKET_BEFORE = 2, BRACKET_AFTER = 2, TICKS = 5 };

/* ---- rows ---- */

static size_t differing(const uint8_t *cells, size_t count)
{
    size_t unequal = 0;
    for (size_t i = 0; i < count; i++)
        unequal += cells[i] >= DIFF_MARK_ULP;
    return unequal;
}

static void add_row(struct buffer *out, const struct report_html_plan *plan, const char *label, const char *class,
                    const uint8_t *cells)
{
    char title[160];
    size_t unequal = differing(cells, plan->columns);
    snprintf(title, sizeof title, "%.80s: %zu of %zu columns differ", label, unequal, plan->columns);
    buffer_format(out, "<tr%s><th scope=\"row\">", class);
    report_html_name(out, label);
    buffer_text(out, "</th><td>");
    report_html_cells(out, cells, plan->columns, title);
    buffer_text(out, "</td></tr>\n");
}

static int64_t nice_step(int64_t length)
{
    static const int64_t factors[] = {1, 2, 5};
    for (int64_t ten = 1; ten < INT64_MAX / 100; ten *= 10)
        for (size_t i = 0; i < 3; i++)
            if (length / (ten * factors[i]) < TICKS)
                return ten * factors[i];
    return length;
}

static void add_tick(struct buffer *out, const struct report_html_plan *plan, size_t q, int64_t position)
{
    double column = (double)plan->block[q].first + ((double)(position - plan->block[q].low) + 0.5) / (double)plan->step;
    buffer_format(out, "<span style=\"left:%.2f%%\">%" PRId64 "</span>", column * 100 / (double)plan->columns,
                  position);
}

/* Below the rows: positions, of several requests where each begins; above: which columns are prompt and which decode.
 */
static void add_axis(struct buffer *out, const struct report_html_plan *plan)
{
    buffer_text(out, "<tr class=\"axis\"><th scope=\"row\">position</th><td><div>");
    for (size_t q = 0; q < plan->requests; q++) {
        int64_t low = plan->block[q].low, high = plan->block[q].high;
        int64_t step = plan->requests == 1 ? nice_step(high - low + 1) : high - low + 1;
        bool roomy = plan->block[q].count * 16 >= plan->columns || plan->requests == 1;
        for (int64_t position = low; roomy && position <= high; position += step - (position % step))
            add_tick(out, plan, q, position);
    }
    buffer_text(out, "</div></td></tr>\n");
}

static void add_phases(struct buffer *out, const struct diff *diff, const struct report_html_plan *plan)
{
    buffer_format(out,
                  "<tr class=\"phase\"><th scope=\"row\">%s</th><td><svg class=\"cells\" viewBox=\"0 0 %zu 1\" "
                  "preserveAspectRatio=\"none\" role=\"img\"><title>Which columns are prompt, and which decode</title>",
                  plan->requests > 1 ? "request" : "rows", plan->columns > 0 ? plan->columns : 1);
    for (size_t q = 0; q < plan->requests; q++) {
        int64_t low = plan->block[q].low, prompt = (int64_t)diff->requests[q].prompt_length;
        size_t columns = plan->block[q].count, before = prompt > low ? (size_t)(prompt - low) / plan->step : 0;
        before = before < columns ? before : columns;
        if (before > 0)
            buffer_format(out, "<path class=\"prompt\" d=\"M%zu 0h%zuv1h-%zuz\"/>", plan->block[q].first, before,
                          before);
        if (columns > before)
            buffer_format(out, "<path class=\"decode\" d=\"M%zu 0h%zuv1h-%zuz\"/>", plan->block[q].first + before,
                          columns - before, columns - before);
    }
    buffer_text(out, "</svg></td></tr>\n");
}

static void open_map(struct buffer *out, const struct diff *diff, const struct report_html_plan *plan,
                     const char *class, const char *caption)
{
    buffer_format(out, "<table class=\"map%s\"><caption>%s</caption><tbody>\n", class, caption);
    add_phases(out, diff, plan);
}

static void close_map(struct buffer *out, const struct report_html_plan *plan)
{
    add_axis(out, plan);
    buffer_text(out, "</tbody></table>\n");
    if (plan->step > 1)
        buffer_format(out, "<p class=\"hint\">A column stands for %zu positions; the worst of them counts.</p>\n",
                      plan->step);
    if (plan->left_out > 0)
        buffer_format(out, "<p class=\"hint\">%zu more requests are left out.</p>\n", plan->left_out);
}

/* ---- layers ---- */

static bool has_cells(const struct diff_observation *o)
{
    return !o->input && o->marks != NULL;
}

static void add_layer_rows(struct buffer *out, const struct diff *diff, const struct report_html_plan *plan,
                           uint32_t layers)
{
    uint8_t *cells = memory_new((size_t)(layers + 2) * plan->columns + 1);
    bool *there = memory_new((layers + 2) * sizeof *there);
    bool inside = false;
    for (size_t i = 0; i < diff->observation_count; i++) {
        const struct diff_observation *o = &diff->observations[i];
        inside = inside || o->has_layer;
        size_t row = o->has_layer ? o->layer + 1u : inside ? layers + 1u : 0;
        if (!has_cells(o) || row > layers + 1u)
            continue;
        there[row] = true;
        report_html_plan_add(plan, diff, o->marks, cells + row * plan->columns);
    }
    uint32_t culprit = diff->verdict.first_unequal;
    const struct diff_observation *first = culprit < diff->observation_count ? &diff->observations[culprit] : NULL;
    for (size_t row = 0; row < layers + 2u; row++) {
        char label[40];
        if (!there[row])
            continue;
        snprintf(label, sizeof label, row == 0 ? "before" : row == layers + 1u ? "after" : "layer %zu", row - 1);
        bool marked = first != NULL && first->has_layer && first->layer + 1u == row;
        add_row(out, plan, label, marked ? " class=\"culprit\"" : "", cells + row * plan->columns);
    }
    free(there);
    free(cells);
}

static void add_layers(const struct diff *diff, const struct report_html_plan *plan, struct buffer *out)
{
    uint32_t layers = 0;
    for (size_t i = 0; i < diff->observation_count; i++)
        if (diff->observations[i].has_layer && diff->observations[i].layer >= layers)
            layers = diff->observations[i].layer + 1;
    uint32_t shown = layers < REPORT_HTML_LAYERS ? layers : REPORT_HTML_LAYERS;
    report_html_section(out, "layers", "Layers by positions",
                        "Each cell is the largest difference of any output in that layer at that position. "
                        "The arrow marks the layer of the verdict; what lies below it has taken the difference over.");
    report_html_legend(out);
    open_map(out, diff, plan, "", "Largest difference by layer and position");
    add_layer_rows(out, diff, plan, shown);
    close_map(out, plan);
    if (shown < layers)
        buffer_format(out, "<p class=\"hint\">Layers from %" PRIu32 " on are left out.</p>\n", shown);
}

/* ---- inside the layer of the verdict ---- */

/* The name without what all names of the layer share: "self_attn.qkv_proj.output". */
static const char *short_name(const char *name, uint32_t layer)
{
    char part[40];
    snprintf(part, sizeof part, ".%" PRIu32 ".", layer);
    const char *found = strstr(name, part);
    return found != NULL ? found + strlen(part) : name;
}

static void add_inside(const struct diff *diff, const struct report_html_plan *plan, struct buffer *out)
{
    const struct diff_verdict *v = &diff->verdict;
    if (v->first_unequal >= diff->observation_count || !diff->observations[v->first_unequal].has_layer)
        return;
    uint32_t layer = diff->observations[v->first_unequal].layer;
    size_t shown = 0, left_out = 0;
    char caption[120];
    snprintf(caption, sizeof caption, "Tensors of layer %" PRIu32 " in the order of the program", layer);
    buffer_format(out, "<h3>Inside layer %" PRIu32 "</h3>\n", layer);
    open_map(out, diff, plan, " names", caption);
    uint8_t *cells = memory_new(plan->columns + 1);
    for (size_t i = 0; i < diff->observation_count; i++) {
        const struct diff_observation *o = &diff->observations[i];
        if (!o->has_layer || o->layer != layer || o->marks == NULL)
            continue;
        if (shown++ >= REPORT_HTML_ROWS) {
            left_out++;
            continue;
        }
        memset(cells, 0, plan->columns);
        report_html_plan_add(plan, diff, o->marks, cells);
        add_row(out, plan, short_name(o->name, layer),
                i == v->first_unequal ? " class=\"culprit\""
                : o->input            ? " class=\"input\""
                                      : "",
                cells);
    }
    free(cells);
    close_map(out, plan);
    if (left_out > 0)
        buffer_format(out, "<p class=\"hint\">%zu more tensors are left out.</p>\n", left_out);
}

/* ---- the bracket ---- */

static void add_bracket_row(struct buffer *out, const struct diff *diff, const struct report_html_plan *plan, size_t i)
{
    const struct diff_observation *o = &diff->observations[i];
    const char *word = o->unequal > 0 ? "unequal" : o->marks != NULL ? "equal" : "not compared";
    uint8_t *cells = memory_new(plan->columns + 1);
    report_html_plan_add(plan, diff, o->marks, cells);
    buffer_format(out, "<tr%s><th scope=\"row\">", i == diff->verdict.first_unequal ? " class=\"culprit\"" : "");
    report_html_name(out, o->name);
    buffer_format(out, "</th><td class=\"word %s\">%s%s</td><td>",
                  o->unequal > 0     ? "bad"
                  : o->marks != NULL ? "good"
                                     : "unknown",
                  word,
                  i == diff->verdict.last_equal      ? ", last"
                  : i == diff->verdict.first_unequal ? ", first"
                                                     : "");
    report_html_cells(out, cells, plan->columns, o->name);
    buffer_text(out, "</td></tr>\n");
    free(cells);
}

static void add_bracket(const struct diff *diff, const struct report_html_plan *plan, struct buffer *out)
{
    const struct diff_verdict *v = &diff->verdict;
    if (v->first_unequal >= diff->observation_count)
        return;
    report_html_section(out, "bracket", "Bracket",
                        "The difference begins between the last equal and the first unequal tensor of the program.");
    buffer_text(out, "<table class=\"map bracket\"><tbody>\n");
    size_t last = v->last_equal < v->first_unequal ? v->last_equal : v->first_unequal;
    size_t from = last > BRACKET_BEFORE ? last - BRACKET_BEFORE : 0;
    size_t to = v->first_unequal + 1 + BRACKET_AFTER;
    for (size_t i = from; i <= last && i < v->first_unequal; i++)
        add_bracket_row(out, diff, plan, i);
    for (char *const *blind = v->blind; blind != NULL && *blind != NULL; blind++) {
        buffer_text(out, "<tr class=\"unseen\"><th scope=\"row\">");
        report_html_name(out, *blind);
        buffer_text(out, "</th><td class=\"word unknown\">not seen</td><td></td></tr>\n");
    }
    for (size_t i = v->first_unequal; i < to && i < diff->observation_count; i++)
        add_bracket_row(out, diff, plan, i);
    buffer_text(out, "</tbody></table></section>\n");
}

/* ---- the program from its beginning to its end ---- */

static void add_program(const struct diff *diff, struct buffer *out)
{
    size_t columns = diff->observation_count < REPORT_HTML_COLUMNS ? diff->observation_count : REPORT_HTML_COLUMNS;
    uint8_t *cells = memory_new(columns + 1);
    size_t unequal = 0, blind = 0;
    for (size_t i = 0; i < diff->observation_count; i++) {
        const struct diff_observation *o = &diff->observations[i];
        uint8_t mark = report_is_blind(o) ? DIFF_MARK_NAN : o->unequal > 0 ? DIFF_MARK_OTHER : DIFF_MARK_EQUAL;
        uint8_t *cell = &cells[i * columns / diff->observation_count];
        *cell = mark > *cell ? mark : *cell;
        unequal += o->unequal > 0;
        blind += report_is_blind(o);
    }
    char title[120];
    snprintf(title, sizeof title, "%zu tensors in the order of dump_index: %zu differ, %zu are not seen on both sides",
             diff->observation_count, unequal, blind);
    buffer_format(
        out,
        "<h3>The program, first tensor to last</h3>\n<p class=\"intro\">%s. Pale: equal; blue: unequal; teal: a "
        "blind spot.</p>\n<div class=\"program\">",
        title);
    report_html_cells(out, cells, columns, title);
    buffer_text(out, "</div>\n");
    free(cells);
}

void report_html_maps(const struct diff *diff, struct buffer *out)
{
    struct report_html_plan plan;
    if (diff->pair_count == 0 || diff->observation_count == 0)
        return;
    report_html_plan_make(diff, &plan);
    add_bracket(diff, &plan, out);
    add_layers(diff, &plan, out);
    add_inside(diff, &plan, out);
    add_program(diff, out);
    buffer_text(out, "</section>\n");
    report_html_plan_fini(&plan);
}
