/* What processes have written, as the kernel counts it: wchar of /proc/PID/io (proc(5)), all bytes handed to write(2)
 * and the like, whether they reached a disk or not; writes through a mapping are not in it. Needs root, or the same
 * user. Any thread. */
#pragma once

#include "sys/process.h"

#include <stdbool.h>
#include <stdint.h>

/* False: gone, or it may not be looked at. */
bool written_by(pid_t pid, uint64_t *ret_bytes);

/* Of `ancestor` and all that descends from it in `all`, in which processes that a subreaper among them has adopted
 * count as its children. What a process had written that was waited for, its parent has counted. */
uint64_t written_by_tree(const struct process_list *all, pid_t ancestor);

/* Pure: of the text of /proc/PID/io. False: no such line. */
bool written_from_text(const char *text, size_t length, uint64_t *ret_bytes);
