#include "sys/admin_set.h"

#include <stdlib.h>
#include <string.h>

enum error_code admin_set_load(struct admin_set *ret_set, struct error *err)
{
    struct admin_set set = {0};
    const char *more = getenv("KLDUMP_RULES");
    enum error_code code = admin_load_limits(NULL, &set.admin[0], err);
    if (code == ERROR_NONE)
        set.count++;
    if (code == ERROR_NONE && more != NULL && more[0] != '\0' && strcmp(more, admin_path()) != 0) {
        code = admin_load_limits(more, &set.admin[1], err);
        if (code == ERROR_NONE)
            set.count++;
        else
            error_prefix(err, "KLDUMP_RULES");
    }
    if (code == ERROR_NONE)
        *ret_set = set;
    else
        admin_set_fini(&set);
    return code;
}

void admin_set_fini(struct admin_set *set)
{
    for (size_t i = 0; i < set->count; i++)
        admin_fini(&set->admin[i]);
    set->count = 0;
}

void admin_set_defaults(const struct admin_set *set, struct settings_texts *texts)
{
    for (size_t i = set->count; i-- > 0;)
        settings_add_defaults(texts, &set->admin[i].rules.defaults);
}

enum error_code admin_set_allow_folder(const struct admin_set *set, const char *folder, struct error *err)
{
    for (size_t i = 0; i < set->count; i++)
        if (rules_allow_folder(&set->admin[i].rules, folder, err) != ERROR_NONE)
            return error_prefix(err, "%s", set->admin[i].path);
    return ERROR_NONE;
}

void admin_set_space_rules(const struct admin_set *set, dev_t device, uint64_t total_bytes,
                           struct space_rule ret_rules[ADMIN_SET_MAX])
{
    memset(ret_rules, 0, ADMIN_SET_MAX * sizeof ret_rules[0]);
    for (size_t i = 0; i < set->count; i++)
        admin_space_rule(&set->admin[i], device, total_bytes, &ret_rules[i]);
}
