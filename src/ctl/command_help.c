/* kldumpctl help [COMMAND] */
#include "conf/settings.h"
#include "ctl/command.h"

#include <string.h>

static void print_usage(struct output *out, const struct command *command)
{
    for (const char *line = command->usage; line != NULL;) {
        const char *end = strchr(line, '\n');
        int length = end != NULL ? (int)(end - line) : (int)strlen(line);
        output_format(out, "%s kldumpctl %.*s\n", line == command->usage ? "Usage:" : "      ", length, line);
        line = end != NULL ? end + 1 : NULL;
    }
}

static void print_list(struct output *out)
{
    output_text(out, "kldumpctl: guard SGLang runs and their forward-hook dumps\n\n"
                     "Examples:\n"
                     "  kldumpctl doctor -- python3 -m sglang.launch_server ...\n"
                     "  kldumpctl run --name t --dir dumps --floor 20G -- python3 -m sglang.launch_server ...\n"
                     "  kldumpctl status t\n"
                     "  kldumpctl dump t dec -- python3 client.py\n"
                     "  kldumpctl stop t\n\n"
                     "Commands:\n");
    size_t width = 0;
    for (const struct command *const *c = commands_all(); *c != NULL; c++)
        width = strlen((*c)->name) > width ? strlen((*c)->name) : width;
    for (const struct command *const *c = commands_all(); *c != NULL; c++)
        output_format(out, "  %-*s  %s\n", (int)width, (*c)->name, (*c)->summary);
    output_text(out, "\n'kldumpctl help COMMAND' has examples and options; kldumpctl(1) has the exit statuses.\n");
}

static int run(const struct command *command, struct output *out, int argc, char **argv)
{
    struct command_operands operands;
    const struct command_option none[] = {{0}};
    if (!command_parse(command, none, argc, argv, 1, &operands))
        return STATUS_USAGE;
    if (operands.count == 0) {
        print_list(out);
        return STATUS_DONE;
    }
    const struct command *about = commands_find(operands.item[0]);
    if (about == NULL) {
        const struct command *near = commands_nearest(operands.item[0]);
        if (near != NULL)
            return command_usage_error(command, "there is no command '%.40s'; did you mean '%s'?", operands.item[0],
                                       near->name);
        return command_usage_error(command, "there is no command '%.40s'", operands.item[0]);
    }
    print_usage(out, about);
    output_format(out, "\n%s: %s\n\n%s", about->name, about->summary, about->help);
    if (about->has_settings) {
        output_text(out, "\nOptions:\n");
        settings_help(&out->pending);
    }
    return STATUS_DONE;
}

const struct command command_help = {
    .name = "help",
    .usage = "help [COMMAND]",
    .summary = "list the commands, or explain one",
    .help = "Examples:\n"
            "  kldumpctl help\n"
            "  kldumpctl help dump\n",
    .run = run,
};
