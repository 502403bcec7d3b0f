/* Happy path: each pipe is read until end of file; bytes go to `bytes`, then line by line to `line`. After output_drain
 * the second end of file (or that it was there before) stops the timer and calls `drained`.
 *
 * A grandchild keeps a pipe open: the drain limit passes; what lies in the pipe at that moment is read by hand, up to
 * one pipe's capacity, because timers run before descriptors in a turn of the loop and a late turn would lose it.
 *
 * A reading error: as end of file.
 *
 * The last close callback frees; callbacks after output_close see `closing` and return. */
#include "loop/output.h"
#include "base/buffer.h"
#include "base/memory.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* libuv reads up to 32 times before it looks at anything else: small pieces, so that a server which prints as fast as
 * it can does not hold up the heartbeat on a busy machine. LAST_READS of them are more than a pipe holds. */
enum { READ_BYTES = 8 * 1024, LAST_READS = 16 };

struct stream {
    struct output *output;
    enum output_stream name;
    uv_pipe_t pipe;
    bool opened, ended;
    struct buffer line;
};

struct output {
    struct output_options options;
    struct stream streams[OUTPUT_STREAMS];
    uv_timer_t timer; /* drain limit; 0 ms when nothing is left to wait for */
    unsigned handles;
    bool closing, draining;
    uint64_t bytes;
    void (*drained)(bool complete, void *user);
    void *drained_user;
    void (*closed)(void *user);
    void *closed_user;
    char room[READ_BYTES];
};

static void end_line(struct stream *stream)
{
    struct output *output = stream->output;
    if (stream->line.length > 0 && output->options.line != NULL)
        output->options.line(stream->name, stream->line.data, stream->line.length, output->options.user);
    buffer_clear(&stream->line);
}

static size_t until_line_end(const char *data, size_t length)
{
    const char *feed = memchr(data, '\n', length);
    size_t line = feed != NULL ? (size_t)(feed - data) : length;
    const char *carriage = memchr(data, '\r', line);
    return carriage != NULL ? (size_t)(carriage - data) : line;
}

static void split(struct stream *stream, const char *data, size_t length)
{
    while (length > 0 && !stream->output->closing) {
        size_t part = until_line_end(data, length);
        size_t left = OUTPUT_LINE_MAX - stream->line.length;
        buffer_append(&stream->line, data, part < left ? part : left);
        if (part == length)
            return;
        end_line(stream);
        data += part + 1;
        length -= part + 1;
    }
}

static void take(struct stream *stream, const char *data, size_t length)
{
    struct output *output = stream->output;
    output->bytes += length;
    if (output->options.bytes != NULL)
        output->options.bytes(stream->name, data, length, output->options.user);
    if (!output->closing)
        split(stream, data, length);
}

static bool all_ended(const struct output *output)
{
    for (int i = 0; i < OUTPUT_STREAMS; i++)
        if (!output->streams[i].ended)
            return false;
    return true;
}

static void finish(struct output *output)
{
    bool complete = all_ended(output);
    output->draining = false;
    uv_timer_stop(&output->timer);
    for (int i = 0; i < OUTPUT_STREAMS && !output->closing; i++) {
        if (!output->streams[i].ended)
            uv_read_stop((uv_stream_t *)&output->streams[i].pipe);
        end_line(&output->streams[i]);
    }
    if (!output->closing)
        output->drained(complete, output->drained_user);
}

static void read_rest(struct stream *stream)
{
    struct output *output = stream->output;
    int descriptor;
    if (stream->ended || uv_fileno((uv_handle_t *)&stream->pipe, &descriptor) != 0)
        return;
    for (int i = 0; i < LAST_READS && !output->closing; i++) {
        ssize_t count = read(descriptor, output->room, sizeof output->room);
        if (count <= 0) {
            stream->ended = count == 0;
            return;
        }
        take(stream, output->room, (size_t)count);
    }
}

static void on_limit(uv_timer_t *timer)
{
    struct output *output = timer->data;
    if (output->closing || !output->draining)
        return;
    for (int i = 0; i < OUTPUT_STREAMS; i++)
        read_rest(&output->streams[i]);
    if (!output->closing)
        finish(output);
}

static void on_alloc(uv_handle_t *handle, size_t suggested, uv_buf_t *ret_buffer)
{
    (void)suggested;
    struct stream *stream = handle->data;
    *ret_buffer = uv_buf_init(stream->output->room, READ_BYTES);
}

static void on_read(uv_stream_t *handle, ssize_t count, const uv_buf_t *bytes)
{
    struct stream *stream = handle->data;
    struct output *output = stream->output;
    if (output->closing || count == 0)
        return;
    if (count > 0) {
        take(stream, bytes->base, (size_t)count);
        return;
    }
    uv_read_stop(handle);
    stream->ended = true;
    end_line(stream);
    if (!output->closing && output->draining && all_ended(output))
        finish(output);
}

static void free_output(struct output *output)
{
    for (int i = 0; i < OUTPUT_STREAMS; i++)
        buffer_fini(&output->streams[i].line);
    free(output);
}

static void on_closed(uv_handle_t *handle)
{
    struct output *output = handle->type == UV_TIMER ? handle->data : ((struct stream *)handle->data)->output;
    if (--output->handles > 0)
        return;
    void (*closed)(void *) = output->closed;
    void *user = output->closed_user;
    free_output(output);
    if (closed != NULL)
        closed(user);
}

static int open_stream(struct stream *stream, uv_loop_t *loop, int descriptor)
{
    if (descriptor < 0) {
        stream->ended = true;
        return 0;
    }
    uv_pipe_init(loop, &stream->pipe, 0);
    stream->pipe.data = stream;
    stream->opened = true;
    stream->output->handles++;
    int failure = uv_pipe_open(&stream->pipe, descriptor);
    if (failure != 0) {
        close(descriptor);
        return failure;
    }
    return uv_read_start((uv_stream_t *)&stream->pipe, on_alloc, on_read);
}

enum error_code output_start(uv_loop_t *loop, const struct output_options *options, struct output **ret_output,
                             struct error *err)
{
    struct output *output = memory_new(sizeof *output);
    output->options = *options;
    uv_timer_init(loop, &output->timer);
    output->timer.data = output;
    output->handles = 1;
    int failure = 0;
    for (int i = 0; i < OUTPUT_STREAMS; i++) {
        struct stream *stream = &output->streams[i];
        stream->output = output;
        stream->name = (enum output_stream)i;
        buffer_init(&stream->line);
        int result = open_stream(stream, loop, options->descriptors[i]);
        failure = failure != 0 ? failure : result;
    }
    if (failure != 0) {
        output_close(output, NULL, NULL);
        return error_set_errno(err, ERROR_SYSTEM, -failure, "cannot read the server's output");
    }
    *ret_output = output;
    return ERROR_NONE;
}

void output_drain(struct output *output, uint64_t limit_ms, void (*drained)(bool complete, void *user), void *user)
{
    output->draining = true;
    output->drained = drained;
    output->drained_user = user;
    uv_timer_start(&output->timer, on_limit, all_ended(output) ? 0 : limit_ms, 0);
}

uint64_t output_bytes(const struct output *output)
{
    return output->bytes;
}

void output_close(struct output *output, void (*closed)(void *user), void *user)
{
    output->closing = true;
    output->closed = closed;
    output->closed_user = user;
    uv_close((uv_handle_t *)&output->timer, on_closed);
    for (int i = 0; i < OUTPUT_STREAMS; i++)
        if (output->streams[i].opened)
            uv_close((uv_handle_t *)&output->streams[i].pipe, on_closed);
}
