/* Which run a request means. Names are unique among the runs below the runtime folder; a wrapper's run is known from
 * the register, and may have the name of another user's.
 *
 * With a name: that of the given owner, else his own run before those of others, a live one before one that has ended.
 * Without: his only live run; for those who may control all runs (root, the admin groups) the only live one of all,
 * where he has none himself. More than one that fits as well: an error with the names and owners.
 *
 * Whose a run is: who owns its folder, which kldumpd made and nobody but root can put in its place; of a wrapper's, the
 * peer of its connection to the register. */
#include "base/memory.h"
#include "base/text.h"
#include "json/json.h"
#include "loop/daemon_private.h"
#include "loop/registry.h"
#include "sys/file_below.h"
#include "sys/launch.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { SHOWN_MAX = 400 };

enum error_code daemon_find_socket(const struct daemon *daemon, const struct daemon_found *run, int *ret_fd,
                                   pid_t *ret_pid, struct error *err)
{
    if (run->registered) {
        const struct registry_entry *entry = daemon_find_entry(daemon, run);
        int fd = entry != NULL ? fcntl(entry->control_fd, F_DUPFD_CLOEXEC, 3) : -1;
        if (fd < 0)
            return error_set(err, ERROR_UNREACHABLE, "its guard has gone");
        *ret_fd = fd;
        *ret_pid = entry->pid;
        return ERROR_NONE;
    }
    int folder_fd, fd;
    uid_t owner;
    enum error_code code = daemon_runs_open(daemon, run->name, &folder_fd, &owner, err);
    if (code != ERROR_NONE)
        return code;
    code = file_below_socket(folder_fd, "control", &fd, err);
    close(folder_fd);
    if (code != ERROR_NONE)
        return code;
    const struct daemon_owned *owned = daemon_keep_find(daemon, run->name);
    *ret_pid = owned != NULL && owned->live ? owned->launched->pid : 0;
    *ret_fd = fd;
    return ERROR_NONE;
}

const struct registry_entry *daemon_find_entry(const struct daemon *daemon, const struct daemon_found *run)
{
    const struct registry_entry *entry = registry_find(daemon->registry, run->name, run->uid);
    return entry != NULL && entry->uid == run->uid ? entry : NULL;
}

bool daemon_find_is_live(const struct daemon *daemon, const struct daemon_found *run)
{
    return run->registered ? daemon_find_entry(daemon, run) != NULL : daemon_runs_is_live(daemon, run->name);
}

/* ---- all that there are ---- */

struct runs {
    struct daemon_found *items;
    size_t count, room;
};

static void add(struct runs *runs, const char *name, uid_t uid, bool registered, bool live)
{
    if (runs->count == runs->room) {
        runs->room = runs->room == 0 ? 16 : 2 * runs->room;
        runs->items = memory_resize(runs->items, runs->room, sizeof *runs->items);
    }
    struct daemon_found *run = &runs->items[runs->count++];
    *run = (struct daemon_found){.uid = uid, .registered = registered, .live = live};
    text_copy(run->name, sizeof run->name, name);
}

static void add_of_folder(const struct daemon *daemon, const char *name, struct runs *runs)
{
    int folder_fd;
    uid_t owner;
    if (daemon_runs_open(daemon, name, &folder_fd, &owner, NULL) != ERROR_NONE)
        return;
    close(folder_fd);
    add(runs, name, owner, false, daemon_runs_is_live(daemon, name));
}

/* Those of the register that are not below the runtime folder; `name` NULL: all. */
static void add_registered(const struct daemon *daemon, const char *name, struct runs *runs)
{
    const struct registry_entry *entry = registry_first(daemon->registry);
    size_t below = runs->count;
    for (; entry != NULL; entry = entry->next) {
        bool known = name != NULL && strcmp(entry->name, name) != 0;
        for (size_t i = 0; i < below && !known; i++)
            known = runs->items[i].live && runs->items[i].uid == entry->uid &&
                    strcmp(runs->items[i].name, entry->name) == 0;
        if (!known)
            add(runs, entry->name, entry->uid, true, true);
    }
}

/* Those of the register that have ended a moment ago, in the place of what older runs of theirs have left. */
static void add_last(const struct daemon *daemon, const char *name, struct runs *runs)
{
    for (size_t k = 0; k < DAEMON_LAST_RUNS; k++) {
        uid_t uid;
        size_t i = 0;
        if (!daemon_last_at(daemon, k, name, &uid))
            continue;
        while (i < runs->count && runs->items[i].uid != uid)
            i++;
        if (i == runs->count)
            add(runs, name, uid, true, false);
        else if (!runs->items[i].live)
            runs->items[i].registered = true;
    }
}

static void add_live(const struct daemon *daemon, struct runs *runs)
{
    struct list names = {0};
    daemon_runs_names(daemon, true, &names);
    for (size_t i = 0; i < names.count; i++)
        add_of_folder(daemon, names.items[i], runs);
    list_fini(&names);
    add_registered(daemon, NULL, runs);
}

/* ---- which one ---- */

/* "a, b of alice (uid 1000)": the owner where it is somebody else. */
static void join(struct daemon *daemon, const struct runs *runs, uid_t uid, char *text, size_t size)
{
    size_t used = 0;
    text_copy(text, size, runs->count > 0 ? "" : "none");
    for (size_t i = 0; i < runs->count; i++) {
        const struct daemon_found *run = &runs->items[i];
        char user[128], owner[140] = "";
        if (run->uid != uid) {
            daemon_access_user(daemon, run->uid, user, sizeof user);
            snprintf(owner, sizeof owner, " of %s", user);
        }
        if (used + strlen(run->name) + strlen(owner) + 8 > size) {
            snprintf(text + used, size - used, ", ...");
            return;
        }
        used += (size_t)snprintf(text + used, size - used, "%s%s%s", i > 0 ? ", " : "", run->name, owner);
    }
}

/* Leaves the best ones alone. */
static void keep_best(struct runs *runs, uid_t uid)
{
    int best = 0;
    for (int pass = 0; pass < 2; pass++) {
        size_t kept = 0;
        for (size_t i = 0; i < runs->count; i++) {
            const struct daemon_found *run = &runs->items[i];
            int rank = 2 * (run->uid == uid) + run->live;
            if (pass == 0)
                best = rank > best ? rank : best;
            else if (rank == best)
                runs->items[kept++] = *run;
        }
        if (pass > 0)
            runs->count = kept;
    }
}

/* With a name and an owner: his alone. */
static enum error_code keep_owner(const struct control_request *request, struct runs *runs, struct error *err)
{
    uint64_t uid = 0;
    size_t kept = 0;
    if (json_optional_u64(request->parameters, "uid", UINT64_MAX, &uid, err) != ERROR_NONE) {
        if (err != NULL)
            err->code = ERROR_BAD_VALUE;
        return ERROR_BAD_VALUE;
    }
    for (size_t i = 0; i < runs->count; i++)
        if (uid == UINT64_MAX || runs->items[i].uid == uid)
            runs->items[kept++] = runs->items[i];
    runs->count = kept;
    return ERROR_NONE;
}

/* Without a name: his own live runs; where he has none, and may, those of all. */
static void keep_his(const struct daemon *daemon, const struct control_request *request, struct runs *runs)
{
    size_t own = 0, kept = 0;
    for (size_t i = 0; i < runs->count; i++)
        own += runs->items[i].uid == request->uid;
    for (size_t i = 0; i < runs->count; i++) {
        uid_t uid = runs->items[i].uid;
        if (own > 0 ? uid == request->uid : daemon_access_sees_all(daemon, request, uid))
            runs->items[kept++] = runs->items[i];
    }
    runs->count = kept;
}

static enum error_code find_only(struct daemon *daemon, const struct control_request *request, struct runs *runs,
                                 struct error *err)
{
    char names[SHOWN_MAX];
    add_live(daemon, runs);
    keep_his(daemon, request, runs);
    if (runs->count == 1)
        return ERROR_NONE;
    if (runs->count == 0)
        return error_set(err, ERROR_NO_RUN, "no run%s is live; 'kldumpctl list' shows those that have ended",
                         daemon->serves_all && request->uid != 0 ? " of yours" : "");
    join(daemon, runs, request->uid, names, sizeof names);
    return error_set(err, ERROR_USAGE, "several runs are live, say which: %s", names);
}

static enum error_code find_named(struct daemon *daemon, const struct control_request *request, const char *name,
                                  struct runs *runs, struct error *err)
{
    char names[SHOWN_MAX];
    if (!text_is_name(name))
        return error_set(err, ERROR_BAD_VALUE, "'%s' is no name of a run; 'kldumpctl list' shows them",
                         text_clean(name, strlen(name), names, 80));
    add_of_folder(daemon, name, runs);
    add_registered(daemon, name, runs);
    add_last(daemon, name, runs);
    enum error_code code = keep_owner(request, runs, err);
    if (code != ERROR_NONE)
        return code;
    keep_best(runs, request->uid);
    if (runs->count == 1)
        return ERROR_NONE;
    if (runs->count > 1) {
        join(daemon, runs, request->uid, names, sizeof names);
        return error_set(err, ERROR_USAGE, "several runs have this name: %s; say whose, as OWNER/%s", names, name);
    }
    add_live(daemon, runs);
    join(daemon, runs, request->uid, names, sizeof names);
    return error_set(err, ERROR_NO_RUN, "there is no run '%s'; live now: %s", name, names);
}

enum error_code daemon_find_run(struct daemon *daemon, const struct control_request *request, const char *name,
                                struct daemon_found *ret_run, struct error *err)
{
    struct runs runs = {0};
    enum error_code code =
        name != NULL ? find_named(daemon, request, name, &runs, err) : find_only(daemon, request, &runs, err);
    if (code == ERROR_NONE)
        *ret_run = runs.items[0];
    free(runs.items);
    return code;
}
