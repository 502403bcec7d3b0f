/* Happy path: block the signals, fork, the child execs, signals and the child's end are taken by sigwaitinfo.
 * Failures: not found or not executable (told through a pipe that exec closes); the child dies of a signal (128 + N); a
 * signal for us (passed on, remembered). */
#include "ctl/spawn.h"
#include "base/memory.h"
#include "ctl/output.h"
#include "sys/process.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static const int forwarded[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT};

static bool is_program(const char *path)
{
    struct stat status;
    return stat(path, &status) == 0 && S_ISREG(status.st_mode) && access(path, X_OK) == 0;
}

enum error_code spawn_find(const char *program, char **ret_path, struct error *err)
{
    if (strchr(program, '/') != NULL) {
        if (is_program(program)) {
            *ret_path = memory_copy(program);
            return ERROR_NONE;
        }
        if (access(program, F_OK) == 0)
            return error_set(err, ERROR_CANNOT_EXECUTE, "%s is not a program that you may execute", program);
        return error_set(err, ERROR_COMMAND_NOT_FOUND, "%s is not there", program);
    }
    const char *path = getenv("PATH");
    for (const char *part = path != NULL ? path : "/usr/bin:/bin"; part != NULL;) {
        size_t length = strcspn(part, ":");
        char *full = length > 0 ? memory_format("%.*s/%s", (int)length, part, program) : memory_format("./%s", program);
        if (is_program(full)) {
            *ret_path = full;
            return ERROR_NONE;
        }
        free(full);
        part = part[length] == ':' ? part + length + 1 : NULL;
    }
    return error_set(err, ERROR_COMMAND_NOT_FOUND, "%s is in no folder of PATH", program);
}

enum error_code spawn_check(const char *program, struct error *err)
{
    char *path = NULL;
    enum error_code code = spawn_find(program, &path, err);
    free(path);
    return code;
}

static _Noreturn void become(const struct spawn *spawn, const sigset_t *mask, pid_t parent, int failed)
{
    int code = 0;
    output_restore_pipe_signal();
    process_forget_handlers();
    sigprocmask(SIG_SETMASK, mask, NULL);
    if (spawn->dies_with_us && (prctl(PR_SET_PDEATHSIG, SIGTERM) != 0 || getppid() != parent))
        code = ESRCH;
    if (code == 0 && spawn->has_output && dup2(spawn->output_fd, STDOUT_FILENO) < 0)
        code = errno;
    if (code == 0) {
        execvpe(spawn->argv[0], spawn->argv,
                spawn->environment != NULL ? list_vector((struct list *)spawn->environment) : environ);
        code = errno;
    }
    (void)!write(failed, &code, sizeof code);
    _exit(127);
}

/* errno of a failed exec, 0 when it worked. */
static int exec_result(int fd)
{
    int code = 0;
    ssize_t n;
    do
        n = read(fd, &code, sizeof code);
    while (n < 0 && errno == EINTR);
    close(fd);
    return n == sizeof code ? code : 0;
}

/* Passes signals on until the child has ended; returns its wait status. */
static int wait_for(pid_t child, const sigset_t *set, bool *interrupted)
{
    int status = 0;
    for (;;) {
        siginfo_t info;
        pid_t n = waitpid(child, &status, WNOHANG);
        if (n == child)
            return status;
        if (n < 0 && errno == ECHILD)
            return 125 << 8;
        int signal = sigwaitinfo(set, &info);
        if (signal < 0 || signal == SIGCHLD)
            continue;
        *interrupted = true;
        /* what the terminal sends has reached the child already, as one of its group */
        if (info.si_code != SI_KERNEL)
            kill(child, signal);
    }
}

/* What is ignored (nohup) stays so: a signal that is blocked would be told to us all the same. */
static void make_set(sigset_t *set)
{
    sigemptyset(set);
    sigaddset(set, SIGCHLD);
    for (size_t i = 0; i < sizeof forwarded / sizeof forwarded[0]; i++) {
        struct sigaction action;
        if (sigaction(forwarded[i], NULL, &action) == 0 && action.sa_handler != SIG_IGN)
            sigaddset(set, forwarded[i]);
    }
}

enum error_code spawn_run(const struct spawn *spawn, int *ret_status, bool *ret_interrupted, struct error *err)
{
    const char *program = spawn->argv[0];
    sigset_t set, before;
    int failed[2];
    bool interrupted = false;
    if (pipe2(failed, O_CLOEXEC) != 0)
        return error_set_errno(err, ERROR_SYSTEM, errno, "cannot make a pipe");
    make_set(&set);
    sigprocmask(SIG_BLOCK, &set, &before);
    pid_t parent = getpid(), child = fork();
    if (child == 0)
        become(spawn, &before, parent, failed[1]);
    int fork_errno = errno;
    close(failed[1]);
    int exec_errno = exec_result(failed[0]), status = 0;
    if (child > 0)
        status = wait_for(child, &set, &interrupted);
    sigprocmask(SIG_SETMASK, &before, NULL);
    if (child < 0)
        return error_set_errno(err, ERROR_SYSTEM, fork_errno, "cannot start %s", program);
    if (exec_errno != 0)
        return error_set_errno(err, exec_errno == ENOENT ? ERROR_COMMAND_NOT_FOUND : ERROR_CANNOT_EXECUTE, exec_errno,
                               "%s", program);
    *ret_status = process_exit_status(status);
    *ret_interrupted = interrupted;
    return ERROR_NONE;
}
