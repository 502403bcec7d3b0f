/* http.h: a small HTTP/1.1 server with the head lines of uvicorn: a thread for each connection, keep-alive. */
#ifndef KLDUMP_STANDIN_HTTP_H
#define KLDUMP_STANDIN_HTTP_H

#include <stdbool.h>

#include "text.h"

struct http_request {
    char method[16];
    char target[2048]; /* as sent, with the query */
    char path[2048];
    char query[1024];
    char content_type[128];
    char authorization[512];
    char host[256];
    char client[80]; /* 127.0.0.1:41234 */
    int client_fd;
    bool keep_alive;
    struct text body;
};

enum http_manner {
    HTTP_WHOLE,
    HTTP_SLOW,    /* the body byte by byte, one a second */
    HTTP_ENDLESS, /* the body again and again, chunked, as fast as it is taken */
    HTTP_CUT,     /* half of the body, then the connection is closed */
    HTTP_CLOSE    /* nothing: the connection is closed */
};

struct http_response {
    enum http_manner manner;
    int status;
    const char *content_type; /* NULL: no such line */
    char header[512];         /* one more line without its end, or "" */
    struct text body;
};

typedef void http_handler(const struct http_request *request, struct http_response *response);

/* A bound and listening socket, or -1 with errno. */
int http_listen(const char *host, int port);

/* Accepts for ever; each connection gets a thread that calls the handler. */
void http_serve(int listener, http_handler *handler);

/* A request to 127.0.0.1 as a client, for the warm-up. The status, or -1 when there was no answer. */
int http_call(const char *host, int port, const char *method, const char *target, const char *body, const char *key);

#endif
