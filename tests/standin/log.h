/* log.h: the lines that the server prints, in the forms and on the streams of SGLang (0.5.23, live).
 *
 * Each call is one write(2), so lines of several processes never mix and nothing is lost at a SIGKILL.
 */
#ifndef KLDUMP_STANDIN_LOG_H
#define KLDUMP_STANDIN_LOG_H

/* The ` TP1` part that a scheduler of several ranks puts behind the time; NULL or "" for none. */
void log_set_role(const char *role);

/* The logger: `[2026-11-29 21:35:22] TEXT` on standard error. */
void log_line(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* print(): TEXT on standard output, without a time. */
void log_print(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* An access line of the HTTP server, on standard output. */
void log_access(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* A line of the dumper, on standard output, with the prefix of the release that is played. */
void log_dumper(int rank, const char *format, ...) __attribute__((format(printf, 2, 3)));

#endif
