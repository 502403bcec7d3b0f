/* The watcher thread: looks at free space as often as the policy says and pulls the trigger itself, whatever the loop,
 * the disk of the record or a log is doing. A thread of its own, never one of libuv's pool, so that a reading which
 * blocks (dead mount) blocks nothing else, and there is never a second one outstanding.
 *
 * All functions here: loop thread. The function pointers of the options run in the watcher thread. After the start the
 * thread allocates nothing, and it holds no lock while it reads. */
#pragma once

#include "base/error.h"
#include "core/space.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <uv.h>

enum { WATCHER_TRIGGERS = 2 };
#define WATCHER_NEAR_BYTES ((uint64_t)4 << 30)

struct watcher;

/* Ends the run at once. True when the order was given (the write or send succeeded). Must not allocate, lock or wait.
 */
struct watcher_trigger {
    bool (*pull)(void *context); /* NULL ends the list */
    void *context;
};

struct watcher_options {
    struct space_limits limits;
    /* One reading: fills all but at_ns, which the watcher sets. May block. Must not allocate.
     */
    void (*read)(void *context, struct space_reading *ret_reading);
    void *read_context;
    /* At the floor all are pulled, in this order, and again at each later look at the floor until one has succeeded. */
    struct watcher_trigger triggers[WATCHER_TRIGGERS];
    /* Loop thread: the first reading is there, the level has changed, or the trigger was pulled. Several changes may
     * come as one call. */
    void (*changed)(void *user);
    void *user;
};

struct watcher_snapshot {
    uint64_t looks;                 /* finished readings; 0: nothing below is known yet but the ages */
    struct space_reading reading;   /* the latest measurable one */
    struct space_decision latest;   /* by the latest reading, measurable or not */
    uint64_t act_bytes, act_inodes; /* where the trigger is pulled; inodes 0: not looked at */
    uint64_t reading_age_ns;        /* since the latest measurable reading began, or since the start */
    uint64_t blocked_ns;            /* how long the reading now outstanding has taken; 0: none is */
    uint64_t near_looks;            /* of them: with less than WATCHER_NEAR_BYTES above act_bytes, before an order */
    bool pulled;                    /* an order to kill was given */
    bool pull_failed;               /* the floor was met, and no trigger has succeeded so far */
    struct space_reading pulled_by; /* the reading that confirmed it */
    uint64_t decided_at_ns, pulled_at_ns;
};

/* Starts the thread; its first look is made at once. The options are copied; contexts stay the caller's.
 * Failure: ERROR_SYSTEM; the loop may hold a closing handle until its next turn. */
enum error_code watcher_start(uv_loop_t *loop, const struct watcher_options *options, struct watcher **ret_watcher,
                              struct error *err);

/* Look now, whatever the interval says. */
void watcher_look_now(struct watcher *watcher);

/* The run writes most of what goes: its kill is due one margin earlier (space_policy_stage). Holds from the next look
 * on, which is made at once. */
void watcher_stage(struct watcher *watcher, bool early);

/* Never waits for a reading. */
void watcher_get(struct watcher *watcher, struct watcher_snapshot *ret_snapshot);

/* The same after an order that is just being given has been noted (it waits for that: a write or two). For whoever has
 * learned of an end that such an order may be the cause of. */
void watcher_settled(struct watcher *watcher, struct watcher_snapshot *ret_snapshot);

/* No trigger is pulled from now on, and none is being pulled when this returns (it waits for one that is: a write or
 * two). What the triggers point to may then be closed. Readings go on. */
void watcher_disarm(struct watcher *watcher);

/* Disarms and ends the thread. No `changed` from now on; `closed` (may be NULL) once from the loop. `ended` false: a
 * reading did not return within `limit_ms` and the thread was left behind; it ends by itself after that reading without
 * touching the loop or pulling anything, and what read_context points to must stay valid until the process ends. */
void watcher_close(struct watcher *watcher, uint64_t limit_ms, void (*closed)(bool ended, void *user), void *user);

/* A trigger over a descriptor: writes "1" to *(int *)context, an open cgroup.kill. */
bool watcher_pull_cgroup(void *context);
