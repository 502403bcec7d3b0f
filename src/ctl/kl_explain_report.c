#include "ctl/kl_explain_report.h"

#include "base/list.h"
#include "base/memory.h"

#include <stdlib.h>

/* ---- for people ---- */

enum { COLUMNS = 7 };

static void add_number(struct list *cells, double value)
{
    if (value == 0)
        list_add(cells, "0");
    else
        list_add_format(cells, "%.1e", value);
}

static void add_cells(const struct kl_explain_row *row, struct list *cells)
{
    const char *text = kl_explain_text(row->alteration);
    if (row->other == SIZE_MAX)
        list_add(cells, text);
    else
        list_add_format(cells, "%s (%zu; %zu tried)", text, row->other, row->variants);
    list_add_format(cells, "%zu", row->compared);
    list_add_format(cells, "%zu", row->bit_equal);
    list_add_format(cells, "%zu", row->stray);
    list_add_format(cells, "%zu", row->beyond);
    add_number(cells, row->mean_abs);
    add_number(cells, row->max_abs);
}

static void print_table(const struct kl_explanation *explanation, struct output *out)
{
    static const char *const headings[COLUMNS] = {"scored under", ">tokens",   ">bit-equal", ">stray",
                                                  ">beyond",      ">mean |d|", ">largest"};
    struct list cells = {0};
    enum output_style *styles = memory_new(explanation->row_count * sizeof styles[0]);
    size_t rows = 0;
    for (size_t i = 0; i < explanation->row_count; i++) {
        if (explanation->rows[i].why_not != NULL)
            continue;
        styles[rows++] = explanation->rows[i].reproduces ? OUTPUT_GREEN : OUTPUT_PLAIN;
        add_cells(&explanation->rows[i], &cells);
    }
    output_text(out, "\n");
    output_table(out, COLUMNS, headings, rows, (const char *const *)cells.items, styles);
    output_text(out, "\n");
    list_fini(&cells);
    free(styles);
}

void kl_explain_report_text(const struct kl_explanation *explanation, size_t width, struct output *out)
{
    const char *label = "not tried";
    if (!explanation->asked)
        return;
    output_text(out, "\n");
    if (explanation->nothing != NULL) {
        output_pair(out, width, "explain", OUTPUT_PLAIN, "nothing to explain: %s", explanation->nothing);
        return;
    }
    output_pair(out, width, "explain", OUTPUT_PLAIN,
                "%s:%zu (%s): its %zu tokens from position %zu on, as they were %s, against fresh scores of the same "
                "tokens under altered contexts; %s prefix has %zu tokens",
                kl_path_member(explanation->path), explanation->request, explanation->rid, explanation->tokens,
                explanation->dirty, explanation->wrong_is_a ? "scored on the cached prefix" : "decoded",
                explanation->path == KL_PATH_MATCH || explanation->path == KL_PATH_MATCH_ALONE
                    ? "what prefill handed to decode, the"
                    : "the cached",
                explanation->prefix);
    print_table(explanation, out);
    for (size_t i = 0; i < explanation->row_count; i++) {
        const struct kl_explain_row *row = &explanation->rows[i];
        if (row->why_not == NULL)
            continue;
        output_pair(out, width, label, OUTPUT_DIM, "%s: %s", kl_explain_text(row->alteration), row->why_not);
        label = "";
    }
    output_pair(out, width, "answer", explanation->answer != SIZE_MAX ? OUTPUT_GREEN : OUTPUT_PLAIN, "%s",
                explanation->text);
    if (explanation->tokens > KL_EXPLAIN_TOKENS || explanation->others > KL_EXPLAIN_OTHERS)
        output_pair(
            out, width, "", OUTPUT_DIM,
            "what moves with the token is scored for the first %d tokens; of other requests the first %d are tried",
            KL_EXPLAIN_TOKENS, KL_EXPLAIN_OTHERS);
}

/* ---- JSON ---- */

static void set_name(struct json *object, const char *key, const struct kl_explanation *explanation, size_t row)
{
    json_set_string(object, key, row != SIZE_MAX ? kl_explain_name(explanation->rows[row].alteration) : NULL);
}

static void append_row(struct json *array, const struct kl_explain_row *row)
{
    struct json *object = json_append_object(array);
    json_set_string(object, "name", kl_explain_name(row->alteration));
    json_set_string(object, "text", kl_explain_text(row->alteration));
    json_set_string(object, "exact", kl_explain_limit(row->alteration));
    json_set_string(object, "why_not", row->why_not);
    json_set_u64(object, "variants", row->variants);
    json_set_known_u64(object, "other", row->other != SIZE_MAX, row->other);
    json_set_u64(object, "tokens", row->compared);
    json_set_u64(object, "bit_equal", row->bit_equal);
    json_set_u64(object, "stray", row->stray);
    json_set_u64(object, "beyond", row->beyond);
    json_set_double(object, "mean_abs", row->mean_abs);
    json_set_double(object, "max_abs", row->max_abs);
    json_set_bool(object, "reproduces", row->reproduces);
}

void kl_explain_report_json(const struct kl_explanation *explanation, struct json *root)
{
    if (!explanation->asked) {
        json_set_null(root, "explanation");
        return;
    }
    struct json *object = json_set_object(root, "explanation");
    json_set_string(object, "nothing", explanation->nothing);
    if (explanation->nothing != NULL)
        return;
    json_set_string(object, "path", kl_path_member(explanation->path));
    json_set_u64(object, "request", explanation->request);
    json_set_string(object, "rid", explanation->rid);
    json_set_string(object, "wrong", explanation->wrong_is_a ? "a" : "b");
    json_set_u64(object, "prefix", explanation->prefix);
    json_set_u64(object, "dirty", explanation->dirty);
    struct json *rows = json_set_array(object, "contexts");
    for (size_t i = 0; i < explanation->row_count; i++)
        append_row(rows, &explanation->rows[i]);
    set_name(object, "answer", explanation, explanation->answer);
    set_name(object, "nearest", explanation, explanation->nearest);
    json_set_string(object, "text", explanation->text);
}
