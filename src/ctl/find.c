/* Where one run is looked for, and the one difference between a live and a dead one. find_all.c looks for all runs,
 * find_text.c asks for events and output. */
#include "ctl/find.h"
#include "base/list.h"
#include "base/memory.h"
#include "base/number.h"
#include "base/text.h"
#include "ctl/find_folder.h"
#include "ctl/find_places.h"
#include "ctl/show.h"
#include "sys/run_json.h"

#include <pwd.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { RETRY_MS = 50, RESTART_MS = 5000 };

bool find_is_live(const struct json *run)
{
    return strcmp(show_member(run, "state"), "ended") != 0;
}

bool find_is_ours(const struct json *run)
{
    uint64_t uid = 0;
    return !show_number(run, "uid", &uid) || uid == geteuid();
}

/* ---- kldumpd ---- */

enum error_code find_daemon(struct client **ret_client, char **ret_path, struct error *err)
{
    struct find_places places = {0};
    enum error_code code = find_places_get(&places, err);
    if (code != ERROR_NONE)
        return code;
    code = ERROR_NO_RUN;
    for (size_t i = 0; i < places.daemons.count && code == ERROR_NO_RUN; i++) {
        code = client_connect(places.daemons.items[i], ret_client, err);
        if (code == ERROR_NONE && ret_path != NULL)
            *ret_path = memory_copy(places.daemons.items[i]);
    }
    if (code == ERROR_NO_RUN)
        code = error_set(err, ERROR_NO_DAEMON,
                         "kldumpd is not running (nobody listens on %s%s%s); start it, or use 'kldumpctl run', which "
                         "needs no daemon",
                         places.daemons.items[0], places.daemons.count > 1 ? " or " : "",
                         places.daemons.count > 1 ? places.daemons.items[1] : "");
    find_places_fini(&places);
    return code;
}

/* kldumpd that ends while it is asked is most often being restarted. */
static enum error_code ask_status(struct find *find, struct json **ret_run, struct error *err)
{
    enum error_code code = client_connect(find->daemon, &find->client, err);
    if (code == ERROR_NO_RUN)
        return error_set(err, ERROR_NO_DAEMON, "kldumpd is not running: nobody listens on %s", find->daemon);
    if (code == ERROR_NONE)
        code = find_status(find, ret_run, err);
    if (code == ERROR_UNREACHABLE && find_again(find, RESTART_MS, err) == ERROR_NONE)
        code = find_status(find, ret_run, err);
    return code;
}

/* As find_at; *ret_live: whether it lives. */
static enum error_code look_at(const char *daemon, const char *name, const uint64_t *uid, struct find *ret_find,
                               bool *ret_live, struct error *err)
{
    struct find find = {.relayed = true, .daemon = memory_copy(daemon), .has_owner = uid != NULL};
    find.uid = uid != NULL ? *uid : 0;
    struct json *run = NULL;
    text_copy(find.name, sizeof find.name, name);
    enum error_code code = ask_status(&find, &run, err);
    *ret_live = code == ERROR_NONE && find_is_live(run);
    json_free(run);
    if (code == ERROR_NONE)
        *ret_find = find;
    else
        find_fini(&find);
    return code;
}

enum error_code find_at(const char *daemon, const char *name, const uint64_t *uid, struct find *ret_find,
                        struct error *err)
{
    bool live;
    return look_at(daemon, name, uid, ret_find, &live, err);
}

/* ---- one run ---- */

static bool is_absent(enum error_code code)
{
    return code == ERROR_NO_DAEMON || code == ERROR_NO_RUN || code == ERROR_NOT_FOUND;
}

/* The best of what there is so far: a live one beats a dead one, what came first beats what came later. Takes `found`
 * over. True: it lives. */
static bool take(struct find *best, bool *has_best, struct find *found, bool live)
{
    if (*has_best && !live) {
        find_fini(found);
        return false;
    }
    if (*has_best)
        find_fini(best);
    *best = *found;
    *has_best = true;
    return live;
}

/* What went wrong where the run may be, rather than that it is not there. */
static void keep_problem(struct error *problem, const struct error *err)
{
    if (!is_absent(err->code) && problem->code == ERROR_NONE)
        *problem = *err;
}

static enum error_code find_in(const struct find_places *places, const char *name, const uint64_t *uid,
                               struct find *ret_find, struct error *err)
{
    struct find best = {0}, found = {0};
    struct error problem = ERROR_INIT, own = ERROR_INIT;
    bool has_best = false, live = false;
    bool ours = uid == NULL || *uid == geteuid();
    if (ours && places->own != NULL && find_folder_open(places->own, name, &found, &own) == ERROR_NONE)
        live = take(&best, &has_best, &found, found.client != NULL);
    else
        keep_problem(&problem, &own);
    bool hangs = problem.code != ERROR_NONE; /* it is there, and is what was meant */
    for (size_t i = 0; i < places->daemons.count && !live && !hangs; i++) {
        struct error why = ERROR_INIT;
        bool is_live = false;
        if (look_at(places->daemons.items[i], name, uid, &found, &is_live, &why) == ERROR_NONE)
            live = take(&best, &has_best, &found, is_live);
        else if (!has_best)
            keep_problem(&problem, &why);
    }
    /* without its kldumpd, a run of ours there still has its folder */
    if (!has_best && ours && places->shared != NULL &&
        find_folder_open(places->shared, name, &found, NULL) == ERROR_NONE) {
        take(&best, &has_best, &found, true);
        problem.code = ERROR_NONE;
    }
    if (has_best) {
        *ret_find = best;
        return ERROR_NONE;
    }
    if (problem.code != ERROR_NONE)
        *err = problem;
    else if (own.code == ERROR_NO_RUN) /* there was one, and it left no record */
        *err = own;
    else
        error_set(err, ERROR_NOT_FOUND, "there is no run '%s'", name);
    return err->code;
}

/* The live run of which `name` is the number of a process; NULL: none. */
static const char *run_of_pid(const struct find_list *list, const char *name)
{
    uint64_t number = 0, pid = 0, guard_pid = 0;
    if (number_parse("pid", name, INT32_MAX, &number, NULL) != ERROR_NONE || number == 0)
        return NULL;
    for (size_t i = 0; i < list->count; i++) {
        const struct json *run = list->seen[i].run;
        show_number(run, "pid", &pid);
        show_number(run, "guard_pid", &guard_pid);
        if (find_is_live(run) && (number == pid || number == guard_pid))
            return show_member(run, "name");
    }
    return NULL;
}

enum whose { OURS, OTHERS, EVERYBODYS };

/* Names of live runs as they may be given, with ", " between: NAME of ours, OWNER/NAME of others. Returns how many. */
static size_t live_names(const struct find_list *list, enum whose whose, struct buffer *names,
                         const struct find_seen **ret_last)
{
    size_t count = 0;
    for (size_t i = 0; i < list->count; i++) {
        const struct json *run = list->seen[i].run;
        bool ours = find_is_ours(run);
        if (!find_is_live(run) || (whose == OURS && !ours) || (whose == OTHERS && ours))
            continue;
        const char *owner = ours ? "" : show_member(run, "owner");
        buffer_format(names, "%s%s%s%s", count++ > 0 ? ", " : "", owner, owner[0] != '\0' ? "/" : "",
                      show_member(run, "name"));
        *ret_last = &list->seen[i];
    }
    return count;
}

static enum error_code no_run(const char *name, struct error *err)
{
    struct find_list list = {0};
    const struct find_seen *last = NULL;
    struct buffer names;
    enum error_code code = find_all(&list, err);
    if (code != ERROR_NONE)
        return code;
    buffer_init(&names);
    size_t count = live_names(&list, EVERYBODYS, &names, &last);
    const char *meant = run_of_pid(&list, name);
    bool is_number = name[strspn(name, "0123456789")] == '\0';
    if (meant != NULL)
        code = error_set(err, ERROR_NO_RUN,
                         "there is no run '%s': that is the pid of a process of run %.64s, and a run is given by its "
                         "name",
                         name, meant);
    else
        code = error_set(err, ERROR_NO_RUN, "there is no run '%s'%s; %s%.300s; 'kldumpctl list' shows %s", name,
                         is_number ? " (a run is given by its name, not by a pid)" : "",
                         count > 0 ? "live now: " : "no run is live now", names.data,
                         count > 0 ? "all" : "those that have ended");
    buffer_fini(&names);
    find_list_fini(&list);
    return code;
}

/* The user before the slash: a name, or a number. */
static enum error_code read_owner(const char *name, const char *slash, uint64_t *ret_uid, struct error *err)
{
    char *owner = memory_copy_n(name, (size_t)(slash - name));
    const struct passwd *user = getpwnam(owner);
    enum error_code code = ERROR_NONE;
    if (user != NULL)
        *ret_uid = user->pw_uid;
    else if (number_parse("owner", owner, UINT32_MAX, ret_uid, NULL) != ERROR_NONE)
        code = error_set(err, ERROR_BAD_VALUE, "'%.70s': there is no user '%.40s'", name, owner);
    free(owner);
    return code;
}

static enum error_code find_named(const char *name, struct find *ret_find, struct error *err)
{
    struct find_places places = {0};
    struct error why = ERROR_INIT;
    const char *slash = strchr(name, '/'), *given = name;
    uint64_t uid = 0;
    name = slash != NULL ? slash + 1 : name;
    enum error_code code = ERROR_NONE;
    if (!text_is_name(name) || slash == given)
        code = error_set(err, ERROR_BAD_VALUE,
                         "'%.70s' is not the name of a run; expected NAME, or OWNER/NAME; 'kldumpctl list' shows them",
                         given);
    else if (slash != NULL)
        code = read_owner(given, slash, &uid, err);
    if (code == ERROR_NONE)
        code = find_places_get(&places, err);
    if (code != ERROR_NONE)
        return code;
    code = find_in(&places, name, slash != NULL ? &uid : NULL, ret_find, &why);
    find_places_fini(&places);
    if (code == ERROR_NONE)
        return code;
    if (code == ERROR_NOT_FOUND)
        return no_run(given, err);
    if (err != NULL)
        *err = why;
    return code;
}

static enum error_code find_only(struct find *ret_find, struct error *err)
{
    struct find_list list = {0};
    struct buffer names;
    const struct find_seen *only = NULL;
    enum error_code code = find_all(&list, err);
    if (code != ERROR_NONE)
        return code;
    buffer_init(&names);
    size_t count = live_names(&list, geteuid() == 0 ? EVERYBODYS : OURS, &names, &only);
    if (geteuid() == 0 && count > 1) { /* root's own come first */
        buffer_clear(&names);
        size_t own = live_names(&list, OURS, &names, &only);
        count = own > 0 ? own : live_names(&list, OTHERS, &names, &only);
    }
    if (count == 0 && list.problem.code != ERROR_NONE) { /* it may be there */
        if (err != NULL)
            *err = list.problem;
        code = list.problem.code;
    } else if (count == 0 && live_names(&list, OTHERS, &names, &only) > 0)
        code = error_set(err, ERROR_NO_RUN, "no run of yours is live; of others: %.400s", names.data);
    else if (count == 0)
        code = error_set(err, ERROR_NO_RUN, "no run is live; 'kldumpctl list' shows those that have ended");
    else if (count > 1)
        code = error_set(err, ERROR_USAGE, "several runs are live, say which: %.400s", names.data);
    else
        code = find_open(only, ret_find, err);
    buffer_fini(&names);
    find_list_fini(&list);
    return code;
}

enum error_code find_run(const char *name, struct find *ret_find, struct error *err)
{
    return name != NULL ? find_named(name, ret_find, err) : find_only(ret_find, err);
}

enum error_code find_open(const struct find_seen *seen, struct find *ret_find, struct error *err)
{
    const char *name = "";
    uint64_t uid = 0;
    bool has_uid = json_get_u64(seen->run, "uid", &uid, NULL) == ERROR_NONE;
    enum error_code code = json_get_string(seen->run, "name", &name, err);
    if (code == ERROR_NONE && !text_is_name(name))
        code = error_set(err, ERROR_BAD_VALUE, "'%.70s' is not the name of a run", name);
    if (code != ERROR_NONE)
        return code;
    return seen->runtime != NULL ? find_folder_open(seen->runtime, name, ret_find, err)
                                 : find_at(seen->daemon, name, has_uid ? &uid : NULL, ret_find, err);
}

void find_fini(struct find *find)
{
    client_free(find->client);
    json_free(find->record);
    free(find->folder);
    free(find->daemon);
    *find = (struct find){0};
}

/* ---- talking about it ---- */

enum error_code find_call(struct find *find, const char *method, struct json *parameters, int64_t timeout_ms,
                          struct json **ret_result, struct error *err)
{
    if (find->client == NULL) {
        json_free(parameters);
        return error_set(err, ERROR_STATE, "run %s has ended; 'kldumpctl status %s' shows how", find->name, find->name);
    }
    if (parameters == NULL)
        parameters = json_object();
    if (find->relayed)
        json_set_string(parameters, "run", find->name);
    if (find->relayed && find->has_owner)
        json_set_u64(parameters, "uid", find->uid);
    client_watch_reader(find->client, find->for_reader ? STDOUT_FILENO : -1);
    enum error_code code = client_call(find->client, method, parameters, timeout_ms, ret_result, err);
    if (code == ERROR_INTERRUPTED && find->relayed && !client_reader_is_gone(find->client))
        code = error_set(err, ERROR_UNREACHABLE, "kldumpd is ending");
    bool names_it = err != NULL && text_starts(err->message, "run ");
    if ((code == ERROR_TIMEOUT || code == ERROR_UNREACHABLE || code == ERROR_PROTOCOL) && !names_it)
        error_prefix(err, "run %s", find->name);
    return code;
}

/* Our own run needs no kldumpd: its guard's socket is in its folder. */
static enum error_code find_again_relayed(struct find *find, int64_t patience_ms, struct error *err)
{
    struct find found = {0};
    char *runtime = memory_copy_n(find->daemon, (size_t)(strrchr(find->daemon, '/') - find->daemon));
    bool ours = !find->has_owner || find->uid == geteuid();
    enum error_code code = client_connect(find->daemon, &find->client, err);
    if (code != ERROR_NONE && ours && find_folder_open(runtime, find->name, &found, NULL) == ERROR_NONE) {
        found.for_reader = find->for_reader;
        find_fini(find);
        *find = found;
        code = ERROR_NONE;
    }
    free(runtime);
    for (int64_t waited = 0; code != ERROR_NONE && waited < patience_ms; waited += RETRY_MS) {
        find_folder_sleep_ms(RETRY_MS);
        code = client_connect(find->daemon, &find->client, err);
    }
    return code == ERROR_NO_RUN ? error_set(err, ERROR_UNREACHABLE, "kldumpd has gone; the run goes on without it")
                                : code;
}

enum error_code find_again(struct find *find, int64_t patience_ms, struct error *err)
{
    client_free(find->client);
    find->client = NULL;
    if (find->relayed)
        return find_again_relayed(find, patience_ms, err);
    json_free(find->record);
    find->record = NULL;
    return find_folder_reach(find, patience_ms, err);
}

/* The last run object of a dead run, made to say that it is over. */
static enum error_code status_of_dead(const struct find *find, struct json **ret_run, struct error *err)
{
    const struct json *run = NULL;
    enum error_code code = json_get_object(find->record, "run", &run, err);
    if (code != ERROR_NONE)
        return error_prefix(err, "record of run %s", find->name);
    struct json *copy = json_copy(run);
    if (find_is_live(run)) {
        char *message = memory_format("the guard was killed while the run was %s", show_member(run, "state"));
        run_json_end(copy, RUN_OUTCOME_GUARD_LOST, message);
        free(message);
    }
    *ret_run = copy;
    return ERROR_NONE;
}

enum error_code find_status(struct find *find, struct json **ret_run, struct error *err)
{
    struct json *result = NULL;
    const struct json *run = NULL;
    if (find->client == NULL)
        return status_of_dead(find, ret_run, err);
    enum error_code code = find_call(find, "status", NULL, CLIENT_PATIENCE_MS, &result, err);
    if (code == ERROR_NONE)
        code = json_get_object(result, "run", &run, err);
    if (code == ERROR_NONE)
        *ret_run = json_copy(run);
    json_free(result);
    return code;
}
