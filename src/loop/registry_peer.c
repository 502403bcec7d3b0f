/* Who has connected. The numbers are of the moment of connect(2). A pid may be anybody's by the time that it is looked
 * at, if whoever connected is gone and left the connection to another process; so the process that the pidfd holds must
 * run for the same user, which that user could end himself. */
#include "loop/registry_private.h"
#include "sys/process.h"
#include "sys/socket_peer.h"

#include <unistd.h>

enum { GROUPS_MAX = 65536 };

static enum error_code hold(struct registry_entry *entry, struct error *err)
{
    uid_t uid, effective;
    int pidfd = entry->pid > 0 ? process_open(entry->pid) : -1;
    bool same = pidfd >= 0 && process_read_users(entry->pid, &uid, &effective) && uid == entry->uid &&
                process_signal_open(pidfd, 0) == 0; /* last: so the uid was that one's */
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

enum error_code registry_peer_identify(int fd, struct registry_entry *entry, struct socket_peer *ret_peer,
                                       struct error *err)
{
    struct socket_peer peer;
    enum error_code code = socket_peer_read(fd, GROUPS_MAX, &peer, err);
    if (code != ERROR_NONE)
        return code;
    entry->uid = peer.uid;
    entry->pid = peer.pid;
    code = hold(entry, err);
    if (code == ERROR_NONE)
        *ret_peer = peer;
    else
        socket_peer_fini(&peer);
    return code;
}
