/* Happy path: the runs of the runtime folder, sorted by name, each as its guard told it last at the register, or as its
 * record tells where the guard has not called in or is gone, and for runs of others what everybody may see. How old
 * that is, is told for those that live.
 *
 * A wrapper's run, whose folder is elsewhere, is shown as its guard told it at the register, after those; it goes with
 * its guard.
 * A record is missing or damaged: the run is shown with what is known.
 * Not all fit into one frame: first without commands and seals, then the ended ones are left out, and counted.
 *
 * Hundreds of records take a while: they are read for a millisecond in each turn of the loop, so that nobody else waits
 * for it; one list after the other, each user's first before anybody's second. The client goes: its list is given up.
 * The daemon ends: the client is told. */
#include "config.h"
#include "base/buffer.h"
#include "base/memory.h"
#include "core/run.h"
#include "json/json.h"
#include "loop/clock.h"
#include "loop/daemon_private.h"
#include "loop/registry.h"
#include "sys/admin.h"
#include "sys/launch.h"
#include "sys/run_json.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { LIST_BYTES_MAX = CONTROL_FRAME_MAX - 16 * 1024, RUN_BYTES_MAX = 64 * 1024, TURN_NS = 1000000 };

struct listed {
    bool live, shown;
    struct buffer text; /* the run object as it is printed, where it is shown */
};

struct daemon_list {
    struct daemon_list *next;
    struct control_request *request;
    struct list names;
    struct listed *listed; /* one for each name; NULL: its turn has not come */
    size_t rank;           /* how many lists of the same user were waiting when it came */
    enum { LOOK, LIVE, ENDED, DONE } phase;
    size_t at; /* of names */
    size_t bytes, left_out;
};

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

/* The guard of the run with this folder, if it has called in; a wrapper's run elsewhere may have the same name. */
static const struct registry_entry *guard_of(const struct daemon *daemon, const char *name, uid_t uid)
{
    const struct daemon_owned *owned = daemon_keep_find(daemon, name);
    pid_t pid = owned != NULL ? owned->launched->pid : 0;
    const struct registry_entry *entry = registry_first(daemon->registry);
    while (entry != NULL && (entry->uid != uid || strcmp(entry->name, name) != 0 || (pid > 0 && entry->pid != pid)))
        entry = entry->next;
    return entry;
}

static struct json *as_registered(const struct registry_entry *entry)
{
    struct json *run = json_copy(entry->run);
    run_json_age(run, clock_now_ms() - entry->said_ms);
    return run;
}

static struct json *look(struct daemon *daemon, const char *name, uid_t uid, bool live)
{
    const struct registry_entry *entry = live ? guard_of(daemon, name, uid) : NULL;
    if (entry != NULL)
        return as_registered(entry);
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

static struct json *tell(struct daemon *daemon, const struct control_request *request, const char *name, bool live)
{
    uid_t uid = 0;
    bool known = daemon_runs_owner(daemon, name, &uid);
    struct json *run = look(daemon, name, uid, live);
    if (known) {
        daemon_access_stamp(daemon, name, uid, run);
    } else {
        json_set_null(run, "owner");
        json_set_null(run, "uid");
    }
    if (daemon_access_sees_all(daemon, request, uid))
        return run;
    struct json *seen = daemon_access_redact(run);
    json_free(run);
    return seen;
}

/* ---- into one frame ---- */

/* Takes `run` over. False: it does not fit. */
static bool print(struct daemon_list *list, struct json *run, struct buffer *text)
{
    buffer_init(text);
    json_print(run, text);
    if (list->bytes + text->length + 1 > LIST_BYTES_MAX / 2 || text->length > RUN_BYTES_MAX) {
        daemon_runs_shorten(run); /* a hundred of commands and seals would not fit into one frame */
        buffer_clear(text);
        json_print(run, text);
    }
    if (text->length > RUN_BYTES_MAX) { /* a guard may say anything: it does not push the other runs out */
        struct json *seen = daemon_access_redact(run);
        buffer_clear(text);
        json_print(seen, text);
        json_free(seen);
    }
    json_free(run);
    bool fits = list->bytes + text->length + 1 <= LIST_BYTES_MAX;
    if (fits)
        list->bytes += text->length + 1;
    else {
        list->left_out++;
        buffer_fini(text);
    }
    return fits;
}

/* Whether it lives, for all; then those that live, then those that have ended. False: all are done. */
static bool step(struct daemon *daemon, struct daemon_list *list)
{
    while (list->at == list->names.count && list->phase != DONE) {
        list->phase++;
        list->at = 0;
    }
    if (list->phase == DONE)
        return false;
    const char *name = list->names.items[list->at];
    struct listed *listed = &list->listed[list->at++];
    if (list->phase == LOOK)
        listed->live = daemon_runs_is_live(daemon, name);
    else if (listed->live == (list->phase == LIVE))
        listed->shown = print(list, tell(daemon, list->request, name, listed->live), &listed->text);
    return true;
}

/* ---- the answer ---- */

/* The runs that only the register knows. */
static void add_registered(struct daemon *daemon, struct daemon_list *list, struct json *runs)
{
    for (const struct registry_entry *entry = registry_first(daemon->registry); entry != NULL; entry = entry->next) {
        struct buffer text;
        if (daemon_runs_has(daemon, entry->name, entry->uid))
            continue;
        struct json *run = as_registered(entry);
        daemon_access_stamp(daemon, entry->name, entry->uid, run);
        if (!daemon_access_sees_all(daemon, list->request, entry->uid)) {
            struct json *seen = daemon_access_redact(run);
            json_free(run);
            run = seen;
        }
        if (!print(list, run, &text))
            continue;
        json_append_printed(runs, &text);
        buffer_fini(&text);
    }
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

static void free_list(struct daemon_list *list)
{
    for (size_t i = 0; i < list->names.count; i++)
        buffer_fini(&list->listed[i].text);
    free(list->listed);
    list_fini(&list->names);
    free(list);
}

static void answer(struct daemon *daemon, struct daemon_list *list)
{
    struct json *result = json_object();
    struct json *runs = json_set_array(result, "runs");
    for (size_t i = 0; i < list->names.count; i++)
        if (list->listed[i].shown)
            json_append_printed(runs, &list->listed[i].text);
    add_registered(daemon, list, runs);
    if (list->left_out > 0)
        json_set_u64(result, "left_out", list->left_out);
    json_set_child(result, "ended", daemon_ended_counts(daemon));
    add_daemon(daemon, result);
    daemon_runs_forget_others(daemon, &list->names);
    control_reply(list->request, result);
}

/* ---- in turns ---- */

/* Not before its turn: names of hundreds of runs would be kept for each list that waits. */
static void begin(struct daemon *daemon, struct daemon_list *list)
{
    daemon_ended_look(daemon);
    daemon_runs_names(daemon, false, &list->names);
    list->listed = memory_new((list->names.count + 1) * sizeof *list->listed);
}

static void on_turn(uv_idle_t *turn)
{
    struct daemon *daemon = turn->data;
    uint64_t end_ns = uv_hrtime() + TURN_NS;
    while (daemon->lists != NULL && uv_hrtime() < end_ns) {
        struct daemon_list *list = daemon->lists;
        bool is_gone = list->request->connection == NULL;
        if (!is_gone && list->listed == NULL)
            begin(daemon, list);
        if (!is_gone && step(daemon, list))
            continue;
        daemon->lists = list->next;
        if (is_gone)
            control_refuse(list->request, ERROR_INTERRUPTED, "the client is gone");
        else
            answer(daemon, list);
        free_list(list);
    }
    if (daemon->lists == NULL)
        uv_idle_stop(turn);
}

void daemon_list_request(struct control_request *request, void *user)
{
    struct daemon *daemon = user;
    struct daemon_list *list = memory_new(sizeof *list), **link = &daemon->lists;
    list->request = request;
    for (const struct daemon_list *other = daemon->lists; other != NULL; other = other->next)
        list->rank += other->request->uid == request->uid;
    while (*link != NULL && ((*link)->listed != NULL || (*link)->rank <= list->rank))
        link = &(*link)->next;
    list->next = *link;
    *link = list;
    uv_idle_start(&daemon->list_turn, on_turn);
}

void daemon_list_begin(struct daemon *daemon)
{
    uv_idle_init(&daemon->loop, &daemon->list_turn);
    daemon->list_turn.data = daemon;
}

void daemon_list_end(struct daemon *daemon)
{
    while (daemon->lists != NULL) {
        struct daemon_list *list = daemon->lists;
        daemon->lists = list->next;
        control_refuse(list->request, ERROR_INTERRUPTED, "kldumpd is ending; the runs go on");
        free_list(list);
    }
    uv_close((uv_handle_t *)&daemon->list_turn, NULL);
}
