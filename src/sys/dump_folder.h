/* The folder that gets the dumps of a run: what else may lie in it. Any thread; blocks as the file system does. */
#pragma once

#include "base/error.h"

#include <stdbool.h>
#include <stddef.h>

/* Finds the first entry of the folder `fd` that neither kldump nor a sealed dump has left there; its name, made safe to
 * show, goes to `ret_name`, "" when there is none. ERROR_SYSTEM when the folder cannot be read. */
enum error_code dump_folder_foreign(int fd, char *ret_name, size_t size, struct error *err);

/* Takes the folder `fd`, open for reading, for one run, until the descriptor and its duplicates are closed: of two that
 * dump into one folder each would spoil the other's dumps. ERROR_EXISTS: another run has it: its name, where its record
 * lies in `runs` (RUNTIME/runs), else its guard's pid and user. `path`: for that message. A folder that cannot be
 * locked (NFS) is nobody's; nor is it his who could not write to it. */
enum error_code dump_folder_take(int fd, const char *path, const char *runs, struct error *err);

/* True for the name of a folder that a probe writes to and removes. */
bool dump_folder_is_probe(const char *name);

/* The absolute path that the folder has, or would have once it is made: links followed as far as it is there.
 * `ret_nearest` (may be NULL): the folder itself, or the nearest above that is there; `ret_problem` (may be NULL):
 * errno of the way to it: 0: it is there; ENOENT: it would be made; ELOOP also for a link that leads nowhere. Both
 * texts are the caller's. */
char *dump_folder_foresee(const char *path, char **ret_nearest, int *ret_problem);

/* Makes it and what is above it, as mkdir -p does, with the usual mode. ERROR_FORBIDDEN. */
enum error_code dump_folder_make(const char *path, struct error *err);

/* ERROR_FORBIDDEN: errno says why it cannot be made, opened or written. */
enum error_code dump_folder_refuse(const char *path, struct error *err);
