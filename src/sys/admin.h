/* The admin's rules as they hold on this machine: the file read, names of users and groups turned into numbers, paths
 * into filesystems. Loading looks names up and follows paths, both of which can block (LDAP, a dead mount): not in a
 * loop thread. Using a loaded one is pure. */
#pragma once

#include "base/error.h"
#include "base/list.h"
#include "conf/rules.h"
#include "core/space_start.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct admin {
    struct rules rules;
    char *path;   /* of the file; NULL: there is none, and what holds without one holds; owned */
    uid_t *users; /* owned, as the next two */
    size_t user_count;
    gid_t *groups, *admin_groups;
    size_t group_count, admin_group_count;
    dev_t device[RULES_FILESYSTEMS_MAX]; /* of rules.filesystem[i].path as it was when it was loaded; 0: not there */
    struct list places;                  /* "[filesystem /data] of FILE" for each of those, then "[limits] of FILE" */
};

/* Of one user: his real ids and all his groups, as the kernel tells them. */
struct admin_user {
    uid_t uid;
    gid_t gid;
    const gid_t *groups;
    size_t group_count;
};

/* SYSCONFDIR/kldump/kldumpd.conf. */
const char *admin_path(void);

/* Reads `path`, which must be absolute; a missing file is no error when `path` is NULL, which means admin_path().
 * ERROR_FORBIDDEN: the file, or one of its folders, belongs to somebody else than root and this process's user, or can
 * be written by others (a sticky folder like /tmp is none of those). ERROR_BAD_VALUE: all faults; a user, or a group
 * other than in admin_groups, that does not exist is one. Folders and paths of filesystems are looked at: a folder that
 * is reached through links counts under both names. */
enum error_code admin_load(const char *path, struct admin *ret_admin, struct error *err);
/* The same without looking up users and groups, for a guard: only limits and defaults hold for it. */
enum error_code admin_load_limits(const char *path, struct admin *ret_admin, struct error *err);
void admin_fini(struct admin *admin); /* also of a zeroed one */

/* May he use kldumpd at all? ERROR_FORBIDDEN names the rule. Root and admins always may. */
enum error_code admin_allow(const struct admin *admin, const struct admin_user *user, struct error *err);
/* Root, or a member of an admin group. */
bool admin_is_admin(const struct admin *admin, const struct admin_user *user);
/* Read, for another user's run, or control it? `what` is the method. ERROR_FORBIDDEN: "stop of run X needs its owner
 * alice, root or a member of kldump-admin". */
enum error_code admin_may_control(const struct admin *admin, const struct admin_user *user, uid_t owner,
                                  const char *owner_name, const char *what, const char *run, struct error *err);

/* What the admin wants of the filesystem `device` of `total_bytes`; the stricter where several sections name it. */
void admin_space_rule(const struct admin *admin, dev_t device, uint64_t total_bytes, struct space_rule *ret_rule);
/* The floor of it in bytes; 0: none. ret_rule (may be NULL): "[filesystem /data] of FILE", for messages; owned by
 * admin; NULL where there is none. */
uint64_t admin_floor_bytes(const struct admin *admin, dev_t device, uint64_t total_bytes, const char **ret_rule);
uint64_t admin_worst_rate(const struct admin *admin, dev_t device); /* 0: none */
