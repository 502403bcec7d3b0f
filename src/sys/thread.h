/* The start of a thread beside the loop. */
#pragma once

#include <pthread.h>
#include <stddef.h>

/* Starts `run` with every signal blocked: signals are the loop's, and PIPE makes write return EPIPE. `stack_bytes` 0:
 * the usual size. 0, or an errno value, and then there is no thread. Any thread. */
int thread_start(pthread_t *ret_thread, size_t stack_bytes, void *(*run)(void *argument), void *argument);
