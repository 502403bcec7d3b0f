/* Starting a guard for a user, three ways with one contract: a transient unit of the system's systemd (a root daemon),
 * one of the user's systemd (a user's own daemon), or a process of ours. Chosen once by launch_way. The guard's plan
 * goes in on standard input (a memfd), its first line comes back through a pipe; its standard error is /dev/null, so
 * that no word of a command reaches a journal. Its own environment and arguments hold nothing of the user's.
 * Any thread; the bus calls are bounded by 5 s each, so a loop leaves launch_start to a worker. */
#pragma once

#include "base/error.h"
#include "base/list.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/resource.h>
#include <sys/types.h>

enum launch_way { LAUNCH_SYSTEM_UNIT, LAUNCH_USER_UNIT, LAUNCH_SPAWN };

struct launch_user {
    uid_t uid;
    gid_t gid;
    const gid_t *groups; /* all supplementary ones, as SO_PEERGROUPS told */
    size_t group_count;
    struct rlimit limit[RLIM_NLIMITS]; /* of the client */
};

struct launch_request {
    enum launch_way way;
    const char *name; /* of the run: unit kldump-run-NAME.service, cgroup kldump-run-NAME */
    const struct launch_user *user;
    const char *program;      /* kldump-run */
    char *const *arguments;   /* NULL-terminated, argv[0] included */
    char *const *environment; /* of the guard itself: nothing of the user's */
    int input_fd, output_fd;  /* the plan; the writing end of the pipe */
};

/* What was started. All of it is root's knowledge, written into the daemon's own record. */
struct launch_result {
    pid_t pid; /* of the guard */
    uint64_t start_ticks;
    int pidfd;             /* the caller's */
    char unit[96];         /* "" with LAUNCH_SPAWN */
    char cgroup[256];      /* below the version 2 mount, "" where none could be made */
    uint64_t cgroup_inode; /* st_ino of its folder: one of this name with another number is another run's. 0: none */
};

/* LAUNCH_SYSTEM_UNIT: root, systemd booted, its bus answers. LAUNCH_USER_UNIT: not root, user bus there. */
enum launch_way launch_way(void);

/* A unit or cgroup of this name that is there (an older run that still ends, a run of another daemon) is no matter: a
 * number is added then. The unit's guard may have ended before it could be looked at: pid 0, pidfd -1. ERROR_SYSTEM,
 * with systemd's own words: nothing is left running. ERROR_TIMEOUT: systemd has not answered in time, and may start the
 * guard later: the caller takes the plan back from input_fd, so that it refuses, and finds one that was quicker by
 * launch_find. */
enum error_code launch_start(const struct launch_request *request, struct launch_result *ret_result, struct error *err);

/* The same of a guard of run `name` that one of the ways has started and whose result got lost: systemd answered too
 * late, or the daemon was killed meanwhile. What is asked is the kernel alone: its pid, which the caller holds by a
 * pidfd, must be in a cgroup that a launch makes for that name. ret_result->pidfd is -1. ERROR_NOT_FOUND: it is not. */
enum error_code launch_find(const char *name, pid_t pid, struct launch_result *ret_result, struct error *err);

/* Kills all that is left of a run: the unit's or the spawned cgroup by cgroup.kill, else the guard by its pidfd (its
 * keeper ends the rest). Only for what launch_start returned, read back from the daemon's own record: the caller has
 * checked boot id, pid and start time. A cgroup whose inode is another one now is left alone. */
enum error_code launch_kill(const struct launch_result *launched, struct error *err);

/* The limits of a process; ERROR_NOT_FOUND when `pid` is not, or no longer, of `uid`. */
enum error_code launch_read_limits(pid_t pid, uid_t uid, struct rlimit ret_limit[RLIM_NLIMITS], struct error *err);
