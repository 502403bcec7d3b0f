/* settings.def as an array; for the files of this folder alone. */
#pragma once

#include "conf/settings.h"

enum settings_type {
    SETTINGS_TYPE_NAME,
    SETTINGS_TYPE_KIND,
    SETTINGS_TYPE_PATH,
    SETTINGS_TYPE_SIZE,
    SETTINGS_TYPE_SIZE_OR_PERCENT,
    SETTINGS_TYPE_DURATION,
};

struct settings_row {
    const char *flag;
    const char *metavar;
    enum settings_type type;
    const char *fallback;
    uint64_t least, most;
    const char *key;
    const char *help;
    const char *field;
};
extern const struct settings_row settings_table[SETTINGS_COUNT];

void settings_fault(struct settings_texts *texts, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* One line of a file, whose key must be that of a setting. `first`: the lines that have set each before, 0 none. */
void settings_take_line(struct ini_lines *lines, size_t first[SETTINGS_COUNT], const char *key, const char *value,
                        struct settings_texts *texts);

/* A text that stands in a file, checked as settings_resolve does. ERROR_BAD_VALUE. */
enum error_code settings_check_text(enum settings_id id, const char *origin, const char *text, struct error *err);

/* A size with bounds. ERROR_BAD_VALUE. */
enum error_code settings_check_size(const char *origin, const char *text, bool percent_allowed, uint64_t least,
                                    uint64_t most, struct size *ret_size, struct error *err);

/* All in one message, "; " between them. */
enum error_code settings_join_faults(const struct list *faults, enum error_code code, struct error *err);
