#include "sys/slow.h"

#include "base/memory.h"
#include "sys/thread.h"

#include <stdbool.h>
#include <stdlib.h>

enum { STACK_BYTES = 64 * 1024 };

struct slow {
    bool runs;
    uid_t uid;
    void (*call)(void *argument);
    void *argument;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct slow slots[SLOW_TOTAL];

/* NULL, and why. The lock is held. */
static struct slow *free_slot(uid_t uid, struct error *err)
{
    struct slow *found = NULL;
    unsigned of_user = 0;
    for (size_t i = 0; i < SLOW_TOTAL; i++) {
        of_user += slots[i].runs && slots[i].uid == uid;
        if (!slots[i].runs)
            found = &slots[i];
    }
    if (of_user >= SLOW_PER_UID)
        error_set(
            err, ERROR_BUSY,
            "%d descriptors or sockets that user %u has passed are still being closed or connected to, the limit for "
            "one user: their filesystem does not answer",
            SLOW_PER_UID, (unsigned)uid);
    else if (found == NULL)
        error_set(
            err, ERROR_BUSY,
            "%d descriptors or sockets that users have passed are still being closed or connected to, the limit for "
            "all: their filesystems do not answer",
            SLOW_TOTAL);
    return of_user >= SLOW_PER_UID ? NULL : found;
}

enum error_code slow_check(uid_t uid, struct error *err)
{
    pthread_mutex_lock(&lock);
    bool room = free_slot(uid, err) != NULL;
    pthread_mutex_unlock(&lock);
    return room ? ERROR_NONE : ERROR_BUSY;
}

static void release(struct slow *slow)
{
    pthread_mutex_lock(&lock);
    slow->runs = false;
    pthread_mutex_unlock(&lock);
}

static void *slow_main(void *argument)
{
    struct slow *slow = argument;
    slow->call(slow->argument);
    release(slow);
    return NULL;
}

enum error_code slow_start(uid_t uid, void (*call)(void *argument), void *argument, struct error *err)
{
    pthread_t thread;
    pthread_mutex_lock(&lock);
    struct slow *slow = free_slot(uid, err);
    if (slow != NULL)
        *slow = (struct slow){true, uid, call, argument};
    pthread_mutex_unlock(&lock);
    if (slow == NULL)
        return ERROR_BUSY;
    int failure = thread_start(&thread, STACK_BYTES, slow_main, slow);
    if (failure != 0) {
        release(slow);
        return error_set_errno(err, ERROR_SYSTEM, failure, "a thread for a call that may take long");
    }
    pthread_detach(thread);
    return ERROR_NONE;
}

unsigned slow_count(void)
{
    unsigned count = 0;
    pthread_mutex_lock(&lock);
    for (size_t i = 0; i < SLOW_TOTAL; i++)
        count += slots[i].runs;
    pthread_mutex_unlock(&lock);
    return count;
}
