/* kldumpd's own parts, shared by daemon*.c only. All of it belongs to the loop thread. */
#pragma once

#include "base/list.h"
#include "loop/control.h"

#include <stdbool.h>
#include <uv.h>

struct json;
struct daemon_start;
struct daemon_relay;

enum { DAEMON_PATIENCE_MS = 10000 }; /* for a guard that is asked something it knows */

struct daemon {
    uv_loop_t loop;
    char *runtime; /* the runtime folder */
    int lock_fd;
    struct control_server *control;
    uv_signal_t signals[2];
    bool signals_open;
    bool ending;
    struct daemon_start *starts;
    struct daemon_relay *relays;
};

/* daemon.c: tells the service manager how many runs live. */
void daemon_tell(struct daemon *daemon);

/* daemon_runs.c: what the runtime folder says. Reads a tmpfs, so it may block the loop. */
bool daemon_runs_exists(const struct daemon *daemon, const char *name);
bool daemon_runs_is_live(const struct daemon *daemon, const char *name);                     /* its guard lives */
void daemon_runs_names(const struct daemon *daemon, bool live_only, struct list *ret_names); /* sorted */
/* The record of a run. When its guard is gone without having written the end, the run object says so: state "ended",
 * outcome "guard-lost". ERROR_NOT_FOUND: no record (yet); ERROR_FORMAT: damaged. The caller frees. */
enum error_code daemon_runs_record(const struct daemon *daemon, const char *name, struct json **ret_record,
                                   struct error *err);
/* A run object for one whose record cannot be read. */
struct json *daemon_runs_unread(const char *name, const char *state, const char *message);
/* The method `list`. */
void daemon_runs_list(struct control_request *request, void *user);
/* Appends output from *offset on, counted from the oldest byte that is kept, at most `most` bytes and no part of a
 * character at the end. *offset moves down to the end of what there is. True: that is all. */
struct buffer;
bool daemon_runs_log(const struct daemon *daemon, const char *name, uint64_t *offset, size_t most, struct buffer *text);

/* daemon_start.c: the method `start`. */
void daemon_start_request(struct control_request *request, void *user);
void daemon_start_end(struct daemon *daemon); /* answers who waits; the guards go on */

/* daemon_relay.c: the methods of a guard. */
void daemon_relay_request(struct control_request *request, void *user);
void daemon_relay_gone(struct control_connection *connection, void *user);
void daemon_relay_end(struct daemon *daemon);

/* daemon_dead.c: the same for a run that has ended, from what it left behind. */
void daemon_dead_answer(const struct daemon *daemon, const char *name, struct control_request *request);
