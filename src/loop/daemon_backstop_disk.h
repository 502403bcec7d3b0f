/* One filesystem under the daemon's eyes: a thread that reads its free space through a descriptor, counts what runs
 * write where it gets near a floor, and says which run must end (core/backstop.h decides). A reading that never returns
 * holds this thread alone. Loop thread, all functions. */
#pragma once

#include "core/backstop.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include <uv.h>

struct daemon_backstop_disk;

/* A run as the thread sees it. */
struct daemon_backstop_run {
    uint64_t id;
    pid_t guard;
    uint64_t floor_bytes; /* its own */
};

struct daemon_backstop_state {
    uint64_t looks;
    bool measurable; /* as of the latest look */
    uint64_t total_bytes, free_bytes;
    uint64_t blocked_ns;            /* how long the reading now outstanding has taken; 0: none is */
    bool stuck;                     /* neither reading nor resting, for ten seconds */
    struct backstop_decision order; /* id 0: none that is not taken yet */
};

/* `fd` (O_PATH) is duplicated. `news` comes from the loop: total_bytes or measurable is another, or there is an order.
 * NULL when no thread can be had. */
struct daemon_backstop_disk *daemon_backstop_disk_new(uv_loop_t *loop, int fd, void (*news)(void *user), void *user);

/* What the next look is made with. A run that is not in it any more is gone. */
void daemon_backstop_disk_set(struct daemon_backstop_disk *disk, uint64_t admin_floor_bytes, uint64_t worst_rate,
                              const struct daemon_backstop_run *runs, size_t count);

/* The order, if there is one, is taken by that. */
void daemon_backstop_disk_get(struct daemon_backstop_disk *disk, struct daemon_backstop_state *ret_state);

/* False: `stuck`. */
bool daemon_backstop_disk_progresses(struct daemon_backstop_disk *disk);

/* True: it is over, no news come, and it frees itself in the loop's next turns. False: a reading is outstanding, and
 * nothing was changed; `force`: it is left behind, and ends after that reading without touching the loop. */
bool daemon_backstop_disk_close(struct daemon_backstop_disk *disk, bool force);
