#include "sys/admin_names.h"

#include "base/memory.h"
#include "base/number.h"
#include "base/text.h"

#include <errno.h>
#include <grp.h>
#include <pwd.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ROOM_MAX = 16 * 1024 * 1024 /* of a group with all its members */, USER_ROOM = 64 * 1024 };

/* One question to the name service: 0 and *ret_found, or an errno value. */
typedef int lookup(const char *name, char *room, size_t size, bool *ret_found, uint32_t *ret_id);

static int look_up_user(const char *name, char *room, size_t size, bool *ret_found, uint32_t *ret_id)
{
    struct passwd entry, *found = NULL;
    int failure = getpwnam_r(name, &entry, room, size, &found);
    *ret_found = failure == 0 && found != NULL;
    if (*ret_found)
        *ret_id = entry.pw_uid;
    return failure;
}

static int look_up_group(const char *name, char *room, size_t size, bool *ret_found, uint32_t *ret_id)
{
    struct group entry, *found = NULL;
    int failure = getgrnam_r(name, &entry, room, size, &found);
    *ret_found = failure == 0 && found != NULL;
    if (*ret_found)
        *ret_id = entry.gr_gid;
    return failure;
}

/* The C library's list of errno values that mean "there is none" (getpwnam(3)). */
static bool means_none(int failure)
{
    return failure == 0 || failure == ENOENT || failure == ESRCH || failure == EBADF || failure == EPERM;
}

static bool find(const char *name, lookup *ask, uint32_t *ret_id, int *ret_failure)
{
    bool found = false;
    uint64_t number = 0;
    for (size_t size = 4096; size <= ROOM_MAX; size *= 4) {
        char *room = memory_new(size);
        *ret_failure = ask(name, room, size, &found, ret_id);
        free(room);
        if (*ret_failure != ERANGE && *ret_failure != EINTR)
            break;
    }
    if (!found && number_parse(name, name, UINT32_MAX - 1, &number, NULL) == ERROR_NONE) {
        *ret_id = (uint32_t)number;
        found = true;
    }
    return found;
}

static void find_all(const struct list *names, const char *what, const char *kind, lookup *ask, uint32_t **ret_ids,
                     size_t *ret_count, struct list *faults)
{
    uint32_t *ids = NULL;
    size_t count = 0;
    for (size_t i = 0; i < names->count; i++) {
        uint32_t id;
        int failure = 0;
        if (find(names->items[i], ask, &id, &failure)) {
            ids = memory_resize(ids, count + 1, sizeof *ids);
            ids[count++] = id;
        } else if (faults != NULL && means_none(failure)) {
            list_add_format(faults, "%s: there is no %s '%.60s'", what, kind, names->items[i]);
        } else if (faults != NULL) {
            list_add_format(faults, "%s: the %s '%.60s' cannot be looked up: %s", what, kind, names->items[i],
                            strerror(failure));
        }
    }
    *ret_ids = ids;
    *ret_count = count;
}

_Static_assert(sizeof(uid_t) == sizeof(uint32_t) && sizeof(gid_t) == sizeof(uint32_t), "ids have 32 bits");

void admin_names_users(const struct list *names, const char *what, uid_t **ret_users, size_t *ret_count,
                       struct list *faults)
{
    find_all(names, what, "user", look_up_user, ret_users, ret_count, faults);
}

void admin_names_groups(const struct list *names, const char *what, gid_t **ret_groups, size_t *ret_count,
                        struct list *faults)
{
    find_all(names, what, "group", look_up_group, ret_groups, ret_count, faults);
}

bool admin_names_user(uid_t uid, char *text, size_t size)
{
    struct passwd entry, *found = NULL;
    char *room = memory_new(USER_ROOM);
    bool known = getpwuid_r(uid, &entry, room, USER_ROOM, &found) == 0 && found != NULL && found->pw_name[0] != '\0';
    if (known)
        text_clean(found->pw_name, strlen(found->pw_name), text, size);
    else
        snprintf(text, size, "%u", (unsigned)uid);
    free(room);
    return known;
}
