/* kldumpctl list */
#include "ctl/command.h"
#include "ctl/find.h"
#include "ctl/show.h"

static int run(const struct command *command, struct output *out, int argc, char **argv)
{
    bool as_json = false;
    struct error err = ERROR_INIT;
    struct command_operands operands;
    struct json *runs = NULL;
    const struct command_option options[] = {{"json", 0, &as_json, NULL}, {0}};
    if (!command_parse(command, options, argc, argv, 0, &operands))
        return STATUS_USAGE;
    if (find_all(&runs, &err) != ERROR_NONE)
        return command_fail(command, &err);
    if (as_json) {
        for (const struct json *r = json_first(runs); r != NULL; r = json_next(r)) {
            struct json *line = json_object();
            json_set_string(line, "schema", "kldump.list/1");
            for (const struct json *m = json_first(r); m != NULL; m = json_next(m))
                json_set_child(line, json_key(m), json_copy(m));
            output_json(out, line);
            json_free(line);
        }
    } else if (json_count(runs) == 0) {
        output_text(out, "No runs. 'kldumpctl run' or 'kldumpctl start' begins one.\n");
    } else {
        show_runs(out, runs);
    }
    json_free(runs);
    return STATUS_DONE;
}

const struct command command_list = {
    .name = "list",
    .usage = "list [--json]",
    .summary = "all runs: yours, and those of a kldumpd",
    .help = "Examples:\n"
            "  kldumpctl list\n"
            "  kldumpctl list --json\n"
            "\n"
            "Runs that have ended are listed until their name is used again.\n"
            "\n"
            "Options:\n"
            "  --json    one object a line, as in status\n",
    .run = run,
};
