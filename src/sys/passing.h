/* Packets with descriptors over a Unix socket (SCM_RIGHTS). Any thread. */
#pragma once

#include "base/error.h"

#include <stdbool.h>
#include <stddef.h>

enum { PASSING_MAX = 4 };

/* Sends one packet without blocking. ERROR_BUSY: the socket is full; ERROR_UNREACHABLE: nobody is there any more. */
enum error_code passing_send(int socket, const char *bytes, size_t length, const int *descriptors, size_t count,
                             struct error *err);

/* Receives one packet without blocking. Descriptors are the caller's, close-on-exec, -1 beyond *ret_count; more than
 * PASSING_MAX, or a packet or control data that was cut: ERROR_PROTOCOL, and all are let go (passing_drop).
 * ret_descriptors NULL: none may come; one that does is let go by the kernel, ERROR_PROTOCOL. *ret_length 0: the end.
 * ERROR_BUSY: nothing there yet. */
enum error_code passing_receive(int socket, char *bytes, size_t size, size_t *ret_length,
                                int ret_descriptors[PASSING_MAX], size_t *ret_count, struct error *err);

/* Whether it was opened with O_PATH: then nothing can be read or written through it, and closing it waits for nobody.
 * Closing anything else asks its filesystem, which may be a user's own and never answer (FUSE, flush). */
bool passing_is_path(int descriptor);

/* Closes descriptors that came from somebody who is not trusted, without ever blocking: what is no O_PATH descriptor is
 * closed in a thread of its own. */
void passing_drop(const int *descriptors, size_t count);

/* How many such threads have not come back. */
unsigned passing_dropping(void);
