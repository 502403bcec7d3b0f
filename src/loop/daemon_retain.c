/* Happy path: the folders of ended runs are sorted by user and age; from where a user has too many, or too much, on,
 * each is removed below its own descriptor, with the daemon's own record of it.
 *
 * A guard takes the name again just now: it holds the lock, and the folder is left alone. The other way round it finds
 * the folder gone, and says so; that can only happen to the oldest of many runs.
 * Something cannot be removed (mounted over, too deep): left, and tried again later. */
#include "base/memory.h"
#include "loop/daemon_private.h"
#include "sys/file_below.h"

#include <stdlib.h>
#include <string.h>
#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

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

/* False: it lives, or cannot be looked at. */
static bool look(const struct daemon *daemon, const char *name, struct left *ret_left)
{
    static const char *const files[] = {"record.json", "server.log", "server.log.1"};
    struct stat status;
    struct left left = {.name = name};
    int fd = -1;
    if (daemon_runs_is_live(daemon, name) || daemon_runs_open(daemon, name, &fd, &left.uid, NULL) != ERROR_NONE)
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

static void remove_one(const struct daemon *daemon, int runs_fd, const struct left *left)
{
    struct stat status;
    uid_t uid;
    int folder_fd = -1, lock_fd = -1;
    if (daemon_runs_open(daemon, left->name, &folder_fd, &uid, NULL) != ERROR_NONE)
        return;
    enum error_code code = file_below_open(folder_fd, "lock", uid, &lock_fd, &status, NULL);
    bool taken = code == ERROR_NONE && flock(lock_fd, LOCK_EX | LOCK_NB) != 0;
    if (!taken && file_below_remove(runs_fd, left->name))
        daemon_keep_forget(daemon, left->name);
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
    size_t count = 0, runs = 0;
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
            remove_one(daemon, runs_fd, &all[i]);
    }
    daemon_runs_forget_others(daemon, &names); /* what was removed the last time */
    free(all);
    close(runs_fd);
    list_fini(&names);
}
