#include "conf/ini_lines.h"

#include "base/memory.h"
#include "base/text.h"

#include <ini.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void ini_lines_fault(struct ini_lines *lines, const char *format, ...)
{
    char text[400];
    va_list arguments;
    if (lines->fault_count++ >= INI_LINES_FAULTS_MAX)
        return;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    list_add_format(lines->faults, "%s line %zu: %s", lines->path, lines->number, text);
}

static bool has_comment(const char *line, size_t length)
{
    return memmem(line, length, " ;", 2) != NULL || memmem(line, length, "\t;", 2) != NULL;
}

static void read_section(struct ini_lines *lines, const char *line, size_t length)
{
    lines->section_line = lines->number;
    if (line[length - 1] != ']' || length < 3) {
        ini_lines_fault(lines, "expected a section such as %s, and nothing behind it", lines->section);
        lines->take_section(lines, NULL);
        return;
    }
    char *name = memory_copy_n(line + 1, length - 2);
    lines->take_section(lines, name);
    free(name);
}

/* ---- keys ---- */

struct delivery {
    struct ini_lines *lines;
    unsigned count;
};

static int deliver(void *user, const char *section, const char *key, const char *value)
{
    struct delivery *delivery = user;
    (void)section;
    if (delivery->count++ == 0)
        delivery->lines->take_value(delivery->lines, key, value);
    return 1;
}

static void read_key(struct ini_lines *lines, const char *line, size_t length)
{
    const char *equals = memchr(line, '=', length), *colon = memchr(line, ':', length);
    if (equals == NULL || equals == line || (colon != NULL && colon < equals)) {
        ini_lines_fault(lines, "expected KEY = VALUE");
        return;
    }
    if (has_comment(line, length)) {
        ini_lines_fault(lines, "' ;' inside a line; a comment needs a line of its own");
        return;
    }
    if (lines->section_line == 0) {
        ini_lines_fault(lines, "stands before any section; put a line %s above it", lines->section);
        return;
    }
    struct delivery delivery = {lines, 0};
    char *text = memory_copy_n(line, length);
    int result = ini_parse_string(text, deliver, &delivery);
    free(text);
    if (result != 0 || delivery.count != 1)
        ini_lines_fault(lines, "was not understood; expected KEY = VALUE");
}

/* ---- lines ---- */

/* Offset of the first byte that is not UTF-8, or `length`. */
static size_t bad_byte(const char *line, size_t length)
{
    size_t i = 0;
    while (i < length) {
        size_t n = 1;
        while (n <= 4 && i + n <= length && !text_is_utf8(line + i, n))
            n++;
        if (n > 4 || i + n > length)
            return i;
        i += n;
    }
    return length;
}

static void read_line(struct ini_lines *lines, const char *line, size_t length)
{
    while (length > 0 && (line[length - 1] == '\r' || line[length - 1] == ' ' || line[length - 1] == '\t'))
        length--;
    if (lines->number == 1 && length >= 3 && memcmp(line, "\xef\xbb\xbf", 3) == 0) {
        ini_lines_fault(lines, "begins with a byte order mark; save the file as UTF-8 without one");
        line += 3; /* what follows it may be right */
        length -= 3;
    }
    if (length == 0)
        return;
    size_t bad = bad_byte(line, length);
    if (length > INI_LINES_LINE_MAX)
        ini_lines_fault(lines, "longer than %d bytes", INI_LINES_LINE_MAX);
    else if (memchr(line, '\0', length) != NULL)
        ini_lines_fault(lines, "holds a NUL byte");
    else if (bad < length)
        ini_lines_fault(lines, "byte 0x%02x in column %zu is not UTF-8", (unsigned char)line[bad], bad + 1);
    else if (line[0] == ' ' || line[0] == '\t')
        ini_lines_fault(lines, "is indented; begin every line in the first column");
    else if (line[0] == '[')
        read_section(lines, line, length);
    else if (line[0] != '#' && line[0] != ';')
        read_key(lines, line, length);
}

void ini_lines_read(struct ini_lines *lines, const char *bytes, size_t length)
{
    if (length > INI_LINES_FILE_MAX) {
        list_add_format(lines->faults, "%s: larger than %d KiB", lines->path, INI_LINES_FILE_MAX / 1024);
        lines->fault_count++;
        return;
    }
    for (size_t at = 0; at < length;) {
        const char *end = memchr(bytes + at, '\n', length - at);
        size_t line_length = end != NULL ? (size_t)(end - bytes) - at : length - at;
        lines->number++;
        read_line(lines, bytes + at, line_length);
        at += line_length + 1;
    }
    if (lines->fault_count > INI_LINES_FAULTS_MAX)
        list_add_format(lines->faults, "%s: %zu more faults", lines->path, lines->fault_count - INI_LINES_FAULTS_MAX);
}
