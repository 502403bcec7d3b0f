/* kldump-keeper CHANNEL_FD GUARD_PIDFD CGROUP_DIR_FD|-1 COOKIE OUT_FD ERR_FD -- CMD ARGS...
 *
 * Started by kldump-run, never by a person. What it does and says: sys/keeper.h. Small and on the C library alone,
 * because it is what remains when everything else has failed. One thread: the death signal of CMD is bound to it. */
#include "sys/cgroup_control.h"
#include "sys/keeper.h"
#include "sys/keeper_child.h"
#include "sys/kill_tree.h"
#include "sys/stop_tree.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { ARGUMENT_CHANNEL = 1, ARGUMENT_GUARD, ARGUMENT_CGROUP, ARGUMENT_COOKIE, ARGUMENT_OUT, ARGUMENT_ERR };
enum { ARGUMENT_DASHES = 7, ARGUMENT_COMMAND = 8 };
enum { POLL_CHANNEL, POLL_GUARD, POLL_SIGNAL, POLL_EXEC, POLL_EVENTS, POLL_COUNT };
enum { LOOK_AGAIN_MS = 200, STUCK_LOOK_MS = 1000, FROZEN_LOOK_MS = 1000, ZOMBIE_LOOK_MS = 20 };
/* After the first blow (cgroup, process group) the dying get the processor for a moment: a sweep reads all of /proc. It
 * finds what has left both, so it comes sooner where there is no cgroup. */
enum { SWEEP_BESIDE_MS = 2, SWEEP_ALONE_MS = 1 };
static const int64_t ns_per_ms = 1000000, ns_per_s = 1000000000, silent_look_ns = 200000000;
enum freeze { FREEZE_NO, FREEZE_BEGUN, FREEZE_FAILED, FREEZE_DONE };

struct keeper_state {
    int channel, guard, cgroup, signals, exec_pipe, kill_fd, events; /* -1: none (any more) */
    pid_t main_pid;
    bool main_alive, guard_gone, main_ended, failed;
    bool killing, gone, gone_told, stuck_told;
    enum keeper_reason reason;
    int64_t kill_start_ns, last_ns, silence_ns, rehearsed_ns;
    int cgroup_error;
    int64_t next_look_ns, empty_ns; /* when nothing live was found for the first time */
    int passes, empty_passes, pause_ms;
    struct kill_tree tree;
    enum freeze freeze; /* DONE: everything stands still, and the guard may be silent */
    int64_t freeze_start_ns;
    int still_passes, freeze_pause_ms;
    struct stop_tree stop;
    char cgroup_name[256]; /* the last part of its path; "": none */
};

static int64_t now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * ns_per_s + now.tv_nsec;
}

static void tell(const struct keeper_state *state, struct keeper_message message)
{
    message.reason = state->killing ? state->reason : KEEPER_REASON_NONE;
    if (state->channel >= 0)
        send(state->channel, &message, sizeof message, MSG_DONTWAIT | MSG_NOSIGNAL);
}

static void start_child(struct keeper_state *state, int out, int err, char **command)
{
    pid_t child = keeper_child_start(state->cgroup, out, err, command, &state->exec_pipe);
    if (child < 0) {
        tell(state, (struct keeper_message){.kind = KEEPER_EXEC_FAILED, .value = errno, .text = "fork"});
        state->failed = state->main_ended = true;
        return;
    }
    state->main_pid = state->tree.target.main = child;
    state->main_alive = true;
}

/* ---- what has happened ---- */

static void read_exec_pipe(struct keeper_state *state)
{
    struct keeper_child_failure failure;
    ssize_t got = read(state->exec_pipe, &failure, sizeof failure);
    if (got < 0 && errno == EINTR)
        return;
    close(state->exec_pipe);
    state->exec_pipe = -1;
    if (got == sizeof failure) {
        struct keeper_message message = {.kind = KEEPER_EXEC_FAILED, .value = failure.system};
        memcpy(message.text, failure.what, sizeof failure.what);
        state->failed = true;
        tell(state, message);
        return;
    }
    tell(state, (struct keeper_message){.kind = KEEPER_STARTED,
                                        .pid = state->main_pid,
                                        .kill_ns = state->rehearsed_ns,
                                        .cgroup_error = state->cgroup_error});
}

/* False: children remain. */
static bool reap(struct keeper_state *state)
{
    for (;;) {
        int status;
        pid_t pid = waitpid(-1, &status, WNOHANG);
        if (pid < 0 && errno == EINTR)
            continue;
        if (pid <= 0)
            return pid < 0;
        if (pid != state->main_pid)
            continue;
        state->main_alive = false;
        state->main_ended = true;
        state->tree.target.main = 0;
        if (!state->failed)
            tell(state, (struct keeper_message){.kind = KEEPER_EXITED, .pid = pid, .value = status});
    }
}

static void begin_kill(struct keeper_state *state, enum keeper_reason reason)
{
    /* The kernel's own kill first: nothing else that happens here may come before it. It also ends frozen processes;
     * the thaw is for a child that is on its way into the cgroup. */
    if (state->kill_fd >= 0) {
        cgroup_control_kill(state->kill_fd);
        cgroup_control_thaw(state->cgroup);
    }
    if (state->main_alive)
        kill(-state->main_pid, SIGKILL); /* most of a run, and /proc need not be read for it */
    if (!state->killing) {
        state->killing = true;
        state->reason = reason;
        state->kill_start_ns = now_ns();
    }
    state->freeze = FREEZE_NO; /* whom we stopped dies stopped */
    state->gone_told = state->gone = false;
    state->passes = state->empty_passes = state->pause_ms = 0;
    state->next_look_ns = now_ns() + (state->kill_fd >= 0 ? SWEEP_BESIDE_MS : SWEEP_ALONE_MS) * ns_per_ms;
}

static void signal_group(const struct keeper_state *state)
{
    /* The number stays taken while the leader is not reaped. */
    if (state->main_alive) {
        kill(-state->main_pid, SIGTERM);
        kill(-state->main_pid, SIGCONT);
    }
}

/* ---- standing still ---- */

static void thaw(struct keeper_state *state)
{
    if (state->freeze == FREEZE_NO)
        return;
    state->freeze = FREEZE_NO;
    state->silence_ns = 0;
    if (state->cgroup >= 0)
        cgroup_control_thaw(state->cgroup);
    stop_tree_continue(&state->stop);
}

static void begin_freeze(struct keeper_state *state)
{
    if (state->killing || state->freeze != FREEZE_NO)
        return;
    if (state->cgroup >= 0)
        cgroup_control_freeze(state->cgroup);
    state->freeze = FREEZE_BEGUN;
    state->freeze_start_ns = now_ns();
    state->still_passes = state->freeze_pause_ms = 0;
}

/* Whoever lets a process of the run run again while the guard is stopped has it stopped again. */
static void look_frozen(struct keeper_state *state)
{
    const char *frozen = state->cgroup_name[0] ? state->cgroup_name : NULL;
    size_t in_kernel, running = stop_tree_pass(&state->stop, &state->tree, frozen, &in_kernel);
    if (state->events >= 0 && cgroup_control_frozen(state->events) != 1) {
        cgroup_control_freeze(state->cgroup);
        running++;
        in_kernel++; /* nothing else keeps one from freezing */
    }
    state->still_passes = running == 0 ? state->still_passes + 1 : 0;
    bool late = now_ns() - state->freeze_start_ns > KEEPER_FREEZE_MS * ns_per_ms;
    if (state->freeze == FREEZE_BEGUN && (state->still_passes >= 2 || late)) {
        state->freeze = running == in_kernel ? FREEZE_DONE : FREEZE_FAILED;
        tell(state, (struct keeper_message){.kind = KEEPER_FROZEN, .value = (int32_t)(running - in_kernel)});
    }
    if (state->freeze != FREEZE_BEGUN)
        state->freeze_pause_ms = FROZEN_LOOK_MS;
    else if (state->still_passes > 0)
        state->freeze_pause_ms = 0;
    else
        state->freeze_pause_ms = state->freeze_pause_ms < 20 ? state->freeze_pause_ms + 1 : 20;
}

static void lose_guard(struct keeper_state *state)
{
    state->guard_gone = true;
    begin_kill(state, KEEPER_REASON_GUARD_GONE);
}

static void read_channel(struct keeper_state *state)
{
    struct keeper_message message;
    ssize_t got;
    while (state->channel >= 0 && (got = recv(state->channel, &message, sizeof message, MSG_DONTWAIT)) != -1) {
        if (got == 0) {
            close(state->channel);
            state->channel = -1;
            lose_guard(state);
            return;
        }
        state->silence_ns = 0;
        if (got != sizeof message)
            continue;
        if (message.kind != KEEPER_HEARTBEAT && message.kind != KEEPER_FREEZE && message.kind != KEEPER_KILL)
            thaw(state);
        if (message.kind == KEEPER_FREEZE)
            begin_freeze(state);
        else if (message.kind == KEEPER_KILL)
            begin_kill(state, KEEPER_REASON_ASKED);
        else if (message.kind == KEEPER_TERM_GROUP)
            signal_group(state);
        else if (message.kind == KEEPER_TERM && state->main_alive) {
            kill(state->main_pid, SIGTERM);
            kill(state->main_pid, SIGCONT);
        } else if ((message.kind == KEEPER_USR1 || message.kind == KEEPER_USR2) && state->main_alive) {
            kill(state->main_pid, message.kind == KEEPER_USR1 ? SIGUSR1 : SIGUSR2);
        }
    }
    if (state->channel >= 0 && errno != EAGAIN && errno != EINTR) {
        close(state->channel);
        state->channel = -1;
        lose_guard(state);
    }
}

static void report_survivors(struct keeper_state *state)
{
    state->stuck_told = true;
    for (size_t i = 0; i < state->tree.members.count && i < KEEPER_UNKILLABLE_REPORTS; i++) {
        const struct process *process = &state->tree.members.items[i];
        struct keeper_message message = {.kind = KEEPER_UNKILLABLE, .pid = process->pid, .state = process->state};
        memcpy(message.comm, process->comm, sizeof message.comm - 1);
        process_read_wchan(process->pid, message.text);
        tell(state, message);
    }
}

static bool is_over(const struct keeper_state *state)
{
    if (state->empty_passes < 2)
        return false;
    bool waited = now_ns() - state->empty_ns > KEEPER_ZOMBIES_MS * ns_per_ms;
    return state->tree.zombies == 0 || waited;
}

/* When to look again. Each look reads all of /proc: on a small machine too many of them take the processor from those
 * that are dying. The end of the last child, or of the cgroup, is noticed without. */
static int64_t next_pause_ms(struct keeper_state *state, size_t found, bool stuck)
{
    if (found == 0)
        return state->empty_passes < 2 ? 0 : ZOMBIE_LOOK_MS;
    if (!state->killing)
        return LOOK_AGAIN_MS;
    if (stuck)
        return STUCK_LOOK_MS;
    if (state->passes++ > 0 && state->tree.fresh > 0)
        return 0; /* it forks: that is a race */
    state->pause_ms = state->pause_ms < 1 ? 1 : state->pause_ms < 16 ? state->pause_ms * 2 : 20;
    return state->pause_ms;
}

/* One look at the run while it is being killed, or after its main process has ended. */
static void look(struct keeper_state *state)
{
    bool childless = reap(state);
    bool populated = state->events >= 0 && cgroup_control_populated(state->events) == 1;
    size_t found = populated;
    if (state->killing) {
        if (populated)
            cgroup_control_kill(state->kill_fd);
        found += kill_tree_pass(&state->tree);
    } else {
        found += childless ? kill_tree_collect(&state->tree) : 1;
    }
    int64_t now = now_ns();
    if (found > 0)
        state->empty_passes = 0;
    else if (state->empty_passes++ == 0)
        state->empty_ns = now;
    state->gone = is_over(state);
    bool stuck = state->killing && now - state->kill_start_ns > KEEPER_UNKILLABLE_MS * ns_per_ms;
    if (found > 0 && stuck && !state->stuck_told)
        report_survivors(state);
    state->next_look_ns = now + next_pause_ms(state, found, stuck) * ns_per_ms;
    if (state->gone && !state->gone_told) {
        state->gone_told = true;
        tell(state, (struct keeper_message){.kind = KEEPER_GONE,
                                            .value = (int32_t)state->tree.zombies,
                                            .kill_ns = state->killing ? now - state->kill_start_ns : 0});
    }
}

/* A machine that stood still for a while must not look like a guard that was silent: one wait counts for one second at
 * most. */
static void count_silence(struct keeper_state *state)
{
    int64_t now = now_ns();
    state->silence_ns += now - state->last_ns < ns_per_s ? now - state->last_ns : ns_per_s;
    state->last_ns = now;
}

/* Nobody guards any more: the guard says nothing, and is stopped or has been silent for longer than starving explains.
 */
static bool is_abandoned(const struct keeper_state *state)
{
    struct process guard;
    if (state->killing || state->freeze == FREEZE_DONE || state->silence_ns < KEEPER_SILENCE_MS * ns_per_ms)
        return false;
    return state->silence_ns >= KEEPER_STARVED_MS * ns_per_ms || !process_read(state->tree.target.guard, &guard) ||
           strchr("tTZX", guard.state) != NULL;
}

/* Something has happened to the run and its end has not come yet. */
static bool looks(const struct keeper_state *state)
{
    return (state->killing || state->main_ended) && !state->gone;
}

static bool polls_events(const struct keeper_state *state)
{
    return (state->killing && !state->gone) || state->freeze != FREEZE_NO;
}

static void wait_for_something(struct keeper_state *state)
{
    int64_t timeout_ns = ns_per_s;
    if (!state->killing && state->freeze != FREEZE_DONE) {
        int64_t left_ns = KEEPER_SILENCE_MS * ns_per_ms - state->silence_ns;
        left_ns = left_ns > 0 ? left_ns : silent_look_ns;
        timeout_ns = left_ns < timeout_ns ? left_ns : timeout_ns;
    }
    if (looks(state) && state->next_look_ns - now_ns() < timeout_ns)
        timeout_ns = state->next_look_ns > now_ns() ? state->next_look_ns - now_ns() : 0;
    if (state->freeze != FREEZE_NO && state->freeze_pause_ms * ns_per_ms < timeout_ns)
        timeout_ns = state->freeze_pause_ms * ns_per_ms;
    timeout_ns = timeout_ns > 0 ? timeout_ns : 0;
    struct pollfd fds[POLL_COUNT] = {
        [POLL_CHANNEL] = {.fd = state->channel, .events = POLLIN},
        [POLL_GUARD] = {.fd = state->guard_gone ? -1 : state->guard, .events = POLLIN},
        [POLL_SIGNAL] = {.fd = state->signals, .events = POLLIN},
        [POLL_EXEC] = {.fd = state->exec_pipe, .events = POLLIN},
        [POLL_EVENTS] = {.fd = polls_events(state) ? state->events : -1, .events = POLLPRI},
    };
    int ready = ppoll(fds, POLL_COUNT, &(struct timespec){timeout_ns / ns_per_s, timeout_ns % ns_per_s}, NULL);
    count_silence(state);
    if (fds[POLL_CHANNEL].revents || ready <= 0)
        read_channel(state); /* also after a time-out: what came meanwhile counts */
    if (fds[POLL_EXEC].revents)
        read_exec_pipe(state);
    if (fds[POLL_SIGNAL].revents) {
        struct signalfd_siginfo info[8];
        while (read(state->signals, info, sizeof info) == sizeof info)
            ;
        if (state->exec_pipe >= 0 && !fds[POLL_EXEC].revents) {
            struct pollfd exec = {.fd = state->exec_pipe, .events = POLLIN};
            if (poll(&exec, 1, 0) > 0)
                read_exec_pipe(state); /* its news come before the end of the child */
        }
        if (reap(state))
            state->next_look_ns = 0;
    }
    if (fds[POLL_EVENTS].revents && cgroup_control_populated(state->events) == 0)
        state->next_look_ns = 0;
    if (fds[POLL_GUARD].revents && !state->guard_gone)
        lose_guard(state);
}

static void run(struct keeper_state *state)
{
    state->last_ns = now_ns();
    while (!(state->gone && state->guard_gone)) {
        if (looks(state) && now_ns() >= state->next_look_ns)
            look(state);
        if (state->freeze != FREEZE_NO)
            look_frozen(state);
        if (state->gone && state->guard_gone)
            break;
        wait_for_something(state);
        if (is_abandoned(state))
            begin_kill(state, KEEPER_REASON_SILENCE);
    }
    if (state->cgroup >= 0)
        cgroup_control_remove(state->cgroup); /* the guard does it too; who comes second finds it gone */
}

/* ---- start ---- */

enum { REHEARSALS = 5 };

static int by_size(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

/* In the cgroup; false when that cannot be relied on. */
static bool rehearse_cgroup(struct keeper_state *state, int64_t *ret_ns)
{
    state->cgroup_error = cgroup_control_rehearse(state->cgroup, ret_ns);
    return state->cgroup_error == 0;
}

/* Through /proc, as for a process that has left its group: that one lives until the sweep. */
static void rehearse_pass(struct keeper_state *state, int64_t *ret_ns)
{
    pid_t keeper = getpid(), dummy = fork();
    if (dummy == 0) { /* it holds the channel, so it must not outlive us: the guard would wait for its end for ever */
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        while (getppid() == keeper)
            pause();
        _exit(127);
    }
    int64_t start_ns = now_ns();
    kill_tree_pass(&state->tree);
    if (dummy > 0)
        kill(dummy, SIGKILL); /* the pass has done it, unless /proc hides it */
    while (dummy > 0 && waitpid(dummy, NULL, 0) < 0 && errno == EINTR)
        ;
    *ret_ns = now_ns() - start_ns + SWEEP_ALONE_MS * ns_per_ms;
}

/* The last part of the path, which no other cgroup has: it ends in the cookie. */
static void name_cgroup(struct keeper_state *state)
{
    char link[64], path[4096];
    snprintf(link, sizeof link, "/proc/self/fd/%d", state->cgroup);
    ssize_t length = state->cgroup >= 0 ? readlink(link, path, sizeof path - 1) : -1;
    path[length > 0 ? length : 0] = '\0';
    const char *name = strrchr(path, '/');
    if (name && strlen(name) <= sizeof state->cgroup_name)
        memcpy(state->cgroup_name, name + 1, strlen(name));
}

/* The way of killing is tried before it is needed; the median counts, since a busy machine now and then takes long. */
static void rehearse(struct keeper_state *state)
{
    int64_t taken_ns[REHEARSALS];
    bool usable = state->cgroup >= 0;
    for (int i = 0; i < REHEARSALS && usable; i++)
        usable = rehearse_cgroup(state, &taken_ns[i]);
    if (usable) {
        state->kill_fd = cgroup_control_open_kill(state->cgroup);
        state->events = cgroup_control_open_events(state->cgroup);
        usable = state->kill_fd >= 0 && state->events >= 0;
    }
    if (!usable) {
        if (state->cgroup >= 0)
            close(state->cgroup);
        state->cgroup = state->kill_fd = state->events = -1;
        for (int i = 0; i < REHEARSALS; i++)
            rehearse_pass(state, &taken_ns[i]);
    }
    qsort(taken_ns, REHEARSALS, sizeof taken_ns[0], by_size);
    state->rehearsed_ns = taken_ns[REHEARSALS / 2];
}

static bool read_descriptor(const char *text, bool none_allowed, int *ret_fd)
{
    if (none_allowed && strcmp(text, "-1") == 0) {
        *ret_fd = -1;
        return true;
    }
    char *end;
    long value = strtol(text, &end, 10);
    if (*text < '0' || *text > '9' || *end || value <= STDERR_FILENO || value > 65535 ||
        fcntl((int)value, F_SETFD, FD_CLOEXEC) < 0)
        return false;
    *ret_fd = (int)value;
    return true;
}

static int block_signals(void)
{
    sigset_t all, children;
    sigfillset(&all);
    sigprocmask(SIG_SETMASK, &all, NULL); /* orphans of the server send QUIT to their new parent, which is us */
    sigemptyset(&children);
    sigaddset(&children, SIGCHLD);
    signal(SIGCHLD, SIG_DFL); /* ignored, it would take the exit status away */
    return signalfd(-1, &children, SFD_CLOEXEC | SFD_NONBLOCK);
}

int main(int argc, char **argv)
{
    struct keeper_state state = {.exec_pipe = -1, .kill_fd = -1, .events = -1};
    int out = -1, err = -1;
    if (argc <= ARGUMENT_COMMAND || strcmp(argv[ARGUMENT_DASHES], "--") != 0 ||
        !read_descriptor(argv[ARGUMENT_CHANNEL], false, &state.channel) ||
        !read_descriptor(argv[ARGUMENT_GUARD], false, &state.guard) ||
        !read_descriptor(argv[ARGUMENT_CGROUP], true, &state.cgroup) ||
        !read_descriptor(argv[ARGUMENT_OUT], false, &out) || !read_descriptor(argv[ARGUMENT_ERR], false, &err)) {
        fputs("kldump-keeper is started by kldump-run, not by hand; see kldumpctl(1)\n", stderr);
        return 125;
    }
    setsid();
    state.signals = block_signals();
    struct process self;
    if (state.signals < 0 || prctl(PR_SET_CHILD_SUBREAPER, 1) < 0 || !process_read(getpid(), &self))
        return 125;
    struct kill_tree_target target = {
        .ancestor = getpid(), .guard = getppid(), .cookie = argv[ARGUMENT_COOKIE], .since_ticks = self.start_ticks};
    kill_tree_init(&state.tree, &target);
    rehearse(&state);
    name_cgroup(&state);
    start_child(&state, out, err, argv + ARGUMENT_COMMAND);
    close(out); /* whoever reads the server's output must see its end */
    close(err);
    process_hurry(); /* only now: CMD must get the priority that the user has */
    if (chdir("/") < 0) {
        /* Then CMD's folder stays in use; nothing else depends on it. */
    }
    run(&state);
    kill_tree_fini(&state.tree);
    stop_tree_fini(&state.stop);
    return 0;
}
