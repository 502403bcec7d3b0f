/* log.c: see log.h. */
#include "log.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "text.h"
#include "version.h"

static char role[32];

void log_set_role(const char *text)
{
    snprintf(role, sizeof role, "%s", text != NULL ? text : "");
}

static void emit(int fd, const char *prefix, const char *format, va_list arguments)
{
    char *body = NULL;
    if (vasprintf(&body, format, arguments) < 0)
        return;
    struct text line;
    text_init(&line);
    text_format(&line, "%s%s\n", prefix, body);
    /* A reader that has gone away is no reason to stop: the real server would go on too. */
    ssize_t written = write(fd, line.data, line.length);
    (void)written;
    text_fini(&line);
    free(body);
}

static void stamp(char *buffer, size_t size, const char *who)
{
    time_t now = time(NULL);
    struct tm parts;
    localtime_r(&now, &parts);
    char date[32];
    strftime(date, sizeof date, "%Y-%m-%d %H:%M:%S", &parts);
    snprintf(buffer, size, "[%s%s] ", date, who);
}

void log_line(const char *format, ...)
{
    char prefix[96];
    stamp(prefix, sizeof prefix, role);
    va_list arguments;
    va_start(arguments, format);
    emit(STDERR_FILENO, prefix, format, arguments);
    va_end(arguments);
}

void log_print(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    emit(STDOUT_FILENO, "", format, arguments);
    va_end(arguments);
}

void log_access(const char *format, ...)
{
    char prefix[96];
    stamp(prefix, sizeof prefix, "");
    strncat(prefix, "INFO:     ", sizeof prefix - strlen(prefix) - 1);
    va_list arguments;
    va_start(arguments, format);
    emit(STDOUT_FILENO, prefix, format, arguments);
    va_end(arguments);
}

void log_dumper(int rank, const char *format, ...)
{
    char prefix[96];
    if (version_rules()->dumper_prefix_has_rank) {
        struct timespec now;
        clock_gettime(CLOCK_REALTIME, &now);
        snprintf(prefix, sizeof prefix, "[Dumper, rank=%d, t=%lld.%03ld] ", rank, (long long)now.tv_sec,
                 now.tv_nsec / 1000000);
    } else {
        /* Then the module is named before the rank, if at all. */
        static const char RPC[] = "[ZmqRpc] ", VALUE[] = "[Dumper.Value] ";
        if (strncmp(format, RPC, sizeof RPC - 1) == 0) {
            format += sizeof RPC - 1;
            snprintf(prefix, sizeof prefix, "[Dumper.ZmqRpc] rank=%d ", rank);
        } else if (strncmp(format, VALUE, sizeof VALUE - 1) == 0) {
            format += sizeof VALUE - 1;
            snprintf(prefix, sizeof prefix, "[Dumper.Value] [%d, %ld] ", rank, (long)time(NULL));
        } else {
            snprintf(prefix, sizeof prefix, "[Dumper] ");
        }
    }
    va_list arguments;
    va_start(arguments, format);
    emit(STDOUT_FILENO, prefix, format, arguments);
    va_end(arguments);
}
