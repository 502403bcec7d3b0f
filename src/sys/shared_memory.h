/* Segments in /dev/shm that were left behind. Any thread; reads /proc. */
#pragma once

#include "base/list.h"

#include <stdbool.h>

/* Adds the names of our own user's files that `wanted` takes; none of them holds a control character. */
void shared_memory_find(bool (*wanted)(const char *name), struct list *ret_names);

/* Takes those out of `names` that a process has mapped, as far as we may see. */
void shared_memory_drop_used(struct list *names);
