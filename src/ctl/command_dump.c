/* kldumpctl dump RUN EXP [-- CLIENT...]
 *
 * Happy path: ask for the dump (it answers when every rank has it on); run the client; pause; print the seal.
 * Failures: refused (nothing was begun); the client fails (pause and seal all the same, its status is ours); the run
 * ends meanwhile (its seal stands in the record); we are killed (the dump is held by our connection, the guard pauses).
 */
#include "base/duration.h"
#include "base/text.h"
#include "ctl/command.h"
#include "ctl/find.h"
#include "ctl/seal.h"
#include "ctl/show.h"
#include "ctl/spawn.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { WAIT_IDLE_MS = 60000, ENABLE_MS = 600000, END_PATIENCE_MS = 15000 };

struct dump {
    const struct command *command;
    struct find find;
    const char *experiment;
    char **client; /* NULL: none */
    bool force, as_json;
    uint64_t wait_idle_ms;
};

static enum error_code begin(struct dump *dump, struct json **ret_answer, struct error *err)
{
    struct json *parameters = json_object();
    json_set_string(parameters, "experiment", dump->experiment);
    json_set_bool(parameters, "hold", dump->client != NULL);
    json_set_bool(parameters, "force", dump->force);
    json_set_u64(parameters, "wait_idle_ms", dump->wait_idle_ms);
    return find_call(&dump->find, "dump", parameters, (int64_t)dump->wait_idle_ms + ENABLE_MS, ret_answer, err);
}

static void make_environment(struct dump *dump, struct list *environment)
{
    struct json *run = NULL;
    list_add_all(environment, environ);
    list_environment_set(environment, "KLDUMP_RUN", dump->find.name);
    list_environment_set(environment, "KLDUMP_EXP", dump->experiment);
    if (find_status(&dump->find, &run, NULL) == ERROR_NONE)
        list_environment_set(environment, "KLDUMP_URL", show_member(run, "url"));
    json_free(run);
}

/* The run ended while the client was running: its record has the seal, made at its death. */
static int report_ended(struct dump *dump, struct output *out, struct error *err)
{
    struct json *run = NULL;
    int status = STATUS_INCOMPLETE;
    if (find_again(&dump->find, END_PATIENCE_MS, err) != ERROR_NONE ||
        find_status(&dump->find, &run, err) != ERROR_NONE)
        return command_fail(dump->command, err);
    const struct json *found = NULL;
    for (const struct json *s = json_first(json_member(run, "seals")); s != NULL; s = json_next(s))
        if (strcmp(show_member(s, "experiment"), dump->experiment) == 0)
            found = s;
    if (found != NULL)
        status = seal_print(out, &dump->find, found, dump->as_json ? "kldump.dump/1" : NULL);
    error_set(err, ERROR_STATE, "run %s is %s%s%s%s%s", dump->find.name, show_member(run, "state"),
              show_member(run, "outcome")[0] != '\0' ? ": " : "", show_member(run, "outcome"),
              show_member(run, "message")[0] != '\0' ? ": " : "", show_member(run, "message"));
    command_fail(dump->command, err);
    json_free(run);
    return status;
}

/* Pause, and the seal; the exit status of the seal. */
static int finish(struct dump *dump, struct output *out)
{
    struct json *seal = NULL;
    struct error err = ERROR_INIT;
    enum error_code code = find_call(&dump->find, "pause", NULL, -1, &seal, &err);
    if (code == ERROR_UNREACHABLE || code == ERROR_STATE)
        return report_ended(dump, out, &err);
    if (code != ERROR_NONE)
        return command_fail(dump->command, &err);
    int status = seal_print(out, &dump->find, seal, dump->as_json ? "kldump.dump/1" : NULL);
    json_free(seal);
    return status;
}

static int run_client(struct dump *dump, struct output *out)
{
    struct error err = ERROR_INIT;
    struct list environment = {0};
    int client_status = 0;
    bool interrupted = false;
    make_environment(dump, &environment);
    output_flush(out, NULL);
    enum error_code code = spawn_run(dump->client, &environment, &client_status, &interrupted, &err);
    list_fini(&environment);
    if (code != ERROR_NONE)
        client_status = command_fail(dump->command, &err);
    else if (client_status != 0) {
        error_set(&err, ERROR_STATE, "%.200s ended with status %d", dump->client[0], client_status);
        command_fail(dump->command, &err);
    }
    int seal_status = finish(dump, out);
    if (interrupted && client_status == 0)
        return STATUS_INTERRUPTED;
    return client_status != 0 ? client_status : seal_status;
}

static int dump_run(struct dump *dump, struct output *out)
{
    struct error err = ERROR_INIT;
    struct json *answer = NULL;
    if (begin(dump, &answer, &err) != ERROR_NONE)
        return command_fail(dump->command, &err);
    if (dump->client != NULL) {
        json_free(answer);
        return run_client(dump, out);
    }
    if (dump->as_json) {
        struct json *line = json_object();
        json_set_string(line, "schema", "kldump.dump/1");
        for (const struct json *m = json_first(answer); m != NULL; m = json_next(m))
            json_set_child(line, json_key(m), json_copy(m));
        output_json(out, line);
        json_free(line);
    } else {
        output_text(out, "Dumping is on: ");
        output_safe(out, OUTPUT_PLAIN, show_member(answer, "dir"));
        output_format(out, "/%s\nStop it with: kldumpctl pause %s\n", dump->experiment, dump->find.name);
    }
    json_free(answer);
    return STATUS_DONE;
}

/* "dump RUN EXP", or "dump EXP" where one run is live. */
static bool read_operands(struct dump *dump, const struct command_operands *operands, const char **ret_run)
{
    if (operands->count == 0) {
        command_usage_error(dump->command, "say which experiment to dump into: dump [RUN] EXP");
        return false;
    }
    *ret_run = operands->count == 2 ? operands->item[0] : NULL;
    dump->experiment = operands->item[operands->count - 1];
    if (!text_is_name(dump->experiment)) {
        command_usage_error(dump->command,
                            "'%.70s' is not the name of an experiment; 1 to 64 of A-Z a-z 0-9 . _ -, not beginning "
                            "with . or -",
                            dump->experiment);
        return false;
    }
    dump->client = operands->rest;
    if (dump->client != NULL && dump->client[0] == NULL) {
        command_usage_error(dump->command, "no client stands after ' -- '");
        return false;
    }
    return true;
}

static int run(const struct command *command, struct output *out, int argc, char **argv)
{
    struct dump dump = {.command = command, .wait_idle_ms = WAIT_IDLE_MS};
    const char *wait_idle = NULL, *name = NULL;
    struct error err = ERROR_INIT;
    struct command_operands operands;
    const struct command_option options[] = {
        {"json", 0, &dump.as_json, NULL}, {"force", 0, &dump.force, NULL}, {"wait-idle", 0, NULL, &wait_idle}, {0}};
    if (!command_parse(command, options, argc, argv, 2, &operands) || !read_operands(&dump, &operands, &name))
        return STATUS_USAGE;
    if (wait_idle != NULL && duration_parse("--wait-idle", wait_idle, &dump.wait_idle_ms, &err) != ERROR_NONE)
        return command_usage_error(command, "%s", err.message);
    enum error_code code = dump.client != NULL ? spawn_check(dump.client[0], &err) : ERROR_NONE;
    if (code == ERROR_NONE)
        code = find_run(name, &dump.find, &err);
    int status = code == ERROR_NONE ? dump_run(&dump, out) : command_fail(command, &err);
    find_fini(&dump.find);
    return status;
}

const struct command command_dump = {
    .name = "dump",
    .usage = "dump [RUN] EXP [--force] [--wait-idle TIME] [--json] [-- CLIENT...]",
    .summary = "dump into experiment EXP, around a client or until 'pause'",
    .help = "Examples:\n"
            "  kldumpctl dump t dec -- python3 client.py\n"
            "  kldumpctl dump t pre\n"
            "  kldumpctl pause t\n"
            "\n"
            "With CLIENT: dumping is switched on, CLIENT runs, dumping is switched off and the dump is\n"
            "audited and sealed. CLIENT finds KLDUMP_RUN, KLDUMP_EXP and KLDUMP_URL in its environment.\n"
            "The exit status is CLIENT's, or 4 when CLIENT did well but the dump is incomplete. Ctrl-C\n"
            "goes to CLIENT; the dump is sealed all the same.\n"
            "Without CLIENT: returns as soon as every rank has dumping on.\n"
            "\n"
            "Options:\n"
            "  --wait-idle TIME    how long to wait for a server without requests (default: 60s)\n"
            "  --force             begin although the server is busy\n"
            "  --json              the seal (without CLIENT: the start) as one object\n",
    .run = run,
};
