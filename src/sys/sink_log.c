#include "sys/sink_log.h"

#include "base/memory.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

void sink_log_init(struct sink_log_file *log, const char *path, uint64_t bytes)
{
    *log = (struct sink_log_file){
        .path = memory_copy(path),
        .older_path = memory_format("%s.1", path),
        .half_bytes = bytes / 2 > 0 ? bytes / 2 : 1,
        .fd = -1,
    };
}

void sink_log_fini(struct sink_log_file *log)
{
    if (log->fd >= 0)
        close(log->fd);
    free(log->path);
    free(log->older_path);
    *log = (struct sink_log_file){.fd = -1};
}

static int sink_log_create(const char *path)
{
    return open(path, O_WRONLY | O_CREAT | O_TRUNC | O_APPEND | O_CLOEXEC | O_NOFOLLOW, 0600);
}

/* Opens the first file, or a new one where somebody removed it. */
static int sink_log_open(struct sink_log_file *log)
{
    struct stat status;
    if (log->fd >= 0 && fstat(log->fd, &status) == 0 && status.st_nlink > 0)
        return 0;
    int fd = sink_log_create(log->path);
    if (fd < 0)
        return errno;
    if (log->fd >= 0)
        close(log->fd);
    else
        unlink(log->older_path); /* of an earlier run of this name */
    log->fd = fd;
    log->size = 0;
    return 0;
}

/* The new file is made before the old one is moved: on a disk where that fails nothing has changed. */
static int sink_log_rotate(struct sink_log_file *log)
{
    char *fresh_path = memory_format("%s.new", log->path);
    int fd = sink_log_create(fresh_path);
    int result = fd < 0 ? errno : 0;
    if (result == 0 && rename(log->path, log->older_path) < 0)
        result = errno;
    if (result == 0 && rename(fresh_path, log->path) < 0)
        result = errno;
    if (result != 0 && fd >= 0) {
        close(fd);
        unlink(fresh_path);
    }
    free(fresh_path);
    if (result != 0)
        return result;
    close(log->fd);
    log->fd = fd;
    log->older_size = log->size;
    log->size = 0;
    return 0;
}

int sink_log_write(struct sink_log_file *log, const char *data, size_t length, size_t *ret_written)
{
    *ret_written = 0;
    while (length > 0) {
        int result = sink_log_open(log);
        if (result == 0 && log->size >= log->half_bytes)
            result = sink_log_rotate(log);
        if (result != 0)
            return result;
        uint64_t room = log->half_bytes - log->size;
        ssize_t done = write(log->fd, data, length < room ? length : (size_t)room);
        if (done < 0 && errno == EINTR)
            continue;
        if (done < 0)
            return errno;
        data += done;
        length -= (size_t)done;
        log->size += (uint64_t)done;
        *ret_written += (size_t)done;
    }
    return 0;
}
