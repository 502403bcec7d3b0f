/* Who is at the other end of a connected Unix socket, as the kernel noted it at connect(2). Any thread. */
#pragma once

#include "base/error.h"

#include <stddef.h>
#include <sys/types.h>

struct socket_peer {
    uid_t uid;
    gid_t gid;
    pid_t pid;     /* may be another process's by now */
    gid_t *groups; /* supplementary ones; owned */
    size_t group_count;
};

/* ERROR_TOO_LARGE: the user is in more than `most_groups`. On failure there is nothing to free. */
enum error_code socket_peer_read(int fd, size_t most_groups, struct socket_peer *ret_peer, struct error *err);
void socket_peer_fini(struct socket_peer *peer); /* also of a zeroed one */
