/* Happy path: the runs of the runtime folder, sorted by name, each as its guard or its record tells, and for runs of
 * others what everybody may see.
 *
 * A wrapper's run, whose folder is elsewhere, is shown as its guard told it at the register, after those; it goes with
 * its guard.
 * A record is missing or damaged: the run is shown with what is known.
 * Not all fit into one frame: first without commands and seals, then the ended ones are left out, and counted. */
#include "config.h"
#include "base/buffer.h"
#include "base/memory.h"
#include "core/run.h"
#include "json/json.h"
#include "loop/daemon_private.h"
#include "loop/registry.h"
#include "sys/admin.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { LIST_BYTES_MAX = CONTROL_FRAME_MAX - 16 * 1024 };

struct listed {
    bool live;
    struct json *run; /* NULL: left out */
};

/* No name: the number. */
static void name_or_number(const char *name, uid_t uid, char *text, size_t size)
{
    if (name != NULL && name[0] != '\0')
        snprintf(text, size, "%s", name);
    else
        snprintf(text, size, "%u", (unsigned)uid);
}

static void user_name(struct daemon *daemon, uid_t uid, char *text, size_t size)
{
    name_or_number(uid == geteuid() ? daemon->known->own_name : daemon_names_find(daemon, uid), uid, text, size);
}

static void owner_name(struct daemon *daemon, const char *name, uid_t uid, char *text, size_t size)
{
    const struct daemon_owned *owned = daemon_keep_find(daemon, name);
    if (owned != NULL && owned->owner[0] != '\0')
        name_or_number(owned->owner, uid, text, size);
    else
        user_name(daemon, uid, text, size);
}

/* One whose record cannot be read. */
static struct json *unread(const char *name, const char *state, const char *message)
{
    static const char *const unknown[] = {"outcome", "exit_status", "pid", "guard_pid", "port", "url", "exp"};
    struct json *run = json_object();
    json_set_string(run, "name", name);
    json_set_string(run, "state", state);
    for (size_t i = 0; i < sizeof unknown / sizeof unknown[0]; i++)
        json_set_null(run, unknown[i]);
    json_set_string(run, "message", message);
    return run;
}

static struct json *look(struct daemon *daemon, const char *name, bool live)
{
    struct error err = ERROR_INIT;
    struct json *run = NULL;
    enum error_code code = daemon_runs_run(daemon, name, live, &run, &err);
    if (code == ERROR_NONE)
        return run;
    if (code == ERROR_NOT_FOUND && live)
        return unread(name, run_state_name(RUN_LAUNCHING), "");
    if (code == ERROR_NOT_FOUND)
        return unread(name, run_state_name(RUN_ENDED), "it was refused before its server was started");
    return unread(name, "unknown", err.message);
}

/* Whose it is says the kernel, not the record. */
static struct json *tell(struct daemon *daemon, const struct control_request *request, const char *name, bool live)
{
    char owner[80];
    uid_t uid = 0;
    bool known = daemon_runs_owner(daemon, name, &uid);
    struct json *run = look(daemon, name, live);
    owner_name(daemon, name, uid, owner, sizeof owner);
    json_set_string(run, "owner", known ? owner : NULL);
    if (known)
        json_set_u64(run, "uid", uid);
    else
        json_set_null(run, "uid");
    if (daemon_access_sees_all(daemon, request, uid))
        return run;
    struct json *seen = daemon_access_redact(run);
    json_free(run);
    return seen;
}

/* ---- into one frame ---- */

/* What `list` shows is short; commands and seals of a hundred runs would not fit into one frame. */
static void shorten(struct json *run)
{
    if (json_member(run, "seals") != NULL)
        json_set_child(run, "seals", json_array());
    if (json_member(run, "command") != NULL)
        json_set_child(run, "command", json_array());
}

static size_t printed_size(const struct json *json)
{
    struct buffer text;
    buffer_init(&text);
    json_print(json, &text);
    size_t size = text.length;
    buffer_fini(&text);
    return size;
}

/* False: left out, and freed. */
static bool fits(struct json *run, size_t *bytes)
{
    size_t size = printed_size(run) + 1;
    if (*bytes + size > LIST_BYTES_MAX / 2) {
        shorten(run);
        size = printed_size(run) + 1;
    }
    if (*bytes + size > LIST_BYTES_MAX) {
        json_free(run);
        return false;
    }
    *bytes += size;
    return true;
}

static bool is_below(const struct daemon *daemon, const struct registry_entry *entry)
{
    uid_t owner;
    return daemon_runs_is_live(daemon, entry->name) && daemon_runs_owner(daemon, entry->name, &owner) &&
           owner == entry->uid;
}

/* The runs that only the register knows; returns how many did not fit. */
static size_t add_registered(struct daemon *daemon, const struct control_request *request, struct json *runs,
                             size_t *bytes)
{
    size_t left_out = 0;
    for (const struct registry_entry *entry = registry_first(daemon->registry); entry != NULL; entry = entry->next) {
        char owner[80];
        if (is_below(daemon, entry))
            continue;
        struct json *run = daemon_access_sees_all(daemon, request, entry->uid) ? json_copy(entry->run)
                                                                               : daemon_access_redact(entry->run);
        user_name(daemon, entry->uid, owner, sizeof owner);
        json_set_string(run, "owner", owner);
        if (fits(run, bytes))
            json_append(runs, run);
        else
            left_out++;
    }
    return left_out;
}

/* Those that live, or those that have ended; returns how many did not fit. */
static size_t fill(struct daemon *daemon, const struct control_request *request, const struct list *names,
                   struct listed *listed, bool live, size_t *bytes)
{
    size_t left_out = 0;
    for (size_t i = 0; i < names->count; i++) {
        if (listed[i].live != live)
            continue;
        struct json *run = tell(daemon, request, names->items[i], live);
        if (fits(run, bytes))
            listed[i].run = run;
        else
            left_out++;
    }
    return left_out;
}

static void add_daemon(const struct daemon *daemon, struct json *result)
{
    struct json *about = json_set_object(result, "daemon");
    json_set_string(about, "version", PACKAGE_VERSION);
    json_set_u64(about, "pid", (uint64_t)getpid());
    json_set_string(about, "mode", daemon->serves_all ? "system" : "user");
    json_set_string(about, "rules", daemon->admin != NULL ? daemon->admin->path : NULL);
    json_set_string(about, "rules_problem", daemon->rules_problem);
}

void daemon_list_request(struct control_request *request, void *user)
{
    struct daemon *daemon = user;
    struct list names = {0};
    struct json *result = json_object();
    struct json *runs = json_set_array(result, "runs");
    size_t bytes = 0;
    daemon_keep_write_again(daemon);
    daemon_ended_look(daemon);
    daemon_runs_names(daemon, false, &names);
    struct listed *listed = memory_new((names.count + 1) * sizeof *listed);
    for (size_t i = 0; i < names.count; i++)
        listed[i].live = daemon_runs_is_live(daemon, names.items[i]);
    size_t left_out = fill(daemon, request, &names, listed, true, &bytes);
    left_out += fill(daemon, request, &names, listed, false, &bytes);
    for (size_t i = 0; i < names.count; i++)
        if (listed[i].run != NULL)
            json_append(runs, listed[i].run);
    left_out += add_registered(daemon, request, runs, &bytes);
    if (left_out > 0)
        json_set_u64(result, "left_out", left_out);
    json_set_child(result, "ended", daemon_ended_counts(daemon));
    add_daemon(daemon, result);
    daemon_runs_forget_others(daemon, &names);
    free(listed);
    list_fini(&names);
    control_reply(request, result);
}
