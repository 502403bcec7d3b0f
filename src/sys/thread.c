#include "sys/thread.h"

#include <signal.h>

int thread_start(pthread_t *ret_thread, size_t stack_bytes, void *(*run)(void *argument), void *argument)
{
    pthread_attr_t attributes;
    sigset_t all, before;
    pthread_attr_init(&attributes);
    if (stack_bytes > 0)
        pthread_attr_setstacksize(&attributes, stack_bytes);
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before); /* the thread inherits this mask */
    int failure = pthread_create(ret_thread, &attributes, run, argument);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_attr_destroy(&attributes);
    return failure;
}
