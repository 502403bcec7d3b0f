/* Calls that a stranger can make last for ever: closing what he has passed, connecting to a socket that lies on a
 * filesystem of his. Each has a thread of its own, so that nobody waits for it; a user, and all together, have a
 * limited number of them. Any thread. */
#pragma once

#include "base/error.h"

#include <sys/types.h>

enum { SLOW_PER_UID = 8, SLOW_TOTAL = 256 };

/* ERROR_BUSY, with the limit: no more for this user until some have come back. */
enum error_code slow_check(uid_t uid, struct error *err);

/* `call` runs soon, on a small stack, with every signal blocked. On failure (ERROR_BUSY as of slow_check; ERROR_SYSTEM:
 * no thread to be had) it does not. */
enum error_code slow_start(uid_t uid, void (*call)(void *argument), void *argument, struct error *err);

/* How many have not come back. */
unsigned slow_count(void);
