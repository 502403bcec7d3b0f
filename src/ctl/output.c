#include "ctl/output.h"
#include "base/memory.h"
#include "base/text.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

enum { ROOM_LEAST = 16 }; /* columns in which it makes sense to break lines */

static const char *const style_codes[] = {"", "\033[1m", "\033[2m", "\033[32m", "\033[33m", "\033[31m"};

void output_init(struct output *out, int fd)
{
    const char *no_colour = getenv("NO_COLOR"), *terminal = getenv("TERM");
    *out = (struct output){.fd = fd};
    out->colour =
        isatty(fd) && (no_colour == NULL || *no_colour == '\0') && terminal != NULL && strcmp(terminal, "dumb") != 0;
    buffer_init(&out->pending);
}

void output_fini(struct output *out)
{
    buffer_fini(&out->pending);
}

static void set_pipe_signal(void (*disposition)(int))
{
    struct sigaction action = {.sa_handler = disposition};
    sigemptyset(&action.sa_mask);
    sigaction(SIGPIPE, &action, NULL);
}

void output_ignore_pipe_signal(void)
{
    set_pipe_signal(SIG_IGN);
}

void output_restore_pipe_signal(void)
{
    set_pipe_signal(SIG_DFL);
}

bool output_write_all(int fd, const char *data, size_t length)
{
    while (length > 0) {
        ssize_t n = write(fd, data, length);
        if (n >= 0) {
            data += n;
            length -= (size_t)n;
        } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
            /* somebody else made the description non-blocking; it is not ours to change back */
            struct pollfd wait = {.fd = fd, .events = POLLOUT};
            if (poll(&wait, 1, -1) < 0 && errno != EINTR)
                return false;
        } else if (errno != EINTR) {
            return false;
        }
    }
    return true;
}

enum error_code output_flush(struct output *out, struct error *err)
{
    bool fine = out->closed || output_write_all(out->fd, out->pending.data, out->pending.length);
    int saved = errno;
    buffer_clear(&out->pending);
    if (fine)
        return ERROR_NONE;
    out->closed = true;
    if (saved == EPIPE)
        return ERROR_NONE;
    return error_set_errno(err, ERROR_SYSTEM, saved, "cannot write the output");
}

bool output_is_closed(struct output *out)
{
    struct pollfd look = {.fd = out->fd};
    if (poll(&look, 1, 0) > 0 && (look.revents & (POLLERR | POLLHUP)) != 0)
        out->closed = true;
    return out->closed;
}

void output_text(struct output *out, const char *text)
{
    buffer_text(&out->pending, text);
}

void output_format(struct output *out, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    char *text = NULL;
    if (vasprintf(&text, format, arguments) >= 0)
        buffer_text(&out->pending, text);
    va_end(arguments);
    free(text);
}

static void add_safe(struct output *out, enum output_style style, const char *text, size_t length)
{
    char clean[4096];
    bool styled = out->colour && style != OUTPUT_PLAIN;
    if (styled)
        buffer_text(&out->pending, style_codes[style]);
    buffer_text(&out->pending, text_clean(text, length, clean, sizeof clean));
    if (styled)
        buffer_text(&out->pending, "\033[0m");
}

void output_safe(struct output *out, enum output_style style, const char *text)
{
    add_safe(out, style, text, strlen(text));
}

size_t output_columns(const char *text)
{
    size_t count = 0;
    for (; *text != '\0'; text++)
        count += ((unsigned char)*text & 0xc0) != 0x80;
    return count;
}

size_t output_width(const struct output *out)
{
    struct winsize size;
    return isatty(out->fd) && ioctl(out->fd, TIOCGWINSZ, &size) == 0 ? size.ws_col : 0;
}

static void add_blanks(struct output *out, size_t count)
{
    while (count-- > 0)
        buffer_text(&out->pending, " ");
}

/* Bytes of `text` that go on one line of `room` columns: all, or what comes before the last blank at which it may be
 * broken. A word that is longer stays whole. */
static size_t line_length(const char *text, size_t length, size_t room)
{
    size_t used = 0, best = 0;
    for (size_t i = 0; i < length; i++) {
        bool breaks = text[i] == ' ' && i > 0 && i + 1 < length &&
                      !(isdigit((unsigned char)text[i - 1]) && isalpha((unsigned char)text[i + 1]));
        if (breaks && (used <= room || best == 0))
            best = i;
        used += ((unsigned char)text[i] & 0xc0) != 0x80;
        if (used > room && best > 0)
            return best;
    }
    return length;
}

void output_paragraph(struct output *out, size_t width, size_t columns, const char *label, enum output_style style,
                      const char *text)
{
    size_t used = output_columns(label);
    size_t room = columns > width + ROOM_LEAST ? columns - width : SIZE_MAX;
    buffer_text(&out->pending, label);
    for (const char *line = text; line != NULL;) {
        size_t whole = strcspn(line, "\n"), part = line_length(line, whole, room);
        /* a label as wide as the column still gets its blank */
        add_blanks(out, used < width ? width - used : 1);
        add_safe(out, style, line, part);
        buffer_text(&out->pending, "\n");
        used = 0;
        line = line[part] != '\0' ? line + part + 1 : NULL; /* without the blank, or the end of the line */
    }
}

void output_pair(struct output *out, size_t width, const char *label, enum output_style style, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    char *text = NULL;
    int length = vasprintf(&text, format, arguments);
    va_end(arguments);
    if (length < 0)
        return;
    output_paragraph(out, width, output_width(out), label, style, text);
    free(text);
}

static const char *heading_text(const char *heading)
{
    return heading[0] == '>' ? heading + 1 : heading;
}

static void add_row(struct output *out, size_t columns, const char *const *headings, const char *const *cells,
                    const size_t *widths, enum output_style style)
{
    for (size_t c = 0; c < columns; c++) {
        size_t blanks = widths[c] - output_columns(cells[c]);
        if (headings[c][0] == '>')
            add_blanks(out, blanks);
        add_safe(out, style, cells[c], strlen(cells[c]));
        if (c + 1 == columns)
            break; /* no blanks at the end of a line */
        add_blanks(out, (headings[c][0] == '>' ? 0 : blanks) + 2);
    }
    buffer_text(&out->pending, "\n");
}

void output_table(struct output *out, size_t columns, const char *const *headings, size_t rows,
                  const char *const *cells, const enum output_style *styles)
{
    size_t *widths = memory_new(columns * sizeof *widths);
    const char **titles = memory_new(columns * sizeof *titles);
    for (size_t c = 0; c < columns; c++) {
        titles[c] = heading_text(headings[c]);
        widths[c] = output_columns(titles[c]);
        for (size_t r = 0; r < rows; r++) {
            size_t used = output_columns(cells[r * columns + c]);
            widths[c] = used > widths[c] ? used : widths[c];
        }
    }
    add_row(out, columns, headings, titles, widths, OUTPUT_BOLD);
    for (size_t r = 0; r < rows; r++)
        add_row(out, columns, headings, cells + r * columns, widths, styles != NULL ? styles[r] : OUTPUT_PLAIN);
    free(titles);
    free(widths);
}

void output_json(struct output *out, const struct json *json)
{
    json_print(json, &out->pending);
    buffer_text(&out->pending, "\n");
}

static void keep_error(const char *text)
{
    const char *path = getenv(OUTPUT_ERROR_FILE);
    int fd = path != NULL ? open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600) : -1;
    if (fd < 0)
        return;
    (void)!output_write_all(fd, text, strlen(text));
    close(fd);
}

int output_error(const char *command, const struct error *err)
{
    char clean[sizeof err->message + 64];
    text_clean(err->message, strlen(err->message), clean, sizeof clean);
    char *line =
        memory_format("kldumpctl%s%s: %s\n", command != NULL ? " " : "", command != NULL ? command : "", clean);
    /* standard error is the last resort: nothing is left to tell its failure to */
    (void)!output_write_all(STDERR_FILENO, line, strlen(line));
    keep_error(clean);
    free(line);
    return (int)error_status(err->code);
}
