/* Happy path: connect, look at the peer's uid, hello, then request and answer in turns.
 * Failures: a path that does not fit, nobody there, somebody else's program, no answer in time, a line that is too long
 * or no JSON, an end in the middle, an error that the peer names. Each has its code in client.h. */
#include "ctl/client.h"
#include "base/buffer.h"
#include "base/memory.h"
#include "base/text.h"
#include "ctl/now.h"

#include <errno.h>
#include <poll.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

struct client {
    int fd;
    int reader_fd; /* -1: none */
    uint64_t next_id;
    struct buffer received; /* bytes after the last line that was read */
};

static enum error_code check_peer(int fd, const char *path, struct error *err)
{
    struct ucred peer;
    socklen_t length = sizeof peer;
    if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &length) != 0)
        return error_set_errno(err, ERROR_SYSTEM, errno, "%s: cannot ask who listens there", path);
    if (peer.uid != geteuid() && peer.uid != 0)
        return error_set(err, ERROR_FORBIDDEN,
                         "%s: the program that listens there belongs to user %u, not to you or "
                         "root, and is not spoken to; have it ended, or choose a folder with KLDUMP_RUNTIME_DIR",
                         path, (unsigned)peer.uid);
    return ERROR_NONE;
}

static enum error_code open_socket(const char *path, int *ret_fd, struct error *err)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    if (strlen(path) >= sizeof address.sun_path)
        return error_set(err, ERROR_BAD_VALUE,
                         "%s: the path of the socket has %zu bytes, the limit is %zu; use a shorter runtime folder",
                         path, strlen(path), sizeof address.sun_path - 1);
    memcpy(address.sun_path, path, strlen(path) + 1);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return error_set_errno(err, ERROR_SYSTEM, errno, "cannot make a socket");
    /* a full queue of a stopped program must not hold us for ever */
    struct timeval patience = {.tv_sec = CLIENT_PATIENCE_MS / 1000};
    setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience);
    if (connect(fd, (struct sockaddr *)&address, sizeof address) != 0) {
        int saved = errno;
        close(fd);
        if (saved == ENOENT || saved == ECONNREFUSED || saved == ENOTDIR)
            return error_set(err, ERROR_NO_RUN, "%s: nobody listens there", path);
        if (saved == EAGAIN)
            return error_set(err, ERROR_TIMEOUT, "%s: the program that listens there takes no connection", path);
        return error_set_errno(err, saved == EACCES ? ERROR_FORBIDDEN : ERROR_SYSTEM, saved, "%s: cannot connect",
                               path);
    }
    enum error_code code = check_peer(fd, path, err);
    if (code != ERROR_NONE) {
        close(fd);
        return code;
    }
    *ret_fd = fd;
    return ERROR_NONE;
}

static enum error_code send_line(struct client *client, const struct buffer *line, struct error *err)
{
    for (size_t sent = 0; sent < line->length;) {
        ssize_t n = send(client->fd, line->data + sent, line->length - sent, MSG_NOSIGNAL);
        if (n >= 0) {
            sent += (size_t)n;
            continue;
        }
        if (errno == EAGAIN)
            return error_set(err, ERROR_TIMEOUT, "the other side does not read the request");
        if (errno == EPIPE || errno == ECONNRESET)
            return ERROR_NONE; /* it has closed: what it said last, why it did, is there to be read */
        if (errno != EINTR)
            return error_set_errno(err, ERROR_SYSTEM, errno, "cannot send the request");
    }
    return ERROR_NONE;
}

/* Waits until there is something to read. `end_ms` -1: no limit. */
static enum error_code wait_readable(struct client *client, int64_t end_ms, struct error *err)
{
    for (;;) {
        int64_t left = end_ms < 0 ? -1 : end_ms - now_ms();
        struct pollfd wait[] = {{.fd = client->fd, .events = POLLIN}, {.fd = client->reader_fd}};
        int step = left < 0 || left > 60000 ? 60000 : (int)left;
        int n = poll(wait, 2, end_ms >= 0 && left <= 0 ? 0 : step);
        if (n > 0 && wait[0].revents != 0)
            return ERROR_NONE;
        if (n > 0)
            return error_set(err, ERROR_INTERRUPTED, "nobody reads any more");
        if (n < 0 && errno != EINTR)
            return error_set_errno(err, ERROR_SYSTEM, errno, "cannot wait for the answer");
        if (end_ms >= 0 && now_ms() >= end_ms)
            return error_set(err, ERROR_TIMEOUT, "no answer in time");
    }
}

/* Reads one whole line into *line (without its end). */
static enum error_code read_line(struct client *client, int64_t end_ms, struct buffer *line, struct error *err)
{
    size_t looked = 0;
    for (;;) {
        struct buffer *in = &client->received;
        const char *end = memchr(in->data + looked, '\n', in->length - looked);
        size_t length = end != NULL ? (size_t)(end - in->data) : in->length;
        if (length > CLIENT_FRAME_MAX)
            return error_set(err, ERROR_PROTOCOL, "the answer is longer than %d bytes", CLIENT_FRAME_MAX);
        if (end != NULL) {
            buffer_clear(line);
            buffer_append(line, in->data, length);
            buffer_consume(in, length + 1);
            return ERROR_NONE;
        }
        looked = in->length;
        enum error_code code = wait_readable(client, end_ms, err);
        if (code != ERROR_NONE)
            return code;
        char bytes[16384];
        ssize_t n = recv(client->fd, bytes, sizeof bytes, MSG_DONTWAIT);
        if (n > 0)
            buffer_append(in, bytes, (size_t)n);
        else if (n == 0 || errno == ECONNRESET)
            return error_set(err, ERROR_UNREACHABLE, "the other side closed the connection before it answered");
        else if (errno != EAGAIN && errno != EINTR)
            return error_set_errno(err, ERROR_SYSTEM, errno, "cannot read the answer");
    }
}

static enum error_code peer_error(const struct json *error, struct error *err)
{
    const char *message = "", *name = "";
    char clean[700];
    if (json_get_string(error, "message", &message, NULL) != ERROR_NONE ||
        json_get_string(error, "data.error", &name, NULL) != ERROR_NONE)
        return error_set(err, ERROR_PROTOCOL, "the other side answered an error without a name");
    enum error_code code = error_from_name(name);
    /* "none" as an error is no success of ours */
    return error_set(err, code == ERROR_NONE ? ERROR_PROTOCOL : code, "%s",
                     text_clean(message, strlen(message), clean, sizeof clean));
}

/* Reads lines until the answer to request `id`. */
static enum error_code read_answer(struct client *client, uint64_t id, int64_t end_ms, struct json **ret_result,
                                   struct error *err)
{
    struct buffer line;
    buffer_init(&line);
    enum error_code code;
    for (;;) {
        struct json *answer = NULL;
        uint64_t answered = 0;
        code = read_line(client, end_ms, &line, err);
        if (code != ERROR_NONE)
            break;
        static const struct json_limits limits = {CLIENT_FRAME_MAX, CLIENT_DEPTH, CLIENT_VALUES_MAX};
        struct error broken = ERROR_INIT;
        if (json_parse(line.data, line.length, limits, &answer, &broken) != ERROR_NONE) {
            code = error_set(err, ERROR_PROTOCOL, "the answer cannot be used: %s", broken.message);
            break;
        }
        const struct json *error = json_member(answer, "error");
        bool ours = json_get_u64(answer, "id", &answered, NULL) == ERROR_NONE && answered == id;
        /* an error about a request that could not be read has no id */
        if (error != NULL && (ours || json_type(json_member(answer, "id")) == JSON_NULL)) {
            code = peer_error(error, err);
            json_free(answer);
            break;
        }
        if (ours) {
            const struct json *result = json_member(answer, "result");
            code = ERROR_NONE;
            if (result == NULL)
                code = error_set(err, ERROR_PROTOCOL, "the answer has neither a result nor an error");
            else
                *ret_result = json_copy(result);
            json_free(answer);
            break;
        }
        json_free(answer); /* of a request that was given up */
    }
    buffer_fini(&line);
    return code;
}

enum error_code client_call(struct client *client, const char *method, struct json *parameters, int64_t timeout_ms,
                            struct json **ret_result, struct error *err)
{
    int64_t end_ms = timeout_ms < 0 ? -1 : now_ms() + timeout_ms;
    uint64_t id = client->next_id++;
    struct json *request = json_object();
    struct buffer line;
    json_set_string(request, "jsonrpc", "2.0");
    json_set_u64(request, "id", id);
    json_set_string(request, "method", method);
    json_set_child(request, "params", parameters != NULL ? parameters : json_object());
    buffer_init(&line);
    json_print(request, &line);
    json_free(request);
    buffer_text(&line, "\n");
    enum error_code code = ERROR_NONE;
    if (line.length > CLIENT_FRAME_MAX)
        code = error_set(err, ERROR_TOO_LARGE, "the request has %zu bytes, the limit is %d", line.length,
                         CLIENT_FRAME_MAX);
    if (code == ERROR_NONE)
        code = send_line(client, &line, err);
    buffer_fini(&line);
    if (code == ERROR_NONE || code == ERROR_UNREACHABLE) /* who turns us away says why before he closes */
        code = read_answer(client, id, end_ms, ret_result, err);
    return code;
}

enum error_code client_connect(const char *path, struct client **ret_client, struct error *err)
{
    int fd = -1;
    enum error_code code = open_socket(path, &fd, err);
    if (code != ERROR_NONE)
        return code;
    struct client *client = memory_new(sizeof *client);
    client->fd = fd;
    client->reader_fd = -1;
    client->next_id = 1;
    buffer_init(&client->received);
    struct json *parameters = json_object(), *hello = NULL;
    json_set_u64(parameters, "version", CLIENT_VERSION);
    code = client_call(client, "hello", parameters, CLIENT_HELLO_MS, &hello, err);
    json_free(hello);
    if (code != ERROR_NONE) {
        client_free(client);
        error_prefix(err, "%s", path);
        return code;
    }
    *ret_client = client;
    return ERROR_NONE;
}

void client_watch_reader(struct client *client, int fd)
{
    client->reader_fd = fd;
}

bool client_reader_is_gone(const struct client *client)
{
    struct pollfd reader = {.fd = client->reader_fd};
    return poll(&reader, 1, 0) > 0;
}

void client_free(struct client *client)
{
    if (client == NULL)
        return;
    close(client->fd);
    buffer_fini(&client->received);
    free(client);
}
