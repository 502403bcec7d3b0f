/* The folder that gets the dumps of a run: what else may lie in it. Any thread; blocks as the file system does. */
#pragma once

#include "base/error.h"

#include <stdbool.h>
#include <stddef.h>

/* Finds the first entry of the folder `fd` that neither kldump nor a sealed dump has left there; its name, made safe to
 * show, goes to `ret_name`, "" when there is none. ERROR_SYSTEM when the folder cannot be read. */
enum error_code dump_folder_foreign(int fd, char *ret_name, size_t size, struct error *err);

/* True for the name of a folder that a probe writes to and removes. */
bool dump_folder_is_probe(const char *name);
