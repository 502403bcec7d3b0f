#include "analysis/investigation_html.h"

#include "analysis/report_html_private.h"
#include "base/duration.h"
#include "base/memory.h"
#include "base/text.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

/* ---- parts ---- */

static void add_list(struct buffer *out, char *const *texts)
{
    size_t count = 0;
    buffer_text(out, "<ul class=\"recipe\">\n");
    for (; *texts != NULL; texts++) {
        if (count++ >= INVESTIGATION_HTML_LINES)
            continue;
        buffer_text(out, "<li>");
        report_html_text(out, *texts);
        buffer_text(out, "</li>\n");
    }
    buffer_text(out, "</ul>\n");
    if (count > INVESTIGATION_HTML_LINES)
        buffer_format(out, "<p class=\"hint\">%zu more are left out; report.json has all.</p>\n",
                      count - INVESTIGATION_HTML_LINES);
}

/* A section of lines, or nothing where there are none. */
static void add_lines(struct buffer *out, const char *id, const char *title, const char *introduction,
                      char *const *texts)
{
    if (texts == NULL || texts[0] == NULL)
        return;
    report_html_section(out, id, title, introduction);
    add_list(out, texts);
    buffer_text(out, "</section>\n");
}

static void add_pair(struct buffer *out, const char *label, const char *text)
{
    if (text == NULL || text[0] == '\0')
        return;
    buffer_format(out, "<dt>%s</dt><dd>", label);
    report_html_text(out, text);
    buffer_text(out, "</dd>\n");
}

static void add_pair_free(struct buffer *out, const char *label, char *text)
{
    add_pair(out, label, text);
    free(text);
}

static void add_module(struct buffer *out, const char *label, const char *name)
{
    if (name == NULL)
        return;
    buffer_format(out, "<dt>%s</dt><dd><code>", label);
    report_html_name(out, name);
    buffer_text(out, "</code></dd>\n");
}

/* A file beside the page, by its name. */
static void add_file(struct buffer *out, const char *name)
{
    if (name == NULL)
        return;
    bool is_beside = text_is_name(name);
    buffer_text(out, is_beside ? "<a href=\"" : "<code>");
    report_html_text(out, name);
    if (is_beside) {
        buffer_text(out, "\">");
        report_html_text(out, name);
    }
    buffer_text(out, is_beside ? "</a>" : "</code>");
}

/* ---- the answer ---- */

static const char *headline(const struct investigation_end *end)
{
    if (end->condition == KL_CONDITION_1)
        return end->condition_2_too ? "CONDITIONS 1 AND 2" : "CONDITION 1";
    if (end->condition == KL_CONDITION_2)
        return "CONDITION 2";
    if (end->condition == KL_CONDITION_REFUSED)
        return "NO ANSWER";
    return end->status == STATUS_DONE ? "CLEAN" : "CLEAN UNDER YOUR FLAGS";
}

static void add_answer(const struct investigation *in, const struct investigation_end *end, struct buffer *out)
{
    bool fine = end->status == STATUS_DONE, none = end->condition == KL_CONDITION_REFUSED;
    buffer_format(out,
                  "<header id=\"answer\" class=\"%s\">\n<p class=\"kicker\">kldumpctl investigate: %s</p>\n<h1><span "
                  "class=\"sign\" aria-hidden=\"true\">%s</span>%s</h1>\n<p class=\"sides\">",
                  fine                               ? "good"
                  : none || end->status != STATUS_NO ? "warn"
                                                     : "bad",
                  end->name,
                  fine   ? "="
                  : none ? "?"
                         : "&ne;",
                  headline(end));
    if (in->command != NULL) {
        buffer_text(out, "<span>Server <code>");
        report_html_text(out, in->command);
        buffer_text(out, "</code></span>");
    }
    buffer_text(out, "</p>\n<dl class=\"lines\">\n<dt>Answer</dt><dd class=\"what\">");
    report_html_text(out, end->text);
    buffer_text(out, "</dd>\n");
    add_module(out, "Operator", end->module);
    if (in->own.known && in->own.model != NULL)
        add_pair_free(out, "Model",
                      memory_format("%s, SGLang %s, tp %" PRIu64, in->own.model,
                                    in->own.version != NULL ? in->own.version : "of unknown release", in->own.tp));
    add_pair(out, "Results", in->directory);
    buffer_text(out, "</dl>\n</header>\n");
}

/* ---- the paths ---- */

static void add_grade(struct buffer *out, const struct investigation_kl *kl, size_t id, const char *label,
                      unsigned series)
{
    enum kl_grade grade = kl->paths[id].grade;
    bool is_measured = kl->known && grade != KL_GRADE_NOT_MEASURED, is_clean = kl_grade_clean(grade);
    buffer_format(out,
                  "<td data-label=\"%s\"><span class=\"state %s\"><span aria-hidden=\"true\">%s</span> %s</span></td>",
                  label,
                  !is_measured              ? "unknown"
                  : is_clean                ? "good"
                  : grade == KL_GRADE_NOISE ? "warn"
                                            : "bad",
                  !is_measured ? "-"
                  : is_clean   ? "&#10003;"
                               : "&#10007;",
                  kl->known ? kl_grade_word(grade) : "not reached");
    if (!is_measured) {
        buffer_text(out, "<td></td><td></td><td></td>");
        return;
    }
    double share = kl->paths[id].tokens > 0 ? 100.0 * (double)kl->paths[id].beyond / (double)kl->paths[id].tokens : 0;
    buffer_format(out, "<td data-label=\"mean k3\" class=\"num\">%.2g</td>", kl->paths[id].mean);
    buffer_format(out, "<td data-label=\"beyond stray\" class=\"num\">%zu of %zu</td>", kl->paths[id].beyond,
                  kl->paths[id].tokens);
    buffer_format(
        out,
        "<td class=\"share\"><svg class=\"bar\" viewBox=\"0 0 100 1\" preserveAspectRatio=\"none\" "
        "role=\"img\"><title>%.3g %% of the tokens are beyond stray</title><rect class=\"s%u\" width=\"%.2f\" "
        "height=\"1\"/></svg></td>",
        share, series, share > 0 && share < 1 ? 1 : share);
}

static void add_paths(const struct investigation *in, struct buffer *out)
{
    if (!in->own.known && !in->dump.known)
        return;
    report_html_section(out, "paths", "The same tokens, computed twice",
                        "Five ways to do that, under your own flags and under those of a dump. Clean is bit-equal, or "
                        "stray: what two ways of taking one logprob differ by. The bars show the share of tokens that "
                        "are beyond it.");
    const struct investigation_kl *kls[] = {&in->own, &in->dump};
    static const char *const flags[] = {"Own flags", "Flags of a dump"};
    buffer_text(out, "<table class=\"evidence paths\"><thead><tr><th scope=\"col\">Path</th>");
    for (size_t k = 0; k < 2; k++)
        buffer_format(out,
                      "<th scope=\"col\">%s</th><th scope=\"col\" class=\"num\">Mean k3</th><th scope=\"col\" "
                      "class=\"num\">Beyond</th><th scope=\"col\"><span class=\"hidden\">Share</span></th>",
                      flags[k]);
    buffer_text(out, "</tr></thead><tbody>\n");
    for (size_t id = 0; id < KL_PATHS; id++) {
        buffer_format(out, "<tr><th scope=\"row\">%s</th>", kl_path_word((enum kl_path_id)id));
        for (unsigned k = 0; k < 2; k++)
            add_grade(out, kls[k], id, flags[k], k);
        buffer_text(out, "</tr>\n");
    }
    buffer_text(out, "</tbody></table>\n");
    for (size_t k = 0; k < 2; k++)
        if (kls[k]->known && kls[k]->text != NULL) {
            buffer_format(out, "<p class=\"hint\">kl under %s: ", k == 0 ? "your own flags" : "those of a dump");
            report_html_text(out, kls[k]->text);
            buffer_text(out, "</p>\n");
        }
    buffer_text(out, "</section>\n");
}

/* ---- invariance ---- */

static void add_cell(struct buffer *out, const char *label, const char *text)
{
    buffer_format(out, "<td data-label=\"%s\">", label);
    report_html_name(out, text != NULL ? text : "");
    buffer_text(out, "</td>");
}

static void add_axis(struct buffer *out, const struct investigation_axis *axis)
{
    char first[32] = "", unchanged[32] = "";
    if (axis->cached)
        snprintf(first, sizeof first, "a row on a cached prefix");
    else if (axis->first_size > 0)
        snprintf(first, sizeof first, "%" PRIu64, axis->first_size);
    if (axis->unchanged > 0)
        snprintf(unchanged, sizeof unchanged, "%" PRIu64, axis->unchanged);
    buffer_text(out, "<tr><th scope=\"row\">");
    report_html_name(out, axis->word);
    buffer_text(out, "</th>");
    add_cell(out, "State", axis->state);
    add_cell(out, "First size that changes", first);
    add_cell(out, "Unchanged up to", unchanged);
    add_cell(out, "Module", axis->module);
    add_cell(out, "Left out", axis->why_not);
    buffer_text(out, "</tr>\n");
}

static void add_invariance(const struct investigation *in, struct buffer *out)
{
    if (!in->invariance_known)
        return;
    report_html_section(
        out, "invariance", "Whether results depend on the batch",
        "One kernel against itself: rows alone and among others, in a long and in a short extend, decode "
        "alone and in a batch.");
    buffer_text(out, "<table class=\"evidence\"><thead><tr><th scope=\"col\">Axis</th><th scope=\"col\">State</th><th "
                     "scope=\"col\">First size that changes</th><th scope=\"col\">Unchanged up to</th><th "
                     "scope=\"col\">Module</th><th scope=\"col\">Left out</th></tr></thead><tbody>\n");
    for (size_t i = 0; i < in->axis_count; i++)
        add_axis(out, &in->axes[i]);
    buffer_text(out, "</tbody></table>\n<p class=\"hint\">Condition 1: ");
    report_html_text(out, in->invariance_condition != NULL ? in->invariance_condition : "not told");
    buffer_text(out, ".</p></section>\n");
}

/* ---- the dump ---- */

static void add_verdict(const struct investigation *in, struct buffer *out)
{
    if (!in->diff.known)
        return;
    report_html_section(out, "verdict", "The first operator that differs",
                        "Rows of decode against the same rows of prefill, bit for bit, in the order of the program.");
    buffer_text(out, "<dl class=\"lines\">\n");
    if (in->diff.proven && in->diff.kind != NULL) {
        add_pair_free(out, "Verdict",
                      memory_format("%s, %s", in->diff.kind,
                                    in->diff.confidence != NULL ? in->diff.confidence : "confidence not told"));
        add_module(out, "Module", in->diff.module);
        if (in->diff.has_layer)
            add_pair_free(out, "Layer", memory_format("%" PRIu64, in->diff.layer));
        if (in->diff.has_position)
            add_pair_free(out, "Position", memory_format("%" PRId64, in->diff.position));
        add_pair_free(out, "Rows",
                      memory_format("%" PRIu64 " of %" PRIu64 " differ", in->diff.unequal, in->diff.tested));
        add_pair(out, "Class", in->diff.class);
        add_pair(out, "Needs", in->diff.needs);
        add_pair(out, "Numbers", in->diff.reading);
        add_pair(out, "Look at", in->diff.what);
    } else {
        add_pair(out, "Verdict", "none: the alignment is not proven, or the dumps cannot be used");
    }
    for (char *const *line = in->diff.against; line != NULL && *line != NULL; line++)
        add_pair(out, "Against", *line);
    for (char *const *line = in->diff.certificate; line != NULL && *line != NULL; line++)
        add_pair(out, "Proof", *line);
    if (in->diff.page != NULL) {
        buffer_text(out, "<dt>All of it</dt><dd>");
        add_file(out, in->diff.page);
        buffer_text(out, "</dd>\n");
    }
    buffer_text(out, "</dl></section>\n");
}

/* ---- the steps ---- */

static void add_step(struct buffer *out, const struct investigation_step *step, enum investigation_step_id id)
{
    static const char *const classes[] = {"unknown", "unknown", "bad", "good"};
    static const char *const signs[] = {"-", "-", "&#10007;", "&#10003;"};
    char time[DURATION_TEXT];
    buffer_format(out,
                  "<tr><th scope=\"row\">%s</th><td data-label=\"State\"><span class=\"state %s\"><span "
                  "aria-hidden=\"true\">%s</span> %s%s</span></td><td data-label=\"Time\" class=\"num\">%s</td><td "
                  "data-label=\"Result\">",
                  investigation_step_word(id), classes[step->state], signs[step->state],
                  investigation_state_word(step->state), step->taken_over ? " before" : "",
                  step->took_ms > 0 ? duration_text(step->took_ms, time) : "");
    add_file(out, step->result);
    buffer_text(out, "</td><td data-label=\"Command\">");
    if (step->command != NULL) {
        buffer_text(out, "<code>");
        report_html_text(out, step->command);
        buffer_text(out, "</code>");
    }
    if (step->why != NULL) {
        buffer_text(out, "<span class=\"sub\">");
        report_html_text(out, step->why);
        buffer_text(out, "</span>");
    }
    buffer_text(out, "</td></tr>\n");
}

static void add_steps(const struct investigation *in, struct buffer *out)
{
    report_html_section(out, "steps", "Steps", "Each is a command that can be typed again.");
    buffer_text(out, "<table class=\"evidence\"><thead><tr><th scope=\"col\">Step</th><th scope=\"col\">State</th><th "
                     "scope=\"col\" class=\"num\">Time</th><th scope=\"col\">Result</th><th scope=\"col\">Command, and "
                     "why it was not done</th></tr></thead><tbody>\n");
    for (int id = 0; id < INVESTIGATION_STEPS; id++)
        add_step(out, &in->steps[id], (enum investigation_step_id)id);
    buffer_text(out, "</tbody></table></section>\n");
}

/* ---- the page ---- */

void investigation_html(const struct investigation *investigation, const struct investigation_end *end,
                        struct buffer *out)
{
    char *title = memory_format("%s: %s", headline(end), investigation->name != NULL ? investigation->name : end->name);
    report_html_begin(out, title, "answer", "Skip to the answer");
    free(title);
    buffer_text(out, "<main>\n");
    add_answer(investigation, end, out);
    add_lines(out, "next", "What to do next", NULL, end->next);
    add_paths(investigation, out);
    add_verdict(investigation, out);
    add_invariance(investigation, out);
    add_lines(out, "evidence", "What decided", NULL, end->evidence);
    add_lines(out, "not-measured", "What was not measured", "Nothing on this page says anything about these.",
              end->not_measured);
    add_steps(investigation, out);
    buffer_text(out, "</main>\n<footer><code>kldumpctl help investigate</code> and kldumpctl(1) explain every word on "
                     "this page.</footer>\n</body>\n</html>\n");
}
