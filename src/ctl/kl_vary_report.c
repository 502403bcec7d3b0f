#include "ctl/kl_vary_report.h"

#include "base/list.h"
#include "base/memory.h"
#include "base/text.h"
#include "json/json.h"
#include "sglang/command.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { LABEL_WIDTH = 12, COLUMNS = 6, VALUE_SHOWN = 60 };

int kl_vary_report_status(const struct kl_vary_all *all)
{
    for (size_t i = 0; all->reading.fine && i < all->count; i++)
        if (all->starts[i].state == KL_VARY_NOT_MEASURED)
            return all->starts[i].status;
    return all->reading.fine ? STATUS_DONE : STATUS_NO;
}

/* CMD as the user gave it, its keys covered; the caller's (list_fini). */
static struct list shown_command(const struct kl_vary_all *all)
{
    struct list given = {0}, shown = {0};
    list_add_all(&given, all->plan->command);
    command_redact(&given, &shown);
    list_fini(&given);
    return shown;
}

/* ---- for people ---- */

static void print_head(const struct kl_vary_all *all, struct output *out)
{
    struct list command = shown_command(all);
    struct buffer words;
    uint64_t count = 0;
    const char *source = "";
    buffer_init(&words);
    for (size_t i = 0; i < command.count; i++)
        buffer_format(&words, "%s%s", i > 0 ? " " : "", command.items[i]);
    json_optional_u64(all->given.json, "prompts.count", 0, &count, NULL);
    json_optional_string(all->given.json, "prompts.source", "", &source, NULL);
    output_pair(out, LABEL_WIDTH, "as given", OUTPUT_PLAIN, "%s", words.data);
    output_pair(out, LABEL_WIDTH, "prompts", OUTPUT_PLAIN, "%" PRIu64 " (%s), %" PRIu64 " new tokens each", count,
                source, all->plan->take.new_tokens);
    output_pair(out, LABEL_WIDTH, "folder", OUTPUT_PLAIN, "%s", all->folder);
    buffer_fini(&words);
    list_fini(&command);
}

static void add_resolved(struct list *cells, const struct kl_vary_start *start)
{
    if (start->resolved == NULL)
        list_add(cells, "");
    else if (vary_is_asked(&start->setting, start->resolved))
        list_add(cells, start->resolved);
    else
        list_add_format(cells, "%s, not as asked", start->resolved);
}

static void add_differs(struct list *cells, const struct kl_vary_path *path)
{
    if (!path->compared)
        list_add(cells, "");
    else if (path->place.path == NULL)
        list_add(cells, "same");
    else
        list_add_format(cells, "request %zu at %" PRIu64 ", %zu of %zu tokens%s", path->place.request,
                        path->place.position, path->differing, path->compared_tokens, path->restored ? " *" : "");
}

/* A row for each path; the variant's name stands in the first. Returns how many. */
static size_t add_rows(const struct kl_vary_all *all, const struct kl_vary_start *start, struct list *cells)
{
    size_t rows = 0;
    for (int id = 0; id < KL_PATHS; id++) {
        const struct kl_vary_path *path = &start->paths[id];
        if (!all->plan->take.wanted[id] || (start->state != KL_VARY_MEASURED && rows > 0))
            continue;
        list_add(cells, rows == 0 ? start->label : "");
        if (rows++ == 0)
            add_resolved(cells, start);
        else
            list_add(cells, "");
        if (start->state != KL_VARY_MEASURED) {
            list_add(cells, kl_vary_state_word(start->state));
            list_add_all(cells, (char *const[]){(char *)"", (char *)"", (char *)"", NULL});
            continue;
        }
        list_add(cells, kl_path_word((enum kl_path_id)id));
        list_add(cells, kl_grade_word(path->grade));
        list_add_format(cells, isnan(path->mean) ? "" : "%.3g", path->mean);
        add_differs(cells, path);
    }
    return rows;
}

static bool starred(const struct kl_vary_all *all)
{
    for (size_t i = 0; i < all->count; i++)
        for (int id = 0; id < KL_PATHS; id++)
            if (all->starts[i].paths[id].restored)
                return true;
    return false;
}

static void print_table(const struct kl_vary_all *all, struct output *out)
{
    static const char *const headings[COLUMNS] = {"VARIANT", "RESOLVED", "PATH",
                                                  "GRADE",   ">MEAN K3", "OTHER NUMBERS THAN AS GIVEN"};
    struct list cells = {0};
    size_t rows = 0;
    for (size_t i = 0; i < all->count; i++)
        rows += add_rows(all, &all->starts[i], &cells);
    output_text(out, "\n");
    output_table(out, COLUMNS, headings, rows, (const char *const *)cells.items, NULL);
    if (starred(all))
        output_text(out, "* only where another number of tokens was restored from the cache\n");
    output_text(out, "\n");
    list_fini(&cells);
}

/* Starts and paths that were not measured, and why. */
static void print_missing(const struct kl_vary_all *all, struct output *out)
{
    for (size_t i = 0; i < all->count; i++) {
        const struct kl_vary_start *start = &all->starts[i];
        if (start->why != NULL)
            output_pair(out, LABEL_WIDTH, "missing", OUTPUT_YELLOW, "%s: %s", start->label, start->why);
        for (int id = 0; id < KL_PATHS; id++)
            if (all->plan->take.wanted[id] && start->paths[id].why_not != NULL)
                output_pair(out, LABEL_WIDTH, "missing", OUTPUT_YELLOW, "%s, %s: %s", start->label,
                            kl_path_word((enum kl_path_id)id), start->paths[id].why_not);
    }
}

static void print_settings(const struct kl_vary_all *all, struct output *out)
{
    const char *label = "settings";
    char a[VALUE_SHOWN], b[VALUE_SHOWN];
    for (size_t i = KL_VARY_AGAIN; i < all->count; i++)
        for (size_t k = 0; k < all->starts[i].settings.count; k++) {
            const struct ab_read_setting *setting = &all->starts[i].settings.items[k];
            if (setting->by_chance)
                continue;
            output_pair(out, LABEL_WIDTH, label, OUTPUT_PLAIN, "%s: %s %s, as given %s", all->starts[i].label,
                        setting->name, text_clean(setting->b, strlen(setting->b), b, sizeof b),
                        text_clean(setting->a, strlen(setting->a), a, sizeof a));
            label = "";
        }
}

void kl_vary_report_text(const struct kl_vary_all *all, struct output *out)
{
    const struct kl_vary_reading *reading = &all->reading;
    const char *label = "results";
    print_head(all, out);
    print_table(all, out);
    print_missing(all, out);
    print_settings(all, out);
    for (size_t i = 0; i < all->count; i++) {
        if (all->starts[i].result == NULL)
            continue;
        output_pair(out, LABEL_WIDTH, label, OUTPUT_DIM, "%s", all->starts[i].result);
        label = "";
    }
    output_text(out, "\n");
    output_pair(out, LABEL_WIDTH, "reading", reading->fine ? OUTPUT_GREEN : OUTPUT_YELLOW, "%s", reading->text);
    label = "next";
    for (char **next = reading->next; *next != NULL; next++, label = "")
        output_pair(out, LABEL_WIDTH, label, OUTPUT_PLAIN, "%s", *next);
}

/* ---- --json ---- */

static void set_settings(struct json *object, const struct ab_read_settings *settings)
{
    struct json *array = json_set_array(object, "settings");
    for (size_t i = 0; i < settings->count; i++) {
        struct json *one = json_append_object(array);
        json_set_string(one, "name", settings->items[i].name);
        json_set_string(one, "as_given", settings->items[i].a);
        json_set_string(one, "here", settings->items[i].b);
        json_set_bool(one, "by_chance", settings->items[i].by_chance);
    }
}

static void append_path(struct json *array, const struct kl_vary_path *path, enum kl_path_id id)
{
    struct json *object = json_append_object(array);
    json_set_string(object, "path", kl_path_member(id));
    json_set_string(object, "grade", kl_grade_word(path->grade));
    json_set_string(object, "why_not", path->why_not);
    json_set_double(object, "mean", path->mean);
    json_set_double(object, "max", path->max);
    json_set_u64(object, "tokens", path->tokens);
    json_set_bool(object, "compared", path->compared);
    json_set_u64(object, "compared_tokens", path->compared_tokens);
    json_set_u64(object, "differing", path->differing);
    json_set_null(object, "first");
    if (path->place.path == NULL)
        return;
    struct json *first = json_set_object(object, "first");
    json_set_u64(first, "request", path->place.request);
    json_set_u64(first, "position", path->place.position);
    json_set_bool(first, "restored_otherwise", path->restored);
}

static void append_start(struct json *array, const struct kl_vary_all *all, const struct kl_vary_start *start)
{
    struct json *object = json_append_object(array), *paths;
    json_set_string(object, "label", start->label);
    json_set_string(object, "name", start->setting.name);
    json_set_string(object, "value", start->setting.value);
    json_set_string(object, "state", kl_vary_state_word(start->state));
    json_set_string(object, "why", start->why);
    json_set_string(object, "resolved", start->resolved);
    json_set_null(object, "as_asked");
    if (start->resolved != NULL)
        json_set_bool(object, "as_asked", vary_is_asked(&start->setting, start->resolved));
    set_settings(object, &start->settings);
    json_set_string(object, "result", start->result);
    json_set_null(object, "clean");
    if (start->state == KL_VARY_MEASURED)
        json_set_bool(object, "clean", start->clean);
    json_set_string(object, "signature", start->signature);
    paths = json_set_array(object, "paths");
    for (int id = 0; id < KL_PATHS && start->state == KL_VARY_MEASURED; id++)
        if (all->plan->take.wanted[id])
            append_path(paths, &start->paths[id], (enum kl_path_id)id);
}

struct json *kl_vary_report_json(const struct kl_vary_all *all)
{
    static const char *const copied[] = {"prompts", "new_tokens", "temperature"};
    struct json *root = json_object(), *array, *reading;
    struct list command = shown_command(all);
    json_set_string(root, "schema", "kldump.kl-vary/1");
    json_set_bool(root, "clean", all->reading.fine);
    json_set_list(root, "command", &command);
    json_set_string(root, "dir", all->folder);
    for (size_t i = 0; i < sizeof copied / sizeof copied[0]; i++)
        json_set_child(root, copied[i], json_copy(json_member(all->given.json, copied[i])));
    array = json_set_array(root, "variants");
    for (size_t i = 0; i < all->count; i++)
        append_start(array, all, &all->starts[i]);
    reading = json_set_object(root, "reading");
    json_set_string(reading, "name", all->reading.name);
    json_set_string(reading, "text", all->reading.text);
    array = json_set_array(reading, "next");
    for (char **next = all->reading.next; *next != NULL; next++)
        json_append_string(array, *next);
    list_fini(&command);
    return root;
}
