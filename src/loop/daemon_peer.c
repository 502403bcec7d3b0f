/* Happy path: connected; the kernel says that the other end is the run's guard; hello and the request go out together;
 * hello's answer, then the request's, which is told; the connection stays open and quiet until it is closed.
 *
 * Nobody listens, another user's program, no hello in time, a broken line, the guard's end: told once with `ended`, and
 * the peer frees itself. `asked` says whether the request can have had an effect.
 *
 * A socket on a filesystem of its user's: connected to elsewhere (daemon_connect.h). Too many of that user's are waited
 * for: as if nobody listened, with the reason.
 *
 * daemon_peer_close at any time: both handles are closed, the last close callback frees. A connect or write under way
 * is cancelled by that; its callback comes before and finds `closing`. */
#include "loop/daemon_peer.h"
#include "base/buffer.h"
#include "base/memory.h"
#include "json/json.h"
#include "loop/control.h"
#include "loop/daemon_connect.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { HELLO_ID, REQUEST_ID };

struct daemon_peer {
    struct daemon_peer *next, **link;
    uv_pipe_t pipe;
    uv_timer_t timer;
    uv_connect_t connect;
    struct daemon_connect *elsewhere; /* NULL: not, or no more */
    struct error problem;             /* it is not connected to at all */
    uv_write_t write;
    unsigned handles;
    bool closing, asked, greeted, answered;
    uid_t uid;
    pid_t pid;
    uint64_t answer_ms;
    struct buffer output, input;
    size_t scanned; /* bytes of input known to hold no line end */
    void (*news)(const struct daemon_peer_news *news, void *user);
    void *user;
};

/* Between the two callbacks of one read, in one thread: nobody needs his own. */
static char room[64 * 1024];

/* All that are not freed yet, whosever. Of one thread, too. */
static struct daemon_peer *first;

/* False: with this peer the guards of its user hold too much. */
static bool has_room(const struct daemon_peer *peer, struct error *err)
{
    size_t held = 0;
    for (const struct daemon_peer *other = first; other != NULL; other = other->next)
        if (other->uid == peer->uid)
            held += other->input.capacity + other->output.capacity;
    if (peer->uid == 0 || held <= DAEMON_PEER_USER_BYTES)
        return true;
    error_set(err, ERROR_TOO_LARGE, "begun answers of user %u's guards take more than %d MiB, the limit for one user",
              (unsigned)peer->uid, DAEMON_PEER_USER_BYTES / 1024 / 1024);
    return false;
}

static void on_closed(uv_handle_t *handle)
{
    struct daemon_peer *peer = handle->data;
    if (--peer->handles > 0)
        return;
    *peer->link = peer->next;
    if (peer->next != NULL)
        peer->next->link = peer->link;
    buffer_fini(&peer->output);
    buffer_fini(&peer->input);
    free(peer);
}

void daemon_peer_close(struct daemon_peer *peer)
{
    if (peer->closing)
        return;
    peer->closing = true;
    if (peer->elsewhere != NULL)
        daemon_connect_cancel(peer->elsewhere);
    peer->elsewhere = NULL;
    uv_close((uv_handle_t *)&peer->pipe, on_closed);
    uv_close((uv_handle_t *)&peer->timer, on_closed);
}

static void end(struct daemon_peer *peer, const struct error *err)
{
    if (peer->closing)
        return;
    struct daemon_peer_news news = {.ended = true, .asked = peer->asked, .error = err};
    daemon_peer_close(peer);
    peer->news(&news, peer->user);
}

static void end_system(struct daemon_peer *peer, int failure, const char *what)
{
    struct error err = ERROR_INIT;
    error_set(&err, ERROR_UNREACHABLE, "%s: %s", what, uv_strerror(failure));
    end(peer, &err);
}

static void on_timer(uv_timer_t *timer)
{
    struct daemon_peer *peer = timer->data;
    struct error err = peer->problem;
    if (err.code == ERROR_NONE)
        error_set(&err, ERROR_TIMEOUT, "it does not answer");
    end(peer, &err);
}

/* ---- what comes ---- */

static void take_error(const struct json *message, struct error *ret_error)
{
    const char *name = "", *text = "";
    json_optional_string(message, "error.data.error", "internal", &name, NULL);
    json_optional_string(message, "error.message", "it gave no reason", &text, NULL);
    error_set(ret_error, error_from_name(name), "%s", text);
}

static void take_answer(struct daemon_peer *peer, const struct json *message, uint64_t id)
{
    struct error err = ERROR_INIT;
    bool failed = json_member(message, "error") != NULL;
    if (failed)
        take_error(message, &err);
    if (!peer->greeted && id == HELLO_ID) {
        peer->greeted = true;
        if (failed)
            end(peer, &err);
        else if (peer->answer_ms == UINT64_MAX)
            uv_timer_stop(&peer->timer);
        else
            uv_timer_start(&peer->timer, on_timer, peer->answer_ms, 0);
    } else if (peer->greeted && id == REQUEST_ID && !peer->answered && peer->output.length == 0) {
        peer->answered = true;
        uv_timer_stop(&peer->timer);
        struct daemon_peer_news news = {
            .asked = true, .answer = failed ? NULL : json_member(message, "result"), .error = failed ? &err : NULL};
        peer->news(&news, peer->user);
    } else {
        error_set(&err, ERROR_PROTOCOL, "it answered what was not asked");
        end(peer, &err);
    }
}

static void take_line(struct daemon_peer *peer, const char *line, size_t length)
{
    struct error err = ERROR_INIT;
    struct json *message = NULL;
    uint64_t id = UINT64_MAX;
    static const struct json_limits limits = {CONTROL_FRAME_MAX, JSON_DEPTH, CONTROL_ANSWER_VALUES};
    enum error_code code = json_parse(line, length, limits, &message, &err);
    /* an error without an id answers the connection as such: full, not allowed */
    bool whole = code == ERROR_NONE && json_type(json_member(message, "id")) == JSON_NULL &&
                 json_member(message, "error") != NULL;
    if (whole) {
        take_error(message, &err);
    } else if (code == ERROR_NONE) {
        code = json_get_u64(message, "id", &id, &err);
        if (code == ERROR_NONE && json_member(message, "error") == NULL &&
            json_type(json_member(message, "result")) != JSON_OBJECT)
            code = error_set(&err, ERROR_FORMAT, "neither result nor error");
    }
    if (code != ERROR_NONE) {
        error_prefix(&err, "it sent a broken answer");
        err.code = ERROR_PROTOCOL;
    }
    if (whole || code != ERROR_NONE)
        end(peer, &err);
    else
        take_answer(peer, message, id);
    json_free(message);
}

static void on_alloc(uv_handle_t *handle, size_t suggested, uv_buf_t *ret_buffer)
{
    (void)suggested;
    (void)handle;
    *ret_buffer = uv_buf_init(room, sizeof room);
}

static void on_read(uv_stream_t *stream, ssize_t count, const uv_buf_t *bytes)
{
    struct daemon_peer *peer = stream->data;
    struct error err = ERROR_INIT;
    if (peer->closing || count == 0)
        return;
    if (count < 0) {
        error_set(&err, ERROR_UNREACHABLE, "it closed the connection");
        end(peer, &err);
        return;
    }
    buffer_append(&peer->input, bytes->base, (size_t)count);
    char *line_end;
    while (!peer->closing &&
           (line_end = memchr(peer->input.data + peer->scanned, '\n', peer->input.length - peer->scanned)) != NULL) {
        size_t length = (size_t)(line_end - peer->input.data);
        take_line(peer, peer->input.data, length);
        buffer_consume(&peer->input, length + 1);
        peer->scanned = 0;
    }
    peer->scanned = peer->input.length;
    if (peer->closing)
        return;
    if (peer->input.length == 0 && peer->input.capacity > sizeof room) { /* quiet from now on, maybe for hours */
        buffer_fini(&peer->input);
        buffer_init(&peer->input);
    } else if (peer->input.length > sizeof room && !has_room(peer, &err)) {
        end(peer, &err);
        return;
    }
    if (peer->input.length > CONTROL_FRAME_MAX) {
        error_set(&err, ERROR_PROTOCOL, "it sent a line of more than %d bytes", CONTROL_FRAME_MAX);
        end(peer, &err);
    }
}

/* ---- connecting and asking ---- */

static void on_written(uv_write_t *request, int failure)
{
    struct daemon_peer *peer = request->data;
    buffer_fini(&peer->output);
    /* EPIPE: it has closed; why, it may have said, and the reading tells the end */
    if (failure != 0 && failure != UV_ECANCELED && failure != UV_EPIPE)
        end_system(peer, failure, "its socket");
}

/* The socket's file may be anybody's, and may have been replaced; this is asked of the kernel. */
static bool is_the_guard(struct daemon_peer *peer, struct error *err)
{
    uv_os_fd_t descriptor;
    struct ucred other = {0};
    socklen_t size = sizeof other;
    if (uv_fileno((uv_handle_t *)&peer->pipe, &descriptor) != 0 ||
        getsockopt(descriptor, SOL_SOCKET, SO_PEERCRED, &other, &size) != 0) {
        error_set_errno(err, ERROR_SYSTEM, errno, "who listens on its socket is not known");
        return false;
    }
    if (other.uid == peer->uid && (peer->pid == 0 || other.pid == peer->pid))
        return true;
    error_set(err, ERROR_FORBIDDEN,
              "a program of uid %u (pid %d) listens on its socket, and not its guard (uid %u, pid %d)",
              (unsigned)other.uid, (int)other.pid, (unsigned)peer->uid, (int)peer->pid);
    return false;
}

static void on_connected(uv_connect_t *request, int failure)
{
    struct daemon_peer *peer = request->data;
    struct error err = ERROR_INIT;
    if (peer->closing)
        return;
    if (failure != 0) {
        end_system(peer, failure, "its socket");
        return;
    }
    if (!is_the_guard(peer, &err) || (peer->output.length > sizeof room && !has_room(peer, &err))) {
        end(peer, &err);
        return;
    }
    uv_read_start((uv_stream_t *)&peer->pipe, on_alloc, on_read);
    uv_buf_t bytes = uv_buf_init(peer->output.data, (unsigned)peer->output.length);
    peer->asked = true;
    peer->write.data = peer;
    failure = uv_write(&peer->write, (uv_stream_t *)&peer->pipe, &bytes, 1, on_written);
    if (failure != 0)
        end_system(peer, failure, "its socket");
}

static void on_connected_elsewhere(int fd, int failure, void *user)
{
    struct daemon_peer *peer = user;
    peer->elsewhere = NULL;
    failure = -failure;
    if (fd >= 0)
        failure = uv_pipe_open(&peer->pipe, fd);
    if (fd >= 0 && failure != 0)
        close(fd);
    on_connected(&peer->connect, failure);
}

/* The news come later, also when nothing can be begun. */
static void connect_to(struct daemon_peer *peer, uv_loop_t *loop, const struct daemon_peer_target *target,
                       uint64_t hello_ms)
{
    char path[40];
    uv_timer_start(&peer->timer, on_timer, hello_ms, 0);
    if (!target->foreign) {
        /* of the descriptor, not the path: no link is followed, no length is a limit */
        snprintf(path, sizeof path, "/proc/self/fd/%d", target->socket_fd);
        uv_pipe_connect(&peer->connect, &peer->pipe, path, on_connected);
        return;
    }
    if (daemon_connect_new(loop, target->socket_fd, target->uid, on_connected_elsewhere, peer, &peer->elsewhere,
                           &peer->problem) == ERROR_NONE)
        return;
    peer->problem.code = ERROR_UNREACHABLE;
    uv_timer_start(&peer->timer, on_timer, 0, 0);
}

/* One line; takes `parameters` over. */
static void add_request(struct daemon_peer *peer, uint64_t id, const char *method, struct json *parameters)
{
    struct json *message = json_object();
    json_set_string(message, "jsonrpc", "2.0");
    json_set_u64(message, "id", id);
    json_set_string(message, "method", method);
    json_set_child(message, "params", parameters);
    json_print(message, &peer->output);
    buffer_text(&peer->output, "\n");
    json_free(message);
}

struct daemon_peer *daemon_peer_new(uv_loop_t *loop, const struct daemon_peer_target *target, const char *method,
                                    struct json *parameters, uint64_t hello_ms, uint64_t answer_ms,
                                    void (*news)(const struct daemon_peer_news *news, void *user), void *user)
{
    struct daemon_peer *peer = memory_new(sizeof *peer);
    struct json *hello = json_object();
    json_set_u64(hello, "version", CONTROL_VERSION);
    if (target->by != NULL)
        json_set_string(hello, "by", target->by);
    buffer_init(&peer->output);
    buffer_init(&peer->input);
    add_request(peer, HELLO_ID, "hello", hello);
    add_request(peer, REQUEST_ID, method, parameters);
    peer->uid = target->uid;
    peer->pid = target->pid;
    peer->answer_ms = answer_ms;
    peer->news = news;
    peer->user = user;
    peer->handles = 2;
    peer->next = first;
    peer->link = &first;
    if (first != NULL)
        first->link = &peer->next;
    first = peer;
    uv_pipe_init(loop, &peer->pipe, 0);
    uv_timer_init(loop, &peer->timer);
    peer->pipe.data = peer->timer.data = peer->connect.data = peer;
    connect_to(peer, loop, target, hello_ms);
    return peer;
}
