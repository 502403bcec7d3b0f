#include "analysis/report_html.h"

#include "analysis/report.h"
#include "analysis/report_html_private.h"
#include "base/memory.h"
#include "base/text.h"
#include "sglang/recipe.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    TEXT_BYTES = 1600, /* a line of a verdict; names are cut by report_short */
    SEEN_MOST = 20,    /* of one message */
};

void report_html_text(struct buffer *out, const char *text)
{
    char clean[TEXT_BYTES];
    text_clean(text, strlen(text), clean, sizeof clean);
    for (const char *c = clean; *c != '\0'; c++) {
        switch (*c) {
        case '&':
            buffer_text(out, "&amp;");
            break;
        case '<':
            buffer_text(out, "&lt;");
            break;
        case '>':
            buffer_text(out, "&gt;");
            break;
        case '"':
            buffer_text(out, "&quot;");
            break;
        case '\'':
            buffer_text(out, "&#39;");
            break;
        default:
            buffer_append(out, c, 1);
        }
    }
}

void report_html_name(struct buffer *out, const char *name)
{
    char shorter[REPORT_SHORT];
    report_html_text(out, report_short(name, shorter));
}

void report_html_section(struct buffer *out, const char *id, const char *title, const char *introduction)
{
    buffer_format(out, "<section id=\"%s\"><h2>%s</h2>\n", id, title);
    if (introduction != NULL)
        buffer_format(out, "<p class=\"intro\">%s</p>\n", introduction);
}

void report_html_begin(struct buffer *out, const char *title, const char *id, const char *skip)
{
    buffer_text(out, "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
                     "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
                     "<meta name=\"color-scheme\" content=\"light dark\">\n"
                     "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src "
                     "'unsafe-inline'\">\n<title>");
    report_html_text(out, title);
    buffer_format(out, "</title>\n<style>\n%s</style>\n</head>\n<body>\n", report_html_style);
    buffer_format(out, "<a class=\"skip\" href=\"#%s\">%s</a>\n", id, skip);
}

static const char *state_class(enum status status)
{
    return status == STATUS_DONE ? "good" : status == STATUS_NO ? "bad" : "warn";
}

static void add_lines(const struct diff *diff, struct buffer *out)
{
    static const char *const labels[] = {"What", "Where", "Evidence", "Class", "Next"};
    buffer_text(out, "<dl class=\"lines\">\n");
    for (int i = 0; i < REPORT_LINE_COUNT; i++) {
        char *text = report_line_text(diff, (enum report_line)i);
        if (text != NULL) {
            buffer_format(out, "<dt>%s</dt><dd%s>", labels[i], i == 0 ? " class=\"what\"" : "");
            report_html_text(out, text);
            buffer_text(out, "</dd>\n");
        }
        free(text);
    }
    buffer_text(out, "</dl>\n");
}

static void add_message(const struct diff *diff, enum diff_message_id id, struct buffer *out)
{
    size_t count = 0;
    buffer_format(out,
                  "<div class=\"message %s\"><h3><span class=\"tag\">%s</span> %s</h3>\n<dl class=\"lines\">"
                  "<dt>Seen</dt>",
                  diff_message_fatal(id) ? "warn" : "note", diff_message_name(id), diff_message_cause(id));
    for (size_t i = 0; i < diff->message_count; i++) {
        if (diff->messages[i].id != id || count++ >= SEEN_MOST)
            continue;
        buffer_text(out, "<dd>");
        report_html_text(out, diff->messages[i].evidence != NULL ? diff->messages[i].evidence : "");
        buffer_text(out, "</dd>");
    }
    if (count > SEEN_MOST)
        buffer_format(out, "<dd>%zu more: <code>--json</code> has all</dd>", count - SEEN_MOST);
    buffer_text(out, "<dt>Do</dt><dd>");
    report_html_text(out, diff_message_remedy(id));
    buffer_text(out, "</dd></dl></div>\n");
}

/* Each message once, with what was seen of it. */
static void add_messages(const struct diff *diff, struct buffer *out)
{
    bool told[DIFF_MESSAGE_COUNT] = {false};
    for (size_t i = 0; i < diff->message_count; i++) {
        enum diff_message_id id = diff->messages[i].id;
        if (!told[id])
            add_message(diff, id, out);
        told[id] = true;
    }
}

static void add_recipe(const struct diff *diff, struct buffer *out)
{
    if (!report_wants_recipe(diff))
        return;
    report_html_section(out, "recipe", "A dump that makes every proof possible", NULL);
    buffer_text(out, "<ol class=\"recipe\">\n");
    for (const struct recipe_step *step = recipe_steps(); step->command != NULL; step++) {
        buffer_text(out, "<li><code>");
        report_html_text(out, step->command);
        buffer_format(out, "</code><span class=\"sub\">%s</span></li>\n", step->remark);
    }
    buffer_text(out, "</ol></section>\n");
}

static void add_verdict(const struct diff *diff, struct buffer *out)
{
    enum status status = diff_status(diff);
    buffer_format(out,
                  "<header id=\"verdict\" class=\"%s\">\n<p class=\"kicker\">kldumpctl diff</p>\n<h1><span "
                  "class=\"sign\" aria-hidden=\"true\">%s</span>%s</h1>\n<p class=\"sides\"><span>DEC <code>",
                  state_class(status),
                  status == STATUS_DONE ? "="
                  : status == STATUS_NO ? "&ne;"
                                        : "?",
                  report_headline(diff));
    report_html_text(out, diff->a_path != NULL ? diff->a_path : "");
    buffer_text(out, "</code></span> <span>PRE <code>");
    report_html_text(out, diff->b_path != NULL ? diff->b_path : "");
    buffer_text(out, "</code></span></p>\n");
    if (diff->swapped)
        buffer_text(out, "<p class=\"hint\">The sides were given the other way round.</p>\n");
    if (report_has_verdict(diff) && diff_pairing_sentence(diff->pairing) != NULL)
        buffer_format(out, "<p class=\"hint\">Compared: %s.</p>\n", diff_pairing_sentence(diff->pairing));
    if (report_summary(diff) != NULL)
        buffer_format(out, "<p>No verdict: %s.</p>\n", report_summary(diff));
    else
        add_lines(diff, out);
    buffer_text(out, "</header>\n");
    for (char *const *file = diff->refused; file != NULL && *file != NULL; file++) {
        buffer_text(out, "<p class=\"message warn\">Refused: ");
        report_html_text(out, *file);
        buffer_text(out, "</p>\n");
    }
    add_messages(diff, out);
}

static void add_certificate(const struct diff *diff, struct buffer *out)
{
    static const char *const signs[] = {"?", "&#10003;", "~", "&#10007;"}, *const classes[] = {"unknown", "good",
                                                                                               "warn", "bad"};
    report_html_section(
        out, "certificate", "Certificate",
        "What is proven about the rows that were compared. Where one of A1 to A4 fails, no operator is named.");
    buffer_text(out, "<table class=\"proofs\"><thead><tr><th scope=\"col\">Proof</th><th scope=\"col\">State</th>"
                     "<th scope=\"col\">Claim and evidence</th></tr></thead><tbody>\n");
    for (int i = 0; i < DIFF_PROOF_COUNT; i++) {
        const struct diff_proof *proof = &diff->proofs[i];
        enum diff_proof_id id = (enum diff_proof_id)i;
        char *text = report_proof_text(diff, id);
        buffer_format(out,
                      "<tr><th scope=\"row\">%s</th><td><span class=\"state %s\"><span aria-hidden=\"true\">%s</span> "
                      "%s</span></td><td>%s%s",
                      diff_proof_name(id), classes[proof->state], signs[proof->state],
                      diff_proof_state_word(proof->state), text, proof->evidence != NULL ? "<span class=\"sub\">" : "");
        free(text);
        if (proof->evidence != NULL) {
            report_html_text(out, proof->evidence);
            buffer_text(out, "</span>");
        }
        buffer_text(out, "</td></tr>\n");
    }
    buffer_text(out, "</tbody></table></section>\n");
}

static void add_contents(const struct diff *diff, const char *body, struct buffer *out)
{
    static const struct {
        const char *id, *title;
    } places[] = {{"certificate", "Certificate"}, {"bracket", "Bracket"},   {"layers", "Layers"},
                  {"positions", "Positions"},     {"sizes", "Sizes"},       {"evidence", "Operators"},
                  {"tensors", "Tensors"},         {"blind", "Blind spots"}, {"requests", "Requests"}};
    if (!report_has_verdict(diff))
        return;
    buffer_text(out, "<nav aria-label=\"Sections\">");
    for (size_t i = 0; i < sizeof places / sizeof places[0]; i++) {
        char mark[40];
        snprintf(mark, sizeof mark, "<section id=\"%s\"", places[i].id);
        if (strstr(body, mark) != NULL) /* text from outside has no '<' */
            buffer_format(out, "<a href=\"#%s\">%s</a>", places[i].id, places[i].title);
    }
    buffer_text(out, "</nav>\n");
}

static void add_foot(const struct diff *diff, struct buffer *out)
{
    buffer_format(out,
                  "<footer>%" PRIu64 " files opened, %" PRIu64
                  " bytes read; %zu pairs of rows, %zu of them to be compared, the others a control; "
                  "%" PRIu32
                  " rank%s, tensor parallel size %u. <code>kldumpctl help diff</code> explains every word on "
                  "this page.</footer>\n</body>\n</html>\n",
                  diff->files_opened, diff->bytes_read, diff->pair_count, diff->target_count, diff->ranks,
                  diff->ranks == 1 ? "" : "s", diff->tp_size);
}

void report_html(const struct diff *diff, struct buffer *out)
{
    struct buffer body;
    buffer_init(&body);
    add_certificate(diff, &body);
    if (report_has_verdict(diff)) {
        report_html_maps(diff, &body);
        report_html_charts(diff, &body);
        report_html_detail(diff, &body);
    }
    report_html_blind(diff, &body);
    char *title = memory_format("%s: %s against %s", report_headline(diff), diff->a_path != NULL ? diff->a_path : "",
                                diff->b_path != NULL ? diff->b_path : "");
    report_html_begin(out, title, "verdict", "Skip to the verdict");
    free(title);
    buffer_text(out, "<main>\n");
    add_verdict(diff, out);
    add_contents(diff, body.data, out);
    add_recipe(diff, out);
    buffer_append(out, body.data, body.length);
    buffer_text(out, "</main>\n");
    add_foot(diff, out);
    buffer_fini(&body);
}
