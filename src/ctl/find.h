/* Finding runs and talking about them, alive or dead. A run of ours: its guard's socket in our runtime folder, or the
 * record that it left there. Any other: kldumpd, our own or the system's, which passes requests on. One thread. */
#pragma once

#include "base/buffer.h"
#include "base/list.h"
#include "ctl/client.h"
#include "json/json.h"

#include <stdbool.h>

struct find {
    char name[65];
    struct client *client; /* to the guard, or to kldumpd when `relayed`; NULL: the run is dead */
    bool relayed;
    bool has_owner; /* relayed: the run of user `uid` is meant, not one of that name of anybody */
    uint64_t uid;
    char *folder;        /* of the run in a runtime folder; NULL when relayed */
    char *daemon;        /* socket of the kldumpd that passes requests on; NULL unless relayed */
    struct json *record; /* of a dead run; NULL else */
    bool for_reader;     /* answers are for whoever reads standard output: see client_watch_reader */
};

/* Looks for the run `name`, or OWNER/NAME: a live one of ours first, then one that a kldumpd has, then what a dead one
 * of ours has left. NULL: the only live one, of ours; root's is also that of anybody. ERROR_NO_RUN tells which runs are
 * there. ERROR_BUSY: its guard is alive but does not answer on its socket. ERROR_FORBIDDEN: kldumpd does not serve us,
 * with the rule that says so. Others as client_connect. On success the caller owns *ret_find. */
enum error_code find_run(const char *name, struct find *ret_find, struct error *err);
void find_fini(struct find *find); /* also of a zeroed one */

/* One request about a live run; `parameters` is taken over. As client_call; messages begin with the run's name. */
enum error_code find_call(struct find *find, const char *method, struct json *parameters, int64_t timeout_ms,
                          struct json **ret_result, struct error *err);

/* After ERROR_UNREACHABLE: waits up to `patience_ms` for the end of the run and turns *find into a dead one (or a live
 * one, should its guard answer again). Relayed: connects to the same kldumpd again; where that has gone, to the guard
 * of a run of ours, else waits up to `patience_ms` for the next kldumpd. */
enum error_code find_again(struct find *find, int64_t patience_ms, struct error *err);

/* The run object of status; of a dead run the last one, with state "ended" in any case (outcome "guard-lost" when the
 * guard could not write the end). The caller owns it. */
enum error_code find_status(struct find *find, struct json **ret_run, struct error *err);

/* A run as a look at everything found it. */
struct find_seen {
    struct json *run;    /* its run object; state "unknown" where its guard lives but does not answer */
    const char *runtime; /* runtime folder in which it was found, or NULL; */
    const char *daemon;  /* else the socket of the kldumpd that listed it */
};

/* All runs that can be seen, each once: live ones first, by name. */
struct find_list {
    struct find_seen *seen;
    size_t count;
    struct json *ended;   /* {OUTCOME: how many so far}, of all kldumpds together; NULL: none tells */
    struct list places;   /* for the pointers above */
    struct list notes;    /* kldumpds that are there but could not be asked, and why; for people */
    struct error problem; /* of the first of them; ERROR_NONE: all answered */
};
enum error_code find_all(struct find_list *ret_list, struct error *err);
void find_list_fini(struct find_list *list); /* also of a zeroed one */
bool find_is_live(const struct json *run);
bool find_is_ours(const struct json *run); /* of the user that we are */

/* Opens a run of the list, as find_run. */
enum error_code find_open(const struct find_seen *seen, struct find *ret_find, struct error *err);

/* Connects to kldumpd: our own, else the system's. ERROR_NO_DAEMON says how to start one. *ret_path (may be NULL): its
 * socket, the caller's. */
enum error_code find_daemon(struct client **ret_client, char **ret_path, struct error *err);

/* Opens the run `name` that the kldumpd at the socket `daemon` has, of the user `uid` where that is not NULL;
 * ERROR_NO_RUN: it has none. One that ends meanwhile is waited for as in find_again, for seconds. */
enum error_code find_at(const char *daemon, const char *name, const uint64_t *uid, struct find *ret_find,
                        struct error *err);

/* Events above number `after`, waiting up to `wait_ms` for one where the run lives: an array. Also what to ask with
 * next time, and whether nothing more will come. */
enum error_code find_events(struct find *find, uint64_t after, uint64_t wait_ms, struct json **ret_events,
                            uint64_t *ret_next, bool *ret_ended, struct error *err);

/* Server output from byte `offset` on, appended to *text; likewise. */
enum error_code find_logs(struct find *find, uint64_t offset, uint64_t wait_ms, struct buffer *text, uint64_t *ret_next,
                          bool *ret_ended, struct error *err);

/* All of the server's output that is kept, appended to *text. Errors as find_logs; *text is as before then. */
enum error_code find_whole_log(struct find *find, struct buffer *text, struct error *err);

/* The last `lines` lines of the server's output, appended to *text; nothing where there is none. */
void find_last_lines(struct find *find, size_t lines, struct buffer *text);
