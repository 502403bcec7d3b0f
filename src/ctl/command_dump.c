/* kldumpctl dump RUN EXP [--for T] [--passes N] [-- CLIENT...]
 *
 * Happy path: ask for the dump (it answers when every rank has it on); run the client, or wait until the dump has
 * reached its limit; pause; print the seal. With neither client nor limit: return at once.
 * Failures: refused (nothing was begun); the client fails (pause and seal all the same, its status is ours); the dump
 * ends by itself meanwhile (its limit, space, somebody else: its seal stands in the status); the run ends (its seal
 * stands in the record); we are killed (the dump is held by our connection, the guard pauses). */
#include "base/duration.h"
#include "base/number.h"
#include "base/text.h"
#include "ctl/command.h"
#include "ctl/dump_session.h"
#include "ctl/find.h"
#include "ctl/interrupt.h"
#include "ctl/seal.h"
#include "ctl/show.h"
#include "ctl/spawn.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { EVENT_MS = 500 };

struct dump {
    const struct command *command;
    struct find find;
    const char *experiment;
    char **client; /* NULL: none */
    bool force, as_json;
    uint64_t wait_idle_ms, for_ms, passes; /* limits of 0: none */
    uint64_t tokens;                       /* that the client is going to send; 0: not said */
};

static bool has_limit(const struct dump *dump)
{
    return dump->for_ms > 0 || dump->passes > 0;
}

static enum error_code begin(struct dump *dump, struct json **ret_answer, struct error *err)
{
    const struct dump_session session = {.experiment = dump->experiment,
                                         .hold = dump->client != NULL || has_limit(dump),
                                         .force = dump->force,
                                         .wait_idle_ms = dump->wait_idle_ms,
                                         .for_ms = dump->for_ms,
                                         .passes = dump->passes};
    return dump_session_begin(&dump->find, &session, ret_answer, err);
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

/* Pause, and the seal; the exit status of the seal. */
static int finish(struct dump *dump, struct output *out)
{
    struct error err = ERROR_INIT;
    struct dump_session_end end;
    if (dump_session_end(&dump->find, dump->experiment, &end, &err) != ERROR_NONE)
        return command_fail(dump->command, &err);
    int status = dump_session_status(&end);
    if (end.seal != NULL)
        seal_print(out, &dump->find, end.seal, dump->as_json ? "kldump.dump/1" : NULL);
    if (end.problem.code != ERROR_NONE)
        command_fail(dump->command, &end.problem);
    dump_session_end_fini(&end);
    return status;
}

/* ---- with a limit and no client ---- */

/* Waits for one event; true when the dump is still on. */
static bool is_still_on(struct dump *dump, uint64_t *after)
{
    struct json *run = NULL, *events = NULL;
    bool ended = false;
    bool on = find_status(&dump->find, &run, NULL) == ERROR_NONE && dump_session_seal(run, dump->experiment) == NULL &&
              strcmp(show_member(run, "state"), "ended") != 0;
    json_free(run);
    if (on && interrupt_number() == 0 &&
        find_events(&dump->find, *after, EVENT_MS, &events, after, &ended, NULL) != ERROR_NONE)
        on = false;
    json_free(events);
    return on;
}

static int wait_for_limit(struct dump *dump, struct output *out)
{
    uint64_t after = 0;
    interrupt_watch(NULL);
    while (interrupt_number() == 0 && is_still_on(dump, &after))
        ;
    bool was_interrupted = interrupt_number() != 0;
    interrupt_unwatch(); /* a second Ctrl-C while it is sealed ends us; the guard seals all the same */
    int status = finish(dump, out);
    return was_interrupted && status == STATUS_DONE ? STATUS_INTERRUPTED : status;
}

/* ---- before the first byte ---- */

/* Warns when that many tokens do not fit above the level at which the dump is ended for lack of space. */
static void warn_of_tokens(struct dump *dump)
{
    struct error err = ERROR_INIT;
    if (dump->tokens == 0)
        return;
    enum error_code code =
        dump_session_room(&dump->find, &(struct dump_session_load){.prefill_tokens = dump->tokens}, &err);
    if (code == ERROR_SPACE || code == ERROR_NOT_FOUND) {
        error_prefix(&err, "warning");
        command_fail(dump->command, &err);
    }
}

/* ---- all of it ---- */

static int run_client(struct dump *dump, struct output *out)
{
    struct error err = ERROR_INIT;
    struct list environment = {0};
    int client_status = 0;
    bool was_interrupted = false;
    make_environment(dump, &environment);
    output_flush(out, NULL);
    const struct spawn spawn = {.argv = dump->client, .environment = &environment};
    enum error_code code = spawn_run(&spawn, &client_status, &was_interrupted, &err);
    list_fini(&environment);
    if (code != ERROR_NONE)
        client_status = command_fail(dump->command, &err);
    else if (client_status != 0) {
        error_set(&err, ERROR_STATE, "%.200s ended with status %d", dump->client[0], client_status);
        command_fail(dump->command, &err);
    }
    int seal_status = finish(dump, out);
    if (was_interrupted && client_status == 0)
        return STATUS_INTERRUPTED;
    return client_status != 0 ? client_status : seal_status;
}

static int dump_run(struct dump *dump, struct output *out)
{
    struct error err = ERROR_INIT;
    struct json *answer = NULL;
    warn_of_tokens(dump);
    if (begin(dump, &answer, &err) != ERROR_NONE)
        return command_fail(dump->command, &err);
    if (dump->client != NULL || has_limit(dump)) {
        json_free(answer);
        return dump->client != NULL ? run_client(dump, out) : wait_for_limit(dump, out);
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

/* Of another user's it cannot be meant, and he must not take names of experiments away. */
static bool is_live_run(const char *name)
{
    struct find_list list = {0};
    bool found = false;
    if (find_all(&list, NULL) != ERROR_NONE)
        return false;
    for (size_t i = 0; i < list.count && !found; i++)
        found = find_is_live(list.seen[i].run) && find_is_ours(list.seen[i].run) &&
                strcmp(show_member(list.seen[i].run, "name"), name) == 0;
    find_list_fini(&list);
    return found;
}

/* With one operand: a run's name there is a forgotten EXP, not an experiment of the only run. */
static bool has_experiment(const struct dump *dump, const char *run)
{
    if (run != NULL || !is_live_run(dump->experiment))
        return true;
    command_usage_error(dump->command, "'%s' is the name of a live run; say which experiment to dump into: dump %s EXP",
                        dump->experiment, dump->experiment);
    return false;
}

/* A whole number of at least 1. */
static bool read_count(const struct command *command, const char *option, const char *text, uint64_t *count)
{
    struct error err = ERROR_INIT;
    if (text == NULL)
        return true;
    if (number_parse(option, text, JSON_INTEGER_MAX, count, &err) == ERROR_NONE && *count > 0)
        return true;
    command_usage_error(command, "%s: '%.60s' is not a number of at least 1, such as 5000", option, text);
    return false;
}

static bool read_duration(const struct command *command, const char *option, const char *text, uint64_t least_ms,
                          uint64_t *ms)
{
    struct error err = ERROR_INIT;
    if (text == NULL)
        return true;
    enum error_code code = duration_parse(option, text, ms, &err);
    if (code == ERROR_NONE && *ms < least_ms)
        code = error_set(&err, ERROR_BAD_VALUE, "%s: '%.60s' is too short; at least %" PRIu64 "ms", option, text,
                         least_ms);
    if (code != ERROR_NONE)
        command_usage_error(command, "%s", err.message);
    return code == ERROR_NONE;
}

static int run(const struct command *command, struct output *out, int argc, char **argv)
{
    struct dump dump = {.command = command, .wait_idle_ms = DUMP_SESSION_IDLE_MS};
    const char *wait_idle = NULL, *name = NULL, *for_time = NULL, *passes = NULL, *tokens = NULL;
    struct error err = ERROR_INIT;
    struct command_operands operands;
    const struct command_option options[] = {{.name = "json", .flag = &dump.as_json},
                                             {.name = "force", .flag = &dump.force},
                                             {.name = "wait-idle", .value = &wait_idle},
                                             {.name = "for", .value = &for_time},
                                             {.name = "passes", .value = &passes},
                                             {.name = "tokens", .value = &tokens},
                                             {0}};
    if (!command_parse(command, options, argc, argv, 2, &operands) || !read_operands(&dump, &operands, &name) ||
        !read_duration(command, "--wait-idle", wait_idle, 0, &dump.wait_idle_ms) ||
        !read_duration(command, "--for", for_time, 1, &dump.for_ms) ||
        !read_count(command, "--passes", passes, &dump.passes) ||
        !read_count(command, "--tokens", tokens, &dump.tokens) || !has_experiment(&dump, name))
        return STATUS_USAGE;
    enum error_code code = dump.client != NULL ? spawn_check(dump.client[0], &err) : ERROR_NONE;
    if (code == ERROR_NONE)
        code = find_run(name, &dump.find, &err);
    int status = code == ERROR_NONE ? dump_run(&dump, out) : command_fail(command, &err);
    find_fini(&dump.find);
    return status;
}

const struct command command_dump = {
    .name = "dump",
    .usage = "dump [RUN] EXP [OPTIONS] [-- CLIENT...]",
    .summary = "dump into experiment EXP: around a client, for a while, or until 'pause'",
    .help = "Examples:\n"
            "  kldumpctl dump t dec -- python3 client.py\n"
            "  kldumpctl dump t dec --tokens 20000 -- python3 client.py\n"
            "  kldumpctl dump t two --for 30s\n"
            "  kldumpctl dump t pre && ./send-requests; kldumpctl pause t\n"
            "\n"
            "With CLIENT: dumping is switched on, CLIENT runs, dumping is switched off and the dump is\n"
            "audited and sealed. CLIENT finds KLDUMP_RUN, KLDUMP_EXP and KLDUMP_URL in its environment.\n"
            "The exit status is CLIENT's, or 4 when CLIENT did well but the dump is incomplete, or was\n"
            "switched off before CLIENT was done. Ctrl-C goes to CLIENT; the dump is sealed all the same.\n"
            "With --for or --passes and no CLIENT: waits for that, and prints the seal. Ctrl-C ends the\n"
            "dump early; it is sealed.\n"
            "With none of them: returns as soon as every rank has dumping on.\n"
            "\n"
            "Options:\n"
            "  --for TIME          switch dumping off after so long\n"
            "  --passes N          switch dumping off once every rank has done N forward passes\n"
            "  --tokens N          warn beforehand when N prefill tokens do not fit on the disk\n"
            "  --wait-idle TIME    how long to wait for a server without requests (default: 60s)\n"
            "  --force             begin although the server is busy\n"
            "  --json              the seal (with neither CLIENT nor limit: the start) as one object\n",
    .run = run,
};
