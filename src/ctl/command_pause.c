/* kldumpctl pause [RUN] */
#include "ctl/command.h"
#include "ctl/find.h"
#include "ctl/seal.h"

static int run(const struct command *command, struct output *out, int argc, char **argv)
{
    bool as_json = false;
    struct error err = ERROR_INIT;
    struct command_operands operands;
    struct find find = {0};
    struct json *seal = NULL;
    const struct command_option options[] = {{.name = "json", .flag = &as_json}, {0}};
    if (!command_parse(command, options, argc, argv, 1, &operands))
        return STATUS_USAGE;
    enum error_code code = find_run(operands.item[0], &find, &err);
    if (code == ERROR_NONE)
        code = find_call(&find, "pause", NULL, -1, &seal, &err);
    int status = code == ERROR_NONE ? seal_print(out, &find, seal, as_json ? "kldump.pause/1" : NULL)
                                    : command_fail(command, &err);
    json_free(seal);
    find_fini(&find);
    return status;
}

const struct command command_pause = {
    .name = "pause",
    .usage = "pause [RUN] [--json]",
    .summary = "stop dumping, audit the dump and seal it",
    .help = "Examples:\n"
            "  kldumpctl pause\n"
            "  kldumpctl pause t --json\n"
            "\n"
            "Waits for the pass that is running, then for the audit. The seal says whether the dump\n"
            "is complete: exit status 0, or 4 with the reasons.\n"
            "\n"
            "Options:\n"
            "  --json    the seal as one object\n",
    .run = run,
};
