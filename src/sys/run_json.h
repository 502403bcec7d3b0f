/* The run object of records and answers, where a program other than its guard has to finish it. */
#pragma once

#include "core/run.h"

#include <stdint.h>

struct json;

/* JSON values of a record: a guard writes 11,000 at most (1000 events of 7, 128 seals of 13, 360 points of 3), and the
 * words of its command. Whoever reads what lies in a user's folder takes no more. */
enum { RUN_JSON_RECORD_VALUES = 16384 };

/* Makes `run`, the last that a guard wrote, say that the run is over: state, outcome and its exit status, no dump under
 * way, `message`. As json.h: one thread at a time. */
void run_json_end(struct json *run, enum run_outcome outcome, const char *message);

/* Says how old `run` is, which its guard told `age_ms` ago and which lives: member "told_age_ms"; its uptime and the
 * age of its reading of space grow by as much. */
void run_json_age(struct json *run, uint64_t age_ms);

/* The same as run_json_end for a run that kldumpd itself ended at the floor. */
void run_json_end_backstop(struct json *run);

/* What a run object tells of its end, for who keeps it where the guard cannot write: {outcome, exit_status, message,
 * started_at}, a few hundred bytes. NULL: it has not ended, or says nothing sensible. The caller frees. */
struct json *run_json_end_of(const struct json *run);

/* Makes `run` say the end that run_json_end_of has told. ERROR_FORMAT: `end` is none, and `run` as before. */
enum error_code run_json_end_as(struct json *run, const struct json *end, struct error *err);
