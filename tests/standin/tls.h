/* tls.h: the server's side, and the warm-up's, of an encrypted connection, through the system's libssl.
 *
 * Loaded when --ssl-certfile is given: the stand-in needs no headers and no library of it otherwise. A connection
 * belongs to the thread that accepted it.
 */
#ifndef KLDUMP_STANDIN_TLS_H
#define KLDUMP_STANDIN_TLS_H

#include <stdbool.h>
#include <sys/types.h>

/* Reads both files. False: the reason is on standard error. */
bool tls_init(const char *certificate_file, const char *key_file);

/* True once tls_init() has succeeded: connections are to be encrypted. */
bool tls_on(void);

/* NULL when the other side does not speak TLS. Not closed with the connection: tls_free(). */
void *tls_accept(int fd);
void *tls_connect(int fd);

/* As read(2) and write(2), -1 without errno on failure. */
ssize_t tls_read(void *connection, void *buffer, size_t size);
ssize_t tls_write(void *connection, const void *bytes, size_t length);

void tls_free(void *connection);

#endif
