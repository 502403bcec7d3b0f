/* kldumpctl ab A B [--name EXP] [--all] [--json] */
#include "analysis/ab.h"
#include "base/list.h"
#include "base/memory.h"
#include "base/text.h"
#include "ctl/ab_read.h"
#include "ctl/command.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { ROWS_SHOWN = 40, LABEL_WIDTH = 10, VALUE_SHOWN = 60 };

enum result { RESULT_NO_EFFECT, RESULT_NO_CHANGE, RESULT_NOT_KNOWN, RESULT_CHANGED };
static const struct {
    const char *word, *text;
    enum status status;
} results[] = {
    [RESULT_NO_EFFECT] = {"no effect", "bit-identical: the switch took no effect, and no setting of the server differs",
                          STATUS_DONE},
    [RESULT_NO_CHANGE] = {"no change", "bit-identical: arrived, changed no result here", STATUS_DONE},
    [RESULT_NOT_KNOWN] = {"not known",
                          "bit-identical; whether a switch arrived is not known, as a result is without "
                          "the settings of its server",
                          STATUS_DONE},
    [RESULT_CHANGED] = {"changed", "the results differ", STATUS_NO},
};

struct both {
    bool as_json, all;
    struct ab_read a, b;
    struct ab_read_settings settings;
    struct ab_path_change *paths; /* [a.path_count]; count 0 where B has no such path */
    size_t changed, compared;     /* requests, tokens */
    enum result result;
};

/* ---- what differs ---- */

static void compare_paths(struct both *both)
{
    both->paths = memory_new((both->a.path_count + 1) * sizeof both->paths[0]);
    for (size_t p = 0; p < both->a.path_count; p++) {
        const struct ab_path *path = &both->a.paths[p], *other = ab_read_path(&both->b, path->name);
        if (other == NULL)
            continue;
        ab_compare_path(path, other, &both->paths[p]);
        both->changed += both->paths[p].changed;
        both->compared += both->paths[p].sum.compared;
    }
}

static enum error_code compare(struct both *both, struct error *err)
{
    enum error_code code = ab_read_comparable(&both->a, &both->b, err);
    if (code != ERROR_NONE)
        return code;
    compare_paths(both);
    ab_read_settings(&both->a, &both->b, &both->settings);
    if (both->changed == 0 && both->compared == 0)
        return error_set(err, ERROR_INCOMPLETE, "neither result has a token: nothing can be said");
    if (both->changed > 0)
        both->result = RESULT_CHANGED;
    else if (both->settings.switched > 0)
        both->result = RESULT_NO_CHANGE;
    else
        both->result = both->settings.known ? RESULT_NO_EFFECT : RESULT_NOT_KNOWN;
    return ERROR_NONE;
}

/* ---- for people ---- */

static void print_settings(struct output *out, const struct both *both)
{
    static const char *const headings[] = {"SETTING", "A", "B"};
    struct list cells = {0};
    char shown[VALUE_SHOWN];
    for (size_t i = 0; i < both->settings.count; i++) {
        const struct ab_read_setting *setting = &both->settings.items[i];
        list_add_format(&cells, "%s%s", setting->name, setting->by_chance ? " *" : "");
        list_add(&cells, text_clean(setting->a, strlen(setting->a), shown, sizeof shown));
        list_add(&cells, text_clean(setting->b, strlen(setting->b), shown, sizeof shown));
    }
    output_text(out, "\n");
    if (both->settings.count > 0)
        output_table(out, 3, headings, both->settings.count, (const char *const *)cells.items, NULL);
    if (both->settings.count > both->settings.switched)
        output_text(out, "* drawn at each start unless it is given: counts for no switch\n");
    if (both->settings.count == 0)
        output_text(out, both->settings.known ? "no setting that the server shows differs\n"
                                              : "the settings are not in both results\n");
    list_fini(&cells);
}

static void add_place(struct list *cells, const struct ab_path *path, const struct ab_path_change *change)
{
    if (change->first == SIZE_MAX)
        list_add(cells, "-");
    else if (change->sum.position == UINT64_MAX)
        list_add(cells, path->requests[change->first].rid);
    else
        list_add_format(cells, "%s at %" PRIu64, path->requests[change->first].rid, change->sum.position);
}

static void print_paths(struct output *out, const struct both *both)
{
    enum { COLUMNS = 9 };
    static const char *const headings[COLUMNS] = {"PATH",      ">REQUESTS", ">CHANGED", ">TOKENS", ">OTHER TOKENS",
                                                  ">LOGPROBS", ">CLASSES",  ">LARGEST", "FIRST"};
    struct list cells = {0};
    size_t rows = 0;
    for (size_t p = 0; p < both->a.path_count; p++) {
        const struct ab_path_change *change = &both->paths[p];
        if (change->count == 0)
            continue;
        list_add(&cells, both->a.paths[p].name);
        list_add_format(&cells, "%zu", change->count);
        list_add_format(&cells, "%zu", change->changed);
        list_add_format(&cells, "%zu", change->sum.compared);
        list_add_format(&cells, "%zu", change->sum.behind);
        list_add_format(&cells, "%zu", change->sum.values);
        list_add_format(&cells, "%zu", change->sum.classes);
        list_add_format(&cells, "%.3g", change->sum.largest);
        add_place(&cells, &both->a.paths[p], change);
        rows++;
    }
    output_text(out, "\n");
    output_table(out, COLUMNS, headings, rows, (const char *const *)cells.items, NULL);
    output_text(out, "tokens: equal ones, compared; other tokens: the first that differs and all behind it\n");
    list_fini(&cells);
}

/* The name of a path comes from a file. */
static void print_path_line(struct output *out, const char *text, const char *name, const char *more)
{
    char *line = memory_format("%s %s%s", text, name, more);
    output_safe(out, OUTPUT_PLAIN, line);
    output_text(out, "\n");
    free(line);
}

static void print_grades(struct output *out, const struct both *both)
{
    for (size_t p = 0; p < both->a.path_count; p++) {
        const struct ab_path *path = &both->a.paths[p], *other = ab_read_path(&both->b, path->name);
        if (other == NULL)
            print_path_line(out, "measured in A alone:", path->name, "");
        else if (path->grade != NULL && other->grade != NULL && strcmp(path->grade, other->grade) != 0) {
            char *grades = memory_format(": %s in A, %s in B", path->grade, other->grade);
            print_path_line(out, "grade of", path->name, grades);
            free(grades);
        }
    }
    for (size_t p = 0; p < both->b.path_count; p++)
        if (ab_read_path(&both->a, both->b.paths[p].name) == NULL)
            print_path_line(out, "measured in B alone:", both->b.paths[p].name, "");
}

static size_t add_requests(struct list *cells, const struct both *both, size_t p, size_t shown)
{
    const struct ab_path *path = &both->a.paths[p], *other = ab_read_path(&both->b, path->name);
    for (size_t i = 0; i < both->paths[p].count; i++) {
        const struct ab_change *change = &both->paths[p].requests[i];
        if (!ab_changed(change) || (!both->all && shown == ROWS_SHOWN))
            continue;
        list_add(cells, path->name);
        list_add(cells, path->requests[i].rid);
        list_add_format(cells, "%" PRIu64 " / %" PRIu64, path->requests[i].cached, other->requests[i].cached);
        if (change->position == UINT64_MAX)
            list_add(cells, "-");
        else
            list_add_format(cells, "%" PRIu64, change->position);
        list_add_format(cells, "%zu of %zu", change->values, change->compared);
        list_add_format(cells, "%zu", change->behind);
        list_add(cells, change->dropped ? (path->requests[i].dropped ? "dropped in A" : "dropped in B") : "");
        shown++;
    }
    return shown;
}

static void print_requests(struct output *out, const struct both *both)
{
    enum { COLUMNS = 7 };
    static const char *const headings[COLUMNS] = {"PATH",      "REQUEST",       ">CACHED A / B", ">FIRST AT",
                                                  ">LOGPROBS", ">OTHER TOKENS", "NOTE"};
    struct list cells = {0};
    size_t shown = 0;
    for (size_t p = 0; p < both->a.path_count; p++)
        shown = add_requests(&cells, both, p, shown);
    if (shown > 0) {
        output_text(out, "\n");
        output_table(out, COLUMNS, headings, shown, (const char *const *)cells.items, NULL);
    }
    if (shown < both->changed)
        output_format(out, "... and %zu more requests that changed; --all shows them\n", both->changed - shown);
    list_fini(&cells);
}

static void print_text(struct output *out, const struct both *both)
{
    double temperature = 0;
    output_pair(out, LABEL_WIDTH, "A", OUTPUT_PLAIN, "%s", both->a.file);
    output_pair(out, LABEL_WIDTH, "B", OUTPUT_PLAIN, "%s", both->b.file);
    print_settings(out, both);
    print_paths(out, both);
    print_grades(out, both);
    print_requests(out, both);
    output_text(out, "\n");
    json_optional_double(both->a.json, "temperature", 0, &temperature, NULL);
    if (both->result == RESULT_CHANGED && temperature > 0)
        output_pair(out, LABEL_WIDTH, "note", OUTPUT_YELLOW,
                    "tokens were drawn at temperature %g: with another seed they differ by chance", temperature);
    output_pair(out, LABEL_WIDTH, "result", both->result == RESULT_CHANGED ? OUTPUT_YELLOW : OUTPUT_GREEN, "%s",
                results[both->result].text);
}

/* ---- --json ---- */

static void set_change(struct json *object, const struct ab_change *change)
{
    json_set_u64(object, "tokens", change->compared);
    json_set_u64(object, "other_tokens", change->behind);
    json_set_u64(object, "logprobs", change->values);
    json_set_u64(object, "classes", change->classes);
    json_set_double(object, "largest", change->largest);
    json_set_bool(object, "cached_tokens", change->cached);
    json_set_bool(object, "dropped", change->dropped);
    json_set_null(object, "position");
    if (change->position != UINT64_MAX)
        json_set_u64(object, "position", change->position);
}

static void append_path(struct json *array, const struct both *both, size_t p)
{
    const struct ab_path *path = &both->a.paths[p], *other = ab_read_path(&both->b, path->name);
    const struct ab_path_change *change = &both->paths[p];
    struct json *object = json_append_object(array), *requests;
    json_set_string(object, "path", path->name);
    json_set_string(object, "grade_a", path->grade);
    json_set_string(object, "grade_b", other->grade);
    json_set_u64(object, "requests", change->count);
    json_set_u64(object, "changed", change->changed);
    set_change(object, &change->sum);
    requests = json_set_array(object, "changed_requests");
    for (size_t i = 0; i < change->count; i++) {
        if (!ab_changed(&change->requests[i]))
            continue;
        struct json *one = json_append_object(requests);
        json_set_u64(one, "request", i);
        json_set_string(one, "rid_a", path->requests[i].rid);
        json_set_string(one, "rid_b", other->requests[i].rid);
        set_change(one, &change->requests[i]);
    }
}

static void print_json(struct output *out, const struct both *both)
{
    struct json *root = json_object(), *array;
    json_set_string(root, "schema", "kldump.ab/1");
    json_set_string(root, "result", results[both->result].word);
    json_set_string(root, "kind", ab_read_kind_word(both->a.kind));
    json_set_string(root, "a", both->a.file);
    json_set_string(root, "b", both->b.file);
    json_set_bool(root, "settings_known", both->settings.known);
    array = json_set_array(root, "settings");
    for (size_t i = 0; i < both->settings.count; i++) {
        const struct ab_read_setting *setting = &both->settings.items[i];
        struct json *one = json_append_object(array);
        json_set_string(one, "name", setting->name);
        json_set_string(one, "a", setting->a);
        json_set_string(one, "b", setting->b);
        json_set_bool(one, "by_chance", setting->by_chance);
    }
    array = json_set_array(root, "paths");
    for (size_t p = 0; p < both->a.path_count; p++)
        if (both->paths[p].count > 0)
            append_path(array, both, p);
    output_json(out, root);
    json_free(root);
}

/* ---- the command ---- */

static void both_fini(struct both *both)
{
    for (size_t p = 0; both->paths != NULL && p < both->a.path_count; p++)
        ab_path_change_fini(&both->paths[p]);
    free(both->paths);
    ab_read_settings_fini(&both->settings);
    ab_read_fini(&both->a);
    ab_read_fini(&both->b);
}

static int run(const struct command *command, struct output *out, int argc, char **argv)
{
    struct both both = {0};
    struct error err = ERROR_INIT;
    struct command_operands operands;
    const char *exp = NULL;
    const struct command_option options[] = {{.name = "name", .value = &exp},
                                             {.name = "all", .flag = &both.all},
                                             {.name = "json", .flag = &both.as_json},
                                             {0}};
    if (!command_parse(command, options, argc, argv, 2, &operands))
        return STATUS_USAGE;
    if (operands.count != 2)
        return command_usage_error(command, "name two results of kl or capture, or two runs");
    exp = exp != NULL ? exp : "capture";
    enum error_code code = ab_read_open(operands.item[0], exp, &both.a, &err);
    if (code == ERROR_NONE)
        code = ab_read_open(operands.item[1], exp, &both.b, &err);
    if (code == ERROR_NONE)
        code = compare(&both, &err);
    if (code == ERROR_NONE && both.as_json)
        print_json(out, &both);
    else if (code == ERROR_NONE)
        print_text(out, &both);
    int status = code == ERROR_NONE ? (int)results[both.result].status : command_fail(command, &err);
    both_fini(&both);
    return status;
}

const struct command command_ab = {
    .name = "ab",
    .usage = "ab A B [--name EXP] [--all] [--json]",
    .summary = "compare two results of the same requests: whether a switch arrived, and what it changed",
    .help =
        "Examples:\n"
        "  kldumpctl ab kl-triton.json kl-fa3.json\n"
        "  kldumpctl ab eager graph\n"
        "  kldumpctl ab eager graph --name long --json | jq .settings\n"
        "\n"
        "A and B are what `kl --out` wrote, captures (EXP.capture.json), or runs, which stand for their capture.\n"
        "Settings that the servers resolved and every logprob are compared, bit for bit. Results over other prompts,\n"
        "samples or lengths are not compared; both values are shown. What a server does not show, such as a variable\n"
        "of its environment, is in no result.\n"
        "\n"
        "  --name EXP       the capture of a run (default: capture)\n"
        "  --all            every request that changed\n"
        "  --json           one JSON object (schema kldump.ab/1)\n"
        "\n"
        "Exit status: 0 bit-identical, 1 not, 2 usage, or results that cannot be compared, 4 a result that is not\n"
        "complete, 87 no such run or capture.\n",
    .run = run,
};
