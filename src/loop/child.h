/* One short-lived helper program at a time: started, fed, read, ended by a deadline, its result delivered once. Loop
 * thread only. For `kldumpctl check --json` and the version query; the server itself is the keeper's child, not ours.
 *
 * libuv waits only for the pids that it spawned itself, one waitpid(pid) each, so it does not take the exit status of
 * the keeper or of any other child of the process (tested in test_loop_child). */
#pragma once

#include "base/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <uv.h>

enum { CHILD_ERROR_TEXT = 2048 };

struct child;

struct child_request {
    char *const *argv;        /* argv[0] is looked for in PATH when it has no slash */
    char *const *environment; /* NULL: ours */
    const char *directory;    /* NULL: ours */
    const void *input;        /* standard input: these bytes, then end of file; copied */
    size_t input_length;
    size_t output_max_bytes; /* of standard output kept; the child is ended when it writes more */
    uint64_t deadline_ms;    /* then KILL to its process group; 0: none */
};

struct child_result {
    int exit_code; /* -1 when it ended by a signal */
    int signal;    /* 0 when it ended by itself */
    bool timed_out;
    bool output_cut; /* it wrote more than output_max_bytes */
    const char *output;
    size_t output_length;   /* a NUL byte follows */
    const char *error_text; /* the last lines of standard error, at most CHILD_ERROR_TEXT bytes, as they came */
};

/* Starts it in a session of its own, with default signal dispositions and no signal blocked; of our
 * descriptors it gets 0, 1, 2 and those that are not close-on-exec.
 * Success: `done` is called exactly once from the loop, later, unless child_cancel comes first; the result lives until
 * `done` returns; `ret_child` is invalid from the moment `done` is called.
 * Failure: ERROR_COMMAND_NOT_FOUND, ERROR_CANNOT_EXECUTE, ERROR_SYSTEM; `done` is not called. */
enum error_code child_start(uv_loop_t *loop, const struct child_request *request,
                            void (*done)(const struct child_result *result, void *user), void *user,
                            struct child **ret_child, struct error *err);

/* Ends it by KILL; `done` will not be called. It frees itself on the loop when the kernel has reported the end. */
void child_cancel(struct child *child);

/* "exit status 3" or "signal 9", and "time limit" where that was the cause; with the last line of standard error. */
void child_describe(const struct child_result *result, char *text, size_t size);
