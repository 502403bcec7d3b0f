/* kldumpctl wait [RUN] --for STATE [--timeout T] [--json] */
#include "base/duration.h"
#include "core/run.h"
#include "ctl/command.h"
#include "ctl/find.h"
#include "ctl/show.h"

#include <string.h>
#include <time.h>

enum { WAIT_FOREVER_MS = 24 * 3600 * 1000, END_PATIENCE_MS = 15000, LOST_MAX = 100 };

static bool check_state(const struct command *command, const char *state)
{
    struct buffer names;
    if (state != NULL && run_state_from_name(state) != RUN_STATES)
        return true;
    buffer_init(&names);
    for (int s = 0; s < RUN_STATES; s++)
        buffer_format(&names, "%s%s", s > 0 ? " " : "", run_state_name((enum run_state)s));
    if (state == NULL)
        command_usage_error(command, "say what to wait for: --for STATE; states are %s", names.data);
    else
        command_usage_error(command, "--for: '%.40s' is no state; states are %s", state, names.data);
    buffer_fini(&names);
    return false;
}

static uint64_t now_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

/* Waits once; *ret_run is the run as of then. ERROR_TIMEOUT: the time is over. */
static enum error_code wait_once(struct find *find, const char *state, uint64_t timeout_ms, struct json **ret_run,
                                 struct error *err)
{
    struct json *result = NULL;
    const struct json *found = NULL;
    uint64_t end_ms = now_ms() + timeout_ms;
    enum error_code code = ERROR_UNREACHABLE;
    for (int lost = 0; code == ERROR_UNREACHABLE && lost <= LOST_MAX; lost++) {
        uint64_t left_ms = end_ms > now_ms() ? end_ms - now_ms() : 0;
        if (lost > 0 && find_again(find, END_PATIENCE_MS, err) != ERROR_NONE)
            return err->code;
        if (find->client == NULL) /* the guard is gone: what it left says how the run ended */
            return find_status(find, ret_run, err);
        struct json *parameters = json_object();
        json_set_string(parameters, "for", state);
        json_set_u64(parameters, "timeout_ms", left_ms);
        code = find_call(find, "wait", parameters, (int64_t)left_ms + CLIENT_PATIENCE_MS, &result, err);
    }
    if (code == ERROR_NONE)
        code = json_get_object(result, "run", &found, err);
    if (code == ERROR_NONE)
        *ret_run = json_copy(found);
    json_free(result);
    return code;
}

static int report(const struct command *command, struct output *out, const char *state, const struct json *found,
                  bool as_json)
{
    struct error err = ERROR_INIT;
    bool reached = strcmp(show_member(found, "state"), state) == 0;
    bool ended = strcmp(show_member(found, "state"), "ended") == 0;
    if (as_json)
        show_json(out, "kldump.wait/1", found);
    else
        show_outcome(out, found);
    if (reached)
        return STATUS_DONE;
    error_set(&err, ERROR_STATE, "run %s %s %s and was not seen %s", show_member(found, "name"), ended ? "has" : "is",
              show_member(found, "state"), state);
    command_fail(command, &err);
    int status = ended ? show_exit_status(found) : STATUS_NO;
    return status != STATUS_DONE ? status : STATUS_NO;
}

static int run(const struct command *command, struct output *out, int argc, char **argv)
{
    struct error err = ERROR_INIT;
    struct command_operands operands;
    const char *state = NULL, *timeout = NULL;
    bool as_json = false;
    uint64_t timeout_ms = WAIT_FOREVER_MS;
    struct find find = {0};
    struct json *found = NULL;
    const struct command_option options[] = {{.name = "for", .value = &state},
                                             {.name = "timeout", .value = &timeout},
                                             {.name = "json", .flag = &as_json},
                                             {0}};
    if (!command_parse(command, options, argc, argv, 1, &operands) || !check_state(command, state))
        return STATUS_USAGE;
    if (timeout != NULL && duration_parse("--timeout", timeout, &timeout_ms, &err) != ERROR_NONE)
        return command_usage_error(command, "%s", err.message);
    enum error_code code = find_run(operands.item[0], &find, &err);
    do { /* a guard waits for a day at most */
        if (code == ERROR_NONE || code == ERROR_TIMEOUT)
            code = wait_once(&find, state, timeout_ms, &found, &err);
    } while (code == ERROR_TIMEOUT && timeout == NULL && find.client != NULL);
    int status = code == ERROR_NONE ? report(command, out, state, found, as_json) : command_fail(command, &err);
    json_free(found);
    find_fini(&find);
    return status;
}

const struct command command_wait = {
    .name = "wait",
    .usage = "wait [RUN] --for STATE [--timeout TIME] [--json]",
    .summary = "wait until a run has reached a state",
    .help = "Examples:\n"
            "  kldumpctl wait t --for armed --timeout 30min\n"
            "  kldumpctl wait t --for ended\n"
            "\n"
            "States: launching loading warming verifying armed dumping sealing ready stopping ended.\n"
            "Exit status 0 when the state was reached, 89 when the time is over; when the run ends\n"
            "before, the run's own exit status (1 where that is 0).\n"
            "\n"
            "Options:\n"
            "  --for STATE       what to wait for\n"
            "  --timeout TIME    how long: 500ms 30s 10min 2h (default: for ever)\n"
            "  --json            the run as of then\n",
    .run = run,
};
