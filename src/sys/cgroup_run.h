/* The cgroup of a run that kldumpd spawns itself, for guard, keeper and server together: a child of the daemon's own
 * cgroup, given to the run's user, so that the guard makes the server's leaf in it. Where systemd starts the run, the
 * unit's cgroup takes its place. Paths are those below the version 2 mount, as /proc/PID/cgroup shows them. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

enum { CGROUP_RUN_PATH = 256 };

/* Makes "kldump-run-NAME.run" (or with a number where that one is taken) and gives it to `uid`, unless we are not root.
 * ret_fd, of its folder, keeps it from being removed by cgroup_run_clear until it is closed. False: no cgroup of
 * version 2 of ours that we may write in. Any thread. */
bool cgroup_run_make(const char *name, uid_t uid, gid_t gid, int *ret_fd, char ret_path[CGROUP_RUN_PATH]);

/* For cgroup_run_make: removes it again; closes `fd`. */
void cgroup_run_undo(int fd, const char *path);

/* The inode of its folder, 0 when it is gone: one of the same name with another inode is another run's. */
uint64_t cgroup_run_inode(const char *path);

/* Kills all in the cgroup of a unit or of ours, when its inode still is `inode`. False: it is gone, another one, not of
 * a run (its last part begins with "kldump-run-"), or the kernel would not. Any thread. */
bool cgroup_run_kill(const char *path, uint64_t inode);

/* Removes those beside our own place that hold no process: of ended runs. Returns how many are left. Any thread. */
size_t cgroup_run_clear(void);
