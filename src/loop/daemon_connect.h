/* A connection to a socket that may lie on a filesystem of its user's: connect(2) asks that for permission, and a dead
 * one never answers. So it is done in a thread (sys/slow.h), which the loop does not wait for. Loop thread only. */
#pragma once

#include "base/error.h"

#include <sys/types.h>
#include <uv.h>

struct daemon_connect;

/* Connects to the socket `socket_fd` (O_PATH; looked at only during the call) of user `uid`. `done` is called once from
 * the loop, never from within: fd, the caller's, not blocking, or -1 with errno's value in `failure`; EAGAIN: its queue
 * is full. ERROR_BUSY: too many of this user's are waited for already (slow_check); ERROR_SYSTEM. */
enum error_code daemon_connect_new(uv_loop_t *loop, int socket_fd, uid_t uid,
                                   void (*done)(int fd, int failure, void *user), void *user,
                                   struct daemon_connect **ret_connect, struct error *err);

/* `done` is not called any more. Not after it was. */
void daemon_connect_cancel(struct daemon_connect *connect);
