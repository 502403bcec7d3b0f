/* Happy path: fork, the child execs, both pipes are read until they end, the child is reaped.
 * Failures: it cannot be executed (told through a third pipe that exec closes); it runs too long, or something that it
 * started keeps a pipe open: the whole group is killed. */
#include "ctl/capture.h"
#include "ctl/now.h"
#include "ctl/output.h"
#include "sys/process.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { PIPE_OUTPUT, PIPE_ERROR, PIPE_FAILED, PIPES };

static void close_ends(int pipes[PIPES][2], int end)
{
    for (int i = 0; i < PIPES; i++)
        if (pipes[i][end] >= 0)
            close(pipes[i][end]);
}

static bool make_pipes(int pipes[PIPES][2])
{
    for (int i = 0; i < PIPES; i++)
        pipes[i][0] = pipes[i][1] = -1;
    for (int i = 0; i < PIPES; i++)
        if (pipe2(pipes[i], O_CLOEXEC) != 0) {
            int saved = errno;
            close_ends(pipes, 0);
            close_ends(pipes, 1);
            errno = saved;
            return false;
        }
    return true;
}

static void become(char *const *argv, char *const *environment, int pipes[PIPES][2])
{
    int nothing = open("/dev/null", O_RDONLY);
    setpgid(0, 0);
    output_restore_pipe_signal();
    if (nothing >= 0 && dup2(nothing, 0) >= 0 && dup2(pipes[PIPE_OUTPUT][1], 1) >= 0 &&
        dup2(pipes[PIPE_ERROR][1], 2) >= 0)
        execvpe(argv[0], argv, environment);
    int code = errno;
    (void)!write(pipes[PIPE_FAILED][1], &code, sizeof code);
    _exit(127);
}

/* Takes what is there; false at the end of the pipe. What does not fit is dropped. */
static bool take(int fd, char text[CAPTURE_TEXT], size_t *length)
{
    char bytes[4096];
    ssize_t n = read(fd, bytes, sizeof bytes);
    if (n < 0)
        return errno == EINTR;
    size_t room = CAPTURE_TEXT - 1 - *length, kept = (size_t)n < room ? (size_t)n : room;
    memcpy(text + *length, bytes, kept);
    *length += kept;
    text[*length] = '\0';
    return n > 0;
}

/* Reads both until they end; false when the time is over before. */
static bool read_both(int pipes[PIPES][2], int64_t end_ms, struct capture *capture)
{
    struct pollfd wait[] = {{.fd = pipes[PIPE_OUTPUT][0], .events = POLLIN},
                            {.fd = pipes[PIPE_ERROR][0], .events = POLLIN}};
    char *const texts[] = {capture->output, capture->error_text};
    size_t lengths[2] = {0, 0};
    while (wait[0].fd >= 0 || wait[1].fd >= 0) {
        int64_t left = end_ms - now_ms();
        if (left <= 0)
            return false;
        if (poll(wait, 2, (int)left) <= 0)
            continue;
        for (int i = 0; i < 2; i++)
            if (wait[i].fd >= 0 && wait[i].revents != 0 && !take(wait[i].fd, texts[i], &lengths[i]))
                wait[i].fd = -1;
    }
    return true;
}

/* errno of a failed exec, 0 when it worked. */
static int exec_result(int fd)
{
    int code = 0;
    ssize_t n;
    do
        n = read(fd, &code, sizeof code);
    while (n < 0 && errno == EINTR);
    return n == sizeof code ? code : 0;
}

/* One that closed both pipes is about to end, and gets a second for it; what it started goes with it. */
static int reap(pid_t child, bool at_once)
{
    int status = 0;
    for (int waited = 0; !at_once && waited < 1000; waited++) {
        siginfo_t info = {.si_pid = 0};
        if (waitid(P_PID, (id_t)child, &info, WEXITED | WNOHANG | WNOWAIT) != 0 || info.si_pid == child)
            break;
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    }
    kill(-child, SIGKILL);
    while (waitpid(child, &status, 0) < 0 && errno == EINTR)
        ;
    return status;
}

enum error_code capture_run(char *const *argv, char *const *environment, uint64_t limit_ms, struct capture *ret_capture,
                            struct error *err)
{
    int pipes[PIPES][2];
    struct capture capture = {0};
    if (!make_pipes(pipes))
        return error_set_errno(err, ERROR_SYSTEM, errno, "cannot make a pipe");
    pid_t child = fork();
    if (child == 0)
        become(argv, environment, pipes);
    int problem = errno, status;
    close_ends(pipes, 1);
    if (child < 0) {
        close_ends(pipes, 0);
        return error_set_errno(err, ERROR_SYSTEM, problem, "cannot start %s", argv[0]);
    }
    setpgid(child, child);
    problem = exec_result(pipes[PIPE_FAILED][0]);
    capture.timed_out = problem == 0 && !read_both(pipes, now_ms() + (int64_t)limit_ms, &capture);
    close_ends(pipes, 0);
    status = reap(child, capture.timed_out);
    if (problem != 0)
        return error_set_errno(err, problem == ENOENT ? ERROR_COMMAND_NOT_FOUND : ERROR_CANNOT_EXECUTE, problem, "%s",
                               argv[0]);
    capture.status = process_exit_status(status);
    *ret_capture = capture;
    return ERROR_NONE;
}
