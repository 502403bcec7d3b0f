/* The register's own parts, shared by registry*.c only. Loop thread. */
#pragma once

#include "loop/registry.h"

struct registry_user {
    struct registry_user *next;
    uid_t uid;
    unsigned connections;
    uint64_t bytes; /* of his packets, since the second that is counted began */
    size_t held;    /* bytes of memory that his guards' runs take */
};

struct registry_connection {
    struct registry_entry entry;
    struct registry_connection *next, **link;
    struct registry *registry;
    struct registry_user *user;
    struct json *run; /* what `entry.run` shows */
    size_t held;      /* bytes of memory that it takes */
    int fd;
    uv_poll_t poll, guard; /* of fd and of entry.pidfd */
    uv_timer_t limit;
    unsigned handles;
    bool polls, watches; /* `poll`, `guard` are open */
    bool admitted, paused, closing;
};

/* A connection that is over and cannot be closed yet (passing_close). */
struct registry_unclosed {
    struct registry_unclosed *next;
    uid_t uid;
    int fd;
};

struct registry {
    struct registry_options options;
    uv_loop_t *loop;
    char *path; /* that is removed at the end; NULL: none */
    ino_t inode;
    int fd;
    uv_poll_t poll;
    uv_timer_t pause; /* runs while somebody has spoken lately, or nobody is let in */
    unsigned handles; /* two of its own, and one for each connection that is not freed yet */
    bool shut, closing;
    size_t count, unclosed_count;
    struct registry_unclosed *unclosed;
    struct registry_user *users;
    struct registry_connection *connections;
    struct registry_entry *entries; /* of those that are admitted */
    char room[REGISTRY_PACKET_MAX];
};

/* registry_packet.c: what a packet says. On failure nothing is changed. */
enum error_code registry_packet_first(const char *bytes, size_t length, struct registry_entry *entry,
                                      struct json **ret_run, struct error *err);
/* Replaces *run. */
enum error_code registry_packet_later(const char *bytes, size_t length, const struct registry_entry *entry,
                                      struct json **run, struct error *err);
/* Fills folder_fd, control_fd and device; on failure the descriptors stay the caller's. */
enum error_code registry_packet_descriptors(const int *descriptors, size_t count, struct registry_entry *entry,
                                            struct error *err);
void registry_packet_send(int fd, const struct json *answer);

/* registry_peer.c: who is at the other end, as the kernel says: fills uid, pid and pidfd. The caller frees *ret_peer.
 * On failure pidfd is -1. */
struct socket_peer;
enum error_code registry_peer_identify(int fd, struct registry_entry *entry, struct socket_peer *ret_peer,
                                       struct error *err);
