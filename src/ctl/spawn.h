/* A client program that runs while dumping is on, or a step of a longer work. One thread; one child at a time. */
#pragma once

#include "base/error.h"
#include "base/list.h"

#include <stdbool.h>

/* Where execvp would find `program`; the path is the caller's. As spawn_check otherwise. */
enum error_code spawn_find(const char *program, char **ret_path, struct error *err);

/* Whether `program` can be found as execvp would. ERROR_COMMAND_NOT_FOUND, ERROR_CANNOT_EXECUTE. Nothing is run. */
enum error_code spawn_check(const char *program, struct error *err);

struct spawn {
    char *const *argv;
    const struct list *environment; /* NULL: ours */
    int output_fd;                  /* its standard output, with `has_output`; else ours */
    bool has_output;
    bool dies_with_us; /* it gets TERM should we be killed */
};

/* Runs argv with our standard input and error and waits for its end. Ctrl-C and Ctrl-\ of the terminal reach it by
 * themselves; INT, TERM, HUP and QUIT sent to us are passed on to it; none of them ends us meanwhile. One that we ignore
 * (nohup) is ignored. On success *ret_status is its exit status, or 128 + N for signal N, and *ret_interrupted tells
 * whether a signal reached us. */
enum error_code spawn_run(const struct spawn *spawn, int *ret_status, bool *ret_interrupted, struct error *err);
