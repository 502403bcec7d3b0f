/* What kldumpctl reads from disk. One thread. */
#pragma once

#include "base/buffer.h"
#include "base/error.h"

#include <stddef.h>

/* The runtime folder, whether it is there or not: $KLDUMP_RUNTIME_DIR, else $RUNTIME_DIRECTORY, else
 * $XDG_RUNTIME_DIR/kldump, else /tmp/kldump-UID. ERROR_FORBIDDEN: it is there but belongs to another user. The caller
 * frees it. */
enum error_code files_runtime_folder(char **ret_path, struct error *err);

/* Appends a regular file of at most `most` bytes. ERROR_NOT_FOUND, ERROR_TOO_LARGE, ERROR_SYSTEM. */
enum error_code files_read(const char *path, size_t most, struct buffer *out, struct error *err);
