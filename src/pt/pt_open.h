/* Opens a file of a folder that may hold anything: regular files only, no link is followed, no pipe is waited for. */
#pragma once

#include "pt/pt_file.h"

#include <sys/stat.h>

/* The caller closes *ret_fd. ERROR_NOT_FOUND, ERROR_FORBIDDEN, ERROR_FORMAT (a link), ERROR_SYSTEM; *ret_problem is set
 * then: PT_FILE_MISSING, PT_FILE_IRREGULAR, PT_FILE_UNREADABLE. */
enum error_code pt_open(int folder_fd, const char *name, int *ret_fd, enum pt_file_problem *ret_problem,
                        struct error *err);

/* fstat of a regular file; anything else is ERROR_FORMAT with PT_FILE_IRREGULAR. */
enum error_code pt_open_status(int fd, struct stat *ret_status, enum pt_file_problem *ret_problem, struct error *err);
