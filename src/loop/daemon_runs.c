/* Runs as their folders tell: runs/NAME/lock is held while the guard lives, runs/NAME/record.json is what it knew last.
 * Anything may be missing or damaged; then the run is shown with what is left, and the others are not affected. */
#include "base/buffer.h"
#include "base/memory.h"
#include "base/text.h"
#include "core/run.h"
#include "json/json.h"
#include "loop/daemon_private.h"
#include "sys/file.h"
#include "sys/runtime.h"

#include <dirent.h>
#include <errno.h>
#include <pwd.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { RECORD_MAX = 32 * 1024 * 1024, LIST_BYTES_MAX = CONTROL_FRAME_MAX - 1024 };

void daemon_runs_begin(struct daemon *daemon)
{
    daemon->known = memory_new(sizeof *daemon->known);
}

void daemon_runs_end(struct daemon *daemon)
{
    if (daemon->known == NULL)
        return;
    list_fini(&daemon->known->damaged_told);
    free(daemon->known);
    daemon->known = NULL;
}

static char *path_of(const struct daemon *daemon, const char *name, const char *file)
{
    char *folder = runtime_run_folder(daemon->runtime, name);
    char *path = memory_format("%s/%s", folder, file);
    free(folder);
    return path;
}

bool daemon_runs_exists(const struct daemon *daemon, const char *name)
{
    struct stat status;
    char *folder = runtime_run_folder(daemon->runtime, name);
    bool there = lstat(folder, &status) == 0 && S_ISDIR(status.st_mode);
    free(folder);
    return there;
}

bool daemon_runs_is_live(const struct daemon *daemon, const char *name)
{
    char *path = path_of(daemon, name, "lock");
    bool live = file_is_locked(path);
    free(path);
    return live;
}

static int compare_names(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

void daemon_runs_names(const struct daemon *daemon, bool live_only, struct list *ret_names)
{
    char *path = memory_format("%s/runs", daemon->runtime);
    DIR *folder = opendir(path);
    free(path);
    if (folder == NULL)
        return;
    for (struct dirent *entry; (entry = readdir(folder)) != NULL;)
        if (text_is_name(entry->d_name) && daemon_runs_exists(daemon, entry->d_name) &&
            (!live_only || daemon_runs_is_live(daemon, entry->d_name)))
            list_add(ret_names, entry->d_name);
    closedir(folder);
    if (ret_names->count > 1)
        qsort(ret_names->items, ret_names->count, sizeof ret_names->items[0], compare_names);
}

/* ---- records ---- */

static struct json *mark_lost(const struct json *run)
{
    struct json *lost = json_copy(run);
    json_set_string(lost, "state", run_state_name(RUN_ENDED));
    json_set_string(lost, "outcome", run_outcome_name(RUN_OUTCOME_GUARD_LOST));
    json_set_u64(lost, "exit_status", STATUS_LOST);
    json_set_null(lost, "pid");
    json_set_null(lost, "exp");
    json_set_string(lost, "message", "the guard was lost without a last word; its keeper kills the run then");
    return lost;
}

static enum error_code parse_record(const char *path, const struct buffer *text, const char *name,
                                    struct json **ret_record, struct error *err)
{
    struct json *record = NULL;
    const char *schema, *own_name, *state;
    enum error_code code = json_parse(text->data, text->length, RECORD_MAX, JSON_DEPTH, &record, err);
    if (code == ERROR_NONE)
        code = json_get_string(record, "schema", &schema, err);
    if (code == ERROR_NONE && strcmp(schema, "kldump.record/1") != 0)
        code = error_set(err, ERROR_FORMAT, "schema is \"%.80s\", expected \"kldump.record/1\"", schema);
    if (code == ERROR_NONE)
        code = json_get_string(record, "run.name", &own_name, err);
    if (code == ERROR_NONE && strcmp(own_name, name) != 0)
        code = error_set(err, ERROR_FORMAT, "it is of run \"%.80s\"", own_name);
    if (code == ERROR_NONE)
        code = json_get_string(record, "run.state", &state, err);
    if (code != ERROR_NONE) {
        json_free(record);
        error_prefix(err, "damaged record %s", path);
        return code;
    }
    *ret_record = record;
    return ERROR_NONE;
}

enum error_code daemon_runs_record(const struct daemon *daemon, const char *name, struct json **ret_record,
                                   struct error *err)
{
    /* in this order: a guard that ends meanwhile has written its last record before it lets the lock go */
    bool live = daemon_runs_is_live(daemon, name);
    char *path = path_of(daemon, name, "record.json");
    struct buffer text;
    buffer_init(&text);
    struct json *record = NULL;
    const char *state = "";
    enum error_code code = file_read(path, RECORD_MAX, &text, err);
    if (code == ERROR_NONE)
        code = parse_record(path, &text, name, &record, err);
    if (code == ERROR_NONE) {
        json_get_string(record, "run.state", &state, NULL);
        if (!live && run_state_from_name(state) != RUN_ENDED)
            json_set_child(record, "run", mark_lost(json_member(record, "run")));
        *ret_record = record;
    }
    buffer_fini(&text);
    free(path);
    return code;
}

struct json *daemon_runs_unread(const char *name, const char *state, const char *message)
{
    static const char *const unknown[] = {"outcome", "exit_status", "pid", "guard_pid", "port", "url", "exp"};
    struct json *run = json_object();
    const struct passwd *user = getpwuid(geteuid());
    json_set_string(run, "name", name);
    json_set_string(run, "owner", user != NULL ? user->pw_name : "?");
    json_set_u64(run, "uid", geteuid());
    json_set_string(run, "state", state);
    for (size_t i = 0; i < sizeof unknown / sizeof unknown[0]; i++)
        json_set_null(run, unknown[i]);
    json_set_string(run, "message", message);
    return run;
}

/* ---- list ---- */

static struct json *listed(const struct daemon *daemon, const char *name)
{
    struct json *record = NULL, *run;
    struct error err = ERROR_INIT;
    enum error_code code = daemon_runs_record(daemon, name, &record, &err);
    if (code == ERROR_NONE)
        run = json_copy(json_member(record, "run"));
    else if (code == ERROR_NOT_FOUND && daemon_runs_is_live(daemon, name))
        run = daemon_runs_unread(name, run_state_name(RUN_LAUNCHING), "");
    else if (code == ERROR_NOT_FOUND)
        run = daemon_runs_unread(name, run_state_name(RUN_ENDED), "it was refused before its server was started");
    else
        run = daemon_runs_unread(name, "unknown", err.message);
    json_free(record);
    return run;
}

/* What `list` shows is short; commands and seals of a hundred runs would not fit into one frame. */
static void shorten(struct json *run)
{
    json_set_child(run, "seals", json_array());
    json_set_child(run, "command", json_array());
}

static size_t printed_size(const struct json *json)
{
    struct buffer text;
    buffer_init(&text);
    json_print(json, &text);
    size_t size = text.length;
    buffer_fini(&text);
    return size;
}

void daemon_runs_list(struct control_request *request, void *user)
{
    struct daemon *daemon = user;
    struct list names = {0};
    struct json *result = json_object();
    struct json *runs = json_set_array(result, "runs");
    daemon_runs_names(daemon, false, &names);
    size_t bytes = 0, left_out = 0;
    for (size_t i = 0; i < names.count; i++) {
        struct json *run = listed(daemon, names.items[i]);
        size_t size = printed_size(run) + 1;
        if (bytes + size > LIST_BYTES_MAX / 2) {
            shorten(run);
            size = printed_size(run) + 1;
        }
        if (bytes + size > LIST_BYTES_MAX) {
            json_free(run);
            left_out++;
            continue;
        }
        bytes += size;
        json_append(runs, run);
    }
    if (left_out > 0)
        json_set_u64(result, "left_out", left_out);
    list_fini(&names);
    control_reply(request, result);
}

/* ---- the server's output ---- */

bool daemon_runs_log(const struct daemon *daemon, const char *name, uint64_t *offset, size_t most, struct buffer *text)
{
    static const char *const files[] = {"server.log.1", "server.log"};
    uint64_t begin = 0;    /* of the file, counted over both */
    uint64_t at = *offset; /* what comes next */
    size_t start = text->length;
    for (size_t i = 0; i < sizeof files / sizeof files[0]; i++) {
        char *path = path_of(daemon, name, files[i]);
        struct stat status;
        uint64_t size = lstat(path, &status) == 0 && S_ISREG(status.st_mode) ? (uint64_t)status.st_size : 0;
        size_t room = most - (text->length - start);
        if (at >= begin && at < begin + size && room > 0) {
            file_read_part(path, (off_t)(at - begin), room, text, NULL);
            at = *offset + (text->length - start);
        }
        begin += size;
        free(path);
    }
    if (*offset > begin)
        *offset = begin;
    bool all = *offset + (text->length - start) >= begin;
    if (!all) {
        text->length -= text_unfinished(text->data + start, text->length - start);
        text->data[text->length] = '\0';
    }
    return all;
}
