/* The live view of one run: `status --watch`. One thread. */
#pragma once

#include "ctl/command.h"
#include "ctl/find.h"

/* Shows the run again each second until it has ended, the reader goes away, or the user leaves (q, Ctrl-C). On a
 * terminal in place, with a line for how free space went; else one block a second with an empty line between, or with
 * `as_json` one object a line. *find may become a dead run. STATUS_DONE, or the status of an error. */
int watch_run(const struct command *command, struct find *find, struct output *out, bool as_json);
