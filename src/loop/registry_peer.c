/* Who has connected. The numbers are of the moment of connect(2). A pid may be anybody's by the time that it is looked
 * at, if whoever connected is gone and left the connection to another process; so the process that the pidfd holds must
 * run for the same user, which that user could end himself. */
#include "base/memory.h"
#include "base/number.h"
#include "loop/registry_private.h"
#include "sys/process.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { STATUS_MAX_BYTES = 4096, GROUPS_MAX = 65536 };

/* Its real uid. False: there is no such process. */
static bool read_uid(pid_t pid, uid_t *ret_uid)
{
    char path[64], text[STATUS_MAX_BYTES + 1];
    uint64_t uid;
    snprintf(path, sizeof path, "/proc/%d/status", (int)pid);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t length = fd >= 0 ? read(fd, text, STATUS_MAX_BYTES) : -1;
    if (fd >= 0)
        close(fd);
    if (length <= 0)
        return false;
    text[length] = '\0';
    const char *line = strstr(text, "\nUid:\t"); /* a line end in its name is shown as \n */
    if (line == NULL || number_scan(line + 6, strlen(line + 6), &uid) == 0)
        return false;
    *ret_uid = (uid_t)uid;
    return true;
}

static enum error_code hold(struct registry_entry *entry, struct error *err)
{
    uid_t uid;
    int pidfd = entry->pid > 0 ? process_open(entry->pid) : -1;
    bool same = pidfd >= 0 && read_uid(entry->pid, &uid) && uid == entry->uid &&
                syscall(SYS_pidfd_send_signal, pidfd, 0, NULL, 0) == 0; /* last: so the uid was that one's */
    if (same) {
        entry->pidfd = pidfd;
        return ERROR_NONE;
    }
    if (pidfd >= 0)
        close(pidfd);
    return error_set(err, ERROR_FORBIDDEN,
                     "the guard must itself be connected: process %d is gone, cannot be seen from here, or is not user "
                     "%u's",
                     (int)entry->pid, (unsigned)entry->uid);
}

static gid_t *read_groups(int fd, size_t *ret_count)
{
    socklen_t size = 64 * sizeof(gid_t);
    gid_t *groups = memory_new(size);
    while (getsockopt(fd, SOL_SOCKET, SO_PEERGROUPS, groups, &size) != 0) {
        if (errno != ERANGE || size > GROUPS_MAX * sizeof(gid_t)) {
            size = 0;
            break;
        }
        groups = memory_resize(groups, 1, size);
    }
    *ret_count = size / sizeof(gid_t);
    return groups;
}

enum error_code registry_peer_identify(int fd, struct registry_entry *entry, gid_t *ret_gid, gid_t **ret_groups,
                                       size_t *ret_count, struct error *err)
{
    struct ucred peer;
    socklen_t size = sizeof peer;
    if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0)
        return error_set_errno(err, ERROR_SYSTEM, errno, "who has connected");
    entry->uid = peer.uid;
    entry->pid = peer.pid;
    enum error_code code = hold(entry, err);
    if (code != ERROR_NONE)
        return code;
    *ret_groups = read_groups(fd, ret_count);
    *ret_gid = peer.gid;
    return ERROR_NONE;
}
