#include "sys/kill_tree.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { KILL_TREE_NO, KILL_TREE_NEW, KILL_TREE_KILLED };

void kill_tree_init(struct kill_tree *tree, const struct kill_tree_target *target)
{
    *tree = (struct kill_tree){.target = *target};
    process_snapshot(&tree->all);
    tree->marks_capacity = tree->all.capacity;
    tree->marks = calloc(tree->marks_capacity ? tree->marks_capacity : 1, 1);
    struct process_list *const lists[] = {&tree->members, &tree->before};
    for (size_t i = 0; i < 2; i++) {
        lists[i]->items = calloc(256, sizeof *lists[i]->items);
        lists[i]->capacity = lists[i]->items ? 256 : 0;
    }
}

void kill_tree_fini(struct kill_tree *tree)
{
    process_list_fini(&tree->all);
    process_list_fini(&tree->members);
    process_list_fini(&tree->before);
    free(tree->marks);
    *tree = (struct kill_tree){0};
}

static bool kill_tree_is_spared(const struct kill_tree *tree, pid_t pid)
{
    return pid <= 1 || pid == getpid() || pid == tree->target.ancestor || pid == tree->target.guard;
}

/* The index of a pid; the list is in the order of /proc, which is that of the numbers. */
static size_t kill_tree_find(const struct process_list *all, pid_t pid)
{
    size_t low = 0, high = all->count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (all->items[middle].pid < pid)
            low = middle + 1;
        else
            high = middle;
    }
    return low < all->count && all->items[low].pid == pid ? low : SIZE_MAX;
}

static int kill_tree_compare(const void *a, const void *b)
{
    pid_t left = ((const struct process *)a)->pid, right = ((const struct process *)b)->pid;
    return (left > right) - (left < right);
}

static bool kill_tree_snapshot(struct kill_tree *tree)
{
    tree->is_whole = process_snapshot(&tree->all);
    struct process_list *all = &tree->all;
    for (size_t i = 1; i < all->count; i++)
        if (all->items[i - 1].pid > all->items[i].pid) {
            qsort(all->items, all->count, sizeof *all->items, kill_tree_compare);
            break;
        }
    if (all->count > tree->marks_capacity || !tree->marks) {
        unsigned char *marks = realloc(tree->marks, all->capacity);
        if (marks) {
            tree->marks = marks;
            tree->marks_capacity = all->capacity;
        } else if (all->count > tree->marks_capacity) {
            all->count = tree->marks_capacity; /* out of memory: the next pass sees the others */
            tree->is_whole = false;
        }
    }
    if (!tree->marks)
        return false;
    memset(tree->marks, KILL_TREE_NO, all->count);
    return true;
}

/* Marks descendants of the ancestor and of whatever is marked, until nothing changes. */
static void kill_tree_mark_descendants(struct kill_tree *tree)
{
    bool changed = true;
    while (changed) {
        changed = false;
        for (size_t i = 0; i < tree->all.count; i++) {
            const struct process *process = &tree->all.items[i];
            if (tree->marks[i] != KILL_TREE_NO || kill_tree_is_spared(tree, process->pid))
                continue;
            bool ours = tree->target.ancestor > 0 && process->parent == tree->target.ancestor &&
                        process->start_ticks >= tree->target.since_ticks;
            if (!ours && process->parent > 1) {
                size_t parent = kill_tree_find(&tree->all, process->parent);
                ours = parent != SIZE_MAX && tree->marks[parent] != KILL_TREE_NO;
            }
            if (ours) {
                tree->marks[i] = KILL_TREE_NEW;
                changed = true;
            }
        }
    }
}

static void kill_tree_mark_by_numbers(struct kill_tree *tree)
{
    pid_t main_pid = tree->target.main;
    for (size_t i = 0; main_pid > 1 && i < tree->all.count; i++) {
        const struct process *process = &tree->all.items[i];
        if ((process->session == main_pid || process->group == main_pid) && !kill_tree_is_spared(tree, process->pid))
            tree->marks[i] = KILL_TREE_NEW;
    }
    kill_tree_mark_descendants(tree);
}

static void kill_tree_mark_by_cookie(struct kill_tree *tree)
{
    bool found = false;
    for (size_t i = 0; tree->target.cookie && i < tree->all.count; i++) {
        const struct process *process = &tree->all.items[i];
        if (tree->marks[i] != KILL_TREE_NO || process->start_ticks < tree->target.since_ticks ||
            !process_is_alive(process) || kill_tree_is_spared(tree, process->pid) ||
            !process_has_environment(process->pid, KILL_TREE_COOKIE, tree->target.cookie))
            continue;
        tree->marks[i] = KILL_TREE_NEW;
        found = true;
    }
    if (found)
        kill_tree_mark_descendants(tree);
}

/* True when every process of that group belongs to the run. */
static bool kill_tree_owns_group(const struct kill_tree *tree, pid_t group)
{
    if (group <= 1 || group == getpgrp())
        return false;
    for (size_t i = 0; i < tree->all.count; i++)
        if (tree->all.items[i].group == group && tree->marks[i] == KILL_TREE_NO)
            return false;
    return true;
}

static void kill_tree_kill_marked(struct kill_tree *tree)
{
    pid_t last_group = -1; /* 0 is a group too: one whose leader is outside this pid namespace */
    for (size_t i = 0; i < tree->all.count; i++) {
        const struct process *process = &tree->all.items[i];
        if (tree->marks[i] != KILL_TREE_NEW || !process_is_alive(process))
            continue;
        if (process->group != last_group && kill_tree_owns_group(tree, process->group)) {
            last_group = process->group;
            kill(-last_group, SIGKILL);
        }
        if (process->group != last_group)
            process_signal(process, SIGKILL);
    }
    for (size_t i = 0; i < tree->all.count; i++)
        if (tree->marks[i] == KILL_TREE_NEW)
            tree->marks[i] = KILL_TREE_KILLED;
}

static size_t kill_tree_take_members(struct kill_tree *tree)
{
    struct process_list before = tree->before;
    tree->before = tree->members;
    tree->members = before;
    tree->members.count = tree->zombies = tree->fresh = 0;
    size_t found = 0;
    for (size_t i = 0; i < tree->all.count; i++) {
        const struct process *process = &tree->all.items[i];
        if (tree->marks[i] == KILL_TREE_NO)
            continue;
        if (!process_is_alive(process)) {
            tree->zombies++;
            continue;
        }
        size_t at = kill_tree_find(&tree->before, process->pid);
        tree->fresh += at == SIZE_MAX || tree->before.items[at].start_ticks != process->start_ticks;
        process_list_add(&tree->members, process);
        found++;
    }
    return found;
}

size_t kill_tree_collect(struct kill_tree *tree)
{
    if (!kill_tree_snapshot(tree)) {
        tree->members.count = 0;
        return 0;
    }
    kill_tree_mark_by_numbers(tree);
    kill_tree_mark_by_cookie(tree);
    return kill_tree_take_members(tree);
}

size_t kill_tree_pass(struct kill_tree *tree)
{
    if (!kill_tree_snapshot(tree))
        return 1; /* nothing is known: not empty */
    /* Those known by numbers die before any environment is read: that read waits for the memory lock of a process that
     * may hang. */
    kill_tree_mark_by_numbers(tree);
    kill_tree_kill_marked(tree);
    kill_tree_mark_by_cookie(tree);
    kill_tree_kill_marked(tree);
    size_t found = kill_tree_take_members(tree);
    return found == 0 && !tree->is_whole ? 1 : found; /* who was not seen may live */
}

static uint64_t kill_tree_now_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

bool kill_tree_until_empty(struct kill_tree *tree, uint64_t limit_ms)
{
    uint64_t end_ms = kill_tree_now_ms() + limit_ms;
    long pause_ns = 500000;
    for (int empty = 0;;) {
        empty = kill_tree_pass(tree) == 0 ? empty + 1 : 0;
        if (empty == 2)
            return true;
        if (empty == 1)
            continue;
        if (kill_tree_now_ms() >= end_ms)
            return false;
        nanosleep(&(struct timespec){0, pause_ns}, NULL);
        pause_ns = pause_ns < 20000000 ? pause_ns * 2 : pause_ns;
    }
}
