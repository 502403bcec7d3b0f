/* kldumpctl state-diff A B [--min-hits N] [--kl RESULT] [--all] [--json] */
#include "analysis/state_diff.h"
#include "base/list.h"
#include "base/memory.h"
#include "base/number.h"
#include "ctl/command.h"
#include "ctl/find.h"
#include "ctl/result_file.h"
#include "sys/file.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { LOG_MAX = 1024 * 1024 * 1024, ROWS_SHOWN = 40, LABEL_WIDTH = 12 };

struct request_list {
    struct json *json; /* of --kl; NULL: none */
    struct state_diff_request *items;
    size_t count, failing, without_prefix; /* failing ones, and those of them that restored nothing */
};

struct request {
    const char *names[2], *min_hits, *kl;
    uint64_t least;
    bool as_json, all;
    struct request_list requests;
};

/* ---- what is compared ---- */

static enum error_code read_log(const char *name, struct buffer *text, struct error *err)
{
    struct find find = {0};
    if (result_file_is(name))
        return file_read(name, LOG_MAX, text, err);
    enum error_code code = find_run(name, &find, err);
    if (code == ERROR_NONE)
        code = find_whole_log(&find, text, err);
    find_fini(&find);
    return code;
}

static enum error_code read_side(const char *name, struct state_diff *diff, struct state_diff_side *side,
                                 struct error *err)
{
    struct buffer text;
    buffer_init(&text);
    enum error_code code = read_log(name, &text, err);
    if (code == ERROR_NONE)
        state_diff_read(diff, side, text.data, text.length);
    buffer_fini(&text);
    return code;
}

static enum error_code read_path(const struct json *path, struct request_list *list, struct error *err)
{
    const struct json *requests = NULL;
    enum error_code code = json_get_array(path, "requests", &requests, err);
    for (const struct json *r = json_first(requests); r != NULL && code == ERROR_NONE; r = json_next(r)) {
        struct state_diff_request request = {.path = json_key(path)};
        uint64_t beyond = 0;
        if (json_type(json_member(r, "dropped")) == JSON_STRING)
            continue;
        code = json_get_string(r, "rid", &request.rid, err);
        if (code == ERROR_NONE)
            code = json_get_u64(r, "cached_tokens", &request.cached, err);
        if (code == ERROR_NONE)
            code = json_get_u64(r, "beyond", &beyond, err);
        request.failing = beyond > 0;
        list->items = memory_resize(list->items, list->count + 1, sizeof list->items[0]);
        list->items[list->count++] = request;
        list->failing += request.failing;
        list->without_prefix += request.failing && request.cached == 0;
    }
    return code;
}

static enum error_code read_requests(const char *path, struct request_list *list, struct error *err)
{
    const struct json *helpers = NULL;
    enum error_code code = result_file_read(path, "kldump.kl/", &list->json, err);
    if (code != ERROR_NONE)
        return code;
    code = json_get_object(list->json, "helpers", &helpers, err);
    for (const struct json *p = json_first(helpers); p != NULL && code == ERROR_NONE; p = json_next(p))
        code = read_path(p, list, err);
    if (code != ERROR_NONE)
        error_prefix(err, "--kl '%s'", path);
    return code;
}

static enum error_code check_hits(const struct request *request, const struct state_diff *diff, struct error *err)
{
    const struct state_diff_side *sides[2] = {&diff->a, &diff->b};
    for (size_t i = 0; i < 2; i++) {
        if (sides[i]->count >= request->least)
            continue;
        if (sides[i]->count == 0 && sides[i]->damaged == 0)
            return error_set(
                err, ERROR_INCOMPLETE,
                "the probe never fired in %.100s: no line 'kldump-state ... ;' in its log, so that nothing "
                "can be said of its states; is the probe installed, and has the model a recurrent layer?",
                request->names[i]);
        return error_set(err, ERROR_INCOMPLETE,
                         "%zu hits of the probe in %.100s (and %zu damaged lines), at least %" PRIu64
                         " are wanted: nothing can be said of its states",
                         sides[i]->count, request->names[i], sides[i]->damaged, request->least);
    }
    return ERROR_NONE;
}

static uint64_t unread(const struct state_diff *diff)
{
    return diff->a.damaged + diff->b.damaged + diff->a.lost + diff->b.lost;
}

static enum status status_of(const struct state_diff *diff)
{
    if (diff->count[STATE_DIFF_EQUAL] < diff->row_count)
        return STATUS_NO;
    return unread(diff) > 0 ? STATUS_INCOMPLETE : STATUS_DONE;
}

static uint64_t longest(const struct state_diff *diff)
{
    uint64_t length = 0;
    for (size_t i = 0; i < diff->row_count; i++)
        if (state_diff_row_length(&diff->rows[i]) > length)
            length = state_diff_row_length(&diff->rows[i]);
    return length;
}

/* ---- for people ---- */

static void add_slot(struct list *cells, const struct state_diff_visit *visit)
{
    if (visit != NULL)
        list_add_format(cells, "%" PRIu64, visit->slot);
    else
        list_add(cells, "-");
}

static void add_value(struct list *cells, const struct state_diff_hit *hit)
{
    if (hit != NULL)
        list_add_format(cells, "%.9g", hit->absmax);
    else
        list_add(cells, "-");
}

static void print_rows(struct output *out, const struct request *request, const struct state_diff *diff)
{
    enum { COLUMNS = 10 };
    static const char *const headings[COLUMNS] = {"RESULT",   ">LENGTH", ">RANK", ">SLOT A",    ">SLOT B",
                                                  ">DIFFERS", ">LAYER",  "NAME",  ">ABS MAX A", ">ABS MAX B"};
    struct list cells = {0};
    size_t shown = 0, left = 0;
    bool several = false;
    for (size_t i = 0; i < diff->row_count; i++) {
        const struct state_diff_row *row = &diff->rows[i];
        const struct state_diff_hit *hit = row->hit_a != NULL ? row->hit_a : row->hit_b;
        if (!request->all && (!state_diff_row_dirty(row) || shown == ROWS_SHOWN)) {
            left += state_diff_row_dirty(row);
            continue;
        }
        bool marked = row->several && state_diff_row_dirty(row);
        several = several || marked;
        list_add_format(&cells, "%s%s", state_diff_word(row->word), marked ? " *" : "");
        list_add_format(&cells, "%" PRIu64, state_diff_row_length(row));
        list_add_format(&cells, "%" PRIu64, (row->a != NULL ? row->a : row->b)->rank);
        add_slot(&cells, row->a);
        add_slot(&cells, row->b);
        list_add_format(&cells, "%zu of %zu", row->different, (row->a != NULL ? row->a : row->b)->count);
        list_add_format(&cells, "%" PRIu64, hit->layer);
        list_add(&cells, diff->names.texts[hit->name]);
        add_value(&cells, row->hit_a);
        add_value(&cells, row->hit_b);
        shown++;
    }
    if (shown > 0) {
        output_text(out, "\n");
        output_table(out, COLUMNS, headings, shown, (const char *const *)cells.items, NULL);
        output_text(out, "layer, name and values are of the first that differs, else of the largest\n");
    }
    if (left > 0)
        output_format(out, "... and %zu more that are not equal; --all shows them\n", left);
    if (several)
        output_text(out, "* several slots claim this length: which of A belongs to which of B is not certain\n");
    list_fini(&cells);
}

static void add_join(struct list *cells, const struct state_diff_join *join)
{
    const struct state_diff_row *row = join->row;
    if (row == NULL)
        list_add(cells, "none claims this length");
    else if (join->rows > 1)
        list_add_format(cells, "%zu slots, %zu not equal", join->rows, join->dirty);
    else
        list_add_format(cells, "slot %" PRIu64 ": %s", (row->a != NULL ? row->a : row->b)->slot,
                        state_diff_word(row->word));
}

static void print_requests(struct output *out, const struct request *request, const struct state_diff *diff)
{
    enum { COLUMNS = 5 };
    static const char *const headings[COLUMNS] = {"PATH", "REQUEST", ">PREFIX", "RESTORED SLOT", "SAME PREFIX"};
    const struct request_list *list = &request->requests;
    struct list cells = {0};
    size_t shown = 0, dirty = 0, prefixed = list->failing - list->without_prefix;
    for (size_t i = 0; i < list->count; i++) {
        const struct state_diff_request *one = &list->items[i];
        struct state_diff_join join;
        if (!one->failing || one->cached == 0)
            continue;
        state_diff_find(diff, list->items, list->count, i, &join);
        dirty += join.dirty > 0;
        if (shown == ROWS_SHOWN && !request->all)
            continue;
        list_add(&cells, one->path);
        list_add(&cells, one->rid);
        list_add_format(&cells, "%" PRIu64, one->cached);
        add_join(&cells, &join);
        list_add_format(&cells, "%zu failing, %zu clean", join.failing, join.clean);
        shown++;
    }
    output_format(out, "\nfailing requests of %s, by the length of their prefix\n", request->kl);
    if (shown > 0)
        output_table(out, COLUMNS, headings, shown, (const char *const *)cells.items, NULL);
    if (shown < prefixed)
        output_format(out, "... and %zu more; --all shows them\n", prefixed - shown);
    output_pair(out, LABEL_WIDTH, "match", OUTPUT_PLAIN,
                "%zu of %zu failing requests that restored a prefix claim the length of a slot that is not equal; %zu "
                "failing requests restored none",
                dirty, prefixed, list->without_prefix);
    list_fini(&cells);
}

static void print_side(struct output *out, const char *label, const char *name, const struct state_diff_side *side)
{
    output_pair(out, LABEL_WIDTH, label, OUTPUT_PLAIN, "%s: %zu hits, %zu restores of a slot", name, side->count,
                side->visit_count);
    if (side->damaged > 0)
        output_pair(out, LABEL_WIDTH, "warning", OUTPUT_YELLOW, "%zu damaged lines in %s, the first: %s", side->damaged,
                    name, side->first_damaged);
    if (side->lost > 0)
        output_pair(out, LABEL_WIDTH, "warning", OUTPUT_YELLOW, "the probe lost %" PRIu64 " hits in %s", side->lost,
                    name);
}

static void print_text(struct output *out, const struct request *request, const struct state_diff *diff)
{
    enum status status = status_of(diff);
    print_side(out, "A", request->names[0], &diff->a);
    print_side(out, "B", request->names[1], &diff->b);
    if (diff->nan > 0)
        output_pair(out, LABEL_WIDTH, "warning", OUTPUT_YELLOW, "%zu hits are NaN or infinite", diff->nan);
    if (longest(diff) == 0)
        output_pair(out, LABEL_WIDTH, "warning", OUTPUT_YELLOW,
                    "every slot claims the length 0: neither run has restored a prefix");
    print_rows(out, request, diff);
    if (request->kl != NULL)
        print_requests(out, request, diff);
    output_text(out, "\n");
    output_pair(out, LABEL_WIDTH, "restores", OUTPUT_PLAIN, "%zu equal, %zu differ, %zu only in A, %zu only in B",
                diff->count[STATE_DIFF_EQUAL], diff->count[STATE_DIFF_DIFFERS], diff->count[STATE_DIFF_ONLY_A],
                diff->count[STATE_DIFF_ONLY_B]);
    output_pair(out, LABEL_WIDTH, "result", status == STATUS_DONE ? OUTPUT_GREEN : OUTPUT_RED, "%s",
                status == STATUS_DONE ? "no difference: every slot has the same largest magnitudes in both runs"
                : status == STATUS_NO ? "the states differ"
                                      : "not known: what was read is equal, but not all could be read");
}

/* ---- --json ---- */

static void set_side(struct json *root, const char *key, const char *name, const struct state_diff_side *side)
{
    struct json *object = json_set_object(root, key);
    json_set_string(object, "name", name);
    json_set_u64(object, "hits", side->count);
    json_set_u64(object, "restores", side->visit_count);
    json_set_u64(object, "damaged", side->damaged);
    json_set_u64(object, "lost", side->lost);
}

static void set_visit(struct json *object, const char *slot, const char *absmax, const struct state_diff_visit *visit,
                      const struct state_diff_hit *hit)
{
    json_set_null(object, slot);
    if (visit != NULL)
        json_set_u64(object, slot, visit->slot);
    json_set_double(object, absmax, hit != NULL ? hit->absmax : NAN);
}

static void append_row(struct json *array, const struct state_diff *diff, const struct state_diff_row *row)
{
    struct json *object = json_append_object(array);
    const struct state_diff_hit *hit = row->hit_a != NULL ? row->hit_a : row->hit_b;
    json_set_string(object, "result", state_diff_word(row->word));
    json_set_u64(object, "length", state_diff_row_length(row));
    json_set_u64(object, "rank", (row->a != NULL ? row->a : row->b)->rank);
    json_set_u64(object, "compared", row->compared);
    json_set_u64(object, "different", row->different);
    json_set_u64(object, "layer", hit->layer);
    json_set_string(object, "name", diff->names.texts[hit->name]);
    set_visit(object, "slot_a", "absmax_a", row->a, row->hit_a);
    set_visit(object, "slot_b", "absmax_b", row->b, row->hit_b);
    json_set_bool(object, "several", row->several);
}

static void set_requests(struct json *root, const struct request *request, const struct state_diff *diff)
{
    const struct request_list *list = &request->requests;
    json_set_null(root, "kl");
    if (request->kl == NULL)
        return;
    struct json *object = json_set_object(root, "kl"), *array;
    json_set_string(object, "file", request->kl);
    json_set_u64(object, "failing", list->failing);
    json_set_u64(object, "without_prefix", list->without_prefix);
    array = json_set_array(object, "requests");
    for (size_t i = 0; i < list->count; i++) {
        struct state_diff_join join;
        if (!list->items[i].failing)
            continue;
        state_diff_find(diff, list->items, list->count, i, &join);
        struct json *one = json_append_object(array);
        json_set_string(one, "path", list->items[i].path);
        json_set_string(one, "rid", list->items[i].rid);
        json_set_u64(one, "prefix", list->items[i].cached);
        json_set_u64(one, "slots", join.rows);
        json_set_u64(one, "slots_not_equal", join.dirty);
        json_set_u64(one, "same_prefix_failing", join.failing);
        json_set_u64(one, "same_prefix_clean", join.clean);
        json_set_null(one, "row");
        if (join.row != NULL)
            json_set_u64(one, "row", (uint64_t)(join.row - diff->rows));
    }
}

static void print_json(struct output *out, const struct request *request, const struct state_diff *diff)
{
    struct json *root = json_object(), *rows;
    json_set_string(root, "schema", "kldump.state-diff/1");
    json_set_string(root, "result",
                    status_of(diff) == STATUS_DONE ? "equal"
                    : status_of(diff) == STATUS_NO ? "different"
                                                   : "not known");
    set_side(root, "a", request->names[0], &diff->a);
    set_side(root, "b", request->names[1], &diff->b);
    json_set_u64(root, "equal", diff->count[STATE_DIFF_EQUAL]);
    json_set_u64(root, "differ", diff->count[STATE_DIFF_DIFFERS]);
    json_set_u64(root, "only_in_a", diff->count[STATE_DIFF_ONLY_A]);
    json_set_u64(root, "only_in_b", diff->count[STATE_DIFF_ONLY_B]);
    json_set_u64(root, "not_finite", diff->nan);
    json_set_u64(root, "longest", longest(diff));
    rows = json_set_array(root, "rows");
    for (size_t i = 0; i < diff->row_count; i++)
        append_row(rows, diff, &diff->rows[i]);
    set_requests(root, request, diff);
    output_json(out, root);
    json_free(root);
}

/* ---- the command ---- */

static int compare(const struct command *command, struct request *request, struct output *out)
{
    struct error err = ERROR_INIT;
    struct state_diff diff = {0};
    enum error_code code = ERROR_NONE;
    if (request->kl != NULL)
        code = read_requests(request->kl, &request->requests, &err);
    if (code == ERROR_NONE)
        code = read_side(request->names[0], &diff, &diff.a, &err);
    if (code == ERROR_NONE)
        code = read_side(request->names[1], &diff, &diff.b, &err);
    if (code == ERROR_NONE)
        code = check_hits(request, &diff, &err);
    int status = STATUS_DONE;
    if (code == ERROR_NONE) {
        state_diff_compare(&diff);
        status = (int)status_of(&diff);
        if (request->as_json)
            print_json(out, request, &diff);
        else
            print_text(out, request, &diff);
    }
    state_diff_fini(&diff);
    free(request->requests.items);
    json_free(request->requests.json);
    return code == ERROR_NONE ? status : command_fail(command, &err);
}

static int run(const struct command *command, struct output *out, int argc, char **argv)
{
    struct request request = {.least = 1};
    struct command_operands operands;
    struct error err = ERROR_INIT;
    const struct command_option options[] = {{.name = "min-hits", .value = &request.min_hits},
                                             {.name = "kl", .value = &request.kl},
                                             {.name = "all", .flag = &request.all},
                                             {.name = "json", .flag = &request.as_json},
                                             {0}};
    if (!command_parse(command, options, argc, argv, 2, &operands))
        return STATUS_USAGE;
    if (operands.count != 2)
        return command_usage_error(command, "name two runs, or two files with their logs");
    if (request.min_hits != NULL &&
        number_parse("--min-hits", request.min_hits, UINT32_MAX, &request.least, &err) != ERROR_NONE)
        return command_usage_error(command, "%s", err.message);
    if (request.least == 0)
        return command_usage_error(command, "--min-hits 0: without a hit nothing can be said; at least 1");
    request.names[0] = operands.item[0];
    request.names[1] = operands.item[1];
    return compare(command, &request, out);
}

const struct command command_state_diff = {
    .name = "state-diff",
    .usage = "state-diff A B [--min-hits N] [--kl RESULT] [--all] [--json]",
    .summary = "compare the states of recurrent layers that two runs restored",
    .help =
        "Examples:\n"
        "  kldumpctl state-diff eager graph\n"
        "  kldumpctl state-diff eager.log graph.log --min-hits 100\n"
        "  kldumpctl state-diff eager graph --kl kl.json\n"
        "\n"
        "A and B are runs, or files with the output of their servers. A probe in the server prints a line for each\n"
        "state that a slot of the pool gets before a prefill (examples/state_probe.py; the manual has its format):\n"
        "  kldump-state rank=0 slot=3 length=128 layer=2 name=temporal absmax=1.25 ;\n"
        "Restores that claim the same length are held against each other: the largest magnitude of each layer, to\n"
        "the last bit printed. No hit is an error, never \"no difference\".\n"
        "\n"
        "  --min-hits N     the fewest hits that each run must have (default: 1)\n"
        "  --kl RESULT      a result of kldumpctl kl: which failing request restored which slot, by the length of\n"
        "                   its prefix\n"
        "  --all            show the slots that are equal too\n"
        "  --json           one JSON object (schema kldump.state-diff/1)\n"
        "\n"
        "Exit status: 0 equal, 1 different, 2 usage, 4 too few hits, or what was read is equal and not all could be\n"
        "read, 87 no such run.\n",
    .run = run,
};
