/* Happy path: the thread connects, notes what came of it and wakes the loop; the loop closes its handle, which frees,
 * and tells.
 *
 * Cancelled before the thread is back, perhaps for ever: the loop's handle is closed at once, and what the two share is
 * the thread's to free. The lock says who comes first. */
#include "loop/daemon_connect.h"
#include "base/memory.h"
#include "sys/slow.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

/* Of the thread and of the loop; whoever lets go last frees. */
struct attempt {
    pthread_mutex_t lock;
    struct daemon_connect *connect; /* NULL: cancelled, nobody wants to know */
    bool finished;                  /* the thread is through with it */
    int socket_fd, fd, failure;
};

struct daemon_connect {
    uv_async_t async;
    struct attempt *attempt;
    void (*done)(int fd, int failure, void *user);
    void *user;
};

static void free_attempt(struct attempt *attempt)
{
    pthread_mutex_destroy(&attempt->lock);
    free(attempt);
}

/* ---- the thread ---- */

static void connect_now(struct attempt *attempt)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    /* of the descriptor, not the path: no link is followed, no length is a limit */
    snprintf(address.sun_path, sizeof address.sun_path, "/proc/self/fd/%d", attempt->socket_fd);
    attempt->fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (attempt->fd >= 0 && connect(attempt->fd, (const struct sockaddr *)&address, sizeof address) == 0)
        return;
    attempt->failure = errno;
    if (attempt->fd >= 0)
        close(attempt->fd);
    attempt->fd = -1;
}

static void thread_main(void *argument)
{
    struct attempt *attempt = argument;
    connect_now(attempt);
    close(attempt->socket_fd);
    pthread_mutex_lock(&attempt->lock);
    attempt->finished = true;
    bool wanted = attempt->connect != NULL;
    if (wanted)
        uv_async_send(&attempt->connect->async);
    pthread_mutex_unlock(&attempt->lock);
    if (wanted)
        return;
    if (attempt->fd >= 0)
        close(attempt->fd);
    free_attempt(attempt);
}

/* ---- the loop ---- */

static void on_closed(uv_handle_t *handle)
{
    free(handle->data);
}

/* False: the thread has not let go of it yet, and frees it. */
static bool take_back(struct daemon_connect *connect)
{
    struct attempt *attempt = connect->attempt;
    pthread_mutex_lock(&attempt->lock);
    bool finished = attempt->finished;
    attempt->connect = NULL;
    pthread_mutex_unlock(&attempt->lock);
    uv_close((uv_handle_t *)&connect->async, on_closed);
    return finished;
}

static void on_back(uv_async_t *async)
{
    struct daemon_connect *connect = async->data;
    struct attempt *attempt = connect->attempt;
    int fd = attempt->fd, failure = attempt->failure;
    take_back(connect);
    free_attempt(attempt);
    connect->done(fd, failure, connect->user);
}

void daemon_connect_cancel(struct daemon_connect *connect)
{
    struct attempt *attempt = connect->attempt;
    if (!take_back(connect))
        return;
    if (attempt->fd >= 0)
        close(attempt->fd);
    free_attempt(attempt);
}

static enum error_code start(struct attempt *attempt, int socket_fd, uid_t uid, struct error *err)
{
    attempt->socket_fd = fcntl(socket_fd, F_DUPFD_CLOEXEC, 3);
    if (attempt->socket_fd < 0)
        return error_set_errno(err, ERROR_SYSTEM, errno, "its socket");
    enum error_code code = slow_start(uid, thread_main, attempt, err);
    if (code != ERROR_NONE)
        close(attempt->socket_fd);
    return code;
}

enum error_code daemon_connect_new(uv_loop_t *loop, int socket_fd, uid_t uid,
                                   void (*done)(int fd, int failure, void *user), void *user,
                                   struct daemon_connect **ret_connect, struct error *err)
{
    struct daemon_connect *connect = memory_new(sizeof *connect);
    struct attempt *attempt = memory_new(sizeof *attempt);
    *connect = (struct daemon_connect){.attempt = attempt, .done = done, .user = user};
    *attempt = (struct attempt){.connect = connect, .fd = -1};
    pthread_mutex_init(&attempt->lock, NULL);
    int failure = uv_async_init(loop, &connect->async, on_back);
    if (failure != 0) {
        free_attempt(attempt);
        free(connect);
        return error_set_errno(err, ERROR_SYSTEM, -failure, "the loop cannot be woken");
    }
    connect->async.data = connect;
    enum error_code code = start(attempt, socket_fd, uid, err);
    if (code != ERROR_NONE) {
        free_attempt(attempt);
        uv_close((uv_handle_t *)&connect->async, on_closed);
        return code;
    }
    *ret_connect = connect;
    return ERROR_NONE;
}
