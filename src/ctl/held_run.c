/* Happy path: fork, and kldump-run in a process group of its own with its text in a file; until its guard answers, its
 * end is watched for; then its state is followed.
 * Failures: it ends before it can be asked (a bad option, a name that is taken: the last lines of its text tell), or
 * later (its run object tells); an older run of the same name, which must not be taken for it. */
#include "ctl/held_run.h"

#include "base/buffer.h"
#include "base/memory.h"
#include "base/text.h"
#include "ctl/follow.h"
#include "ctl/output.h"
#include "ctl/show.h"
#include "sys/file.h"
#include "sys/process.h"
#include "sys/sibling.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

enum { TEXT_MODE = 0600, ASK_MS = 100, WORDS_SHOWN = 400, NOT_EXECUTED = 125 };

/* ---- its start ---- */

static void make_arguments(const struct held_run_plan *plan, const char *program, struct list *arguments)
{
    list_add(arguments, program);
    list_add_all(arguments, list_vector((struct list *)plan->options));
    list_add_all(arguments, (char *const[]){(char *)"--name", (char *)plan->name, (char *)"--kind", (char *)plan->kind,
                                            (char *)"--dir", (char *)plan->directory, (char *)"--", NULL});
    list_add_all(arguments, plan->command);
}

static _Noreturn void become(char *const *argv, const sigset_t *mask, pid_t parent, int text_fd)
{
    int null = open("/dev/null", O_RDONLY | O_CLOEXEC);
    setpgid(0, 0);
    process_forget_handlers();
    sigprocmask(SIG_SETMASK, mask, NULL);
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    if (getppid() == parent && dup2(null, STDIN_FILENO) >= 0 && dup2(text_fd, STDOUT_FILENO) >= 0 &&
        dup2(text_fd, STDERR_FILENO) >= 0) {
        output_restore_pipe_signal();
        execv(argv[0], argv);
    }
    _exit(NOT_EXECUTED);
}

static enum error_code launch(char *const *argv, int text_fd, struct held_run *run, struct error *err)
{
    sigset_t all, before;
    pid_t parent = getpid();
    sigfillset(&all);
    sigprocmask(SIG_BLOCK, &all, &before); /* what is sent to the child must not meet our handlers there */
    run->pid = fork();
    if (run->pid == 0)
        become(argv, &before, parent, text_fd);
    int fork_errno = errno;
    sigprocmask(SIG_SETMASK, &before, NULL);
    if (run->pid < 0)
        return error_set_errno(err, ERROR_SYSTEM, fork_errno, "cannot start %s", argv[0]);
    run->pidfd = process_open(run->pid);
    if (run->pidfd >= 0)
        return ERROR_NONE;
    int code = errno;
    kill(run->pid, SIGKILL); /* not reaped yet, so the number is its own */
    while (waitpid(run->pid, NULL, 0) < 0 && errno == EINTR)
        ;
    return error_set_errno(err, ERROR_SYSTEM, code, "cannot watch %s", argv[0]);
}

enum error_code held_run_start(const struct held_run_plan *plan, struct held_run *ret_run, struct error *err)
{
    struct held_run run = {.pidfd = -1};
    struct list arguments = {0};
    char *program = sibling_path("kldump-run");
    if (program == NULL)
        return error_set(err, ERROR_INTERNAL,
                         "kldump-run is neither beside kldumpctl nor in " KLDUMP_LIBEXECDIR "; install kldump again");
    int text_fd = open(plan->text_path, O_WRONLY | O_CREAT | O_TRUNC | O_APPEND | O_CLOEXEC | O_NOFOLLOW, TEXT_MODE);
    enum error_code code = ERROR_NONE;
    if (text_fd < 0)
        code = error_set_errno(err, ERROR_SYSTEM, errno, "%s", plan->text_path);
    make_arguments(plan, program, &arguments);
    if (code == ERROR_NONE)
        code = launch(arguments.items, text_fd, &run, err);
    if (text_fd >= 0)
        close(text_fd);
    list_fini(&arguments);
    free(program);
    if (code != ERROR_NONE)
        return code;
    run.name = memory_copy(plan->name);
    run.text_path = memory_copy(plan->text_path);
    *ret_run = run;
    return ERROR_NONE;
}

/* ---- its end ---- */

/* Reaps it: at once, or, with `wait`, at its end. */
static void look(struct held_run *run, bool wait)
{
    int status = 0;
    pid_t found = 0;
    if (run->pid == 0 || run->has_ended)
        return;
    do
        found = waitpid(run->pid, &status, wait ? 0 : WNOHANG);
    while (found < 0 && errno == EINTR);
    if (found == 0)
        return;
    run->has_ended = true;
    run->status = NOT_EXECUTED;
    if (found > 0)
        run->status = process_exit_status(status);
}

bool held_run_is_alive(struct held_run *run, int *ret_status)
{
    look(run, false);
    if (run->has_ended && ret_status != NULL)
        *ret_status = run->status;
    return run->pid != 0 && !run->has_ended;
}

int held_run_status(struct held_run *run, enum error_code code)
{
    int status = (int)error_status(code);
    if (run->pid != 0 && !held_run_is_alive(run, &status) && status == STATUS_DONE)
        return STATUS_NOT_ARMED;
    return status < PROCESS_SIGNALED ? status : STATUS_LOST; /* somebody has killed its guard */
}

void held_run_stop(struct held_run *run)
{
    if (held_run_is_alive(run, NULL)) {
        process_signal_open(run->pidfd, SIGTERM);
        process_signal_open(run->pidfd, SIGCONT); /* one that was stopped would not come to it */
        look(run, true);
    }
    if (run->pid != 0)
        close(run->pidfd);
    free(run->name);
    free(run->text_path);
    *run = (struct held_run){.pidfd = -1};
}

/* The run object of `find` where that is this run, and not one of the same name that was here before; NULL else. */
static struct json *own_run(struct find *find, const struct held_run *run)
{
    struct json *found = NULL;
    uint64_t pid = 0;
    if (find_status(find, &found, NULL) != ERROR_NONE)
        return NULL;
    show_number(found, "guard_pid", &pid);
    if (pid == (uint64_t)run->pid)
        return found;
    json_free(found);
    return NULL;
}

/* The last lines of its text, as one line. */
static void add_last_words(const struct held_run *run, struct buffer *why)
{
    struct buffer text;
    char words[WORDS_SHOWN];
    off_t size = 0;
    buffer_init(&text);
    int fd = open(run->text_path, O_RDONLY | O_CLOEXEC);
    if (fd >= 0) {
        size = lseek(fd, 0, SEEK_END);
        close(fd);
    }
    file_read_part(run->text_path, size > WORDS_SHOWN ? size - WORDS_SHOWN : 0, WORDS_SHOWN, &text, NULL);
    while (text.length > 0 && text.data[text.length - 1] == '\n')
        text.data[--text.length] = '\0';
    for (char *c = text.data; *c != '\0'; c++)
        *c = *c == '\n' ? ' ' : *c;
    buffer_text(why, text.length > 0 ? text_clean(text.data, text.length, words, sizeof words) : "it has said nothing");
    buffer_fini(&text);
}

/* Why it is over: from its record, else, where it came to none, from its text. */
static enum error_code tell_end(struct held_run *run, struct error *err)
{
    struct find find = {0};
    struct json *found = NULL;
    struct buffer why;
    buffer_init(&why);
    look(run, true); /* a guard that has told its end is gone a moment later */
    if (find_run(run->name, &find, NULL) == ERROR_NONE)
        found = own_run(&find, run);
    if (found != NULL)
        show_why(found, &why);
    else
        add_last_words(run, &why);
    error_set(err, ERROR_STATE, "run %s has ended (exit status %d): %.500s; all that it has said: %s", run->name,
              run->status, why.data, run->text_path);
    json_free(found);
    find_fini(&find);
    buffer_fini(&why);
    return ERROR_STATE;
}

bool held_run_ends_within(struct held_run *run, int limit_ms, struct error *err)
{
    struct pollfd end = {.fd = run->pidfd, .events = POLLIN};
    if (run->pid == 0)
        return false;
    if (held_run_is_alive(run, NULL))
        poll(&end, 1, limit_ms);
    if (held_run_is_alive(run, NULL))
        return false;
    tell_end(run, err);
    return true;
}

/* ---- until it is up ---- */

/* Waits until its guard answers. */
static enum error_code reach(struct held_run *run, bool (*wanted)(void *user), void *user, struct find *ret_find,
                             struct error *err)
{
    for (;;) {
        struct find find = {0};
        struct pollfd end = {.fd = run->pidfd, .events = POLLIN};
        struct json *found = NULL;
        if (find_run(run->name, &find, NULL) == ERROR_NONE && find.client != NULL)
            found = own_run(&find, run);
        if (found != NULL) {
            json_free(found);
            *ret_find = find;
            return ERROR_NONE;
        }
        find_fini(&find);
        if (!held_run_is_alive(run, NULL))
            return tell_end(run, err);
        if (wanted != NULL && !wanted(user))
            return error_set(err, ERROR_INTERRUPTED, "interrupted; run %s goes on", run->name);
        poll(&end, 1, ASK_MS);
    }
}

enum error_code held_run_wait(struct held_run *run, bool (*wanted)(void *user), void *user, struct error *err)
{
    struct find find = {0};
    struct json *found = NULL;
    enum error_code code = reach(run, wanted, user, &find, err);
    if (code != ERROR_NONE)
        return code;
    struct follow follow = {.find = &find, .is_reached = follow_is_up, .wanted = wanted, .user = user};
    code = follow_run(&follow, &found, err);
    if (code == ERROR_NONE && !follow_is_up(show_member(found, "state")))
        code = tell_end(run, err);
    else if (code != ERROR_NONE && code != ERROR_INTERRUPTED && !held_run_is_alive(run, NULL))
        code = tell_end(run, err);
    json_free(found);
    find_fini(&find);
    return code;
}
