/* Names of users and groups of the admin's rules, as numbers, and the name of a user. Asks the name service, which can
 * block. Any thread. */
#pragma once

#include "base/list.h"

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

/* Each name that is known; digits that are no name stand for themselves. What is not known is added to `faults` as
 * "WHAT: there is no user 'x'", or left out where `faults` is NULL. The arrays are the caller's; NULL when empty. */
void admin_names_users(const struct list *names, const char *what, uid_t **ret_users, size_t *ret_count,
                       struct list *faults);
void admin_names_groups(const struct list *names, const char *what, gid_t **ret_groups, size_t *ret_count,
                        struct list *faults);

/* The name of a user, made safe to show; false, and his number as text: he has none, or it cannot be looked up. */
bool admin_names_user(uid_t uid, char *text, size_t size);
