/* Happy path: the plan is written into a memfd, kldump-run spawned with it as standard input in a session of its own;
 * its first line of output names the run; that is the answer. The pipe is closed then, and the process handle kept
 * until the guard ends, only to reap it.
 *
 * Its line is an error: passed on with its code and message.
 * It ends without a line, writes something else: error internal, with its exit status.
 * No line within LINE_MS: KILL (its keeper, if there is one, kills the rest), error internal.
 * The client goes before the answer: the run is started all the same; `list` shows it.
 * The daemon ends: the client is told to look at `list` later; the guard goes on, and may find nobody who reads.
 *
 * The client's environment travels in the memfd alone: what stands in a process's own environment or arguments, other
 * programs can read. */
#include "base/buffer.h"
#include "base/memory.h"
#include "base/text.h"
#include "json/json.h"
#include "loop/daemon_private.h"
#include "sys/sibling.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { LINE_MS = 55000, EXIT_MS = 2000, LINE_MAX_BYTES = 16 * 1024 };

struct daemon_start {
    struct daemon_start *next, **link;
    struct daemon *daemon;
    uv_process_t process;
    uv_pipe_t pipe;
    uv_timer_t timer;
    unsigned handles;
    bool closing, exited;
    int64_t exit_status;
    int exit_signal;
    struct control_request *request; /* NULL once it is answered */
    struct buffer line;
    char room[4096];
};

static void on_closed(uv_handle_t *handle)
{
    struct daemon_start *start = handle->data;
    if (--start->handles > 0)
        return;
    *start->link = start->next;
    if (start->next != NULL)
        start->next->link = start->link;
    buffer_fini(&start->line);
    free(start);
}

static void close_one(uv_handle_t *handle)
{
    if (!uv_is_closing(handle))
        uv_close(handle, on_closed);
}

/* The answer was given: only the end of the process is waited for. */
static void stop_listening(struct daemon_start *start)
{
    close_one((uv_handle_t *)&start->pipe);
    close_one((uv_handle_t *)&start->timer);
    if (start->exited)
        close_one((uv_handle_t *)&start->process);
}

static void fail(struct daemon_start *start, const struct error *err)
{
    struct control_request *request = start->request;
    start->request = NULL;
    if (request != NULL)
        control_fail(request, err);
    stop_listening(start);
}

/* ---- what the guard says ---- */

static void take_line(struct daemon_start *start, size_t length)
{
    struct error err = ERROR_INIT;
    struct json *json = NULL;
    const char *name = NULL, *error = NULL, *message = NULL;
    enum error_code code = json_parse(start->line.data, length, LINE_MAX_BYTES, JSON_DEPTH, &json, &err);
    if (code == ERROR_NONE && json_get_string(json, "run", &name, NULL) == ERROR_NONE && text_is_name(name)) {
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
        fail(start, &err);
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
    if (!start->exited)
        error_set(&err, ERROR_INTERNAL, "kldump-run closed its output without a word and still runs");
    else if (start->exit_signal != 0)
        error_set(&err, ERROR_INTERNAL, "kldump-run was ended by signal %d without a word", start->exit_signal);
    else
        error_set(&err, ERROR_INTERNAL, "kldump-run ended with status %d without a word", (int)start->exit_status);
    fail(start, &err);
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
    uv_process_kill(&start->process, SIGKILL);
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

static void on_exited(uv_process_t *process, int64_t status, int signal_number)
{
    struct daemon_start *start = process->data;
    start->exited = true;
    start->exit_status = status;
    start->exit_signal = signal_number;
    daemon_tell(start->daemon);
    if (start->request == NULL)
        close_one((uv_handle_t *)process);
    else if (uv_is_closing((uv_handle_t *)&start->pipe))
        fail_silent(start);
    else /* what it wrote last is still in the pipe */
        uv_timer_start(&start->timer, on_timer, EXIT_MS, 0);
}

/* ---- spawning ---- */

/* Nothing of the daemon's own that a run should not see: no NOTIFY_SOCKET, no LISTEN_FDS, no secrets. */
static void make_environment(const struct daemon *daemon, struct list *ret_environment)
{
    static const char *const kept[] = {"PATH", "HOME", "XDG_RUNTIME_DIR", "LANG"};
    for (size_t i = 0; i < sizeof kept / sizeof kept[0]; i++)
        if (getenv(kept[i]) != NULL)
            list_environment_set(ret_environment, kept[i], getenv(kept[i]));
    list_environment_set(ret_environment, "KLDUMP_RUNTIME_DIR", daemon->runtime);
}

static enum error_code write_plan(const struct json *plan, int *ret_fd, struct error *err)
{
    struct buffer text;
    int fd = memfd_create("kldump-plan", MFD_CLOEXEC);
    if (fd < 0)
        return error_set_errno(err, ERROR_SYSTEM, errno, "the plan");
    buffer_init(&text);
    json_print(plan, &text);
    size_t done = 0;
    ssize_t count = 0;
    while (done < text.length && (count = write(fd, text.data + done, text.length - done)) > 0)
        done += (size_t)count;
    int system = errno;
    bool whole = done == text.length && lseek(fd, 0, SEEK_SET) == 0;
    explicit_bzero(text.data, text.length);
    buffer_fini(&text);
    if (!whole) {
        close(fd);
        return error_set_errno(err, ERROR_SYSTEM, system, "the plan");
    }
    *ret_fd = fd;
    return ERROR_NONE;
}

static int spawn(struct daemon_start *start, char *program, int plan_fd)
{
    struct list environment = {0};
    make_environment(start->daemon, &environment);
    char *arguments[] = {program, (char *)"--plan", NULL};
    uv_stdio_container_t stdio[] = {
        {.flags = UV_INHERIT_FD, .data.fd = plan_fd},
        {.flags = UV_CREATE_PIPE | UV_WRITABLE_PIPE, .data.stream = (uv_stream_t *)&start->pipe},
        {.flags = UV_IGNORE}, /* /dev/null */
    };
    uv_process_options_t options = {.exit_cb = on_exited,
                                    .file = program,
                                    .args = arguments,
                                    .env = list_vector(&environment),
                                    .cwd = "/",
                                    .flags = UV_PROCESS_DETACHED,
                                    .stdio_count = sizeof stdio / sizeof stdio[0],
                                    .stdio = stdio};
    int failure = uv_spawn(&start->daemon->loop, &start->process, &options);
    list_fini(&environment);
    return failure;
}

static void begin(struct daemon *daemon, struct control_request *request, char *program, int plan_fd)
{
    struct daemon_start *start = memory_new(sizeof *start);
    start->daemon = daemon;
    start->request = request;
    start->next = daemon->starts;
    start->link = &daemon->starts;
    if (start->next != NULL)
        start->next->link = &start->next;
    daemon->starts = start;
    buffer_init(&start->line);
    uv_pipe_init(&daemon->loop, &start->pipe, 0);
    uv_timer_init(&daemon->loop, &start->timer);
    start->process.data = start->pipe.data = start->timer.data = start;
    start->handles = 3;
    int failure = spawn(start, program, plan_fd);
    if (failure != 0) {
        struct error err = ERROR_INIT;
        error_set_errno(&err, ERROR_SYSTEM, -failure, "cannot start %s", program);
        start->exited = true; /* it never was, but its handle is owed a close */
        fail(start, &err);
        return;
    }
    uv_read_start((uv_stream_t *)&start->pipe, on_alloc, on_read);
    uv_timer_start(&start->timer, on_timer, LINE_MS, 0);
}

/* ---- the request ---- */

static enum error_code check(const struct json *parameters, struct error *err)
{
    const char *directory;
    struct list arguments = {0}, environment = {0};
    enum error_code code = json_get_list(parameters, "arguments", &arguments, err);
    if (code == ERROR_NONE)
        code = json_get_list(parameters, "environment", &environment, err);
    if (code == ERROR_NONE)
        code = json_get_string(parameters, "directory", &directory, err);
    if (code == ERROR_NONE && directory[0] != '/')
        code = error_set(err, ERROR_BAD_VALUE, "directory: expected an absolute path, not \"%.200s\"", directory);
    for (size_t i = 0; code == ERROR_NONE && i < environment.count; i++)
        if (strchr(environment.items[i], '=') == NULL || environment.items[i][0] == '=')
            code = error_set(err, ERROR_BAD_VALUE, "environment.%zu: expected NAME=VALUE", i);
    list_fini(&arguments);
    list_fini(&environment);
    if (code == ERROR_FORMAT)
        code = err->code = ERROR_BAD_VALUE;
    return code;
}

void daemon_start_request(struct control_request *request, void *user)
{
    struct daemon *daemon = user;
    struct error err = ERROR_INIT;
    int plan_fd = -1;
    enum error_code code = check(request->parameters, &err);
    char *program = sibling_path("kldump-run");
    if (code == ERROR_NONE && program == NULL)
        code = error_set(&err, ERROR_INTERNAL, "kldump-run is neither beside kldumpd nor installed in %s",
                         KLDUMP_LIBEXECDIR);
    if (code == ERROR_NONE)
        code = write_plan(request->parameters, &plan_fd, &err);
    if (code == ERROR_NONE)
        begin(daemon, request, program, plan_fd);
    else
        control_fail(request, &err);
    if (plan_fd >= 0)
        close(plan_fd);
    free(program);
}

void daemon_start_end(struct daemon *daemon)
{
    for (struct daemon_start *start = daemon->starts, *next; start != NULL; start = next) {
        next = start->next;
        struct error err = ERROR_INIT;
        error_set(&err, ERROR_INTERRUPTED, "kldumpd is ending; the run is still being started: kldumpctl list");
        start->exited = true; /* whoever adopts our children reaps them */
        fail(start, &err);
    }
}
