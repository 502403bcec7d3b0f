/* Runs as their folders tell: runs/NAME/lock is held while the guard lives, runs/NAME/record.json is what it knew last.
 *
 * The folders belong to the users, who may put anything there: all is opened below the checked descriptor of the folder
 * (sys/file_below.h), read up to a limit, parsed strictly, and counts for nothing but being shown. Anything may be
 * missing or damaged; then the run is shown with what is left, and the others are not affected. A damaged record of a
 * run that is over is set aside as record.json.damaged. */
#include "base/buffer.h"
#include "base/memory.h"
#include "base/text.h"
#include "core/run.h"
#include "json/json.h"
#include "loop/clock.h"
#include "loop/daemon_private.h"
#include "sys/admin_names.h"
#include "sys/file_below.h"
#include "sys/run_json.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { KEPT_BYTES = 128 * 1024, RECORD_MAX = 4 * 1024 * 1024, LARGE_RECORD = 256 * 1024, LARGE_AGAIN_MS = 500 };
static const char record_file[] = "record.json";

/* ---- begin and end ---- */

void daemon_runs_begin(struct daemon *daemon)
{
    daemon->known = memory_new(sizeof *daemon->known);
    /* nobody is served yet: it may take its time */
    admin_names_user(geteuid(), daemon->known->own_name, sizeof daemon->known->own_name);
    daemon_keep_begin(daemon);
    daemon_ended_begin(daemon);
    daemon_retain_begin(daemon);
}

static void forget(struct daemon_known_run *run)
{
    json_free(run->run);
    free(run);
}

void daemon_runs_end(struct daemon *daemon)
{
    struct daemon_known *known = daemon->known;
    if (known == NULL)
        return;
    for (size_t i = 0; i < known->run_count; i++)
        forget(known->runs[i]);
    free(known->runs);
    daemon_retain_end(daemon);
    daemon_keep_free(known->kept);
    daemon_ended_free(known->ended);
    list_fini(&known->damaged_told);
    free(known);
    daemon->known = NULL;
}

/* ---- folders ---- */

int daemon_runs_open_all(const struct daemon *daemon)
{
    char *path = memory_format("%s/runs", daemon->runtime);
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    free(path);
    return fd;
}

enum error_code daemon_runs_open(const struct daemon *daemon, const char *name, int *ret_fd, uid_t *ret_uid,
                                 struct error *err)
{
    struct stat status;
    int runs_fd = daemon_runs_open_all(daemon);
    if (runs_fd < 0)
        return error_set_errno(err, ERROR_NOT_FOUND, errno, "%s/runs", daemon->runtime);
    enum error_code code = file_below_folder(runs_fd, name, ret_fd, &status, err);
    close(runs_fd);
    if (code == ERROR_NONE)
        *ret_uid = status.st_uid;
    else
        error_prefix(err, "%s/runs", daemon->runtime);
    return code;
}

/* A folder over which its user has mounted something is one, too. */
bool daemon_runs_exists(const struct daemon *daemon, const char *name)
{
    struct error err = ERROR_INIT;
    uid_t uid;
    int fd = -1;
    if (daemon_runs_open(daemon, name, &fd, &uid, &err) != ERROR_NONE)
        return err.system == EXDEV;
    close(fd);
    return true;
}

bool daemon_runs_is_locked(const struct daemon *daemon, const char *name)
{
    uid_t uid;
    int fd = -1;
    if (daemon_runs_open(daemon, name, &fd, &uid, NULL) != ERROR_NONE)
        return false;
    bool locked = file_below_is_locked(fd, "lock", uid);
    close(fd);
    return locked;
}

bool daemon_runs_is_live(const struct daemon *daemon, const char *name)
{
    return daemon_keep_is_live(daemon, name) || daemon_runs_is_locked(daemon, name);
}

bool daemon_runs_owner(const struct daemon *daemon, const char *name, uid_t *ret_uid)
{
    int fd = -1;
    const struct daemon_owned *owned = daemon_keep_find(daemon, name);
    if (owned != NULL) {
        *ret_uid = owned->uid;
        return true;
    }
    if (daemon_runs_open(daemon, name, &fd, ret_uid, NULL) != ERROR_NONE)
        return false;
    close(fd);
    return true;
}

bool daemon_runs_has(const struct daemon *daemon, const char *name, uid_t uid)
{
    uid_t owner;
    return daemon_runs_is_live(daemon, name) && daemon_runs_owner(daemon, name, &owner) && owner == uid;
}

static int compare_names(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

void daemon_runs_names(const struct daemon *daemon, bool live_only, struct list *ret_names)
{
    int fd = daemon_runs_open_all(daemon);
    DIR *folder = fd >= 0 ? fdopendir(fd) : NULL;
    if (folder == NULL) {
        if (fd >= 0)
            close(fd);
        return;
    }
    for (struct dirent *entry; (entry = readdir(folder)) != NULL;)
        if (text_is_name(entry->d_name) && (entry->d_type == DT_DIR || entry->d_type == DT_UNKNOWN) &&
            (live_only ? daemon_runs_is_live(daemon, entry->d_name) : daemon_runs_exists(daemon, entry->d_name)))
            list_add(ret_names, entry->d_name);
    closedir(folder);
    if (ret_names->count > 1)
        qsort(ret_names->items, ret_names->count, sizeof ret_names->items[0], compare_names);
}

/* ---- records ---- */

/* Its guard is gone, and the record does not tell the end. */
static void mark_lost(const struct daemon *daemon, const char *name, struct json *run)
{
    const char *state = "";
    json_get_string(run, "state", &state, NULL);
    if (run_state_from_name(state) == RUN_ENDED)
        return;
    daemon_owned_end(daemon_keep_find(daemon, name), run);
}

static enum error_code parse_record(const struct buffer *text, const char *name, struct json **ret_record,
                                    struct error *err)
{
    struct json *record = NULL;
    const char *schema, *own_name, *state;
    enum error_code code = json_parse(
        text->data, text->length, (struct json_limits){RECORD_MAX, JSON_DEPTH, RUN_JSON_RECORD_VALUES}, &record, err);
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
        return code;
    }
    *ret_record = record;
    return ERROR_NONE;
}

/* Of a run that is over and left no record: what we know ourselves. NULL: nothing, it was refused. */
static struct json *run_without_record(const struct daemon *daemon, const char *name, bool live)
{
    const struct daemon_owned *owned = daemon_keep_find(daemon, name);
    return !live && owned != NULL && (owned->began || owned->said != NULL) ? daemon_owned_run(owned) : NULL;
}

static enum error_code read_record(int folder_fd, uid_t uid, const char *name, struct stat *ret_status,
                                   struct json **ret_record, struct error *err)
{
    struct buffer text;
    int fd = -1;
    enum error_code code = file_below_open(folder_fd, record_file, uid, &fd, ret_status, err);
    if (code != ERROR_NONE)
        return code;
    buffer_init(&text);
    if (ret_status->st_size > RECORD_MAX)
        code = error_set(err, ERROR_FORMAT, "larger than the limit of %d bytes", RECORD_MAX);
    else
        code = file_below_read(fd, record_file, 0, RECORD_MAX + 1, &text, err);
    if (code == ERROR_NONE)
        code = parse_record(&text, name, ret_record, err);
    buffer_fini(&text);
    close(fd);
    return code;
}

/* Says where, and sets a damaged one aside unless a guard is there to replace it. */
static enum error_code judge(const struct daemon *daemon, const char *name, int folder_fd, bool live,
                             enum error_code code, struct error *err)
{
    struct stat status;
    if (code == ERROR_NOT_FOUND && fstatat(folder_fd, "record.json.damaged", &status, AT_SYMLINK_NOFOLLOW) == 0)
        return error_set(err, ERROR_FORMAT, "the record %s/runs/%s/record.json was damaged and is set aside beside it",
                         daemon->runtime, name);
    if (code == ERROR_TOO_LARGE)
        code = err->code = ERROR_FORMAT;
    if (code == ERROR_FORMAT && !live)
        file_below_set_aside(folder_fd, record_file);
    return error_prefix(err, "%s %s/runs/%s/record.json", code == ERROR_FORMAT ? "damaged record" : "record",
                        daemon->runtime, name);
}

enum error_code daemon_runs_record(const struct daemon *daemon, const char *name, struct json **ret_record,
                                   struct error *err)
{
    struct error own = ERROR_INIT;
    struct json *record = NULL;
    struct stat status;
    uid_t uid;
    int fd = -1;
    if (err == NULL)
        err = &own;
    /* in this order: a guard that ends meanwhile has written its last record before it lets the lock go */
    bool live = daemon_runs_is_live(daemon, name);
    enum error_code code = daemon_runs_open(daemon, name, &fd, &uid, err);
    if (code != ERROR_NONE)
        return code;
    code = read_record(fd, uid, name, &status, &record, err);
    struct json *known = code == ERROR_NOT_FOUND ? run_without_record(daemon, name, live) : NULL;
    if (known != NULL) {
        record = json_object();
        json_set_child(record, "run", known);
        json_set_array(record, "events");
        code = ERROR_NONE;
    } else if (code != ERROR_NONE) {
        code = judge(daemon, name, fd, live, code, err);
    }
    close(fd);
    if (code != ERROR_NONE)
        return code;
    if (!live) {
        struct json *run = json_copy(json_member(record, "run"));
        mark_lost(daemon, name, run);
        json_set_child(record, "run", run);
    }
    *ret_record = record;
    return ERROR_NONE;
}

/* ---- what was read before ---- */

void daemon_runs_shorten(struct json *run)
{
    if (json_member(run, "seals") != NULL)
        json_set_child(run, "seals", json_array());
    if (json_member(run, "command") != NULL)
        json_set_child(run, "command", json_array());
}

static struct daemon_known_run *remember(struct daemon_known *known, const char *name)
{
    size_t low = 0, high = known->run_count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        int order = strcmp(known->runs[middle]->name, name);
        if (order == 0)
            return known->runs[middle];
        if (order < 0)
            low = middle + 1;
        else
            high = middle;
    }
    known->runs = memory_resize(known->runs, known->run_count + 1, sizeof known->runs[0]);
    memmove(&known->runs[low + 1], &known->runs[low], (known->run_count - low) * sizeof known->runs[0]);
    known->run_count++;
    known->runs[low] = memory_new(sizeof *known->runs[low]);
    text_copy(known->runs[low]->name, sizeof known->runs[low]->name, name);
    return known->runs[low];
}

/* Of a run that has no record nothing was read. */
static void forget_empty(struct daemon_known *known, const struct daemon_known_run *run)
{
    size_t at = 0;
    while (known->runs[at] != run)
        at++;
    forget(known->runs[at]);
    memmove(&known->runs[at], &known->runs[at + 1], (--known->run_count - at) * sizeof known->runs[0]);
}

void daemon_runs_forget_others(const struct daemon *daemon, const struct list *names)
{
    struct daemon_known *known = daemon->known;
    size_t kept = 0, at = 0; /* both are sorted */
    for (size_t i = 0; i < known->run_count; i++) {
        while (at < names->count && strcmp(names->items[at], known->runs[i]->name) < 0)
            at++;
        if (at < names->count && strcmp(names->items[at], known->runs[i]->name) == 0)
            known->runs[kept++] = known->runs[i];
        else
            forget(known->runs[i]);
    }
    known->run_count = kept;
}

/* The very file that was read. A large one that changes all the time is not read all the time. */
static bool is_current(const struct daemon_known_run *known, const struct stat *status)
{
    const struct stat *before = &known->status;
    if (known->run == NULL)
        return false;
    if (before->st_ino == status->st_ino && before->st_size == status->st_size &&
        before->st_mtim.tv_sec == status->st_mtim.tv_sec && before->st_mtim.tv_nsec == status->st_mtim.tv_nsec)
        return true;
    return status->st_size > LARGE_RECORD && clock_now_ms() - known->read_ms < LARGE_AGAIN_MS;
}

/* A copy that is small enough to be kept for hours; of a run with many seals, or of what is no guard's record, a part.
 */
static struct json *short_of(const struct json *run)
{
    if (json_memory(run) <= KEPT_BYTES)
        return json_copy(run);
    struct json *part = json_copy(run);
    daemon_runs_shorten(part);
    if (json_memory(part) <= KEPT_BYTES)
        return part;
    json_free(part);
    return daemon_access_redact(run);
}

static enum error_code refresh(int folder_fd, uid_t uid, struct daemon_known_run *known, struct error *err)
{
    struct stat status;
    struct json *record = NULL;
    int fd = -1;
    enum error_code code = file_below_open(folder_fd, record_file, uid, &fd, &status, err);
    if (code != ERROR_NONE)
        return code;
    close(fd);
    if (is_current(known, &status))
        return ERROR_NONE;
    code = read_record(folder_fd, uid, known->name, &status, &record, err);
    if (code != ERROR_NONE)
        return code;
    json_free(known->run);
    known->run = short_of(json_member(record, "run"));
    known->status = status;
    known->read_ms = clock_now_ms();
    json_free(record);
    return ERROR_NONE;
}

/* Since the file was written. */
static uint64_t age_ms(const struct stat *status)
{
    int64_t written_ms = (int64_t)status->st_mtim.tv_sec * 1000 + status->st_mtim.tv_nsec / 1000000;
    int64_t age = clock_wall_ms() - written_ms;
    return age > 0 ? (uint64_t)age : 0;
}

enum error_code daemon_runs_run(const struct daemon *daemon, const char *name, bool live, struct json **ret_run,
                                struct error *err)
{
    struct error own = ERROR_INIT;
    uid_t uid;
    int fd = -1;
    if (err == NULL)
        err = &own;
    enum error_code code = daemon_runs_open(daemon, name, &fd, &uid, err);
    if (code != ERROR_NONE)
        return code;
    struct daemon_known_run *known = remember(daemon->known, name);
    code = refresh(fd, uid, known, err);
    struct json *run = NULL;
    if (code == ERROR_NONE) {
        run = json_copy(known->run);
        if (live)
            run_json_age(run, age_ms(&known->status));
        else
            mark_lost(daemon, name, run);
    } else if (code == ERROR_NOT_FOUND) {
        run = run_without_record(daemon, name, live);
    }
    if (run == NULL)
        code = judge(daemon, name, fd, live, code, err);
    if (known->run == NULL)
        forget_empty(daemon->known, known);
    close(fd);
    if (run == NULL)
        return code;
    *ret_run = run;
    return ERROR_NONE;
}

/* ---- the server's output ---- */

bool daemon_runs_log(const struct daemon *daemon, const char *name, uint64_t *offset, size_t most, struct buffer *text)
{
    static const char *const files[] = {"server.log.1", "server.log"};
    uint64_t begin = 0;    /* of the file, counted over both */
    uint64_t at = *offset; /* what comes next */
    size_t start = text->length;
    uid_t uid;
    int folder_fd = -1;
    if (daemon_runs_open(daemon, name, &folder_fd, &uid, NULL) != ERROR_NONE)
        return true;
    for (size_t i = 0; i < sizeof files / sizeof files[0]; i++) {
        struct stat status;
        int fd = -1;
        if (file_below_open(folder_fd, files[i], uid, &fd, &status, NULL) != ERROR_NONE)
            continue;
        uint64_t size = (uint64_t)status.st_size;
        size_t room = most - (text->length - start);
        if (at >= begin && at < begin + size && room > 0) {
            file_below_read(fd, files[i], (off_t)(at - begin), room, text, NULL);
            at = *offset + (text->length - start);
        }
        begin += size;
        close(fd);
    }
    close(folder_fd);
    if (*offset > begin)
        *offset = begin;
    bool all = *offset + (text->length - start) >= begin;
    if (!all) {
        text->length -= text_unfinished(text->data + start, text->length - start);
        text->data[text->length] = '\0';
    }
    return all;
}
