/* ranks.h: one forward pass on all ranks of a torch world, led by rank 0. */
#ifndef KLDUMP_STANDIN_RANKS_H
#define KLDUMP_STANDIN_RANKS_H

#include <cjson/cJSON.h>
#include <stdbool.h>

#include "arguments.h"
#include "forward.h"

/* On the leader. `fds` lead to ranks 1.. in order. */
void ranks_init(const struct arguments *arguments, const int *fds, int count);

/* The pass on every rank; returns when all have it behind them. `replica`: with data parallelism of attention, whose
 * requests it holds; the ranks of the others run an empty pass. False: an exception here, *ret_error is its text. */
bool ranks_run(const struct forward_pass *pass, int replica, const char **ret_error);

/* On the other ranks: the pass that the leader sent. */
bool ranks_repeat(const cJSON *message, const char **ret_error);

/* A line of the scheduler's log: each stage of a pipeline prints it (0.5.23, live). */
void ranks_log(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Sends (and deletes) a message to a rank and waits for its answer. */
cJSON *ranks_ask(int rank, cJSON *message);

#endif
