/* A guarded run that a command starts for itself and ends with itself: what `investigate` and `kl --vary` measure on.
 * One thread; several at a time are not meant.
 *
 * Happy path: held_run_start (kldump-run becomes our child, its text and the server's go to a file), held_run_wait
 * (armed, or ready for the kind plain), measurements on its name, held_run_stop (in order: what is dumped is sealed).
 * Failures: the run ends before or between: its exit status, its outcome and the last lines of its text are in the
 * error, with the path of the rest. Ctrl-C: the guard is in a process group of its own, so it reaches us alone, and the
 * caller ends what measures before it ends the run, by held_run_stop; likewise TERM and HUP. We die (KILL too): the
 * guard gets TERM from the kernel and stops in order, so that no server is left behind; where we died in
 * held_run_stop, that is its second, and it kills at once. */
#pragma once

#include "base/error.h"
#include "base/list.h"

#include <stdbool.h>
#include <sys/types.h>

struct held_run_plan {
    const char *name;           /* of the run */
    const char *kind;           /* "dump" or "plain" */
    const char *directory;      /* absolute: --dir */
    const struct list *options; /* of a run, as given by the user ("--floor", "20G"), without --name, --dir, --kind */
    char *const *command;       /* CMD, NULL-terminated */
    const char *text_path;      /* file that gets the text of guard and server; it is emptied first */
};

struct held_run {
    pid_t pid; /* of the guard; 0: none */
    int pidfd;
    bool has_ended;
    int status; /* its exit status, where it has ended */
    char *name, *text_path;
};

/* ERROR_INTERNAL: kldump-run is not installed; ERROR_SYSTEM. Needs held_run_stop once it has worked. */
enum error_code held_run_start(const struct held_run_plan *plan, struct held_run *ret_run, struct error *err);

/* Waits until measurements may begin. `wanted` (NULL: always) is asked about once a second, false ends the wait with
 * ERROR_INTERRUPTED; the run goes on. ERROR_STATE with its status where the run ended. */
enum error_code held_run_wait(struct held_run *run, bool (*wanted)(void *user), void *user, struct error *err);

/* Whether it lives; *ret_status (may be NULL): the exit status of one that has ended. */
bool held_run_is_alive(struct held_run *run, int *ret_status);

/* The exit status for `code`, with which a run that was to be measured failed: that of the run where it has ended,
 * STATUS_NOT_ARMED for one that ended with 0 before it served, STATUS_LOST for one that died of a signal; else that of
 * the error. */
int held_run_status(struct held_run *run, enum error_code code);

/* Whether it ends within `limit_ms`: then *err says why, as held_run_wait does. */
bool held_run_ends_within(struct held_run *run, int limit_ms, struct error *err);

/* TERM to the guard unless it has ended, and waits for the end, as long as the guard's own limits let it take. Also of
 * a zeroed one. */
void held_run_stop(struct held_run *run);
