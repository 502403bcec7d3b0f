/* Files in a folder whose owner is not trusted: everything goes by the descriptor of the folder, follows no link,
 * crosses into no other filesystem (a user may mount one of his own over what is his), and opens without waiting (a
 * FIFO has nobody on its other end). Names are single components. Any thread. Messages name `name` alone: the caller
 * puts the folder before. */
#pragma once

#include "base/buffer.h"
#include "base/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <sys/stat.h>
#include <sys/types.h>

/* Opens a folder (O_PATH) below another one. ERROR_NOT_FOUND; ERROR_FORMAT when it is a link, a mount (err->system is
 * EXDEV), or no folder. `ret_status` is of what was opened. The descriptor is the caller's. */
enum error_code file_below_folder(int parent_fd, const char *name, int *ret_fd, struct stat *ret_status,
                                  struct error *err);

/* Opens a regular file of `owner` with a single link for reading. ERROR_NOT_FOUND; ERROR_FORMAT for anything else that
 * is there. */
enum error_code file_below_open(int folder_fd, const char *name, uid_t owner, int *ret_fd, struct stat *ret_status,
                                struct error *err);

/* Opens a socket (O_PATH): connect to /proc/self/fd/N. ERROR_NOT_FOUND; ERROR_FORMAT for anything else that is there.
 */
enum error_code file_below_socket(int folder_fd, const char *name, int *ret_fd, struct error *err);

/* Appends at most `max_bytes` from `offset` on. On failure the buffer is as before. */
enum error_code file_below_read(int fd, const char *name, off_t offset, size_t max_bytes, struct buffer *buffer,
                                struct error *err);

/* True when some process holds the lock (file_lock) `name`. A file of another owner counts as unlocked. */
bool file_below_is_locked(int folder_fd, const char *name, uid_t owner);

/* Sets `name` aside as NAME.damaged, in the place of an older one. False: it could not be renamed; of an older one that
 * is a folder FILE_BELOW_REMOVE_MAX entries are gone then. */
bool file_below_set_aside(int folder_fd, const char *name);

/* Removes `name` with all below it, as file_remove_all does, but no more than `*most` entries, from which those that
 * were looked at are taken: whose folder it is may have made a million, and the caller has others to serve. */
enum { FILE_BELOW_REMOVE_MAX = 4096 };
enum file_below_left {
    FILE_BELOW_GONE,
    FILE_BELOW_MORE, /* some were removed, and `*most` is used up: call again */
    FILE_BELOW_STUCK /* none can be: mounted over, too deep */
};
enum file_below_left file_below_remove(int folder_fd, const char *name, size_t *most);
