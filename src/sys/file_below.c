#include "sys/file_below.h"

#include "base/memory.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { FILE_BELOW_DEPTH = 32, FILE_BELOW_PIECE = 65536 };

/* The kernel looks at no mount and follows no link on the way. Where a container's filter does not know the call, the
 * device is compared afterwards: then a mount is noticed only once it was opened. */
static int file_below_openat(int folder_fd, const char *name, int flags, struct stat *ret_status)
{
    struct open_how how = {.flags = (unsigned)flags | O_CLOEXEC | O_NOFOLLOW,
                           .resolve = RESOLVE_NO_XDEV | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS};
    struct stat parent;
    int fd = (int)syscall(SYS_openat2, folder_fd, name, &how, sizeof how);
    bool unknown = fd < 0 && (errno == ENOSYS || errno == EPERM);
    if (unknown)
        fd = openat(folder_fd, name, flags | O_CLOEXEC | O_NOFOLLOW);
    if (fd < 0)
        return -1;
    bool seen = fstat(fd, ret_status) == 0;
    int system = seen ? EXDEV : errno;
    if (seen && unknown)
        seen = fstat(folder_fd, &parent) == 0 && parent.st_dev == ret_status->st_dev;
    if (seen)
        return fd;
    close(fd);
    errno = system;
    return -1;
}

static enum error_code file_below_refuse(const char *name, const char *wanted, struct error *err)
{
    switch (errno) {
    case ENOENT:
        return error_set_errno(err, ERROR_NOT_FOUND, errno, "%s", name);
    case ELOOP:
        return error_set(err, ERROR_FORMAT, "%s is a link, expected %s", name, wanted);
    case EXDEV:
        error_set(err, ERROR_FORMAT, "another filesystem is mounted over %s", name);
        if (err != NULL)
            err->system = EXDEV;
        return ERROR_FORMAT;
    case ENOTDIR:
    case ENXIO: /* a socket */
    case ENODEV:
        return error_set(err, ERROR_FORMAT, "%s is not %s", name, wanted);
    default:
        return error_set_errno(err, ERROR_SYSTEM, errno, "cannot open %s", name);
    }
}

enum error_code file_below_folder(int parent_fd, const char *name, int *ret_fd, struct stat *ret_status,
                                  struct error *err)
{
    struct stat status;
    int fd = file_below_openat(parent_fd, name, O_PATH | O_DIRECTORY, &status);
    if (fd < 0)
        return file_below_refuse(name, "a folder", err);
    *ret_fd = fd;
    *ret_status = status;
    return ERROR_NONE;
}

enum error_code file_below_socket(int folder_fd, const char *name, int *ret_fd, struct error *err)
{
    struct stat status;
    int fd = file_below_openat(folder_fd, name, O_PATH, &status);
    if (fd < 0)
        return file_below_refuse(name, "a socket", err);
    if (!S_ISSOCK(status.st_mode)) {
        close(fd);
        return error_set(err, ERROR_FORMAT, "%s is not a socket", name);
    }
    *ret_fd = fd;
    return ERROR_NONE;
}

enum error_code file_below_open(int folder_fd, const char *name, uid_t owner, int *ret_fd, struct stat *ret_status,
                                struct error *err)
{
    struct stat status;
    int fd = file_below_openat(folder_fd, name, O_RDONLY | O_NONBLOCK | O_NOCTTY, &status);
    if (fd < 0)
        return file_below_refuse(name, "a regular file", err);
    enum error_code code = ERROR_NONE;
    if (!S_ISREG(status.st_mode))
        code = error_set(err, ERROR_FORMAT, "%s is not a regular file", name);
    else if (status.st_uid != owner)
        code = error_set(err, ERROR_FORMAT, "%s belongs to uid %u, expected %u", name, (unsigned)status.st_uid,
                         (unsigned)owner);
    else if (status.st_nlink > 1)
        code = error_set(err, ERROR_FORMAT, "%s has another name as well (a hard link)", name);
    if (code != ERROR_NONE) {
        close(fd);
        return code;
    }
    *ret_fd = fd;
    *ret_status = status;
    return ERROR_NONE;
}

enum error_code file_below_read(int fd, const char *name, off_t offset, size_t max_bytes, struct buffer *buffer,
                                struct error *err)
{
    char *piece = memory_new(FILE_BELOW_PIECE);
    enum error_code code = ERROR_NONE;
    size_t before = buffer->length, left = max_bytes;
    while (left > 0) {
        ssize_t got =
            pread(fd, piece, left < FILE_BELOW_PIECE ? left : FILE_BELOW_PIECE, offset + (off_t)(max_bytes - left));
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            code = error_set_errno(err, ERROR_SYSTEM, errno, "cannot read %s", name);
        if (got <= 0)
            break;
        buffer_append(buffer, piece, (size_t)got);
        left -= (size_t)got;
    }
    if (code != ERROR_NONE) {
        buffer->length = before;
        buffer->data[before] = '\0';
    }
    free(piece);
    return code;
}

bool file_below_is_locked(int folder_fd, const char *name, uid_t owner)
{
    struct stat status;
    int fd = -1;
    if (file_below_open(folder_fd, name, owner, &fd, &status, NULL) != ERROR_NONE)
        return false;
    /* Shared, so that two who only look do not see each other. */
    bool locked = flock(fd, LOCK_SH | LOCK_NB) < 0 && errno == EWOULDBLOCK;
    close(fd);
    return locked;
}

struct file_below_removal {
    size_t most, removed;
};

static bool file_below_remove_from(int parent, const char *name, int depth, struct file_below_removal *removal)
{
    if (removal->most == 0)
        return false;
    removal->most--;
    if (unlinkat(parent, name, 0) == 0 || errno == ENOENT) {
        removal->removed++;
        return true;
    }
    struct stat status;
    int fd = depth > 0 ? file_below_openat(parent, name, O_RDONLY | O_DIRECTORY, &status) : -1;
    DIR *directory = fd >= 0 ? fdopendir(fd) : NULL;
    if (directory == NULL) {
        if (fd >= 0)
            close(fd);
        return false;
    }
    for (const struct dirent *entry; removal->most > 0 && (entry = readdir(directory)) != NULL;)
        if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0)
            file_below_remove_from(fd, entry->d_name, depth - 1, removal);
    closedir(directory);
    bool gone = unlinkat(parent, name, AT_REMOVEDIR) == 0;
    removal->removed += gone;
    return gone;
}

enum file_below_left file_below_remove(int folder_fd, const char *name, size_t *most)
{
    struct file_below_removal removal = {.most = *most};
    bool gone = file_below_remove_from(folder_fd, name, FILE_BELOW_DEPTH, &removal);
    bool used_up = removal.most == 0;
    *most = removal.most;
    return gone ? FILE_BELOW_GONE : used_up && removal.removed > 0 ? FILE_BELOW_MORE : FILE_BELOW_STUCK;
}

bool file_below_set_aside(int folder_fd, const char *name)
{
    char *aside = memory_format("%s.damaged", name);
    size_t most = FILE_BELOW_REMOVE_MAX;
    bool done = renameat(folder_fd, name, folder_fd, aside) == 0;
    if (!done && (errno == EISDIR || errno == ENOTDIR || errno == ENOTEMPTY || errno == EEXIST) &&
        file_below_remove(folder_fd, aside, &most) == FILE_BELOW_GONE)
        done = renameat(folder_fd, name, folder_fd, aside) == 0;
    free(aside);
    return done;
}
