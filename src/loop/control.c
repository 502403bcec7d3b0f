/* Happy path: the listener's callback accepts, asks the kernel who it is, and starts to read. Bytes are gathered until
 * a line is whole; control_frame.c reads it and calls a handler; the answer is queued by control_send. When the client
 * closes, the connection's handles are closed, and their last callback calls `gone` and frees.
 *
 * One user cannot keep the others out: CONTROL_PER_UID, and where all are taken, whoever has most gives one to whoever
 * has fewer; other users cannot keep root out: CONTROL_RESERVED; those who
 * may not come at all cannot keep anybody out: they are not counted, and beyond CONTROL_REFUSED not even answered.
 *
 * Not allowed, too many, no hello in time, a broken first request: one error line, then `ending`: input is thrown away
 * (so that closing with unread bytes does not reset the connection before the client has read the line), closed when
 * the line is sent, at the latest after ENDING_MS.
 *
 * A client that goes before its answer: its requests lose their connection and stay the handlers'; the answer is
 * dropped. End of file counts as gone: a Unix socket does not tell a half close from a close until one writes.
 *
 * What one user's clients hold together is counted (control_account.c); the one with which it becomes too much is told
 * so and closed, or its request refused.
 *
 * They come faster than we take them: CONTROL_BURST in one turn of the loop, so that those who are there are served.
 *
 * A client that does not read: libuv queues; beyond CONTROL_QUEUE_MAX it is closed. control_send may be called by a
 * handler's caller, so nothing is freed and nobody is called there: both wait for the close callback.
 *
 * The socket file has gone: control_look binds a new one and puts its listener in the place of the old one, whose
 * clients stay.
 *
 * No descriptor left for accept: libuv takes the connection on its spare descriptor and closes it.
 *
 * control_close with answers queued: they are sent until the drain limit; then everything is closed. Each connection
 * counts as a handle of the server, and the last close callback frees the server and calls `closed`. */
#include "base/memory.h"
#include "loop/control_private.h"
#include "sys/passing.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

enum { HELLO_MS = 10000, ENDING_MS = 2000, CONTROL_BACKLOG = 1024 };

struct write {
    uv_write_t request;
    char *data;
    size_t bytes; /* of memory, in the account */
};

enum { INPUT_KEPT = 64 * 1024 /* room that a connection keeps for its next line */ };

/* -- the end of things -- */

/* NULL: who it is could not be found out; he is being told so. */
static struct control_account *account_of(const struct control_connection *connection)
{
    return connection->peer != NULL ? connection->peer->account : NULL;
}

/* The room of the begun line, as it is now. */
static void count_input(struct control_connection *connection)
{
    control_account_change(account_of(connection), connection->counted, connection->input.capacity);
    connection->counted = connection->input.capacity;
}

static void drop_input(struct control_connection *connection)
{
    buffer_fini(&connection->input);
    buffer_init(&connection->input);
    connection->scanned = 0;
    count_input(connection);
}

static void drop_server_handle(struct control_server *server)
{
    if (--server->handles > 0)
        return;
    void (*closed)(void *) = server->closed;
    void *user = server->closed_user;
    control_account_forget(server);
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

static void on_listener_closed(uv_handle_t *handle)
{
    struct control_server *server = handle->data;
    free(handle);
    drop_server_handle(server);
}

static void close_listener(struct control_server *server)
{
    uv_close((uv_handle_t *)server->listener, on_listener_closed);
    server->listener = NULL;
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
    server->refused -= connection->refused;
    if (connection->admitted)
        connection->peer->account->connections--;
    drop_input(connection);
    buffer_fini(&connection->input);
    count_input(connection);
    control_peer_drop(connection->peer);
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
    control_account_change(account_of(connection), write->bytes, 0);
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
    write->bytes = sizeof *write + line->capacity;
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
    control_account_change(account_of(connection), 0, write->bytes);
    size_t unread = uv_stream_get_write_queue_size(stream);
    if (unread > CONTROL_QUEUE_MAX ||
        (unread > 0 && control_account_check(account_of(connection), 0, unread, NULL) != ERROR_NONE))
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
        drop_input(connection);
        return;
    }
    buffer_consume(input, from);
    connection->scanned -= from;
    if (input->length == 0 && input->capacity > INPUT_KEPT)
        drop_input(connection);
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
    count_input(connection);
    take_lines(connection);
    struct error problem = ERROR_INIT;
    if (!still_reading(connection) || connection->input.length == 0 ||
        control_account_check(account_of(connection), 0, connection->input.capacity, &problem) == ERROR_NONE)
        return;
    control_send_problem(connection, -32000, problem.code, problem.message);
    control_end(connection);
    drop_input(connection);
}

/* -- connecting -- */

static enum error_code find_peer(struct control_connection *connection, struct error *err)
{
    int descriptor;
    if (uv_fileno((uv_handle_t *)&connection->pipe, &descriptor) != 0)
        return error_set(err, ERROR_SYSTEM, "the connection has no descriptor");
    return control_peer_new(connection->server, descriptor, &connection->peer, err);
}

/* Tells why, unless so many are being told already that these are somebody's weapon. */
static void turn_away(struct control_connection *connection, const struct error *problem)
{
    connection->refused = true;
    if (connection->admitted)
        connection->peer->account->connections--;
    connection->admitted = false;
    if (connection->server->refused++ >= CONTROL_REFUSED) {
        close_connection(connection);
        return;
    }
    control_send_problem(connection, -32000, problem->code, problem->message);
    control_end(connection);
}

/* All are taken: the user who has most of them gives one up, the newest that waits for nothing, if there is one. False:
 * nobody has more than this one would have. */
static bool make_room(struct control_server *server, const struct control_peer *peer)
{
    struct control_account *most = NULL;
    struct control_connection *found = NULL;
    struct error problem = ERROR_INIT;
    for (struct control_account *account = server->accounts; account != NULL; account = account->next)
        if (account->uid != 0 && (most == NULL || account->connections > most->connections))
            most = account;
    if (most == NULL || most->connections <= peer->account->connections + 1)
        return false;
    for (struct control_connection *c = server->first; c != NULL; c = c->next)
        if (c->admitted && !c->closing && c->peer->account == most &&
            (found == NULL || (found->outstanding > 0 && c->outstanding == 0)))
            found = c;
    if (found == NULL)
        return false;
    error_set(&problem, ERROR_BUSY,
              "closed to make room for another user: all connections are taken, and user %u has most, %zu",
              (unsigned)most->uid, most->connections);
    turn_away(found, &problem);
    return true;
}

/* Whether this client is turned away, and why. */
static enum error_code admit(const struct control_connection *connection, struct error *err)
{
    struct control_server *server = connection->server;
    const struct control_options *options = &server->options;
    const struct control_peer *peer = connection->peer;
    if (peer->uid != options->owner && peer->uid != 0) {
        if (options->admit == NULL)
            return error_set(err, ERROR_FORBIDDEN, "only user %u, whose %s this is, and root may connect",
                             (unsigned)options->owner, options->run != NULL ? "run" : "kldumpd");
        enum error_code code =
            options->admit(peer->uid, peer->gid, peer->groups, peer->group_count, options->user, err);
        if (code != ERROR_NONE)
            return code;
    }
    if (peer->uid != 0 && peer->account->connections >= CONTROL_PER_UID)
        return error_set(err, ERROR_BUSY, "%d connections of user %u are open, the limit for one user; close some",
                         CONTROL_PER_UID, (unsigned)peer->uid);
    size_t most = peer->uid == 0 ? CONTROL_TOTAL : CONTROL_TOTAL - CONTROL_RESERVED;
    if (server->count - server->refused > most && (peer->uid == 0 || !make_room(server, peer)))
        return error_set(err, ERROR_BUSY, "%zu connections of all users are open, the limit; close some", most);
    return ERROR_NONE;
}

static struct control_connection *make_connection(struct control_server *server)
{
    struct control_connection *connection = memory_new(sizeof *connection);
    connection->server = server;
    uv_pipe_init(server->drain.loop, &connection->pipe, 0);
    uv_timer_init(server->drain.loop, &connection->timer);
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

static void take_connection(struct control_server *server, uv_stream_t *listener)
{
    struct control_connection *connection = make_connection(server);
    struct error problem = ERROR_INIT;
    if (uv_accept(listener, (uv_stream_t *)&connection->pipe) != 0 ||
        uv_read_start((uv_stream_t *)&connection->pipe, on_alloc, on_read) != 0) {
        close_connection(connection);
        return;
    }
    enum error_code code = find_peer(connection, &problem);
    if (code == ERROR_NONE)
        code = admit(connection, &problem);
    if (code != ERROR_NONE) {
        turn_away(connection, &problem);
        return;
    }
    connection->admitted = true;
    connection->peer->account->connections++;
    uv_timer_start(&connection->timer, on_timer, HELLO_MS, 0);
}

static void on_next_turn(uv_timer_t *timer)
{
    struct control_server *server = timer->data;
    bool held = server->held;
    server->burst = 0;
    server->held = false;
    if (held && !server->closing)
        take_connection(server, (uv_stream_t *)server->listener);
}

/* libuv goes on as long as somebody knocks, which can be for ever; it stops when one is not taken at once. */
static void on_connection(uv_stream_t *listener, int status)
{
    struct control_server *server = listener->data;
    if (server->closing || status < 0)
        return;
    if (server->burst == 0)
        uv_timer_start(&server->next_turn, on_next_turn, 0, 0);
    server->held = server->burst++ == CONTROL_BURST;
    if (!server->held)
        take_connection(server, listener);
}

/* -- the server -- */

/* Listens on `descriptor`, which is taken over in any case; in place of the listener that is there. */
static int open_listener(struct control_server *server, uv_loop_t *loop, int descriptor)
{
    uv_pipe_t *listener = memory_new(sizeof *listener);
    uv_pipe_init(loop, listener, 0);
    listener->data = server;
    server->handles++;
    passing_refuse(descriptor);
    int failure = uv_pipe_open(listener, descriptor);
    if (failure != 0)
        close(descriptor);
    else
        failure = uv_listen((uv_stream_t *)listener, CONTROL_BACKLOG, on_connection);
    if (failure != 0) {
        uv_close((uv_handle_t *)listener, on_listener_closed);
        return failure;
    }
    if (server->listener != NULL)
        close_listener(server);
    server->held = false;
    server->listener = listener;
    return 0;
}

static mode_t mode_of(const struct control_options *options)
{
    return options->mode != 0 ? options->mode : 0600;
}

enum error_code control_listen(uv_loop_t *loop, const struct control_options *options,
                               struct control_server **ret_server, struct error *err)
{
    int descriptor = options->descriptor;
    uint64_t device = 0, inode = 0;
    bool bound = descriptor == 0;
    enum error_code code = ERROR_NONE;
    if (bound)
        code = control_bind(options->path, mode_of(options), &descriptor, &device, &inode, err);
    if (code != ERROR_NONE)
        return code;
    struct control_server *server = memory_new(sizeof *server);
    server->options = *options;
    server->options.path = memory_copy(options->path);
    server->options.program = memory_copy(options->program);
    server->options.run = options->run != NULL ? memory_copy(options->run) : NULL;
    server->bound = bound;
    server->device = device;
    server->inode = inode;
    uv_timer_init(loop, &server->drain);
    uv_timer_init(loop, &server->next_turn);
    server->drain.data = server->next_turn.data = server;
    server->handles = 2;
    int failure = open_listener(server, loop, descriptor);
    if (failure != 0) {
        if (bound)
            control_unbind(options->path, device, inode);
        server->closing = true;
        uv_close((uv_handle_t *)&server->next_turn, on_server_handle_closed);
        uv_close((uv_handle_t *)&server->drain, on_server_handle_closed);
        return error_set_errno(err, ERROR_SYSTEM, -failure, "cannot listen on %s", options->path);
    }
    *ret_server = server;
    return ERROR_NONE;
}

enum error_code control_look(struct control_server *server, bool *ret_again, struct error *err)
{
    struct stat status;
    if (ret_again != NULL)
        *ret_again = false;
    if (server->closing || !server->bound || lstat(server->options.path, &status) == 0 || errno != ENOENT)
        return ERROR_NONE;
    int descriptor = -1;
    uint64_t device, inode;
    enum error_code code =
        control_bind(server->options.path, mode_of(&server->options), &descriptor, &device, &inode, err);
    if (code != ERROR_NONE)
        return code;
    int failure = open_listener(server, server->drain.loop, descriptor);
    if (failure != 0) {
        control_unbind(server->options.path, device, inode);
        return error_set_errno(err, ERROR_SYSTEM, -failure, "cannot listen on %s", server->options.path);
    }
    server->device = device;
    server->inode = inode;
    if (ret_again != NULL)
        *ret_again = true;
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
    if (server->bound)
        control_unbind(server->options.path, server->device, server->inode);
    close_listener(server);
    uv_close((uv_handle_t *)&server->next_turn, on_server_handle_closed);
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
