/* state_probe.h: with KLDUMP_STANDIN_STATE_PROBE, what examples/state_probe.py prints in a real server: the state of
 * each recurrent layer that a request's next prefill pass goes on from, in one line.
 */
#ifndef KLDUMP_STANDIN_STATE_PROBE_H
#define KLDUMP_STANDIN_STATE_PROBE_H

#include "model.h"
#include "request.h"

/* Behind the restore of a prefix, before the pass. */
void state_probe_print(const struct model *model, const struct request *request);

#endif
