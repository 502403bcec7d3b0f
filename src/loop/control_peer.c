/* Who is at the other end of a connection: what the kernel noted when it was made. */
#include "loop/control_private.h"
#include "base/memory.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/socket.h>

/* Most have a few groups; the kernel says how much room the others need. */
static enum error_code read_groups(int descriptor, struct control_peer *peer, struct error *err)
{
    socklen_t size = 32 * sizeof *peer->groups;
    for (;;) {
        peer->groups = memory_resize(peer->groups, size / sizeof *peer->groups + 1, sizeof *peer->groups);
        if (getsockopt(descriptor, SOL_SOCKET, SO_PEERGROUPS, peer->groups, &size) == 0)
            break;
        if (errno != ERANGE)
            return error_set_errno(err, ERROR_SYSTEM, errno, "the groups of user %u are not known",
                                   (unsigned)peer->uid);
        if (size > CONTROL_GROUPS * sizeof *peer->groups)
            return error_set(err, ERROR_TOO_LARGE, "user %u is in %zu groups; at most %d are looked at",
                             (unsigned)peer->uid, size / sizeof *peer->groups, CONTROL_GROUPS);
    }
    peer->group_count = size / sizeof *peer->groups;
    return ERROR_NONE;
}

enum error_code control_peer_new(int descriptor, struct control_peer **ret_peer, struct error *err)
{
    struct ucred other;
    socklen_t size = sizeof other;
    if (getsockopt(descriptor, SOL_SOCKET, SO_PEERCRED, &other, &size) != 0)
        return error_set_errno(err, ERROR_SYSTEM, errno, "who is connecting is not known");
    struct control_peer *peer = memory_new(sizeof *peer);
    peer->references = 1;
    peer->uid = other.uid;
    peer->pid = other.pid;
    peer->gid = other.gid;
    enum error_code code = read_groups(descriptor, peer, err);
    if (code != ERROR_NONE) {
        control_peer_drop(peer);
        return code;
    }
    *ret_peer = peer;
    return ERROR_NONE;
}

void control_peer_drop(struct control_peer *peer)
{
    if (peer == NULL || --peer->references > 0)
        return;
    free(peer->groups);
    free(peer->by);
    free(peer);
}
