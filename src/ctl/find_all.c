/* All runs: the folders of ours, and what each kldumpd lists. One that cannot be reached hides no other, nor itself. */
#include "base/memory.h"
#include "base/text.h"
#include "ctl/find.h"
#include "ctl/find_folder.h"
#include "ctl/find_places.h"
#include "ctl/show.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static bool same_user(const struct json *a, const struct json *b)
{
    uint64_t x = 0, y = 0;
    if (json_get_u64(a, "uid", &x, NULL) == ERROR_NONE && json_get_u64(b, "uid", &y, NULL) == ERROR_NONE)
        return x == y;
    return strcmp(show_member(a, "owner"), show_member(b, "owner")) == 0;
}

/* A run that cannot be read well has no time of its start. */
static bool same_start(const struct json *a, const struct json *b)
{
    const char *x = show_member(a, "started_at"), *y = show_member(b, "started_at");
    return *x == '\0' || *y == '\0' || strcmp(x, y) == 0;
}

static bool is_known(const struct find_list *list, const struct json *run)
{
    for (size_t i = 0; i < list->count; i++) {
        const struct json *other = list->seen[i].run;
        if (strcmp(show_member(other, "name"), show_member(run, "name")) == 0 && same_user(other, run) &&
            same_start(other, run))
            return true;
    }
    return false;
}

/* Takes `run` over. */
static void add(struct find_list *list, struct json *run, const char *runtime, const char *daemon)
{
    if (json_type(run) != JSON_OBJECT || is_known(list, run)) {
        json_free(run);
        return;
    }
    list->seen = memory_resize(list->seen, list->count + 1, sizeof *list->seen);
    list->seen[list->count++] = (struct find_seen){.run = run, .runtime = runtime, .daemon = daemon};
}

/* The list keeps the text. */
static const char *keep(struct find_list *list, const char *place)
{
    list_add(&list->places, place);
    return list->places.items[list->places.count - 1];
}

static void add_folders(struct find_list *list, const char *folder)
{
    struct list names = {0};
    const char *runtime = keep(list, folder);
    find_folder_names(runtime, &names);
    for (size_t i = 0; i < names.count; i++) {
        struct find find = {0};
        struct json *run = NULL;
        struct error err = ERROR_INIT;
        enum error_code code = find_folder_open(runtime, names.items[i], &find, &err);
        if (code == ERROR_NONE)
            code = find_status(&find, &run, &err);
        if (code == ERROR_NONE)
            add(list, run, runtime, NULL);
        else if (code != ERROR_NO_RUN && code != ERROR_NOT_FOUND)
            add(list, find_folder_unknown(runtime, names.items[i], &err), runtime, NULL);
        find_fini(&find);
    }
    list_fini(&names);
}

static void add_ended(struct find_list *list, const struct json *counts)
{
    if (json_type(counts) != JSON_OBJECT)
        return;
    if (list->ended == NULL)
        list->ended = json_object();
    for (const struct json *c = json_first(counts); c != NULL; c = json_next(c)) {
        uint64_t more = 0, before = 0;
        if (json_get_u64(c, "", &more, NULL) != ERROR_NONE)
            continue;
        if (json_member(list->ended, json_key(c)) != NULL)
            json_get_u64(json_member(list->ended, json_key(c)), "", &before, NULL);
        json_set_u64(list->ended, json_key(c), before + more);
    }
}

/* False: it could not be asked. */
static bool add_daemon(struct find_list *list, const char *path)
{
    struct client *client = NULL;
    struct json *result = NULL;
    const struct json *runs = NULL;
    struct error err = ERROR_INIT;
    uint64_t left_out = 0;
    enum error_code code = client_connect(path, &client, &err);
    bool is_there = code != ERROR_NO_RUN, answers;
    if (code == ERROR_NONE)
        code = client_call(client, "list", NULL, CLIENT_PATIENCE_MS, &result, &err);
    if (code == ERROR_NONE)
        code = json_get_array(result, "runs", &runs, &err);
    answers = code == ERROR_NONE;
    if (answers) {
        const char *daemon = keep(list, path);
        for (const struct json *r = json_first(runs); r != NULL; r = json_next(r))
            add(list, json_copy(r), NULL, daemon);
        add_ended(list, json_member(result, "ended"));
        if (json_get_u64(result, "left_out", &left_out, NULL) == ERROR_NONE && left_out > 0)
            list_add_format(&list->notes, "%s: %llu more runs do not fit into its answer", path,
                            (unsigned long long)left_out);
    } else if (is_there) {
        bool named = text_starts(err.message, path);
        list_add_format(&list->notes, "kldumpd at %s%s%s", named ? "" : path, named ? "" : ": ", err.message);
        if (list->problem.code == ERROR_NONE)
            list->problem = err;
    }
    json_free(result);
    client_free(client);
    return answers;
}

static int compare(const void *a, const void *b)
{
    const struct find_seen *x = a, *y = b;
    bool x_lives = find_is_live(x->run), y_lives = find_is_live(y->run);
    if (x_lives != y_lives)
        return x_lives ? -1 : 1;
    int order = strcmp(show_member(x->run, "name"), show_member(y->run, "name"));
    return order != 0 ? order : strcmp(show_member(x->run, "owner"), show_member(y->run, "owner"));
}

enum error_code find_all(struct find_list *ret_list, struct error *err)
{
    struct find_places places = {0};
    struct find_list list = {0};
    enum error_code code = find_places_get(&places, err);
    if (code != ERROR_NONE)
        return code;
    if (places.own != NULL)
        add_folders(&list, places.own);
    bool answered = false; /* the last of them: it is that of the shared folder */
    for (size_t i = 0; i < places.daemons.count; i++)
        answered = add_daemon(&list, places.daemons.items[i]);
    if (places.shared != NULL && !answered)
        add_folders(&list, places.shared);
    find_places_fini(&places);
    if (list.count > 1)
        qsort(list.seen, list.count, sizeof *list.seen, compare);
    *ret_list = list;
    return ERROR_NONE;
}

void find_list_fini(struct find_list *list)
{
    for (size_t i = 0; i < list->count; i++)
        json_free(list->seen[i].run);
    free(list->seen);
    json_free(list->ended);
    list_fini(&list->places);
    list_fini(&list->notes);
    *list = (struct find_list){0};
}
