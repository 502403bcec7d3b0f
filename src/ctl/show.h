/* Run objects, seals and events as people read them. A member that is missing, null or of another type is shown as
 * absent: what a newer or older guard sends never makes these fail. One thread. */
#pragma once

#include "ctl/output.h"
#include "json/json.h"

#include <stdbool.h>
#include <stdint.h>

enum { SHOW_LABEL = 11 };

/* Members by path: "" and 0 where there is no such text or number (show_number returns false then). */
const char *show_member(const struct json *json, const char *path);
bool show_number(const struct json *json, const char *path, uint64_t *ret_value);

/* The whole of `status`. */
void show_run(struct output *out, const struct json *run);

/* {"schema": SCHEMA, "runs": [RUN]} on a line. `run` stays the caller's. */
void show_json(struct output *out, const char *schema, const struct json *run);

/* The table of `list`. */
void show_runs(struct output *out, const struct json *runs);

/* Why somebody other than who asked for the dump has switched it off ("free space was at the soft level"); "" when it
 * was who asked, or is not told. */
const char *show_sealed_early(const struct json *seal);

/* "dec: complete, 3 steps, 312 files, 1.2 GiB", or incomplete with its reasons below. `directory` may be "". */
void show_seal(struct output *out, const struct json *seal, const char *directory);

/* How a run ended: one or two lines. Nothing but the state while it has not. */
void show_outcome(struct output *out, const struct json *run);

/* "21:35:02.120  +12.3 s  text", coloured by level. */
void show_event(struct output *out, const struct json *event);

/* The exit status that the run ended with; STATUS_INTERNAL where none is told. */
int show_exit_status(const struct json *run);

/* "12.3 s" of "uptime_ms" and the like: seconds with one digit, at most `size` bytes. */
const char *show_seconds(uint64_t ms, char *text, size_t size);
