/* Packets with descriptors over a Unix socket (SCM_RIGHTS). Any thread. */
#pragma once

#include "base/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

enum { PASSING_MAX = 4 };

/* Sends one packet without blocking. ERROR_BUSY: the socket is full; ERROR_UNREACHABLE: nobody is there any more. */
enum error_code passing_send(int socket, const char *bytes, size_t length, const int *descriptors, size_t count,
                             struct error *err);

/* Receives one packet of `sender` without blocking. Descriptors are the caller's, close-on-exec, -1 beyond *ret_count;
 * more than PASSING_MAX, or a packet or control data that was cut: ERROR_PROTOCOL, and all are let go (passing_drop).
 * ret_descriptors NULL: none may come; with one that does: ERROR_PROTOCOL. *ret_length 0: the end. ERROR_BUSY: nothing
 * there yet. Whoever may not be trusted with a slow close is asked for by slow_check (sys/slow.h) before. */
enum error_code passing_receive(int socket, uid_t sender, char *bytes, size_t size, size_t *ret_length,
                                int ret_descriptors[PASSING_MAX], size_t *ret_count, struct error *err);

/* Whether it was opened with O_PATH: then nothing can be read or written through it, and closing it waits for nobody.
 * Closing anything else asks its filesystem, which may be a user's own and never answer (FUSE, flush), or waits for a
 * network peer (a TCP socket with SO_LINGER). */
bool passing_is_path(int descriptor);

/* Closes descriptors that came from a `sender` who is not trusted, without ever blocking: what is no O_PATH descriptor
 * is closed in a thread of its own (sys/slow.h). Where there may be none, they stay open: slow_check comes first. */
void passing_drop(uid_t sender, const int *descriptors, size_t count);

/* Closes a SOCK_SEQPACKET socket on which `sender` may have sent descriptors that were not received: the kernel would
 * let them go within close(2), which takes as long as they take, so they are received and dropped first. False: not now
 * (slow_check); it is still open, and ask again. */
bool passing_close(uid_t sender, int socket);

/* From now on the kernel refuses descriptors that are sent to this socket, or to one that it accepts (SO_PASSRIGHTS,
 * Linux 6.16). Where it does not know that, reading lets them go, and takes as long as they take. */
void passing_refuse(int socket);
