/* The socket file: made with its final mode in a folder that nobody else can write, replaced only when dead. */
#include "loop/control_private.h"
#include "base/memory.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

enum { BACKLOG = 64 };

static enum error_code check_folder(const char *path, struct error *err)
{
    const char *slash = strrchr(path, '/');
    char *folder = slash == NULL ? memory_copy(".") : memory_copy_n(path, slash == path ? 1 : (size_t)(slash - path));
    struct stat status;
    enum error_code code = ERROR_NONE;
    if (lstat(folder, &status) != 0)
        code = error_set_errno(err, ERROR_SYSTEM, errno, "cannot look at %s, the folder of the control socket", folder);
    else if (!S_ISDIR(status.st_mode))
        code = error_set(err, ERROR_FORBIDDEN, "%s, the folder of the control socket, is not a directory", folder);
    else if (status.st_uid != geteuid() && status.st_uid != 0)
        code = error_set(err, ERROR_FORBIDDEN,
                         "%s, the folder of the control socket, belongs to user %u; it must be user %u's or root's",
                         folder, (unsigned)status.st_uid, (unsigned)geteuid());
    else if ((status.st_mode & (S_IWGRP | S_IWOTH)) != 0)
        code = error_set(err, ERROR_FORBIDDEN,
                         "%s, the folder of the control socket, can be written by others (mode %04o); chmod go-w it",
                         folder, (unsigned)status.st_mode & 07777);
    free(folder);
    return code;
}

static enum error_code make_address(const char *path, struct sockaddr_un *ret_address, struct error *err)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    size_t length = strlen(path);
    if (length >= sizeof address.sun_path)
        return error_set(err, ERROR_BAD_VALUE,
                         "the control socket's path has %zu bytes and a socket's may have %zu: %s; use a shorter "
                         "runtime folder or run name",
                         length, sizeof address.sun_path - 1, path);
    memcpy(address.sun_path, path, length + 1);
    *ret_address = address;
    return ERROR_NONE;
}

/* Removes what a dead program left; refuses what is alive or no socket. */
static enum error_code clear_path(const struct sockaddr_un *address, struct error *err)
{
    const char *path = address->sun_path;
    struct stat status;
    if (lstat(path, &status) != 0)
        return errno == ENOENT ? ERROR_NONE : error_set_errno(err, ERROR_SYSTEM, errno, "cannot look at %s", path);
    if (!S_ISSOCK(status.st_mode))
        return error_set(err, ERROR_EXISTS, "%s exists and is not a socket; move it away", path);
    int probe = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (probe < 0)
        return error_set_errno(err, ERROR_SYSTEM, errno, "cannot make a socket");
    int failure = connect(probe, (const struct sockaddr *)address, sizeof *address) == 0 ? 0 : errno;
    close(probe);
    if (failure == 0 || failure == EAGAIN) /* EAGAIN: its queue of connections is full, so it has one */
        return error_set(err, ERROR_EXISTS, "another program is answering on %s already", path);
    if (failure != ECONNREFUSED)
        return error_set_errno(err, ERROR_SYSTEM, failure, "cannot tell whether %s is in use", path);
    if (unlink(path) != 0 && errno != ENOENT)
        return error_set_errno(err, ERROR_SYSTEM, errno, "cannot remove the left-over socket %s", path);
    return ERROR_NONE;
}

static enum error_code bind_and_listen(int descriptor, const struct sockaddr_un *address, mode_t mode,
                                       struct error *err)
{
    mode_t old = umask(0777 & ~mode); /* not chmod later: nobody shall see it with another mode */
    int failure = bind(descriptor, (const struct sockaddr *)address, sizeof *address) == 0 ? 0 : errno;
    umask(old);
    if (failure == EADDRINUSE)
        return error_set(err, ERROR_EXISTS, "another program has just taken %s", address->sun_path);
    if (failure != 0)
        return error_set_errno(err, ERROR_SYSTEM, failure, "cannot bind the control socket %s", address->sun_path);
    if (listen(descriptor, BACKLOG) == 0)
        return ERROR_NONE;
    failure = errno;
    unlink(address->sun_path);
    return error_set_errno(err, ERROR_SYSTEM, failure, "cannot listen on %s", address->sun_path);
}

enum error_code control_bind(const char *path, mode_t mode, int *ret_descriptor, uint64_t *ret_device,
                             uint64_t *ret_inode, struct error *err)
{
    struct sockaddr_un address;
    enum error_code code = make_address(path, &address, err);
    if (code == ERROR_NONE)
        code = check_folder(path, err);
    if (code == ERROR_NONE)
        code = clear_path(&address, err);
    if (code != ERROR_NONE)
        return code;
    int descriptor = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (descriptor < 0)
        return error_set_errno(err, ERROR_SYSTEM, errno, "cannot make a socket");
    code = bind_and_listen(descriptor, &address, mode, err);
    struct stat status;
    if (code == ERROR_NONE && lstat(path, &status) != 0)
        code = error_set_errno(err, ERROR_SYSTEM, errno, "the control socket %s has vanished", path);
    if (code != ERROR_NONE) {
        close(descriptor);
        return code;
    }
    *ret_descriptor = descriptor;
    *ret_device = status.st_dev;
    *ret_inode = status.st_ino;
    return ERROR_NONE;
}

void control_unbind(const char *path, uint64_t device, uint64_t inode)
{
    struct stat status;
    if (lstat(path, &status) == 0 && status.st_dev == device && status.st_ino == inode)
        unlink(path);
}
