/* dumper.h: the dumper of one scheduler: its configuration from the environment, its counters, its files.
 *
 * All of it belongs to the scheduler's only thread, save dumper_enabled() and dumper_folder(), which the writers of the
 * fill faults ask from theirs.
 */
#ifndef KLDUMP_STANDIN_DUMPER_H
#define KLDUMP_STANDIN_DUMPER_H

#include <cjson/cJSON.h>
#include <stdbool.h>

#include "arguments.h"
#include "forward.h"
#include "model.h"

/* Reads DUMPER_*. On failure *ret_message is the exception that kills the scheduler while it loads. */
bool dumper_init(const struct model *model, const char *device, int rank, const struct arguments *arguments,
                 const char **ret_message);

/* Hooks are made once, after the weights: only if dumping is enabled or there is a control channel. */
void dumper_register_hooks(void);

/* True for DUMPER_SERVER_PORT=reuse. */
bool dumper_has_control(void);

/* True when the exp_name is still to be chosen at the next pass; the leader chooses, the others are told. */
bool dumper_needs_name(void);
void dumper_choose_name(char *name, size_t size);
void dumper_set_name(const char *name);

/*
 * One pass with everything that the dumper does in it, and the step at its end. False: an exception was raised inside
 * the forward; *ret_message (static or owned by the dumper) is its text.
 */
bool dumper_forward(const struct forward_pass *pass, const char **ret_message);

/* The pass without the dumper: its numbers are computed, nothing is written and no step made. */
void dumper_pass_by(const struct forward_pass *pass);

/* What a graph capture leaves when dumping is on from the start: every tensor of a pass is begun and none is saved. */
void dumper_capture(const struct forward_pass *pass);

/*
 * /dumper/METHOD with its body (an object, or NULL for none). On success the answer of this rank; on failure NULL and
 * *ret_error, the text of the exception, owned by the dumper until the next call.
 */
cJSON *dumper_control(const char *method, const cJSON *body, const char **ret_error);

bool dumper_enabled(void);

/* DIR/EXP_NAME; false when dumping is off or the name is not chosen. */
bool dumper_folder(char *target, size_t size);

#endif
