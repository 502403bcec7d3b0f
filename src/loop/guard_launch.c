/* The keeper's side of the guard: the server's launch, what the keeper reports, and the launch of the same server with
 * another spelling of its flags. Happy path: guard_launch -> STARTED -> EXITED (told after its last lines have been
 * read, for at most drain_ms, since they may say why) -> GONE.
 *
 * The server does not know a flag that was added: EXITED says `again`, and when nothing of the first try lives any
 * more RUN_DO_LAUNCH lets go of its keeper, cgroup, watcher and pipes and makes new ones. That is done once the
 * machine has finished its step (guard_launch_turn); what fails then is told as EXEC_FAILED.
 *
 * The keeper is gone: KEEPER_LOST, after the guard has killed by itself. */
#include "loop/guard_private.h"
#include "base/memory.h"
#include "base/text.h"
#include "loop/clock.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static const uint64_t drain_ms = 300;
static const int let_go_ms = 3000; /* for a keeper that has nothing left to kill */

/* ---- what the keeper reports ---- */

/* Only before the port is open: what runs is not started anew. */
static bool respell(struct guard *guard, int code, char *note, size_t size)
{
    struct guard_plan *plan = &guard->plan;
    return code > 0 && !guard->run.settings.plain && guard->unknown_flag[0] != '\0' &&
           guard->run.state <= RUN_LOADING &&
           guard->server->respell(&plan->command, guard->unknown_flag, guard->launches, &plan->argv, &plan->environment,
                                  note, size);
}

static void tell_exited(struct guard *guard)
{
    int status = guard->exit_status;
    int code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
    int signal = WIFSIGNALED(status) ? WTERMSIG(status) : -1;
    char text[512];
    guard_server_flush_output(guard);
    guard_space_settle(guard);
    bool again = respell(guard, code, text, sizeof text);
    if (!again)
        guard->server->explain_exit(code, signal, guard->run.cause, text, sizeof text);
    guard->exit_pending = false;
    guard_feed(guard, &(struct run_event){
                          .kind = RUN_EVENT_EXITED, .exit_code = code, .signal = signal, .again = again, .text = text});
    if (guard->gone_pending)
        guard_after_begin(guard);
    guard->gone_pending = false;
}

static void drained(bool complete, void *user)
{
    (void)complete;
    tell_exited(user);
}

/* Why CMD could not be executed, and what would help. */
static void describe_exec(const char *program, int system, char *text, size_t size)
{
    static const struct {
        int system;
        const char *help;
    } helps[] = {
        {ENOENT, "; check the path, and of a script the program in its first line"},
        {EACCES, "; CMD must be a program that this user may execute"},
        {ENOEXEC, "; a script needs a first line such as #!/bin/sh, a program must be built for this machine"},
    };
    const char *help = "";
    for (size_t i = 0; i < sizeof helps / sizeof helps[0]; i++)
        if (helps[i].system == system)
            help = helps[i].help;
    snprintf(text, size, "'%.160s': %s%s", program, strerror(system), help);
}

static void on_message(struct guard *guard, const struct keeper_message *message)
{
    char text[384];
    bool lost = message->reason == KEEPER_REASON_SILENCE || message->reason == KEEPER_REASON_GUARD_GONE;
    if (message->kind == KEEPER_GONE && guard->gone_ns == 0) /* a second order to kill is answered, too */
        guard->gone_ns = clock_now_ns();                     /* before anything that takes time */
    if (lost || (message->kind == KEEPER_GONE && !guard->exit_pending))
        guard_space_settle(guard);
    if (lost)
        guard_feed(guard, &(struct run_event){
                              .kind = RUN_EVENT_KEEPER_LOST,
                              .text = "the guard had been stopped for too long; the keeper killed everything"});
    switch ((enum keeper_kind)message->kind) {
    case KEEPER_STARTED:
        guard->main_pid = message->pid;
        guard_started(guard, message);
        break;
    case KEEPER_EXEC_FAILED:
        describe_exec(guard->plan.argv.items[0], message->value, text, sizeof text);
        guard_feed(guard, &(struct run_event){
                              .kind = RUN_EVENT_EXEC_FAILED, .number = (uint64_t)message->value, .text = text});
        break;
    case KEEPER_EXITED:
        guard->main_pid = 0; /* waited for by the keeper: the number may be anybody's now */
        guard->exit_status = message->value;
        guard->exit_pending = true;
        output_drain(guard->output, drain_ms, drained, guard);
        break;
    case KEEPER_GONE:
        if (message->value > 0)
            guard_report_note(guard, RUN_WARN, RUN_NOTE_END, "dead processes of the run are held by a debugger");
        if (guard->exit_pending)
            guard->gone_pending = true;
        else
            guard_after_begin(guard);
        break;
    case KEEPER_UNKILLABLE:
        snprintf(text, sizeof text, "pid %d (%.15s) in state %c, waiting in %.60s", message->pid, message->comm,
                 message->state, message->text);
        guard_feed(guard, &(struct run_event){.kind = RUN_EVENT_UNKILLABLE, .text = text});
        break;
    case KEEPER_FROZEN:
        guard_suspend_frozen(guard, message->value);
        break;
    default:
        break;
    }
}

/* The keeper is gone without having been let go: what it would have killed is killed here. This blocks the loop, which
 * has nothing better to do. */
static void keeper_lost(struct guard *guard)
{
    uv_poll_stop(guard->keeper_poll);
    guard->keeper_gone = true;
    if (guard->run.gone)
        return;
    guard_feed(guard, &(struct run_event){.kind = RUN_EVENT_KEEPER_LOST});
    bool empty = keeper_kill_without(&guard->keeper, guard->main_pid, 10000);
    if (empty)
        guard_after_begin(guard);
    else
        guard_feed(guard,
                   &(struct run_event){.kind = RUN_EVENT_UNKILLABLE, .text = "processes that carry the run's cookie"});
}

static void on_keeper(uv_poll_t *poll, int status, int events)
{
    (void)status;
    (void)events;
    struct guard *guard = poll->data;
    struct keeper_message message;
    int result = 1;
    while (guard->keeper_poll == poll && (result = keeper_receive(&guard->keeper, &message)) > 0)
        on_message(guard, &message); /* may let go of this keeper, to launch once more */
    if (result < 0 && !guard->keeper_gone)
        keeper_lost(guard);
}

void guard_launch_signal(struct guard *guard, enum keeper_kind kind)
{
    struct error err = ERROR_INIT;
    guard_suspend_over(guard);
    if (kind == KEEPER_KILL && guard->has_keeper)
        cgroup_kill(&guard->keeper.cgroup); /* at once; the keeper sees to the rest and reports the end */
    if (guard->has_keeper && !guard->keeper_gone && keeper_send(&guard->keeper, kind, &err) != ERROR_NONE &&
        kind == KEEPER_KILL)
        keeper_kill_without(&guard->keeper, guard->main_pid, 10000);
}

/* ---- launch ---- */

static void on_poll_closed(uv_handle_t *poll)
{
    free(poll);
}

void guard_launch_unwatch(struct guard *guard)
{
    if (guard->keeper_poll == NULL)
        return;
    uv_close((uv_handle_t *)guard->keeper_poll, on_poll_closed);
    guard->keeper_poll = NULL;
}

static void watch_keeper(struct guard *guard)
{
    guard->keeper_poll = memory_new(sizeof *guard->keeper_poll);
    uv_poll_init(&guard->loop, guard->keeper_poll, guard->keeper.channel_fd);
    guard->keeper_poll->data = guard;
    uv_poll_start(guard->keeper_poll, UV_READABLE, on_keeper);
}

static enum error_code make_pipes(int ret_out[2], int ret_err[2], struct error *err)
{
    if (pipe2(ret_out, O_CLOEXEC) != 0)
        return error_set_errno(err, ERROR_SYSTEM, errno, "a pipe for the server's output");
    if (pipe2(ret_err, O_CLOEXEC) == 0)
        return ERROR_NONE;
    error_set_errno(err, ERROR_SYSTEM, errno, "a pipe for the server's output");
    close(ret_out[0]);
    close(ret_out[1]);
    return ERROR_SYSTEM;
}

static void clear_left(struct guard *guard)
{
    struct list told = {0};
    cgroup_clear_left(&told);
    for (size_t i = 0; i < told.count; i++)
        guard_report_note(guard, RUN_WARN, RUN_NOTE_NOTE, told.items[i]);
    list_fini(&told);
}

enum error_code guard_launch(struct guard *guard, struct error *err)
{
    int pipe_out[2], pipe_err[2];
    enum error_code code = make_pipes(pipe_out, pipe_err, err);
    if (code != ERROR_NONE)
        return code;
    if (!guard->plan.no_cgroup)
        clear_left(guard);
    guard_after_launched(guard);
    struct keeper_plan plan = {.run_name = guard->plan.settings.name,
                               .cookie = guard->plan.cookie,
                               .command = list_vector(&guard->plan.argv),
                               .environment = &guard->plan.environment,
                               .directory = guard->plan.working_directory,
                               .out_fd = pipe_out[1],
                               .err_fd = pipe_err[1],
                               .no_cgroup = guard->plan.no_cgroup};
    code = keeper_spawn(&plan, &guard->keeper, err);
    close(pipe_out[1]);
    close(pipe_err[1]);
    if (code != ERROR_NONE) {
        close(pipe_out[0]);
        close(pipe_err[0]);
        return code;
    }
    guard->has_keeper = true;
    guard->launches++;
    code = guard_server_read_output(guard, pipe_out[0], pipe_err[0], err);
    if (code == ERROR_NONE)
        watch_keeper(guard);
    return code;
}

/* ---- once more, with another spelling ---- */

static void let_go(struct guard *guard)
{
    guard_space_stop(guard); /* its triggers are the old keeper and cgroup */
    guard_launch_unwatch(guard);
    if (guard->output != NULL)
        output_close(guard->output, NULL, NULL);
    guard->output = NULL;
    if (guard->has_keeper && !keeper_fini(&guard->keeper, let_go_ms))
        guard_report_note(guard, RUN_WARN, RUN_NOTE_NOTE, "the cgroup of the first try could not be removed");
    guard->has_keeper = guard->keeper_gone = guard->exit_pending = guard->gone_pending = false;
    guard->main_pid = 0;
    guard->gone_ns = 0;
    guard->unknown_flag[0] = '\0';
}

void guard_launch_again(struct guard *guard)
{
    guard->launch_due = true;
}

void guard_launch_turn(struct guard *guard)
{
    struct error err = ERROR_INIT;
    if (!guard->launch_due)
        return;
    guard->launch_due = false;
    let_go(guard);
    if (guard_launch(guard, &err) == ERROR_NONE)
        return;
    guard_feed(guard, &(struct run_event){.kind = RUN_EVENT_EXEC_FAILED, .text = err.message});
    guard_feed(guard, &(struct run_event){.kind = RUN_EVENT_GONE}); /* nothing was started */
}
