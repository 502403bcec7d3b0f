/* Happy path: multi asks for a timer and for sockets to be watched; each socket gets a uv_poll_t of its own in a
 * `watch`, which the driver keeps with the socket; their events go to multi_socket_ready, the time to multi_timeout.
 *
 * A socket is let go: its poll is stopped at once, so that the number may be used again, and freed in its close
 * callback. The watcher belongs to the socket, never to the number.
 *
 * A poll fails (negative status): MULTI_ERROR, so that libcurl looks at the socket itself. A poll cannot be made: the
 * socket stays unwatched and the request ends by its time limit.
 *
 * transfers_close from inside a `done`: the driver may not be freed there, so nothing is called any more from then on,
 * and it is freed in the next turn, by the timer.
 *
 * Each poll and the timer count as a handle; the last close callback frees. */
#include "loop/transfers.h"
#include "base/memory.h"

#include <stdbool.h>
#include <stdlib.h>

struct transfers {
    struct multi *multi;
    uv_loop_t *loop;
    uv_timer_t timer;
    unsigned handles;
    bool closing;
    void (*closed)(void *user);
    void *closed_user;
};

struct watch {
    uv_poll_t poll;
    struct transfers *transfers;
    int descriptor;
    bool stopped;
};

static void drop_handle(struct transfers *transfers)
{
    if (--transfers->handles > 0)
        return;
    void (*closed)(void *) = transfers->closed;
    void *user = transfers->closed_user;
    free(transfers);
    if (closed != NULL)
        closed(user);
}

static void on_watch_closed(uv_handle_t *handle)
{
    struct watch *watch = handle->data;
    struct transfers *transfers = watch->transfers;
    free(watch);
    drop_handle(transfers);
}

static void on_timer_closed(uv_handle_t *handle)
{
    drop_handle(handle->data);
}

static void on_event(uv_poll_t *poll, int status, int events)
{
    struct watch *watch = poll->data;
    if (watch->transfers->closing || watch->stopped)
        return;
    int bits = status < 0 ? MULTI_ERROR : 0;
    bits |= (events & UV_READABLE ? MULTI_IN : 0) | (events & UV_WRITABLE ? MULTI_OUT : 0);
    multi_socket_ready(watch->transfers->multi, watch->descriptor, bits);
}

static void stop_watch(struct watch *watch)
{
    watch->stopped = true;
    uv_poll_stop(&watch->poll);
    uv_close((uv_handle_t *)&watch->poll, on_watch_closed);
}

static struct watch *start_watch(struct transfers *transfers, int descriptor)
{
    struct watch *watch = memory_new(sizeof *watch);
    watch->transfers = transfers;
    watch->descriptor = descriptor;
    if (uv_poll_init(transfers->loop, &watch->poll, descriptor) != 0) {
        free(watch); /* a failed uv_poll_init registers nothing and owes no close */
        return NULL;
    }
    watch->poll.data = watch;
    transfers->handles++;
    return watch;
}

static void *on_watch(void *user, void *watcher, int descriptor, int events)
{
    struct watch *watch = watcher;
    if (events == 0) {
        stop_watch(watch);
        return NULL;
    }
    if (watch == NULL)
        watch = start_watch(user, descriptor);
    if (watch != NULL)
        uv_poll_start(&watch->poll, (events & MULTI_IN ? UV_READABLE : 0) | (events & MULTI_OUT ? UV_WRITABLE : 0),
                      on_event);
    return watch;
}

static void finish_close(struct transfers *transfers)
{
    multi_free(transfers->multi);
    uv_close((uv_handle_t *)&transfers->timer, on_timer_closed);
}

static void on_time(uv_timer_t *timer)
{
    struct transfers *transfers = timer->data;
    if (transfers->closing)
        finish_close(transfers);
    else
        multi_timeout(transfers->multi);
}

static void on_set_timer(void *user, int64_t ms)
{
    struct transfers *transfers = user;
    if (transfers->closing)
        return;
    if (ms < 0)
        uv_timer_stop(&transfers->timer);
    else
        uv_timer_start(&transfers->timer, on_time, (uint64_t)ms, 0);
}

struct transfers *transfers_new(uv_loop_t *loop)
{
    struct transfers *transfers = memory_new(sizeof *transfers);
    transfers->loop = loop;
    uv_timer_init(loop, &transfers->timer);
    transfers->timer.data = transfers;
    transfers->handles = 1;
    struct multi_loop services = {.watch = on_watch, .timer = on_set_timer, .user = transfers};
    transfers->multi = multi_new(&services);
    return transfers;
}

struct multi *transfers_multi(struct transfers *transfers)
{
    return transfers->multi;
}

void transfers_close(struct transfers *transfers, void (*closed)(void *user), void *user)
{
    transfers->closing = true;
    transfers->closed = closed;
    transfers->closed_user = user;
    multi_cancel_all(transfers->multi);
    uv_timer_start(&transfers->timer, on_time, 0, 0);
}
