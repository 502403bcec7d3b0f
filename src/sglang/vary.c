#include "sglang/vary.h"

#include "base/memory.h"
#include "base/text.h"
#include "json/json.h"
#include "sglang/command.h"

#include <stdlib.h>
#include <string.h>

static const char name_letters[] = "abcdefghijklmnopqrstuvwxyz0123456789-";

/* What is no setting whose change should not matter. */
static const struct {
    const char *name, *reason;
} refused[] = {
    {"model-path", "another model gives other numbers"},
    {"model", "another model gives other numbers"},
    {"load-format", "other weights give other numbers"},
    {"host", "it is where the server answers"},
    {"port", "it is where the server answers"},
    {"ssl-keyfile", "it is how the server answers"},
    {"ssl-certfile", "it is how the server answers"},
    {"api-key", "it is a secret, and has nothing to do with numbers"},
    {"admin-api-key", "it is a secret, and has nothing to do with numbers"},
    {"config", "vary what stands in the file, by its name on the command line"},
    {"random-seed", "it is drawn at each start unless it is given, and counts for no setting"},
};

/* Arguments whose setting has another name (SGLang 0.5.10 to 0.5.23, server_args.py). */
static const struct {
    const char *argument, *setting;
} other_names[] = {
    {"tp", "tp_size"}, {"tensor-parallel-size", "tp_size"},   {"dp", "dp_size"}, {"data-parallel-size", "dp_size"},
    {"pp", "pp_size"}, {"pipeline-parallel-size", "pp_size"}, {"ep", "ep_size"}, {"expert-parallel-size", "ep_size"},
};

void vary_setting_fini(struct vary_setting *setting)
{
    free(setting->name);
    free(setting->value);
    *setting = (struct vary_setting){0};
}

static bool is_on(const struct vary_setting *setting)
{
    return strcmp(setting->value, "on") == 0;
}

static bool is_off(const struct vary_setting *setting)
{
    return strcmp(setting->value, "off") == 0;
}

static enum error_code check_name(const char *text, size_t length, struct error *err)
{
    if (length == 0 || text[length] != '=' || strspn(text, name_letters) != length || text[0] == '-')
        return error_set(err, ERROR_BAD_VALUE,
                         "--vary %.100s: expected NAME=VALUE,VALUE, NAME an argument of the server without its "
                         "dashes, as in page-size=1,16 or disable-overlap-schedule=on",
                         text);
    for (size_t i = 0; i < sizeof refused / sizeof refused[0]; i++)
        if (strlen(refused[i].name) == length && strncmp(refused[i].name, text, length) == 0)
            return error_set(err, ERROR_BAD_VALUE, "--vary %s: %s", refused[i].name, refused[i].reason);
    return ERROR_NONE;
}

static enum error_code add_value(const char *text, size_t length, const char *value, struct vary_setting **settings,
                                 size_t *count, struct error *err)
{
    if (value[0] == '\0')
        return error_set(err, ERROR_BAD_VALUE, "--vary %.100s: a value is empty", text);
    for (size_t i = 0; i < *count; i++)
        if (strlen((*settings)[i].name) == length && strncmp((*settings)[i].name, text, length) == 0 &&
            strcmp((*settings)[i].value, value) == 0)
            return error_set(err, ERROR_BAD_VALUE, "--vary: %s=%.60s is given twice", (*settings)[i].name, value);
    *settings = memory_resize(*settings, *count + 1, sizeof **settings);
    (*settings)[(*count)++] = (struct vary_setting){memory_format("%.*s", (int)length, text), memory_copy(value)};
    return ERROR_NONE;
}

enum error_code vary_parse(const char *text, struct vary_setting **settings, size_t *count, struct error *err)
{
    size_t length = strcspn(text, "=");
    enum error_code code = check_name(text, length, err);
    if (code != ERROR_NONE)
        return code;
    char *copy = memory_copy(text + length + 1), *rest = copy;
    for (char *value; code == ERROR_NONE && (value = strsep(&rest, ",")) != NULL;)
        code = add_value(text, length, value, settings, count, err);
    free(copy);
    return code;
}

/* "--NAME" or "--NAME=..." */
static bool is_use(const char *word, const char *name)
{
    size_t length = strlen(name);
    return text_starts(word, "--") && strncmp(word + 2, name, length) == 0 &&
           (word[2 + length] == '\0' || word[2 + length] == '=');
}

enum error_code vary_command(const struct list *command, const struct vary_setting *setting, struct list *ret_command,
                             struct error *err)
{
    struct command_parts parts;
    command_split(command, &parts);
    if (parts.form == COMMAND_WRAPPER)
        return error_set(err, ERROR_SETTINGS,
                         "--vary %s: CMD is not SGLang itself, so it is not known whether it hands an argument on to "
                         "the server; write the server's own command there: python3 -m sglang.launch_server ...",
                         setting->name);
    for (size_t i = 0; i < command->count; i++)
        if (!is_off(setting) || i < parts.arguments || !is_use(command->items[i], setting->name))
            list_add(ret_command, command->items[i]);
    if (is_on(setting))
        list_add_format(ret_command, "--%s", setting->name);
    else if (!is_off(setting))
        list_add_format(ret_command, "--%s=%s", setting->name, setting->value);
    return ERROR_NONE;
}

static char *setting_name(const char *argument)
{
    for (size_t i = 0; i < sizeof other_names / sizeof other_names[0]; i++)
        if (strcmp(other_names[i].argument, argument) == 0)
            return memory_copy(other_names[i].setting);
    char *name = memory_copy(argument);
    for (char *c = name; *c != '\0'; c++)
        *c = *c == '-' ? '_' : *c;
    return name;
}

char *vary_resolved(const struct generate_server *server, const char *name)
{
    char *key = setting_name(name);
    const struct json *value = json_member(server->settings, key);
    const char *text = NULL;
    free(key);
    if (json_type(value) == JSON_NULL)
        return memory_copy("-");
    return json_get_string(value, "", &text, NULL) == ERROR_NONE ? memory_copy(text) : json_print_new(value);
}

bool vary_is_asked(const struct vary_setting *setting, const char *resolved)
{
    if (is_on(setting))
        return strcmp(resolved, "true") == 0;
    if (is_off(setting))
        return strcmp(resolved, "false") == 0;
    return strcmp(setting->value, resolved) == 0;
}
