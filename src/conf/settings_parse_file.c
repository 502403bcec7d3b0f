/* A config file: every line is checked here first, because inih as distributions build it splits long lines, takes an
 * indented line for a second value of the key above, cuts a value at " ;" and goes on after a bad line, all without a
 * word. What inih then hands over is held against the lines seen here. */
#include "base/memory.h"
#include "base/text.h"
#include "conf/settings_table.h"

#include <ini.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { KEYS_MAX = 64, REPORTED_MAX = 8 };

struct reading {
    const char *path;
    struct settings_texts *texts;
    bool in_run;                  /* inside section [run] */
    bool has_section;             /* any section has begun */
    size_t key_line[KEYS_MAX];    /* line number of the n-th line with a key */
    size_t key_count;             /* such lines */
    size_t delivered;             /* keys that inih has handed over */
    size_t fault_count;           /* all of them; the first few are kept */
    size_t first[SETTINGS_COUNT]; /* line that gave the setting; 0: none */
};

static void fault(struct reading *reading, size_t line, const char *what)
{
    if (reading->fault_count++ < REPORTED_MAX)
        settings_fault(reading->texts, "%s line %zu: %s", reading->path, line, what);
}

static void check_section(struct reading *reading, size_t number, const char *line, size_t length)
{
    bool is_run = length == 5 && memcmp(line, "[run]", 5) == 0;
    if (!is_run)
        fault(reading, number, "unknown section; the only one is [run]");
    reading->in_run = is_run;
    reading->has_section = true;
}

static void check_key(struct reading *reading, size_t number, const char *line, size_t length)
{
    const char *equals = memchr(line, '=', length), *colon = memchr(line, ':', length);
    if (equals == NULL || equals == line || (colon != NULL && colon < equals)) {
        fault(reading, number, "expected KEY = VALUE");
        return;
    }
    if (!reading->has_section)
        fault(reading, number, "stands before any section; put a line [run] above it");
    if (memmem(line, length, " ;", 2) != NULL || memmem(line, length, "\t;", 2) != NULL)
        fault(reading, number, "' ;' inside a line; a comment needs a line of its own");
    if (reading->key_count < KEYS_MAX)
        reading->key_line[reading->key_count] = number;
    reading->key_count++;
}

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

static void check_line(struct reading *reading, size_t number, const char *line, size_t length)
{
    while (length > 0 && (line[length - 1] == '\r' || line[length - 1] == ' ' || line[length - 1] == '\t'))
        length--;
    if (number == 1 && length >= 3 && memcmp(line, "\xef\xbb\xbf", 3) == 0) {
        fault(reading, number, "begins with a byte order mark; save the file as UTF-8 without one");
        line += 3; /* what follows it may be right */
        length -= 3;
    }
    size_t bad = bad_byte(line, length);
    if (length == 0)
        return;
    if (length > SETTINGS_LINE_MAX) {
        fault(reading, number, "longer than 180 bytes");
    } else if (memchr(line, '\0', length) != NULL) {
        fault(reading, number, "holds a NUL byte");
    } else if (bad < length) {
        char message[96];
        snprintf(message, sizeof message, "byte 0x%02x in column %zu is not UTF-8", (unsigned char)line[bad], bad + 1);
        fault(reading, number, message);
    } else if (line[0] == ' ' || line[0] == '\t') {
        fault(reading, number, "is indented; begin every line in the first column");
    } else if (line[0] == '[') {
        check_section(reading, number, line, length);
    } else if (line[0] != '#' && line[0] != ';') {
        check_key(reading, number, line, length);
    }
}

static int find_key(const char *key)
{
    for (int id = 0; id < SETTINGS_COUNT; id++)
        if (settings_table[id].key[0] != '\0' && strcmp(settings_table[id].key, key) == 0)
            return id;
    return -1;
}

/* Called by inih for every key; always goes on, so that all faults are found. */
static int take(void *user, const char *section, const char *key, const char *value)
{
    struct reading *reading = user;
    char message[200];
    size_t number = reading->delivered < KEYS_MAX ? reading->key_line[reading->delivered] : 0;
    reading->delivered++;
    int id = find_key(key);
    if (strcmp(section, "run") != 0)
        return 1; /* a fault already */
    if (id < 0) {
        snprintf(message, sizeof message, "unknown key '%.60s'", key);
        fault(reading, number, message);
    } else if (reading->first[id] != 0) {
        snprintf(message, sizeof message, "'%.60s' was set in line %zu already", key, reading->first[id]);
        fault(reading, number, message);
    } else {
        reading->first[id] = number;
        reading->texts->text[id] = memory_copy(value);
        reading->texts->origin[id] = memory_format("%s line %zu", reading->path, number);
    }
    return 1;
}

void settings_parse_file(const char *path, const char *bytes, size_t length, struct settings_texts *texts)
{
    struct reading reading = {.path = path, .texts = texts};
    if (length > SETTINGS_FILE_MAX) {
        settings_fault(texts, "%s: larger than 64 KiB", path);
        return;
    }
    size_t number = 1;
    for (size_t at = 0; at < length; number++) {
        const char *end = memchr(bytes + at, '\n', length - at);
        size_t line_length = end != NULL ? (size_t)(end - bytes) - at : length - at;
        check_line(&reading, number, bytes + at, line_length);
        at += line_length + 1;
    }
    if (reading.key_count > KEYS_MAX)
        settings_fault(texts, "%s: more than %d keys", path, KEYS_MAX);
    if (reading.fault_count == 0 && reading.key_count <= KEYS_MAX) {
        char *text = memory_copy_n(bytes, length);
        int result = ini_parse_string(text, take, &reading);
        free(text);
        if (result != 0 || reading.delivered != reading.key_count)
            settings_fault(texts, "%s: the file was not understood near line %d", path, result > 0 ? result : 1);
    }
    if (reading.fault_count > REPORTED_MAX)
        settings_fault(texts, "%s: %zu more faults", path, reading.fault_count - REPORTED_MAX);
}
