/* The server's output as a log that clients read by offset. Loop thread. */
#pragma once

#include "loop/guard_private.h"

enum error_code guard_log_start(struct guard *guard, struct error *err);
void guard_log_append(struct guard *guard, const char *data, size_t length);

/* Bytes of output since the start that are on disk and may be read. */
uint64_t guard_log_end(const struct guard *guard);

/* Appends up to `most` bytes from *offset on; *offset moves up to the oldest byte that is still there. Does not end
 * within a UTF-8 sequence unless the output does. */
void guard_log_read(struct guard *guard, uint64_t *offset, size_t most, struct buffer *text);
