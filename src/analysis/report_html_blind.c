/* What was not seen, who agrees with whom among the ranks, and which requests there were. */
#include "analysis/report.h"
#include "analysis/report_html.h"
#include "analysis/report_html_private.h"
#include "base/memory.h"

#include <inttypes.h>
#include <stdlib.h>

enum { RANKS_SHOWN = 16 };

/* ---- blind spots ---- */

static void add_blind_row(struct buffer *out, const struct diff_observation *o)
{
    buffer_text(out, "<tr><th scope=\"row\">");
    report_html_name(out, o->name);
    buffer_format(out, "</th><td data-label=\"Why\">%s</td><td data-label=\"More\">", report_blind_word(o));
    report_html_name(out, o->note != NULL ? o->note : "");
    buffer_text(out, "</td></tr>\n");
}

static void add_blind_spots(const struct diff *diff, struct buffer *out)
{
    struct report_coverage c;
    size_t shown = 0, blind = 0;
    report_count(diff, &c);
    for (size_t i = 0; i < diff->observation_count; i++)
        blind += report_is_blind(&diff->observations[i]);
    report_html_section(out, "blind", "Blind spots",
                        "What cannot be compared. Inside the bracket it weakens the verdict; elsewhere it does not.");
    buffer_format(out,
                  "<p>%zu of %zu tensors are compared; %zu are on one side only, %zu cannot be read, %zu have another "
                  "shape or type, of %zu the rows are not tokens.</p>\n",
                  c.compared, diff->observation_count, c.one_sided, c.unreadable, c.other_shape, c.no_rows);
    if (blind > 0)
        buffer_text(out,
                    "<table class=\"evidence\"><thead><tr><th scope=\"col\">Tensor</th><th scope=\"col\">Why</th><th "
                    "scope=\"col\">More</th></tr></thead><tbody>\n");
    for (size_t i = 0; i < diff->observation_count && shown < REPORT_HTML_BLIND; i++)
        if (report_is_blind(&diff->observations[i])) {
            add_blind_row(out, &diff->observations[i]);
            shown++;
        }
    if (blind > 0)
        buffer_text(out, "</tbody></table>\n");
    if (shown < blind)
        buffer_format(out, "<p class=\"hint\">%zu more are left out; --json has all.</p>\n", blind - shown);
    buffer_text(out, "</section>\n");
}

/* ---- ranks ---- */

/* Pairs lie by request, position, rank: those of one position follow each other. `ret_same` [ranks][ranks] counts
 * positions at which two ranks have the same mark, `ret_both` those that both have. */
static void count_agreement(const struct diff *diff, const uint8_t *marks, size_t ranks, size_t *ret_same,
                            size_t *ret_both)
{
    for (size_t from = 0, to; from < diff->pair_count; from = to) {
        const struct diff_pair *first = &diff->pairs[from];
        for (to = from; to < diff->pair_count && diff->pairs[to].request == first->request &&
                        diff->pairs[to].position == first->position;
             to++)
            ;
        for (size_t i = from; i < to; i++)
            for (size_t k = from; k < to; k++) {
                size_t a = diff->pairs[i].rank, b = diff->pairs[k].rank;
                if (a >= ranks || b >= ranks || !first->target)
                    continue;
                ret_both[a * ranks + b]++;
                ret_same[a * ranks + b] += marks[i] == marks[k];
            }
    }
}

static void add_ranks(const struct diff *diff, struct buffer *out)
{
    uint32_t index = diff->verdict.first_unequal;
    size_t ranks = diff->ranks < RANKS_SHOWN ? diff->ranks : RANKS_SHOWN;
    if (ranks < 2 || index >= diff->observation_count || diff->observations[index].marks == NULL)
        return;
    size_t *same = memory_new(2 * ranks * ranks * sizeof *same), *both = same + ranks * ranks;
    count_agreement(diff, diff->observations[index].marks, ranks, same, both);
    report_html_section(
        out, "ranks", "Ranks",
        "The share of decode rows at which two ranks show the same size of difference in the first unequal "
        "tensor. All alike: a common input or the collective; one alone: a kernel on that rank.");
    buffer_text(out, "<div class=\"wide\" tabindex=\"0\" role=\"region\" aria-label=\"Agreement of ranks\"><table "
                     "class=\"matrix\"><thead><tr><td></td>");
    for (size_t r = 0; r < ranks; r++)
        buffer_format(out, "<th scope=\"col\">rank %zu</th>", r);
    buffer_text(out, "</tr></thead><tbody>\n");
    for (size_t a = 0; a < ranks; a++) {
        buffer_format(out, "<tr><th scope=\"row\">rank %zu</th>", a);
        for (size_t b = 0; b < ranks; b++) {
            size_t i = a * ranks + b;
            if (both[i] == 0)
                buffer_text(out, "<td>-</td>");
            else
                buffer_format(out, "<td class=\"%s\">%zu %%</td>", same[i] == both[i] ? "good" : "bad",
                              100 * same[i] / both[i]);
        }
        buffer_text(out, "</tr>\n");
    }
    buffer_text(out, "</tbody></table></div></section>\n");
    free(same);
}

/* ---- requests ---- */

static void add_requests(const struct diff *diff, struct buffer *out)
{
    if (diff->request_count == 0)
        return;
    report_html_section(out, "requests", "Requests",
                        diff->proven ? "Which request of DEC was paired with which of PRE: they have the same tokens."
                                     : "Which request of DEC was held against which of PRE.");
    buffer_text(out,
                "<table class=\"evidence\"><thead><tr><th scope=\"col\">DEC</th><th scope=\"col\">PRE</th><th "
                "scope=\"col\" class=\"num\">Prompt</th><th scope=\"col\" class=\"num\">Cached in PRE</th><th "
                "scope=\"col\" class=\"num\">Pairs</th><th scope=\"col\" class=\"num\">Decode rows</th></tr></thead>"
                "<tbody>\n");
    size_t shown = diff->request_count < REPORT_HTML_REQUESTS ? diff->request_count : REPORT_HTML_REQUESTS;
    for (size_t i = 0; i < shown; i++) {
        const struct diff_request *r = &diff->requests[i];
        buffer_text(out, "<tr><th scope=\"row\">");
        report_html_name(out, r->a_rid != NULL ? r->a_rid : "no id");
        buffer_text(out, "</th><td data-label=\"PRE\">");
        report_html_name(out, r->b_rid != NULL ? r->b_rid : "no id");
        buffer_format(out,
                      "</td><td class=\"num\" data-label=\"Prompt\">%zu</td><td class=\"num\" data-label=\"Cached in "
                      "PRE\">%zu</td><td class=\"num\" data-label=\"Pairs\">%zu</td><td class=\"num\" "
                      "data-label=\"Decode rows\">%zu</td></tr>\n",
                      r->prompt_length, r->b_cached_length, r->pair_count, r->target_count);
    }
    buffer_text(out, "</tbody></table>\n");
    if (shown < diff->request_count)
        buffer_format(out, "<p class=\"hint\">%zu more are left out.</p>\n", diff->request_count - shown);
    buffer_text(out, "</section>\n");
}

void report_html_blind(const struct diff *diff, struct buffer *out)
{
    if (report_has_verdict(diff)) {
        add_blind_spots(diff, out);
        add_ranks(diff, out);
    }
    add_requests(diff, out);
}
