#include "config.h"
#include "ctl/command.h"

#include <stdio.h>
#include <string.h>

static const struct command *const command_table[] = {
    &command_doctor,
    &command_run,
    &command_start,
    &command_list,
    &command_status,
    &command_dump,
    &command_pause,
    &command_stop,
    &command_wait,
    &command_logs,
    &command_events,
    &command_metrics,
    &command_check,
    &command_show,
    &command_diff,
    &command_kl,
    &command_invariance,
    &command_capture,
    &command_ab,
    &command_state_diff,
    &command_investigate,
    &command_help,
    NULL,
};

const struct command *const *commands_all(void)
{
    return command_table;
}

const struct command *commands_find(const char *name)
{
    for (const struct command *const *c = command_table; *c != NULL; c++)
        if (strcmp((*c)->name, name) == 0)
            return *c;
    return NULL;
}

static size_t smallest(size_t a, size_t b, size_t c)
{
    size_t least = a < b ? a : b;
    return least < c ? least : c;
}

/* Insertions, deletions and exchanges between two words of at most 31 characters; 99 for longer ones. */
static size_t distance(const char *a, const char *b)
{
    size_t row[32], a_length = strlen(a), b_length = strlen(b);
    if (a_length > 31 || b_length > 31)
        return 99;
    for (size_t j = 0; j <= b_length; j++)
        row[j] = j;
    for (size_t i = 1; i <= a_length; i++) {
        size_t corner = row[0];
        row[0] = i;
        for (size_t j = 1; j <= b_length; j++) {
            size_t above = row[j];
            row[j] = smallest(above + 1, row[j - 1] + 1, corner + (a[i - 1] != b[j - 1]));
            corner = above;
        }
    }
    return row[b_length];
}

const struct command *commands_nearest(const char *name)
{
    const struct command *best = NULL;
    size_t best_distance = strlen(name) < 4 ? 2 : 3; /* of three letters, two wrong ones are no likeness */
    for (const struct command *const *c = command_table; *c != NULL; c++) {
        size_t d = distance(name, (*c)->name);
        if (d < best_distance) {
            best = *c;
            best_distance = d;
        }
    }
    return best;
}

static int unknown_command(const char *name)
{
    struct error err = ERROR_INIT;
    const struct command *near = commands_nearest(name);
    if (near != NULL)
        error_set(&err, ERROR_USAGE, "there is no command '%.40s'; did you mean '%s'?", name, near->name);
    else
        error_set(&err, ERROR_USAGE, "there is no command '%.40s'; 'kldumpctl help' lists all", name);
    return output_error(NULL, &err);
}

/* True when --help or -h stands among the command's own arguments, not behind "--". */
static bool asks_for_help(int argc, char **argv)
{
    for (int i = 1; i < argc && strcmp(argv[i], "--") != 0; i++)
        if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0)
            return true;
    return false;
}

int commands_main(struct output *out, int argc, char **argv)
{
    if (argc < 2) {
        struct error err = ERROR_INIT;
        error_set(&err, ERROR_USAGE, "say what to do; 'kldumpctl help' lists the commands");
        return output_error(NULL, &err);
    }
    if (strcmp(argv[1], "--version") == 0) {
        output_text(out, "kldumpctl " PACKAGE_VERSION "\n");
        return STATUS_DONE;
    }
    if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0)
        return command_help.run(&command_help, out, 1, argv + 1);
    const struct command *command = commands_find(argv[1]);
    if (command == NULL)
        return unknown_command(argv[1]);
    if (asks_for_help(argc - 1, argv + 1)) {
        char *help[] = {argv[1], argv[1], NULL};
        return command_help.run(&command_help, out, 2, help);
    }
    return command->run(command, out, argc - 1, argv + 1);
}
