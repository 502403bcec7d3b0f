/* kldumpctl status [RUN] [--watch] */
#include "ctl/command.h"
#include "ctl/find.h"
#include "ctl/show.h"
#include "ctl/watch.h"

static int run(const struct command *command, struct output *out, int argc, char **argv)
{
    bool as_json = false, watched = false;
    struct error err = ERROR_INIT;
    struct command_operands operands;
    struct find find = {0};
    struct json *found = NULL;
    const struct command_option options[] = {
        {.name = "json", .flag = &as_json}, {.name = "watch", .letter = 'w', .flag = &watched}, {0}};
    if (!command_parse(command, options, argc, argv, 1, &operands))
        return STATUS_USAGE;
    enum error_code code = find_run(operands.item[0], &find, &err);
    if (code == ERROR_NONE && watched) {
        int status = watch_run(command, &find, out, as_json);
        find_fini(&find);
        return status;
    }
    if (code == ERROR_NONE)
        code = find_status(&find, &found, &err);
    find_fini(&find);
    if (code != ERROR_NONE)
        return command_fail(command, &err);
    if (as_json)
        show_json(out, "kldump.status/1", found);
    else
        show_run(out, found);
    json_free(found);
    return STATUS_DONE;
}

const struct command command_status = {
    .name = "status",
    .usage = "status [RUN] [--watch] [--json]",
    .summary = "one run: state, proofs, space, how many tokens still fit",
    .help = "Examples:\n"
            "  kldumpctl status\n"
            "  kldumpctl status t\n"
            "  kldumpctl status t --watch\n"
            "  kldumpctl status t --json\n"
            "\n"
            "RUN may be left out where only one run is live. A run that has ended is answered\n"
            "from the record it left.\n"
            "\n"
            "Options:\n"
            "  -w, --watch    show it again each second until the run ends; on a terminal in place, q or\n"
            "                 Ctrl-C leaves; else one block a second, with --json one object a line\n"
            "  --json       {\"schema\": \"kldump.status/1\", \"runs\": [...]}\n",
    .run = run,
};
