#include "ctl/files.h"
#include "base/memory.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

static char *named_folder(void)
{
    static const struct {
        const char *variable, *format;
    } places[] = {{"KLDUMP_RUNTIME_DIR", ""}, {"RUNTIME_DIRECTORY", ""}, {"XDG_RUNTIME_DIR", "/kldump"}};
    for (size_t i = 0; i < sizeof places / sizeof places[0]; i++) {
        const char *value = getenv(places[i].variable);
        if (value != NULL && value[0] == '/')
            return memory_format("%s%s", value, places[i].format);
    }
    return memory_format("/tmp/kldump-%u", (unsigned)geteuid());
}

enum error_code files_runtime_folder(char **ret_path, struct error *err)
{
    char *path = named_folder();
    struct stat status;
    /* /tmp/kldump-UID may have been made by anybody */
    if (lstat(path, &status) == 0 && (!S_ISDIR(status.st_mode) || status.st_uid != geteuid())) {
        error_set(err, ERROR_FORBIDDEN, "%s is not a folder of yours; remove it, or set KLDUMP_RUNTIME_DIR", path);
        free(path);
        return ERROR_FORBIDDEN;
    }
    *ret_path = path;
    return ERROR_NONE;
}

static enum error_code read_all(int fd, const char *path, size_t most, struct buffer *out, struct error *err)
{
    struct stat status;
    if (fstat(fd, &status) != 0)
        return error_set_errno(err, ERROR_SYSTEM, errno, "%s", path);
    if (!S_ISREG(status.st_mode))
        return error_set(err, ERROR_SYSTEM, "%s is not a regular file", path);
    size_t start = out->length;
    for (;;) {
        char bytes[16384];
        ssize_t n = read(fd, bytes, sizeof bytes);
        if (n == 0)
            return ERROR_NONE;
        if (n < 0 && errno != EINTR)
            return error_set_errno(err, ERROR_SYSTEM, errno, "%s: cannot read", path);
        if (n > 0)
            buffer_append(out, bytes, (size_t)n);
        if (out->length - start > most)
            return error_set(err, ERROR_TOO_LARGE, "%s is larger than %zu bytes", path, most);
    }
}

enum error_code files_read(const char *path, size_t most, struct buffer *out, struct error *err)
{
    /* non-blocking: opening a pipe that lies there must not wait */
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0)
        return error_set_errno(err, errno == ENOENT ? ERROR_NOT_FOUND : ERROR_SYSTEM, errno, "%s", path);
    enum error_code code = read_all(fd, path, most, out, err);
    close(fd);
    return code;
}
