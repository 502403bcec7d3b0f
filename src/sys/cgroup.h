/* The run's own cgroup: where one can be made, and which guarantee that gives. Loop thread, at the start of a run. */
#pragma once

#include "base/error.h"
#include "base/list.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

enum cgroup_kind {
    CGROUP_NONE,      /* no writable one: the keeper alone finds and kills */
    CGROUP_DELEGATED, /* below a unit that systemd delegated to us */
    CGROUP_SCOPE,     /* below a delegated scope of the user's systemd, which holds the keeper too */
    CGROUP_OWN,       /* child of the cgroup in which the guard runs */
};

struct cgroup {
    enum cgroup_kind kind;
    int directory_fd, kill_fd, events_fd; /* for sys/cgroup_control.h; -1 with CGROUP_NONE */
    char *path;                           /* in the file system; NULL with CGROUP_NONE; owned */
    char guarantee[320];                  /* for status: "cgroup: PATH" or "keeper alone: no writable cgroup (WHY)" */
};

/* Finds our cgroup from the texts of /proc/self/mountinfo and /proc/self/cgroup: writes the folder into `ret_path`. The
 * version 2 hierarchy counts, wherever it is mounted; a mark of removal (" (deleted)") is stripped. False: there is
 * none that this mount shows. Pure. */
bool cgroup_locate(const char *mountinfo, const char *membership, char *ret_path, size_t size);

/* The folder of our own cgroup, and the mount point that it begins with. False: as for cgroup_locate. */
bool cgroup_own(char *ret_path, size_t size, char *ret_mount, size_t mount_size);

/* Makes the leaf "kldump-RUN-COOKIE8", in the first place that takes it: below a delegated unit, below a scope that
 * systemd --user makes for `keeper_pid` (a child of ours that does nothing yet), below the cgroup we are in. Never
 * fails: CGROUP_NONE says why in `guarantee`. */
void cgroup_make(const char *run_name, const char *cookie, pid_t keeper_pid, struct cgroup *ret_cgroup);

/* What cgroup_make would most likely do here; nothing is made. `ret_text`: the folder below which the leaf would be, or
 * why there can be none. CGROUP_SCOPE: a user's systemd is there to be asked. */
enum cgroup_kind cgroup_foresee(char *ret_text, size_t size);

/* Beside where our own leaf will be: removes the leaves of runs whose guard and keeper are both gone, and kills what
 * still lives in them, since nobody watches over it any more. A guard and a keeper each hold a lock on their leaf. Adds
 * one line for each that had processes. Blocks for up to a second for each. */
void cgroup_clear_left(struct list *ret_told);

/* Adds the paths of all cgroups named kldump-... that hold no process and that no guard holds, as far as they can be
 * seen. */
void cgroup_find_empty(struct list *ret_paths);

/* No cgroup, for this reason. */
void cgroup_set_none(struct cgroup *cgroup, const char *why);

/* Kills all in it, thaws. False with CGROUP_NONE or when the kernel refused. Any thread. */
bool cgroup_kill(const struct cgroup *cgroup);

/* Stops every process in it; waits up to `limit_ms` until they stand still. False with CGROUP_NONE, when the kernel
 * refused, or when some do not yet: the order stands until cgroup_thaw or cgroup_kill all the same. Any thread; blocks.
 */
bool cgroup_freeze(const struct cgroup *cgroup, int limit_ms);
bool cgroup_thaw(const struct cgroup *cgroup);

/* Closes; removes the folder (false when it could not be: processes still live in it). Also of a zeroed or NONE one. */
bool cgroup_fini(struct cgroup *cgroup);
