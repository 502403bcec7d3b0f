#include "http_server.h"

#include <arpa/inet.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { CONNECTIONS_MAX = 128 };

struct connection {
    struct http_server *server;
    int fd;
    pthread_t thread;
};

struct http_server {
    int listener, stop[2];
    uint16_t port;
    pthread_t thread;
    atomic_uint count;
    struct connection connections[CONNECTIONS_MAX];
};

static bool say(int fd, const char *data, size_t length)
{
    while (length > 0) {
        ssize_t n = send(fd, data, length, MSG_NOSIGNAL);
        if (n <= 0)
            return false;
        data += n;
        length -= (size_t)n;
    }
    return true;
}

static bool answer(int fd, const char *status, const char *body, size_t length)
{
    char head[200];
    int n = snprintf(head, sizeof head, "HTTP/1.1 %s\r\nContent-Length: %zu\r\nLocation: /ok\r\n\r\n", status, length);
    return say(fd, head, (size_t)n) && say(fd, body, length);
}

/* True when told to stop within the time. */
static bool stopped(const struct http_server *server, int ms)
{
    struct pollfd stop = {.fd = server->stop[0], .events = POLLIN};
    return poll(&stop, 1, ms) != 0;
}

static bool dribble(const struct http_server *server, int fd)
{
    say(fd, "HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n", 41);
    while (say(fd, "x", 1))
        if (stopped(server, 50))
            break;
    return false;
}

static bool endless(int fd)
{
    char chunk[1032];
    memset(chunk, 'x', sizeof chunk);
    memcpy(chunk, "400\r\n", 5);
    memcpy(chunk + 1029, "\r\n", 2);
    say(fd, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", 47);
    while (say(fd, chunk, 1031))
        ;
    return false;
}

static bool big(int fd)
{
    size_t length = 200 * 1024;
    char *body = calloc(1, length);
    bool fine = answer(fd, "200 OK", body, length);
    free(body);
    return fine;
}

/* Answers one request; false: the connection ends. */
static bool serve(const struct http_server *server, int fd, const char *head, const char *body, size_t body_length)
{
    char path[64] = "";
    sscanf(head, "%*s %63s", path);
    if (strcmp(path, "/ok") == 0)
        return answer(fd, "200 OK", "hello", 5);
    if (strcmp(path, "/echo") == 0)
        return answer(fd, "200 OK", body, body_length);
    if (strcmp(path, "/key") == 0)
        return strstr(head, "Authorization: Bearer s3cret\r\n") != NULL ? answer(fd, "200 OK", "in", 2)
                                                                        : answer(fd, "401 Unauthorized", "out", 3);
    if (strcmp(path, "/redirect") == 0)
        return answer(fd, "302 Found", "", 0);
    if (strcmp(path, "/garbage") == 0)
        return say(fd, "\x01\x02 what?\r\n\r\n", 12) && false;
    if (strcmp(path, "/short") == 0)
        return say(fd, "HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhello", 45) && false;
    if (strcmp(path, "/slow") == 0)
        return dribble(server, fd);
    if (strcmp(path, "/never") == 0)
        return stopped(server, -1) && false;
    if (strcmp(path, "/big") == 0)
        return big(fd);
    if (strcmp(path, "/endless") == 0)
        return endless(fd);
    return false;
}

static void *talk(void *user)
{
    struct connection *connection = user;
    char bytes[65536];
    size_t used = 0;
    for (;;) {
        char *end = used > 0 ? memmem(bytes, used, "\r\n\r\n", 4) : NULL;
        size_t head_length = end != NULL ? (size_t)(end - bytes) + 4 : 0, body_length = 0;
        if (end != NULL) {
            const char *length = memmem(bytes, head_length, "Content-Length: ", 16);
            body_length = length != NULL ? strtoul(length + 16, NULL, 10) : 0;
        }
        if (end == NULL || used < head_length + body_length) {
            ssize_t n = recv(connection->fd, bytes + used, sizeof bytes - 1 - used, 0);
            if (n <= 0)
                break;
            used += (size_t)n;
            bytes[used] = '\0';
            continue;
        }
        if (!serve(connection->server, connection->fd, bytes, bytes + head_length, body_length))
            break;
        used -= head_length + body_length;
        memmove(bytes, bytes + head_length + body_length, used);
    }
    shutdown(connection->fd, SHUT_RDWR);
    return NULL;
}

static void *take_connections(void *user)
{
    struct http_server *server = user;
    for (;;) {
        struct pollfd wait[] = {{.fd = server->stop[0], .events = POLLIN}, {.fd = server->listener, .events = POLLIN}};
        poll(wait, 2, -1);
        unsigned count = atomic_load(&server->count);
        if (wait[0].revents != 0 || count == CONNECTIONS_MAX)
            return NULL;
        struct connection *connection = &server->connections[count];
        connection->server = server;
        connection->fd = accept(server->listener, NULL, NULL);
        if (connection->fd < 0)
            continue;
        pthread_create(&connection->thread, NULL, talk, connection);
        atomic_store(&server->count, count + 1);
    }
}

struct http_server *http_server_start(void)
{
    struct http_server *server = calloc(1, sizeof *server);
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t length = sizeof address;
    server->listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (pipe(server->stop) != 0 || bind(server->listener, (struct sockaddr *)&address, length) != 0 ||
        listen(server->listener, 64) != 0)
        abort();
    getsockname(server->listener, (struct sockaddr *)&address, &length);
    server->port = ntohs(address.sin_port);
    pthread_create(&server->thread, NULL, take_connections, server);
    return server;
}

uint16_t http_server_port(const struct http_server *server)
{
    return server->port;
}

unsigned http_server_connections(const struct http_server *server)
{
    return atomic_load(&((struct http_server *)server)->count);
}

void http_server_stop(struct http_server *server)
{
    close(server->stop[1]);
    pthread_join(server->thread, NULL);
    for (unsigned i = 0; i < atomic_load(&server->count); i++) {
        shutdown(server->connections[i].fd, SHUT_RDWR);
        pthread_join(server->connections[i].thread, NULL);
        close(server->connections[i].fd);
    }
    close(server->stop[0]);
    close(server->listener);
    free(server);
}
