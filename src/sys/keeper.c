#include "sys/keeper.h"

#include "base/memory.h"
#include "base/text.h"
#include "sys/environment.h"
#include "sys/kill_tree.h"
#include "sys/sibling.h"
#include "sys/process.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

/* The numbers that the child's descriptors get; KEEPER_FD_STATUS does not outlive the exec. */
enum { KEEPER_FD_CHANNEL = 3, KEEPER_FD_GUARD, KEEPER_FD_OUT, KEEPER_FD_ERR, KEEPER_FD_STATUS };
enum { KEEPER_FD_CGROUP = KEEPER_FD_STATUS + 1, KEEPER_FD_COUNT = KEEPER_FD_CGROUP - KEEPER_FD_CHANNEL };
enum { KEEPER_ARGUMENT_CGROUP = 3 };
enum { KEEPER_DYING_MS = 1000 };

/* What the child needs, all made before the fork: after it, in a program with threads, nothing may be allocated. */
struct keeper_child {
    const char *program;
    const char *directory;
    char **arguments;
    char **environment;
    int fds[KEEPER_FD_COUNT]; /* in the order of the numbers above */
};

/* The parent sends the path of the cgroup over the channel when it is made ("": none); the child writes what failed
 * into a pipe, which ends at the exec. */
struct keeper_go {
    char cgroup[4096];
};
struct keeper_failure {
    int system;
    char what[28];
};

static _Noreturn void keeper_child_fail(int status_fd, const char *what, int system)
{
    struct keeper_failure failure = {.system = system};
    strncpy(failure.what, what, sizeof failure.what - 1);
    ssize_t done = write(status_fd, &failure, sizeof failure);
    _exit(done == sizeof failure ? 125 : 124);
}

/* Between fork and exec: async-signal-safe calls alone. */
static _Noreturn void keeper_child_run(struct keeper_child *child)
{
    int high[KEEPER_FD_COUNT];
    int status = child->fds[KEEPER_FD_STATUS - KEEPER_FD_CHANNEL];
    for (int i = 0; i < KEEPER_FD_COUNT; i++) {
        high[i] = fcntl(child->fds[i], F_DUPFD_CLOEXEC, KEEPER_FD_CGROUP + 1);
        if (high[i] < 0)
            keeper_child_fail(status, "copy descriptors", errno);
    }
    int null = open("/dev/null", O_RDWR | O_CLOEXEC);
    for (int i = 0; i < KEEPER_FD_COUNT; i++)
        dup2(high[i], KEEPER_FD_CHANNEL + i);
    status = KEEPER_FD_STATUS;
    if (null < 0)
        keeper_child_fail(status, "open /dev/null", errno);
    for (int i = 0; i <= STDERR_FILENO; i++)
        dup2(null, i);
    /* The guard's locks and sockets go now, not at the exec: making the cgroup may take a while. */
    syscall(SYS_close_range, KEEPER_FD_CGROUP, ~0U, 0);
    fcntl(KEEPER_FD_STATUS, F_SETFD, FD_CLOEXEC);

    struct keeper_go go;
    ssize_t got;
    while ((got = recv(KEEPER_FD_CHANNEL, &go, sizeof go, 0)) < 0 && errno == EINTR)
        ;
    if (got != sizeof go)
        _exit(125); /* the guard is gone */
    if (go.cgroup[0]) {
        int fd = open(go.cgroup, O_RDONLY | O_DIRECTORY);
        if (fd < 0 || (fd != KEEPER_FD_CGROUP && dup2(fd, KEEPER_FD_CGROUP) < 0))
            keeper_child_fail(status, "open the cgroup", errno);
        flock(KEEPER_FD_CGROUP, LOCK_SH); /* as the guard does: it is not left while one of the two lives */
    } else {
        static char none[] = "-1";
        child->arguments[KEEPER_ARGUMENT_CGROUP] = none;
    }
    if (child->directory && chdir(child->directory) < 0)
        keeper_child_fail(status, "enter the folder", errno);
    execve(child->program, child->arguments, child->environment);
    keeper_child_fail(status, "execute", errno);
}

static void keeper_build_arguments(const struct keeper_plan *plan, const char *program, struct list *arguments)
{
    list_add(arguments, program);
    list_add_format(arguments, "%d", KEEPER_FD_CHANNEL);
    list_add_format(arguments, "%d", KEEPER_FD_GUARD);
    list_add_format(arguments, "%d", KEEPER_FD_CGROUP);
    list_add(arguments, plan->cookie);
    list_add_format(arguments, "%d", KEEPER_FD_OUT);
    list_add_format(arguments, "%d", KEEPER_FD_ERR);
    list_add(arguments, "--");
    list_add_all(arguments, plan->command);
}

static void keeper_build_environment(const struct keeper_plan *plan, struct list *environment)
{
    if (plan->environment->items)
        list_add_all(environment, plan->environment->items);
    environment_clean(environment, ENVIRONMENT_OURS);
    list_environment_set(environment, KILL_TREE_COOKIE, plan->cookie);
    /* Python's setproctitle overwrites the environment that /proc shows, and the cookie with it, unless told not to. */
    list_environment_set(environment, "SPT_NOENV", "1");
}

static enum error_code keeper_fork(struct keeper_child *child, pid_t *ret_pid, struct error *err)
{
    /* No handler of the guard may run in the child (libuv's write into a pipe that both share). */
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    pid_t pid = fork();
    if (pid == 0)
        keeper_child_run(child);
    int system = errno;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (pid < 0)
        return error_set_errno(err, ERROR_SYSTEM, system, "cannot fork the keeper");
    *ret_pid = pid;
    return ERROR_NONE;
}

/* Makes the cgroup, lets the child go on, and waits until it has become the keeper. */
static enum error_code keeper_launch(const struct keeper_plan *plan, const char *program, int status_fd,
                                     struct keeper *keeper, struct error *err)
{
    struct keeper_go go = {.cgroup = ""};
    if (plan->no_cgroup)
        cgroup_set_none(&keeper->cgroup, "not wanted");
    else
        cgroup_make(plan->run_name, plan->cookie, keeper->pid, &keeper->cgroup);
    if (keeper->cgroup.path)
        text_copy(go.cgroup, sizeof go.cgroup, keeper->cgroup.path);
    struct keeper_failure failure;
    ssize_t got = -1;
    if (send(keeper->channel_fd, &go, sizeof go, MSG_NOSIGNAL) == sizeof go)
        while ((got = read(status_fd, &failure, sizeof failure)) < 0 && errno == EINTR)
            ;
    if (got == 0)
        return ERROR_NONE;
    if (got != sizeof failure)
        return error_set(err, ERROR_SYSTEM, "the keeper ended before it began");
    failure.what[sizeof failure.what - 1] = '\0';
    bool missing = failure.system == ENOENT || failure.system == ENOTDIR;
    bool folder = strcmp(failure.what, "enter the folder") == 0;
    return error_set_errno(err, missing ? ERROR_NOT_FOUND : ERROR_SYSTEM, failure.system,
                           "cannot start the keeper %s: %s%s%s", program, failure.what, folder ? " " : "",
                           folder ? plan->directory : "");
}

static void keeper_close(int *fd)
{
    if (*fd >= 0)
        close(*fd);
    *fd = -1;
}

static enum error_code keeper_start(const struct keeper_plan *plan, const char *program, struct keeper *keeper,
                                    struct error *err)
{
    int channel[2] = {-1, -1}, status[2] = {-1, -1};
    int guard = process_open(getpid());
    struct list arguments = {0}, environment = {0};
    enum error_code code = ERROR_NONE;
    if (guard < 0 || socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, channel) < 0 || pipe2(status, O_CLOEXEC) < 0)
        code = error_set_errno(err, ERROR_SYSTEM, errno, "cannot make the keeper's channel");
    if (code == ERROR_NONE) {
        keeper_build_arguments(plan, program, &arguments);
        keeper_build_environment(plan, &environment);
        struct keeper_child child = {
            .program = program,
            .directory = plan->directory,
            .arguments = list_vector(&arguments),
            .environment = list_vector(&environment),
            .fds = {channel[1], guard, plan->out_fd, plan->err_fd, status[1]},
        };
        code = keeper_fork(&child, &keeper->pid, err);
    }
    keeper_close(&channel[1]);
    keeper_close(&guard);
    keeper_close(&status[1]);
    keeper->channel_fd = channel[0];
    if (code == ERROR_NONE) {
        struct process self;
        keeper->pid_fd = process_open(keeper->pid);
        keeper->since_ticks = process_read(keeper->pid, &self) ? self.start_ticks : 0;
        code = keeper_launch(plan, program, status[0], keeper, err);
    }
    keeper_close(&status[0]);
    list_fini(&arguments);
    list_fini(&environment);
    return code;
}

enum error_code keeper_spawn(const struct keeper_plan *plan, struct keeper *ret_keeper, struct error *err)
{
    struct keeper keeper = {.pid = -1, .pid_fd = -1, .channel_fd = -1};
    prctl(PR_SET_CHILD_SUBREAPER, 1); /* for keeper_kill_without: when the keeper dies we adopt its orphans */
    cgroup_set_none(&keeper.cgroup, "not made");
    text_copy(keeper.cookie, sizeof keeper.cookie, plan->cookie);
    char *program = plan->program ? memory_copy(plan->program) : sibling_path("kldump-keeper");
    if (!program)
        return error_set(err, ERROR_NOT_FOUND,
                         "kldump-keeper is neither beside this program nor in " KLDUMP_LIBEXECDIR
                         "; install kldump again");
    enum error_code code = keeper_start(plan, program, &keeper, err);
    free(program);
    if (code != ERROR_NONE) {
        keeper_fini(&keeper, 1000);
        return code;
    }
    *ret_keeper = keeper;
    return ERROR_NONE;
}

enum error_code keeper_send(const struct keeper *keeper, enum keeper_kind kind, struct error *err)
{
    struct keeper_message message = {.kind = kind};
    bool sent = send(keeper->channel_fd, &message, sizeof message, MSG_DONTWAIT | MSG_NOSIGNAL) == sizeof message;
    int system = errno;
    if (kind == KEEPER_KILL && keeper->pid_fd >= 0) /* a stopped one would not notice */
        process_signal_open(keeper->pid_fd, SIGCONT);
    if (sent)
        return ERROR_NONE;
    if (system == EAGAIN || system == EWOULDBLOCK || system == ENOBUFS)
        return error_set(err, ERROR_BUSY, "the keeper (pid %d) does not read its channel", (int)keeper->pid);
    return error_set_errno(err, ERROR_STATE, system, "the keeper (pid %d) is gone", (int)keeper->pid);
}

int keeper_receive(struct keeper *keeper, struct keeper_message *ret_message)
{
    struct keeper_message message;
    for (;;) {
        ssize_t got = recv(keeper->channel_fd, &message, sizeof message, MSG_DONTWAIT);
        if (got == sizeof message)
            break;
        if (got > 0 || (got < 0 && errno == EINTR))
            continue;
        return got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK) ? 0 : -1;
    }
    message.comm[sizeof message.comm - 1] = '\0';
    message.text[sizeof message.text - 1] = '\0';
    if (message.kind == KEEPER_STARTED && message.cgroup_error) {
        cgroup_fini(&keeper->cgroup);
        cgroup_set_none(&keeper->cgroup, strerror(message.cgroup_error));
    }
    *ret_message = message;
    return 1;
}

static bool keeper_has_ended(const struct keeper *keeper, int timeout_ms)
{
    struct pollfd wait = {.fd = keeper->pid_fd, .events = POLLIN};
    return keeper->pid_fd < 0 || poll(&wait, 1, timeout_ms) > 0;
}

static bool keeper_has_closed(const struct keeper *keeper)
{
    struct pollfd channel = {.fd = keeper->channel_fd};
    return poll(&channel, 1, 0) > 0 && (channel.revents & POLLHUP);
}

bool keeper_kill_without(const struct keeper *keeper, pid_t main_pid, uint64_t limit_ms)
{
    cgroup_kill(&keeper->cgroup);
    bool ended = keeper_has_ended(keeper, 0);
    struct kill_tree_target target = {.ancestor = ended ? getpid() : keeper->pid,
                                      .main = main_pid,
                                      .cookie = keeper->cookie,
                                      .since_ticks = keeper->since_ticks};
    struct kill_tree tree;
    kill_tree_init(&tree, &target);
    bool empty = kill_tree_until_empty(&tree, limit_ms);
    /* One that dies closes the channel first; a moment later its children, whom we may not have seen, are ours. */
    if (!ended && keeper_has_ended(keeper, keeper_has_closed(keeper) ? KEEPER_DYING_MS : 0)) {
        tree.target.ancestor = getpid();
        empty = kill_tree_until_empty(&tree, limit_ms);
    }
    kill_tree_fini(&tree);
    return empty;
}

bool keeper_fini(struct keeper *keeper, int limit_ms)
{
    bool ended = true;
    keeper_close(&keeper->channel_fd);
    if (keeper->pid > 0) {
        if (keeper->pid_fd >= 0) /* a stopped one would not notice */
            process_signal_open(keeper->pid_fd, SIGCONT);
        ended = keeper_has_ended(keeper, limit_ms);
        if (ended)
            while (waitpid(keeper->pid, NULL, 0) < 0 && errno == EINTR)
                ;
    }
    keeper_close(&keeper->pid_fd);
    keeper->pid = -1;
    return cgroup_fini(&keeper->cgroup) && ended;
}
