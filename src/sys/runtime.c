#include "sys/runtime.h"

#include "base/memory.h"
#include "base/text.h"
#include "sys/file.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

/* Length of "/runs/NAME/control" with a name of ordinary length, and the NUL; a longer name is told when its socket is
 * made. */
enum { RUNTIME_ROOM = 6 + 24 + 8 + 1 };

/* The path, and in `ret_from` where it comes from. */
static char *runtime_choose(enum runtime_use use, const char **ret_from)
{
    const char *own = getenv("KLDUMP_RUNTIME_DIR"), *unit = getenv("RUNTIME_DIRECTORY"),
               *user = getenv("XDG_RUNTIME_DIR");
    *ret_from = "KLDUMP_RUNTIME_DIR";
    if (own && *own)
        return memory_copy(own);
    *ret_from = "RUNTIME_DIRECTORY"; /* several are separated by colons; ours is the first */
    if (unit && *unit)
        return memory_copy_n(unit, strcspn(unit, ":"));
    *ret_from = "the system's folder";
    if (use == RUNTIME_SYSTEM)
        return memory_copy("/run/kldump");
    *ret_from = "XDG_RUNTIME_DIR";
    if (user && *user)
        return memory_format("%s/kldump", user);
    *ret_from = "/tmp";
    return memory_format("/tmp/kldump-%u", (unsigned)geteuid());
}

/* Root's, and nobody else may write in it; others may look. An older one of root's stays as closed as it is. */
static enum error_code runtime_make_system(const char *path, mode_t mode, struct error *err)
{
    if (mkdir(path, mode) == 0) {
        if (chmod(path, mode) < 0) /* whatever the umask is; nothing is in it yet */
            return error_set_errno(err, ERROR_SYSTEM, errno, "cannot open the folder %s to its users", path);
    } else if (errno != EEXIST) {
        return error_set_errno(err, ERROR_SYSTEM, errno, "cannot make the folder %s", path);
    }
    struct stat status;
    if (lstat(path, &status) < 0)
        return error_set_errno(err, ERROR_SYSTEM, errno, "cannot look at %s", path);
    if (!S_ISDIR(status.st_mode))
        return error_set(err, ERROR_FORBIDDEN, "%s must be a folder, not a link or a file; remove it", path);
    if (status.st_uid != geteuid())
        return error_set(err, ERROR_FORBIDDEN, "%s belongs to uid %u, not to %u; remove it", path,
                         (unsigned)status.st_uid, (unsigned)geteuid());
    if (status.st_mode & (S_IWGRP | S_IWOTH))
        return error_set(err, ERROR_FORBIDDEN, "others may write in %s (mode %03o); chmod go-w it", path,
                         (unsigned)status.st_mode & 0777);
    return ERROR_NONE;
}

static enum error_code runtime_check_system(const char *path, struct error *err)
{
    static const struct {
        const char *name;
        mode_t mode;
    } folders[] = {{"", 0755}, {"/runs", 0755}, {"/owned", 0700}};
    enum error_code code = ERROR_NONE;
    for (size_t i = 0; code == ERROR_NONE && i < sizeof folders / sizeof folders[0]; i++) {
        char *folder = memory_format("%s%s", path, folders[i].name);
        code = runtime_make_system(folder, folders[i].mode, err);
        free(folder);
    }
    return code;
}

/* Root's own runs may be below the folder of a daemon for all users, which is open for looking. */
static bool runtime_is_system(const char *path)
{
    struct stat status;
    char *owned = memory_format("%s/owned", path);
    bool is = geteuid() == 0 && lstat(owned, &status) == 0 && S_ISDIR(status.st_mode) && status.st_uid == 0 &&
              (status.st_mode & 077) == 0;
    free(owned);
    return is;
}

static enum error_code runtime_check(enum runtime_use use, const char *path, const char *from, struct error *err)
{
    const size_t most = sizeof((struct sockaddr_un *)0)->sun_path - RUNTIME_ROOM;
    if (path[0] != '/')
        return error_set(err, ERROR_BAD_VALUE, "%s must hold an absolute path, not \"%s\"", from, path);
    if (strlen(path) > most)
        return error_set(
            err, ERROR_BAD_VALUE,
            "the runtime folder %s (from %s) has %zu characters; at most %zu leave room for the sockets below", path,
            from, strlen(path), most);
    if (use == RUNTIME_SYSTEM || runtime_is_system(path))
        return runtime_check_system(path, err);
    struct stat status;
    if (use == RUNTIME_LOOK && lstat(path, &status) < 0 && errno == ENOENT)
        return error_set(err, ERROR_NOT_FOUND, "there is no runtime folder %s: no run has been started", path);
    if (use == RUNTIME_LOOK && lstat(path, &status) < 0)
        return error_set(err, errno == EACCES ? ERROR_FORBIDDEN : ERROR_SYSTEM,
                         "cannot look at the runtime folder %s (from %s): %s; choose another with KLDUMP_RUNTIME_DIR",
                         path, from, strerror(errno));
    enum error_code code = file_make_private_folder(path, err);
    if (code != ERROR_NONE || use == RUNTIME_LOOK)
        return code;
    char *runs = memory_format("%s/runs", path);
    code = file_make_private_folder(runs, err);
    free(runs);
    return code;
}

static char *runtime_trimmed(enum runtime_use use, const char **ret_from)
{
    char *path = runtime_choose(use, ret_from);
    size_t length = strlen(path);
    while (length > 1 && path[length - 1] == '/')
        path[--length] = '\0';
    return path;
}

char *runtime_path(void)
{
    const char *from;
    return runtime_trimmed(RUNTIME_LOOK, &from);
}

enum error_code runtime_directory(enum runtime_use use, char **ret_path, struct error *err)
{
    const char *from;
    char *path = runtime_trimmed(use, &from);
    enum error_code code = runtime_check(use, path, from, err);
    if (code == ERROR_NONE)
        *ret_path = path;
    else
        free(path);
    return code;
}

char *runtime_run_folder(const char *runtime, const char *name)
{
    return memory_format("%s/runs/%s", runtime, name);
}
