/* All processes of one run, found in /proc, and their end. libc only: kldump-keeper links this. One thread at a time
 * per object.
 *
 * A process belongs to the run when it descends from `ancestor` (the keeper, which as a subreaper adopts every orphan),
 * is in the session or group of the main process, carries the run's cookie in its environment, or descends from one
 * that does. Process 1, the caller, `ancestor` and `guard` never belong to it.
 *
 * While the ancestor lives nothing gets out of this: an orphan becomes its child. Once it is dead, a process that is in
 * a session of its own and has cleared its environment can be told from others only by whoever has adopted it. */
#pragma once

#include "sys/process.h"

#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define KILL_TREE_COOKIE "KLDUMP_RUN_COOKIE"

struct kill_tree_target {
    pid_t ancestor;       /* 0: none (the keeper is dead) */
    pid_t main;           /* leader of the run's session and group; 0 once it has been reaped, as its number may then be
                             anybody's */
    pid_t guard;          /* spared; 0: none */
    const char *cookie;   /* borrowed; NULL: not looked for */
    uint64_t since_ticks; /* the cookie, and the ancestor's children, are looked for in processes that started then or
                             later */
};

struct kill_tree {
    struct kill_tree_target target; /* may be changed between calls */
    struct process_list members;    /* live ones found by the last call */
    size_t zombies;                 /* dead members that nobody has waited for yet, at the last call */
    size_t fresh;                   /* of `members`: those that the call before had not found */
    struct process_list before;     /* private */
    struct process_list all;        /* private */
    bool is_whole;                  /* private: `all` are all there were */
    unsigned char *marks;           /* private */
    size_t marks_capacity;          /* private */
};

/* Takes its memory now, for some thousands of processes, so that killing does not have to. */
void kill_tree_init(struct kill_tree *tree, const struct kill_tree_target *target);
void kill_tree_fini(struct kill_tree *tree);

/* Fills `members`; returns their number. */
size_t kill_tree_collect(struct kill_tree *tree);

/* One pass: finds the members and sends KILL to each (whole groups at once where a group holds nobody else, so that a
 * process that forks all the time does not escape). Returns how many live members it found, at least 1 where
 * not all processes could be seen; 0 twice running means that none is left. */
size_t kill_tree_pass(struct kill_tree *tree);

/* Passes until two running find nobody, or until `limit_ms` are over: then false, and `members` are the survivors.
 * Blocks; reaps nothing. */
bool kill_tree_until_empty(struct kill_tree *tree, uint64_t limit_ms);
