/* kldumpctl events [RUN] [-f] [--since TIME] */
#include "base/duration.h"
#include "ctl/command.h"
#include "ctl/find.h"
#include "ctl/show.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

enum { WAIT_MS = 30000 };

static void print(struct output *out, const struct json *events, bool as_json, double oldest)
{
    for (const struct json *e = json_first(events); e != NULL; e = json_next(e)) {
        double at = show_time(show_member(e, "at"));
        if (at >= 0 && at < oldest)
            continue;
        if (!as_json) {
            show_event(out, e);
            continue;
        }
        struct json *line = json_object();
        json_set_string(line, "schema", "kldump.events/1");
        for (const struct json *m = json_first(e); m != NULL; m = json_next(m))
            json_set_child(line, json_key(m), json_copy(m));
        output_json(out, line);
        json_free(line);
    }
}

/* A guard keeps the newest thousand; they are numbered from 1. */
static void print_dropped(struct output *out, const struct json *events)
{
    char line[64];
    uint64_t first = 0;
    if (json_get_u64(json_first(events), "n", &first, NULL) != ERROR_NONE || first <= 1)
        return;
    snprintf(line, sizeof line, "%llu older events are not kept\n", (unsigned long long)first - 1);
    output_text(out, line);
}

static enum error_code print_all(struct output *out, struct find *find, bool follow, bool as_json, double oldest,
                                 struct error *err)
{
    uint64_t after = 0;
    bool ended = false, first = true;
    enum error_code code = ERROR_NONE;
    while (code == ERROR_NONE && !out->closed && !ended) {
        struct json *events = NULL;
        code = find_events(find, after, first ? 0 : WAIT_MS, &events, &after, &ended, err);
        if (code == ERROR_NONE && first && !as_json && oldest < 0)
            print_dropped(out, events);
        first = false;
        if (code == ERROR_INTERRUPTED && output_is_closed(out))
            return ERROR_NONE;
        if (code == ERROR_NONE) {
            print(out, events, as_json, oldest);
            code = output_flush(out, err);
        } else if (code == ERROR_UNREACHABLE && follow) {
            code = find_again(find, WAIT_MS, err); /* the rest stands in the record */
        }
        json_free(events);
        ended |= !follow;
    }
    return code;
}

/* The last line, for people: what it all came to. */
static void print_why(struct output *out, struct find *find)
{
    struct json *run = NULL;
    struct buffer why;
    if (find_status(find, &run, NULL) != ERROR_NONE &&
        (find_again(find, WAIT_MS, NULL) != ERROR_NONE || find_status(find, &run, NULL) != ERROR_NONE))
        return;
    if (!find_is_live(run)) {
        buffer_init(&why);
        show_why(run, &why);
        output_safe(out, OUTPUT_BOLD, show_member(run, "name"));
        output_text(out, ": ");
        output_safe(out, show_style("ended", show_member(run, "outcome")), why.data);
        output_text(out, "\n");
        buffer_fini(&why);
    }
    json_free(run);
}

static int run(const struct command *command, struct output *out, int argc, char **argv)
{
    bool as_json = false, follow = false;
    const char *since = NULL;
    uint64_t since_ms = 0;
    struct error err = ERROR_INIT;
    struct command_operands operands;
    struct find find = {0};
    const struct command_option options[] = {{.name = "json", .flag = &as_json},
                                             {.name = "follow", .letter = 'f', .flag = &follow},
                                             {.name = "since", .value = &since},
                                             {0}};
    if (!command_parse(command, options, argc, argv, 1, &operands))
        return STATUS_USAGE;
    if (since != NULL && duration_parse("--since", since, &since_ms, &err) != ERROR_NONE)
        return command_usage_error(command, "%s", err.message);
    double oldest = since != NULL ? (double)time(NULL) - (double)since_ms / 1000 : -1;
    enum error_code code = find_run(operands.item[0], &find, &err);
    find.for_reader = true;
    if (code == ERROR_NONE)
        code = print_all(out, &find, follow, as_json, oldest, &err);
    if (code == ERROR_NONE && !as_json && !out->closed)
        print_why(out, &find);
    find_fini(&find);
    return code == ERROR_NONE ? STATUS_DONE : command_fail(command, &err);
}

const struct command command_events = {
    .name = "events",
    .usage = "events [RUN] [-f] [--since TIME] [--json]",
    .summary = "what happened in a run, and why",
    .help = "Examples:\n"
            "  kldumpctl events t\n"
            "  kldumpctl events t -f\n"
            "  kldumpctl events t --since 10min --json\n"
            "\n"
            "Times are UTC; the second column counts from the start of the run. Of a run that has\n"
            "ended the last line says why, with numbers.\n"
            "\n"
            "Options:\n"
            "  -f, --follow      stay and show what comes, until the run ends\n"
            "  --since TIME      only the last TIME: 30s 10min 2h\n"
            "  --json            one object a line\n",
    .run = run,
};
