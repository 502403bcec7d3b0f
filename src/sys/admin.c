#include "sys/admin.h"

#include "base/memory.h"
#include "sys/admin_names.h"
#include "sys/file.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

const char *admin_path(void)
{
    return KLDUMP_SYSCONFDIR "/kldump/kldumpd.conf";
}

void admin_fini(struct admin *admin)
{
    rules_fini(&admin->rules);
    list_fini(&admin->places);
    free(admin->path);
    free(admin->users);
    free(admin->groups);
    free(admin->admin_groups);
    *admin = (struct admin){0};
}

/* ---- who could have written it ---- */

static enum error_code check_owner(const char *path, const struct stat *status, struct error *err)
{
    bool shared = (status->st_mode & (S_IWGRP | S_IWOTH)) != 0;
    if (status->st_uid != 0 && status->st_uid != geteuid())
        return error_set(err, ERROR_FORBIDDEN, "%s belongs to uid %u; rules are taken from root%s only", path,
                         (unsigned)status->st_uid, geteuid() != 0 ? " and from this user" : "");
    if (shared && !(S_ISDIR(status->st_mode) && (status->st_mode & S_ISVTX) != 0))
        return error_set(err, ERROR_FORBIDDEN,
                         "%s can be written by others (mode %04o); no rules are taken from it: chmod go-w %s", path,
                         (unsigned)status->st_mode & 07777, path);
    return ERROR_NONE;
}

static enum error_code check_folders(const char *path, struct error *err)
{
    enum error_code code = ERROR_NONE;
    char *part = memory_copy(path);
    for (char *slash = part; slash != NULL && code == ERROR_NONE; slash = strchr(slash + 1, '/')) {
        struct stat status;
        char kept = slash[slash == part];
        slash[slash == part] = '\0';
        code = stat(part, &status) != 0 ? error_set_errno(err, ERROR_SYSTEM, errno, "%s", part)
                                        : check_owner(part, &status, err);
        slash[slash == part] = kept;
    }
    free(part);
    return code;
}

/* Links are followed, so every folder on both ways counts. */
static enum error_code check_writers(const char *path, struct error *err)
{
    struct stat status;
    char *real = realpath(path, NULL);
    if (real == NULL || stat(real, &status) != 0) {
        int failure = errno;
        free(real);
        return error_set_errno(err, failure == ENOENT ? ERROR_NOT_FOUND : ERROR_SYSTEM, failure, "the admin's rules %s",
                               path);
    }
    enum error_code code = check_owner(real, &status, err);
    if (code == ERROR_NONE)
        code = check_folders(path, err);
    if (code == ERROR_NONE)
        code = check_folders(real, err);
    free(real);
    return code;
}

/* ---- what the names and paths of it mean here ---- */

static void find_names(struct admin *admin, struct list *faults)
{
    const struct rules *rules = &admin->rules;
    char users[400], groups[400];
    const char *path = admin->path != NULL ? admin->path : "";
    snprintf(users, sizeof users, "%s line %zu", path, rules->line[RULES_USERS]);
    snprintf(groups, sizeof groups, "%s line %zu", path, rules->line[RULES_GROUPS]);
    admin_names_users(&rules->users, users, &admin->users, &admin->user_count, faults);
    admin_names_groups(&rules->groups, groups, &admin->groups, &admin->group_count, faults);
    admin_names_groups(&rules->admin_groups, "", &admin->admin_groups, &admin->admin_group_count, NULL);
}

static void find_paths(struct admin *admin)
{
    struct stat status;
    struct rules *rules = &admin->rules;
    const char *path = admin->path != NULL ? admin->path : "";
    for (size_t i = 0; i < rules->filesystem_count; i++) {
        if (stat(rules->filesystem[i].path, &status) == 0)
            admin->device[i] = status.st_dev;
        list_add_format(&admin->places, "[filesystem %s] of %s", rules->filesystem[i].path, path);
    }
    list_add_format(&admin->places, "[limits] of %s", path);
    for (size_t i = rules->folders.count; i-- > 0;) {
        char *real = realpath(rules->folders.items[i], NULL);
        if (real != NULL && strcmp(real, rules->folders.items[i]) != 0)
            list_add(&rules->folders, real);
        free(real);
    }
}

static enum error_code join(const struct list *faults, struct error *err)
{
    struct buffer text;
    if (faults->count == 0)
        return ERROR_NONE;
    buffer_init(&text);
    for (size_t i = 0; i < faults->count; i++)
        buffer_format(&text, "%s%s", i > 0 ? "; " : "", faults->items[i]);
    enum error_code code = error_set(err, ERROR_BAD_VALUE, "%s", text.data);
    buffer_fini(&text);
    return code;
}

static enum error_code read_rules(const char *path, struct rules *ret_rules, struct error *err)
{
    struct buffer bytes;
    buffer_init(&bytes);
    enum error_code code = check_writers(path, err);
    if (code == ERROR_NONE)
        code = file_read(path, RULES_FILE_MAX, &bytes, err);
    if (code == ERROR_NONE)
        code = rules_parse(path, bytes.data, bytes.length, ret_rules, err);
    buffer_fini(&bytes);
    return code;
}

static enum error_code load(const char *path, bool with_names, struct admin *ret_admin, struct error *err)
{
    struct admin admin = {0};
    struct list faults = {0};
    struct stat status;
    const char *chosen = path != NULL ? path : admin_path();
    enum error_code code = ERROR_NONE;
    if (chosen[0] != '/')
        return error_set(err, ERROR_BAD_VALUE,
                         "the admin's rules: '%.200s' is no absolute path; expected one such as %s", chosen,
                         admin_path());
    if (path == NULL && lstat(chosen, &status) != 0 && errno == ENOENT)
        rules_init(&admin.rules);
    else
        code = read_rules(chosen, &admin.rules, err);
    if (code != ERROR_NONE)
        return code;
    if (path != NULL || access(chosen, F_OK) == 0)
        admin.path = memory_copy(chosen);
    if (with_names)
        find_names(&admin, &faults);
    find_paths(&admin);
    code = join(&faults, err);
    list_fini(&faults);
    if (code == ERROR_NONE)
        *ret_admin = admin;
    else
        admin_fini(&admin);
    return code;
}

enum error_code admin_load(const char *path, struct admin *ret_admin, struct error *err)
{
    return load(path, true, ret_admin, err);
}

enum error_code admin_load_limits(const char *path, struct admin *ret_admin, struct error *err)
{
    return load(path, false, ret_admin, err);
}

/* ---- who may do what ---- */

static bool is_member(const struct admin_user *user, const gid_t *groups, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        if (user->gid == groups[i])
            return true;
        for (size_t k = 0; k < user->group_count; k++)
            if (user->groups[k] == groups[i])
                return true;
    }
    return false;
}

bool admin_is_admin(const struct admin *admin, const struct admin_user *user)
{
    return user->uid == 0 || is_member(user, admin->admin_groups, admin->admin_group_count);
}

static void add_words(struct buffer *out, const struct list *words, const char *none)
{
    for (size_t i = 0; i < words->count; i++)
        buffer_format(out, "%s%s", i > 0 ? " " : "", words->items[i]);
    if (words->count == 0)
        buffer_text(out, none);
}

enum error_code admin_allow(const struct admin *admin, const struct admin_user *user, struct error *err)
{
    const struct rules *rules = &admin->rules;
    if ((rules->users.count == 0 && rules->groups.count == 0) || admin_is_admin(admin, user) ||
        is_member(user, admin->groups, admin->group_count))
        return ERROR_NONE;
    for (size_t i = 0; i < admin->user_count; i++)
        if (admin->users[i] == user->uid)
            return ERROR_NONE;
    struct buffer users, groups;
    buffer_init(&users);
    buffer_init(&groups);
    add_words(&users, &rules->users, "none");
    add_words(&groups, &rules->groups, "none");
    error_set(
        err, ERROR_FORBIDDEN,
        "uid %u may not use this kldumpd: [access] of %s allows users %.200s, groups %.200s, and admins; ask the "
        "admin to add you to 'users' or 'groups' there and to reload kldumpd, or use 'kldumpctl run', which needs "
        "no kldumpd",
        (unsigned)user->uid, admin->path != NULL ? admin->path : "the rules", users.data, groups.data);
    buffer_fini(&users);
    buffer_fini(&groups);
    return ERROR_FORBIDDEN;
}

enum error_code admin_may_control(const struct admin *admin, const struct admin_user *user, uid_t owner,
                                  const char *owner_name, const char *what, const char *run, struct error *err)
{
    char number[32];
    if (user->uid == owner || admin_is_admin(admin, user))
        return ERROR_NONE;
    snprintf(number, sizeof number, "uid %u", (unsigned)owner);
    struct buffer groups;
    buffer_init(&groups);
    add_words(&groups, &admin->rules.admin_groups, "an admin group (none is set)");
    error_set(err, ERROR_FORBIDDEN, "%s of run %s needs its owner %s, root or a member of %.300s; you are uid %u", what,
              run, owner_name != NULL && owner_name[0] != '\0' ? owner_name : number, groups.data, (unsigned)user->uid);
    buffer_fini(&groups);
    return ERROR_FORBIDDEN;
}

/* ---- filesystems ---- */

static void take_stricter(struct space_rule *rule, const struct size *floor, uint64_t rate, uint64_t total_bytes,
                          const char *place)
{
    if (floor->value > 0 &&
        (rule->floor.value == 0 || size_bytes(floor, total_bytes) > size_bytes(&rule->floor, total_bytes))) {
        rule->floor = *floor;
        rule->floor_place = place;
    }
    if (rate > rule->worst_rate_bytes_per_s) {
        rule->worst_rate_bytes_per_s = rate;
        rule->rate_place = place;
    }
}

void admin_space_rule(const struct admin *admin, dev_t device, uint64_t total_bytes, struct space_rule *ret_rule)
{
    const struct rules *rules = &admin->rules;
    struct space_rule rule = {0}, everywhere = {0};
    for (size_t i = 0; i < rules->filesystem_count; i++)
        if (admin->device[i] != 0 && admin->device[i] == device)
            take_stricter(&rule, &rules->filesystem[i].floor, rules->filesystem[i].worst_rate_bytes_per_s, total_bytes,
                          admin->places.items[i]);
    take_stricter(&everywhere, &rules->floor, rules->worst_rate_bytes_per_s, total_bytes,
                  admin->places.count > 0 ? admin->places.items[rules->filesystem_count] : NULL);
    if (rule.floor.value == 0) {
        rule.floor = everywhere.floor;
        rule.floor_place = everywhere.floor_place;
    }
    if (rule.worst_rate_bytes_per_s == 0) {
        rule.worst_rate_bytes_per_s = everywhere.worst_rate_bytes_per_s;
        rule.rate_place = everywhere.rate_place;
    }
    *ret_rule = rule;
}

uint64_t admin_floor_bytes(const struct admin *admin, dev_t device, uint64_t total_bytes, const char **ret_rule)
{
    struct space_rule rule;
    admin_space_rule(admin, device, total_bytes, &rule);
    if (ret_rule != NULL)
        *ret_rule = rule.floor_place;
    return rule.floor.value > 0 ? size_bytes(&rule.floor, total_bytes) : 0;
}

uint64_t admin_worst_rate(const struct admin *admin, dev_t device)
{
    struct space_rule rule;
    admin_space_rule(admin, device, 0, &rule);
    return rule.worst_rate_bytes_per_s;
}
