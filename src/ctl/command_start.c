/* kldumpctl start [--no-wait] [OPTIONS] -- CMD...
 *
 * Happy path: check the options here, hand arguments, environment and folder to kldumpd, print the name it answers,
 * show the stages until the run is armed. Failures: a bad option, what cannot be handed over (nothing was begun), no
 * daemon, refused by it; a signal before the name is printed (the run is stopped); it ends meanwhile (the run goes on,
 * and is followed no more); the run ends before it is armed (last lines of the server's output, the message, the run's
 * own exit status). */
#include "base/memory.h"
#include "base/text.h"
#include "ctl/command.h"
#include "ctl/follow.h"
#include "ctl/interrupt.h"
#include "ctl/options.h"
#include "ctl/show.h"
#include "ctl/start_request.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { START_MS = 60000, LAST_LINES = 15 };

/* All faults of the options now, before anything is asked of anybody. */
static enum error_code check_settings(int argc, char **argv, struct error *err)
{
    struct settings settings = {0};
    int rest = 0;
    enum error_code code = options_read(argc, argv, NULL, &settings, &rest, err);
    if (code == ERROR_NONE)
        settings_fini(&settings);
    return code;
}

/* kldumpd went away while it was starting the run. */
static enum error_code daemon_lost(struct error *err)
{
    return error_set(err, ERROR_UNREACHABLE,
                     "kldumpd ended before it answered; if it had begun the run already, that goes on without it: "
                     "'kldumpctl list' shows it, 'kldumpctl stop' ends it");
}

static enum error_code ask_daemon(int argc, char **argv, char *ret_name, size_t size, char **ret_daemon,
                                  struct error *err)
{
    struct client *client = NULL;
    struct json *parameters = NULL, *answer = NULL;
    const char *name = NULL;
    enum error_code code = start_request_make(argc, argv, &parameters, err);
    if (code != ERROR_NONE)
        return code;
    code = find_daemon(&client, ret_daemon, err);
    if (code == ERROR_NONE && interrupt_number() != 0) {
        json_free(parameters);
        code = error_set(err, ERROR_INTERRUPTED, "interrupted; nothing was begun");
    } else if (code == ERROR_NONE) {
        code = client_call(client, "start", parameters, START_MS, &answer, err);
        code = code == ERROR_UNREACHABLE || code == ERROR_INTERRUPTED ? daemon_lost(err) : code;
    } else {
        json_free(parameters);
    }
    if (code == ERROR_NONE)
        code = json_get_string(answer, "run", &name, err);
    if (code == ERROR_NONE)
        text_copy(ret_name, size, name);
    json_free(answer);
    client_free(client);
    return code;
}

/* The run ended before it was armed: what its server said last, then why. */
static int report_failure(const struct command *command, struct find *find, const struct json *run)
{
    struct error err = ERROR_INIT;
    struct buffer lines;
    buffer_init(&lines);
    find_last_lines(find, LAST_LINES, &lines);
    if (lines.length > 0) {
        struct output out;
        output_init(&out, STDERR_FILENO);
        output_text(&out, "Last lines of the server:\n");
        for (char *line = lines.data; *line != '\0';) {
            char *end = strchr(line, '\n');
            *end = '\0';
            output_text(&out, "  ");
            output_safe(&out, OUTPUT_DIM, line);
            output_text(&out, "\n");
            line = end + 1;
        }
        output_flush(&out, NULL);
        output_fini(&out);
    }
    error_set(&err, ERROR_STATE, "run %s did not get to armed: %s%s%s", find->name, show_member(run, "outcome"),
              show_member(run, "message")[0] != '\0' ? ": " : "", show_member(run, "message"));
    command_fail(command, &err);
    buffer_fini(&lines);
    int status = show_exit_status(run);
    return status != STATUS_DONE ? status : STATUS_NOT_ARMED;
}

static int wait_until_armed(const struct command *command, const char *daemon, const char *name)
{
    struct error err = ERROR_INIT;
    struct find find = {0};
    struct json *run = NULL;
    enum error_code code = find_at(daemon, name, NULL, &find, &err);
    if (code == ERROR_NO_DAEMON || code == ERROR_UNREACHABLE) /* gone since; the run's guard is still there */
        code = find_run(name, &find, NULL);
    struct follow follow = {.find = &find, .is_reached = follow_is_up, .show = follow_may_show()};
    if (code == ERROR_NONE)
        code = follow_run(&follow, &run, &err);
    if (code == ERROR_UNREACHABLE || code == ERROR_INTERRUPTED || code == ERROR_NO_DAEMON)
        error_set(
            &err, ERROR_UNREACHABLE,
            "kldumpd has ended; run %s goes on without it: 'kldumpctl status %s' shows how it is, 'kldumpctl wait "
            "%s --for armed' waits for it",
            name, name, name);
    int status = STATUS_DONE;
    if (code != ERROR_NONE)
        status = command_fail(command, &err);
    else if (!follow_is_up(show_member(run, "state")))
        status = report_failure(command, &find, run);
    json_free(run);
    find_fini(&find);
    return status;
}

/* Nobody may have seen the name: whoever interrupts a start before that means the run. */
static void stop_unseen(const struct command *command, const char *daemon, const char *name)
{
    struct error err = ERROR_INIT;
    struct find find = {0};
    struct json *answer = NULL;
    enum error_code code = find_at(daemon, name, NULL, &find, &err);
    if (code == ERROR_NONE)
        code = find_call(&find, "stop", NULL, CLIENT_PATIENCE_MS, &answer, &err);
    if (code == ERROR_NONE)
        error_set(&err, ERROR_INTERRUPTED, "interrupted; run %s had begun, and is being stopped", name);
    else
        error_prefix(&err, "interrupted; run %s has begun and goes on ('kldumpctl stop %s' ends it), since", name,
                     name);
    command_fail(command, &err);
    json_free(answer);
    find_fini(&find);
}

static int run(const struct command *command, struct output *out, int argc, char **argv)
{
    struct error err = ERROR_INIT;
    char name[65] = "";
    bool no_wait = false;
    const struct command_option options[] = {{.name = "no-wait", .flag = &no_wait}, {0}};
    argc = command_take(command, options, argc - 1, ++argv);
    if (argc < 0)
        return STATUS_USAGE;
    if (check_settings(argc, argv, &err) != ERROR_NONE)
        return command_usage_error(command, "%s", err.message);
    char *daemon = NULL;
    interrupt_watch("kldumpctl start: interrupted; if the run has begun it goes on: 'kldumpctl list' shows it, "
                    "'kldumpctl stop' ends it\n");
    enum error_code code = ask_daemon(argc, argv, name, sizeof name, &daemon, &err);
    if (code == ERROR_NONE && interrupt_number() == 0) {
        output_safe(out, OUTPUT_PLAIN, name);
        output_text(out, "\n");
        output_flush(out, NULL); /* the name is there for 'stop' while this still waits */
    } else if (code == ERROR_NONE) {
        stop_unseen(command, daemon, name);
    }
    interrupt_unwatch();
    int status = code == ERROR_NONE ? STATUS_DONE : command_fail(command, &err);
    if (interrupt_number() != 0)
        interrupt_end(interrupt_number());
    if (code == ERROR_NONE && !no_wait)
        status = wait_until_armed(command, daemon, name);
    free(daemon);
    return status;
}

const struct command command_start = {
    .name = "start",
    .usage = "start [--no-wait] [OPTIONS] -- CMD...",
    .summary = "as run, but owned by kldumpd; returns when the run is armed",
    .help = "Examples:\n"
            "  kldumpctl start --name u --dir dumps -- \\\n"
            "      python3 -m sglang.launch_server --model-path M --port 30000\n"
            "  kldumpctl start --no-wait --name u -- python3 -m sglang.launch_server ...\n"
            "\n"
            "Prints the run's name, then waits until it is armed. When it does not get there: the\n"
            "last lines of the server, the cause, and the run's exit status. The run goes on when\n"
            "this command or kldumpd ends; 'kldumpctl stop' ends it. Interrupted before it has\n"
            "printed the name, it stops the run.\n"
            "\n"
            "  --no-wait             return as soon as the run has its name\n",
    .has_settings = true,
    .run = run,
};
