/* Happy path: the plan is made (daemon_plan.c) and kldump-run started for the calling user with it as standard input
 * (sys/launch.h), on libuv's pool since systemd may take a while; our own record is written; its first line of output
 * names the run; that is the answer. The pipe is closed then.
 *
 * An older run of this user is just going, its lock free and its guard not gone yet: the start waits for that, at most
 * GOING_TIMES x GOING_MS, so that a name, or one of runs_per_user, is free as soon as `stop` or `wait` has said so.
 * It cannot be started: the error of launch_start, unless the guard came far enough to say a better one.
 * systemd does not answer in time: the plan is taken back, so that a guard that it starts later refuses; one that was
 * quicker goes on, is taken over once it has called in (daemon_keep_said), and the answer says so.
 * Its line is an error: passed on with its code and message; record and folder are as before.
 * It ends without a line, writes something else: error internal, with its exit status.
 * It cannot be watched: KILL, and the error; record and folder are as before.
 * No line within LINE_MS: KILL (its keeper, if there is one, kills the rest), error internal.
 * The client goes before the answer: the run is started all the same; `list` shows it.
 * The daemon ends: the client is told to look at `list` later; the guard goes on, and may find nobody who reads. A
 * launch under way is waited for, so that the run is in our records. */
#include "base/buffer.h"
#include "base/memory.h"
#include "base/text.h"
#include "json/json.h"
#include "loop/clock.h"
#include "loop/daemon_plan.h"
#include "loop/daemon_private.h"
#include "sys/cgroup_run.h"
#include "sys/launch.h"
#include "sys/process.h"
#include "sys/sibling.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum {
    LINE_MS = 55000,
    EXIT_MS = 2000,
    LINE_MAX_BYTES = 16 * 1024,
    LINE_VALUES = 64,
    CLEAR_MS = 250,
    CLEAR_TIMES = 240,
    GOING_MS = 20,
    GOING_TIMES = 100,
    GOING_STARTS = 8 /* of one user that wait so; the others are answered as things stand */
};

struct daemon_start {
    struct daemon_start *next, **link;
    struct daemon *daemon;
    uv_work_t work;
    uv_pipe_t pipe;
    uv_timer_t timer;
    uv_poll_t poll; /* of pidfd */
    unsigned handles;
    bool waiting;   /* for an older run's guard: nothing is prepared yet */
    bool launching; /* the worker has it: not in our records yet */
    bool polls, exited, refused;
    siginfo_t status;                /* of its exit; si_code 0: not known */
    struct control_request *request; /* NULL once it is answered */
    struct buffer line;
    struct error problem; /* of the launch */
    unsigned waits, clears;

    /* for the worker */
    struct daemon_plan plan;
    struct launch_user user;
    struct launch_request launch;
    struct launch_result result; /* its pidfd is ours, to poll */
    struct list arguments, environment;
    char *program;
    gid_t *groups;
    int output_fds[2];
    char room[4096];
};

static void free_start(struct daemon_start *start)
{
    *start->link = start->next;
    if (start->next != NULL)
        start->next->link = start->link;
    buffer_fini(&start->line);
    daemon_plan_fini(&start->plan);
    list_fini(&start->arguments);
    list_fini(&start->environment);
    free(start->program);
    free(start->groups);
    if (start->result.pidfd >= 0) {
        waitid(P_PIDFD, (id_t)start->result.pidfd, &start->status, WEXITED | WNOHANG); /* one that nobody watched */
        close(start->result.pidfd);
    }
    free(start);
}

static void on_closed(uv_handle_t *handle)
{
    struct daemon_start *start = handle->data;
    if (--start->handles == 0)
        free_start(start);
}

static void close_one(uv_handle_t *handle)
{
    if (!uv_is_closing(handle))
        uv_close(handle, on_closed);
}

/* ---- after the guard ---- */

/* All of them at once, and not for each of many runs that end or begin together: it looks at every run's cgroup. */
static void clear_cgroups(struct daemon *daemon)
{
    uint64_t now_ms = clock_now_ms();
    if (daemon->cleared_ms != 0 && now_ms - daemon->cleared_ms < CLEAR_MS)
        return;
    daemon->cleared_ms = now_ms;
    cgroup_run_clear();
}

/* The keeper has a last look when the guard is gone; then its cgroup is empty, and can be removed. */
static void on_clear(uv_timer_t *timer)
{
    struct daemon_start *start = timer->data;
    const struct launch_result *result = &start->result;
    clear_cgroups(start->daemon);
    if (++start->clears >= CLEAR_TIMES || cgroup_run_inode(result->cgroup) != result->cgroup_inode)
        close_one((uv_handle_t *)timer);
}

/* The answer was given, and the guard has ended. */
static void end(struct daemon_start *start)
{
    bool has_cgroup = start->result.unit[0] == '\0' && start->result.cgroup[0] != '\0';
    if (start->refused && !start->daemon->ending)
        daemon_keep_refused(start->daemon, start->plan.name, start->result.pid, start->plan.previous);
    start->refused = false;
    if (start->polls)
        close_one((uv_handle_t *)&start->poll);
    start->polls = false;
    if (has_cgroup && !start->daemon->ending && !uv_is_closing((uv_handle_t *)&start->timer))
        uv_timer_start(&start->timer, on_clear, 0, CLEAR_MS);
    else
        close_one((uv_handle_t *)&start->timer);
}

/* The answer was given: only the end of the process is waited for. */
static void stop_listening(struct daemon_start *start)
{
    close_one((uv_handle_t *)&start->pipe);
    uv_timer_stop(&start->timer);
    if (start->exited)
        end(start);
}

static void fail(struct daemon_start *start, const struct error *err)
{
    struct control_request *request = start->request;
    start->request = NULL;
    if (request != NULL)
        control_fail(request, err);
    stop_listening(start);
}

/* Nothing of it lives, nothing of it shall stay. */
static void refuse(struct daemon_start *start, const struct error *err)
{
    daemon_plan_undo(start->daemon, &start->plan);
    start->refused = true;
    fail(start, err);
}

/* ---- what the guard says ---- */

static void take_line(struct daemon_start *start, size_t length)
{
    struct error err = ERROR_INIT;
    struct json *json = NULL;
    const char *name = NULL, *error = NULL, *message = NULL;
    enum error_code code = json_parse(start->line.data, length,
                                      (struct json_limits){LINE_MAX_BYTES, JSON_DEPTH, LINE_VALUES}, &json, &err);
    if (code == ERROR_NONE && json_get_string(json, "run", &name, NULL) == ERROR_NONE &&
        strcmp(name, start->plan.name) == 0) {
        struct control_request *request = start->request;
        struct json *result = json_object();
        json_set_string(result, "run", name);
        start->request = NULL;
        control_reply(request, result);
        daemon_tell(start->daemon);
        stop_listening(start);
    } else if (code == ERROR_NONE && json_get_string(json, "error", &error, NULL) == ERROR_NONE &&
               json_get_string(json, "message", &message, NULL) == ERROR_NONE) {
        error_set(&err, error_from_name(error), "%s", message);
        refuse(start, &err);
    } else {
        char shown[120];
        error_set(&err, ERROR_INTERNAL, "kldump-run said something that is no answer: %s",
                  text_clean(start->line.data, length, shown, sizeof shown));
        fail(start, &err);
    }
    json_free(json);
}

static void fail_silent(struct daemon_start *start)
{
    struct error err = ERROR_INIT;
    const siginfo_t *status = &start->status;
    if (start->problem.code != ERROR_NONE)
        err = start->problem;
    else if (!start->exited)
        error_set(&err, ERROR_INTERNAL, "kldump-run closed its output without a word and still runs");
    else if (status->si_code == CLD_EXITED)
        error_set(&err, ERROR_INTERNAL, "kldump-run ended with status %d without a word", status->si_status);
    else if (status->si_code != 0)
        error_set(&err, ERROR_INTERNAL, "kldump-run was ended by signal %d without a word", status->si_status);
    else
        error_set(&err, ERROR_INTERNAL, "kldump-run ended without a word");
    if (start->problem.code == ERROR_TIMEOUT && daemon_runs_is_live(start->daemon, start->plan.name)) {
        struct error told = ERROR_INIT;
        error_set(&told, err.code, "%s; its guard runs all the same: kldumpctl stop %s", err.message, start->plan.name);
        fail(start, &told);
    } else if (start->exited) {
        refuse(start, &err);
    } else {
        fail(start, &err);
    }
}

static void on_timer(uv_timer_t *timer)
{
    struct daemon_start *start = timer->data;
    struct error err = ERROR_INIT;
    if (start->request == NULL)
        return;
    if (start->exited || uv_is_closing((uv_handle_t *)&start->pipe)) {
        fail_silent(start);
        return;
    }
    process_signal_open(start->result.pidfd, SIGKILL);
    error_set(&err, ERROR_INTERNAL, "kldump-run did not get as far as starting the server within %d s; it was killed",
              LINE_MS / 1000);
    fail(start, &err);
}

static void on_alloc(uv_handle_t *handle, size_t suggested, uv_buf_t *ret_buffer)
{
    (void)suggested;
    struct daemon_start *start = handle->data;
    *ret_buffer = uv_buf_init(start->room, sizeof start->room);
}

static void on_read(uv_stream_t *stream, ssize_t count, const uv_buf_t *bytes)
{
    struct daemon_start *start = stream->data;
    if (count == 0 || start->request == NULL)
        return;
    if (count < 0) { /* its exit, which says more, is near */
        close_one((uv_handle_t *)stream);
        if (start->exited)
            fail_silent(start);
        else
            uv_timer_start(&start->timer, on_timer, EXIT_MS, 0);
        return;
    }
    buffer_append(&start->line, bytes->base, (size_t)count);
    const char *line_end = memchr(start->line.data, '\n', start->line.length);
    if (line_end != NULL)
        take_line(start, (size_t)(line_end - start->line.data));
    else if (start->line.length > LINE_MAX_BYTES)
        take_line(start, start->line.length);
}

static void on_exited(struct daemon_start *start)
{
    start->exited = true;
    daemon_tell(start->daemon);
    if (start->request == NULL)
        end(start);
    else if (uv_is_closing((uv_handle_t *)&start->pipe))
        fail_silent(start);
    else /* what it wrote last is still in the pipe */
        uv_timer_start(&start->timer, on_timer, EXIT_MS, 0);
}

/* The pidfd of a guard that we spawned, or systemd. */
static void on_pidfd(uv_poll_t *poll, int failure, int events)
{
    (void)failure;
    (void)events;
    struct daemon_start *start = poll->data;
    uv_poll_stop(poll);
    if (waitid(P_PIDFD, (id_t)start->result.pidfd, &start->status, WEXITED | WNOHANG) != 0)
        start->status.si_code = 0; /* no child of ours */
    on_exited(start);
}

/* ---- launching ---- */

/* Nothing of the user's: that is in the plan, for the server alone. Nothing of the daemon's own that a run should not
 * see either: no NOTIFY_SOCKET, no LISTEN_FDS. */
static void make_environment(const struct daemon *daemon, struct list *ret_environment)
{
    static const char *const kept[] = {"PATH", "LANG", "HOME", "XDG_RUNTIME_DIR"};
    enum { FOR_ALL = 2 }; /* the others are of the user, and the daemon's own user is the only one, unless it is root */
    for (size_t i = 0; i < (daemon->serves_all ? (size_t)FOR_ALL : sizeof kept / sizeof kept[0]); i++)
        if (getenv(kept[i]) != NULL)
            list_environment_set(ret_environment, kept[i], getenv(kept[i]));
    list_environment_set(ret_environment, "KLDUMP_RUNTIME_DIR", daemon->runtime);
    if (daemon->rules_path != NULL)
        list_environment_set(ret_environment, "KLDUMP_RULES", daemon->rules_path);
}

static void launch(uv_work_t *work)
{
    struct daemon_start *start = work->data;
    struct launch_result result;
    if (launch_start(&start->launch, &result, &start->problem) == ERROR_NONE)
        start->result = result;
}

/* False, and why in `problem`. */
static bool watch(struct daemon_start *start)
{
    int failure = uv_poll_init(&start->daemon->loop, &start->poll, start->result.pidfd);
    if (failure != 0) {
        error_set_errno(&start->problem, ERROR_SYSTEM, -failure, "kldump-run cannot be watched, and was killed");
        return false;
    }
    start->poll.data = start;
    start->handles++;
    uv_poll_start(&start->poll, UV_READABLE, on_pidfd);
    return true;
}

static void launched(uv_work_t *work, int status)
{
    struct daemon_start *start = work->data;
    (void)status;
    start->launching = false;
    close(start->output_fds[1]);
    if (start->problem.code != ERROR_NONE) /* a unit that systemd starts after all has nothing to run */
        (void)!ftruncate(start->plan.fd, 0);
    close(start->plan.fd);
    start->plan.fd = -1;
    bool is_there = start->result.pidfd >= 0;
    start->polls = is_there && watch(start);
    if (start->polls)
        daemon_keep_started(start->daemon, start->plan.name, start->user.uid, &start->result);
    else if (is_there)
        process_signal_open(start->result.pidfd, SIGKILL);
    start->exited = !start->polls;
    if (start->request == NULL) { /* the daemon is ending */
        stop_listening(start);
        if (start->polls)
            end(start);
        return;
    }
    if (is_there && !start->polls) /* what it may have said counts no more */
        close_one((uv_handle_t *)&start->pipe);
    else
        uv_read_start((uv_stream_t *)&start->pipe, on_alloc, on_read);
    uv_timer_start(&start->timer, on_timer, start->exited ? EXIT_MS : LINE_MS, 0);
}

static enum error_code prepare_user(struct daemon_start *start, struct error *err)
{
    const struct control_request *request = start->request;
    struct launch_user *user = &start->user;
    bool all = start->daemon->serves_all;
    user->gid = all ? request->gid : getegid();
    user->group_count = all ? request->group_count : 0;
    start->groups = memory_new((user->group_count + 1) * sizeof *start->groups);
    if (user->group_count > 0)
        memcpy(start->groups, request->groups, user->group_count * sizeof *start->groups);
    user->groups = start->groups;
    enum error_code code = launch_read_limits(request->pid, request->uid, user->limit, err);
    if (code != ERROR_NONE && !all) /* root asks our own daemon: whose limits we may not see */
        code = launch_read_limits(getpid(), geteuid(), user->limit, err);
    return code;
}

/* Live runs of this user, and those that are on their way; not a guard that has refused and is about to end. */
static size_t count_runs(const struct daemon_start *own)
{
    size_t count = daemon_keep_count(own->daemon, own->user.uid);
    for (const struct daemon_start *start = own->daemon->starts; start != NULL; start = start->next)
        if (start != own && start->user.uid == own->user.uid) {
            count += start->launching;
            count -= count > 0 && start->refused && daemon_keep_is_live(start->daemon, start->plan.name);
        }
    return count;
}

static enum error_code prepare(struct daemon_start *start, struct error *err)
{
    struct daemon *daemon = start->daemon;
    start->program = sibling_path("kldump-run");
    if (start->program == NULL)
        return error_set(err, ERROR_INTERNAL, "kldump-run is neither beside kldumpd nor installed in %s",
                         KLDUMP_LIBEXECDIR);
    enum error_code code = prepare_user(start, err);
    if (code == ERROR_NONE)
        code = daemon_rules_allow_start(daemon, start->user.uid, count_runs(start), err);
    if (code == ERROR_NONE && pipe2(start->output_fds, O_CLOEXEC) != 0)
        code = error_set_errno(err, ERROR_SYSTEM, errno, "a pipe for the start of a run");
    if (code != ERROR_NONE)
        return code;
    code = daemon_plan_make(daemon, start->request, start->user.uid, start->user.gid, &start->plan, err);
    if (code != ERROR_NONE) {
        close(start->output_fds[0]);
        close(start->output_fds[1]);
        return code;
    }
    list_add(&start->arguments, start->program);
    list_add(&start->arguments, "--plan");
    make_environment(daemon, &start->environment);
    start->launch = (struct launch_request){.way = launch_way(),
                                            .name = start->plan.name,
                                            .user = &start->user,
                                            .program = start->program,
                                            .arguments = list_vector(&start->arguments),
                                            .environment = list_vector(&start->environment),
                                            .input_fd = start->plan.fd,
                                            .output_fd = start->output_fds[1]};
    return ERROR_NONE;
}

/* ---- the request ---- */

bool daemon_start_is_under_way(const struct daemon *daemon, const char *name)
{
    for (const struct daemon_start *start = daemon->starts; start != NULL; start = start->next)
        if (start->request != NULL && strcmp(start->plan.name, name) == 0)
            return true;
    return false;
}

static bool must_wait(const struct daemon_start *own)
{
    size_t waiting = 0;
    for (const struct daemon_start *start = own->daemon->starts; start != NULL; start = start->next)
        waiting += start != own && start->waiting && start->user.uid == own->user.uid;
    return waiting < GOING_STARTS && own->waits < GOING_TIMES && daemon_keep_is_going(own->daemon, own->user.uid);
}

static void on_attempt(uv_timer_t *timer);

static void attempt(struct daemon_start *start)
{
    struct daemon *daemon = start->daemon;
    struct error err = ERROR_INIT;
    start->waiting = must_wait(start);
    if (start->waiting) {
        start->waits++;
        uv_timer_start(&start->timer, on_attempt, GOING_MS, 0);
        return;
    }
    clear_cgroups(daemon); /* what runs left whose end another kldumpd saw, or nobody */
    if (prepare(start, &err) != ERROR_NONE) {
        control_fail(start->request, &err);
        start->request = NULL;
        close_one((uv_handle_t *)&start->timer);
        return;
    }
    uv_pipe_init(&daemon->loop, &start->pipe, 0);
    start->pipe.data = start->work.data = start;
    start->handles++;
    uv_pipe_open(&start->pipe, start->output_fds[0]);
    start->launching = true;
    uv_queue_work(&daemon->loop, &start->work, launch, launched);
}

static void on_attempt(uv_timer_t *timer)
{
    attempt(timer->data);
}

void daemon_start_request(struct control_request *request, void *user)
{
    struct daemon *daemon = user;
    struct daemon_start *start = memory_new(sizeof *start);
    start->daemon = daemon;
    start->request = request;
    start->user.uid = daemon->serves_all ? request->uid : geteuid();
    start->plan.fd = start->result.pidfd = -1;
    start->next = daemon->starts;
    start->link = &daemon->starts;
    if (start->next != NULL)
        start->next->link = &start->next;
    daemon->starts = start;
    buffer_init(&start->line);
    uv_timer_init(&daemon->loop, &start->timer);
    start->timer.data = start;
    start->handles = 1;
    attempt(start);
}

void daemon_start_end(struct daemon *daemon)
{
    for (struct daemon_start *start = daemon->starts, *next; start != NULL; start = next) {
        next = start->next;
        struct error err = ERROR_INIT;
        error_set(&err, ERROR_INTERRUPTED, "kldumpd is ending; the run is still being started: kldumpctl list");
        struct control_request *request = start->request;
        start->request = NULL;
        if (request != NULL)
            control_fail(request, &err);
        if (start->waiting || uv_is_closing((uv_handle_t *)&start->timer)) { /* nothing was begun, or all is over */
            close_one((uv_handle_t *)&start->timer);
            continue;
        }
        if (start->plan.fd >= 0) /* the worker has it; `launched` ends the rest */
            continue;
        close_one((uv_handle_t *)&start->pipe);
        start->exited = true; /* whoever adopts our children reaps them */
        end(start);
    }
}
