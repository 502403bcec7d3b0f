#include "sglang/command.h"

#include "base/memory.h"
#include "base/number.h"
#include "base/text.h"
#include "sglang/flags.h"
#include "sglang/prefix.h"

#include <stdlib.h>
#include <string.h>

enum { PORT_DEFAULT = 30000 }; /* SGLang 0.5.23, server_args.py */

/* Reads the package's version from its metadata: 0.1 s, where `sglang version` imports for 10 s (0.5.23). */
static const char module_query[] = "import importlib.metadata as m; print(m.version('sglang'))";
/* Asks the python that the console script names. A long path is there in a shell line below "#!/bin/sh" (pip). */
static const char script_query[] = "import shlex, shutil, subprocess, sys\n"
                                   "lines = open(shutil.which(sys.argv[1]), encoding='utf-8').read().split('\\n')\n"
                                   "words = shlex.split(lines[0][2:])\n"
                                   "if words[0].endswith('/sh'):\n"
                                   "    words = shlex.split(lines[1])[1:2]\n"
                                   "sys.exit(subprocess.call(words + ['-c', sys.argv[2]]))\n";

static bool is_python(const char *word)
{
    return text_starts(prefix_base_name(word), "python");
}

/* The words after the python at `at`: its own options, then what it runs. True when that is the server. */
static bool runs_server(const struct list *command, size_t at, size_t *ret_arguments)
{
    for (size_t i = at + 1; i < command->count; i++) {
        const char *word = command->items[i];
        const char *next = i + 1 < command->count ? command->items[i + 1] : "";
        size_t length = strlen(word);
        if (strcmp(word, "-") == 0) /* its program comes from standard input */
            return false;
        if (word[0] != '-') { /* a script */
            bool console = strcmp(prefix_base_name(word), "sglang") == 0 && strcmp(next, "serve") == 0;
            *ret_arguments = i + (console ? 2 : 1);
            return console || strcmp(prefix_base_name(word), "launch_server.py") == 0;
        }
        if (strcmp(word, "-msglang.launch_server") == 0) {
            *ret_arguments = i + 1;
            return true;
        }
        if (word[1] != '-' && strpbrk(word, "cWX") == NULL && word[length - 1] == 'm') { /* -m, -um */
            bool serve = strcmp(next, "sglang.cli.main") == 0 && i + 2 < command->count &&
                         strcmp(command->items[i + 2], "serve") == 0;
            *ret_arguments = i + (serve ? 3 : 2);
            return serve || strcmp(next, "sglang.launch_server") == 0;
        }
        if (strcmp(word, "-W") == 0 || strcmp(word, "-X") == 0)
            i++;
        else if (word[1] != '-' && word[1] != 'W' && word[1] != 'X' && strchr(word, 'c') != NULL)
            return false;
    }
    return false;
}

void command_split(const struct list *command, struct command_parts *ret_parts)
{
    struct command_parts parts = {.form = COMMAND_WRAPPER, .arguments = 1};
    for (size_t i = 0; i < command->count && parts.form == COMMAND_WRAPPER; i++) {
        size_t arguments = 0;
        bool last = i + 1 == command->count;
        if (is_python(command->items[i])) {
            if (!runs_server(command, i, &arguments))
                break;
            parts = (struct command_parts){.form = COMMAND_MODULE, .program = i, .arguments = arguments};
        } else if (!last && strcmp(prefix_base_name(command->items[i]), "sglang") == 0 &&
                   strcmp(command->items[i + 1], "serve") == 0) {
            parts = (struct command_parts){.form = COMMAND_SCRIPT, .program = i, .arguments = i + 2};
        }
    }
    parts.prefix_end = parts.form == COMMAND_WRAPPER ? prefix_end(command, 0) : parts.program;
    *ret_parts = parts;
}

static enum error_code refuse_outside(const struct list *command, const struct command_parts *parts, struct error *err)
{
    const char *outside = prefix_outside(command, parts->form == COMMAND_WRAPPER ? 0 : parts->program);
    if (outside != NULL)
        return error_set(err, ERROR_SETTINGS,
                         "CMD runs %s: the server would not be a child of kldump, so it could be neither watched nor "
                         "killed; run kldumpctl inside instead: %s ... kldumpctl run -- python3 -m "
                         "sglang.launch_server ...",
                         outside, outside);
    const char *first = command->items[0];
    size_t equals = strcspn(first, "=/");
    if (first[equals] == '=' && equals > 0)
        return error_set(
            err, ERROR_SETTINGS,
            "CMD begins with %.*s=..., which only a shell takes for a variable; write env %.*s=... python3 "
            "-m sglang.launch_server ...",
            (int)(equals < 60 ? equals : 60), first, (int)(equals < 60 ? equals : 60), first);
    return ERROR_NONE;
}

static char *copy_value(const struct list *command, size_t from, enum flags_id id)
{
    struct flags_found found;
    return flags_find(command, from, id, &found) && found.value != NULL ? memory_copy(found.value) : NULL;
}

static bool is_given(const struct list *command, size_t from, enum flags_id id)
{
    struct flags_found found;
    return flags_find(command, from, id, &found);
}

/* DUMPER_FILTER as the server will see it: an assignment in front of the server wins; blank is none. */
static char *read_filter(const struct list *command, const struct command_parts *parts, const struct list *environment)
{
    const char *filter = list_environment_get(environment, "DUMPER_FILTER");
    for (size_t i = 0; i < parts->prefix_end && i < command->count; i++)
        if (text_starts(command->items[i], "DUMPER_FILTER="))
            filter = command->items[i] + strlen("DUMPER_FILTER=");
    bool blank = filter == NULL || filter[strspn(filter, " \t\n\r\f\v")] == '\0';
    return blank ? NULL : memory_copy(filter);
}

static const enum flags_id secret_flags[] = {FLAGS_API_KEY, FLAGS_ADMIN_API_KEY, FLAGS_SSL_KEYFILE_PASSWORD};
enum { SECRET_FLAGS = sizeof secret_flags / sizeof secret_flags[0] };

static void read_secrets(const struct list *command, size_t from, struct list *ret_secrets)
{
    for (size_t i = 0; i < SECRET_FLAGS; i++) {
        char *secret = copy_value(command, from, secret_flags[i]);
        if (secret == NULL)
            continue;
        list_add(ret_secrets, secret);
        explicit_bzero(secret, strlen(secret));
        free(secret);
    }
}

static enum error_code read_port(const struct list *command, size_t from, struct server_command *result,
                                 struct error *err)
{
    struct flags_found found;
    uint64_t port = PORT_DEFAULT;
    result->port_given = flags_find(command, from, FLAGS_PORT, &found);
    if (result->port_given) {
        const char *value = found.value != NULL ? found.value : "";
        if (number_parse("--port", value, UINT16_MAX, &port, NULL) != ERROR_NONE || port == 0)
            return error_set(err, ERROR_SETTINGS, "--port %s: a number from 1 to 65535 is expected", value);
    }
    result->port = (uint16_t)port;
    return ERROR_NONE;
}

enum error_code command_read(const struct list *command, const struct list *environment,
                             struct server_command *ret_command, struct error *err)
{
    struct server_command result = {0};
    struct command_parts parts;
    if (command->count == 0)
        return error_set(err, ERROR_USAGE,
                         "no CMD: put the server's command after --, as in "
                         "kldumpctl run -- python3 -m sglang.launch_server --model-path MODEL");
    command_split(command, &parts);
    enum error_code code = refuse_outside(command, &parts, err);
    if (code == ERROR_NONE)
        code = read_port(command, parts.arguments, &result, err);
    if (code != ERROR_NONE)
        return code;
    result.is_wrapper = parts.form == COMMAND_WRAPPER;
    result.is_script = parts.form == COMMAND_SCRIPT;
    if (!result.is_wrapper) {
        result.interpreter = memory_copy(command->items[parts.program]);
        prefix_choosers(command, parts.program, &result.choosers);
    }
    result.filter = read_filter(command, &parts, environment);
    result.https = is_given(command, parts.arguments, FLAGS_SSL_CERTFILE);
    result.host = copy_value(command, parts.arguments, FLAGS_HOST);
    /* With an admin key set, control calls take only that one; the others take the api key if there is one. */
    result.generate_key = copy_value(command, parts.arguments, FLAGS_API_KEY);
    result.api_key = copy_value(command, parts.arguments, FLAGS_ADMIN_API_KEY);
    if (result.api_key == NULL && result.generate_key != NULL)
        result.api_key = memory_copy(result.generate_key);
    read_secrets(command, parts.arguments, &result.secrets);
    *ret_command = result;
    return ERROR_NONE;
}

void command_version_query(const struct server_command *command, struct list *ret_argv)
{
    if (command->is_wrapper || command->interpreter == NULL)
        return;
    if (command->choosers.count > 0)
        list_add_all(ret_argv, command->choosers.items);
    list_add(ret_argv, command->is_script ? "python3" : command->interpreter);
    list_add(ret_argv, "-c");
    list_add(ret_argv, command->is_script ? script_query : module_query);
    if (command->is_script) {
        list_add(ret_argv, command->interpreter);
        list_add(ret_argv, module_query);
    }
}

/* A word that holds a whole command line ("bash -c 'python3 ... --api-key KEY'"), or assigns a secret
 * ("HF_TOKEN=hf_..." behind env). */
static void redact_inside(const char *word, struct list *ret_command)
{
    static const char *const secret[] = {"-api-key", "-keyfile-password", "TOKEN=", "KEY=", "PASSWORD=", "SECRET="};
    struct buffer out;
    buffer_init(&out);
    for (;;) {
        const char *key = NULL;
        for (size_t i = 0; i < sizeof secret / sizeof secret[0]; i++) {
            const char *found = strstr(word, secret[i]);
            if (found != NULL && (key == NULL || found + strlen(secret[i]) < key))
                key = found + strlen(secret[i]);
        }
        if (key == NULL)
            break;
        key += strspn(key, "= \t");
        buffer_append(&out, word, (size_t)(key - word));
        char quote[2] = {*key == '\'' || *key == '"' ? *key : '\0', '\0'};
        word = quote[0] != '\0' ? key + 1 + strcspn(key + 1, quote) : key + strcspn(key, " \t\n'\"");
        word += quote[0] != '\0' && *word != '\0' ? 1 : 0;
        buffer_text(&out, "***");
    }
    buffer_text(&out, word);
    list_add(ret_command, out.data);
    buffer_fini(&out);
}

void command_redact(const struct list *command, struct list *ret_command)
{
    bool hide_next = false;
    for (size_t i = 0; i < command->count; i++) {
        const char *word = command->items[i];
        bool key = false;
        for (size_t k = 0; k < SECRET_FLAGS; k++)
            key = key || flags_is(word, secret_flags[k]);
        size_t name = strcspn(word, "=");
        if (hide_next)
            list_add(ret_command, "***");
        else if (key && word[name] == '=')
            list_add_format(ret_command, "%.*s=***", (int)name, word);
        else if (strpbrk(word, " \t\n") != NULL || word[name] == '=')
            redact_inside(word, ret_command);
        else
            list_add(ret_command, word);
        hide_next = !hide_next && key && word[name] != '=';
    }
}
