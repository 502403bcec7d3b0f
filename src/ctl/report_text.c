#include "ctl/report_text.h"

#include "analysis/report.h"
#include "base/list.h"
#include "base/memory.h"
#include "base/text.h"
#include "sglang/recipe.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    LABEL_WIDTH = 13,
    BRACKET_AROUND = 2, /* tensors before the bracket and behind it */
    CULPRITS_SHOWN = 12,
    BLIND_SHOWN = 6,
    SEEN_SHOWN = 3,  /* of one message */
    NAME_LEAST = 22, /* columns; others go first */
    NAME_BYTES = 300,
};

struct page {
    const struct diff *diff;
    struct output *out;
    size_t columns;
    bool all;
};

static void paragraph(const struct page *page, const char *label, enum output_style style, const char *text)
{
    output_paragraph(page->out, LABEL_WIDTH, page->columns, label, style, text);
}

static void paragraph_free(const struct page *page, const char *label, enum output_style style, char *text)
{
    paragraph(page, label, style, text);
    free(text);
}

static void gap(const struct page *page)
{
    output_text(page->out, "\n");
}

/* ---- the verdict, or why there is none ---- */

static void print_lines(const struct page *page)
{
    bool equal = page->diff->verdict.kind == DIFF_KIND_NONE;
    for (int i = 0; i < REPORT_LINE_COUNT; i++) {
        char *text = report_line_text(page->diff, (enum report_line)i);
        if (text != NULL)
            paragraph(page, report_line_label((enum report_line)i),
                      i > 0   ? OUTPUT_PLAIN
                      : equal ? OUTPUT_GREEN
                              : OUTPUT_RED,
                      text);
        free(text);
    }
}

static void print_refusal(const struct page *page)
{
    const struct diff *diff = page->diff;
    paragraph_free(page, "alignment", OUTPUT_RED, memory_format("%s: %s", report_headline(diff), report_summary(diff)));
}

static void print_refused(const struct page *page)
{
    for (char *const *file = page->diff->refused; file != NULL && *file != NULL; file++)
        paragraph(page, file == page->diff->refused ? "refused" : "", OUTPUT_PLAIN, *file);
}

static void print_message(const struct page *page, enum diff_message_id id)
{
    size_t count = 0, most = page->all ? SIZE_MAX : SEEN_SHOWN;
    gap(page);
    paragraph(page, diff_message_name(id), diff_message_fatal(id) ? OUTPUT_RED : OUTPUT_YELLOW, diff_message_cause(id));
    for (size_t i = 0; i < page->diff->message_count; i++) {
        const struct diff_message *m = &page->diff->messages[i];
        if (m->id == id && count++ < most)
            paragraph(page, count == 1 ? "  seen" : "", OUTPUT_PLAIN, m->evidence != NULL ? m->evidence : "-");
    }
    if (count > most)
        output_pair(page->out, LABEL_WIDTH, "", OUTPUT_DIM, "... %zu more: --all", count - most);
    paragraph(page, "  do", OUTPUT_PLAIN, diff_message_remedy(id));
}

/* Each message once, with all that was seen of it: files can be missing in every pass. */
static void print_messages(const struct page *page, bool fatal)
{
    bool told[DIFF_MESSAGE_COUNT] = {false};
    for (size_t i = 0; i < page->diff->message_count; i++) {
        enum diff_message_id id = page->diff->messages[i].id;
        if (diff_message_fatal(id) == fatal && !told[id])
            print_message(page, id);
        told[id] = true;
    }
}

static void print_certificate(const struct page *page)
{
    static const enum output_style styles[] = {OUTPUT_DIM, OUTPUT_GREEN, OUTPUT_YELLOW, OUTPUT_RED};
    gap(page);
    for (int i = 0; i < DIFF_PROOF_COUNT; i++) {
        const struct diff_proof *proof = &page->diff->proofs[i];
        enum diff_proof_id id = (enum diff_proof_id)i;
        char *label = memory_format("%s %s", diff_proof_name(id), diff_proof_state_word(proof->state));
        char *text = report_proof_text(page->diff, id);
        paragraph_free(page, label, styles[proof->state],
                       memory_format("%s%s%s%s", text, proof->evidence != NULL ? " (" : "",
                                     proof->evidence != NULL ? proof->evidence : "",
                                     proof->evidence != NULL ? ")" : ""));
        free(text);
        free(label);
    }
}

static void print_recipe(const struct page *page)
{
    if (!report_wants_recipe(page->diff))
        return;
    gap(page);
    paragraph(page, "recipe", OUTPUT_BOLD, "a dump that makes every proof possible");
    for (const struct recipe_step *step = recipe_steps(); step->command != NULL; step++) {
        paragraph_free(page, "", OUTPUT_DIM, memory_format("# %s", step->remark));
        output_pair(page->out, LABEL_WIDTH, "", OUTPUT_PLAIN, "%s", step->command); /* one line: to be copied */
    }
}

/* ---- the bracket ---- */

static void print_tensor(const struct page *page, size_t index, const char *label)
{
    const struct diff_observation *o = &page->diff->observations[index];
    char name[REPORT_SHORT];
    const char *word = report_is_blind(o) ? report_blind_word(o) : o->unequal > 0 ? "unequal" : "equal";
    paragraph_free(page, label,
                   o->unequal > 0       ? OUTPUT_RED
                   : report_is_blind(o) ? OUTPUT_DIM
                                        : OUTPUT_GREEN,
                   memory_format("%-7s  %s", word, report_short(o->name, name)));
}

static void print_bracket(const struct page *page)
{
    const struct diff *diff = page->diff;
    const struct diff_verdict *v = &diff->verdict;
    if (v->first_unequal >= diff->observation_count)
        return;
    size_t last = v->last_equal < v->first_unequal ? v->last_equal : v->first_unequal;
    size_t from = last > BRACKET_AROUND ? last - BRACKET_AROUND : 0;
    const char *label = "bracket";
    char name[REPORT_SHORT];
    gap(page);
    for (size_t i = from; i <= last && i < v->first_unequal; i++, label = "")
        print_tensor(page, i, label);
    for (char *const *blind = v->blind; blind != NULL && *blind != NULL; blind++, label = "")
        paragraph_free(page, label, OUTPUT_YELLOW, memory_format("unseen   %s", report_short(*blind, name)));
    for (size_t i = v->first_unequal; i <= v->first_unequal + BRACKET_AROUND && i < diff->observation_count;
         i++, label = "")
        print_tensor(page, i, label);
}

/* ---- the evidence table ---- */

enum { NAME, KIND, ROWS, UNEQUAL, FIRST, ULP, COLUMNS };
static const char *const headings[COLUMNS] = {
    "DIFFERS ON EQUAL INPUTS", "KIND", ">ROWS", ">UNEQUAL", ">FIRST", ">MAX ULP"};
static const int dispensable[] = {KIND, FIRST, ROWS}; /* in this order, where there is no room */

static void fill_row(const struct diff *diff, const struct diff_call *call, char **cells)
{
    char clean[NAME_BYTES], ulp[REPORT_ULP_TEXT];
    cells[NAME] = memory_copy(text_clean(call->name, strlen(call->name), clean, sizeof clean));
    cells[KIND] = memory_copy(call->class != NULL ? call->class->kind : "unknown");
    cells[ROWS] = memory_format("%zu", call->tested);
    cells[UNEQUAL] = memory_format("%zu", call->unequal);
    cells[FIRST] = call->first_pair < diff->pair_count
                       ? memory_format("%" PRId64, diff->pairs[call->first_pair].position)
                       : memory_copy("-");
    cells[ULP] = memory_copy(report_ulp_text(call->max_ulp, ulp));
}

static size_t width_of(int column, size_t rows, char *const *cells)
{
    size_t width = output_columns(headings[column]) - (headings[column][0] == '>');
    for (size_t r = 0; r < rows; r++) {
        size_t own = output_columns(cells[r * COLUMNS + (size_t)column]);
        width = own > width ? own : width;
    }
    return width;
}

/* A name that is too long loses its beginning: the end says more. */
static void shorten(char **name, size_t room)
{
    size_t length = output_columns(*name);
    const char *end = *name;
    if (length <= room)
        return;
    for (size_t drop = length - room + 1; drop > 0; drop--)
        do
            end++;
        while (((unsigned char)*end & 0xc0) == 0x80);
    char *shorter = memory_format("~%s", end);
    free(*name);
    *name = shorter;
}

static void print_table(const struct page *page, size_t rows, char **cells)
{
    bool shown[COLUMNS] = {true, true, true, true, true, true};
    size_t others = 0, columns = 0, drop = 0;
    for (int c = KIND; c < COLUMNS; c++)
        others += width_of(c, rows, cells) + 2;
    while (others + NAME_LEAST > page->columns && drop < sizeof dispensable / sizeof dispensable[0]) {
        shown[dispensable[drop]] = false;
        others -= width_of(dispensable[drop++], rows, cells) + 2;
    }
    size_t room = page->columns > others + 8 ? page->columns - others : 8;
    const char *titles[COLUMNS];
    const char **kept = memory_new((rows * COLUMNS + 1) * sizeof *kept);
    for (int c = 0; c < COLUMNS; c++)
        if (shown[c])
            titles[columns++] = c == NAME && room < strlen(headings[NAME]) ? "DIFFERS" : headings[c];
    size_t at = 0;
    for (size_t r = 0; r < rows; r++)
        for (int c = 0; c < COLUMNS; c++) {
            if (c == NAME)
                shorten(&cells[r * COLUMNS], room);
            if (shown[c])
                kept[at++] = cells[r * COLUMNS + (size_t)c];
        }
    output_table(page->out, columns, titles, rows, kept, NULL);
    free(kept);
}

static void print_evidence(const struct page *page)
{
    const struct diff *diff = page->diff;
    struct report_coverage c;
    report_count(diff, &c);
    size_t most = page->all || c.culprits < CULPRITS_SHOWN ? c.culprits : CULPRITS_SHOWN, rows = 0;
    char **cells = memory_new((most * COLUMNS + 1) * sizeof *cells);
    for (size_t i = 0; i < diff->call_count && rows < most; i++)
        if (report_is_culprit(&diff->calls[i]))
            fill_row(diff, &diff->calls[i], cells + COLUMNS * rows++);
    gap(page);
    if (rows > 0)
        print_table(page, rows, cells);
    if (rows < c.culprits)
        output_format(page->out, "... %zu more: --all\n", c.culprits - rows);
    for (size_t i = 0; i < rows * COLUMNS; i++)
        free(cells[i]);
    free(cells);
    char *least = c.exonerated > 0
                      ? memory_format(", on %zu row%s or more", c.least_tested, c.least_tested == 1 ? "" : "s")
                      : memory_copy("");
    paragraph_free(page, "exonerated", OUTPUT_PLAIN,
                   memory_format("%zu operator%s with equal outputs wherever inputs are equal%s", c.exonerated,
                                 c.exonerated == 1 ? "" : "s", least));
    free(least);
    if (c.untested > 0)
        paragraph_free(page, "untested", OUTPUT_PLAIN,
                       memory_format("%zu operator%s without a compared row of equal inputs", c.untested,
                                     c.untested == 1 ? "" : "s"));
}

/* ---- blind spots ---- */

static void print_blind(const struct page *page)
{
    const struct diff *diff = page->diff;
    size_t blind = 0, shown = 0;
    char name[REPORT_SHORT];
    for (size_t i = 0; i < diff->observation_count; i++)
        blind += report_is_blind(&diff->observations[i]);
    if (blind == 0)
        return;
    paragraph_free(page, "blind spots", OUTPUT_PLAIN,
                   memory_format("%zu of %zu tensors cannot be compared", blind, diff->observation_count));
    for (size_t i = 0; i < diff->observation_count && (page->all || shown < BLIND_SHOWN); i++) {
        const struct diff_observation *o = &diff->observations[i];
        if (!report_is_blind(o))
            continue;
        shown++;
        paragraph_free(page, "", OUTPUT_PLAIN,
                       memory_format("%s: %s%s%s", report_short(o->name, name), report_blind_word(o),
                                     o->note != NULL ? "; " : "", o->note != NULL ? o->note : ""));
    }
    if (shown < blind)
        output_pair(page->out, LABEL_WIDTH, "", OUTPUT_DIM, "... %zu more: --all", blind - shown);
}

static void print_sides(const struct page *page)
{
    const struct diff *diff = page->diff;
    paragraph_free(page, "compared", OUTPUT_PLAIN,
                   memory_format("DEC %s, PRE %s%s", diff->a_path != NULL ? diff->a_path : "-",
                                 diff->b_path != NULL ? diff->b_path : "-",
                                 diff->swapped ? " (given the other way round)" : ""));
    if (report_has_verdict(diff) && diff_pairing_sentence(diff->pairing) != NULL)
        paragraph(page, "only", OUTPUT_YELLOW, diff_pairing_sentence(diff->pairing));
}

void report_text(const struct diff *diff, size_t columns, bool all, struct output *out)
{
    if (columns == 0)
        columns = REPORT_TEXT_PLAIN;
    columns = columns < REPORT_TEXT_LEAST ? REPORT_TEXT_LEAST : columns > REPORT_TEXT_MOST ? REPORT_TEXT_MOST : columns;
    const struct page page = {.diff = diff, .out = out, .columns = columns, .all = all};
    bool verdict = report_has_verdict(diff);
    if (verdict)
        print_lines(&page);
    else
        print_refusal(&page);
    print_sides(&page);
    print_refused(&page);
    print_messages(&page, true);
    print_messages(&page, false);
    print_certificate(&page);
    print_recipe(&page);
    if (!verdict)
        return;
    print_bracket(&page);
    if (diff->verdict.first_unequal < diff->observation_count &&
        diff->observations[diff->verdict.first_unequal].marks != NULL) {
        gap(&page);
        report_text_strip(diff, &diff->observations[diff->verdict.first_unequal], columns, all, out);
    }
    print_evidence(&page);
    print_blind(&page);
}
