/* One request to a guard: connects to its socket, makes sure that it is the run's, says hello, asks, hands the
 * answer over; then the connection stays until it is closed, for a dump that is held. Loop thread only. */
#pragma once

#include "base/error.h"

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>
#include <uv.h>

struct json;
struct daemon_peer;

/* What came of it. Called from the loop; after the first call with `ended` never again. */
struct daemon_peer_news {
    bool ended;                /* the connection is over (or never was); the peer is freed when the call returns */
    bool asked;                /* the request may have reached the guard */
    const struct json *answer; /* the guard's result; NULL with an error or `ended`. Lives until the call returns */
    const struct error *error; /* the guard's error, or why the connection ended; NULL with an answer */
};

/* Memory that all peers of one user's guards may hold: begun answers, and questions that are not read. Beyond, the one
 * with which it is too much ends with ERROR_TOO_LARGE. */
enum { DAEMON_PEER_USER_BYTES = 12 * 1024 * 1024 };

/* Whom to ask. */
struct daemon_peer_target {
    int socket_fd;  /* of its control socket, O_PATH; looked at only during the call */
    uid_t uid;      /* the kernel must say that this user listens there */
    pid_t pid;      /* and this process; 0: any of his */
    bool foreign;   /* the socket may lie on a filesystem of his, which may be dead */
    const char *by; /* for hello: on whose behalf; NULL: on our own */
};

/* Takes `parameters` over in any case. `hello_ms` limits the time until hello is answered, `answer_ms` that from then
 * on until the answer (UINT64_MAX: none). Never NULL; the news come later, never from within. */
struct daemon_peer *daemon_peer_new(uv_loop_t *loop, const struct daemon_peer_target *target, const char *method,
                                    struct json *parameters, uint64_t hello_ms, uint64_t answer_ms,
                                    void (*news)(const struct daemon_peer_news *news, void *user), void *user);

/* No news from now on. */
void daemon_peer_close(struct daemon_peer *peer);
