/* The settings of a run: from arguments and a config file to checked values. Pure: the file comes in as bytes and
 * randomness as a number. Any thread; structs are not shared.
 *
 * Use: settings_parse_arguments; if settings_config_path says so, read that file and settings_parse_file; then
 * settings_resolve, which reports all faults of both in one message. Order: built-in defaults < the admin's
 * (settings_add_defaults) < file < arguments. */
#pragma once

#include "base/buffer.h"
#include "base/error.h"
#include "base/list.h"
#include "base/size.h"
#include "conf/ini_lines.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum settings_id {
#define X(constant, field, flag, metavar, type, fallback, least, most, key, help) SETTINGS_##constant,
#include "conf/settings.def"
#undef X
    SETTINGS_COUNT
};

enum {
    SETTINGS_FILE_MAX = INI_LINES_FILE_MAX, /* bytes of a config file */
    SETTINGS_LINE_MAX = INI_LINES_LINE_MAX, /* bytes of one of its lines */
};

enum settings_kind { SETTINGS_KIND_DUMP, SETTINGS_KIND_PLAIN, SETTINGS_KINDS };

struct settings {
    char name[65];
    enum settings_kind kind;
    char *directory;         /* as given (may be relative to the working folder); never NULL; owned */
    struct size floor, soft; /* value 0: not given, to be worked out from the filesystem */
    uint64_t budget_bytes;   /* 0: none */
    uint64_t control_timeout_ms;
    uint64_t blind_limit_ms;
    uint64_t start_timeout_ms;
    uint64_t stop_timeout_ms;
    uint64_t worst_rate_bytes_per_s;
    char *config;               /* NULL: none; owned */
    bool given[SETTINGS_COUNT]; /* by the user: neither built in nor a default of the admin's */
};
void settings_fini(struct settings *settings); /* also of a zeroed one */

/* What was written where, and what is wrong with it. */
struct settings_texts {
    char *text[SETTINGS_COUNT];      /* NULL: not given; owned */
    char *origin[SETTINGS_COUNT];    /* "--floor" or "FILE line 3"; owned */
    bool is_default[SETTINGS_COUNT]; /* from settings_add_defaults */
    struct list faults;              /* one sentence each */
};
void settings_texts_fini(struct settings_texts *texts); /* also of a zeroed one */

/* Reads argv[0..argc-1] (no program name) up to "--". Fills *texts, which must be zeroed. ret_rest gets the index of
 * the first word after "--", or argc when there is no "--" (a fault). Does not fail: faults are kept in *texts. */
void settings_parse_arguments(int argc, char *const *argv, struct settings_texts *texts, int *ret_rest);

/* The text of --config, or NULL. */
const char *settings_config_path(const struct settings_texts *arguments);

/* Reads a config file of `length` bytes; `path` is for messages. Fills *texts, which must be zeroed; every fault is
 * kept in it with the number of its line. */
void settings_parse_file(const char *path, const char *bytes, size_t length, struct settings_texts *texts);

/* What `texts`, of a file or zeroed, does not give is taken from `defaults`, which are the admin's. */
void settings_add_defaults(struct settings_texts *texts, const struct settings_texts *defaults);

/* Merges and checks. `file` may be NULL. `randomness` picks the name where none is given. On success the caller owns
 * *ret_settings. ERROR_USAGE or ERROR_BAD_VALUE with all faults, "; " between them. */
enum error_code settings_resolve(const struct settings_texts *arguments, const struct settings_texts *file,
                                 uint64_t randomness, struct settings *ret_settings, struct error *err);

/* "calm-heron-42". */
void settings_random_name(uint64_t randomness, char *ret_name, size_t size);

/* The options, one or more lines each, indented by two blanks, then what only the config file takes. */
void settings_help(struct buffer *out);

/* Stable name ("start_timeout") and present value as text that would be accepted again ("1800s", "20G"); "" for what
 * was not given and has no default. */
const char *settings_key(enum settings_id id);
void settings_value(const struct settings *settings, enum settings_id id, struct buffer *out);

const char *settings_kind_name(enum settings_kind kind); /* "dump", "plain" */

/* The flag without dashes, "" for none. For checks of the manual. */
const char *settings_flag(enum settings_id id);
