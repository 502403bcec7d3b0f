/* The writers: threads that do the guard's writing, so that a slow terminal, a full or a hanging disk never holds the
 * loop up. Bytes wait in a bounded queue; what does not fit is dropped and counted. Replacements of whole files are
 * never dropped: the newest of each path wins.
 *
 * One thread for whole files, one for logs, and one for each descriptor, so that a stopped terminal does not hold up
 * the record. Functions without another word: any thread, never block on I/O. */
#pragma once

#include "base/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct sink;

enum {
    SINK_QUEUE_BYTES = 4 * 1024 * 1024, /* default, for logs and for each descriptor */
    SINK_LOG_BYTES = 16 * 1024 * 1024,  /* default, of both files of a log together */
    SINK_TARGETS = 8,
};

struct sink_state {
    uint64_t dropped_bytes; /* did not fit in a queue */
    uint64_t failed_bytes;  /* could not be written */
    uint64_t failures;      /* writes and replacements that failed */
    bool full;              /* one failed by ENOSPC or EDQUOT: a filesystem is full, or a quota used up */
    int system;             /* errno of the latest failure of a replacement; 0 */
    char problem[256];      /* the latest failure in words; "" */
    size_t waiting_bytes;
};

/* `queue_bytes` 0: the default. `file_mode`, less the umask: of the files that sink_replace makes. ERROR_SYSTEM when a
 * thread cannot be started. */
enum error_code sink_new(size_t queue_bytes, mode_t file_mode, struct sink **ret_sink, struct error *err);

/* A target for sink_append. The descriptor stays the caller's and must outlive the sink; its flags are not changed.
 * When its reader is gone, bytes for it count as failed. ERROR_TOO_LARGE above SINK_TARGETS. */
enum error_code sink_add_descriptor(struct sink *sink, int fd, int *ret_target, struct error *err);

/* A log at `path` (0600, made anew with the first byte): when it holds half of `bytes`, it becomes PATH.1 in place of
 * the older one, so at least the last half of `bytes` can be read, and never more than `bytes` are used. Removed by
 * somebody, it is made anew. */
enum error_code sink_add_log(struct sink *sink, const char *path, uint64_t bytes, int *ret_target, struct error *err);

/* All of `data` or, when it does not fit, nothing of it: then false. */
bool sink_append(struct sink *sink, int target, const void *data, size_t length);

/* The file at `path` gets these bytes, atomically (file_replace, not synced), unless newer ones come before that.
 */
void sink_replace(struct sink *sink, const char *path, const void *data, size_t length);

/* Offsets count all bytes of that log since the start of the sink; what is before `first` is gone. PATH.1 begins at
 * `first`, PATH at `current`; they are the same while there is no PATH.1. */
struct sink_log {
    uint64_t first, current, end;
};
void sink_get_log(struct sink *sink, int target, struct sink_log *ret_log);

void sink_get(struct sink *sink, struct sink_state *ret_state);

/* Blocks until all that was handed over before is written or has failed: true; or `limit_ms` are over. */
bool sink_flush(struct sink *sink, uint64_t limit_ms);

/* Flushes and ends. False: a write hangs; what waits behind it is dropped, and its thread ends by itself when that
 * write returns (until then the descriptor or path may still be written to). NULL is allowed. */
bool sink_free(struct sink *sink, uint64_t limit_ms);
