/* Shared by control.c (sockets), control_frame.c (requests and answers) and control_bind.c; nobody else includes it. */
#pragma once

#include "base/buffer.h"
#include "loop/control.h"

#include <stdint.h>

/* One user. Peers keep it, some of them longer than the server lives. */
struct control_account {
    struct control_account *next, **link; /* of the server; `link` NULL once that has gone */
    uid_t uid;
    unsigned references;
    size_t bytes;       /* begun lines, requests without an answer, answers not sent */
    size_t connections; /* that were not turned away */
};

/* A client as the kernel tells. Requests keep it until they are answered, also when the connection has gone. */
struct control_peer {
    unsigned references;
    uid_t uid;
    pid_t pid;
    gid_t gid;
    gid_t *groups;
    size_t group_count;
    char *by;                        /* of hello; NULL */
    struct control_account *account; /* a reference */
};

struct control_server {
    uv_pipe_t *listener; /* a heap block of its own: control_look replaces it */
    uv_timer_t drain, next_turn;
    unsigned burst;   /* connections that came in this turn of the loop */
    bool held;        /* one more, which the listener keeps until the next */
    unsigned handles; /* the three above, old listeners and one for each connection that is not freed yet */
    bool closing;
    struct control_options options; /* texts owned */
    bool bound;                     /* by us, not by the service manager */
    uint64_t device, inode;         /* of our socket, so that we never remove another's */
    struct control_connection *first;
    struct control_account *accounts;
    size_t count, refused; /* all connections; those of them that were turned away */
    void (*closed)(void *user);
    void *closed_user;
    char room[64 * 1024];
};

/* control_peer.c: asks the kernel about the other end of a connected socket. ERROR_TOO_LARGE: more than CONTROL_GROUPS
 * groups. The caller owns one reference. */
enum error_code control_peer_new(struct control_server *server, int descriptor, struct control_peer **ret_peer,
                                 struct error *err);
void control_peer_drop(struct control_peer *peer); /* also of NULL */

/* control_account.c: that of this user, with one more reference. */
struct control_account *control_account_take(struct control_server *server, uid_t uid);
void control_account_drop(struct control_account *account); /* also of NULL */
/* A part of what he holds becomes `to` bytes after `from`. Of NULL: nothing. */
void control_account_change(struct control_account *account, size_t from, size_t to);
void control_account_forget(struct control_server *server); /* the server goes; some accounts stay with requests */
/* ERROR_BUSY: with so many bytes more this user would hold more than he may; asked for a part of `part_bytes` (small
 * ones have some room for themselves). NULL: nobody, who may. */
enum error_code control_account_check(const struct control_account *account, size_t more_bytes, size_t part_bytes,
                                      struct error *err);

/* A request with what is needed to answer it; `request` comes first, so the two pointers convert. */
struct control_pending {
    struct control_request request;
    struct control_pending *next; /* of the connection */
    struct json *message;         /* owns request.parameters */
    struct json *id;              /* owned */
    struct control_peer *peer;    /* a reference */
    size_t bytes;                 /* in its account */
};

struct control_connection {
    uv_pipe_t pipe;
    uv_timer_t timer; /* until hello; later the limit of the last answer */
    unsigned handles;
    struct control_server *server;
    struct control_connection *next, **link;
    struct control_peer *peer; /* a reference; NULL: the kernel did not tell */
    bool accepted;             /* hello was right */
    bool admitted;             /* counted in the account's `connections` */
    bool refused;              /* counted in the server's `refused` */
    bool ending;               /* closes as soon as everything queued is sent; input is thrown away */
    bool closing;
    struct buffer input;
    size_t scanned; /* bytes of input known to hold no line end */
    size_t counted; /* bytes of input in the account */
    struct control_pending *pending;
    unsigned outstanding, writes;
};

/* control_bind.c: a listening descriptor, and the identity of its socket file, which has `mode` from the start. */
enum error_code control_bind(const char *path, mode_t mode, int *ret_descriptor, uint64_t *ret_device,
                             uint64_t *ret_inode, struct error *err);
void control_unbind(const char *path, uint64_t device, uint64_t inode);

/* control_frame.c: one line from the client; may set `ending`. */
void control_take_frame(struct control_connection *connection, const char *line, size_t length);

/* An error without a request: `code` of JSON-RPC, the id unknown (null). */
void control_send_problem(struct control_connection *connection, int code, enum error_code error, const char *message);

/* Ends the life of what the client still waits for: the requests stay with the handlers, without a connection. */
void control_orphan_pending(struct control_connection *connection);

/* control.c: queues one line (the end is added); takes the bytes over. */
void control_send(struct control_connection *connection, struct buffer *line);
void control_end(struct control_connection *connection); /* sets `ending` and its limit */
