/* One connection to a guard or to kldumpd, spoken to one request at a time. Protocol: JSON-RPC 2.0, one object per
 * line, methods of core/methods.def. One thread. */
#pragma once

#include "base/error.h"
#include "json/json.h"

#include <stdint.h>

enum {
    CLIENT_VERSION = 1,
    CLIENT_FRAME_MAX = 1024 * 1024,
    CLIENT_VALUES_MAX = 65536, /* JSON values: a list that fills a frame has 16 bytes of text or more for each */
    CLIENT_DEPTH = 32,
    CLIENT_HELLO_MS = 3000,     /* for the first answer: who is stopped or hangs is told from who is busy */
    CLIENT_PATIENCE_MS = 15000, /* for an answer that needs no waiting */
};

struct client;

/* Connects to the socket at `path`, checks that the program behind it belongs to us or to root, and says hello.
 * ERROR_BAD_VALUE: the path is too long for a socket. ERROR_NO_RUN: nobody listens there. ERROR_FORBIDDEN: another
 * user's program, or no right to connect. ERROR_TIMEOUT, ERROR_PROTOCOL, ERROR_UNREACHABLE: no hello came back. */
enum error_code client_connect(const char *path, struct client **ret_client, struct error *err);
void client_free(struct client *client); /* also of NULL */

/* From now on a call also ends, with ERROR_INTERRUPTED, when nobody is left who reads `fd` (a pipe or a terminal, the
 * caller's; -1: none): whoever waits for news to pass on need not wait then. */
void client_watch_reader(struct client *client, int fd);
bool client_reader_is_gone(const struct client *client);

/* Sends one request and waits up to `timeout_ms` (-1: for ever) for its answer. `parameters` is taken over in any case;
 * NULL: none. On success the caller owns *ret_result, whatever its type. An error from the peer comes with the code
 * that it names and its message. ERROR_UNREACHABLE: the peer closed. After ERROR_TIMEOUT, ERROR_PROTOCOL and
 * ERROR_UNREACHABLE only client_free makes sense. */
enum error_code client_call(struct client *client, const char *method, struct json *parameters, int64_t timeout_ms,
                            struct json **ret_result, struct error *err);
