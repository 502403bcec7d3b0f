/* Happy path: the cgroup is made, the child forked; it enters the cgroup, becomes the user, and executes the guard; a
 * pipe that ends at the exec says that it did.
 *
 * Anything fails in the child: it writes what and why into the pipe and ends; it is reaped here, the cgroup removed.
 *
 * The daemon has threads, so its child calls nothing but what is safe in a signal handler: no setgroups(3) or
 * setresuid(3), which tell the other threads of a process, but the system calls behind them. */
#include "sys/launch_spawn.h"

#include "base/text.h"
#include "sys/cgroup_control.h"
#include "sys/cgroup_run.h"
#include "sys/process.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#ifdef SYS_setgroups32 /* where the plain ones take 16 bits */
enum { SPAWN_SETGROUPS = SYS_setgroups32, SPAWN_SETRESGID = SYS_setresgid32, SPAWN_SETRESUID = SYS_setresuid32 };
#else
enum { SPAWN_SETGROUPS = SYS_setgroups, SPAWN_SETRESGID = SYS_setresgid, SPAWN_SETRESUID = SYS_setresuid };
#endif

enum { SPAWN_HIGH = 10 }; /* above all numbers that the child fills */

struct launch_spawn_failure {
    int system;
    char what[40];
};

struct launch_spawn_child {
    const struct launch_request *request;
    bool root;
    int cgroup_fd; /* -1: none */
    int pipe_fd;
};

static _Noreturn void launch_spawn_fail(int pipe_fd, const char *what)
{
    struct launch_spawn_failure failure = {.system = errno};
    strncpy(failure.what, what, sizeof failure.what - 1);
    _exit(write(pipe_fd, &failure, sizeof failure) == sizeof failure ? 127 : 126);
}

static void launch_spawn_connect(const struct launch_spawn_child *child, int *ret_pipe)
{
    int pipe_fd = fcntl(child->pipe_fd, F_DUPFD_CLOEXEC, SPAWN_HIGH);
    if (pipe_fd < 0)
        launch_spawn_fail(child->pipe_fd, "copy descriptors");
    int input = fcntl(child->request->input_fd, F_DUPFD_CLOEXEC, SPAWN_HIGH);
    int output = fcntl(child->request->output_fd, F_DUPFD_CLOEXEC, SPAWN_HIGH);
    int null = open("/dev/null", O_RDWR | O_CLOEXEC);
    if (dup2(input, STDIN_FILENO) < 0 || dup2(output, STDOUT_FILENO) < 0 || dup2(null, STDERR_FILENO) < 0)
        launch_spawn_fail(pipe_fd, "connect its input and output");
    if (dup2(pipe_fd, STDERR_FILENO + 1) < 0)
        launch_spawn_fail(pipe_fd, "copy descriptors");
    *ret_pipe = STDERR_FILENO + 1;
    fcntl(*ret_pipe, F_SETFD, FD_CLOEXEC);
    syscall(SYS_close_range, *ret_pipe + 1, ~0U, 0);
}

/* An ordinary user's daemon cannot give more than it has; the run gets that then. */
static bool launch_spawn_limit(int resource, struct rlimit limit)
{
    struct rlimit own;
    if (setrlimit((__rlimit_resource_t)resource, &limit) == 0)
        return true;
    if (errno != EPERM || getrlimit((__rlimit_resource_t)resource, &own) != 0)
        return false;
    if (limit.rlim_max > own.rlim_max)
        limit.rlim_max = own.rlim_max;
    if (limit.rlim_cur > limit.rlim_max)
        limit.rlim_cur = limit.rlim_max;
    return setrlimit((__rlimit_resource_t)resource, &limit) == 0;
}

/* In this order: limits may be raised and groups set by root alone. */
static void launch_spawn_become(const struct launch_spawn_child *child, int pipe_fd)
{
    const struct launch_user *user = child->request->user;
    for (int i = 0; i < RLIM_NLIMITS; i++)
        if (!launch_spawn_limit(i, user->limit[i]))
            launch_spawn_fail(pipe_fd, "set the limits");
    if (!child->root)
        return;
    if (syscall(SPAWN_SETGROUPS, user->group_count, user->groups) != 0)
        launch_spawn_fail(pipe_fd, "set the groups");
    if (syscall(SPAWN_SETRESGID, user->gid, user->gid, user->gid) != 0)
        launch_spawn_fail(pipe_fd, "set the group");
    if (syscall(SPAWN_SETRESUID, user->uid, user->uid, user->uid) != 0)
        launch_spawn_fail(pipe_fd, "set the user");
}

static void launch_spawn_reset_signals(void)
{
    for (int number = 1; number < NSIG; number++)
        signal(number, SIG_DFL); /* fails for KILL, STOP and the C library's own, which cannot differ */
    sigset_t none;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
}

static _Noreturn void launch_spawn_run(const struct launch_spawn_child *child)
{
    int pipe_fd = child->pipe_fd;
    prctl(PR_SET_DUMPABLE, 0); /* until the exec it is a copy of the daemon */
    setsid();
    if (child->cgroup_fd >= 0 && (errno = cgroup_control_enter(child->cgroup_fd)) != 0)
        launch_spawn_fail(pipe_fd, "enter the cgroup");
    launch_spawn_connect(child, &pipe_fd);
    if (child->root) { /* what keeps the daemon alive is not for a server */
        int fd = open("/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC);
        if (fd >= 0 && write(fd, "0", 1) == 1)
            close(fd);
    }
    launch_spawn_become(child, pipe_fd);
    umask(022); /* the plan has that of the client */
    if (chdir("/") != 0)
        launch_spawn_fail(pipe_fd, "enter /");
    launch_spawn_reset_signals();
    execve(child->request->program, child->request->arguments, child->request->environment);
    launch_spawn_fail(pipe_fd, "execute");
}

static pid_t launch_spawn_fork(const struct launch_spawn_child *child)
{
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before); /* no handler of the daemon may run in the child */
    pid_t pid = fork();
    if (pid == 0)
        launch_spawn_run(child);
    int system = errno;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    errno = system;
    return pid;
}

/* Waits until the child has become the guard. */
static enum error_code launch_spawn_wait(const struct launch_request *request, pid_t pid, int pipe_fd,
                                         struct error *err)
{
    struct launch_spawn_failure failure = {.system = 0};
    ssize_t got;
    while ((got = read(pipe_fd, &failure, sizeof failure)) < 0 && errno == EINTR)
        ;
    if (got == 0)
        return ERROR_NONE;
    while (waitpid(pid, NULL, 0) < 0 && errno == EINTR)
        ;
    failure.what[sizeof failure.what - 1] = '\0';
    return got == sizeof failure ? error_set_errno(err, ERROR_SYSTEM, failure.system, "cannot start %s as uid %u: %s",
                                                   request->program, (unsigned)request->user->uid, failure.what)
                                 : error_set(err, ERROR_SYSTEM, "%s ended before it began", request->program);
}

static enum error_code launch_spawn_try(struct launch_spawn_child *child, struct launch_result *result,
                                        struct error *err)
{
    int pipe_fds[2];
    if (pipe2(pipe_fds, O_CLOEXEC) < 0)
        return error_set_errno(err, ERROR_SYSTEM, errno, "a pipe for the start of a run");
    child->pipe_fd = pipe_fds[1];
    result->pid = launch_spawn_fork(child);
    int system = errno;
    close(pipe_fds[1]);
    enum error_code code = result->pid < 0 ? error_set_errno(err, ERROR_SYSTEM, system, "cannot start another process")
                                           : launch_spawn_wait(child->request, result->pid, pipe_fds[0], err);
    close(pipe_fds[0]);
    return code;
}

enum error_code launch_spawn(const struct launch_request *request, struct launch_result *ret_result, struct error *err)
{
    struct launch_result result = {.pidfd = -1};
    struct launch_spawn_child child = {.request = request, .root = geteuid() == 0, .cgroup_fd = -1};
    struct process process;
    bool has_cgroup =
        cgroup_run_make(request->name, request->user->uid, request->user->gid, &child.cgroup_fd, result.cgroup);
    enum error_code code = launch_spawn_try(&child, &result, err);
    if (code != ERROR_NONE) {
        if (has_cgroup)
            cgroup_run_undo(child.cgroup_fd, result.cgroup);
        return code;
    }
    if (has_cgroup) {
        result.cgroup_inode = cgroup_run_inode(result.cgroup);
        close(child.cgroup_fd);
    }
    /* It is not reaped before its pidfd is read, so the number is its own. */
    result.pidfd = process_open(result.pid);
    if (result.pidfd < 0) {
        int system = errno;
        kill(result.pid, SIGKILL);
        while (waitpid(result.pid, NULL, 0) < 0 && errno == EINTR)
            ;
        return error_set_errno(err, ERROR_SYSTEM, system, "cannot watch the guard's process");
    }
    result.start_ticks = process_read(result.pid, &process) ? process.start_ticks : 0;
    *ret_result = result;
    return ERROR_NONE;
}
