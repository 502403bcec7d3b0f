/* kldumpctl list */
#include "ctl/command.h"
#include "ctl/find.h"
#include "ctl/runs_table.h"

#include <time.h>

static void print_json(struct output *out, const struct json *run)
{
    struct json *line = json_object();
    json_set_string(line, "schema", "kldump.list/1");
    for (const struct json *m = json_first(run); m != NULL; m = json_next(m))
        json_set_child(line, json_key(m), json_copy(m));
    output_json(out, line);
    json_free(line);
}

static int run(const struct command *command, struct output *out, int argc, char **argv)
{
    bool as_json = false;
    struct error err = ERROR_INIT;
    struct command_operands operands;
    struct find_list list = {0};
    const struct command_option options[] = {{.name = "json", .flag = &as_json}, {0}};
    if (!command_parse(command, options, argc, argv, 0, &operands))
        return STATUS_USAGE;
    if (find_all(&list, &err) != ERROR_NONE)
        return command_fail(command, &err);
    int status = command_notes(command, &list);
    if (as_json)
        for (size_t i = 0; i < list.count; i++)
            print_json(out, list.seen[i].run);
    else if (list.count > 0)
        runs_table(out, &list, output_width(out), (double)time(NULL));
    else if (status == STATUS_DONE)
        output_text(out, "No runs. 'kldumpctl run' or 'kldumpctl start' begins one.\n");
    find_list_fini(&list);
    return status;
}

const struct command command_list = {
    .name = "list",
    .usage = "list [--json]",
    .summary = "all runs: yours, and those that kldumpd shows",
    .help = "Examples:\n"
            "  kldumpctl list\n"
            "  kldumpctl list --json\n"
            "\n"
            "TO-FLOOR is the time until the floor at the present rate, AGE how long a run has run, or\n"
            "how long ago it ended; - is what is not known. Of \"armed (5min old)\" nothing was heard for\n"
            "5 minutes; with \"(space 5min old)\" its free space could not be read since. Where the\n"
            "terminal is narrow, columns are left out. Runs that have ended are listed until their\n"
            "name is used again.\n"
            "\n"
            "Options:\n"
            "  --json    one object a line, as in status\n",
    .run = run,
};
