/* Opens a file of a folder that may hold anything: regular files only, no link is followed, no pipe is waited for. */
#pragma once

#include "pt/pt_file.h"

/* The caller closes *ret_fd; *ret_size is of fstat. ERROR_NOT_FOUND, ERROR_FORBIDDEN, ERROR_FORMAT (no regular file),
 * ERROR_SYSTEM; *ret_problem is set then: PT_FILE_MISSING, PT_FILE_IRREGULAR, PT_FILE_UNREADABLE. */
enum error_code pt_open(int folder_fd, const char *name, int *ret_fd, uint64_t *ret_size,
                        enum pt_file_problem *ret_problem, struct error *err);
