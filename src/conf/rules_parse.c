/* The admin's file: conf/ini_lines.h hands over sections and keys in their order; each value is checked where it
 * stands, so that all faults come with their line. */
#include "base/memory.h"
#include "base/text.h"
#include "conf/rules_table.h"
#include "conf/settings_table.h"

#include <stdlib.h>
#include <string.h>

struct reading {
    struct rules rules;
    const char *section;                 /* of the table, or "defaults"; NULL: unknown, a fault already */
    struct rules_filesystem *filesystem; /* of section [filesystem PATH] */
    /* the line that gave a value, 0 none: first the rows of the whole machine, then those of each filesystem */
    size_t first[1 + RULES_FILESYSTEMS_MAX][RULES_COUNT];
    size_t first_default[SETTINGS_COUNT];
};

static void take_filesystem(struct ini_lines *lines, struct reading *reading, const char *text)
{
    struct error err = ERROR_INIT;
    struct rules *rules = &reading->rules;
    char *path = memory_copy(text + strspn(text, " \t"));
    if (rules_check_path("filesystem", path, &err) != ERROR_NONE) {
        ini_lines_fault(lines, "%s", err.message);
        free(path);
        return;
    }
    size_t i = 0;
    while (i < rules->filesystem_count && strcmp(rules->filesystem[i].path, path) != 0)
        i++;
    if (i < rules->filesystem_count) {
        free(path);
    } else if (i == RULES_FILESYSTEMS_MAX) {
        ini_lines_fault(lines, "more than %d sections [filesystem PATH]", RULES_FILESYSTEMS_MAX);
        free(path);
        return;
    } else {
        rules->filesystem[rules->filesystem_count++].path = path;
    }
    reading->filesystem = &rules->filesystem[i];
    reading->section = "filesystem";
}

static void take_section(struct ini_lines *lines, const char *name)
{
    struct reading *reading = lines->user;
    reading->section = NULL;
    reading->filesystem = NULL;
    if (name == NULL)
        return;
    if (text_starts(name, "filesystem ") || text_starts(name, "filesystem\t")) {
        take_filesystem(lines, reading, name + strlen("filesystem "));
        return;
    }
    if (strcmp(name, "defaults") == 0)
        reading->section = "defaults";
    for (int id = 0; id < RULES_COUNT; id++)
        if (strcmp(name, rules_table[id].section) == 0 && strcmp(name, "filesystem") != 0)
            reading->section = rules_table[id].section;
    if (reading->section == NULL)
        ini_lines_fault(
            lines, "unknown section [%.60s]; the sections are [access], [limits], [filesystem /PATH] and [defaults]",
            name);
}

static void unknown_key(struct ini_lines *lines, const char *section, const char *key)
{
    struct buffer known;
    buffer_init(&known);
    for (int id = 0; id < RULES_COUNT; id++)
        if (strcmp(rules_table[id].section, section) == 0)
            buffer_format(&known, "%s%s", known.length > 0 ? ", " : "", rules_table[id].key);
    ini_lines_fault(lines, "unknown key '%.60s'; section [%s] has %s", key, section, known.data);
    buffer_fini(&known);
}

static void take_rule(struct ini_lines *lines, struct reading *reading, const char *key, const char *value)
{
    struct error err = ERROR_INIT;
    struct rules *rules = &reading->rules;
    int id = 0;
    while (id < RULES_COUNT &&
           (strcmp(rules_table[id].section, reading->section) != 0 || strcmp(rules_table[id].key, key) != 0))
        id++;
    if (id == RULES_COUNT) {
        unknown_key(lines, reading->section, key);
        return;
    }
    size_t place = reading->filesystem != NULL ? 1 + (size_t)(reading->filesystem - rules->filesystem) : 0;
    size_t *first = &reading->first[place][id];
    if (*first != 0) {
        ini_lines_fault(lines, "'%s' was set in line %zu already", key, *first);
        return;
    }
    *first = lines->number;
    if (reading->filesystem == NULL)
        rules->line[id] = lines->number;
    if (rules_take(key, value, (enum rules_id)id, rules_field(rules, reading->filesystem, (enum rules_id)id), &err) !=
        ERROR_NONE)
        ini_lines_fault(lines, "%s", err.message);
}

static void take_default(struct ini_lines *lines, struct reading *reading, const char *key, const char *value)
{
    struct error err = ERROR_INIT;
    struct settings_texts *texts = &reading->rules.defaults;
    size_t faults = lines->fault_count;
    settings_take_line(lines, reading->first_default, key, value, texts);
    for (int id = 0; id < SETTINGS_COUNT && faults == lines->fault_count; id++)
        if (reading->first_default[id] == lines->number &&
            settings_check_text((enum settings_id)id, key, value, &err) != ERROR_NONE)
            ini_lines_fault(lines, "%s", err.message);
}

static void take_value(struct ini_lines *lines, const char *key, const char *value)
{
    struct reading *reading = lines->user;
    if (reading->section == NULL)
        return;
    if (strcmp(reading->section, "defaults") == 0)
        take_default(lines, reading, key, value);
    else
        take_rule(lines, reading, key, value);
}

enum error_code rules_parse(const char *path, const char *bytes, size_t length, struct rules *ret_rules,
                            struct error *err)
{
    struct list faults = {0};
    struct reading *reading = memory_new(sizeof *reading);
    struct ini_lines lines = {.path = path,
                              .section = "[limits]",
                              .faults = &faults,
                              .user = reading,
                              .take_section = take_section,
                              .take_value = take_value};
    rules_init(&reading->rules);
    ini_lines_read(&lines, bytes, length);
    enum error_code code = faults.count > 0 ? settings_join_faults(&faults, ERROR_BAD_VALUE, err) : ERROR_NONE;
    if (code == ERROR_NONE)
        *ret_rules = reading->rules;
    else
        rules_fini(&reading->rules);
    list_fini(&faults);
    free(reading);
    return code;
}
