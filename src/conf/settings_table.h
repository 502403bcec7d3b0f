/* settings.def as an array; for the files of this folder alone. */
#pragma once

#include "conf/settings.h"

enum settings_type {
    SETTINGS_TYPE_NAME,
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
