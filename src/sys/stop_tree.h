/* All processes of one run held still, and let go again, where there is no cgroup that freezes them. libc only:
 * kldump-keeper links this. One thread at a time per object. */
#pragma once

#include "sys/kill_tree.h"

#include <stddef.h>

struct stop_tree {
    struct process_list stopped; /* by us: who was stopped before stays so */
};

/* One pass: finds the members of `tree` and sends STOP to each that runs. `frozen_cgroup`: the last part of the path of
 * a cgroup whose processes are frozen already, NULL: none. Returns how many ran; 0 twice running means
 * that all stand still. A process of another user cannot be stopped and counts each time. `ret_in_kernel`: how many of
 * them have STOP waiting for them but sleep in the kernel (state D): they will stop before their own code goes on. */
size_t stop_tree_pass(struct stop_tree *stop, struct kill_tree *tree, const char *frozen_cgroup, size_t *ret_in_kernel);

/* CONT to whom we stopped; forgets them. */
void stop_tree_continue(struct stop_tree *stop);

void stop_tree_fini(struct stop_tree *stop);
