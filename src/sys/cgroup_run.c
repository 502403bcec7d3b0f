#include "sys/cgroup_run.h"

#include "base/memory.h"
#include "base/text.h"
#include "sys/cgroup.h"
#include "sys/cgroup_control.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

enum { CGROUP_RUN_TRIES = 20 };
static const char cgroup_run_prefix[] = "kldump-run-", cgroup_run_suffix[] = ".run";

/* The files that the delegate needs to move processes and to make cgroups below; none of those that limit it. */
static bool cgroup_run_give(int fd, uid_t uid, gid_t gid)
{
    static const char *const files[] = {"cgroup.procs", "cgroup.threads", "cgroup.subtree_control", "cgroup.kill",
                                        "cgroup.freeze"};
    if (geteuid() != 0)
        return true;
    for (size_t i = 0; i < sizeof files / sizeof files[0]; i++)
        if (fchownat(fd, files[i], uid, gid, 0) < 0 && errno != ENOENT)
            return false;
    return fchown(fd, uid, gid) == 0;
}

/* Marked as systemd marks what it delegates (a guard of root's cannot tell it by the owner), and by one alone: between
 * its making and its opening it may have been removed by cgroup_run_clear and made again by another daemon, and then
 * both have opened the same. A kernel without the mark (before 5.7, not root) leaves that to chance. */
static bool cgroup_run_claim(int fd)
{
    if (fsetxattr(fd, "user.delegate", "1", 1, XATTR_CREATE) == 0)
        return true;
    return errno != EEXIST && (fsetxattr(fd, "trusted.delegate", "1", 1, XATTR_CREATE) == 0 || errno != EEXIST);
}

/* cgroup_run_clear may have come between its making and its lock. */
static bool cgroup_run_is_there(int fd, const char *path)
{
    struct stat own, there;
    return fstat(fd, &own) == 0 && lstat(path, &there) == 0 && own.st_ino == there.st_ino;
}

bool cgroup_run_make(const char *name, uid_t uid, gid_t gid, int *ret_fd, char ret_path[CGROUP_RUN_PATH])
{
    char own[4096], mount[4096], number[16] = "";
    if (!cgroup_own(own, sizeof own, mount, sizeof mount))
        return false;
    for (unsigned i = 1, others = 0; i <= CGROUP_RUN_TRIES; i++) {
        if (others > 0)
            snprintf(number, sizeof number, ".%u", others + 1);
        char *path = memory_format("%s/%s%s%s%s", own, cgroup_run_prefix, name, number, cgroup_run_suffix);
        bool made = mkdir(path, 0755) == 0;
        bool taken = !made && errno == EEXIST;
        int fd = made ? open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC) : -1;
        bool ours = fd >= 0 && flock(fd, LOCK_SH) == 0 && cgroup_run_is_there(fd, path) && cgroup_run_claim(fd);
        bool good = ours && strlen(path) - strlen(mount) < CGROUP_RUN_PATH && cgroup_run_give(fd, uid, gid);
        if (good) {
            text_copy(ret_path, CGROUP_RUN_PATH, path + strlen(mount));
            *ret_fd = fd;
        } else {
            if (ours)
                rmdir(path);
            if (fd >= 0)
                close(fd);
        }
        free(path);
        if (ours || (!taken && !made))
            return good;
        others += taken;
    }
    return false;
}

static char *cgroup_run_full(const char *path)
{
    char own[4096], mount[4096];
    return cgroup_own(own, sizeof own, mount, sizeof mount) ? memory_format("%s%s", mount, path) : NULL;
}

void cgroup_run_undo(int fd, const char *path)
{
    char *full = cgroup_run_full(path);
    if (full)
        rmdir(full);
    free(full);
    close(fd);
}

/* Opens the folder when it is a run's, and the one that is meant. -1: it is not. */
static int cgroup_run_open(const char *path, uint64_t inode)
{
    const char *last = strrchr(path, '/');
    if (path[0] != '/' || strstr(path, "/../") || !text_starts(last + 1, cgroup_run_prefix))
        return -1;
    char *full = cgroup_run_full(path);
    int fd = full ? open(full, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC) : -1;
    struct stat status;
    if (fd >= 0 && (fstat(fd, &status) < 0 || (inode != 0 && status.st_ino != inode))) {
        close(fd);
        fd = -1;
    }
    free(full);
    return fd;
}

uint64_t cgroup_run_inode(const char *path)
{
    struct stat status = {.st_ino = 0};
    int fd = cgroup_run_open(path, 0);
    if (fd >= 0) {
        if (fstat(fd, &status) < 0)
            status.st_ino = 0;
        close(fd);
    }
    return status.st_ino;
}

bool cgroup_run_kill(const char *path, uint64_t inode)
{
    int fd = cgroup_run_open(path, inode);
    int kill_fd = fd >= 0 ? cgroup_control_open_kill(fd) : -1;
    bool killed = kill_fd >= 0 && cgroup_control_kill(kill_fd) == 0;
    if (killed)
        cgroup_control_thaw(fd);
    if (kill_fd >= 0)
        close(kill_fd);
    if (fd >= 0)
        close(fd);
    return killed;
}

static bool cgroup_run_populated(int fd)
{
    int events = cgroup_control_open_events(fd);
    bool populated = events >= 0 && cgroup_control_populated(events) == 1;
    if (events >= 0)
        close(events);
    return populated;
}

size_t cgroup_run_clear(void)
{
    char own[4096], mount[4096];
    DIR *folder = cgroup_own(own, sizeof own, mount, sizeof mount) ? opendir(own) : NULL;
    size_t left = 0;
    const struct dirent *entry;
    while (folder && (entry = readdir(folder)) != NULL) {
        if (!text_starts(entry->d_name, cgroup_run_prefix) || !text_ends(entry->d_name, cgroup_run_suffix))
            continue;
        int fd = openat(dirfd(folder), entry->d_name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        bool removed =
            fd >= 0 && flock(fd, LOCK_EX | LOCK_NB) == 0 && !cgroup_run_populated(fd) && cgroup_control_remove(fd) == 0;
        left += !removed;
        if (fd >= 0)
            close(fd);
    }
    if (folder)
        closedir(folder);
    return left;
}
