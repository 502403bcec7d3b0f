#include "conf/rules.h"

#include "base/memory.h"
#include "base/number.h"
#include "base/text.h"
#include "conf/rules_table.h"
#include "conf/settings_table.h"

#include <stdlib.h>
#include <string.h>

const struct rules_row rules_table[RULES_COUNT] = {
#define X(constant, section, key, field, type, fallback, least, most, help) \
    {section, key, RULES_TYPE_##type, fallback, least, most, help},
#include "conf/rules.def"
#undef X
};

static const size_t field_offsets[RULES_COUNT] = {
#define X(constant, section, key, field, type, fallback, least, most, help) offsetof(struct rules, field),
#include "conf/rules.def"
#undef X
};

void *rules_field(struct rules *rules, struct rules_filesystem *filesystem, enum rules_id id)
{
    if (id == RULES_FILESYSTEM_FLOOR)
        return &filesystem->floor;
    if (id == RULES_FILESYSTEM_WORST_RATE)
        return &filesystem->worst_rate_bytes_per_s;
    return (char *)rules + field_offsets[id];
}

/* ---- values ---- */

static enum error_code check_name(const char *what, const char *name, struct error *err)
{
    if (strchr(name, ',') != NULL)
        return error_set(err, ERROR_BAD_VALUE, "%s: '%.60s' holds a comma; names are separated by blanks", what, name);
    for (const char *c = name; *c != '\0'; c++)
        if ((unsigned char)*c < 0x20 || *c == 0x7f || *c == ':' || *c == '/')
            return error_set(err, ERROR_BAD_VALUE, "%s: byte 0x%02x cannot be in the name of a user or group", what,
                             (unsigned char)*c);
    return ERROR_NONE;
}

enum error_code rules_check_path(const char *what, char *path, struct error *err)
{
    if (path[0] != '/')
        return error_set(err, ERROR_BAD_VALUE, "%s: '%.60s' is no path that begins with /", what, path);
    for (const char *part = path; part != NULL; part = strchr(part + 1, '/')) {
        size_t length = strcspn(part + 1, "/");
        if ((length == 1 && part[1] == '.') || (length == 2 && part[1] == '.' && part[2] == '.'))
            return error_set(err, ERROR_BAD_VALUE, "%s: '%.60s' holds a part . or ..; write the path without", what,
                             path);
    }
    for (const char *c = path; *c != '\0'; c++)
        if ((unsigned char)*c < 0x20 || *c == 0x7f)
            return error_set(err, ERROR_BAD_VALUE, "%s: the path holds a control character", what);
    for (size_t length = strlen(path); length > 1 && path[length - 1] == '/'; length--)
        path[length - 1] = '\0';
    return ERROR_NONE;
}

static enum error_code take_words(const char *what, const char *text, bool paths, struct list *ret_list,
                                  struct error *err)
{
    struct list words = {0};
    enum error_code code = ERROR_NONE;
    for (const char *at = text + strspn(text, " \t"); *at != '\0' && code == ERROR_NONE;) {
        size_t length = strcspn(at, " \t");
        char *word = memory_copy_n(at, length);
        code = paths ? rules_check_path(what, word, err) : check_name(what, word, err);
        list_add(&words, word);
        free(word);
        at += length;
        at += strspn(at, " \t");
    }
    if (code == ERROR_NONE && words.count == 0 && text[0] == '\0')
        code = error_set(err, ERROR_BAD_VALUE, "%s: is empty; leave the line out", what);
    if (code != ERROR_NONE) {
        list_fini(&words);
        return code;
    }
    list_fini(ret_list);
    *ret_list = words;
    return ERROR_NONE;
}

static enum error_code take_count(const char *what, const char *text, const struct rules_row *row, uint64_t *ret_count,
                                  struct error *err)
{
    uint64_t count = 0;
    enum error_code code = number_parse(what, text, row->most, &count, err);
    if (code == ERROR_NONE && count < row->least)
        code = error_set(err, ERROR_BAD_VALUE, "%s: %s is out of bounds; at least %llu and at most %llu", what, text,
                         (unsigned long long)row->least, (unsigned long long)row->most);
    if (code == ERROR_NONE)
        *ret_count = count;
    return code;
}

enum error_code rules_take(const char *what, const char *text, enum rules_id id, void *field, struct error *err)
{
    const struct rules_row *row = &rules_table[id];
    enum error_code code = ERROR_NONE;
    struct size size;
    switch (row->type) {
    case RULES_TYPE_NAMES:
    case RULES_TYPE_PATHS:
        return take_words(what, text, row->type == RULES_TYPE_PATHS, field, err);
    case RULES_TYPE_COUNT:
        return take_count(what, text, row, field, err);
    case RULES_TYPE_SIZE_OR_PERCENT:
        return settings_check_size(what, text, true, row->least, row->most, field, err);
    case RULES_TYPE_SIZE:
        code = settings_check_size(what, text, false, row->least, row->most, &size, err);
        if (code == ERROR_NONE)
            *(uint64_t *)field = size.value;
        break;
    }
    return code;
}

/* ---- the struct ---- */

void rules_init(struct rules *ret_rules)
{
    *ret_rules = (struct rules){0};
    for (int id = 0; id < RULES_COUNT; id++) {
        const struct rules_row *row = &rules_table[id];
        if (row->fallback[0] != '\0' && rules_take("default", row->fallback, (enum rules_id)id,
                                                   rules_field(ret_rules, NULL, (enum rules_id)id), NULL) != ERROR_NONE)
            abort(); /* a fault of the table, which its test finds */
    }
}

void rules_fini(struct rules *rules)
{
    list_fini(&rules->users);
    list_fini(&rules->groups);
    list_fini(&rules->admin_groups);
    list_fini(&rules->folders);
    for (size_t i = 0; i < rules->filesystem_count; i++)
        free(rules->filesystem[i].path);
    settings_texts_fini(&rules->defaults);
    *rules = (struct rules){0};
}

static bool is_below(const char *folder, const char *top)
{
    size_t length = strlen(top);
    if (strcmp(top, "/") == 0)
        return true;
    return text_starts(folder, top) && (folder[length] == '/' || folder[length] == '\0');
}

enum error_code rules_allow_folder(const struct rules *rules, const char *folder, struct error *err)
{
    struct buffer text;
    for (size_t i = 0; i < rules->folders.count; i++)
        if (is_below(folder, rules->folders.items[i]))
            return ERROR_NONE;
    if (rules->folders.count == 0)
        return ERROR_NONE;
    buffer_init(&text);
    for (size_t i = 0; i < rules->folders.count; i++)
        buffer_format(&text, "%s%s", i > 0 ? " " : "", rules->folders.items[i]);
    error_set(err, ERROR_FORBIDDEN,
              "dump folder %.200s is not below a folder that the admin's rule 'folders' allows (%.200s); give a --dir "
              "below one of those, or ask the admin to add its folder to 'folders'",
              folder, text.data);
    buffer_fini(&text);
    return ERROR_FORBIDDEN;
}
