/* Errors and exit statuses: a code from error.def plus a message that callers may prefix as it climbs.
 *
 * Every function that can fail takes a `struct error *err` last (NULL is allowed) and returns the code; ERROR_NONE (0)
 * is success. On failure all `ret_` outputs are untouched. Functions here keep errno. Any thread; no shared state. */
#pragma once

#include <stdarg.h>

enum error_code {
#define X(constant, name, status, text) ERROR_##constant,
#include "base/error.def"
#undef X
    ERROR_COUNT
};

enum status {
#define X(constant, number, name, text) STATUS_##constant = number,
#include "base/status.def"
#undef X
};

struct error {
    enum error_code code;
    int system; /* errno where the code is ERROR_SYSTEM or a system call was the cause, else 0 */
    char message[768];
};

#define ERROR_INIT        \
    {                     \
        ERROR_NONE, 0, "" \
    }

/* The functions below return the code, so `return error_set(err, ...)` reads well. A message longer than the buffer is
 * cut. */
enum error_code error_set(struct error *err, enum error_code code, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* As error_set with ": TEXT OF ERRNO" appended; `system` is the errno value. */
enum error_code error_set_errno(struct error *err, enum error_code code, int system, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

/* Puts "TEXT: " before the message that is there. Returns the code of `err` (ERROR_INTERNAL when err is NULL). */
enum error_code error_prefix(struct error *err, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Stable name for JSON ("bad-value"); the exit status of a code; the name and meaning of an exit status (NULL:
 * unknown). */
const char *error_name(enum error_code code);
enum status error_status(enum error_code code);
const char *error_status_name(int status);
const char *error_status_meaning(int status);

/* The code whose JSON name is `name`; ERROR_INTERNAL when there is none (a newer peer may know more). */
enum error_code error_from_name(const char *name);
