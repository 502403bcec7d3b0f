/* One HTTP request and its answer, as both drivers (blocking.h, multi.h) take and give it. This is the one place that
 * sets libcurl's options: http or https to a numeric address, no proxy whatever the environment says, no redirect, no
 * signal, limits on time and on the size of the body. Keys never come back in a message. */
#pragma once

#include "base/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { TRANSFER_BODY_MAX = 1024 * 1024 * 1024 }; /* the scores of a batch of long prompts */

struct transfer_request {
    const char *method; /* "GET" or "POST" */
    /* "http://127.0.0.1:30000/path?query". The host must be a numeric address, without user or password. With https the
     * certificate is not checked: it is the caller who knows, from the owner of the listening socket, who answers
     * there; so the address must be one of this machine. */
    const char *url;
    const char *body; /* sent as application/json; NULL: none */
    size_t body_length;
    const char *key;                               /* bearer key; NULL: none */
    uint64_t connect_timeout_ms, total_timeout_ms; /* both at least 1 */
    size_t body_max_bytes;                         /* of the answer: 1 .. TRANSFER_BODY_MAX */
    /* Asked about once a second while the answer is awaited, and after a signal; false ends it: INTERRUPTED. NULL: it
     * is waited for. */
    bool (*wanted)(void *user);
    void *user;
};

struct transfer_result {
    enum error_code code; /* NONE: a whole answer of any status; UNREACHABLE, TIMEOUT, TOO_LARGE, FORMAT,
                           * INTERRUPTED: none */
    int status;           /* 0: no whole answer */
    const char *body;     /* ended by NUL beyond `length`; never NULL; nothing of it when there is no whole answer */
    size_t length;
    char problem[256]; /* "" with a whole answer; else one line, safe to show */
};
