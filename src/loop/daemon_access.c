/* Happy path: a request comes in, its method's row says who may: READ, every user that the rules let in; CONTROL, the
 * owner of the run, root and the admin groups. `start` is for every user that the rules let in: the run is his own. The
 * rules are asked again at each request, so that a reload holds for connections that are open.
 *
 * Refused: ERROR_FORBIDDEN with the rule; nothing of the run is told. */
#include "json/json.h"
#include "loop/daemon_private.h"
#include "sys/admin.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum access { READ, CONTROL };
enum { SHORT_MAX = 512 };

static const struct {
    const char *name;
    enum access access;
} methods[CONTROL_METHODS] = {
#define X(constant, name, answers, access, parameters, text) [CONTROL_##constant] = {name, access},
#include "core/methods.def"
#undef X
};

/* The admin's rules are for root's kldumpd; a user's own serves him and root alone. */
static const struct admin *rules_of(const struct daemon *daemon)
{
    return daemon->serves_all ? daemon->admin : NULL;
}

static struct admin_user user_of(const struct control_request *request)
{
    return (struct admin_user){request->uid, request->gid, request->groups, request->group_count};
}

enum error_code daemon_access_admit(uid_t uid, gid_t gid, const gid_t *groups, size_t group_count, void *user,
                                    struct error *err)
{
    const struct admin *admin = rules_of(user);
    const struct admin_user who = {uid, gid, groups, group_count};
    if (uid == 0 || uid == geteuid())
        return ERROR_NONE;
    if (admin == NULL)
        return error_set(err, ERROR_FORBIDDEN, "only user %u and root may use this kldumpd", (unsigned)geteuid());
    return admin_allow(admin, &who, err);
}

bool daemon_access_sees_all(const struct daemon *daemon, const struct control_request *request, uid_t owner)
{
    const struct admin_user who = user_of(request);
    const struct admin *admin = rules_of(daemon);
    return request->uid == owner || request->uid == 0 || (admin != NULL && admin_is_admin(admin, &who));
}

enum error_code daemon_access_check(struct daemon *daemon, const struct control_request *request, const char *run,
                                    uid_t owner, struct error *err)
{
    const char *method = methods[request->method].name;
    if (methods[request->method].access == READ || daemon_access_sees_all(daemon, request, owner))
        return ERROR_NONE;
    const struct admin_user who = user_of(request);
    const struct admin *admin = rules_of(daemon);
    if (admin != NULL)
        return admin_may_control(admin, &who, owner, daemon_names_find(daemon, owner), method, run, err);
    return error_set(err, ERROR_FORBIDDEN, "%s of run %s needs its owner, uid %u, or root; you are uid %u", method, run,
                     (unsigned)owner, (unsigned)request->uid);
}

void daemon_access_user(struct daemon *daemon, uid_t uid, char *text, size_t size)
{
    const char *name = daemon_names_find(daemon, uid);
    if (name != NULL && name[0] != '\0')
        snprintf(text, size, "%s (uid %u)", name, (unsigned)uid);
    else
        snprintf(text, size, "uid %u", (unsigned)uid);
}

void daemon_access_stamp(struct daemon *daemon, const char *name, uid_t uid, struct json *run)
{
    char number[16];
    const struct daemon_owned *owned = daemon_keep_find(daemon, name);
    bool recorded = owned != NULL && owned->uid == uid && owned->owner[0] != '\0';
    const char *owner = recorded           ? owned->owner
                        : uid == geteuid() ? daemon->known->own_name
                                           : daemon_names_find(daemon, uid);
    snprintf(number, sizeof number, "%u", (unsigned)uid);
    json_set_string(run, "name", name);
    json_set_u64(run, "uid", uid);
    json_set_string(run, "owner", owner != NULL && owner[0] != '\0' ? owner : number);
}

bool daemon_access_by(struct daemon *daemon, const struct control_request *request, char *text, size_t size)
{
    const char *name = daemon_names_find(daemon, request->uid);
    daemon_access_user(daemon, request->uid, text, size);
    return name != NULL;
}

/* ---- what others may see ---- */

/* A guard is its user's and may say anything: nothing but short values comes through. */
static bool is_short(const struct json *value)
{
    const char *text = "";
    if (json_type(value) == JSON_STRING)
        return json_get_string(value, "", &text, NULL) == ERROR_NONE && strlen(text) <= SHORT_MAX;
    return json_type(value) != JSON_OBJECT && json_type(value) != JSON_ARRAY;
}

static void copy_members(const struct json *from, struct json *to, const char *const *names)
{
    for (; *names != NULL; names++) {
        const struct json *value = json_member(from, *names);
        if (value != NULL && is_short(value))
            json_set_child(to, *names, json_copy(value));
        else if (value != NULL)
            json_set_null(to, *names);
    }
}

struct json *daemon_access_redact(const struct json *run)
{
    static const char *const kept[] = {"name",        "owner",     "uid",        "state",       "outcome",
                                       "exit_status", "guarantee", "started_at", "told_age_ms", NULL};
    static const char *const space[] = {"level",          "total_bytes", "free_bytes",       "floor_bytes",
                                        "act_bytes",      "soft_bytes",  "warn_bytes",       "budget_bytes",
                                        "written_bytes",  "blind",       "rate_bytes_per_s", "seconds_to_floor",
                                        "reading_age_ms", NULL};
    struct json *seen = json_object();
    copy_members(run, seen, kept);
    if (json_type(json_member(run, "space")) == JSON_OBJECT)
        copy_members(json_member(run, "space"), json_set_object(seen, "space"), space);
    return seen;
}

/* ---- the way in ---- */

void daemon_access_request(struct control_request *request, void *user)
{
    struct daemon *daemon = user;
    struct error err = ERROR_INIT;
    if (daemon_access_admit(request->uid, request->gid, request->groups, request->group_count, daemon, &err) !=
        ERROR_NONE) {
        control_fail(request, &err);
        return;
    }
    switch (request->method) {
    case CONTROL_START:
        daemon_start_request(request, daemon);
        break;
    case CONTROL_LIST:
        daemon_list_request(request, daemon);
        break;
    default:
        daemon_relay_request(request, daemon);
    }
}
