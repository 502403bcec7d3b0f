/* A tiny HTTP server on a loopback port for tests of src/http: a thread that answers by path.
 *   /ok        200, "hello", connection kept      /key      200 with the right bearer key, else 401
 *   /echo      200, the body that was sent        /garbage  bytes that are no HTTP
 *   /close     closes without an answer           /short    announces 100 bytes, sends 5, closes
 *   /slow      a byte each 50 ms for ever         /never    no answer, connection kept open
 *   /big       200 KiB with their length          /endless  chunks for ever
 *   /redirect  302 to /ok */
#pragma once

#include <stdint.h>

struct http_server;

struct http_server *http_server_start(void);
uint16_t http_server_port(const struct http_server *server);
unsigned http_server_connections(const struct http_server *server); /* accepted so far */
void http_server_stop(struct http_server *server);                  /* ends every connection, joins every thread */
