#include "base/error.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

static const struct {
    const char *name;
    enum status status;
    const char *text;
} error_table[] = {
#define X(constant, name, status, text) {name, STATUS_##status, text},
#include "base/error.def"
#undef X
};

static const struct {
    int number;
    const char *name;
    const char *text;
} status_table[] = {
#define X(constant, number, name, text) {number, name, text},
#include "base/status.def"
#undef X
};

static void fill(struct error *err, enum error_code code, int system, const char *format, va_list arguments)
{
    if (err == NULL)
        return;
    err->code = code;
    err->system = system;
    vsnprintf(err->message, sizeof err->message, format, arguments);
}

enum error_code error_set(struct error *err, enum error_code code, const char *format, ...)
{
    int saved = errno;
    va_list arguments;
    va_start(arguments, format);
    fill(err, code, 0, format, arguments);
    va_end(arguments);
    errno = saved;
    return code;
}

enum error_code error_set_errno(struct error *err, enum error_code code, int system, const char *format, ...)
{
    int saved = errno;
    va_list arguments;
    va_start(arguments, format);
    fill(err, code, system, format, arguments);
    va_end(arguments);
    if (err != NULL) {
        size_t length = strlen(err->message);
        snprintf(err->message + length, sizeof err->message - length, ": %s", strerror(system));
    }
    errno = saved;
    return code;
}

enum error_code error_prefix(struct error *err, const char *format, ...)
{
    if (err == NULL)
        return ERROR_INTERNAL;
    int saved = errno;
    char old[sizeof err->message];
    memcpy(old, err->message, sizeof old);
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(err->message, sizeof err->message, format, arguments);
    va_end(arguments);
    size_t length = strlen(err->message);
    snprintf(err->message + length, sizeof err->message - length, ": %s", old);
    errno = saved;
    return err->code;
}

const char *error_name(enum error_code code)
{
    return (unsigned)code < ERROR_COUNT ? error_table[code].name : "internal";
}

enum status error_status(enum error_code code)
{
    return (unsigned)code < ERROR_COUNT ? error_table[code].status : STATUS_INTERNAL;
}

static int status_index(int status)
{
    for (int i = 0; i < (int)(sizeof status_table / sizeof status_table[0]); i++)
        if (status_table[i].number == status)
            return i;
    return -1;
}

const char *error_status_name(int status)
{
    int i = status_index(status);
    return i < 0 ? NULL : status_table[i].name;
}

const char *error_status_meaning(int status)
{
    int i = status_index(status);
    return i < 0 ? NULL : status_table[i].text;
}

enum error_code error_from_name(const char *name)
{
    for (int code = 0; code < ERROR_COUNT; code++)
        if (strcmp(error_table[code].name, name) == 0)
            return (enum error_code)code;
    return ERROR_INTERNAL;
}
