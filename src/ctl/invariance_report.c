#include "ctl/invariance_report.h"

#include "base/list.h"
#include "base/memory.h"
#include "json/json.h"
#include "sglang/operator_script.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LABEL_WIDTH = INVARIANCE_REPORT_LABEL, COLUMNS = 7 };

static const char *class_word(enum kl_class class)
{
    static const char *const words[] = {"bit-equal", "stray", "beyond"};
    return words[class];
}

/* "a batch of 4", "an extend of 8 rows", "one row on a cached prefix"; the caller's. */
static char *case_text(enum invariance_axis_id id, const struct invariance_case *one)
{
    if (one->cached)
        return memory_copy("one row on a cached prefix");
    return memory_format(id == INVARIANCE_EXTEND ? "an extend of %zu rows" : "a batch of %zu", one->size);
}

/* ---- the operator ---- */

enum error_code invariance_report_script(const struct invariance_module *module, struct buffer *text, struct error *err)
{
    bool is_more = module->rows > module->reference_rows;
    struct operator_script script = {.module = module->module,
                                     .kind = module->kind,
                                     .dtype = module->dtype != NULL ? module->dtype : "not in the result of diff",
                                     .inputs = module->inputs,
                                     .outputs = module->outputs,
                                     .residual = module->residual,
                                     .few = is_more ? module->reference_rows : module->rows,
                                     .rows = is_more ? module->rows : module->reference_rows};
    if (module->rows == module->reference_rows)
        return error_set(err, ERROR_BAD_VALUE, "%.200s: both passes have %" PRIu64 " rows; expected two numbers",
                         module->module, module->rows);
    return operator_script_build(&script, text, err);
}

static bool has_script(const struct invariance_module *module)
{
    struct buffer text;
    buffer_init(&text);
    enum error_code code = invariance_report_script(module, &text, NULL);
    buffer_fini(&text);
    return code == ERROR_NONE;
}

const struct invariance_module *invariance_report_module(const struct invariance_report *report)
{
    static const enum invariance_axis_id order[] = {INVARIANCE_DECODE, INVARIANCE_EXTEND, INVARIANCE_PREFILL};
    const struct invariance_module *first = NULL;
    if (report->module.module != NULL)
        return &report->module;
    for (size_t i = 0; i < sizeof order / sizeof order[0]; i++) {
        const struct invariance_module *module = &report->dumps[order[i]].module;
        if (module->module == NULL)
            continue;
        if (has_script(module))
            return module;
        first = first != NULL ? first : module;
    }
    return first;
}

/* ---- text: the head ---- */

static void print_head(const struct invariance_report *report, struct output *out)
{
    const struct generate_server *server = &report->endpoint->server;
    const struct invariance_take_plan *plan = report->plan;
    size_t shortest = SIZE_MAX, longest = 0;
    for (size_t i = 0; i < plan->most; i++) {
        size_t length = plan->prompts->items[i].length;
        shortest = length < shortest ? length : shortest;
        longest = length > longest ? length : longest;
    }
    output_pair(out, LABEL_WIDTH, "server", OUTPUT_PLAIN, "%s: %s, SGLang %s, tp %u; deterministic inference %s",
                report->endpoint->name, server->model_path, server->version, server->tp_size,
                server->deterministic ? "on" : "off: condition 1 cannot be expected to hold");
    output_pair(out, LABEL_WIDTH, "prompts", OUTPUT_PLAIN,
                "%zu of %zu, of %zu to %zu ids (%s), %u new tokens each, the likeliest always", plan->most,
                plan->prompts->count, shortest, longest, plan->prompts->source, plan->new_tokens);
    output_pair(out, LABEL_WIDTH, "", OUTPUT_DIM, "hash of prompts %s, of settings %s: compare under equal ones only",
                plan->prompts->hash, report->settings_hash);
}

/* ---- text: the axes ---- */

static void add_cells(struct list *cells, const char *axis, const char *what, const struct invariance_case *one)
{
    list_add(cells, axis);
    list_add(cells, what);
    list_add_format(cells, "%zu", one->compared);
    list_add_format(cells, "%zu", one->bit_equal);
    list_add_format(cells, "%zu", one->stray);
    list_add_format(cells, "%zu", one->beyond);
    list_add_format(cells, one->max_abs > 0 ? "%.1e" : "0", one->max_abs);
}

static void print_table(const struct invariance_report *report, struct output *out)
{
    static const char *const headings[COLUMNS] = {
        "AXIS", "AGAINST THE REFERENCE", ">LOGPROBS", ">BIT-EQUAL", ">STRAY", ">BEYOND", ">MAX |D|"};
    struct list cells = {0};
    for (int id = 0; id < INVARIANCE_AXES; id++) {
        const struct invariance_axis *axis = &report->axes[id];
        const char *word = invariance_axis_word((enum invariance_axis_id)id);
        if (axis->measured)
            add_cells(&cells, word, "itself, once more", &axis->again);
        for (size_t i = 0; i < axis->case_count; i++) {
            char *what = case_text((enum invariance_axis_id)id, &axis->cases[i]);
            add_cells(&cells, word, what, &axis->cases[i]);
            free(what);
        }
    }
    output_text(out, "\n");
    output_table(out, COLUMNS, headings, cells.count / COLUMNS, (const char *const *)list_vector(&cells), NULL);
    output_text(out, "\n");
    list_fini(&cells);
}

static void print_change(const struct invariance_change *change, struct output *out)
{
    if (change->reference_id != change->found_id)
        output_pair(out, LABEL_WIDTH, "", OUTPUT_PLAIN,
                    "request %zu, position %zu: token %" PRId64 " (%.9g) in the reference, token %" PRId64
                    " (%.9g) here",
                    change->request, change->position, change->reference_id, change->reference, change->found_id,
                    change->found);
    else
        output_pair(out, LABEL_WIDTH, "", OUTPUT_PLAIN,
                    "request %zu, position %zu, token %" PRId64 ": logprob %.9g in the reference, %.9g here; %" PRIu64
                    " ULP of float32, %s",
                    change->request, change->position, change->reference_id, change->reference, change->found,
                    change->ulp, class_word(change->class));
}

static void print_changed(enum invariance_axis_id id, const struct invariance_axis *axis, struct output *out)
{
    const struct invariance_case *before, *first = invariance_first(axis, &before);
    char *what = case_text(id, first), *unchanged = before != NULL ? case_text(id, before) : NULL;
    output_pair(out, LABEL_WIDTH, invariance_axis_word(id), OUTPUT_RED,
                "changed: the first that changes a result is %s%s%s", what,
                unchanged != NULL ? "; nothing is changed by " : "", unchanged != NULL ? unchanged : "");
    print_change(&first->first, out);
    free(what);
    free(unchanged);
}

/* A batch is prefilled before it decodes. */
static void print_prefill_too(const struct invariance_axis axes[INVARIANCE_AXES], struct output *out)
{
    const struct invariance_case *before;
    if (invariance_first(&axes[INVARIANCE_DECODE], &before) != NULL &&
        invariance_first(&axes[INVARIANCE_PREFILL], &before) != NULL)
        output_pair(out, LABEL_WIDTH, "", OUTPUT_DIM,
                    "a batch is prefilled together, too: what prefill changes is in the cache that this decode reads");
}

/* "model.layers.0.mlp.down_proj (matrix product; op, proven): other bits among 1 row than among 2" */
static void print_named(const struct invariance_module *module, struct output *out)
{
    char *rows =
        module->rows != module->reference_rows && strcmp(module->verdict, "op") == 0
            ? memory_format(": it depends on the number of rows: other bits at M=%" PRIu64 " than at M=%" PRIu64,
                            module->rows, module->reference_rows)
            : memory_copy("");
    output_pair(out, LABEL_WIDTH, "  module", OUTPUT_PLAIN, "%s (%s; %s, %s)%s", module->module, module->kind,
                module->verdict, module->confidence, rows);
    output_pair(out, LABEL_WIDTH, "", OUTPUT_DIM, "%s", module->advice);
    free(rows);
}

static void print_dump(const struct invariance_dump *dump, struct output *out)
{
    if (dump->module.module != NULL)
        print_named(&dump->module, out);
    else if (dump->why_not != NULL)
        output_pair(out, LABEL_WIDTH, "  module", OUTPUT_YELLOW, "unknown: %s", dump->why_not);
    if (dump->reference != NULL && dump->changed != NULL)
        output_pair(out, LABEL_WIDTH, "  dumps", OUTPUT_DIM, "%s, %s", dump->changed, dump->reference);
}

static void print_axis(enum invariance_axis_id id, const struct invariance_axis *axis,
                       const struct invariance_dump *dump, struct output *out)
{
    enum invariance_state state = invariance_state_of(axis);
    const char *word = invariance_axis_word(id);
    if (state == INVARIANCE_CHANGED) {
        print_changed(id, axis, out);
    } else if (state == INVARIANCE_NOT_REPEATABLE) {
        output_pair(out, LABEL_WIDTH, word, OUTPUT_YELLOW,
                    "not repeatable: the reference itself changes from one time to the next, at the same size");
        print_change(&axis->again.first, out);
    } else {
        output_pair(out, LABEL_WIDTH, word, state == INVARIANCE_UNCHANGED ? OUTPUT_GREEN : OUTPUT_YELLOW, "%s: %s",
                    invariance_state_word(state), invariance_axis_what(id));
    }
    if (axis->why_not != NULL)
        output_pair(out, LABEL_WIDTH, "", OUTPUT_DIM, "%s", axis->why_not);
    print_dump(dump, out);
}

/* ---- text: the end ---- */

static void print_module(const struct invariance_report *report, struct output *out)
{
    if (report->diff_path != NULL)
        output_pair(out, LABEL_WIDTH, "module", OUTPUT_PLAIN, "%s (%s), as %s names it", report->module.module,
                    report->module.kind, report->diff_path);
    else if (report->experiment == NULL)
        output_pair(out, LABEL_WIDTH, "module", OUTPUT_PLAIN,
                    "unknown: logprobs do not tell; --dump EXP names it from dumps, --diff from the result of one");
}

void invariance_report_text(const struct invariance_report *report, struct output *out)
{
    const struct invariance_reading *reading = &report->reading;
    print_head(report, out);
    print_table(report, out);
    for (int id = 0; id < INVARIANCE_AXES; id++)
        print_axis((enum invariance_axis_id)id, &report->axes[id], &report->dumps[id], out);
    print_prefill_too(report->axes, out);
    output_pair(out, LABEL_WIDTH, "", OUTPUT_DIM,
                "a batch is what was sent together; which passes the server made of it is in a dump alone");
    if (reading->condition == INVARIANCE_BROKEN)
        print_module(report, out);
    if (report->match.given)
        output_pair(out, LABEL_WIDTH, "match", OUTPUT_PLAIN, "%s in a batch, %s one request at a time (%s)",
                    kl_grade_word(report->match.together), kl_grade_word(report->match.alone), report->kl_path);
    output_pair(out, LABEL_WIDTH, "others", foreign_seen(&report->endpoint->foreign) ? OUTPUT_RED : OUTPUT_DIM, "%s",
                report->foreign);
    output_text(out, "\n");
    output_pair(out, LABEL_WIDTH, "condition 1",
                reading->condition == INVARIANCE_HOLDS                                                ? OUTPUT_GREEN
                : reading->condition == INVARIANCE_BROKEN || reading->condition == INVARIANCE_REFUSED ? OUTPUT_RED
                                                                                                      : OUTPUT_YELLOW,
                "%s", invariance_condition_word(reading->condition));
    output_pair(out, LABEL_WIDTH, "", OUTPUT_PLAIN, "%s", reading->text);
    if (reading->next != NULL)
        output_pair(out, LABEL_WIDTH, "next", OUTPUT_PLAIN, "%s", reading->next);
    if (report->script != NULL)
        output_pair(out, LABEL_WIDTH, "script", OUTPUT_PLAIN, "%s", report->script);
    if (report->no_script != NULL)
        output_pair(out, LABEL_WIDTH, "script", OUTPUT_YELLOW, "none: %s", report->no_script);
}

/* ---- JSON ---- */

static void set_change(struct json *object, const struct invariance_change *change)
{
    json_set_u64(object, "request", change->request);
    json_set_u64(object, "position", change->position);
    json_set_i64(object, "reference_id", change->reference_id);
    json_set_i64(object, "found_id", change->found_id);
    json_set_double(object, "reference", change->reference);
    json_set_double(object, "found", change->found);
    json_set_u64(object, "ulp", change->ulp);
    json_set_string(object, "class", class_word(change->class));
}

static void set_case(struct json *object, const struct invariance_case *one)
{
    json_set_u64(object, "size", one->size);
    json_set_bool(object, "cached", one->cached);
    json_set_u64(object, "compared", one->compared);
    json_set_u64(object, "bit_equal", one->bit_equal);
    json_set_u64(object, "stray", one->stray);
    json_set_u64(object, "beyond", one->beyond);
    json_set_double(object, "max_abs", one->max_abs);
    json_set_null(object, "first");
    if (invariance_changed(one))
        set_change(json_set_object(object, "first"), &one->first);
}

/* What the dumps of an axis say; all null where it was not dumped. */
static void set_dump(struct json *object, const struct invariance_dump *dump)
{
    const struct invariance_module *module = &dump->module;
    bool is_named = module->module != NULL;
    json_set_string(object, "module", module->module);
    json_set_known_u64(object, "layer", is_named && module->has_layer, module->layer);
    json_set_string(object, "kind", module->verdict);
    json_set_string(object, "class_kind", module->kind);
    json_set_string(object, "confidence", module->confidence);
    json_set_string(object, "what", module->advice);
    json_set_known_u64(object, "rows", is_named, module->rows);
    json_set_known_u64(object, "reference_rows", is_named, module->reference_rows);
    json_set_null(object, "dump");
    if (dump->reference == NULL && dump->why_not == NULL)
        return;
    struct json *one = json_set_object(object, "dump");
    json_set_string(one, "reference", dump->reference);
    json_set_string(one, "changed", dump->changed);
    json_set_string(one, "again", invariance_dump_again_word(dump->again));
    json_set_string(one, "why_not", dump->why_not);
}

static void set_axis(struct json *object, const struct invariance_axis *axis, const struct invariance_dump *dump)
{
    const struct invariance_case *before, *first = invariance_first(axis, &before);
    enum invariance_state state = invariance_state_of(axis);
    bool is_changed = state == INVARIANCE_CHANGED;
    json_set_string(object, "state", invariance_state_word(state));
    json_set_string(object, "why_not", axis->why_not);
    json_set_null(object, "changed_at");
    json_set_null(object, "unchanged_at");
    if (is_changed)
        set_case(json_set_object(object, "changed_at"), first);
    if (before != NULL)
        json_set_u64(object, "unchanged_at", before->size);
    set_case(json_set_object(object, "again"), &axis->again);
    struct json *cases = json_set_array(object, "cases");
    for (size_t i = 0; i < axis->case_count; i++)
        set_case(json_append_object(cases), &axis->cases[i]);
    set_dump(object, dump);
}

static void set_head(struct json *root, const struct invariance_report *report)
{
    const struct generate_server *server = &report->endpoint->server;
    struct json *object = json_set_object(root, "prompts");
    json_set_string(object, "hash", report->plan->prompts->hash);
    json_set_string(object, "source", report->plan->prompts->source);
    json_set_u64(object, "count", report->plan->prompts->count);
    json_set_u64(root, "most", report->plan->most);
    json_set_u64(root, "new_tokens", report->plan->new_tokens);
    object = json_set_object(root, "server");
    json_set_string(object, "version", server->version);
    json_set_string(object, "model_path", server->model_path);
    json_set_u64(object, "tp", server->tp_size);
    json_set_u64(object, "page_size", server->page_size);
    json_set_bool(object, "radix_cache", server->radix_cache);
    json_set_bool(object, "deterministic", server->deterministic);
    json_set_string(object, "settings_hash", report->settings_hash);
}

struct json *invariance_report_json(const struct invariance_report *report)
{
    const struct invariance_module *module = invariance_report_module(report);
    struct json *root = json_object(), *axes, *object;
    json_set_string(root, "schema", "kldump.invariance/1");
    json_set_string(root, "target", report->endpoint->name);
    set_head(root, report);
    axes = json_set_object(root, "axes");
    for (int id = 0; id < INVARIANCE_AXES; id++)
        set_axis(json_set_object(axes, invariance_axis_word((enum invariance_axis_id)id)), &report->axes[id],
                 &report->dumps[id]);
    foreign_json(&report->endpoint->foreign, root);
    json_set_string(root, "module", module != NULL ? module->module : NULL);
    json_set_string(root, "script", report->script);
    json_set_null(root, "match");
    if (report->match.given) {
        object = json_set_object(root, "match");
        json_set_string(object, "file", report->kl_path);
        json_set_string(object, "together", kl_grade_word(report->match.together));
        json_set_string(object, "alone", kl_grade_word(report->match.alone));
    }
    object = json_set_object(root, "reading");
    json_set_string(object, "condition_1", invariance_condition_word(report->reading.condition));
    json_set_string(object, "text", report->reading.text);
    json_set_string(object, "next", report->reading.next);
    return root;
}
