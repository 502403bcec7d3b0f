#include "sys/socket_peer.h"

#include "base/memory.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/socket.h>

/* Most have a few groups; the kernel says how much room the others need. */
static enum error_code socket_peer_read_groups(int fd, size_t most, struct socket_peer *peer, struct error *err)
{
    socklen_t size = 32 * sizeof *peer->groups;
    for (;;) {
        peer->groups = memory_resize(peer->groups, size / sizeof *peer->groups + 1, sizeof *peer->groups);
        if (getsockopt(fd, SOL_SOCKET, SO_PEERGROUPS, peer->groups, &size) == 0)
            break;
        if (errno != ERANGE)
            return error_set_errno(err, ERROR_SYSTEM, errno, "the groups of user %u are not known",
                                   (unsigned)peer->uid);
        if (size > most * sizeof *peer->groups)
            return error_set(err, ERROR_TOO_LARGE, "user %u is in %zu groups; at most %zu are looked at",
                             (unsigned)peer->uid, size / sizeof *peer->groups, most);
    }
    peer->group_count = size / sizeof *peer->groups;
    return ERROR_NONE;
}

enum error_code socket_peer_read(int fd, size_t most_groups, struct socket_peer *ret_peer, struct error *err)
{
    struct ucred other;
    socklen_t size = sizeof other;
    if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &other, &size) != 0)
        return error_set_errno(err, ERROR_SYSTEM, errno, "who is connecting is not known");
    struct socket_peer peer = {.uid = other.uid, .gid = other.gid, .pid = other.pid};
    enum error_code code = socket_peer_read_groups(fd, most_groups, &peer, err);
    if (code == ERROR_NONE)
        *ret_peer = peer;
    else
        socket_peer_fini(&peer);
    return code;
}

void socket_peer_fini(struct socket_peer *peer)
{
    free(peer->groups);
    *peer = (struct socket_peer){0};
}
