/* What two results have in common, and which settings of their servers differ. */
#include "base/memory.h"
#include "base/text.h"
#include "ctl/ab_read.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

static char *printed(const struct json *value)
{
    return json_type(value) == JSON_NULL ? memory_copy("-") : json_print_new(value);
}

/* ---- whether they may be compared ---- */

static enum error_code check_member(const struct ab_read *a, const struct ab_read *b, const char *path,
                                    const char *what, struct error *err)
{
    char *of_a = printed(json_find(a->json, path)), *of_b = printed(json_find(b->json, path));
    enum error_code code = ERROR_NONE;
    if (strcmp(of_a, of_b) != 0)
        code =
            error_set(err, ERROR_USAGE, "%s differ: %.100s in %.100s, %.100s in %.100s; such results are not compared",
                      what, of_a, a->name, of_b, b->name);
    free(of_a);
    free(of_b);
    return code;
}

static enum error_code check_paths(const struct ab_read *a, const struct ab_read *b, struct error *err)
{
    size_t common = 0;
    for (size_t p = 0; p < a->path_count; p++) {
        const struct ab_path *of_a = &a->paths[p], *of_b = ab_read_path(b, of_a->name);
        if (of_b == NULL)
            continue;
        common++;
        if (of_a->count != of_b->count)
            return error_set(err, ERROR_USAGE,
                             "the samples of %s differ: %zu in %.100s, %zu in %.100s; such results are not compared",
                             of_a->name, of_a->count, a->name, of_b->count, b->name);
        for (size_t i = 0; i < of_a->count; i++)
            if (of_a->requests[i].first != of_b->requests[i].first)
                return error_set(err, ERROR_USAGE,
                                 "the lengths of request %zu of %s differ: %" PRIu64 " tokens in %.100s, %" PRIu64
                                 " in %.100s; such results are not compared",
                                 i, of_a->name, of_a->requests[i].first, a->name, of_b->requests[i].first, b->name);
    }
    return common > 0 ? ERROR_NONE
                      : error_set(err, ERROR_USAGE, "no path was measured in both %.100s and %.100s", a->name, b->name);
}

enum error_code ab_read_comparable(const struct ab_read *a, const struct ab_read *b, struct error *err)
{
    static const struct {
        const char *path, *what;
    } members[] = {{"prompts.hash", "the prompts"},       {"prompts.count", "the numbers of samples"},
                   {"new_tokens", "the new tokens"},      {"temperature", "the temperatures"},
                   {"comma", "the ids of a second turn"}, {"alone", "one request at a time (alone)"}};
    if (a->kind != b->kind)
        return error_set(err, ERROR_USAGE, "%.100s is a result of %s, %.100s one of %s; such results are not compared",
                         a->name, ab_read_kind_word(a->kind), b->name, ab_read_kind_word(b->kind));
    for (size_t i = 0; i < sizeof members / sizeof members[0]; i++) {
        enum error_code code = check_member(a, b, members[i].path, members[i].what, err);
        if (code != ERROR_NONE)
            return code;
    }
    return check_paths(a, b, err);
}

/* ---- settings ---- */

static void add_setting(struct ab_read_settings *settings, const char *name, const struct json *a, const struct json *b)
{
    char *of_a = printed(a), *of_b = printed(b);
    if (strcmp(of_a, of_b) == 0) {
        free(of_a);
        free(of_b);
        return;
    }
    settings->items = memory_resize(settings->items, settings->count + 1, sizeof settings->items[0]);
    struct ab_read_setting *setting = &settings->items[settings->count++];
    *setting = (struct ab_read_setting){memory_copy(name), of_a, of_b, strcmp(name, "random_seed") == 0};
    settings->switched += setting->by_chance ? 0 : 1;
}

static void compare_objects(struct ab_read_settings *settings, const char *prefix, const struct json *a,
                            const struct json *b);

static void compare_values(struct ab_read_settings *settings, const char *name, const struct json *a,
                           const struct json *b)
{
    if (json_type(a) == JSON_OBJECT && json_type(b) == JSON_OBJECT)
        compare_objects(settings, name, a, b);
    else
        add_setting(settings, name, a, b);
}

/* Members of A in their order, then those that B alone has; the depth is that of a parsed text. */
static void compare_objects(struct ab_read_settings *settings, const char *prefix, const struct json *a,
                            const struct json *b)
{
    const struct json *sides[2] = {a, b};
    for (int side = 0; side < 2; side++)
        for (const struct json *m = json_first(sides[side]); m != NULL; m = json_next(m)) {
            const struct json *of_a = json_member(a, json_key(m)), *of_b = json_member(b, json_key(m));
            if (side == 1 && of_a != NULL)
                continue;
            char *name = memory_format("%s%s%s", prefix, prefix[0] != '\0' ? "." : "", json_key(m));
            compare_values(settings, name, of_a, of_b);
            free(name);
        }
}

void ab_read_settings(const struct ab_read *a, const struct ab_read *b, struct ab_read_settings *ret_settings)
{
    static const char *const beside[] = {"version", "weight_version"};
    struct ab_read_settings settings = {.known = a->settings != NULL && b->settings != NULL};
    const struct json *server_a = json_member(a->json, "server"), *server_b = json_member(b->json, "server");
    for (size_t i = 0; i < sizeof beside / sizeof beside[0]; i++)
        if (json_member(a->settings, beside[i]) == NULL && json_member(b->settings, beside[i]) == NULL)
            add_setting(&settings, beside[i], json_member(server_a, beside[i]), json_member(server_b, beside[i]));
    if (settings.known)
        compare_objects(&settings, "", a->settings, b->settings);
    *ret_settings = settings;
}

void ab_read_settings_fini(struct ab_read_settings *settings)
{
    for (size_t i = 0; i < settings->count; i++) {
        free(settings->items[i].name);
        free(settings->items[i].a);
        free(settings->items[i].b);
    }
    free(settings->items);
    *settings = (struct ab_read_settings){0};
}
