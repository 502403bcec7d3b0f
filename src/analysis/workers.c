#include "analysis/workers.h"

#include <pthread.h>
#include <unistd.h>

enum { USUAL_MAX = 8 };

struct workers {
    void (*work)(void *context, bool is_caller);
    void *context;
};

static void *thread_main(void *argument)
{
    const struct workers *workers = argument;
    workers->work(workers->context, false);
    return NULL;
}

static size_t usual_count(void)
{
    long processors = sysconf(_SC_NPROCESSORS_ONLN);
    return processors < 1 ? 1 : processors > USUAL_MAX ? USUAL_MAX : (size_t)processors;
}

void workers_run(unsigned threads, size_t most, void (*work)(void *context, bool is_caller), void *context)
{
    struct workers workers = {work, context};
    pthread_t started[WORKERS_MAX];
    size_t count = 0, wanted = threads != 0 ? threads : usual_count();
    if (wanted > most)
        wanted = most;
    if (wanted > WORKERS_MAX)
        wanted = WORKERS_MAX;
    while (count + 1 < wanted && pthread_create(&started[count], NULL, thread_main, &workers) == 0)
        count++;
    work(context, true);
    while (count > 0)
        pthread_join(started[--count], NULL);
}
