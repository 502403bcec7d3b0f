/* A log in two files, for the sink's thread: the newest bytes in PATH, older ones in PATH.1. One thread. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct sink_log_file {
    char *path, *older_path; /* owned */
    uint64_t half_bytes;     /* size at which PATH becomes PATH.1 */
    int fd;                  /* -1: not open */
    uint64_t size;           /* of PATH */
    uint64_t older_size;     /* of PATH.1 */
};

void sink_log_init(struct sink_log_file *log, const char *path, uint64_t bytes);
void sink_log_fini(struct sink_log_file *log);

/* Writes what it can; `ret_written` is how much. 0, or the errno value of what failed. A rotation that fails leaves
 * both files as they were, and writing stops at the limit until it succeeds. */
int sink_log_write(struct sink_log_file *log, const char *data, size_t length, size_t *ret_written);
