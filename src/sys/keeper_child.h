/* CMD as a child of the keeper: in the cgroup, leader of a session, killed by the kernel when the keeper dies, with
 * default signals and no descriptor but 0, 1, 2. libc only: kldump-keeper links this. Its one thread calls this once:
 * the death signal is bound to the thread that forks. */
#pragma once

#include <sys/types.h>

/* What comes through the pipe when CMD could not be executed; nothing but its end when it was. */
struct keeper_child_failure {
    int system;    /* errno */
    char what[60]; /* "execute", or the step before it that failed */
};

/* `cgroup_fd`: its folder, -1: none. `out`, `err`: above 2. The caller reads `ret_pipe`. -1 with errno. */
pid_t keeper_child_start(int cgroup_fd, int out, int err, char **command, int *ret_pipe);
