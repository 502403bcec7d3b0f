/* The admin's rules: from the bytes of a file to checked values, and what they say about one run. Pure: no file is
 * read, no name looked up (sys/admin.h does both). Any thread; structs are not shared.
 *
 * Order for a run: the rules' [defaults] < the user's config file < the user's arguments; floor and worst rate of the
 * rules are minima that hold whatever the user says. */
#pragma once

#include "base/buffer.h"
#include "base/error.h"
#include "base/list.h"
#include "base/size.h"
#include "conf/settings.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { RULES_FILE_MAX = INI_LINES_FILE_MAX, RULES_FILESYSTEMS_MAX = 64 };

enum rules_id {
#define X(constant, section, key, field, type, fallback, least, most, help) RULES_##constant,
#include "conf/rules.def"
#undef X
    RULES_COUNT
};

struct rules_filesystem {
    char *path;                      /* absolute; owned */
    struct size floor;               /* value 0: not given */
    uint64_t worst_rate_bytes_per_s; /* 0: not given */
};

struct rules {
    struct list users, groups, admin_groups, folders;
    uint64_t runs_per_user;
    struct size floor; /* value 0: none */
    uint64_t worst_rate_bytes_per_s;
    struct rules_filesystem filesystem[RULES_FILESYSTEMS_MAX];
    size_t filesystem_count;
    struct settings_texts defaults; /* of section [defaults]; origin "FILE line N" */
    size_t line[RULES_COUNT];       /* that gave the value (not those of a filesystem); 0: none did */
};

/* What holds without a file. */
void rules_init(struct rules *ret_rules);
void rules_fini(struct rules *rules); /* also of a zeroed one */

/* Reads a file of `length` bytes; `path` is for messages. ERROR_BAD_VALUE: all faults with their line numbers, "; "
 * between them, *ret_rules untouched. On success the caller owns it. */
enum error_code rules_parse(const char *path, const char *bytes, size_t length, struct rules *ret_rules,
                            struct error *err);

/* One line for each value that differs: "limits.floor: 50G -> 100G", "filesystem.floor of /data: none -> 5%". For the
 * log of a reload. */
void rules_difference(const struct rules *before, const struct rules *after, struct list *ret_lines);

/* Whether a dump may go to `folder` (absolute, resolved): it is one of the allowed ones or below one.
 * ERROR_FORBIDDEN names the rule and the allowed folders. */
enum error_code rules_allow_folder(const struct rules *rules, const char *folder, struct error *err);

/* The sample file, conf/kldumpd.conf: every key with its help and its default, commented out. */
void rules_sample(struct buffer *out);
