#include "base/memory.h"
#include "conf/ini_lines.h"
#include "conf/settings_table.h"

#include <string.h>

struct reading {
    struct settings_texts *texts;
    bool in_run;                  /* inside section [run] */
    size_t first[SETTINGS_COUNT]; /* line that gave the setting; 0: none */
};

static void take_section(struct ini_lines *lines, const char *name)
{
    struct reading *reading = lines->user;
    reading->in_run = name != NULL && strcmp(name, "run") == 0;
    if (name != NULL && !reading->in_run)
        ini_lines_fault(lines, "unknown section; the only one is [run]");
}

static void take_value(struct ini_lines *lines, const char *key, const char *value)
{
    struct reading *reading = lines->user;
    if (reading->in_run)
        settings_take_line(lines, reading->first, key, value, reading->texts);
}

void settings_take_line(struct ini_lines *lines, size_t first[SETTINGS_COUNT], const char *key, const char *value,
                        struct settings_texts *texts)
{
    int id = 0;
    while (id < SETTINGS_COUNT && (settings_table[id].key[0] == '\0' || strcmp(settings_table[id].key, key) != 0))
        id++;
    if (id == SETTINGS_COUNT) {
        ini_lines_fault(lines, "unknown key '%.60s'", key);
    } else if (first[id] != 0) {
        ini_lines_fault(lines, "'%.60s' was set in line %zu already", key, first[id]);
    } else {
        first[id] = lines->number;
        texts->text[id] = memory_copy(value);
        texts->origin[id] = memory_format("%s line %zu", lines->path, lines->number);
    }
}

void settings_parse_file(const char *path, const char *bytes, size_t length, struct settings_texts *texts)
{
    struct reading reading = {.texts = texts};
    struct ini_lines lines = {.path = path,
                              .section = "[run]",
                              .faults = &texts->faults,
                              .user = &reading,
                              .take_section = take_section,
                              .take_value = take_value};
    ini_lines_read(&lines, bytes, length);
}
