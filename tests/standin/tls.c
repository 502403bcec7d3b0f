/* tls.c: see tls.h. */
#include "tls.h"

#include <dlfcn.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

enum { FILE_IS_PEM = 1 }; /* SSL_FILETYPE_PEM */

static struct {
    const void *(*server_method)(void);
    const void *(*client_method)(void);
    void *(*new_context)(const void *method);
    int (*use_certificate)(void *context, const char *file);
    int (*use_key)(void *context, const char *file, int type);
    void *(*new_connection)(void *context);
    int (*set_fd)(void *connection, int fd);
    int (*accept)(void *connection);
    int (*connect)(void *connection);
    int (*read)(void *connection, void *buffer, int size);
    int (*write)(void *connection, const void *bytes, int length);
    int (*shut_down)(void *connection);
    void (*free_connection)(void *connection);
} ssl;

static const struct {
    const char *name;
    void *target; /* where the address of the function goes */
} FUNCTIONS[] = {{"TLS_server_method", &ssl.server_method},
                 {"TLS_client_method", &ssl.client_method},
                 {"SSL_CTX_new", &ssl.new_context},
                 {"SSL_CTX_use_certificate_chain_file", &ssl.use_certificate},
                 {"SSL_CTX_use_PrivateKey_file", &ssl.use_key},
                 {"SSL_new", &ssl.new_connection},
                 {"SSL_set_fd", &ssl.set_fd},
                 {"SSL_accept", &ssl.accept},
                 {"SSL_connect", &ssl.connect},
                 {"SSL_read", &ssl.read},
                 {"SSL_write", &ssl.write},
                 {"SSL_shutdown", &ssl.shut_down},
                 {"SSL_free", &ssl.free_connection}};

static void *server_context, *client_context;

static bool load(void)
{
    void *library = dlopen("libssl.so.3", RTLD_NOW);
    for (size_t i = 0; library != NULL && i < sizeof FUNCTIONS / sizeof FUNCTIONS[0]; i++) {
        void *found = dlsym(library, FUNCTIONS[i].name);
        if (found == NULL)
            return false;
        memcpy(FUNCTIONS[i].target, &found, sizeof found);
    }
    return library != NULL;
}

bool tls_init(const char *certificate_file, const char *key_file)
{
    if (!load()) {
        fprintf(stderr, "kldump-standin: libssl.so.3 cannot be loaded: %s\n", dlerror());
        return false;
    }
    server_context = ssl.new_context(ssl.server_method());
    client_context = ssl.new_context(ssl.client_method());
    if (ssl.use_certificate(server_context, certificate_file) == 1 &&
        ssl.use_key(server_context, key_file != NULL ? key_file : certificate_file, FILE_IS_PEM) == 1)
        return true;
    fprintf(stderr, "ssl.SSLError: [SSL] PEM lib (_ssl.c:3900): %s\n", certificate_file);
    server_context = NULL;
    return false;
}

bool tls_on(void)
{
    return server_context != NULL;
}

static void *open_connection(void *context, int fd, int (*shake_hands)(void *connection))
{
    void *connection = ssl.new_connection(context);
    if (connection != NULL && ssl.set_fd(connection, fd) == 1 && shake_hands(connection) == 1)
        return connection;
    if (connection != NULL)
        ssl.free_connection(connection);
    return NULL;
}

void *tls_accept(int fd)
{
    return open_connection(server_context, fd, ssl.accept);
}

void *tls_connect(int fd)
{
    return open_connection(client_context, fd, ssl.connect);
}

ssize_t tls_read(void *connection, void *buffer, size_t size)
{
    int got = ssl.read(connection, buffer, size < INT_MAX ? (int)size : INT_MAX);
    return got > 0 ? got : -1;
}

ssize_t tls_write(void *connection, const void *bytes, size_t length)
{
    int sent = ssl.write(connection, bytes, length < INT_MAX ? (int)length : INT_MAX);
    return sent > 0 ? sent : -1;
}

void tls_free(void *connection)
{
    ssl.shut_down(connection);
    ssl.free_connection(connection);
}
