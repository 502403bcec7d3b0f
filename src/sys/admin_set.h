/* The admin's rules as a guard and the doctor read them: those of the machine, and those of the file that KLDUMP_RULES
 * names, which count as well: of both the stricter, never one instead of the other. kldumpd sets KLDUMP_RULES for the
 * guards that it starts when it was given a file of its own. Blocks as admin_load does. One thread. */
#pragma once

#include "sys/admin.h"

enum { ADMIN_SET_MAX = 2 };

struct admin_set {
    struct admin admin[ADMIN_SET_MAX];
    size_t count;
};

/* ERROR_NOT_FOUND: the file of KLDUMP_RULES is not there; otherwise as admin_load. */
enum error_code admin_set_load(struct admin_set *ret_set, struct error *err);
void admin_set_fini(struct admin_set *set); /* also of a zeroed one */

/* The [defaults]; of a setting that both files give, that of KLDUMP_RULES. */
void admin_set_defaults(const struct admin_set *set, struct settings_texts *texts);

/* As rules_allow_folder, for both. */
enum error_code admin_set_allow_folder(const struct admin_set *set, const char *folder, struct error *err);

void admin_set_space_rules(const struct admin_set *set, dev_t device, uint64_t total_bytes,
                           struct space_rule ret_rules[ADMIN_SET_MAX]);
