/* A short helper program whose output is kept. One thread; one child at a time. */
#pragma once

#include "base/error.h"

#include <stdbool.h>
#include <stdint.h>

enum { CAPTURE_TEXT = 4096 };

struct capture {
    int status;                    /* exit status, or 128 + N for signal N */
    bool timed_out;                /* killed with its process group; status is 137 */
    char output[CAPTURE_TEXT];     /* the beginning of standard output, as it came, with a NUL */
    char error_text[CAPTURE_TEXT]; /* the beginning of standard error */
};

/* Runs argv with the environment given, /dev/null as standard input, in a process group of its own, and waits for its
 * end, `limit_ms` at most. ERROR_COMMAND_NOT_FOUND, ERROR_CANNOT_EXECUTE, ERROR_SYSTEM. */
enum error_code capture_run(char *const *argv, char *const *environment, uint64_t limit_ms, struct capture *ret_capture,
                            struct error *err);
