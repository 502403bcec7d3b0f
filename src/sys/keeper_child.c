#include "sys/keeper_child.h"

#include "sys/cgroup_control.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

/* As execvp, but never hands a file without a known format to a shell. Returns the errno. */
static int keeper_child_execute(char **command)
{
    if (strchr(command[0], '/') || command[0][0] == '\0') {
        execv(command[0], command);
        return errno;
    }
    const char *folders = getenv("PATH");
    bool forbidden = false;
    for (const char *p = folders && *folders ? folders : "/usr/local/bin:/usr/bin:/bin"; p;) {
        size_t length = strcspn(p, ":");
        char path[4096];
        int size = snprintf(path, sizeof path, "%.*s%s%s", (int)length, p, length ? "/" : "./", command[0]);
        if (size > 0 && (size_t)size < sizeof path) {
            execv(path, command);
            if (errno == EACCES)
                forbidden = forbidden || access(path, F_OK) == 0; /* not: a folder that is closed to us */
            else if (errno != ENOENT && errno != ENOTDIR)
                return errno;
        }
        p = p[length] ? p + length + 1 : NULL;
    }
    return forbidden ? EACCES : ENOENT;
}

static void keeper_child_reset_signals(void)
{
    for (int number = 1; number < NSIG; number++)
        signal(number, SIG_DFL); /* fails for KILL, STOP and the C library's own, which cannot differ */
    sigset_t none;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
}

static void keeper_child_fail(int pipe_fd, const char *what, int system)
{
    struct keeper_child_failure failure = {.system = system};
    snprintf(failure.what, sizeof failure.what, "%s", what);
    if (write(pipe_fd, &failure, sizeof failure) != sizeof failure)
        _exit(126);
    _exit(127);
}

/* Never returns. */
static void keeper_child_run(int cgroup_fd, pid_t keeper, int out, int err, int pipe_fd, char **command)
{
    setsid();
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != keeper)
        _exit(127); /* it died before the line above: nobody would ever kill this process */
    if (cgroup_fd >= 0) {
        int result = cgroup_control_enter(cgroup_fd);
        if (result)
            keeper_child_fail(pipe_fd, "enter the cgroup", result);
    }
    /* All numbers here are above 2: keeper_spawn arranges that, and the keeper's 0 is /dev/null. */
    if (dup2(out, STDOUT_FILENO) < 0 || dup2(err, STDERR_FILENO) < 0)
        keeper_child_fail(pipe_fd, "connect its output", errno);
    close_range((unsigned)pipe_fd + 1, ~0U, 0); /* the pipe itself closes at the exec */
    if (pipe_fd > 3)
        close_range(3, (unsigned)pipe_fd - 1, 0);
    keeper_child_reset_signals();
    keeper_child_fail(pipe_fd, "execute", keeper_child_execute(command));
}

pid_t keeper_child_start(int cgroup_fd, int out, int err, char **command, int *ret_pipe)
{
    pid_t keeper = getpid();
    int pipe_fds[2];
    if (pipe2(pipe_fds, O_CLOEXEC) < 0)
        return -1;
    pid_t child = fork();
    if (child == 0)
        keeper_child_run(cgroup_fd, keeper, out, err, pipe_fds[1], command);
    int system = errno;
    close(pipe_fds[1]);
    if (child < 0)
        close(pipe_fds[0]);
    else
        *ret_pipe = pipe_fds[0];
    errno = system;
    return child;
}
