/* Happy path: a run is started, its record written, its guard's pidfd watched. It ends: what it left is ended, and it
 * is counted. The daemon starts: all records are read, the guards that live are watched again.
 *
 * The record cannot be written: told, kept in mind, tried again at each list, end of a run, and our own.
 * The daemon ends while a guard is launched: the record is written, and nobody watches.
 * The guard is gone when the daemon comes back, or is killed together with its keeper: what is left in the run's
 * cgroup, which nobody watches over, is killed. A run of another boot has left no process.
 * A record is damaged (daemon_owned.c sets it aside), or was never written: the run is listed from its folder, and is
 * taken over when its guard calls in. */
#include "base/memory.h"
#include "base/text.h"
#include "json/json.h"
#include "loop/clock.h"
#include "loop/daemon_private.h"
#include "loop/registry.h"
#include "sys/file_below.h"
#include "sys/launch.h"
#include "sys/process.h"
#include "sys/run_json.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Of one guard; freed by its close callback. */
struct watch {
    uv_poll_t poll;
    struct daemon *daemon;
    int pidfd;
    char name[65];
};

struct daemon_kept {
    struct daemon_kept *next;
    struct daemon_owned owned;
    struct watch *watch; /* NULL: its guard is gone */
    bool unwritten;
};

static struct daemon_kept *find(const struct daemon *daemon, const char *name)
{
    struct daemon_kept *kept = daemon->known != NULL ? daemon->known->kept : NULL;
    while (kept != NULL && strcmp(kept->owned.name, name) != 0)
        kept = kept->next;
    return kept;
}

/* ---- the guard's end ---- */

static void on_closed(uv_handle_t *handle)
{
    struct watch *watch = handle->data;
    close(watch->pidfd);
    free(watch);
}

static void unwatch(struct daemon_kept *kept)
{
    if (kept->watch != NULL)
        uv_close((uv_handle_t *)&kept->watch->poll, on_closed);
    kept->watch = NULL;
}

/* No guard watches over it any more, and perhaps no keeper. */
static void end_rest(const struct daemon_owned *owned)
{
    struct error err = ERROR_INIT;
    if (!owned->this_boot || owned->launched->cgroup[0] == '\0')
        return;
    enum error_code code = launch_kill(owned->launched, &err);
    if (code != ERROR_NONE && code != ERROR_NOT_FOUND)
        fprintf(stderr, "kldumpd: what run %s left behind: %s\n", owned->name, err.message);
}

static void on_gone(uv_poll_t *poll, int status, int events)
{
    struct watch *watch = poll->data;
    struct daemon *daemon = watch->daemon;
    struct daemon_kept *kept = find(daemon, watch->name);
    (void)status;
    (void)events;
    if (kept == NULL || kept->watch != watch)
        return;
    registry_hear(daemon->registry, kept->owned.launched->pid); /* its last word may lie there still */
    kept->owned.live = false;
    unwatch(kept);
    end_rest(&kept->owned);
    daemon_ended_look(daemon);
    daemon_tell(daemon);
}

/* Takes `pidfd` over, -1: none. False: that guard is gone. */
static bool watch_guard(struct daemon *daemon, struct daemon_kept *kept, int pidfd)
{
    struct process process;
    const struct launch_result *launched = kept->owned.launched;
    if (pidfd < 0)
        pidfd = process_open(launched->pid);
    /* looked at after it was opened: this very process, and no later one of its number */
    if (pidfd < 0 || !process_read(launched->pid, &process) || process.start_ticks != launched->start_ticks) {
        if (pidfd >= 0)
            close(pidfd);
        return false;
    }
    struct watch *watch = memory_new(sizeof *watch);
    watch->daemon = daemon;
    watch->pidfd = pidfd;
    text_copy(watch->name, sizeof watch->name, kept->owned.name);
    if (uv_poll_init(&daemon->loop, &watch->poll, pidfd) != 0) {
        close(pidfd);
        free(watch);
        return true;
    }
    watch->poll.data = watch;
    kept->watch = watch;
    uv_poll_start(&watch->poll, UV_READABLE, on_gone);
    return true;
}

/* ---- begin and end ---- */

static struct daemon_kept *add(struct daemon *daemon, struct daemon_owned *owned)
{
    struct daemon_kept *kept = memory_new(sizeof *kept);
    kept->owned = *owned;
    *owned = (struct daemon_owned){0};
    kept->next = daemon->known->kept;
    daemon->known->kept = kept;
    return kept;
}

static void find_again(struct daemon *daemon, const char *name)
{
    struct daemon_owned owned;
    if (daemon_owned_read(daemon, name, &owned, NULL) != ERROR_NONE)
        return;
    struct daemon_kept *kept = add(daemon, &owned);
    if (kept->owned.live && watch_guard(daemon, kept, -1))
        return;
    kept->owned.live = false;
    end_rest(&kept->owned);
}

void daemon_keep_begin(struct daemon *daemon)
{
    char *path = memory_format("%s/owned", daemon->runtime);
    DIR *folder = opendir(path);
    free(path);
    if (folder == NULL)
        return;
    for (const struct dirent *entry; (entry = readdir(folder)) != NULL;) {
        if (!text_ends(entry->d_name, ".json"))
            continue;
        char *name = memory_copy_n(entry->d_name, strlen(entry->d_name) - strlen(".json"));
        if (text_is_name(name))
            find_again(daemon, name);
        free(name);
    }
    closedir(folder);
}

void daemon_keep_write_again(const struct daemon *daemon)
{
    for (struct daemon_kept *kept = daemon->known->kept; kept != NULL; kept = kept->next)
        if (kept->unwritten)
            kept->unwritten = daemon_owned_write(daemon, &kept->owned, NULL) != ERROR_NONE;
}

void daemon_keep_end(struct daemon *daemon)
{
    if (daemon->known != NULL)
        daemon_keep_write_again(daemon);
    for (struct daemon_kept *kept = daemon->known != NULL ? daemon->known->kept : NULL; kept != NULL; kept = kept->next)
        unwatch(kept);
}

static void free_one(struct daemon_kept *kept)
{
    daemon_owned_fini(&kept->owned);
    free(kept);
}

void daemon_keep_free(struct daemon_kept *kept)
{
    while (kept != NULL) {
        struct daemon_kept *next = kept->next;
        free_one(kept);
        kept = next;
    }
}

/* ---- what others ask and tell ---- */

static void drop(const struct daemon *daemon, const char *name)
{
    for (struct daemon_kept **link = &daemon->known->kept; *link != NULL; link = &(*link)->next) {
        struct daemon_kept *kept = *link;
        if (strcmp(kept->owned.name, name) != 0)
            continue;
        *link = kept->next;
        unwatch(kept);
        free_one(kept);
        return;
    }
}

void daemon_keep_started(struct daemon *daemon, const char *name, uid_t uid, const struct launch_result *launched)
{
    struct error err = ERROR_INIT;
    struct daemon_owned owned = {.uid = uid,
                                 .launched = memory_new(sizeof *owned.launched),
                                 .this_boot = true,
                                 .started_unix_ms = (uint64_t)clock_wall_ms()};
    const char *owner = daemon_names_find(daemon, uid);
    text_copy(owned.name, sizeof owned.name, name);
    text_copy(owned.owner, sizeof owned.owner, owner != NULL ? owner : "");
    *owned.launched = *launched;
    owned.launched->pidfd = -1;
    drop(daemon, name);
    struct daemon_kept *kept = add(daemon, &owned);
    kept->unwritten = daemon_owned_write(daemon, &kept->owned, &err) != ERROR_NONE;
    if (kept->unwritten)
        fprintf(stderr,
                "kldumpd: run %s goes on, but our own record of it is kept in mind alone until it can be written: %s\n",
                name, err.message);
    kept->owned.live = watch_guard(daemon, kept, fcntl(launched->pidfd, F_DUPFD_CLOEXEC, 0));
    if (!kept->owned.live)
        end_rest(&kept->owned);
    if (daemon->ending)
        unwatch(kept);
    daemon_ended_look(daemon);
    daemon_tell(daemon);
}

const struct daemon_owned *daemon_keep_find(const struct daemon *daemon, const char *name)
{
    const struct daemon_kept *kept = find(daemon, name);
    return kept != NULL ? &kept->owned : NULL;
}

bool daemon_keep_is_live(const struct daemon *daemon, const char *name)
{
    const struct daemon_kept *kept = find(daemon, name);
    return kept != NULL && kept->owned.live;
}

bool daemon_keep_is_going(const struct daemon *daemon, uid_t uid)
{
    const struct daemon_kept *kept = daemon->known->kept;
    while (kept != NULL &&
           !(kept->owned.live && kept->owned.uid == uid && !daemon_start_is_under_way(daemon, kept->owned.name) &&
             !daemon_runs_is_locked(daemon, kept->owned.name)))
        kept = kept->next;
    return kept != NULL;
}

size_t daemon_keep_count(const struct daemon *daemon, uid_t uid)
{
    size_t count = 0;
    for (const struct daemon_kept *kept = daemon->known->kept; kept != NULL; kept = kept->next)
        count += kept->owned.live && kept->owned.uid == uid;
    return count;
}

void daemon_keep_note_end(const struct daemon *daemon, const char *name, const char *end)
{
    struct daemon_kept *kept = find(daemon, name);
    if (kept == NULL)
        return;
    text_copy(kept->owned.end, sizeof kept->owned.end, end);
    kept->unwritten = daemon_owned_write(daemon, &kept->owned, NULL) != ERROR_NONE;
}

/* One of a start under way gets its record when that is launched. */
static bool may_adopt(const struct daemon *daemon, const struct registry_entry *entry)
{
    uid_t uid;
    int fd = -1;
    if (daemon->ending || daemon_start_is_under_way(daemon, entry->name) || daemon_keep_is_live(daemon, entry->name) ||
        daemon_runs_open(daemon, entry->name, &fd, &uid, NULL) != ERROR_NONE)
        return false;
    bool its = uid == entry->uid && file_below_is_locked(fd, "lock", uid);
    close(fd);
    return its;
}

/* A run of the wrapper in our folder: only its end is kept, there is nothing to be killed then. */
static bool find_wrapper(const struct registry_entry *entry, struct launch_result *ret_launched)
{
    struct process process;
    struct json *end = run_json_end_of(entry->run);
    bool found = end != NULL && process_read(entry->pid, &process);
    json_free(end);
    if (found)
        *ret_launched = (struct launch_result){.pid = entry->pid, .start_ticks = process.start_ticks};
    return found;
}

static void adopt(struct daemon *daemon, const struct registry_entry *entry)
{
    struct launch_result launched;
    if ((launch_find(entry->name, entry->pid, &launched, NULL) != ERROR_NONE && !find_wrapper(entry, &launched)) ||
        process_signal_open(entry->pidfd, 0) != 0) /* else it was that process */
        return;
    launched.pidfd = entry->pidfd;
    daemon_keep_started(daemon, entry->name, entry->uid, &launched);
}

void daemon_keep_said(struct daemon *daemon, const struct registry_entry *entry)
{
    if (may_adopt(daemon, entry))
        adopt(daemon, entry);
    struct daemon_kept *kept = find(daemon, entry->name);
    if (kept == NULL || !kept->owned.live || kept->owned.uid != entry->uid || kept->owned.launched->pid != entry->pid ||
        kept->owned.said != NULL)
        return;
    kept->owned.began = true;
    kept->owned.said = run_json_end_of(entry->run);
    if (kept->owned.said != NULL)
        kept->unwritten = daemon_owned_write(daemon, &kept->owned, NULL) != ERROR_NONE;
}

void daemon_keep_refused(struct daemon *daemon, const char *name, pid_t pid, struct daemon_owned *previous)
{
    const struct daemon_kept *kept = find(daemon, name);
    if (kept == NULL || kept->owned.launched->pid != pid)
        return; /* the name was taken again meanwhile */
    end_rest(&kept->owned);
    drop(daemon, name);
    if (previous != NULL)
        add(daemon, previous);
    daemon_ended_look(daemon);
    daemon_tell(daemon);
}

void daemon_keep_forget(const struct daemon *daemon, const char *name)
{
    drop(daemon, name);
    daemon_owned_remove(daemon, name);
}
