/* The run object of records and answers, where a program other than its guard has to finish it. */
#pragma once

#include "core/run.h"

struct json;

/* Makes `run`, the last that a guard wrote, say that the run is over: state, outcome and its exit status, no dump under
 * way, `message`. As json.h: one thread at a time. */
void run_json_end(struct json *run, enum run_outcome outcome, const char *message);

/* The same for a run that kldumpd itself ended at the floor. */
void run_json_end_backstop(struct json *run);
