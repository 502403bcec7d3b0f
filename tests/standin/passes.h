/* passes.h: which requests go into which forward pass, as SGLang's scheduler decides it, on all ranks alike. */
#ifndef KLDUMP_STANDIN_PASSES_H
#define KLDUMP_STANDIN_PASSES_H

#include <cjson/cJSON.h>
#include <stdbool.h>

#include "arguments.h"
#include "channel.h"
#include "model.h"

/* On the leader. `peers` are the descriptors of ranks 1.. in order. */
void passes_init(const struct arguments *arguments, const struct model *model, struct channel *main_process,
                 const int *peers, int peer_count);

/* A generate message: its requests wait for the next prefill. A health probe is swallowed while others run. */
void passes_accept(long id, const cJSON *message);

/* The requests of that message are dropped between two passes, without an answer. */
void passes_abort(long call);

bool passes_busy(void);

/* Adds `prefilled`: tokens that passes of prefills have computed since this was last told. */
void passes_tell_prefilled(cJSON *reply);

/* At most one forward pass. False: an exception, *ret_error is its text. */
bool passes_step(const char **ret_error);

#endif
