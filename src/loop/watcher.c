/* Happy path: watcher_start makes the eventfd, the async handle and the thread. The thread reads, decides, publishes
 * under the mutex, tells the loop through the async handle when something changed, and sleeps in ppoll on the eventfd
 * until the next look is due. watcher_close sets `stop` and writes the eventfd; the thread says `finished` through the
 * async handle as its last act; the loop joins it, closes its handles and frees.
 *
 * At the floor: read once more; if that reading does not say "fine", pull, then publish, then tell. A second reading
 * that is unmeasurable confirms: the last figure that was seen is at the floor.
 *
 * A trigger fails: noted as pull_failed, tried again at each look, at the policy's shortest interval.
 *
 * A reading blocks: the loop sees reading_age_ns and blocked_ns grow. On close the loop waits for its limit, then marks
 * the watcher `abandoned` under the mutex, detaches the thread and closes its handles. The thread looks at `abandoned`
 * under the same mutex before it touches the async handle, so a late return meets no freed memory. The struct is freed
 * by whichever of the two ends last.
 *
 * watcher_start fails half way: the async handle, if any, is closed and its callback frees. */
#include "loop/watcher.h"
#include "base/memory.h"
#include "base/number.h"
#include "loop/clock.h"
#include "sys/process.h"
#include "sys/thread.h"

#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <unistd.h>

enum { STACK_BYTES = 256 * 1024, STACK_TOUCHED_BYTES = 16 * 1024, AFTER_NS = 10000000 };

struct watcher {
    struct watcher_options options; /* read only after the start */
    int wake;                       /* eventfd */
    pthread_t thread;
    uint64_t started_ns;
    struct space_policy policy; /* watcher thread only */

    pthread_mutex_t pulling; /* held while triggers are pulled */
    bool disarmed;           /* under `pulling` */

    pthread_mutex_t mutex;            /* of what follows up to the blank line */
    struct watcher_snapshot snapshot; /* without the ages */
    uint64_t reading_since_ns;        /* 0: no reading is outstanding */
    bool stop, finished, abandoned;
    bool early;
    unsigned owners; /* the thread, the loop; the last one frees */

    uv_async_t async; /* loop thread only */
    uv_timer_t timer;
    unsigned handles; /* open ones */
    bool closing, joined;
    void (*closed)(bool ended, void *user);
    void *closed_user;
};

static void lock(struct watcher *watcher)
{
    pthread_mutex_lock(&watcher->mutex);
}

static void unlock(struct watcher *watcher)
{
    pthread_mutex_unlock(&watcher->mutex);
}

static void drop_owner(struct watcher *watcher)
{
    lock(watcher);
    bool last = --watcher->owners == 0;
    unlock(watcher);
    if (!last)
        return;
    close(watcher->wake);
    pthread_mutex_destroy(&watcher->mutex);
    pthread_mutex_destroy(&watcher->pulling);
    free(watcher);
}

/* -- the thread -- */

static void read_space(struct watcher *watcher, struct space_reading *reading)
{
    *reading = (struct space_reading){.at_ns = clock_now_ns()};
    uint64_t at_ns = reading->at_ns;
    lock(watcher);
    watcher->reading_since_ns = at_ns;
    unlock(watcher);
    watcher->options.read(watcher->options.read_context, reading);
    reading->at_ns = at_ns; /* when it began: what it says may be as old as that */
    lock(watcher);
    watcher->reading_since_ns = 0;
    unlock(watcher);
}

static bool must_stop(struct watcher *watcher)
{
    lock(watcher);
    bool stop = watcher->stop;
    unlock(watcher);
    return stop;
}

/* Gives the order, and fills the part of the snapshot that tells about it, in one go under `pulling`: who knows of a
 * process that this killed finds the order noted (watcher_settled). Nothing is done once the run is over. */
static void act(struct watcher *watcher, const struct space_reading *reading, uint64_t decided_at_ns)
{
    struct watcher_snapshot *snapshot = &watcher->snapshot;
    bool pulled = false;
    pthread_mutex_lock(&watcher->pulling);
    if (watcher->disarmed) {
        pthread_mutex_unlock(&watcher->pulling);
        return;
    }
    for (int i = 0; i < WATCHER_TRIGGERS && watcher->options.triggers[i].pull != NULL; i++)
        pulled |= watcher->options.triggers[i].pull(watcher->options.triggers[i].context);
    uint64_t pulled_at_ns = clock_now_ns();
    lock(watcher);
    if (snapshot->decided_at_ns == 0) {
        snapshot->decided_at_ns = decided_at_ns;
        snapshot->pulled_by = *reading;
    }
    snapshot->pulled = pulled;
    snapshot->pull_failed = !pulled;
    if (pulled)
        snapshot->pulled_at_ns = pulled_at_ns;
    unlock(watcher);
    pthread_mutex_unlock(&watcher->pulling);
}

static void publish(struct watcher *watcher, const struct space_reading *reading, const struct space_decision *decision,
                    bool tell)
{
    lock(watcher);
    struct watcher_snapshot *snapshot = &watcher->snapshot;
    tell |= snapshot->looks == 0 || snapshot->latest.level != decision->level;
    snapshot->looks++;
    if (reading->measurable && !snapshot->pulled &&
        space_free(reading) < number_add(snapshot->act_bytes, WATCHER_NEAR_BYTES))
        snapshot->near_looks++;
    snapshot->latest = *decision;
    if (reading->measurable)
        snapshot->reading = *reading;
    if (tell && !watcher->abandoned)
        uv_async_send(&watcher->async);
    unlock(watcher);
}

static void take_stage(struct watcher *watcher)
{
    lock(watcher);
    space_policy_stage(&watcher->policy, watcher->early);
    watcher->snapshot.act_bytes = watcher->policy.act_bytes;
    watcher->snapshot.act_inodes = watcher->policy.act_inodes;
    unlock(watcher);
}

/* One look. Returns when the next is due. */
static uint64_t look(struct watcher *watcher, bool *pulled)
{
    struct space_reading reading;
    struct space_decision decision;
    if (!*pulled) /* then the levels say where it was pulled */
        take_stage(watcher);
    read_space(watcher, &reading);
    space_policy_look(&watcher->policy, &reading, &decision);
    bool acted = false;
    if (decision.level == SPACE_FLOOR && !*pulled && !must_stop(watcher)) {
        struct space_reading again;
        struct space_decision confirmed;
        read_space(watcher, &again);
        uint64_t decided_at_ns = clock_now_ns();
        space_policy_look(&watcher->policy, &again, &confirmed);
        if (again.measurable) {
            reading = again;
            decision = confirmed;
        }
        if (decision.level == SPACE_FLOOR) {
            act(watcher, &reading, decided_at_ns);
            lock(watcher);
            *pulled = watcher->snapshot.pulled;
            unlock(watcher);
            acted = true;
        }
    }
    publish(watcher, &reading, &decision, acted);
    uint64_t interval_ns = decision.interval_ns;
    if (*pulled && interval_ns < AFTER_NS) /* nothing is left to decide, and the end may take long */
        interval_ns = AFTER_NS;
    return reading.at_ns + interval_ns;
}

static void sleep_until(struct watcher *watcher, uint64_t due_ns)
{
    uint64_t now_ns = clock_now_ns();
    uint64_t left_ns = due_ns > now_ns ? due_ns - now_ns : 0;
    struct timespec left = clock_timespec(left_ns);
    struct pollfd descriptor = {.fd = watcher->wake, .events = POLLIN};
    if (ppoll(&descriptor, 1, &left, NULL) > 0) {
        uint64_t count;
        (void)!read(watcher->wake, &count, sizeof count);
    }
}

/* So that a page fault cannot wait for memory at the worst moment. */
static void __attribute__((noinline)) touch_stack(void)
{
    volatile char room[STACK_TOUCHED_BYTES];
    for (size_t i = 0; i < sizeof room; i += 1024)
        room[i] = 1;
}

static void *watch(void *argument)
{
    struct watcher *watcher = argument;
    touch_stack();
    process_hurry();
    prctl(PR_SET_NAME, "watcher");
    prctl(PR_SET_TIMERSLACK, 1000); /* the default of 50 us is a twentieth of the shortest interval */
    bool pulled = false;
    while (!must_stop(watcher))
        sleep_until(watcher, look(watcher, &pulled));
    lock(watcher);
    watcher->finished = true;
    if (!watcher->abandoned)
        uv_async_send(&watcher->async);
    unlock(watcher);
    drop_owner(watcher);
    return NULL;
}

/* -- the loop's side -- */

static void wake(struct watcher *watcher)
{
    uint64_t one = 1;
    (void)!write(watcher->wake, &one, sizeof one);
}

static void on_handle_closed(uv_handle_t *handle)
{
    struct watcher *watcher = handle->data;
    if (--watcher->handles > 0)
        return;
    void (*closed)(bool, void *) = watcher->closed;
    void *user = watcher->closed_user;
    bool ended = watcher->joined;
    drop_owner(watcher);
    if (closed != NULL)
        closed(ended, user);
}

static void close_handles(struct watcher *watcher)
{
    uv_close((uv_handle_t *)&watcher->async, on_handle_closed);
    uv_close((uv_handle_t *)&watcher->timer, on_handle_closed);
}

static void on_async(uv_async_t *async)
{
    struct watcher *watcher = async->data;
    lock(watcher);
    bool finished = watcher->finished;
    unlock(watcher);
    if (!watcher->closing) {
        if (watcher->options.changed != NULL)
            watcher->options.changed(watcher->options.user);
        return;
    }
    if (finished && !uv_is_closing((uv_handle_t *)async)) {
        pthread_join(watcher->thread, NULL);
        watcher->joined = true;
        close_handles(watcher);
    }
}

static void on_limit(uv_timer_t *timer)
{
    struct watcher *watcher = timer->data;
    if (uv_is_closing((uv_handle_t *)timer))
        return;
    lock(watcher);
    bool finished = watcher->finished;
    watcher->abandoned = !finished;
    unlock(watcher);
    if (finished) {
        pthread_join(watcher->thread, NULL);
        watcher->joined = true;
    } else {
        pthread_detach(watcher->thread);
    }
    close_handles(watcher);
}

/* The thread may run at a higher priority: a loop that holds a lock for a moment must not be kept from giving it back.
 */
static void init_mutexes(struct watcher *watcher)
{
    pthread_mutexattr_t attributes;
    pthread_mutexattr_init(&attributes);
    pthread_mutexattr_setprotocol(&attributes, PTHREAD_PRIO_INHERIT);
    pthread_mutex_init(&watcher->mutex, &attributes);
    pthread_mutex_init(&watcher->pulling, &attributes);
    pthread_mutexattr_destroy(&attributes);
}

enum error_code watcher_start(uv_loop_t *loop, const struct watcher_options *options, struct watcher **ret_watcher,
                              struct error *err)
{
    int descriptor = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (descriptor < 0)
        return error_set_errno(err, ERROR_SYSTEM, errno, "cannot make the watcher's event descriptor");
    struct watcher *watcher = memory_new(sizeof *watcher);
    watcher->options = *options;
    watcher->wake = descriptor;
    watcher->owners = 1;
    watcher->started_ns = clock_now_ns();
    space_policy_init(&watcher->policy, &options->limits);
    watcher->snapshot.act_bytes = watcher->policy.act_bytes;
    watcher->snapshot.act_inodes = watcher->policy.act_inodes;
    init_mutexes(watcher);
    int failure = uv_async_init(loop, &watcher->async, on_async);
    if (failure != 0) {
        drop_owner(watcher);
        return error_set_errno(err, ERROR_SYSTEM, -failure, "cannot make the watcher's wake-up handle");
    }
    uv_timer_init(loop, &watcher->timer);
    watcher->handles = 2;
    watcher->async.data = watcher->timer.data = watcher;
    watcher->owners = 2;
    failure = thread_start(&watcher->thread, STACK_BYTES, watch, watcher);
    if (failure != 0) {
        watcher->owners = 1;
        watcher->closing = true;
        close_handles(watcher);
        return error_set_errno(err, ERROR_SYSTEM, failure, "cannot start the watcher thread");
    }
    *ret_watcher = watcher;
    return ERROR_NONE;
}

void watcher_look_now(struct watcher *watcher)
{
    wake(watcher);
}

void watcher_stage(struct watcher *watcher, bool early)
{
    lock(watcher);
    bool news = watcher->early != early;
    watcher->early = early;
    unlock(watcher);
    if (news)
        wake(watcher);
}

void watcher_get(struct watcher *watcher, struct watcher_snapshot *ret_snapshot)
{
    lock(watcher);
    *ret_snapshot = watcher->snapshot;
    uint64_t since_ns = watcher->reading_since_ns;
    unlock(watcher);
    uint64_t now_ns = clock_now_ns();
    uint64_t good_ns = ret_snapshot->reading.at_ns != 0 ? ret_snapshot->reading.at_ns : watcher->started_ns;
    ret_snapshot->reading_age_ns = now_ns > good_ns ? now_ns - good_ns : 0;
    ret_snapshot->blocked_ns = since_ns != 0 && now_ns > since_ns ? now_ns - since_ns : 0;
}

void watcher_settled(struct watcher *watcher, struct watcher_snapshot *ret_snapshot)
{
    pthread_mutex_lock(&watcher->pulling);
    pthread_mutex_unlock(&watcher->pulling);
    watcher_get(watcher, ret_snapshot);
}

void watcher_disarm(struct watcher *watcher)
{
    pthread_mutex_lock(&watcher->pulling);
    watcher->disarmed = true;
    pthread_mutex_unlock(&watcher->pulling);
}

void watcher_close(struct watcher *watcher, uint64_t limit_ms, void (*closed)(bool ended, void *user), void *user)
{
    watcher_disarm(watcher);
    watcher->closing = true;
    watcher->closed = closed;
    watcher->closed_user = user;
    lock(watcher);
    watcher->stop = true;
    unlock(watcher);
    wake(watcher);
    uv_update_time(watcher->timer.loop); /* the caller may have worked for long: the limit begins now */
    uv_timer_start(&watcher->timer, on_limit, limit_ms, 0);
}

bool watcher_pull_cgroup(void *context)
{
    return write(*(const int *)context, "1", 1) == 1;
}
