/* What the server writes: its standard output and standard error, read on the loop, passed on whole and shown line by
 * line. Loop thread only. The pipes are read as fast as bytes come, so that the server never blocks in write(): who
 * takes the bytes must not wait (sys/sink.h does not). */
#pragma once

#include "base/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <uv.h>

enum { OUTPUT_LINE_MAX = 16 * 1024 };

enum output_stream { OUTPUT_STDOUT, OUTPUT_STDERR, OUTPUT_STREAMS };

struct output;

struct output_options {
    int descriptors[OUTPUT_STREAMS]; /* read ends, or -1; taken over, also on failure */
    /* Every byte of both streams in the order of arrival: for the sinks. NULL: nobody wants them. */
    void (*bytes)(enum output_stream stream, const char *data, size_t length, void *user);
    /* One line without its end (line feed or carriage return: progress bars are lines too); not NUL-ended; any byte but
     * those two; never empty. Of a longer line the first OUTPUT_LINE_MAX bytes. Called after the `bytes` that ended it.
     * NULL: nobody wants lines. */
    void (*line)(enum output_stream stream, const char *line, size_t length, void *user);
    void *user;
};

/* Starts to read. Failure: ERROR_SYSTEM; the loop may hold closing handles until its next turn. */
enum error_code output_start(uv_loop_t *loop, const struct output_options *options, struct output **ret_output,
                             struct error *err);

/* The writer has ended: reads what is left until end of file on both streams or for `limit_ms` (a grandchild may hold
 * the pipe), delivers a last line that has no end, then calls `drained` once from the loop. `complete`: end of file was
 * seen on both. Nothing is read afterwards. To be called once. */
void output_drain(struct output *output, uint64_t limit_ms, void (*drained)(bool complete, void *user), void *user);

uint64_t output_bytes(const struct output *output); /* that came so far */

/* Closes the pipes. No `bytes`, `line` or `drained` from now on; `closed` (may be NULL) once from the loop when freed.
 */
void output_close(struct output *output, void (*closed)(void *user), void *user);
