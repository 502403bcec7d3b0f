/* http.c: see http.h. */
#include "http.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "knobs.h"
#include "log.h"
#include "tls.h"

enum { HEAD_MAX = 65536, BODY_MAX = 64 << 20, KEEP_ALIVE_S = 5 };

static const struct {
    int status;
    const char *reason;
} REASONS[] = {
    {200, "OK"},        {307, "Temporary Redirect"}, {400, "Bad Request"},           {401, "Unauthorized"},
    {404, "Not Found"}, {405, "Method Not Allowed"}, {500, "Internal Server Error"}, {503, "Service Unavailable"}};

static const char *reason_of(int status)
{
    for (size_t i = 0; i < sizeof REASONS / sizeof REASONS[0]; i++)
        if (REASONS[i].status == status)
            return REASONS[i].reason;
    return "Unknown";
}

/* A connection has a thread of its own: the encryption of that thread's connection, NULL when it is plain. */
static _Thread_local void *secured;

static ssize_t take_bytes(int fd, void *buffer, size_t size)
{
    return secured != NULL ? tls_read(secured, buffer, size) : recv(fd, buffer, size, 0);
}

static ssize_t give_bytes(int fd, const void *bytes, size_t length)
{
    errno = 0;
    return secured != NULL ? tls_write(secured, bytes, length) : send(fd, bytes, length, MSG_NOSIGNAL);
}

static bool send_all(int fd, const char *data, size_t length)
{
    size_t done = 0;
    while (done < length) {
        ssize_t sent = give_bytes(fd, data + done, length - done);
        if (sent < 0 && errno == EINTR)
            continue;
        if (sent <= 0)
            return false;
        done += (size_t)sent;
    }
    return true;
}

/* ------------------------------------------------------------------ reading */

/* Appends what arrives; false at the end, an error or the time limit. */
static bool read_more(int fd, struct text *input)
{
    char block[16384];
    ssize_t got;
    do {
        errno = 0;
        got = take_bytes(fd, block, sizeof block);
    } while (got < 0 && errno == EINTR);
    if (got > 0)
        text_bytes(input, block, (size_t)got);
    return got > 0;
}

static void header_value(const char *head, const char *name, char *target, size_t size)
{
    size_t length = strlen(name);
    target[0] = '\0';
    for (const char *line = strstr(head, "\r\n"); line != NULL; line = strstr(line + 2, "\r\n")) {
        const char *at = line + 2;
        if (strncasecmp(at, name, length) != 0 || at[length] != ':')
            continue;
        at += length + 1;
        at += strspn(at, " \t");
        snprintf(target, size, "%.*s", (int)strcspn(at, "\r\n"), at);
        return;
    }
}

static bool parse_head(const char *head, struct http_request *request)
{
    char version[16], connection[64];
    if (sscanf(head, "%15s %2047s %15s", request->method, request->target, version) != 3 ||
        strncmp(version, "HTTP/1.", 7) != 0)
        return false;
    size_t path_length = strcspn(request->target, "?");
    snprintf(request->path, sizeof request->path, "%.*s", (int)path_length, request->target);
    snprintf(request->query, sizeof request->query, "%.1023s",
             request->target[path_length] == '?' ? request->target + path_length + 1 : "");
    header_value(head, "content-type", request->content_type, sizeof request->content_type);
    header_value(head, "authorization", request->authorization, sizeof request->authorization);
    header_value(head, "host", request->host, sizeof request->host);
    header_value(head, "connection", connection, sizeof connection);
    request->keep_alive = strcmp(version, "HTTP/1.0") == 0 ? strcasecmp(connection, "keep-alive") == 0
                                                           : strcasecmp(connection, "close") != 0;
    return true;
}

/* 1: a request. 0: the client is gone. -1: not HTTP. `input` keeps what belongs to the next one. */
static int read_request(int fd, struct text *input, struct http_request *request)
{
    char *end;
    while ((end = input->length > 0 ? strstr(input->data, "\r\n\r\n") : NULL) == NULL) {
        if (input->length > HEAD_MAX)
            return -1;
        if (!read_more(fd, input))
            return 0;
    }
    size_t head_length = (size_t)(end - input->data) + 4;
    end[2] = '\0';
    char length_text[32], expect[32], coding[32];
    header_value(input->data, "content-length", length_text, sizeof length_text);
    header_value(input->data, "expect", expect, sizeof expect);
    header_value(input->data, "transfer-encoding", coding, sizeof coding);
    if (!parse_head(input->data, request) || coding[0] != '\0')
        return -1;
    unsigned long length = strtoul(length_text, NULL, 10);
    if (length > BODY_MAX)
        return -1;
    if (strcasecmp(expect, "100-continue") == 0 && !send_all(fd, "HTTP/1.1 100 Continue\r\n\r\n", 25))
        return 0;
    while (input->length < head_length + length)
        if (!read_more(fd, input))
            return 0;
    text_bytes(&request->body, input->data + head_length, length);
    size_t used = head_length + length;
    memmove(input->data, input->data + used, input->length - used + 1);
    input->length -= used;
    return 1;
}

/* ------------------------------------------------------------------ answering */

/* The connection is closed afterwards. */
static void send_badly(int fd, const struct text *head, const struct http_response *response)
{
    const struct text *body = &response->body;
    char size[32];
    if (response->manner == HTTP_CLOSE || !send_all(fd, head->data, head->length))
        return;
    if (response->manner == HTTP_CUT)
        send_all(fd, body->data, body->length / 2);
    for (size_t i = 0; response->manner == HTTP_SLOW && i < body->length && send_all(fd, body->data + i, 1); i++)
        knobs_sleep_ms(1000);
    snprintf(size, sizeof size, "%zx\r\n", body->length);
    while (response->manner == HTTP_ENDLESS && send_all(fd, size, strlen(size)) &&
           send_all(fd, body->data, body->length) && send_all(fd, "\r\n", 2))
        ;
}

static bool send_response(int fd, const struct http_request *request, const struct http_response *response)
{
    struct text head;
    text_init(&head);
    time_t now = time(NULL);
    struct tm parts;
    char date[64];
    gmtime_r(&now, &parts);
    strftime(date, sizeof date, "%a, %d %b %Y %H:%M:%S GMT", &parts);
    text_format(&head, "HTTP/1.1 %d %s\r\ndate: %s\r\nserver: uvicorn\r\n", response->status,
                reason_of(response->status), date);
    if (response->header[0] != '\0')
        text_format(&head, "%s\r\n", response->header);
    if (response->manner == HTTP_ENDLESS)
        text_string(&head, "transfer-encoding: chunked\r\n");
    else
        text_format(&head, "content-length: %zu\r\n", response->body.length);
    if (response->content_type != NULL)
        text_format(&head, "content-type: %s\r\n", response->content_type);
    if (!request->keep_alive)
        text_string(&head, "connection: close\r\n");
    text_string(&head, "\r\n");
    if (response->manner != HTTP_WHOLE) {
        send_badly(fd, &head, response);
        text_fini(&head);
        return false;
    }
    if (response->body.length > 0 && strcmp(request->method, "HEAD") != 0)
        text_bytes(&head, response->body.data, response->body.length);
    bool sent = send_all(fd, head.data, head.length);
    text_fini(&head);
    return sent;
}

struct connection {
    int fd;
    http_handler *handler;
    char client[80];
};

/* One request and its answer; false when the connection is to be closed. */
static bool serve_one(struct connection *connection, struct text *input)
{
    struct http_request *request = text_allocate(sizeof *request);
    struct http_response *response = text_allocate(sizeof *response);
    memcpy(request->client, connection->client, sizeof request->client);
    request->client_fd = connection->fd;
    int found = read_request(connection->fd, input, request);
    bool keep = false;
    if (found > 0) {
        connection->handler(request, response);
        log_access("%s - \"%s %s HTTP/1.1\" %d %s", request->client, request->method, request->target, response->status,
                   reason_of(response->status));
        keep = send_response(connection->fd, request, response) && request->keep_alive;
    } else if (found < 0) {
        static const char BAD[] = "HTTP/1.1 400 Bad Request\r\ncontent-type: text/plain; charset=utf-8\r\n"
                                  "connection: close\r\ncontent-length: 30\r\n\r\nInvalid HTTP request received.";
        send_all(connection->fd, BAD, sizeof BAD - 1);
    }
    text_fini(&request->body);
    text_fini(&response->body);
    free(request);
    free(response);
    return keep;
}

static void *serve_connection(void *argument)
{
    struct connection *connection = argument;
    struct text input;
    text_init(&input);
    secured = tls_on() ? tls_accept(connection->fd) : NULL;
    while ((secured != NULL || !tls_on()) && serve_one(connection, &input))
        ;
    if (secured != NULL)
        tls_free(secured);
    text_fini(&input);
    close(connection->fd);
    free(connection);
    return NULL;
}

static int resolve(const char *host, int port, bool passive, struct addrinfo **ret_list)
{
    char service[16];
    snprintf(service, sizeof service, "%d", port);
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = passive ? AI_PASSIVE : 0};
    return getaddrinfo(host, service, &hints, ret_list);
}

int http_listen(const char *host, int port)
{
    struct addrinfo *list;
    if (resolve(host, port, true, &list) != 0) {
        errno = EADDRNOTAVAIL;
        return -1;
    }
    int on = 1;
    int fd = socket(list->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd >= 0) {
        setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
        if (bind(fd, list->ai_addr, list->ai_addrlen) != 0 || listen(fd, 2048) != 0) {
            int kept = errno;
            close(fd);
            fd = -1;
            errno = kept;
        }
    }
    freeaddrinfo(list);
    return fd;
}

void http_serve(int listener, http_handler *handler)
{
    for (;;) {
        struct sockaddr_storage address;
        socklen_t length = sizeof address;
        int fd = accept4(listener, (struct sockaddr *)&address, &length, SOCK_CLOEXEC);
        if (fd < 0)
            continue;
        struct timeval limit = {.tv_sec = KEEP_ALIVE_S};
        int on = 1;
        setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
        struct connection *connection = text_allocate(sizeof *connection);
        connection->fd = fd;
        connection->handler = handler;
        char host[64] = "?", service[8] = "0";
        getnameinfo((struct sockaddr *)&address, length, host, sizeof host, service, sizeof service,
                    NI_NUMERICHOST | NI_NUMERICSERV);
        snprintf(connection->client, sizeof connection->client, "%s:%s", host, service);
        pthread_t thread;
        if (pthread_create(&thread, NULL, serve_connection, connection) != 0) {
            close(fd);
            free(connection);
            continue;
        }
        pthread_detach(thread);
    }
}

int http_call(const char *host, int port, const char *method, const char *target, const char *body, const char *key)
{
    struct addrinfo *list;
    bool any = strcmp(host, "0.0.0.0") == 0 || strcmp(host, "::") == 0;
    if (resolve(any ? "127.0.0.1" : host, port, false, &list) != 0)
        return -1;
    int status = -1;
    int fd = socket(list->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    bool connected = fd >= 0 && connect(fd, list->ai_addr, list->ai_addrlen) == 0;
    secured = connected && tls_on() ? tls_connect(fd) : NULL;
    if (connected && (secured != NULL || !tls_on())) {
        struct text message, answer;
        text_init(&message);
        text_init(&answer);
        text_format(&message, "%s %s HTTP/1.1\r\nhost: %s:%d\r\nconnection: close\r\n", method, target, host, port);
        if (key != NULL)
            text_format(&message, "authorization: Bearer %s\r\n", key);
        text_format(&message, "content-type: application/json\r\ncontent-length: %zu\r\n\r\n%s", strlen(body), body);
        if (send_all(fd, message.data, message.length))
            while (read_more(fd, &answer))
                ;
        if (answer.length == 0 || sscanf(answer.data, "HTTP/1.1 %d", &status) != 1)
            status = -1;
        text_fini(&message);
        text_fini(&answer);
    }
    if (secured != NULL)
        tls_free(secured);
    secured = NULL;
    if (fd >= 0)
        close(fd);
    freeaddrinfo(list);
    return status;
}
