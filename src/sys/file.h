/* Files: replaced whole, read under a cap, locked; private folders. Any thread; paths are used as given. Blocks as long
 * as the file system does: never call for the dump's file system from the loop thread. */
#pragma once

#include "base/buffer.h"
#include "base/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

/* For the start of main: opens /dev/null in place of each of the descriptors 0, 1 and 2 that is closed. Else a lock, a
 * socket or a record would get that number, and what is meant for people would be written into it. */
void file_open_standard(void);

enum file_sync { FILE_NO_SYNC, FILE_SYNC }; /* FILE_SYNC: on the disk before it returns, name included */

/* The file holds the old bytes or the new ones, never a part, whatever fails: written beside it under a temporary name,
 * then renamed. A new file is for its owner alone (0600), or as `mode` says. On failure (ERROR_SYSTEM, err->system has
 * ENOSPC and the like) the old file is untouched and no temporary one is left. ERROR_FORMAT, and nothing is changed,
 * where a folder, a device, a pipe or a link to one of these is there: a link to a file is itself replaced. */
enum error_code file_replace(const char *path, const void *data, size_t length, mode_t mode, enum file_sync sync,
                             struct error *err);

/* Whether a file of this name, without folder, is what a process that was killed has left of file_replace. */
bool file_is_leftover(const char *name);

/* The same for what is too large to be held: write to `fd`, then commit or abandon; either closes and frees.
 * Errors as above; after a commit that failed the old file is untouched, nothing is left. */
struct file_replacement {
    int fd;
    char *path, *temporary;
};
enum error_code file_replace_begin(const char *path, mode_t mode, struct file_replacement *ret_replacement,
                                   struct error *err);
enum error_code file_replace_write(struct file_replacement *replacement, const void *data, size_t length,
                                   struct error *err);
enum error_code file_replace_commit(struct file_replacement *replacement, enum file_sync sync, struct error *err);
void file_replace_abandon(struct file_replacement *replacement);

/* Appends the whole file to `buffer`. ERROR_NOT_FOUND; ERROR_TOO_LARGE above `max_bytes`; ERROR_FORMAT for what is no
 * regular file (a FIFO would block); ERROR_SYSTEM. On failure the buffer is as before. */
enum error_code file_read(const char *path, size_t max_bytes, struct buffer *buffer, struct error *err);

/* Appends at most `max_bytes` from `offset` on; fewer at the end of the file. As file_read otherwise. */
enum error_code file_read_part(const char *path, off_t offset, size_t max_bytes, struct buffer *buffer,
                               struct error *err);

/* Makes the folder (0700) where it is not there; its parent must exist. ERROR_FORBIDDEN, and nothing is changed, when
 * what is there is no folder, a link, of another owner, or open to others. */
enum error_code file_make_private_folder(const char *path, struct error *err);

/* Makes the file (0600) and takes the lock; held until the descriptor is closed or the process ends. ERROR_BUSY when
 * another process holds it for longer than a look by file_is_locked takes (50 ms). */
enum error_code file_lock(const char *path, int *ret_fd, struct error *err);

/* The same for a file or folder that is open. errno's value: EWOULDBLOCK: another process holds it; others: it cannot
 * be locked, such as a folder of NFS. */
int file_lock_descriptor(int fd);

/* True when some process holds that lock. */
bool file_is_locked(const char *path);

/* Removes a file, or a folder with all below; follows no link, crosses into no other file system, gives up 32 levels
 * down. True when nothing of it is left. */
bool file_remove_all(const char *path);
