/* kldumpctl stop [RUN] [--now] */
#include "ctl/command.h"
#include "ctl/follow.h"
#include "ctl/show.h"

#include <string.h>

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

static enum error_code stop(struct find *find, bool now, struct json **ret_run, struct error *err)
{
    if (find->client == NULL) /* over already: what was asked for is so */
        return find_status(find, ret_run, err);
    struct json *answer = NULL, *parameters = json_object();
    struct follow follow = {.find = find, .is_reached = never, .show = follow_may_show()};
    if (follow.show)
        follow.after = last_event(find);
    json_set_bool(parameters, "now", now);
    enum error_code code = find_call(find, "stop", parameters, CLIENT_PATIENCE_MS, &answer, err);
    json_free(answer);
    if (code == ERROR_UNREACHABLE) /* it ended in this moment */
        code = find_again(find, CLIENT_PATIENCE_MS, err);
    return code == ERROR_NONE ? follow_run(&follow, ret_run, err) : code;
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

static int run(const struct command *command, struct output *out, int argc, char **argv)
{
    bool now = false, as_json = false;
    struct error err = ERROR_INIT;
    struct command_operands operands;
    struct find find = {0};
    struct json *found = NULL;
    const struct command_option options[] = {{"now", 0, &now, NULL}, {"json", 0, &as_json, NULL}, {0}};
    if (!command_parse(command, options, argc, argv, 1, &operands))
        return STATUS_USAGE;
    enum error_code code = find_run(operands.item[0], &find, &err);
    size_t known = code == ERROR_NONE ? seal_count(&find) : 0;
    if (code == ERROR_NONE)
        code = stop(&find, now, &found, &err);
    find_fini(&find);
    if (code != ERROR_NONE)
        return command_fail(command, &err);
    if (as_json) {
        show_json(out, "kldump.stop/1", found);
    } else {
        show_outcome(out, found);
        print_seals(out, found, known);
    }
    /* however it came to its end, it is stopped; unless something of it is still there */
    bool remains = strcmp(show_member(found, "outcome"), "unkillable") == 0;
    json_free(found);
    return remains ? STATUS_UNKILLABLE : STATUS_DONE;
}

const struct command command_stop = {
    .name = "stop",
    .usage = "stop [RUN] [--now] [--json]",
    .summary = "end a run and wait until nothing of it is left",
    .help = "Examples:\n"
            "  kldumpctl stop t\n"
            "  kldumpctl stop t --now\n"
            "\n"
            "Seals a dump under way, ends the server in order, and kills what is left after the stop\n"
            "timeout. Exit status 0, or 86 when processes remain that cannot be killed.\n"
            "\n"
            "Options:\n"
            "  --now     kill at once, without a seal; also while an orderly stop is under way\n"
            "  --json    the run as of its end\n",
    .run = run,
};
