/* What kldumpctl prints: gathered in memory, written whole at output_flush, also to a slow, non-blocking or closed
 * pipe. Text that came from outside is made safe to show by the functions that say so. One thread. */
#pragma once

#include "base/buffer.h"
#include "base/error.h"
#include "json/json.h"

#include <stdbool.h>
#include <stddef.h>

enum output_style { OUTPUT_PLAIN, OUTPUT_BOLD, OUTPUT_DIM, OUTPUT_GREEN, OUTPUT_YELLOW, OUTPUT_RED };

struct output {
    int fd;
    bool colour; /* a terminal, NO_COLOR unset or empty, TERM not "dumb" */
    bool closed; /* the reader went away or writing failed: what is printed from now on is dropped */
    struct buffer pending;
};

/* `fd` stays the caller's. SIGPIPE must be ignored by the program (output_ignore_pipe_signal). */
void output_init(struct output *out, int fd);
void output_fini(struct output *out); /* does not flush */

/* Ignores SIGPIPE; output_restore_pipe_signal undoes it in a child before exec. */
void output_ignore_pipe_signal(void);
void output_restore_pipe_signal(void);

/* Writes all that is pending; waits for a slow reader. A reader that went away is no error (closed is set, quietly);
 * any other failure is ERROR_SYSTEM. */
enum error_code output_flush(struct output *out, struct error *err);

/* Whether whoever reads has gone, without writing anything; sets `closed` then. */
bool output_is_closed(struct output *out);

void output_text(struct output *out, const char *text);
void output_format(struct output *out, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* `text` from outside, made safe and at most 4 KiB of it; in `style` where colour is on. */
void output_safe(struct output *out, enum output_style style, const char *text);

/* One line "label   text": text begins in column `width` (counted from 0); every line of it after the first, too.
 * Made safe line by line. On a terminal a line that is too long goes on in the next one, broken at a blank, never
 * between a number and its unit. */
void output_pair(struct output *out, size_t width, const char *label, enum output_style style, const char *format, ...)
    __attribute__((format(printf, 5, 6)));

/* The same for a text as it is and lines of `columns`, whatever `out` writes to; 0: never broken. */
void output_paragraph(struct output *out, size_t width, size_t columns, const char *label, enum output_style style,
                      const char *text);

/* A table: `headings` and each row have `columns` cells; a heading that begins with '>' is of a column that is aligned
 * to the right. Cells are made safe. `styles`: one for each row, or NULL. */
void output_table(struct output *out, size_t columns, const char *const *headings, size_t rows,
                  const char *const *cells, const enum output_style *styles);

/* One JSON object on a line of its own. */
void output_json(struct output *out, const struct json *json);

/* Standard error, at once: "kldumpctl COMMAND: MESSAGE" (COMMAND may be NULL); returns the exit status that belongs to
 * the error's code. Also into the file that the variable OUTPUT_ERROR_FILE of the environment names, in place of what
 * is in it: for a command that another one has started, which tells the message in a report. */
#define OUTPUT_ERROR_FILE "KLDUMP_ERROR_FILE"
int output_error(const char *command, const struct error *err);

/* Columns that a text takes on a terminal: characters, not bytes. */
size_t output_columns(const char *text);

/* Columns of the terminal that `out` writes to; 0 where it is none, or does not tell. */
size_t output_width(const struct output *out);

/* All of `data` to `fd`, whatever its mode. False when it could not be (errno says why). */
bool output_write_all(int fd, const char *data, size_t length);
