/* Happy path: the listener's callback accepts, asks the kernel who it is, and starts to read. Bytes are gathered until
 * a line is whole; control_frame.c reads it and calls a handler; the answer is queued by control_send. When the client
 * closes, the connection's handles are closed, and their last callback calls `gone` and frees.
 *
 * Not allowed, too many, no hello in time, a broken first request: one error line, then `ending`: input is thrown away
 * (so that closing with unread bytes does not reset the connection before the client has read the line), closed when
 * the line is sent, at the latest after ENDING_MS.
 *
 * A client that goes before its answer: its requests lose their connection and stay the handlers'; the answer is
 * dropped. End of file counts as gone: a Unix socket does not tell a half close from a close until one writes.
 *
 * A client that does not read: libuv queues; beyond CONTROL_QUEUE_MAX it is closed. control_send may be called by a
 * handler's caller, so nothing is freed and nobody is called there: both wait for the close callback.
 *
 * No descriptor left for accept: libuv takes the connection on its spare descriptor and closes it.
 *
 * control_close with answers queued: they are sent until the drain limit; then everything is closed. Each connection
 * counts as a handle of the server, and the last close callback frees the server and calls `closed`. */
#include "base/memory.h"
#include "loop/control_private.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { HELLO_MS = 10000, ENDING_MS = 2000 };

struct write {
    uv_write_t request;
    char *data;
};

/* -- the end of things -- */

static void drop_server_handle(struct control_server *server)
{
    if (--server->handles > 0)
        return;
    void (*closed)(void *) = server->closed;
    void *user = server->closed_user;
    free((char *)server->options.path);
    free((char *)server->options.program);
    free((char *)server->options.run);
    free(server);
    if (closed != NULL)
        closed(user);
}

static void on_server_handle_closed(uv_handle_t *handle)
{
    drop_server_handle(handle->data);
}

static void on_connection_handle_closed(uv_handle_t *handle)
{
    struct control_connection *connection = handle->data;
    struct control_server *server = connection->server;
    if (--connection->handles > 0)
        return;
    control_orphan_pending(connection);
    if (connection->accepted && !server->closing && server->options.gone != NULL)
        server->options.gone(connection, server->options.user);
    *connection->link = connection->next;
    if (connection->next != NULL)
        connection->next->link = connection->link;
    server->count--;
    buffer_fini(&connection->input);
    free(connection);
    if (server->closing && server->first == NULL && !uv_is_closing((uv_handle_t *)&server->drain))
        uv_close((uv_handle_t *)&server->drain, on_server_handle_closed); /* nobody is left to drain */
    drop_server_handle(server);
}

static void close_connection(struct control_connection *connection)
{
    if (connection->closing)
        return;
    connection->closing = true;
    uv_close((uv_handle_t *)&connection->pipe, on_connection_handle_closed);
    uv_close((uv_handle_t *)&connection->timer, on_connection_handle_closed);
}

static void on_timer(uv_timer_t *timer)
{
    struct control_connection *connection = timer->data;
    if (connection->closing)
        return;
    if (connection->ending) {
        close_connection(connection);
        return;
    }
    control_send_problem(connection, -32600, ERROR_TIMEOUT, "no hello came within 10 s");
    control_end(connection);
}

/* -- sending -- */

static void on_written(uv_write_t *request, int status)
{
    struct control_connection *connection = request->data;
    struct write *write = (struct write *)request;
    free(write->data);
    free(write);
    connection->writes--;
    if (status < 0 || (connection->ending && connection->writes == 0))
        close_connection(connection);
}

void control_send(struct control_connection *connection, struct buffer *line)
{
    if (connection->closing) {
        buffer_clear(line);
        return;
    }
    buffer_append(line, "\n", 1);
    struct write *write = memory_new(sizeof *write);
    size_t length = line->length;
    write->data = buffer_steal(line);
    write->request.data = connection;
    uv_buf_t bytes = uv_buf_init(write->data, (unsigned)length);
    uv_stream_t *stream = (uv_stream_t *)&connection->pipe;
    if (uv_write(&write->request, stream, &bytes, 1, on_written) != 0) {
        free(write->data);
        free(write);
        close_connection(connection);
        return;
    }
    connection->writes++;
    if (uv_stream_get_write_queue_size(stream) > CONTROL_QUEUE_MAX)
        close_connection(connection);
}

void control_end(struct control_connection *connection)
{
    if (connection->closing || connection->ending)
        return;
    connection->ending = true;
    if (connection->writes == 0)
        close_connection(connection);
    else
        uv_timer_start(&connection->timer, on_timer, ENDING_MS, 0);
}

/* -- receiving -- */

static void on_alloc(uv_handle_t *handle, size_t suggested, uv_buf_t *ret_buffer)
{
    (void)suggested;
    struct control_connection *connection = handle->data;
    *ret_buffer = uv_buf_init(connection->server->room, sizeof connection->server->room);
}

static bool still_reading(const struct control_connection *connection)
{
    return !connection->closing && !connection->ending && !connection->server->closing;
}

static void take_lines(struct control_connection *connection)
{
    struct buffer *input = &connection->input;
    size_t from = 0;
    while (still_reading(connection)) {
        const char *start = input->data + connection->scanned;
        const char *line_end = memchr(start, '\n', input->length - connection->scanned);
        size_t to = line_end != NULL ? (size_t)(line_end - input->data) : input->length;
        connection->scanned = to;
        if (to - from > CONTROL_FRAME_MAX) {
            control_send_problem(connection, -32600, ERROR_TOO_LARGE, "a request is longer than 1 MiB");
            control_end(connection);
            break;
        }
        if (line_end == NULL)
            break;
        connection->scanned = to + 1;
        if (!connection->accepted)
            uv_timer_stop(&connection->timer);
        control_take_frame(connection, input->data + from, to - from);
        from = to + 1;
    }
    if (!still_reading(connection)) {
        buffer_clear(input);
        connection->scanned = 0;
        return;
    }
    buffer_consume(input, from);
    connection->scanned -= from;
}

static void on_read(uv_stream_t *stream, ssize_t count, const uv_buf_t *bytes)
{
    struct control_connection *connection = stream->data;
    if (connection->closing || count == 0)
        return;
    if (count < 0) {
        close_connection(connection);
        return;
    }
    if (!still_reading(connection))
        return;
    buffer_append(&connection->input, bytes->base, (size_t)count);
    take_lines(connection);
}

/* -- connecting -- */

static size_t connections_of(const struct control_server *server, uid_t uid)
{
    size_t count = 0;
    for (const struct control_connection *c = server->first; c != NULL; c = c->next)
        count += c->uid == uid;
    return count;
}

static bool find_peer(struct control_connection *connection)
{
    int descriptor;
    struct ucred peer;
    socklen_t size = sizeof peer;
    if (uv_fileno((uv_handle_t *)&connection->pipe, &descriptor) != 0 ||
        getsockopt(descriptor, SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0)
        return false;
    connection->uid = peer.uid;
    connection->pid = peer.pid;
    return true;
}

/* Why this client is turned away; ERROR_NONE when it is not. */
static enum error_code refusal(const struct control_connection *connection, const char **ret_text)
{
    const struct control_server *server = connection->server;
    if (connection->uid != server->options.owner && connection->uid != 0) {
        *ret_text = "only the run's owner and root may connect";
        return ERROR_FORBIDDEN;
    }
    if (server->count > CONTROL_TOTAL || connections_of(server, connection->uid) > CONTROL_PER_UID) {
        *ret_text = "too many connections; close some";
        return ERROR_BUSY;
    }
    return ERROR_NONE;
}

static struct control_connection *make_connection(struct control_server *server)
{
    struct control_connection *connection = memory_new(sizeof *connection);
    connection->server = server;
    uv_pipe_init(server->listener.loop, &connection->pipe, 0);
    uv_timer_init(server->listener.loop, &connection->timer);
    connection->pipe.data = connection->timer.data = connection;
    connection->handles = 2;
    buffer_init(&connection->input);
    connection->next = server->first;
    connection->link = &server->first;
    if (server->first != NULL)
        server->first->link = &connection->next;
    server->first = connection;
    server->count++;
    server->handles++;
    return connection;
}

static void on_connection(uv_stream_t *listener, int status)
{
    struct control_server *server = listener->data;
    if (server->closing || status < 0)
        return;
    struct control_connection *connection = make_connection(server);
    const char *text = NULL;
    if (uv_accept(listener, (uv_stream_t *)&connection->pipe) != 0 || !find_peer(connection) ||
        uv_read_start((uv_stream_t *)&connection->pipe, on_alloc, on_read) != 0) {
        close_connection(connection);
        return;
    }
    enum error_code code = refusal(connection, &text);
    if (code != ERROR_NONE) {
        control_send_problem(connection, -32000, code, text);
        control_end(connection);
        return;
    }
    uv_timer_start(&connection->timer, on_timer, HELLO_MS, 0);
}

/* -- the server -- */

static void close_server_handles(struct control_server *server)
{
    uv_close((uv_handle_t *)&server->listener, on_server_handle_closed);
    uv_close((uv_handle_t *)&server->drain, on_server_handle_closed);
}

enum error_code control_listen(uv_loop_t *loop, const struct control_options *options,
                               struct control_server **ret_server, struct error *err)
{
    int descriptor;
    uint64_t device, inode;
    enum error_code code = control_bind(options->path, &descriptor, &device, &inode, err);
    if (code != ERROR_NONE)
        return code;
    struct control_server *server = memory_new(sizeof *server);
    server->options = *options;
    server->options.path = memory_copy(options->path);
    server->options.program = memory_copy(options->program);
    server->options.run = options->run != NULL ? memory_copy(options->run) : NULL;
    server->device = device;
    server->inode = inode;
    uv_pipe_init(loop, &server->listener, 0);
    uv_timer_init(loop, &server->drain);
    server->listener.data = server->drain.data = server;
    server->handles = 2;
    int failure = uv_pipe_open(&server->listener, descriptor);
    if (failure != 0)
        close(descriptor);
    else
        failure = uv_listen((uv_stream_t *)&server->listener, CONTROL_TOTAL, on_connection);
    if (failure != 0) {
        control_unbind(options->path, device, inode);
        server->closing = true;
        close_server_handles(server);
        return error_set_errno(err, ERROR_SYSTEM, -failure, "cannot listen on %s", options->path);
    }
    *ret_server = server;
    return ERROR_NONE;
}

size_t control_connections(const struct control_server *server)
{
    return server->count;
}

static void on_drain_limit(uv_timer_t *timer)
{
    struct control_server *server = timer->data;
    for (struct control_connection *c = server->first; c != NULL; c = c->next)
        close_connection(c);
    if (!uv_is_closing((uv_handle_t *)timer))
        uv_close((uv_handle_t *)timer, on_server_handle_closed);
}

void control_close(struct control_server *server, uint64_t drain_ms, void (*closed)(void *user), void *user)
{
    server->closing = true;
    server->closed = closed;
    server->closed_user = user;
    control_unbind(server->options.path, server->device, server->inode);
    uv_close((uv_handle_t *)&server->listener, on_server_handle_closed);
    bool queued = false;
    for (struct control_connection *c = server->first; c != NULL; c = c->next) {
        control_end(c);
        queued |= !c->closing;
    }
    if (queued && drain_ms > 0)
        uv_timer_start(&server->drain, on_drain_limit, drain_ms, 0);
    else
        on_drain_limit(&server->drain);
}
