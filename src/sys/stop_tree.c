#include "sys/stop_tree.h"

#include <errno.h>
#include <stdlib.h>

static bool stop_tree_is_stopped(const struct process *process)
{
    return process->state == 'T' || process->state == 't';
}

/* Between vfork and the child's exec the parent waits in the kernel, and no signal but KILL reaches it. */
static bool stop_tree_waits_for_stopped(const struct process *process, const struct process_list *members)
{
    for (size_t i = 0; process->state == 'D' && i < members->count; i++)
        if (members->items[i].parent == process->pid && stop_tree_is_stopped(&members->items[i]))
            return true;
    return false;
}

static bool stop_tree_is_still(const struct process *process, const struct process_list *members,
                               const char *frozen_cgroup)
{
    return stop_tree_is_stopped(process) || stop_tree_waits_for_stopped(process, members) ||
           (frozen_cgroup && process_is_in_cgroup(process->pid, frozen_cgroup)); /* the state of a frozen one is S */
}

static bool stop_tree_knows(const struct stop_tree *stop, const struct process *process)
{
    for (size_t i = 0; i < stop->stopped.count; i++)
        if (stop->stopped.items[i].pid == process->pid && stop->stopped.items[i].start_ticks == process->start_ticks)
            return true;
    return false;
}

/* Remembered first: a process that is stopped and forgotten would stay so. */
static bool stop_tree_remember(struct stop_tree *stop, const struct process *process)
{
    return stop_tree_knows(stop, process) || process_list_add(&stop->stopped, process);
}

size_t stop_tree_pass(struct stop_tree *stop, struct kill_tree *tree, const char *frozen_cgroup, size_t *ret_in_kernel)
{
    size_t running = 0, in_kernel = 0;
    kill_tree_collect(tree);
    for (size_t i = 0; i < tree->members.count; i++) {
        const struct process *process = &tree->members.items[i];
        if (stop_tree_is_still(process, &tree->members, frozen_cgroup))
            continue;
        int result = stop_tree_remember(stop, process) ? process_signal(process, SIGSTOP) : ENOMEM;
        if (result == ESRCH)
            continue;
        running++;
        in_kernel += result == 0 && process->state == 'D';
    }
    *ret_in_kernel = in_kernel;
    return running;
}

void stop_tree_continue(struct stop_tree *stop)
{
    for (size_t i = 0; i < stop->stopped.count; i++)
        process_signal(&stop->stopped.items[i], SIGCONT);
    stop->stopped.count = 0;
}

void stop_tree_fini(struct stop_tree *stop)
{
    process_list_fini(&stop->stopped);
}
