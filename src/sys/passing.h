/* Packets with descriptors over a Unix socket (SCM_RIGHTS). Any thread. */
#pragma once

#include "base/error.h"

#include <stddef.h>

enum { PASSING_MAX = 4 };

/* Sends one packet without blocking. ERROR_BUSY: the socket is full; ERROR_UNREACHABLE: nobody is there any more. */
enum error_code passing_send(int socket, const char *bytes, size_t length, const int *descriptors, size_t count,
                             struct error *err);

/* Receives one packet without blocking. Descriptors are the caller's, close-on-exec, -1 beyond *ret_count; more than
 * PASSING_MAX, or a packet or control data that was cut: ERROR_PROTOCOL, and all are closed. *ret_length 0: the end.
 * ERROR_BUSY: nothing there yet. */
enum error_code passing_receive(int socket, char *bytes, size_t size, size_t *ret_length,
                                int ret_descriptors[PASSING_MAX], size_t *ret_count, struct error *err);
