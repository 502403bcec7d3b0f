/* The register of kldumpd: where each live guard, of `start` and of the wrapper alike, calls in and says that it is
 * there. So the daemon knows runs that it did not start, and gets, without following a path that a user names, the
 * dump folder (to watch its filesystem: daemon_backstop) and the guard's control socket (to pass requests on).
 *
 * Wire: a SOCK_SEQPACKET Unix socket RUNTIME/register (mode 0666 in a system daemon, 0600 in a user's), one JSON object
 * a packet, at most REGISTRY_PACKET_MAX bytes and REGISTRY_PACKET_VALUES values, strict.
 *   guard -> daemon, first:  {"version": 1, "name": NAME, "run": RUN}  with two descriptors by SCM_RIGHTS, in this
 *                            order: the dump folder (O_PATH and O_DIRECTORY) and the control socket (O_PATH)
 *   daemon -> guard:         {"ok": true} or {"error": NAME, "message": TEXT}, then it closes. "too-large": with what
 *                            this guard said, its user's guards hold more than REGISTRY_USER_BYTES; it comes again
 *                            with a RUN without seals and command
 *   guard -> daemon, later:  {"run": RUN}  at each change of state, each second while a dump is open, each 10 s else
 * RUN is the run object of `status`. The end of the guard is that of the connection, or of its process where another
 * has inherited the connection; the last RUN says how. A guard whose daemon goes, or was not there, tries again each
 * second (one connect(2)); it never waits for the daemon.
 *
 * What a guard says is shown, and believed for nothing else: uid, pid and start time of the guard come from the kernel
 * (SO_PEERCRED; the pid is held by a pidfd), the filesystem from the descriptor. Nothing here asks a filesystem that a
 * user brought: it may never answer. A guard that says too much at once is heard later, and only that user's are.
 * Loop thread only. */
#pragma once

#include "base/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include <uv.h>

enum {
    REGISTRY_VERSION = 1,
    REGISTRY_PACKET_MAX = 64 * 1024,
    REGISTRY_PACKET_VALUES = 4096, /* JSON values: GUARD_SEALS_MAX seals are 1700 */
    REGISTRY_PER_UID = 256,
    REGISTRY_USER_BYTES = 12 * 1024 * 1024, /* memory of what one user's guards said last; root's may take more */
    REGISTRY_TOTAL = 1024
};

struct json;
struct registry;

/* One guard that has called in. Owned by the registry; valid until `gone` has returned. */
struct registry_entry {
    struct registry_entry *next;
    char name[65];
    uid_t uid; /* of the guard, from the kernel */
    pid_t pid;
    int pidfd;
    int folder_fd;          /* the dump folder, O_PATH */
    int control_fd;         /* the guard's control socket, O_PATH: connect to /proc/self/fd/N */
    dev_t device;           /* of folder_fd */
    const struct json *run; /* what it said last, but name, uid and guard_pid, which are the true ones; never NULL */
    uint64_t said_ms;       /* when it did (clock_now_ms) */
    void *backstop;         /* for daemon_backstop.c */
};

/* Of one packet, for whoever writes them. */
struct json_limits;
extern const struct json_limits registry_packet_limits;

struct registry_options {
    const char *path; /* of the socket; ignored with a descriptor. What is there of an older daemon is replaced */
    int descriptor;   /* a listening socket of the service manager, or -1; taken over, also on failure */
    mode_t mode;
    /* May this user register? NULL: only the daemon's own and root. ERROR_FORBIDDEN with the rule that says no. */
    enum error_code (*admit)(uid_t uid, gid_t gid, const gid_t *groups, size_t group_count, void *user,
                             struct error *err);
    void (*changed)(struct registry_entry *entry, void *user); /* a new one, or it said something new */
    void (*gone)(struct registry_entry *entry, void *user);    /* before it is freed */
    void *user;
};

enum error_code registry_open(uv_loop_t *loop, const struct registry_options *options, struct registry **ret_registry,
                              struct error *err);
/* The first of all, linked by `next`; of a registry that is NULL none. Two may have one name (of two users, or a
 * wrapper's beside a started one). */
struct registry_entry *registry_first(const struct registry *registry);
/* That of `uid` before anybody's; NULL: none. */
struct registry_entry *registry_find(const struct registry *registry, const char *name, uid_t uid);
/* Reads now what the guard with this pid has sent, as if the loop had come to it: its end was seen elsewhere, and its
 * last word may lie there still. Also of a registry that is NULL. */
void registry_hear(struct registry *registry, pid_t pid);
/* Closes; `gone` is not called. Handles end in the loop's next turns. Also of NULL. */
void registry_close(struct registry *registry);
