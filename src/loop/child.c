/* Happy path: child_start spawns with three pipes, writes the input and shuts it; the exit callback and the ends of
 * standard output and error come in any order; when all three are there the result is delivered, every handle is
 * closed, and the last close callback frees.
 *
 * It writes too much, or the deadline passes: KILL to its group, marked in the result, then as above.
 *
 * A grandchild holds a pipe after the exit: the result is delivered DRAIN_MS after the exit with what has come.
 *
 * It does not read its input: the write fails with EPIPE or ends with the child; neither matters.
 *
 * The spawn fails: the handles are owed a close all the same; `closing` keeps every callback quiet meanwhile.
 *
 * child_cancel: KILL; the process handle is closed only after its exit callback, or the child would stay a zombie. */
#include "loop/child.h"
#include "base/buffer.h"
#include "base/memory.h"
#include "base/text.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { DRAIN_MS = 500, READ_BYTES = 64 * 1024 };
enum { PIPE_IN, PIPE_OUT, PIPE_ERR, PIPES };

struct child {
    uv_process_t process;
    uv_pipe_t pipes[PIPES];
    uv_timer_t timer; /* the deadline, then the drain limit */
    uv_write_t write;
    unsigned handles;
    bool closing;   /* handles are being closed, nothing is delivered any more */
    bool cancelled; /* waits for the exit only */
    bool exited, out_ended, err_ended;

    char *input;
    size_t output_max_bytes;
    struct buffer output, error_text;
    struct child_result result;
    void (*done)(const struct child_result *result, void *user);
    void *user;
    char room[READ_BYTES];
};

static void on_closed(uv_handle_t *handle)
{
    struct child *child = handle->data;
    if (--child->handles > 0)
        return;
    buffer_fini(&child->output);
    buffer_fini(&child->error_text);
    free(child->input);
    free(child);
}

static void close_one(uv_handle_t *handle)
{
    if (!uv_is_closing(handle))
        uv_close(handle, on_closed);
}

static void close_all(struct child *child)
{
    child->closing = true;
    close_one((uv_handle_t *)&child->process);
    for (int i = 0; i < PIPES; i++)
        close_one((uv_handle_t *)&child->pipes[i]);
    close_one((uv_handle_t *)&child->timer);
}

static void kill_group(struct child *child)
{
    if (!child->exited && child->process.pid > 0)
        kill(-child->process.pid, SIGKILL);
}

/* Cuts to the last CHILD_ERROR_TEXT bytes, beginning with a whole line where there is one. */
static const char *last_lines(struct buffer *text)
{
    if (text->length <= CHILD_ERROR_TEXT)
        return text->data;
    buffer_consume(text, text->length - CHILD_ERROR_TEXT);
    const char *line_end = memchr(text->data, '\n', text->length);
    return line_end != NULL && line_end[1] != '\0' ? line_end + 1 : text->data;
}

static void deliver(struct child *child)
{
    child->closing = true;
    child->result.output = child->output.data;
    child->result.output_length = child->output.length;
    child->result.error_text = last_lines(&child->error_text);
    child->done(&child->result, child->user);
    close_all(child);
}

static void maybe_deliver(struct child *child)
{
    if (!child->closing && !child->cancelled && child->exited && child->out_ended && child->err_ended)
        deliver(child);
}

static void on_drain_limit(uv_timer_t *timer)
{
    struct child *child = timer->data;
    if (!child->closing)
        deliver(child);
}

static void on_deadline(uv_timer_t *timer)
{
    struct child *child = timer->data;
    if (child->closing || child->exited)
        return;
    child->result.timed_out = true;
    kill_group(child);
}

static void on_exited(uv_process_t *process, int64_t status, int term_signal)
{
    struct child *child = process->data;
    child->exited = true;
    if (child->closing)
        return;
    if (child->cancelled) {
        close_all(child);
        return;
    }
    child->result.signal = term_signal;
    child->result.exit_code = term_signal != 0 ? -1 : (int)status;
    uv_timer_start(&child->timer, on_drain_limit, DRAIN_MS, 0);
    maybe_deliver(child);
}

static void on_alloc(uv_handle_t *handle, size_t suggested, uv_buf_t *ret_buffer)
{
    (void)suggested;
    struct child *child = handle->data;
    *ret_buffer = uv_buf_init(child->room, sizeof child->room);
}

static void take_output(struct child *child, const char *data, size_t length)
{
    size_t left = child->output_max_bytes - child->output.length;
    buffer_append(&child->output, data, length < left ? length : left);
    if (length > left && !child->result.output_cut) {
        child->result.output_cut = true;
        kill_group(child);
    }
}

static void take_error_text(struct child *child, const char *data, size_t length)
{
    buffer_append(&child->error_text, data, length);
    if (child->error_text.length > 8 * CHILD_ERROR_TEXT)
        buffer_consume(&child->error_text, child->error_text.length - CHILD_ERROR_TEXT - 1);
}

static void on_read(uv_stream_t *stream, ssize_t count, const uv_buf_t *bytes)
{
    struct child *child = stream->data;
    if (child->closing || child->cancelled || count == 0)
        return;
    bool is_output = stream == (uv_stream_t *)&child->pipes[PIPE_OUT];
    if (count < 0) {
        uv_read_stop(stream);
        *(is_output ? &child->out_ended : &child->err_ended) = true;
        maybe_deliver(child);
        return;
    }
    if (is_output)
        take_output(child, bytes->base, (size_t)count);
    else
        take_error_text(child, bytes->base, (size_t)count);
}

static void on_written(uv_write_t *request, int status)
{
    (void)status; /* a child that does not read has its reasons; its exit tells */
    struct child *child = request->data;
    if (!child->closing)
        close_one((uv_handle_t *)&child->pipes[PIPE_IN]);
}

static void send_input(struct child *child, size_t length)
{
    if (length == 0) {
        close_one((uv_handle_t *)&child->pipes[PIPE_IN]);
        return;
    }
    uv_buf_t bytes = uv_buf_init(child->input, (unsigned)length);
    child->write.data = child;
    if (uv_write(&child->write, (uv_stream_t *)&child->pipes[PIPE_IN], &bytes, 1, on_written) != 0)
        close_one((uv_handle_t *)&child->pipes[PIPE_IN]);
}

static int spawn(struct child *child, uv_loop_t *loop, const struct child_request *request)
{
    uv_stdio_container_t stdio[PIPES];
    for (int i = 0; i < PIPES; i++) {
        stdio[i].flags = UV_CREATE_PIPE | (i == PIPE_IN ? UV_READABLE_PIPE : UV_WRITABLE_PIPE);
        stdio[i].data.stream = (uv_stream_t *)&child->pipes[i];
    }
    uv_process_options_t options = {
        .exit_cb = on_exited,
        .file = request->argv[0],
        .args = (char **)request->argv,
        .env = (char **)request->environment,
        .cwd = request->directory,
        .flags = UV_PROCESS_DETACHED,
        .stdio_count = PIPES,
        .stdio = stdio,
    };
    return uv_spawn(loop, &child->process, &options);
}

static struct child *make(uv_loop_t *loop, const struct child_request *request)
{
    struct child *child = memory_new(sizeof *child);
    buffer_init(&child->output);
    buffer_init(&child->error_text);
    child->output_max_bytes = request->output_max_bytes;
    child->input = memory_new(request->input_length + 1);
    if (request->input_length > 0)
        memcpy(child->input, request->input, request->input_length);
    for (int i = 0; i < PIPES; i++) {
        uv_pipe_init(loop, &child->pipes[i], 0);
        child->pipes[i].data = child;
    }
    uv_timer_init(loop, &child->timer);
    child->timer.data = child;
    child->process.data = child;
    child->handles = PIPES + 2;
    return child;
}

static enum error_code spawn_failed(int failure, const struct child_request *request, struct error *err)
{
    enum error_code code = ERROR_CANNOT_EXECUTE;
    if (failure == UV_ENOENT)
        code = ERROR_COMMAND_NOT_FOUND;
    else if (failure == UV_EAGAIN || failure == UV_ENOMEM || failure == UV_EMFILE || failure == UV_ENFILE)
        code = ERROR_SYSTEM;
    return error_set_errno(err, code, -failure, "cannot start %s", request->argv[0]);
}

enum error_code child_start(uv_loop_t *loop, const struct child_request *request,
                            void (*done)(const struct child_result *result, void *user), void *user,
                            struct child **ret_child, struct error *err)
{
    struct child *child = make(loop, request);
    child->done = done;
    child->user = user;
    int failure = spawn(child, loop, request);
    if (failure != 0) {
        close_all(child);
        return spawn_failed(failure, request, err);
    }
    uv_read_start((uv_stream_t *)&child->pipes[PIPE_OUT], on_alloc, on_read);
    uv_read_start((uv_stream_t *)&child->pipes[PIPE_ERR], on_alloc, on_read);
    if (request->deadline_ms > 0)
        uv_timer_start(&child->timer, on_deadline, request->deadline_ms, 0);
    send_input(child, request->input_length);
    *ret_child = child;
    return ERROR_NONE;
}

void child_cancel(struct child *child)
{
    child->cancelled = true;
    kill_group(child);
    if (child->exited)
        close_all(child);
    else
        uv_timer_stop(&child->timer);
}

void child_describe(const struct child_result *result, char *text, size_t size)
{
    char line[256];
    size_t length = strlen(result->error_text);
    while (length > 0 && result->error_text[length - 1] == '\n')
        length--;
    size_t from = length;
    while (from > 0 && result->error_text[from - 1] != '\n')
        from--;
    text_clean(result->error_text + from, length - from, line, sizeof line);
    const char *cause = result->timed_out ? "time limit, " : result->output_cut ? "too much output, " : "";
    const char *kind = result->signal != 0 ? "signal" : "exit status";
    snprintf(text, size, "%s%s %d%s%s", cause, kind, result->signal != 0 ? result->signal : result->exit_code,
             line[0] != '\0' ? ": " : "", line);
}
