/* Many requests at once, driven by an event loop that this room does not know.
 *
 * Happy path: multi_submit hands the request to libcurl, which asks for a timer of 0 ms; the loop calls multi_timeout,
 * libcurl connects and asks to have its socket watched; the loop calls multi_socket_ready; the answer is complete; it
 * is taken out of libcurl, and then `done` is called.
 * Failures: whatever goes wrong with a request (refused, cut, malformed, too large, too slow) comes to `done` as a
 * result with a code. An error on a watched descriptor is handed over as MULTI_ERROR. multi_cancel_all drops requests
 * without calling anybody.
 *
 * All calls on one thread, the loop's. `done` is never called from inside multi_submit, multi_cancel_all or multi_free;
 * it may submit and cancel, but not free the driver. */
#pragma once

#include "base/error.h"
#include "http/transfer.h"

#include <stdint.h>

enum { MULTI_IN = 1, MULTI_OUT = 2, MULTI_ERROR = 4 };

/* What the loop does for the driver. */
struct multi_loop {
    /* Watch `fd` for `events` (bits MULTI_IN, MULTI_OUT) from now on. `watcher` is what the call before returned for
     * this socket, NULL at first; the value returned is kept for the next one. `events` 0: stop watching and let go of
     * `watcher` (never NULL then); the returned value is ignored and `fd` may be closed, and its number used again for
     * another socket, as soon as this returns: so a watcher belongs to a socket, not to a number. */
    void *(*watch)(void *user, void *watcher, int fd, int events);
    /* Call multi_timeout once in `ms` milliseconds (0: on the next turn, never from inside this call) instead of at the
     * time set before; -1: not at all. */
    void (*timer)(void *user, int64_t ms);
    void *user;
};

struct multi;

/* `result` is borrowed for the time of the call. */
typedef void multi_done(void *argument, const struct transfer_result *result);

/* Copies *loop. Never NULL. */
struct multi *multi_new(const struct multi_loop *loop);

/* Drops what is under way, closes all sockets and lets go of every watcher and of the timer (timer -1), all before it
 * returns: the loop must still be there. NULL is fine. */
void multi_free(struct multi *multi);

/* Copies *request. ERROR_BAD_VALUE for a request that may not be carried (`done` is not called then). */
enum error_code multi_submit(struct multi *multi, const struct transfer_request *request, multi_done *done,
                             void *argument, struct error *err);

/* From the loop: `events` (bits) happened on a watched `fd`; the time is up. Both may call `done` of any request. */
void multi_socket_ready(struct multi *multi, int fd, int events);
void multi_timeout(struct multi *multi);

/* No `done` of anything submitted so far is called after this. */
void multi_cancel_all(struct multi *multi);

/* Requests submitted whose `done` has not been called. */
size_t multi_count(const struct multi *multi);
