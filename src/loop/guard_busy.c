/* The guard's loop while it works on a large audit: a hundred thousand passes are seconds of JSON, and a guard that is
 * silent for KEEPER_STARVED_MS is taken for dead by its keeper, which kills the run. Happy path: guard_busy_begin
 * starts a thread that beats instead of the loop; guard_busy_end ends it. The watcher guards the disk meanwhile.
 *
 * The work hangs: no beat after LIMIT_BEATS, and the keeper does what it is there for.
 * The thread cannot be started: the loop is silent, as it would be without. */
#include "loop/guard_private.h"
#include "sys/thread.h"

#include <errno.h>
#include <time.h>

enum { LIMIT_BEATS = 120 }; /* a minute */

static void *beat(void *argument)
{
    struct guard_busy *busy = argument;
    struct timespec due;
    clock_gettime(CLOCK_MONOTONIC, &due);
    pthread_mutex_lock(&busy->lock);
    for (int beats = 0; beats < LIMIT_BEATS && !busy->done; beats++) {
        keeper_send(busy->keeper, KEEPER_HEARTBEAT, NULL);
        due.tv_nsec += KEEPER_HEARTBEAT_MS * 1000000L;
        due.tv_sec += due.tv_nsec / 1000000000;
        due.tv_nsec %= 1000000000;
        while (!busy->done && pthread_cond_timedwait(&busy->end, &busy->lock, &due) != ETIMEDOUT)
            ;
    }
    pthread_mutex_unlock(&busy->lock);
    return NULL;
}

void guard_busy_begin(struct guard *guard, struct guard_busy *busy)
{
    pthread_condattr_t attributes;
    *busy = (struct guard_busy){.keeper = &guard->keeper};
    pthread_mutex_init(&busy->lock, NULL);
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_cond_init(&busy->end, &attributes);
    pthread_condattr_destroy(&attributes);
    busy->started = guard->has_keeper && !guard->keeper_gone && thread_start(&busy->thread, 0, beat, busy) == 0;
}

void guard_busy_end(struct guard_busy *busy)
{
    pthread_mutex_lock(&busy->lock);
    busy->done = true;
    pthread_cond_signal(&busy->end);
    pthread_mutex_unlock(&busy->lock);
    if (busy->started)
        pthread_join(busy->thread, NULL);
    pthread_cond_destroy(&busy->end);
    pthread_mutex_destroy(&busy->lock);
}
