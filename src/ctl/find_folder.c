/* Happy path: connect to the guard's socket. It is gone: nobody holds the lock, and the record is read. It does not
 * answer although its lock is held: it starts or ends in this moment; tried again for a while. */
#include "ctl/find_folder.h"
#include "base/memory.h"
#include "base/text.h"
#include "sys/file.h"
#include "sys/run_json.h"
#include "sys/runtime.h"

#include <dirent.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { RECORD_MAX = 32 * 1024 * 1024, RETRY_MS = 50, GONE_MS = 10, STARTING_MS = 3000 };

void find_folder_sleep_ms(long ms)
{
    struct timespec t = {ms / 1000, ms % 1000 * 1000000};
    nanosleep(&t, NULL);
}

/* The guard holds the lock as long as it lives. */
static bool lock_is_held(const char *folder)
{
    char *path = memory_format("%s/lock", folder);
    bool held = file_is_locked(path);
    free(path);
    return held;
}

static enum error_code read_json(const char *path, struct json **ret_json, struct error *err)
{
    struct buffer text;
    buffer_init(&text);
    enum error_code code = file_read(path, RECORD_MAX, &text, err);
    if (code == ERROR_NONE &&
        json_parse(text.data, text.length, (struct json_limits){RECORD_MAX, JSON_DEPTH, RUN_JSON_RECORD_VALUES},
                   ret_json, err) != ERROR_NONE)
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

static bool same_guard(const struct json *record, const struct json *other, const char *path)
{
    uint64_t pid = 0, guard_pid = 0;
    return json_get_u64(record, "run.guard_pid", &guard_pid, NULL) == ERROR_NONE &&
           json_get_u64(other, path, &pid, NULL) == ERROR_NONE && pid == guard_pid;
}

/* False: no kldumpd serves this folder, or it knows no end of this run either. */
static bool ask_daemon(const char *folder, const char *name, struct json *record)
{
    struct client *client = NULL;
    struct json *answer = NULL, *parameters = json_object();
    char *path = memory_format("%s/../../control", folder);
    json_set_string(parameters, "run", name);
    if (client_connect(path, &client, NULL) != ERROR_NONE)
        json_free(parameters);
    else if (client_call(client, "status", parameters, CLIENT_PATIENCE_MS, &answer, NULL) == ERROR_NONE &&
             same_guard(record, answer, "run.guard_pid") && has_ended(answer))
        json_set_child(record, "run", json_copy(json_member(answer, "run")));
    json_free(answer);
    client_free(client);
    free(path);
    return has_ended(record);
}

/* The kldumpd of this folder can know the end that the guard could not write, since it was killed, or the folder full:
 * from its own record where it is not there itself. */
static void prefer_daemon(const char *folder, const char *name, struct json *record)
{
    struct json *owned = NULL;
    if (has_ended(record) || ask_daemon(folder, name, record))
        return;
    char *path = memory_format("%s/../../owned/%s.json", folder, name);
    if (read_json(path, &owned, NULL) == ERROR_NONE && same_guard(record, owned, "pid")) {
        const char *end = "";
        struct json *run = json_copy(json_member(record, "run"));
        json_optional_string(owned, "end", "", &end, NULL);
        if (run_json_end_as(run, json_member(owned, "said"), NULL) != ERROR_NONE && strcmp(end, "backstop") == 0)
            run_json_end_backstop(run);
        json_set_child(record, "run", run);
    }
    json_free(owned);
    free(path);
}

static enum error_code read_record(const char *folder, const char *name, struct json **ret_record, struct error *err)
{
    char *path = memory_format("%s/record.json", folder);
    enum error_code code = read_json(path, ret_record, err);
    if (code == ERROR_NOT_FOUND)
        code = error_set(err, ERROR_NO_RUN, "run %s is over and left no record", name);
    if (code == ERROR_NONE) {
        prefer_copy(name, ret_record);
        prefer_daemon(folder, name, *ret_record);
    }
    free(path);
    return code;
}

void find_folder_wait_gone(const struct find *find, int64_t patience_ms)
{
    for (int64_t waited = 0; find->folder != NULL && waited < patience_ms && lock_is_held(find->folder);
         waited += GONE_MS)
        find_folder_sleep_ms(GONE_MS);
}

/* Fills client or record of *find, whose folder is there. */
enum error_code find_folder_reach(struct find *find, int64_t patience_ms, struct error *err)
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
        find_folder_sleep_ms(RETRY_MS);
    }
    free(path);
    return code;
}

static bool is_ours(const char *folder)
{
    struct stat status;
    return lstat(folder, &status) == 0 && S_ISDIR(status.st_mode) && status.st_uid == geteuid();
}

enum error_code find_folder_open(const char *runtime, const char *name, struct find *ret_find, struct error *err)
{
    struct find find = {.folder = runtime_run_folder(runtime, name)};
    text_copy(find.name, sizeof find.name, name);
    enum error_code code = ERROR_NOT_FOUND;
    if (is_ours(find.folder))
        code = find_folder_reach(&find, STARTING_MS, err);
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

void find_folder_names(const char *runtime, struct list *names)
{
    struct dirent **entries = NULL;
    char *path = memory_format("%s/runs", runtime);
    int count = scandir(path, &entries, skip_hidden, alphasort);
    for (int i = 0; i < count; i++) {
        char *folder = runtime_run_folder(runtime, entries[i]->d_name);
        if (is_ours(folder))
            list_add(names, entries[i]->d_name);
        free(folder);
        free(entries[i]);
    }
    free(entries);
    free(path);
}

static time_t age_of(time_t written)
{
    time_t now = time(NULL);
    return now > written ? now - written : 0;
}

struct json *find_folder_unknown(const char *runtime, const char *name, const struct error *why)
{
    struct stat status;
    struct json *record = NULL, *run = NULL;
    char *folder = runtime_run_folder(runtime, name);
    if (read_record(folder, name, &record, NULL) == ERROR_NONE && json_type(json_member(record, "run")) == JSON_OBJECT)
        run = json_copy(json_member(record, "run"));
    else
        run = json_object();
    char *path = memory_format("%s/record.json", folder);
    if (stat(path, &status) == 0)
        run_json_age(run, (uint64_t)age_of(status.st_mtime) * 1000);
    free(path);
    json_set_string(run, "name", name);
    json_set_string(run, "state", "unknown");
    json_set_string(run, "message", why->message);
    json_free(record);
    free(folder);
    return run;
}
