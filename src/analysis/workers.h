/* Threads that share out a piece of work among themselves, while the caller waits. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

enum { WORKERS_MAX = 64 };

/* Calls `work` in the caller's thread (`is_caller`) and at the same time in further ones, `threads` in all (0: as many
 * as there are processors, up to 8), but no more than `most` or WORKERS_MAX; returns when all have returned. Each takes
 * items until none is left, so that a thread that cannot be started is not missed. */
void workers_run(unsigned threads, size_t most, void (*work)(void *context, bool is_caller), void *context);
