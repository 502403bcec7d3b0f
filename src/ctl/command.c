#include "ctl/command.h"
#include "ctl/find.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

int command_fail(const struct command *command, const struct error *err)
{
    return output_error(command->name, err);
}

int command_usage_error(const struct command *command, const char *format, ...)
{
    struct error err = ERROR_INIT;
    char text[512];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    error_set(&err, ERROR_USAGE, "%s", text);
    int status = output_error(command->name, &err);
    for (const char *line = command->usage; line != NULL;) {
        const char *end = strchr(line, '\n');
        int length = end != NULL ? (int)(end - line) : (int)strlen(line);
        fprintf(stderr, "%s kldumpctl %.*s\n", line == command->usage ? "usage:" : "      ", length, line);
        line = end != NULL ? end + 1 : NULL;
    }
    fprintf(stderr, "More: kldumpctl help %s\n", command->name);
    return status;
}

int command_notes(const struct command *command, const struct find_list *list)
{
    struct error note = ERROR_INIT;
    for (size_t i = 0; i < list->notes.count; i++) {
        error_set(&note, ERROR_SYSTEM, "%s", list->notes.items[i]);
        output_error(command->name, &note);
    }
    bool nothing = list->count == 0 && list->problem.code != ERROR_NONE;
    return nothing ? (int)error_status(list->problem.code) : STATUS_DONE;
}

static const struct command_option *find_option(const struct command_option *options, const char *argument)
{
    size_t length = strcspn(argument + 2, "=");
    for (const struct command_option *o = options; o->name != NULL; o++) {
        bool is_long = argument[1] == '-' && strlen(o->name) == length && strncmp(o->name, argument + 2, length) == 0;
        bool is_short = argument[1] != '-' && o->letter != 0 && argument[1] == o->letter && argument[2] == '\0';
        if (is_long || is_short)
            return o;
    }
    return NULL;
}

/* Takes the option at argv[*index], and its text; false after the usage error. */
static bool take_option(const struct command *command, const struct command_option *option, char **argv, int *index)
{
    const char *argument = argv[*index];
    const char *text = argument[1] == '-' ? strchr(argument, '=') : NULL;
    if (option->flag != NULL) {
        if (text != NULL) {
            command_usage_error(command, "--%s takes no value; '%.60s' has one", option->name, argument);
            return false;
        }
        *option->flag = true;
        return true;
    }
    if (option->value != NULL && *option->value != NULL) {
        command_usage_error(command, "--%s is given twice", option->name);
        return false;
    }
    const char *value = text != NULL ? text + 1 : argv[*index + 1];
    if (value == NULL) {
        command_usage_error(command, "--%s needs a value after it", option->name);
        return false;
    }
    if (option->list != NULL)
        list_add(option->list, value);
    else
        *option->value = value;
    *index += text == NULL;
    return true;
}

bool command_parse(const struct command *command, const struct command_option *options, int argc, char **argv, int max,
                   struct command_operands *ret_operands)
{
    struct command_operands operands = {0};
    for (int i = 1; i < argc; i++) {
        char *argument = argv[i];
        if (strcmp(argument, "--") == 0) {
            operands.rest = argv + i + 1;
            break;
        }
        if (argument[0] == '-' && argument[1] != '\0') {
            const struct command_option *option = find_option(options, argument);
            if (option == NULL) {
                command_usage_error(command, "unknown option '%.60s'", argument);
                return false;
            }
            if (!take_option(command, option, argv, &i))
                return false;
        } else if (operands.count >= max) {
            command_usage_error(command, "'%.60s' is one argument too many", argument);
            return false;
        } else {
            operands.item[operands.count++] = argument;
        }
    }
    *ret_operands = operands;
    return true;
}

int command_take(const struct command *command, const struct command_option *options, int argc, char **argv)
{
    int kept = 0;
    bool before = true;
    for (int i = 0; i < argc; i++) {
        before = before && strcmp(argv[i], "--") != 0;
        bool may_be = before && argv[i][0] == '-' && argv[i][1] != '\0';
        const struct command_option *option = may_be ? find_option(options, argv[i]) : NULL;
        if (option == NULL)
            argv[kept++] = argv[i];
        else if (!take_option(command, option, argv, &i))
            return -1;
    }
    argv[kept] = NULL;
    return kept;
}
