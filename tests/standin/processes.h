/* processes.h: the children of the main process: resource tracker, schedulers, detokenizer; with several replicas a
 * controller, whose children the schedulers are then.
 *
 * They are started as Python's multiprocessing does it: the same program again, with the arguments of a spawned
 * interpreter, in the same group and session. The death of the main process reaches them (PDEATHSIG) only once they
 * have "imported", after half of the load time.
 */
#ifndef KLDUMP_STANDIN_PROCESSES_H
#define KLDUMP_STANDIN_PROCESSES_H

#include <stdbool.h>

#include "arguments.h"
#include "channel.h"

/* Call from the main thread: PDEATHSIG follows the thread that forked. `program` is argv[0]. */
void processes_start(const struct arguments *arguments, const char *program);

/* What a child does that was started so; `code` is the text behind its -c. Never returns. */
_Noreturn void processes_child(const char *program, const char *code);

/* True for the text behind -c of such a child. */
bool processes_is_child(const char *code);

/*
 * Takes messages for at most `timeout_ms`. 1: every scheduler reported ready. 0: not yet. -1: a scheduler died,
 * *ret_rank and *ret_code say which and how (code as Python shows it: -9 for a signal).
 */
int processes_poll_ready(int timeout_ms, int *ret_rank, int *ret_code);

/* Looks for a child that has ended since; its name goes to `name`. False: none. */
bool processes_find_dead(char *name, size_t size, int *ret_pid, int *ret_code);

/* To the scheduler of rank 0 of that replica. */
struct channel *processes_leader(int replica);

/* True while a scheduler that was started has not ended. */
bool processes_scheduler_lives(void);

/* SIGKILL to every child. */
void processes_kill_children(void);

#endif
