/* One dump of a live run from its beginning to its seal, as every command that dumps has it. One thread.
 *
 * Happy path: dump_session_room before anything is written, dump_session_begin (dumping is on, on every rank), what is
 * to be dumped, dump_session_end (pause, audit, seal).
 * Failures: refused (nothing was begun); the dump has ended by itself meanwhile (its limit, space, somebody else: its
 * seal stands in the status); the run has ended (its seal, if any, in the record); we are killed with `hold` (the guard
 * pauses). */
#pragma once

#include "base/list.h"
#include "ctl/find.h"

enum { DUMP_SESSION_IDLE_MS = 60000 }; /* how long the server is waited for, unless said otherwise */

struct dump_session {
    const char *experiment;
    bool hold;  /* the dump ends with our connection */
    bool force; /* begin although the server is busy */
    uint64_t wait_idle_ms, for_ms, passes;
    const struct list *own_rids; /* whose passes are ours; NULL: anybody's */
};

/* The folder of a run's dumps; the caller's. ERROR_USAGE where the run is of the kind plain. As find_status else. */
enum error_code dump_session_directory(struct find *find, char **ret_directory, struct error *err);

/* Waits until dumping is on. On success *ret_answer, the caller's, has experiment, dir, url, ranks. */
enum error_code dump_session_begin(struct find *find, const struct dump_session *session, struct json **ret_answer,
                                   struct error *err);

struct dump_session_end {
    struct json *seal;    /* NULL: there is none */
    struct error problem; /* ERROR_STATE where the run has ended; ERROR_NONE: it lives */
};

/* Pauses and waits for the seal and its file, also where the dump is over already; where the run is, finds what became of
 * it. A seal of a death is told with the end of the run, which follows. */
enum error_code dump_session_end(struct find *find, const char *experiment, struct dump_session_end *ret_end,
                                 struct error *err);
void dump_session_end_fini(struct dump_session_end *end); /* also of a zeroed one */

/* Ends a dump whatever `code` (of what was to be dumped, with its error in *err) says, and returns what is wrong:
 * `code`, which stays; else that of the end, ERROR_INCOMPLETE with the reason where the seal is not STATUS_DONE.
 * *ret_seal, the caller's, is NULL where there is none. */
enum error_code dump_session_close(struct find *find, const char *experiment, enum error_code code,
                                   struct json **ret_seal, struct error *err);

/* The seal of `experiment` in a run object, or NULL. */
const struct json *dump_session_seal(const struct json *run, const char *experiment);

/* STATUS_DONE: complete, and ended by whom it was to be ended by. STATUS_INCOMPLETE: not, or there is no seal. */
int dump_session_status(const struct dump_session_end *end);

/* What is about to be dumped, in units whose cost the probe has measured. */
struct dump_session_load {
    uint64_t prefill_tokens;
    uint64_t decode_tokens; /* each as if it had a pass of its own: rather too much than too little */
};

/* Whether it fits above the level at which the dump is ended for lack of space, and into the budget. ERROR_SPACE with
 * the numbers where it does not; ERROR_NOT_FOUND where the probe could not measure what a token costs. */
enum error_code dump_session_room(struct find *find, const struct dump_session_load *load, struct error *err);
