/* Finding a run and talking about it, alive or dead. Alive: its guard's socket in our runtime folder, else kldumpd,
 * which passes requests on. Dead: the record it left in our runtime folder. One thread. */
#pragma once

#include "base/buffer.h"
#include "ctl/client.h"
#include "json/json.h"

#include <stdbool.h>

struct find {
    char name[65];
    struct client *client; /* to the guard, or to kldumpd when `relayed`; NULL: the run is dead */
    bool relayed;
    char *folder;        /* of the run in our runtime folder; NULL when relayed */
    struct json *record; /* of a dead run; NULL else */
};

/* Looks for the run `name`; NULL: the only live one. ERROR_NO_RUN tells which runs are there. ERROR_BUSY: its guard is
 * alive but does not answer on its socket. Others as client_connect. On success the caller owns *ret_find. */
enum error_code find_run(const char *name, struct find *ret_find, struct error *err);
void find_fini(struct find *find); /* also of a zeroed one */

/* One request about a live run; `parameters` is taken over. As client_call; messages begin with the run's name. */
enum error_code find_call(struct find *find, const char *method, struct json *parameters, int64_t timeout_ms,
                          struct json **ret_result, struct error *err);

/* After ERROR_UNREACHABLE: waits up to `patience_ms` for the end of the run and turns *find into a dead one (or a live
 * one, should its guard answer again). Relayed: connects to kldumpd again. */
enum error_code find_again(struct find *find, int64_t patience_ms, struct error *err);

/* The run object of status; of a dead run the last one, with state "ended" in any case (outcome "guard-lost" when the
 * guard could not write the end). The caller owns it. */
enum error_code find_status(struct find *find, struct json **ret_run, struct error *err);

/* All runs that can be seen, an array of run objects by name; one whose guard lives but does not answer has the state
 * "unknown". The caller owns it. */
enum error_code find_all(struct json **ret_runs, struct error *err);

/* Connects to kldumpd: our own, else the system's. ERROR_NO_DAEMON says how to start one. */
enum error_code find_daemon(struct client **ret_client, struct error *err);

/* Events above number `after`, waiting up to `wait_ms` for one where the run lives: an array. Also what to ask with
 * next time, and whether nothing more will come. */
enum error_code find_events(struct find *find, uint64_t after, uint64_t wait_ms, struct json **ret_events,
                            uint64_t *ret_next, bool *ret_ended, struct error *err);

/* Server output from byte `offset` on, appended to *text; likewise. */
enum error_code find_logs(struct find *find, uint64_t offset, uint64_t wait_ms, struct buffer *text, uint64_t *ret_next,
                          bool *ret_ended, struct error *err);

/* The last `lines` lines of the server's output, appended to *text; nothing where there is none. */
void find_last_lines(struct find *find, size_t lines, struct buffer *text);
