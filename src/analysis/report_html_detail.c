/* The evidence table, each culprit with its numbers, and the list of all tensors. */
#include "analysis/report.h"
#include "analysis/report_html.h"
#include "analysis/report_html_private.h"
#include "base/memory.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void add_position(struct buffer *out, const struct diff *diff, size_t pair)
{
    if (pair < diff->pair_count)
        buffer_format(out, "%" PRId64, diff->pairs[pair].position);
    else
        buffer_text(out, "-");
}

/* ---- the table ---- */

static void add_evidence_row(struct buffer *out, const struct diff *diff, const struct diff_call *call)
{
    char ulp[REPORT_ULP_TEXT];
    buffer_format(
        out, "<tr%s><th scope=\"row\">",
        diff->verdict.call < diff->call_count && call == &diff->calls[diff->verdict.call] ? " class=\"culprit\"" : "");
    report_html_name(out, call->name);
    buffer_text(out, "</th><td data-label=\"Kind\">");
    report_html_name(out, call->class != NULL ? call->class->kind : "unknown");
    buffer_format(out,
                  "</td><td class=\"num\" data-label=\"Rows\">%zu</td><td class=\"num\" data-label=\"Unequal\">%zu</td>"
                  "<td class=\"num\" data-label=\"First position\">",
                  call->tested, call->unequal);
    add_position(out, diff, call->first_pair);
    buffer_format(out, "</td><td class=\"num\" data-label=\"Max ULP\">%s</td></tr>\n",
                  report_ulp_text(call->max_ulp, ulp));
}

static void add_table(const struct diff *diff, const struct report_coverage *c, struct buffer *out)
{
    size_t shown = 0;
    if (c->culprits > 0)
        buffer_text(out,
                    "<table class=\"evidence\"><thead><tr><th scope=\"col\">Operator</th><th scope=\"col\">Kind</th>"
                    "<th scope=\"col\" class=\"num\">Rows</th><th scope=\"col\" class=\"num\">Unequal</th>"
                    "<th scope=\"col\" class=\"num\">First position</th><th scope=\"col\" class=\"num\">Max "
                    "ULP</th></tr></thead><tbody>\n");
    for (size_t i = 0; i < diff->call_count && shown < REPORT_HTML_CULPRITS; i++)
        if (report_is_culprit(&diff->calls[i])) {
            add_evidence_row(out, diff, &diff->calls[i]);
            shown++;
        }
    if (c->culprits > 0)
        buffer_text(out, "</tbody></table>\n");
    if (shown < c->culprits)
        buffer_format(out, "<p class=\"hint\">%zu more are left out; --json has all.</p>\n", c->culprits - shown);
    buffer_format(out, "<p>%zu operator%s exonerated: bit-identical output on every row with bit-identical inputs",
                  c->exonerated, c->exonerated == 1 ? " is" : "s are");
    if (c->exonerated > 0)
        buffer_format(out, " (at least %zu each)", c->least_tested);
    buffer_format(out, ". %zu had no such row, so nothing is said about %s.</p>\n", c->untested,
                  c->untested == 1 ? "it" : "them");
}

/* ---- one operator ---- */

static void add_fact(struct buffer *out, const char *label, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
static void add_fact(struct buffer *out, const char *label, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    buffer_format(out, "<div><dt>%s</dt><dd>", label);
    buffer_format_list(out, format, arguments);
    buffer_text(out, "</dd></div>");
    va_end(arguments);
}

static void add_numbers(struct buffer *out, const struct diff_observation *o)
{
    const struct numbers *n = &o->numbers;
    char ulp[REPORT_ULP_TEXT], reading[200];
    buffer_text(out, "<dl class=\"facts\">");
    add_fact(out, "Elements", "%" PRIu64 " of %" PRIu64 " differ", n->unequal, n->elements);
    add_fact(out, "Max ULP", "%s", report_ulp_text(n->max_ulp, ulp));
    add_fact(out, "Max absolute", "%.4g", n->max_abs);
    add_fact(out, "Max relative", "%.4g", n->max_relative);
    add_fact(out, "Relative RMS", "%.3g", report_relative_rms(n));
    add_fact(out, "rel_diff, cosine", "%.3g, %.9g", numbers_relative_difference(n), numbers_cosine(n));
    add_fact(out, "ULP up, down", "%" PRIu64 ", %" PRIu64, n->ulp_sum_up, n->ulp_sum_down);
    add_fact(out, "Sign flips", "%" PRIu64, n->sign_flips);
    add_fact(out, "NaN, infinite on one side", "%" PRIu64 ", %" PRIu64, n->nan_against_number,
             n->infinite_against_finite);
    add_fact(out, "+0/-0, other NaN bits", "%" PRIu64 ", %" PRIu64, n->signed_zeros, n->nan_payloads);
    if (n->first_unequal != UINT64_MAX)
        add_fact(out, "First unequal", "element %" PRIu64 ": %.9g (0x%" PRIx64 ") against %.9g (0x%" PRIx64 ")",
                 n->first_unequal, n->first_a, n->first_bits_a, n->first_b, n->first_bits_b);
    if (numbers_reading(n, reading, sizeof reading)[0] != '\0') {
        buffer_text(out, "<div><dt>Looks like</dt><dd>");
        report_html_name(out, reading);
        buffer_text(out, "</dd></div>");
    }
    buffer_text(out, "</dl>\n");
}

static void add_operator_tensor(struct buffer *out, const struct diff *diff, const struct report_html_plan *plan,
                                const struct diff_observation *o)
{
    uint8_t *cells = memory_new(plan->columns + 1);
    report_html_plan_add(plan, diff, o->marks, cells);
    buffer_text(out, "<h4>");
    report_html_name(out, o->name);
    buffer_format(
        out,
        "</h4><p class=\"sub\">%s, %" PRIu64 " elements a row; %zu of %zu decode rows differ, %zu of %zu prompt rows"
        "</p>\n<div class=\"program\">",
        pt_dtype_name(o->dtype), o->row_elements, o->unequal, o->tested, o->control_unequal, o->control_tested);
    report_html_cells(out, cells, plan->columns, o->name);
    buffer_text(out, "</div>\n");
    if (o->unequal > 0) {
        add_numbers(out, o);
        report_html_histogram(&o->numbers, out);
    }
    free(cells);
}

static void add_operator(struct buffer *out, const struct diff *diff, const struct report_html_plan *plan, size_t index)
{
    const struct diff_call *call = &diff->calls[index];
    buffer_format(out, "<details%s><summary><span class=\"name\">", index == diff->verdict.call ? " open" : "");
    report_html_name(out, call->name);
    buffer_format(out, "</span> <span class=\"sub\">%zu of %zu rows</span></summary>\n<div class=\"body\">",
                  call->unequal, call->tested);
    if (call->class != NULL) {
        buffer_format(out, "<p>%s (", module_class_name(call->class->class));
        report_html_name(out, call->class->kind);
        buffer_text(out, "). To be batch-invariant: ");
        report_html_name(out, call->class->needs);
        buffer_text(out, "</p>\n");
    }
    for (size_t i = 0; i < diff->observation_count; i++)
        if (diff->observations[i].call == index)
            add_operator_tensor(out, diff, plan, &diff->observations[i]);
    buffer_text(out, "</div></details>\n");
}

static void add_operators(const struct diff *diff, const struct report_html_plan *plan, struct buffer *out)
{
    size_t shown = 0;
    buffer_text(out, "<h3>Each of them, with its numbers</h3>\n");
    for (size_t i = 0; i < diff->call_count && shown < REPORT_HTML_CULPRITS; i++)
        if (report_is_culprit(&diff->calls[i]) || i == diff->verdict.call) {
            add_operator(out, diff, plan, i);
            shown++;
        }
}

/* ---- all tensors, folded by layer ---- */

static void add_tensor(struct buffer *out, const struct diff *diff, const struct diff_observation *o)
{
    char ulp[REPORT_ULP_TEXT];
    const char *word = report_is_blind(o) ? report_blind_word(o)
                       : o->unequal > 0   ? "unequal"
                       : o->tested > 0    ? "equal"
                                          : "-";
    buffer_text(out, "<tr><th scope=\"row\">");
    report_html_name(out, o->name);
    buffer_format(
        out,
        "</th><td data-label=\"State\" class=\"%s\">%s</td><td data-label=\"Type\">%s &times; %" PRIu64
        "</td><td class=\"num\" data-label=\"Unequal\">%zu / %zu</td><td class=\"num\" data-label=\"Prompt\">%zu "
        "/ %zu</td><td class=\"num\" data-label=\"First position\">",
        report_is_blind(o) ? "unknown"
        : o->unequal > 0   ? "bad"
                           : "good",
        word, pt_dtype_name(o->dtype), o->row_elements, o->unequal, o->tested, o->control_unequal, o->control_tested);
    add_position(out, diff, o->first_unequal_pair);
    buffer_format(out, "</td><td class=\"num\" data-label=\"Max ULP\">%s</td></tr>\n",
                  o->unequal > 0 ? report_ulp_text(o->numbers.max_ulp, ulp) : "0");
}

static bool together(const struct diff_observation *a, const struct diff_observation *b)
{
    return a->has_layer == b->has_layer && (!a->has_layer || a->layer == b->layer);
}

static void add_group(struct buffer *out, const struct diff *diff, size_t from, size_t to)
{
    const struct diff_observation *o = &diff->observations[from];
    size_t unequal = 0;
    for (size_t i = from; i < to; i++)
        unequal += diff->observations[i].unequal > 0;
    buffer_text(out, "<details><summary><span class=\"name\">");
    if (o->has_layer)
        buffer_format(out, "layer %" PRIu32, o->layer);
    else
        report_html_name(out, o->name);
    buffer_format(out,
                  "</span> <span class=\"sub\">%zu tensor%s, %zu unequal</span></summary>\n<div class=\"body\"><table "
                  "class=\"evidence\"><thead><tr><th scope=\"col\">Tensor</th><th scope=\"col\">State</th><th "
                  "scope=\"col\">Type</th><th scope=\"col\" class=\"num\">Unequal</th><th scope=\"col\" "
                  "class=\"num\">Prompt</th><th scope=\"col\" class=\"num\">First position</th><th scope=\"col\" "
                  "class=\"num\">Max ULP</th></tr></thead><tbody>\n",
                  to - from, to - from == 1 ? "" : "s", unequal);
    for (size_t i = from; i < to; i++)
        add_tensor(out, diff, &diff->observations[i]);
    buffer_text(out, "</tbody></table></div></details>\n");
}

static void add_tensors(const struct diff *diff, struct buffer *out)
{
    size_t shown = diff->observation_count < REPORT_HTML_TENSORS ? diff->observation_count : REPORT_HTML_TENSORS;
    report_html_section(
        out, "tensors", "All tensors",
        "In the order of the program. Rows that differ of the decode rows compared; the same of prompt rows, "
        "which both sides prefilled: the control.");
    for (size_t from = 0, to; from < shown; from = to) {
        for (to = from + 1; to < shown && together(&diff->observations[from], &diff->observations[to]); to++)
            ;
        add_group(out, diff, from, to);
    }
    if (shown < diff->observation_count)
        buffer_format(out, "<p class=\"hint\">%zu more are left out; --json has all.</p>\n",
                      diff->observation_count - shown);
    buffer_text(out, "</section>\n");
}

void report_html_detail(const struct diff *diff, struct buffer *out)
{
    struct report_html_plan plan;
    struct report_coverage c;
    if (diff->observation_count == 0)
        return;
    report_count(diff, &c);
    report_html_plan_make(diff, &plan);
    report_html_section(out, "evidence", "Operators that differ on equal inputs",
                        "This holds behind the first difference, too: only rows whose inputs are bit-identical count.");
    add_table(diff, &c, out);
    if (c.culprits > 0)
        add_operators(diff, &plan, out);
    buffer_text(out, "</section>\n");
    add_tensors(diff, out);
    report_html_plan_fini(&plan);
}
