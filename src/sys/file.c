#include "sys/file.h"

#include "base/memory.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { FILE_DEPTH = 32, FILE_PIECE = 65536 };

void file_open_standard(void)
{
    int fd;
    do
        fd = open("/dev/null", O_RDWR);
    while (fd >= 0 && fd <= STDERR_FILENO);
    if (fd > STDERR_FILENO)
        close(fd);
}

/* ---- replacing ---- */

static int file_write_all(int fd, const char *data, size_t length)
{
    while (length > 0) {
        ssize_t done = write(fd, data, length);
        if (done < 0 && errno == EINTR)
            continue;
        if (done < 0)
            return errno;
        if (done == 0)
            return EIO;
        data += done;
        length -= (size_t)done;
    }
    return 0;
}

static int file_sync_folder_of(const char *path)
{
    const char *slash = strrchr(path, '/');
    char *folder = slash ? memory_copy_n(path, slash == path ? 1 : (size_t)(slash - path)) : memory_copy(".");
    int fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    free(folder);
    if (fd < 0)
        return errno;
    int result = fsync(fd) == 0 || errno == EINVAL ? 0 : errno;
    close(fd);
    return result;
}

bool file_is_leftover(const char *name)
{
    enum { CHANCE = 8, ENDING = 4 }; /* ".%08x.tmp" */
    size_t length = strlen(name);
    if (length < CHANCE + ENDING + 2 || strcmp(name + length - ENDING, ".tmp") != 0)
        return false;
    const char *chance = name + length - ENDING - CHANCE;
    return chance[-1] == '.' && strspn(chance, "0123456789abcdef") == CHANCE;
}

enum error_code file_replace_begin(const char *path, mode_t mode, struct file_replacement *ret_replacement,
                                   struct error *err)
{
    struct stat status;
    if (stat(path, &status) == 0 && !S_ISREG(status.st_mode)) /* root would lose /dev/null, or a pipe its reader */
        return error_set(err, ERROR_FORMAT, "cannot write %s: it is there and is no regular file; name another", path);
    uint32_t chance = 0;
    if (getrandom(&chance, sizeof chance, GRND_NONBLOCK) < 0)
        chance = (uint32_t)getpid();
    char *temporary = memory_format("%s.%08x.tmp", path, chance);
    int fd = open(temporary, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, mode);
    if (fd < 0) {
        int system = errno;
        free(temporary);
        return error_set_errno(err, ERROR_SYSTEM, system, "cannot write %s", path);
    }
    *ret_replacement = (struct file_replacement){.fd = fd, .path = memory_copy(path), .temporary = temporary};
    return ERROR_NONE;
}

enum error_code file_replace_write(struct file_replacement *replacement, const void *data, size_t length,
                                   struct error *err)
{
    int result = file_write_all(replacement->fd, data, length);
    return result == 0 ? ERROR_NONE : error_set_errno(err, ERROR_SYSTEM, result, "cannot write %s", replacement->path);
}

enum error_code file_replace_commit(struct file_replacement *replacement, enum file_sync sync, struct error *err)
{
    int result = sync == FILE_SYNC && fsync(replacement->fd) < 0 ? errno : 0;
    if (close(replacement->fd) < 0 && result == 0) /* some file systems tell a full disk only here */
        result = errno;
    if (result == 0 && rename(replacement->temporary, replacement->path) < 0)
        result = errno;
    if (result != 0)
        unlink(replacement->temporary);
    else if (sync == FILE_SYNC)
        result = file_sync_folder_of(replacement->path);
    enum error_code code = ERROR_NONE;
    if (result != 0)
        code = error_set_errno(err, ERROR_SYSTEM, result, "cannot write %s", replacement->path);
    free(replacement->path);
    free(replacement->temporary);
    return code;
}

void file_replace_abandon(struct file_replacement *replacement)
{
    close(replacement->fd);
    unlink(replacement->temporary);
    free(replacement->path);
    free(replacement->temporary);
}

enum error_code file_replace(const char *path, const void *data, size_t length, mode_t mode, enum file_sync sync,
                             struct error *err)
{
    struct file_replacement replacement;
    enum error_code code = file_replace_begin(path, mode, &replacement, err);
    if (code != ERROR_NONE)
        return code;
    code = file_replace_write(&replacement, data, length, err);
    if (code == ERROR_NONE)
        return file_replace_commit(&replacement, sync, err);
    file_replace_abandon(&replacement);
    return code;
}

/* ---- reading ---- */

static enum error_code file_open_regular(const char *path, int *ret_fd, struct error *err)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (fd < 0)
        return error_set_errno(err, errno == ENOENT ? ERROR_NOT_FOUND : ERROR_SYSTEM, errno, "cannot read %s", path);
    struct stat status;
    if (fstat(fd, &status) < 0 || !S_ISREG(status.st_mode)) {
        close(fd);
        return error_set(err, ERROR_FORMAT, "%s is not a regular file", path);
    }
    *ret_fd = fd;
    return ERROR_NONE;
}

enum error_code file_read_part(const char *path, off_t offset, size_t max_bytes, struct buffer *buffer,
                               struct error *err)
{
    int fd = -1;
    enum error_code code = file_open_regular(path, &fd, err);
    if (code != ERROR_NONE)
        return code;
    char *piece = memory_new(FILE_PIECE);
    struct buffer read_bytes;
    buffer_init(&read_bytes);
    ssize_t got = 1;
    while (read_bytes.length < max_bytes && got != 0) {
        size_t left = max_bytes - read_bytes.length;
        got = pread(fd, piece, left < FILE_PIECE ? left : FILE_PIECE, offset + (off_t)read_bytes.length);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0) {
            code = error_set_errno(err, ERROR_SYSTEM, errno, "cannot read %s", path);
            break;
        }
        buffer_append(&read_bytes, piece, (size_t)got);
    }
    if (code == ERROR_NONE)
        buffer_append(buffer, read_bytes.data, read_bytes.length);
    buffer_fini(&read_bytes);
    free(piece);
    close(fd);
    return code;
}

enum error_code file_read(const char *path, size_t max_bytes, struct buffer *buffer, struct error *err)
{
    struct buffer whole;
    buffer_init(&whole);
    enum error_code code = file_read_part(path, 0, max_bytes + 1, &whole, err);
    if (code == ERROR_NONE && whole.length > max_bytes)
        code = error_set(err, ERROR_TOO_LARGE, "%s is larger than the limit of %zu bytes", path, max_bytes);
    if (code == ERROR_NONE)
        buffer_append(buffer, whole.data, whole.length);
    buffer_fini(&whole);
    return code;
}

/* ---- folders ---- */

enum error_code file_make_private_folder(const char *path, struct error *err)
{
    if (mkdir(path, 0700) < 0 && errno != EEXIST)
        return error_set_errno(err, ERROR_SYSTEM, errno, "cannot make the folder %s", path);
    /* Looked at through a descriptor that followed no link: what is checked is what is there. */
    int fd = open(path, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    struct stat status;
    if (fd < 0 || fstat(fd, &status) < 0) {
        int system = errno;
        if (fd >= 0)
            close(fd);
        return error_set(err, ERROR_FORBIDDEN, "%s must be a folder, not %s; remove it", path,
                         system == ELOOP || system == ENOTDIR ? "a link or a file" : strerror(system));
    }
    close(fd);
    if (status.st_uid != geteuid())
        return error_set(err, ERROR_FORBIDDEN,
                         "%s belongs to uid %u, not to %u; choose another with KLDUMP_RUNTIME_DIR", path,
                         (unsigned)status.st_uid, (unsigned)geteuid());
    if (status.st_mode & 077)
        return error_set(err, ERROR_FORBIDDEN, "%s is open to others (mode %03o, expected 700); remove it", path,
                         (unsigned)status.st_mode & 0777);
    return ERROR_NONE;
}

static bool file_remove_below(int parent, const char *name, dev_t device, int depth)
{
    if (unlinkat(parent, name, 0) == 0 || errno == ENOENT)
        return true;
    int fd = openat(parent, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    struct stat status;
    DIR *directory = NULL;
    if (fd >= 0 && depth > 0 && fstat(fd, &status) == 0 && status.st_dev == device)
        directory = fdopendir(fd);
    if (!directory) {
        if (fd >= 0)
            close(fd);
        return false;
    }
    const struct dirent *entry;
    while ((entry = readdir(directory)) != NULL)
        if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0)
            file_remove_below(fd, entry->d_name, device, depth - 1);
    closedir(directory);
    return unlinkat(parent, name, AT_REMOVEDIR) == 0;
}

bool file_remove_all(const char *path)
{
    struct stat status;
    if (lstat(path, &status) < 0)
        return errno == ENOENT;
    return file_remove_below(AT_FDCWD, path, status.st_dev, FILE_DEPTH);
}

/* ---- locks ---- */

enum { FILE_LOCK_TRIES = 50 };

int file_lock_descriptor(int fd)
{
    int failed = flock(fd, LOCK_EX | LOCK_NB);
    for (int tries = 0; failed != 0 && errno == EWOULDBLOCK && tries < FILE_LOCK_TRIES; tries++) {
        /* who asks file_is_locked holds it for a few microseconds */
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
        failed = flock(fd, LOCK_EX | LOCK_NB);
    }
    return failed == 0 ? 0 : errno;
}

enum error_code file_lock(const char *path, int *ret_fd, struct error *err)
{
    int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0)
        return error_set_errno(err, ERROR_SYSTEM, errno, "cannot open the lock %s", path);
    int system = file_lock_descriptor(fd);
    if (system == 0) {
        *ret_fd = fd;
        return ERROR_NONE;
    }
    close(fd);
    if (system == EWOULDBLOCK)
        return error_set(err, ERROR_BUSY, "another process holds the lock %s", path);
    return error_set_errno(err, ERROR_SYSTEM, system, "cannot lock %s", path);
}

bool file_is_locked(const char *path)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (fd < 0)
        return false;
    /* Shared, so that two who only look do not see each other. */
    bool locked = flock(fd, LOCK_SH | LOCK_NB) < 0 && errno == EWOULDBLOCK;
    close(fd);
    return locked;
}
