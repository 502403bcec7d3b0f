/* rules.def as an array; for the files of this folder alone. */
#pragma once

#include "conf/rules.h"

enum rules_type {
    RULES_TYPE_NAMES,
    RULES_TYPE_PATHS,
    RULES_TYPE_COUNT,
    RULES_TYPE_SIZE,
    RULES_TYPE_SIZE_OR_PERCENT,
};

struct rules_row {
    const char *section;
    const char *key;
    enum rules_type type;
    const char *fallback;
    uint64_t least, most;
    const char *help;
};
extern const struct rules_row rules_table[RULES_COUNT];

/* Where the value of a row lives; `filesystem`: for rows of that section. */
void *rules_field(struct rules *rules, struct rules_filesystem *filesystem, enum rules_id id);

/* Checks one text and takes it over. ERROR_BAD_VALUE: `what` comes first in the message. */
enum error_code rules_take(const char *what, const char *text, enum rules_id id, void *field, struct error *err);

/* Absolute, without "." and ".."; slashes at the end are taken off. ERROR_BAD_VALUE. */
enum error_code rules_check_path(const char *what, char *path, struct error *err);
