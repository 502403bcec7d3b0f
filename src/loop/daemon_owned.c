/* Happy path: written once when a run was started, read whenever somebody asks whose it is or what to kill.
 *
 * A write fails (full, read-only): the caller hears it, the old record stays whole.
 * What is there is no whole record of ours: set aside as NAME.json.damaged, told once, and the others are not affected.
 * The folder cannot be changed: it stays where it is, and is told once for each daemon.
 * The record is of another boot: it counts as one of a run that is over, whoever has its pid now. */
#include "base/memory.h"
#include "base/text.h"
#include "json/json.h"
#include "loop/clock.h"
#include "loop/daemon_private.h"
#include "sys/file.h"
#include "sys/file_below.h"
#include "sys/launch.h"
#include "sys/process.h"
#include "sys/run_json.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char schema[] = "kldump.owned/1";
enum { OWNED_MAX = 16 * 1024, BOOT_ID_MAX = 64 };

static bool read_boot_id(char ret_text[BOOT_ID_MAX])
{
    struct buffer text;
    buffer_init(&text);
    bool read = file_read("/proc/sys/kernel/random/boot_id", BOOT_ID_MAX - 1, &text, NULL) == ERROR_NONE;
    text_copy(ret_text, BOOT_ID_MAX, read ? text.data : "");
    ret_text[strcspn(ret_text, "\n")] = '\0';
    buffer_fini(&text);
    return ret_text[0] != '\0';
}

/* ---- writing ---- */

static void print(const struct daemon_owned *owned, const char *boot_id, struct buffer *text)
{
    const struct launch_result *launched = owned->launched;
    struct json *record = json_object();
    json_set_string(record, "schema", schema);
    json_set_string(record, "boot_id", boot_id);
    json_set_string(record, "name", owned->name);
    json_set_u64(record, "uid", owned->uid);
    json_set_string(record, "owner", owned->owner);
    json_set_u64(record, "started_unix_ms", owned->started_unix_ms);
    json_set_u64(record, "pid", (uint64_t)launched->pid);
    json_set_u64(record, "start_ticks", launched->start_ticks);
    json_set_string(record, "unit", launched->unit);
    json_set_string(record, "cgroup", launched->cgroup);
    json_set_u64(record, "cgroup_inode", launched->cgroup_inode);
    json_set_string(record, "end", owned->end);
    if (owned->said != NULL)
        json_set_child(record, "said", json_copy(owned->said));
    json_print_pretty(record, text);
    buffer_text(text, "\n");
    json_free(record);
}

enum error_code daemon_owned_write(const struct daemon *daemon, const struct daemon_owned *owned, struct error *err)
{
    char boot_id[BOOT_ID_MAX];
    if (!read_boot_id(boot_id))
        return error_set(err, ERROR_SYSTEM, "/proc/sys/kernel/random/boot_id cannot be read; is /proc mounted?");
    char *folder = memory_format("%s/owned", daemon->runtime);
    char *path = memory_format("%s/%s.json", folder, owned->name);
    struct buffer text;
    buffer_init(&text);
    enum error_code code = file_make_private_folder(folder, err);
    print(owned, boot_id, &text);
    if (code == ERROR_NONE)
        code = file_replace(path, text.data, text.length, 0600, FILE_NO_SYNC, err);
    buffer_fini(&text);
    free(path);
    free(folder);
    return code;
}

/* ---- reading ---- */

static enum error_code parse_launched(const struct json *record, struct launch_result *launched, struct error *err)
{
    const char *unit, *cgroup;
    uint64_t pid;
    enum error_code code = json_get_u64(record, "pid", &pid, err);
    if (code == ERROR_NONE && (pid < 2 || pid > INT32_MAX))
        code = error_set(err, ERROR_FORMAT, "pid %llu is none", (unsigned long long)pid);
    if (code == ERROR_NONE)
        code = json_get_u64(record, "start_ticks", &launched->start_ticks, err);
    if (code == ERROR_NONE)
        code = json_get_u64(record, "cgroup_inode", &launched->cgroup_inode, err);
    if (code == ERROR_NONE)
        code = json_get_string(record, "unit", &unit, err);
    if (code == ERROR_NONE)
        code = json_get_string(record, "cgroup", &cgroup, err);
    if (code != ERROR_NONE)
        return code;
    if (strlen(unit) >= sizeof launched->unit || strlen(cgroup) >= sizeof launched->cgroup)
        return error_set(err, ERROR_FORMAT, "the name of its unit or cgroup is too long");
    launched->pid = (pid_t)pid;
    text_copy(launched->unit, sizeof launched->unit, unit);
    text_copy(launched->cgroup, sizeof launched->cgroup, cgroup);
    return ERROR_NONE;
}

static enum error_code parse_texts(const struct json *record, const char *name, struct daemon_owned *owned,
                                   struct error *err)
{
    const char *found, *own_name, *owner, *end;
    enum error_code code = json_get_string(record, "schema", &found, err);
    if (code == ERROR_NONE && strcmp(found, schema) != 0)
        code = error_set(err, ERROR_FORMAT, "schema is \"%.80s\", expected \"%s\"", found, schema);
    if (code == ERROR_NONE)
        code = json_get_string(record, "name", &own_name, err);
    if (code == ERROR_NONE && strcmp(own_name, name) != 0)
        code = error_set(err, ERROR_FORMAT, "it is of run \"%.80s\"", own_name);
    if (code == ERROR_NONE)
        code = json_get_string(record, "owner", &owner, err);
    if (code == ERROR_NONE)
        code = json_get_string(record, "end", &end, err);
    if (code != ERROR_NONE)
        return code;
    text_copy(owned->name, sizeof owned->name, name);
    text_copy(owned->owner, sizeof owned->owner, owner);
    text_copy(owned->end, sizeof owned->end, end);
    return ERROR_NONE;
}

/* Of a run whose guard has told no end there is none. */
static enum error_code parse_said(const struct json *record, struct json **ret_said, struct error *err)
{
    const struct json *said = json_member(record, "said");
    if (said == NULL)
        return ERROR_NONE;
    struct json *tried = json_object();
    enum error_code code = run_json_end_as(tried, said, err);
    json_free(tried);
    if (code == ERROR_NONE)
        *ret_said = json_copy(said);
    return code;
}

static enum error_code parse(const struct buffer *text, const char *name, struct daemon_owned *owned, struct error *err)
{
    struct json *record = NULL;
    const char *boot_id = "";
    char this_boot[BOOT_ID_MAX];
    uint64_t uid = 0;
    enum error_code code = json_parse(text->data, text->length,
                                      (struct json_limits){OWNED_MAX, JSON_DEPTH, JSON_ANY_VALUES}, &record, err);
    if (code == ERROR_NONE)
        code = parse_texts(record, name, owned, err);
    if (code == ERROR_NONE)
        code = json_get_string(record, "boot_id", &boot_id, err);
    if (code == ERROR_NONE)
        code = json_get_u64(record, "uid", &uid, err);
    if (code == ERROR_NONE && uid >= UINT32_MAX)
        code = error_set(err, ERROR_FORMAT, "uid %llu is none", (unsigned long long)uid);
    if (code == ERROR_NONE)
        code = json_get_u64(record, "started_unix_ms", &owned->started_unix_ms, err);
    if (code == ERROR_NONE)
        code = parse_launched(record, owned->launched, err);
    if (code == ERROR_NONE)
        code = parse_said(record, &owned->said, err);
    owned->uid = (uid_t)uid;
    owned->this_boot = code == ERROR_NONE && read_boot_id(this_boot) && strcmp(boot_id, this_boot) == 0;
    json_free(record);
    return code;
}

static enum error_code read_file(int folder_fd, const char *file, struct buffer *text, struct error *err)
{
    struct stat status;
    int fd = -1;
    enum error_code code = file_below_open(folder_fd, file, geteuid(), &fd, &status, err);
    if (code != ERROR_NONE)
        return code;
    code = file_below_read(fd, file, 0, OWNED_MAX + 1, text, err);
    if (code == ERROR_NONE && text->length > OWNED_MAX)
        code = error_set(err, ERROR_FORMAT, "larger than the limit of %d bytes", OWNED_MAX);
    close(fd);
    return code;
}

/* Set aside, and told; where it cannot be set aside, told at the first time alone. */
static enum error_code damaged(const struct daemon *daemon, int folder_fd, const char *file, struct error *err)
{
    bool aside = file_below_set_aside(folder_fd, file);
    err->code = ERROR_FORMAT;
    error_prefix(err, "damaged record %s/owned/%s", daemon->runtime, file);
    bool told = list_has(&daemon->known->damaged_told, file);
    if (aside || !told)
        fprintf(stderr, "kldumpd: %s; %s\n", err->message,
                aside ? "set aside as .damaged beside it" : "it cannot be renamed, and counts as missing");
    if (!aside && !told)
        list_add(&daemon->known->damaged_told, file);
    return ERROR_FORMAT;
}

static bool guard_lives(const struct daemon_owned *owned)
{
    struct process process;
    return owned->this_boot && process_read(owned->launched->pid, &process) && process_is_alive(&process) &&
           process.start_ticks == owned->launched->start_ticks;
}

enum error_code daemon_owned_read(const struct daemon *daemon, const char *name, struct daemon_owned *ret_owned,
                                  struct error *err)
{
    struct error own = ERROR_INIT;
    if (err == NULL)
        err = &own;
    char *folder = memory_format("%s/owned", daemon->runtime);
    int folder_fd = open(folder, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    free(folder);
    if (folder_fd < 0)
        return error_set(err, ERROR_NOT_FOUND, "no record of our own");
    struct daemon_owned owned = {.launched = memory_new(sizeof *owned.launched)};
    owned.launched->pidfd = -1;
    char *file = memory_format("%s.json", name);
    struct buffer text;
    buffer_init(&text);
    enum error_code code = read_file(folder_fd, file, &text, err);
    if (code == ERROR_NONE)
        code = parse(&text, name, &owned, err);
    if (code == ERROR_FORMAT || code == ERROR_TOO_LARGE)
        code = damaged(daemon, folder_fd, file, err);
    if (code == ERROR_NONE) {
        owned.live = guard_lives(&owned);
        *ret_owned = owned;
    } else {
        daemon_owned_fini(&owned);
    }
    buffer_fini(&text);
    free(file);
    close(folder_fd);
    return code;
}

void daemon_owned_remove(const struct daemon *daemon, const char *name)
{
    char *path = memory_format("%s/owned/%s.json", daemon->runtime, name);
    unlink(path);
    free(path);
}

void daemon_owned_end(const struct daemon_owned *owned, struct json *run)
{
    if (owned != NULL && owned->said != NULL && run_json_end_as(run, owned->said, NULL) == ERROR_NONE)
        return;
    if (owned != NULL && strcmp(owned->end, DAEMON_END_BACKSTOP) == 0)
        run_json_end_backstop(run);
    else
        run_json_end(run, RUN_OUTCOME_GUARD_LOST,
                     "the guard was lost without a last word; its keeper kills the run then");
    json_set_null(run, "pid");
}

struct json *daemon_owned_run(const struct daemon_owned *owned)
{
    static const char *const unknown[] = {"port", "url", "exp", "dir"};
    struct json *run = json_object();
    char at[CLOCK_TEXT];
    json_set_string(run, "name", owned->name);
    json_set_string(run, "owner", owned->owner);
    json_set_u64(run, "uid", owned->uid);
    json_set_u64(run, "guard_pid", (uint64_t)owned->launched->pid);
    json_set_string(run, "started_at", clock_text((int64_t)owned->started_unix_ms, at));
    for (size_t i = 0; i < sizeof unknown / sizeof unknown[0]; i++)
        json_set_null(run, unknown[i]);
    daemon_owned_end(owned, run);
    return run;
}

void daemon_owned_fini(struct daemon_owned *owned)
{
    free(owned->launched);
    json_free(owned->said);
    owned->launched = NULL;
    owned->said = NULL;
}
