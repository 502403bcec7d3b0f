/* The control socket's server: one for the guard of a run, one for kldumpd. Loop thread only.
 *
 * It accepts, checks the peer (SO_PEERCRED, SO_PEERGROUPS: the owner and root, or whom `admit` lets in), cuts frames,
 * reads requests strictly, answers `hello` and everything malformed by itself, and hands the rest to the handler of its
 * method. Protocol: JSON-RPC 2.0, one object per line, core/methods.def. The program must ignore SIGPIPE. */
#pragma once

#include "base/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>
#include <uv.h>

enum control_method {
#define X(constant, name, answers, access, parameters, text) CONTROL_##constant,
#include "core/methods.def"
#undef X
    CONTROL_METHODS
};

enum {
    CONTROL_VERSION = 1,
    CONTROL_FRAME_MAX = 1024 * 1024,       /* bytes of one line without its end, both ways */
    CONTROL_REQUEST_VALUES = 4096,         /* JSON values in a request: an environment and a command are hundreds */
    CONTROL_ANSWER_VALUES = 16384,         /* and in a guard's answer: GUARD_EVENTS_MAX events are 7002 */
    CONTROL_QUEUE_MAX = 4 * 1024 * 1024,   /* unread answers; a client that lets more pile up is closed */
    CONTROL_PER_UID = 256,                 /* connections of one user; root's are counted in the total alone */
    CONTROL_USER_BYTES = 24 * 1024 * 1024, /* memory that they hold together; root's may hold more */
    CONTROL_TOTAL = 1024,
    CONTROL_BURST = 32,       /* connections that are taken in one turn of the loop */
    CONTROL_RESERVED = 16,    /* of these, for root: other users cannot keep it out */
    CONTROL_REFUSED = 64,     /* that are being told why not, beside the total; beyond: closed without a word */
    CONTROL_GROUPS = 4096,    /* supplementary groups of one user */
    CONTROL_BY_MAX = 128,     /* bytes of hello's `by` */
    CONTROL_OUTSTANDING = 64, /* unanswered requests of one client; one more is answered `busy` */
};

/* A client. Opaque: its address is its name until `gone`. */
struct control_connection;
struct control_server;
struct json;

/* One request, handed to a handler. It belongs to the handler until control_reply or control_fail, one of which is owed
 * exactly once, now or later, also when the client or even the server has gone meanwhile (then nothing is sent).
 * Fields are read-only but `data`. */
struct control_request {
    enum control_method method;
    const struct json *parameters; /* an object (never NULL); only known names, the required ones present; values are
                                      unchecked */
    uid_t uid;                     /* of the peer, from the kernel */
    pid_t pid;
    gid_t gid;
    const gid_t *groups; /* supplementary ones, from the kernel; valid until the answer */
    size_t group_count;
    const char *by;                        /* hello's, taken from root and the owner alone; NULL: on his own behalf.
                                              Valid until the answer, UTF-8 without control characters */
    struct control_connection *connection; /* NULL once the client has gone */
    void *data;                            /* for the handler */
};

struct control_options {
    const char *path;    /* of the socket. Its folder exists, is ours or root's, and nobody else may write in it */
    const char *program; /* told in hello: "kldump-run" or "kldumpd" */
    const char *run;     /* the guard's run, told in hello; NULL in kldumpd */
    uid_t owner;         /* who may connect beside root */
    mode_t mode;         /* of the socket: 0 means 0600; 0666 with `admit` */
    int descriptor;      /* a listening socket of the service manager, taken over in any case, else 0. `path` is not
                            looked at then: neither bound nor removed */
    /* Who else may connect. NULL: nobody. The error names the rule and is sent to the client. Groups: supplementary
     * ones, from the kernel. */
    enum error_code (*admit)(uid_t uid, gid_t gid, const gid_t *groups, size_t group_count, void *user,
                             struct error *err);
    /* By method; NULL: "no such method". CONTROL_HELLO is not looked at. A handler may answer before it returns. */
    void (*handlers[CONTROL_METHODS])(struct control_request *request, void *user);
    /* A client that had said hello has ended, for any reason; called once for each, from the loop. Its unanswered
     * requests still are the handlers' to answer; their `connection` is NULL from now on. NULL: nobody wants to know.
     */
    void (*gone)(struct control_connection *connection, void *user);
    void *user;
};

/* Binds and listens. A socket left by a dead program is replaced; the caller holds a lock that keeps two starts apart.
 * Success: the socket is there with its mode from its first moment. `options` and its texts are copied.
 * Failure: ERROR_BAD_VALUE (path too long for a socket: names both lengths), ERROR_EXISTS (a living program answers
 * there, or the path is no socket), ERROR_FORBIDDEN (the folder is not safe), ERROR_SYSTEM. Nothing is left on disk;
 * the loop may hold a closing handle until its next turn. */
enum error_code control_listen(uv_loop_t *loop, const struct control_options *options,
                               struct control_server **ret_server, struct error *err);

/* Binds again when the socket file has gone (a cleaner of temporary folders took it): for a watch of the folder, a
 * signal, a timer. What was connected goes on. Does nothing while the file is there, whosever it is, and with a socket
 * of the service manager. *ret_again (may be NULL): it was made again. Errors as of control_listen; asked again at the
 * next call. */
enum error_code control_look(struct control_server *server, bool *ret_again, struct error *err);

/* Sends `result`, a JSON tree, which is taken over in any case. Frees the request. A result beyond the frame limit
 * becomes the error `too-large`. */
void control_reply(struct control_request *request, struct json *result);

/* Sends the error: code -32000, the message, {"error": name, "status": exit status}. Frees the request. */
void control_fail(struct control_request *request, const struct error *err);

/* The same with the error made here. */
void control_refuse(struct control_request *request, enum error_code code, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

size_t control_connections(const struct control_server *server);

/* Stops listening, removes the socket (only if it is still ours), sends what is queued for at most `drain_ms`, closes
 * every client. Answer first what shall still be answered. No handler and no `gone` is called from now on; `closed`
 * (may be NULL) is called once from the loop when all is freed. Requests still unanswered stay owed. */
void control_close(struct control_server *server, uint64_t drain_ms, void (*closed)(void *user), void *user);
