#include "pt/pt_open.h"

#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

static const struct {
    int system;
    enum pt_file_problem problem;
    enum error_code code;
} failures[] = {
    {ENOENT, PT_FILE_MISSING, ERROR_NOT_FOUND},       {ENOTDIR, PT_FILE_MISSING, ERROR_NOT_FOUND},
    {ENAMETOOLONG, PT_FILE_MISSING, ERROR_NOT_FOUND}, {ELOOP, PT_FILE_IRREGULAR, ERROR_FORMAT}, /* a link */
    {ENXIO, PT_FILE_IRREGULAR, ERROR_FORMAT}, /* a socket, a device without a driver */
    {EACCES, PT_FILE_UNREADABLE, ERROR_FORBIDDEN},    {EPERM, PT_FILE_UNREADABLE, ERROR_FORBIDDEN},
};

enum error_code pt_open(int folder_fd, const char *name, int *ret_fd, enum pt_file_problem *ret_problem,
                        struct error *err)
{
    /* O_NONBLOCK: opening a pipe must not wait for a writer. */
    int fd = openat(folder_fd, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC | O_NOCTTY);
    if (fd >= 0) {
        *ret_fd = fd;
        return ERROR_NONE;
    }
    int system = errno;
    size_t i = 0;
    while (i < sizeof failures / sizeof failures[0] && failures[i].system != system)
        i++;
    bool listed = i < sizeof failures / sizeof failures[0];
    *ret_problem = listed ? failures[i].problem : PT_FILE_UNREADABLE;
    if (listed && failures[i].code == ERROR_FORMAT)
        return error_set(err, ERROR_FORMAT, "not a regular file; links are not followed");
    return error_set_errno(err, listed ? failures[i].code : ERROR_SYSTEM, system, "cannot be opened");
}

enum error_code pt_open_status(int fd, struct stat *ret_status, enum pt_file_problem *ret_problem, struct error *err)
{
    struct stat status;
    if (fstat(fd, &status) != 0 || !S_ISREG(status.st_mode)) {
        *ret_problem = PT_FILE_IRREGULAR;
        return error_set(err, ERROR_FORMAT, "not a regular file");
    }
    *ret_status = status;
    return ERROR_NONE;
}
