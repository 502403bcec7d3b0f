/* scheduler.h: the life of a scheduler process: loading, passes, control calls, its ways to die. */
#ifndef KLDUMP_STANDIN_SCHEDULER_H
#define KLDUMP_STANDIN_SCHEDULER_H

#include <cjson/cJSON.h>

#include "arguments.h"
#include "channel.h"

/*
 * Never returns. `start` is the first message of the main process: {"rank": r, "peers": [fd, ...]} for the leader,
 * {"rank": r, "leader": fd} for the others.
 */
_Noreturn void scheduler_run(const struct arguments *arguments, struct channel *main_process, const cJSON *start);

#endif
