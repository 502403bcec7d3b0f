/* HTTP on the loop: one http/multi.h driver with its sockets and its timer on libuv. Loop thread only. */
#pragma once

#include "http/multi.h"

#include <uv.h>

struct transfers;

/* Never NULL. */
struct transfers *transfers_new(uv_loop_t *loop);

/* For multi_submit, multi_cancel_all, multi_count. Lives until transfers_close; not to be freed by the caller. */
struct multi *transfers_multi(struct transfers *transfers);

/* Drops what is under way without calling anybody, closes the sockets; `closed` (may be NULL) is called once from the
 * loop when all is freed. May be called from a `done`. */
void transfers_close(struct transfers *transfers, void (*closed)(void *user), void *user);
