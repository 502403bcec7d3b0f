#include "sys/dump_folder.h"

#include "base/buffer.h"
#include "base/memory.h"
#include "base/text.h"
#include "json/json.h"
#include "sys/admin_names.h"
#include "sys/file.h"
#include "sys/process.h"
#include "sys/run_json.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

enum { RECORD_MAX = 32 * 1024 * 1024 };

bool dump_folder_is_probe(const char *name)
{
    return text_starts(name, "kldump-probe-");
}

/* What kldump itself or a sealed dump leaves in a dump folder. */
static bool is_ours(int fd, const char *name)
{
    static const char *const ends[] = {".kldump.json", ".kldump-run.json", ".capture.json"};
    for (size_t i = 0; i < sizeof ends / sizeof ends[0]; i++)
        if (text_ends(name, ends[i]))
            return true;
    if (dump_folder_is_probe(name))
        return true;
    char seal[128];
    return text_is_name(name) && snprintf(seal, sizeof seal, "%s.kldump.json", name) > 0 &&
           faccessat(fd, seal, F_OK, AT_SYMLINK_NOFOLLOW) == 0;
}

enum error_code dump_folder_foreign(int fd, char *ret_name, size_t size, struct error *err)
{
    /* opened anew: a duplicate would share its place in the folder with `fd` */
    int own = openat(fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *folder = own >= 0 ? fdopendir(own) : NULL;
    if (folder == NULL) {
        int saved = errno;
        if (own >= 0)
            close(own);
        return error_set_errno(err, ERROR_SYSTEM, saved, "the folder cannot be read");
    }
    ret_name[0] = '\0';
    const struct dirent *entry;
    while (ret_name[0] == '\0' && (entry = readdir(folder)) != NULL) {
        const char *name = entry->d_name;
        if (strcmp(name, ".") != 0 && strcmp(name, "..") != 0 && !is_ours(own, name))
            text_clean(name, strlen(name), ret_name, size);
    }
    closedir(folder);
    return ERROR_NONE;
}

/* ---- one run at a time ---- */

/* Who holds the lock of the file, as /proc/locks tells: "12: FLOCK  ADVISORY  WRITE 3040 fe:00:3287481 0 EOF"; 0: it
 * does not. */
static pid_t holder_of(const struct stat *file)
{
    char line[256];
    int pid = 0;
    FILE *locks = fopen("/proc/locks", "re");
    while (locks != NULL && fgets(line, sizeof line, locks) != NULL) {
        unsigned major_number, minor_number;
        unsigned long long inode;
        if (sscanf(line, "%*d: FLOCK %*s WRITE %d %x:%x:%llu", &pid, &major_number, &minor_number, &inode) == 4 &&
            inode == file->st_ino && makedev(major_number, minor_number) == file->st_dev)
            break;
        pid = 0;
    }
    if (locks != NULL)
        fclose(locks);
    return pid;
}

/* A run of one's own is known by its name. */
static bool name_of(const char *runs, pid_t pid, char *ret_name, size_t size)
{
    bool found = false;
    struct stat status;
    DIR *folder = opendir(runs);
    for (const struct dirent *entry; folder != NULL && !found && (entry = readdir(folder)) != NULL;) {
        struct buffer text;
        struct json *record = NULL;
        uint64_t guard_pid = 0;
        char *path = memory_format("%s/%s/record.json", runs, entry->d_name);
        buffer_init(&text);
        /* ours alone: in another user's folder anything may lie, and not even root looks at that */
        found = text_is_name(entry->d_name) &&
                fstatat(dirfd(folder), entry->d_name, &status, AT_SYMLINK_NOFOLLOW) == 0 && S_ISDIR(status.st_mode) &&
                status.st_uid == geteuid() && file_read(path, RECORD_MAX, &text, NULL) == ERROR_NONE &&
                json_parse(text.data, text.length, (struct json_limits){RECORD_MAX, JSON_DEPTH, RUN_JSON_RECORD_VALUES},
                           &record, NULL) == ERROR_NONE &&
                json_get_u64(record, "run.guard_pid", &guard_pid, NULL) == ERROR_NONE && guard_pid == (uint64_t)pid;
        if (found)
            text_copy(ret_name, size, entry->d_name);
        json_free(record);
        buffer_fini(&text);
        free(path);
    }
    if (folder != NULL)
        closedir(folder);
    return found;
}

/* False: whoever may only read in it cannot take it from those whose it is. */
static bool may_have(uid_t uid, const struct stat *folder)
{
    return uid == 0 || uid == geteuid() || uid == folder->st_uid || (folder->st_mode & (S_IWGRP | S_IWOTH)) != 0;
}

enum error_code dump_folder_take(int fd, const char *path, const char *runs, struct error *err)
{
    struct stat status;
    uid_t real, uid;
    char name[80], user[64];
    if (file_lock_descriptor(fd) != EWOULDBLOCK || fstat(fd, &status) != 0)
        return ERROR_NONE;
    pid_t pid = holder_of(&status);
    bool is_seen = pid > 0 && process_read_users(pid, &real, &uid);
    if (is_seen && !may_have(uid, &status))
        return ERROR_NONE;
    if (is_seen && name_of(runs, pid, name, sizeof name))
        return error_set(err, ERROR_EXISTS,
                         "dump folder %s is that of the live run %s; two runs in one folder spoil each other's dumps: "
                         "give another one with --dir, or end that run: kldumpctl stop %s",
                         path, name, name);
    if (is_seen) {
        admin_names_user(uid, user, sizeof user);
        return error_set(err, ERROR_EXISTS,
                         "dump folder %s is in use by process %d of user %s, the guard of a live run; two runs in one "
                         "folder spoil each other's dumps: give another one with --dir",
                         path, (int)pid, user);
    }
    return error_set(err, ERROR_EXISTS,
                     "dump folder %s is in use by a live run that cannot be seen from here; two runs in one folder "
                     "spoil each other's dumps: give another one with --dir",
                     path);
}

/* ---- where it is ---- */

static char *absolute(const char *path)
{
    if (path[0] == '/')
        return memory_copy(path);
    char *here = getcwd(NULL, 0);
    char *full = memory_format("%s/%s", here != NULL ? here : "", path);
    free(here);
    return full;
}

/* The nearest folder that is there, or NULL; what follows it is moved from `path` to *rest. */
static char *find_nearest(char *path, char **rest, int *ret_problem)
{
    struct stat status;
    char *nearest;
    size_t length = strlen(path);
    while (length > 1 && path[length - 1] == '/')
        path[--length] = '\0';
    while ((nearest = realpath(path, NULL)) == NULL) {
        int problem = errno;
        if (problem == ENOENT && lstat(path, &status) == 0)
            problem = ELOOP; /* a link that leads nowhere: it can be neither entered nor made */
        if (*ret_problem == 0 || problem != ENOENT)
            *ret_problem = problem;
        char *slash = strrchr(path, '/');
        if (slash == NULL || path[1] == '\0')
            return NULL;
        char *longer = memory_format("%s%s", slash, *rest);
        free(*rest);
        *rest = longer;
        slash[slash == path ? 1 : 0] = '\0';
    }
    return nearest;
}

/* Takes the parts "." and ".." out of an absolute path; true when there were any. */
static bool remove_dots(char *path)
{
    bool found = false;
    size_t to = 0;
    for (const char *from = path; *from == '/';) {
        size_t length = 1 + strcspn(from + 1, "/");
        bool up = length == 3 && memcmp(from, "/..", 3) == 0, same = length == 2 && from[1] == '.';
        found = found || up || same;
        if (up) {
            while (to > 0 && path[--to] != '/')
                ;
        } else if (length > 1 && !same) {
            memmove(path + to, from, length);
            to += length;
        }
        from += length;
    }
    if (to == 0)
        path[to++] = '/';
    path[to] = '\0';
    return found;
}

char *dump_folder_foresee(const char *path, char **ret_nearest, int *ret_problem)
{
    int problem = 0;
    char *part = absolute(path), *rest = memory_copy("");
    char *nearest = find_nearest(part, &rest, &problem);
    if (nearest == NULL)
        nearest = memory_copy("/");
    char *whole = memory_format("%s%s", strcmp(nearest, "/") == 0 && rest[0] != '\0' ? "" : nearest, rest);
    free(part);
    free(rest);
    if (remove_dots(whole)) { /* they stand where nothing is yet: what would be made there is no link */
        free(nearest);
        char *again = dump_folder_foresee(whole, ret_nearest, ret_problem);
        free(whole);
        return again;
    }
    if (ret_problem != NULL)
        *ret_problem = problem;
    if (ret_nearest != NULL)
        *ret_nearest = nearest;
    else
        free(nearest);
    return whole;
}

enum error_code dump_folder_refuse(const char *path, struct error *err)
{
    return error_set(err, ERROR_FORBIDDEN, "dump folder %s: %s; give another one with --dir", path, strerror(errno));
}

/* False with errno. */
static bool is_folder(const char *path)
{
    struct stat found;
    if (stat(path, &found) != 0)
        return false;
    errno = ENOTDIR;
    return S_ISDIR(found.st_mode);
}

enum error_code dump_folder_make(const char *path, struct error *err)
{
    char *part = memory_copy(path);
    enum error_code code = ERROR_NONE;
    for (char *slash = strchr(part + 1, '/'); code == ERROR_NONE; slash = strchr(slash + 1, '/')) {
        if (slash != NULL)
            *slash = '\0';
        if (mkdir(part, 0777) != 0 && (errno != EEXIST || (slash == NULL && !is_folder(part))))
            code = dump_folder_refuse(part, err);
        if (slash == NULL)
            break;
        *slash = '/';
    }
    free(part);
    return code;
}
