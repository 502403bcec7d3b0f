/* kldumpctl stop [RUN] [--now], stop --all [--now] */
#include "base/memory.h"
#include "ctl/command.h"
#include "ctl/find_folder.h"
#include "ctl/follow.h"
#include "ctl/show.h"

#include <stdlib.h>
#include <string.h>

enum { GONE_MS = 2000 }; /* a guard that has told the end is gone a moment later */

static bool never(const char *state)
{
    (void)state;
    return false;
}

/* The number of the last event there is, so that only what follows is shown. */
static uint64_t last_event(struct find *find)
{
    struct json *events = NULL;
    uint64_t next = 0;
    bool ended = false;
    if (find_events(find, 0, 0, &events, &next, &ended, NULL) != ERROR_NONE)
        return 0;
    json_free(events);
    return next;
}

/* Orders the end; ERROR_NONE too where it ended in this moment. */
static enum error_code ask(struct find *one, bool now, struct error *err)
{
    struct json *answer = NULL, *parameters = json_object();
    json_set_bool(parameters, "now", now);
    enum error_code code = find_call(one, "stop", parameters, CLIENT_PATIENCE_MS, &answer, err);
    json_free(answer);
    if (code == ERROR_NO_RUN)
        return ERROR_NONE;
    return code == ERROR_UNREACHABLE ? find_again(one, CLIENT_PATIENCE_MS, err) : code;
}

static enum error_code stop(struct find *find, bool now, struct json **ret_run, struct error *err)
{
    if (find->client == NULL) /* over already: what was asked for is so */
        return find_status(find, ret_run, err);
    struct follow follow = {.find = find, .is_reached = never, .show = follow_may_show()};
    if (follow.show)
        follow.after = last_event(find);
    enum error_code code = ask(find, now, err);
    return code == ERROR_NONE ? follow_run(&follow, ret_run, err) : code;
}

/* Until the name is free for the next run. kldumpd tells of an end when the guard is gone. */
static void wait_gone(struct find *find)
{
    if (!find->relayed) {
        find_folder_wait_gone(find, GONE_MS);
        return;
    }
    struct json *answer = NULL, *parameters = json_object();
    json_set_string(parameters, "for", "ended");
    json_set_u64(parameters, "timeout_ms", GONE_MS);
    if (find->client != NULL)
        find_call(find, "wait", parameters, CLIENT_PATIENCE_MS, &answer, NULL);
    else
        json_free(parameters);
    json_free(answer);
}

static size_t seal_count(struct find *find)
{
    struct json *run = NULL;
    size_t count = 0;
    if (find_status(find, &run, NULL) == ERROR_NONE)
        count = json_count(json_member(run, "seals"));
    json_free(run);
    return count;
}

/* The seals that were made by this stop: those after the first `known` ones. */
static void print_seals(struct output *out, const struct json *found, size_t known)
{
    size_t i = 0;
    for (const struct json *s = json_first(json_member(found, "seals")); s != NULL; s = json_next(s))
        if (i++ >= known)
            show_seal(out, s, show_member(found, "dir"));
}

/* However it came to its end, it is stopped; unless something of it is still there. */
static int status_of(const struct json *found)
{
    return strcmp(show_member(found, "outcome"), "unkillable") == 0 ? STATUS_UNKILLABLE : STATUS_DONE;
}

static int stop_one(const struct command *command, struct output *out, const char *name, bool now, bool as_json)
{
    struct error err = ERROR_INIT;
    struct find find = {0};
    struct json *found = NULL;
    enum error_code code = find_run(name, &find, &err);
    size_t known = code == ERROR_NONE ? seal_count(&find) : 0;
    if (code == ERROR_NONE)
        code = stop(&find, now, &found, &err);
    if (code == ERROR_NONE)
        wait_gone(&find);
    find_fini(&find);
    if (code != ERROR_NONE)
        return command_fail(command, &err);
    if (as_json) {
        show_json(out, "kldump.stop/1", found);
    } else {
        show_outcome(out, found);
        print_seals(out, found, known);
    }
    int status = status_of(found);
    json_free(found);
    return status;
}

/* ---- all of them ---- */

/* Orders the end of every live run of the list; those that somebody else owns and does not let us end are left out.
 * Returns how many are on their way; *status: of the first that could not be asked. */
static size_t ask_all(const struct command *command, const struct find_list *list, bool now, struct find *ret_all,
                      int *status)
{
    size_t count = 0;
    for (size_t i = 0; i < list->count; i++) {
        const struct json *run = list->seen[i].run;
        struct find *one = &ret_all[count];
        struct error err = ERROR_INIT;
        if (!find_is_live(run))
            continue;
        *one = (struct find){0};
        enum error_code code = find_open(&list->seen[i], one, &err);
        if (code == ERROR_NONE && one->client != NULL)
            code = ask(one, now, &err);
        if (code == ERROR_NONE) {
            count++;
            continue;
        }
        find_fini(one);
        if ((code == ERROR_FORBIDDEN && !find_is_ours(run)) || code == ERROR_NO_RUN)
            continue;
        int failed = command_fail(command, &err);
        *status = *status == STATUS_DONE ? failed : *status;
    }
    return count;
}

/* Waits for each and prints its line as soon as it is there. */
static int await_all(const struct command *command, struct output *out, struct find *all, size_t count, bool as_json)
{
    int status = STATUS_DONE;
    for (size_t i = 0; i < count; i++) {
        struct error err = ERROR_INIT;
        struct json *found = NULL;
        struct follow follow = {.find = &all[i], .is_reached = never};
        int own;
        if (follow_run(&follow, &found, &err) != ERROR_NONE) {
            own = command_fail(command, &err);
        } else {
            own = status_of(found);
            wait_gone(&all[i]);
            if (as_json)
                show_json(out, "kldump.stop/1", found);
            else
                show_outcome(out, found);
            output_flush(out, NULL);
        }
        json_free(found);
        find_fini(&all[i]);
        status = status == STATUS_DONE ? own : status;
    }
    return status;
}

static int stop_all(const struct command *command, struct output *out, bool now, bool as_json)
{
    struct error err = ERROR_INIT;
    struct find_list list = {0};
    if (find_all(&list, &err) != ERROR_NONE)
        return command_fail(command, &err);
    int status = command_notes(command, &list);
    struct find *all = memory_new((list.count + 1) * sizeof *all);
    size_t count = ask_all(command, &list, now, all, &status);
    find_list_fini(&list);
    int awaited = await_all(command, out, all, count, as_json);
    free(all);
    if (count == 0 && status == STATUS_DONE && !as_json)
        output_text(out, "No run to stop is live.\n");
    return status == STATUS_DONE ? awaited : status;
}

static int run(const struct command *command, struct output *out, int argc, char **argv)
{
    bool now = false, as_json = false, all = false;
    struct command_operands operands;
    const struct command_option options[] = {
        {.name = "all", .flag = &all}, {.name = "now", .flag = &now}, {.name = "json", .flag = &as_json}, {0}};
    if (!command_parse(command, options, argc, argv, 1, &operands))
        return STATUS_USAGE;
    if (all && operands.count > 0)
        return command_usage_error(command, "--all stops every run; '%.60s' is one too many", operands.item[0]);
    return all ? stop_all(command, out, now, as_json) : stop_one(command, out, operands.item[0], now, as_json);
}

const struct command command_stop = {
    .name = "stop",
    .usage = "stop [RUN] [--now] [--json]\n"
             "stop --all [--now] [--json]",
    .summary = "end a run, or all, and wait until nothing of it is left",
    .help = "Examples:\n"
            "  kldumpctl stop t\n"
            "  kldumpctl stop t --now\n"
            "  kldumpctl stop --all\n"
            "\n"
            "Seals a dump under way, ends the server in order, and kills what is left after the stop\n"
            "timeout. Exit status 0, or 86 when processes remain that cannot be killed.\n"
            "\n"
            "Options:\n"
            "  --all     every live run that you may end: your own; root and the admins also those of\n"
            "            all other users of kldumpd\n"
            "  --now     kill at once, without a seal; also while an orderly stop is under way\n"
            "  --json    the run as of its end; with --all one object a line\n",
    .run = run,
};
