/* Where runs are looked for, and the one difference between a live and a dead one. find_text.c asks for events and
 * output. */
#include "ctl/find.h"
#include "base/list.h"
#include "base/memory.h"
#include "base/text.h"
#include "sys/file.h"
#include "sys/runtime.h"

#include <dirent.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { RECORD_MAX = 32 * 1024 * 1024, RETRY_MS = 50, STARTING_MS = 3000 };

static const char system_socket[] = "/run/kldump/control";

static void sleep_ms(long ms)
{
    struct timespec t = {ms / 1000, ms % 1000 * 1000000};
    nanosleep(&t, NULL);
}

/* ---- a run in our runtime folder ---- */

/* The guard holds the lock as long as it lives. */
static bool lock_is_held(const char *folder)
{
    char *path = memory_format("%s/lock", folder);
    bool held = file_is_locked(path);
    free(path);
    return held;
}

/* The runtime folder, or NULL in *ret_path where there is none: then nothing of ours has ever run. */
static enum error_code own_runtime(char **ret_path, struct error *err)
{
    *ret_path = NULL;
    enum error_code code = runtime_directory(RUNTIME_LOOK, ret_path, err);
    return code == ERROR_NOT_FOUND ? ERROR_NONE : code;
}

static enum error_code read_json(const char *path, struct json **ret_json, struct error *err)
{
    struct buffer text;
    buffer_init(&text);
    enum error_code code = file_read(path, RECORD_MAX, &text, err);
    if (code == ERROR_NONE && json_parse(text.data, text.length, RECORD_MAX, JSON_DEPTH, ret_json, err) != ERROR_NONE)
        code = error_prefix(err, "%s", path);
    buffer_fini(&text);
    return code;
}

static bool same_text(const struct json *a, const struct json *b, const char *path)
{
    const char *x = NULL, *y = NULL;
    return json_get_string(a, path, &x, NULL) == ERROR_NONE && json_get_string(b, path, &y, NULL) == ERROR_NONE &&
           strcmp(x, y) == 0;
}

static bool has_ended(const struct json *record)
{
    const char *state = NULL;
    return json_get_string(record, "run.state", &state, NULL) == ERROR_NONE && strcmp(state, "ended") == 0;
}

/* A runtime folder that was full when the run ended holds an older record; the copy beside the dump tells the end. One
 * that was written at a seal is the older of the two. */
static void prefer_copy(const char *name, struct json **record)
{
    const char *directory = NULL;
    struct json *copy = NULL;
    if (has_ended(*record) || json_get_string(*record, "run.dir", &directory, NULL) != ERROR_NONE)
        return;
    char *path = memory_format("%s/%s.kldump-run.json", directory, name);
    if (read_json(path, &copy, NULL) == ERROR_NONE && has_ended(copy) && same_text(copy, *record, "run.started_at") &&
        same_text(copy, *record, "run.name")) {
        json_free(*record);
        *record = copy;
    } else {
        json_free(copy);
    }
    free(path);
}

static enum error_code read_record(const char *folder, const char *name, struct json **ret_record, struct error *err)
{
    char *path = memory_format("%s/record.json", folder);
    enum error_code code = read_json(path, ret_record, err);
    if (code == ERROR_NOT_FOUND)
        code = error_set(err, ERROR_NO_RUN, "run %s is over and left no record", name);
    else if (code == ERROR_NONE)
        prefer_copy(name, ret_record);
    free(path);
    return code;
}

/* Fills client or record of *find, whose folder is there. */
static enum error_code reach(struct find *find, int64_t patience_ms, struct error *err)
{
    char *path = memory_format("%s/control", find->folder);
    enum error_code code;
    for (int64_t waited = 0;; waited += RETRY_MS) {
        code = client_connect(path, &find->client, err);
        /* an end in the middle of hello: the guard is on its way out */
        bool nobody = code == ERROR_NO_RUN || code == ERROR_UNREACHABLE;
        if (code == ERROR_TIMEOUT)
            error_prefix(err, "run %s: its guard is suspended (fg continues it) or hangs", find->name);
        if (!nobody)
            break;
        if (!lock_is_held(find->folder)) {
            code = read_record(find->folder, find->name, &find->record, err);
            break;
        }
        if (waited >= patience_ms) {
            code = error_set(err, ERROR_BUSY,
                             "run %s is starting or ending: its guard does not answer yet; try again; if it stays so, "
                             "%s was removed: end the run by Ctrl-C or kill -TERM to its kldump-run",
                             find->name, path);
            break;
        }
        sleep_ms(RETRY_MS);
    }
    free(path);
    return code;
}

/* ERROR_NOT_FOUND: no such folder in the runtime folder. */
static enum error_code reach_own(const char *runtime, const char *name, struct find *ret_find, struct error *err)
{
    if (runtime == NULL)
        return ERROR_NOT_FOUND;
    struct find find = {.folder = runtime_run_folder(runtime, name)};
    text_copy(find.name, sizeof find.name, name);
    enum error_code code = ERROR_NOT_FOUND;
    if (access(find.folder, F_OK) == 0)
        code = reach(&find, STARTING_MS, err);
    if (code == ERROR_NONE)
        *ret_find = find;
    else
        find_fini(&find);
    return code;
}

static int skip_hidden(const struct dirent *entry)
{
    return text_is_name(entry->d_name);
}

static void own_names(const char *runtime, struct list *names)
{
    struct dirent **entries = NULL;
    if (runtime == NULL)
        return;
    char *path = memory_format("%s/runs", runtime);
    int count = scandir(path, &entries, skip_hidden, alphasort);
    for (int i = 0; i < count; i++) {
        list_add(names, entries[i]->d_name);
        free(entries[i]);
    }
    free(entries);
    free(path);
}

/* ---- kldumpd ---- */

/* Tests and a kldumpd of one's own live in KLDUMP_RUNTIME_DIR alone. */
static bool may_use_system_daemon(void)
{
    return getenv("KLDUMP_RUNTIME_DIR") == NULL;
}

enum error_code find_daemon(struct client **ret_client, struct error *err)
{
    char *runtime = NULL;
    enum error_code code = own_runtime(&runtime, err);
    if (code != ERROR_NONE)
        return code;
    char *path = runtime != NULL ? memory_format("%s/control", runtime) : NULL;
    code = path != NULL ? client_connect(path, ret_client, err) : ERROR_NO_RUN;
    if (code == ERROR_NO_RUN && may_use_system_daemon())
        code = client_connect(system_socket, ret_client, err);
    if (code == ERROR_NO_RUN)
        code = error_set(err, ERROR_NO_DAEMON,
                         "kldumpd is not running (nobody listens on %s); start it, or use 'kldumpctl run', which needs "
                         "no daemon",
                         path != NULL ? path : system_socket);
    free(path);
    free(runtime);
    return code;
}

static enum error_code daemon_runs(struct json **ret_runs, struct error *err)
{
    struct client *client = NULL;
    struct json *result = NULL;
    const struct json *runs = NULL;
    enum error_code code = find_daemon(&client, err);
    if (code == ERROR_NONE)
        code = client_call(client, "list", NULL, CLIENT_PATIENCE_MS, &result, err);
    if (code == ERROR_NONE)
        code = json_get_array(result, "runs", &runs, err);
    if (code == ERROR_NONE)
        *ret_runs = json_copy(runs);
    json_free(result);
    client_free(client);
    return code;
}

static enum error_code reach_relayed(const char *name, struct find *ret_find, struct error *err)
{
    struct find find = {.relayed = true};
    text_copy(find.name, sizeof find.name, name);
    enum error_code code = find_daemon(&find.client, err);
    if (code != ERROR_NONE)
        return code;
    struct json *run = NULL;
    code = find_status(&find, &run, err);
    json_free(run);
    if (code == ERROR_NONE)
        *ret_find = find;
    else
        find_fini(&find);
    return code;
}

/* ---- all runs ---- */

static const char *text_of(const struct json *run, const char *key)
{
    const char *text = "";
    return json_optional_string(run, key, "", &text, NULL) == ERROR_NONE ? text : "";
}

static bool has_run(const struct json *runs, const char *name, const char *owner)
{
    for (const struct json *r = json_first(runs); r != NULL; r = json_next(r))
        if (strcmp(text_of(r, "name"), name) == 0 && strcmp(text_of(r, "owner"), owner) == 0)
            return true;
    return false;
}

/* What can be told of a run whose guard lives but does not answer: its record, and what is wrong. */
static struct json *unreachable(const char *runtime, const char *name, const struct error *why)
{
    struct json *record = NULL, *run = NULL;
    char *folder = runtime_run_folder(runtime, name);
    if (read_record(folder, name, &record, NULL) == ERROR_NONE && json_type(json_member(record, "run")) == JSON_OBJECT)
        run = json_copy(json_member(record, "run"));
    else
        run = json_object();
    json_set_string(run, "name", name);
    json_set_string(run, "state", "unknown");
    json_set_string(run, "message", why->message);
    json_free(record);
    free(folder);
    return run;
}

static void add_own(struct json *runs, const char *runtime, const char *name)
{
    struct find find = {0};
    struct json *run = NULL;
    struct error err = ERROR_INIT;
    enum error_code code = reach_own(runtime, name, &find, &err);
    if (code == ERROR_NONE)
        code = find_status(&find, &run, &err);
    /* one run that cannot be reached hides no other, nor itself */
    if (code == ERROR_NONE)
        json_append(runs, run);
    else if (code != ERROR_NO_RUN && code != ERROR_NOT_FOUND)
        json_append(runs, unreachable(runtime, name, &err));
    find_fini(&find);
}

enum error_code find_all(struct json **ret_runs, struct error *err)
{
    char *runtime = NULL;
    enum error_code code = own_runtime(&runtime, err);
    if (code != ERROR_NONE)
        return code;
    struct json *runs = json_array(), *others = NULL;
    struct list names = {0};
    own_names(runtime, &names);
    for (size_t i = 0; i < names.count; i++)
        add_own(runs, runtime, names.items[i]);
    if (daemon_runs(&others, NULL) == ERROR_NONE)
        for (const struct json *r = json_first(others); r != NULL; r = json_next(r))
            if (!has_run(runs, text_of(r, "name"), text_of(r, "owner")))
                json_append(runs, json_copy(r));
    json_free(others);
    list_fini(&names);
    free(runtime);
    *ret_runs = runs;
    return ERROR_NONE;
}

/* Names of live runs, with ", " between, and how many; the last one is kept in `name`. */
static enum error_code live_names(struct buffer *names, size_t *ret_count, char *name, size_t size, struct error *err)
{
    struct json *runs = NULL;
    size_t count = 0;
    enum error_code code = find_all(&runs, err);
    if (code != ERROR_NONE)
        return code;
    for (const struct json *r = json_first(runs); r != NULL; r = json_next(r)) {
        if (strcmp(text_of(r, "state"), "ended") == 0)
            continue;
        buffer_format(names, "%s%s", count++ > 0 ? ", " : "", text_of(r, "name"));
        text_copy(name, size, text_of(r, "name"));
    }
    json_free(runs);
    *ret_count = count;
    return ERROR_NONE;
}

static enum error_code no_run(const char *name, struct error *err)
{
    struct buffer names;
    char last[65] = "";
    size_t count = 0;
    buffer_init(&names);
    enum error_code code = live_names(&names, &count, last, sizeof last, err);
    if (code == ERROR_NONE && count == 0)
        code = error_set(err, ERROR_NO_RUN, "there is no run '%s'; no run is live now", name);
    else if (code == ERROR_NONE)
        code = error_set(err, ERROR_NO_RUN, "there is no run '%s'; live now: %.300s", name, names.data);
    buffer_fini(&names);
    return code;
}

static enum error_code find_named(const char *name, struct find *ret_find, struct error *err)
{
    char *runtime = NULL;
    if (!text_is_name(name))
        return error_set(err, ERROR_BAD_VALUE, "'%.70s' is not the name of a run; 'kldumpctl list' shows them", name);
    enum error_code code = own_runtime(&runtime, err);
    if (code != ERROR_NONE)
        return code;
    code = reach_own(runtime, name, ret_find, err);
    free(runtime);
    if (code != ERROR_NOT_FOUND)
        return code;
    code = reach_relayed(name, ret_find, err);
    return code == ERROR_NO_DAEMON || code == ERROR_NO_RUN || code == ERROR_NOT_FOUND ? no_run(name, err) : code;
}

enum error_code find_run(const char *name, struct find *ret_find, struct error *err)
{
    struct buffer names;
    char only[65] = "";
    if (name != NULL)
        return find_named(name, ret_find, err);
    buffer_init(&names);
    size_t count = 0;
    enum error_code code = live_names(&names, &count, only, sizeof only, err);
    if (code != ERROR_NONE)
        count = 0;
    else if (count == 0)
        code = error_set(err, ERROR_NO_RUN, "no run is live; 'kldumpctl list' shows those that have ended");
    else if (count > 1)
        code = error_set(err, ERROR_USAGE, "several runs are live, say which: %.400s", names.data);
    else
        code = find_named(only, ret_find, err);
    buffer_fini(&names);
    return code;
}

void find_fini(struct find *find)
{
    client_free(find->client);
    json_free(find->record);
    free(find->folder);
    *find = (struct find){0};
}

/* ---- talking about it ---- */

enum error_code find_call(struct find *find, const char *method, struct json *parameters, int64_t timeout_ms,
                          struct json **ret_result, struct error *err)
{
    if (find->client == NULL) {
        json_free(parameters);
        return error_set(err, ERROR_STATE, "run %s has ended; 'kldumpctl status %s' shows how", find->name, find->name);
    }
    if (parameters == NULL)
        parameters = json_object();
    if (find->relayed)
        json_set_string(parameters, "run", find->name);
    enum error_code code = client_call(find->client, method, parameters, timeout_ms, ret_result, err);
    if (code == ERROR_TIMEOUT || code == ERROR_UNREACHABLE || code == ERROR_PROTOCOL)
        error_prefix(err, "run %s", find->name);
    return code;
}

enum error_code find_again(struct find *find, int64_t patience_ms, struct error *err)
{
    client_free(find->client);
    find->client = NULL;
    if (find->relayed)
        return find_daemon(&find->client, err);
    json_free(find->record);
    find->record = NULL;
    return reach(find, patience_ms, err);
}

/* The last run object of a dead run, made to say that it is over. */
static enum error_code status_of_dead(const struct find *find, struct json **ret_run, struct error *err)
{
    const struct json *run = NULL;
    enum error_code code = json_get_object(find->record, "run", &run, err);
    if (code != ERROR_NONE)
        return error_prefix(err, "record of run %s", find->name);
    struct json *copy = json_copy(run);
    if (strcmp(text_of(run, "state"), "ended") != 0) {
        char *message = memory_format("the guard was killed while the run was %s", text_of(run, "state"));
        json_set_string(copy, "state", "ended");
        json_set_string(copy, "outcome", "guard-lost");
        json_set_u64(copy, "exit_status", STATUS_LOST);
        json_set_null(copy, "exp");
        json_set_string(copy, "message", message);
        free(message);
    }
    *ret_run = copy;
    return ERROR_NONE;
}

enum error_code find_status(struct find *find, struct json **ret_run, struct error *err)
{
    struct json *result = NULL;
    const struct json *run = NULL;
    if (find->client == NULL)
        return status_of_dead(find, ret_run, err);
    enum error_code code = find_call(find, "status", NULL, CLIENT_PATIENCE_MS, &result, err);
    if (code == ERROR_NONE)
        code = json_get_object(result, "run", &run, err);
    if (code == ERROR_NONE)
        *ret_run = json_copy(run);
    json_free(result);
    return code;
}
