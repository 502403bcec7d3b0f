/* Happy path: the folders of ended runs are sorted by user and age; from where a user has too many, or too much, on,
 * each is removed below its own descriptor, with the daemon's own record of it.
 *
 * A guard takes the name again just now: it holds the lock, and the folder is left alone. The other way round it finds
 * the folder gone, and says so; that can only happen to the oldest of many runs.
 * Something cannot be removed (mounted over, too deep): left, and tried again later.
 * There is more in it than the loop should wait for: what is left is set aside as runs/.removing.N, which is no name of
 * a run, and removed piece by piece, one each PIECE_MS. */
#include "base/memory.h"
#include "base/text.h"
#include "loop/daemon_private.h"
#include "sys/file_below.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

enum { PIECE_MS = 500, ASIDE_TRIES = 100 };
static const char aside_prefix[] = ".removing.";

struct daemon_tidy {
    struct daemon *daemon;
    uv_timer_t timer;
    bool is_open;
};

struct left {
    const char *name;
    uid_t uid;
    int64_t ended_s, ended_ns;
    uint64_t bytes;
};

/* By user, the newest first. */
static int compare_left(const void *first, const void *second)
{
    const struct left *a = first, *b = second;
    if (a->uid != b->uid)
        return a->uid < b->uid ? -1 : 1;
    if (a->ended_s != b->ended_s)
        return a->ended_s > b->ended_s ? -1 : 1;
    if (a->ended_ns != b->ended_ns)
        return a->ended_ns > b->ended_ns ? -1 : 1;
    return strcmp(a->name, b->name);
}

/* False: it lives, is about to (its guard has no lock yet), or cannot be looked at. */
static bool look(const struct daemon *daemon, const char *name, struct left *ret_left)
{
    static const char *const files[] = {"record.json", "server.log", "server.log.1"};
    struct stat status;
    struct left left = {.name = name};
    int fd = -1;
    if (daemon_runs_is_live(daemon, name) || daemon_start_is_under_way(daemon, name) ||
        daemon_runs_open(daemon, name, &fd, &left.uid, NULL) != ERROR_NONE)
        return false;
    fstat(fd, &status);
    for (size_t i = 0; i < sizeof files / sizeof files[0]; i++) {
        struct stat one;
        if (fstatat(fd, files[i], &one, AT_SYMLINK_NOFOLLOW) != 0)
            continue;
        left.bytes += (uint64_t)one.st_blocks * 512;
        if (i == 0)
            status = one;
    }
    left.ended_s = status.st_mtim.tv_sec;
    left.ended_ns = status.st_mtim.tv_nsec;
    close(fd);
    *ret_left = left;
    return true;
}

/* ---- piece by piece ---- */

/* One piece of what lies aside. True: there is more. */
static bool remove_piece(const struct daemon *daemon)
{
    bool more = false;
    size_t most = FILE_BELOW_REMOVE_MAX;
    int runs_fd = daemon_runs_open_all(daemon);
    DIR *folder = runs_fd >= 0 ? fdopendir(runs_fd) : NULL;
    if (folder == NULL) {
        if (runs_fd >= 0)
            close(runs_fd);
        return false;
    }
    for (const struct dirent *entry; most > 0 && (entry = readdir(folder)) != NULL;)
        if (text_starts(entry->d_name, aside_prefix))
            more = file_below_remove(runs_fd, entry->d_name, &most) == FILE_BELOW_MORE || more;
    closedir(folder);
    return more;
}

static void on_piece(uv_timer_t *timer)
{
    const struct daemon_tidy *tidy = timer->data;
    if (!remove_piece(tidy->daemon))
        uv_timer_stop(timer);
}

static void begin_pieces(const struct daemon *daemon)
{
    struct daemon_tidy *tidy = daemon->known->tidy;
    if (tidy == NULL || daemon->ending)
        return;
    if (!tidy->is_open) {
        uv_timer_init(&tidy->daemon->loop, &tidy->timer);
        tidy->timer.data = tidy;
        tidy->is_open = true;
    }
    uv_timer_start(&tidy->timer, on_piece, PIECE_MS, PIECE_MS);
}

static void on_closed(uv_handle_t *timer)
{
    free(timer->data);
}

void daemon_retain_end(struct daemon *daemon)
{
    struct daemon_tidy *tidy = daemon->known != NULL ? daemon->known->tidy : NULL;
    if (tidy == NULL)
        return;
    daemon->known->tidy = NULL;
    if (tidy->is_open)
        uv_close((uv_handle_t *)&tidy->timer, on_closed);
    else
        free(tidy);
}

void daemon_retain_begin(struct daemon *daemon)
{
    daemon->known->tidy = memory_new(sizeof *daemon->known->tidy);
    daemon->known->tidy->daemon = daemon;
    daemon_retain(daemon);
    if (remove_piece(daemon)) /* of an earlier daemon */
        begin_pieces(daemon);
}

/* True: the name is free. */
static bool set_aside(const struct daemon *daemon, int runs_fd, const char *name)
{
    char aside[32];
    for (unsigned i = 0; i < ASIDE_TRIES; i++) {
        snprintf(aside, sizeof aside, "%s%u", aside_prefix, i);
        if (renameat2(runs_fd, name, runs_fd, aside, RENAME_NOREPLACE) == 0) {
            fprintf(stderr,
                    "kldumpd: what the old run %s has left is too much to be removed at once; it is set aside as "
                    "%s/runs/%s and removed piece by piece\n",
                    name, daemon->runtime, aside);
            return true;
        }
    }
    return false;
}

/* ---- whole runs ---- */

static void remove_one(const struct daemon *daemon, int runs_fd, const struct left *left, size_t *most)
{
    struct stat status;
    uid_t uid;
    int folder_fd = -1, lock_fd = -1;
    if (daemon_runs_open(daemon, left->name, &folder_fd, &uid, NULL) != ERROR_NONE)
        return;
    enum error_code code = file_below_open(folder_fd, "lock", uid, &lock_fd, &status, NULL);
    bool taken = code == ERROR_NONE && flock(lock_fd, LOCK_EX | LOCK_NB) != 0;
    enum file_below_left rest = taken ? FILE_BELOW_STUCK : file_below_remove(runs_fd, left->name, most);
    if (rest == FILE_BELOW_GONE || (rest == FILE_BELOW_MORE && set_aside(daemon, runs_fd, left->name)))
        daemon_keep_forget(daemon, left->name);
    if (rest == FILE_BELOW_MORE)
        begin_pieces(daemon);
    if (lock_fd >= 0)
        close(lock_fd);
    close(folder_fd);
}

void daemon_retain(const struct daemon *daemon)
{
    struct list names = {0};
    int runs_fd = daemon_runs_open_all(daemon);
    if (runs_fd < 0)
        return;
    daemon_runs_names(daemon, false, &names);
    struct left *all = memory_new((names.count + 1) * sizeof *all);
    size_t count = 0, runs = 0, most = FILE_BELOW_REMOVE_MAX;
    uint64_t bytes = 0;
    for (size_t i = 0; i < names.count; i++)
        count += look(daemon, names.items[i], &all[count]);
    if (count > 1)
        qsort(all, count, sizeof *all, compare_left);
    for (size_t i = 0; i < count; i++) {
        bool same = i > 0 && all[i].uid == all[i - 1].uid;
        runs = same ? runs + 1 : 1;
        bytes = same ? bytes + all[i].bytes : all[i].bytes;
        if (runs > DAEMON_RETAIN_RUNS || (runs > 1 && bytes > DAEMON_RETAIN_BYTES))
            remove_one(daemon, runs_fd, &all[i], &most);
    }
    daemon_runs_forget_others(daemon, &names); /* what was removed the last time */
    free(all);
    close(runs_fd);
    list_fini(&names);
}
