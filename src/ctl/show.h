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

/* How long ago what is shown of a live run was told, and its space read: the older of the two. With more than
 * SHOW_FRESH_MS the figures of its space count as unknown. */
enum { SHOW_FRESH_MS = 30000 };
uint64_t show_age_ms(const struct json *run);

/* Of the kind plain. Runs of guards from before there were kinds are for dumps. */
bool show_is_plain(const struct json *run);

/* The whole of `status`. */
void show_run(struct output *out, const struct json *run);

/* {"schema": SCHEMA, "runs": [RUN]} on a line. `run` stays the caller's. */
void show_json(struct output *out, const char *schema, const struct json *run);

/* Why somebody other than who asked for the dump has switched it off ("free space was at the soft level"); "" when it
 * was who asked, or is not told. */
const char *show_sealed_early(const struct json *seal);

/* "dec: complete, 3 steps, 312 files, 1.2 GiB", or incomplete with its reasons below. `directory` may be "". */
void show_seal(struct output *out, const struct json *seal, const char *directory);

/* How a run ended: one or two lines. Nothing but the state while it has not. */
void show_outcome(struct output *out, const struct json *run);

/* Why a run is over, in one line with numbers: "killed at the floor: 20.1 GiB free on ...". Appended to *text. */
void show_why(const struct json *run, struct buffer *text);

/* "21:35:02.120  +12.3 s  text", coloured by level. */
void show_event(struct output *out, const struct json *event);

/* The exit status that the run ended with; STATUS_INTERNAL where none is told. */
int show_exit_status(const struct json *run);

/* The colour of a state, of an ended run that of its outcome. */
enum output_style show_style(const char *state, const char *outcome);

/* Seconds since 1970 of "2026-11-29T21:35:02.120Z", its fraction left out; -1 when it is no such time. */
double show_time(const char *at);

/* "12.3 s" of "uptime_ms" and the like: seconds with one digit, at most `size` bytes. */
const char *show_seconds(uint64_t ms, char *text, size_t size);
