#include "conf/settings.h"
#include "base/duration.h"
#include "base/memory.h"
#include "base/text.h"
#include "conf/settings_table.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const struct settings_row settings_table[SETTINGS_COUNT] = {
#define X(constant, field, flag, metavar, type, fallback, least, most, key, help) \
    {flag, metavar, SETTINGS_TYPE_##type, fallback, least, most, key, help, #field},
#include "conf/settings.def"
#undef X
};

/* Where each setting lives in the struct. */
static const size_t field_offsets[SETTINGS_COUNT] = {
#define X(constant, field, flag, metavar, type, fallback, least, most, key, help) offsetof(struct settings, field),
#include "conf/settings.def"
#undef X
};

enum { FLOOR_PERCENT_MOST = 90000 }; /* thousandths; more would leave no room for a dump */

void settings_fault(struct settings_texts *texts, const char *format, ...)
{
    char text[400];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    list_add(&texts->faults, text);
}

void settings_fini(struct settings *settings)
{
    free(settings->directory);
    free(settings->config);
    *settings = (struct settings){0};
}

void settings_texts_fini(struct settings_texts *texts)
{
    for (int id = 0; id < SETTINGS_COUNT; id++) {
        free(texts->text[id]);
        free(texts->origin[id]);
    }
    list_fini(&texts->faults);
    *texts = (struct settings_texts){0};
}

const char *settings_config_path(const struct settings_texts *arguments)
{
    return arguments->text[SETTINGS_CONFIG];
}

enum error_code settings_check_size(const char *origin, const char *text, bool percent_allowed, uint64_t least,
                                    uint64_t most, struct size *ret_size, struct error *err)
{
    struct size size;
    enum error_code code = size_parse(origin, text, percent_allowed, &size, err);
    if (code != ERROR_NONE)
        return code;
    char least_text[SIZE_TEXT], most_text[SIZE_TEXT];
    if (size.percent && (size.value == 0 || size.value > FLOOR_PERCENT_MOST))
        return error_set(err, ERROR_BAD_VALUE, "%s: %s is out of bounds; more than 0%% and at most 90%%", origin, text);
    if (!size.percent && (size.value < least || size.value > most))
        return error_set(err, ERROR_BAD_VALUE, "%s: %s is out of bounds; at least %s and at most %s", origin, text,
                         size_text(least, least_text), size_text(most, most_text));
    *ret_size = size;
    return ERROR_NONE;
}

static enum error_code check_duration(const struct settings_row *row, const char *origin, const char *text,
                                      uint64_t *ret_ms, struct error *err)
{
    uint64_t ms = 0;
    enum error_code code = duration_parse(origin, text, &ms, err);
    if (code != ERROR_NONE)
        return code;
    char least[DURATION_TEXT], most[DURATION_TEXT];
    if (ms < row->least || ms > row->most)
        return error_set(err, ERROR_BAD_VALUE, "%s: %s is out of bounds; at least %s and at most %s", origin, text,
                         duration_text(row->least, least), duration_text(row->most, most));
    *ret_ms = ms;
    return ERROR_NONE;
}

static enum error_code check_path(const char *origin, const char *text, struct error *err)
{
    char clean[80];
    if (text[0] == '\0')
        return error_set(err, ERROR_BAD_VALUE, "%s: is empty; a path is expected", origin);
    if (strlen(text) >= 3000)
        return error_set(err, ERROR_BAD_VALUE, "%s: the path is longer than 3000 bytes", origin);
    for (const char *c = text; *c != '\0'; c++)
        if ((unsigned char)*c < 0x20 || *c == 0x7f)
            return error_set(err, ERROR_BAD_VALUE, "%s: '%s' holds a control character", origin,
                             text_clean(text, strlen(text), clean, sizeof clean));
    if (!text_is_utf8(text, strlen(text)))
        return error_set(err, ERROR_BAD_VALUE, "%s: '%s' is not UTF-8", origin,
                         text_clean(text, strlen(text), clean, sizeof clean));
    return ERROR_NONE;
}

const char *settings_kind_name(enum settings_kind kind)
{
    static const char *const names[SETTINGS_KINDS] = {[SETTINGS_KIND_DUMP] = "dump", [SETTINGS_KIND_PLAIN] = "plain"};
    return names[kind];
}

static enum error_code take_kind(const char *origin, const char *text, enum settings_kind *ret_kind, struct error *err)
{
    for (int kind = 0; kind < SETTINGS_KINDS; kind++)
        if (strcmp(settings_kind_name((enum settings_kind)kind), text) == 0) {
            *ret_kind = (enum settings_kind)kind;
            return ERROR_NONE;
        }
    return error_set(err, ERROR_BAD_VALUE, "%s: '%.60s' is no kind of run; there are dump and plain", origin, text);
}

/* Checks one text and puts its value into *settings. */
static enum error_code take(enum settings_id id, const char *origin, const char *text, struct settings *settings,
                            struct error *err)
{
    const struct settings_row *row = &settings_table[id];
    void *field = (char *)settings + field_offsets[id];
    enum error_code code = ERROR_NONE;
    struct size size = {0};
    switch (row->type) {
    case SETTINGS_TYPE_NAME:
        if (!text_is_name(text))
            return error_set(err, ERROR_BAD_VALUE,
                             "%s: '%.70s' is not a name; 1 to 64 of A-Z a-z 0-9 . _ -, not beginning with . or -",
                             origin, text);
        text_copy(settings->name, sizeof settings->name, text);
        break;
    case SETTINGS_TYPE_KIND:
        code = take_kind(origin, text, &settings->kind, err);
        break;
    case SETTINGS_TYPE_PATH:
        code = check_path(origin, text, err);
        if (code == ERROR_NONE) {
            free(*(char **)field);
            *(char **)field = memory_copy(text);
        }
        break;
    case SETTINGS_TYPE_SIZE_OR_PERCENT:
        code = settings_check_size(origin, text, true, row->least, row->most, &size, err);
        if (code == ERROR_NONE)
            *(struct size *)field = size;
        break;
    case SETTINGS_TYPE_SIZE:
        code = settings_check_size(origin, text, false, row->least, row->most, &size, err);
        if (code == ERROR_NONE)
            *(uint64_t *)field = size.value;
        break;
    case SETTINGS_TYPE_DURATION:
        code = check_duration(row, origin, text, field, err);
        break;
    }
    return code;
}

/* The file may be read from anywhere; a path in it must mean the same folder always. */
static enum error_code take_of_file(enum settings_id id, const char *origin, const char *text,
                                    struct settings *settings, struct error *err)
{
    if (settings_table[id].type == SETTINGS_TYPE_PATH && text[0] != '/')
        return error_set(err, ERROR_BAD_VALUE, "%s: '%.60s' is relative; a path in the file must begin with /", origin,
                         text);
    return take(id, origin, text, settings, err);
}

enum error_code settings_check_text(enum settings_id id, const char *origin, const char *text, struct error *err)
{
    struct settings unused = {0};
    enum error_code code = take_of_file(id, origin, text, &unused, err);
    settings_fini(&unused);
    return code;
}

/* Checks all that one source gives; adds what is wrong to *faults. */
static void take_all(const struct settings_texts *texts, bool from_file, struct settings *settings, struct list *faults)
{
    list_add_all(faults, list_vector((struct list *)&texts->faults));
    for (int id = 0; id < SETTINGS_COUNT; id++) {
        struct error err = ERROR_INIT;
        const char *text = texts->text[id];
        if (text == NULL)
            continue;
        settings->given[id] = settings->given[id] || !texts->is_default[id];
        enum error_code code = from_file ? take_of_file((enum settings_id)id, texts->origin[id], text, settings, &err)
                                         : take((enum settings_id)id, texts->origin[id], text, settings, &err);
        if (code != ERROR_NONE)
            list_add(faults, err.message);
    }
}

void settings_add_defaults(struct settings_texts *texts, const struct settings_texts *defaults)
{
    for (int id = 0; id < SETTINGS_COUNT; id++) {
        if (texts->text[id] != NULL || defaults->text[id] == NULL)
            continue;
        texts->text[id] = memory_copy(defaults->text[id]);
        texts->origin[id] = memory_copy(defaults->origin[id]);
        texts->is_default[id] = true;
    }
}

enum error_code settings_join_faults(const struct list *faults, enum error_code code, struct error *err)
{
    char text[sizeof err->message];
    size_t used = 0;
    text[0] = '\0';
    for (size_t i = 0; i < faults->count; i++) {
        size_t left = sizeof text - used;
        int n = snprintf(text + used, left, "%s%s", i > 0 ? "; " : "", faults->items[i]);
        if (n < 0 || (size_t)n >= left) {
            text[used] = '\0';
            return error_set(err, code, "%.700s; and %zu more", text, faults->count - i);
        }
        used += (size_t)n;
    }
    return error_set(err, code, "%s", text);
}

enum error_code settings_resolve(const struct settings_texts *arguments, const struct settings_texts *file,
                                 uint64_t randomness, struct settings *ret_settings, struct error *err)
{
    struct settings settings = {0};
    struct list faults = {0};
    for (int id = 0; id < SETTINGS_COUNT; id++) {
        const char *fallback = settings_table[id].fallback;
        struct error own = ERROR_INIT;
        if (fallback[0] != '\0' && take((enum settings_id)id, "default", fallback, &settings, &own) != ERROR_NONE)
            list_add(&faults, own.message);
    }
    if (file != NULL)
        take_all(file, true, &settings, &faults);
    take_all(arguments, false, &settings, &faults);
    if (settings.name[0] == '\0')
        settings_random_name(randomness, settings.name, sizeof settings.name);
    if (settings.directory == NULL)
        settings.directory = memory_format("./kldump-%s", settings.name);
    enum error_code code = faults.count > 0 ? settings_join_faults(&faults, ERROR_USAGE, err) : ERROR_NONE;
    list_fini(&faults);
    if (code == ERROR_NONE)
        *ret_settings = settings;
    else
        settings_fini(&settings);
    return code;
}

const char *settings_key(enum settings_id id)
{
    static const char *const names[] = {
#define X(constant, field, flag, metavar, type, fallback, least, most, key, help) key[0] != '\0' ? key : flag,
#include "conf/settings.def"
#undef X
    };
    return names[id];
}

const char *settings_flag(enum settings_id id)
{
    return settings_table[id].flag;
}

static void add_size(struct buffer *out, const struct size *size)
{
    if (size->percent)
        buffer_format(out, "%" PRIu64 ".%03" PRIu64 "%%", size->value / 1000, size->value % 1000);
    else
        buffer_format(out, "%" PRIu64 "B", size->value);
}

void settings_value(const struct settings *settings, enum settings_id id, struct buffer *out)
{
    const void *field = (const char *)settings + field_offsets[id];
    const char *path = NULL;
    struct size size = {0};
    switch (settings_table[id].type) {
    case SETTINGS_TYPE_NAME:
        buffer_text(out, settings->name);
        break;
    case SETTINGS_TYPE_KIND:
        buffer_text(out, settings_kind_name(settings->kind));
        break;
    case SETTINGS_TYPE_PATH:
        path = *(char *const *)field;
        buffer_text(out, path != NULL ? path : "");
        break;
    case SETTINGS_TYPE_SIZE_OR_PERCENT:
        size = *(const struct size *)field;
        if (size.value > 0)
            add_size(out, &size);
        break;
    case SETTINGS_TYPE_SIZE:
        size.value = *(const uint64_t *)field;
        if (size.value > 0)
            add_size(out, &size);
        break;
    case SETTINGS_TYPE_DURATION:
        buffer_format(out, "%" PRIu64 "ms", *(const uint64_t *)field);
        break;
    }
}
