#include "sys/cgroup.h"

#include "base/memory.h"
#include "base/text.h"
#include "sys/cgroup_control.h"
#include "sys/process.h"
#include "sys/systemd.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/utsname.h>
#include <sys/xattr.h>
#include <unistd.h>

enum { CGROUP_TEXT = 256 * 1024, CGROUP_PATH = 4096 };

/* ---- where we are ---- */

/* Copies a field of mountinfo up to the next blank, with its octal escapes undone (proc(5)). */
static bool cgroup_copy_field(const char *field, char *out, size_t size)
{
    size_t used = 0;
    while (*field && *field != ' ' && *field != '\n') {
        if (used + 1 >= size)
            return false;
        if (field[0] == '\\' && field[1] >= '0' && field[1] <= '3' && field[2] >= '0' && field[2] <= '7' &&
            field[3] >= '0' && field[3] <= '7') {
            out[used++] = (char)((field[1] - '0') * 64 + (field[2] - '0') * 8 + (field[3] - '0'));
            field += 4;
        } else {
            out[used++] = *field++;
        }
    }
    out[used] = '\0';
    return used > 0;
}

static const char *cgroup_skip_fields(const char *line, int count)
{
    for (; count > 0 && line; count--) {
        line = strchr(line, ' ');
        line = line ? line + 1 : NULL;
    }
    return line;
}

/* Root and mount point of the first cgroup2 mount. */
static bool cgroup_find_mount(const char *mountinfo, char *root, char *point, size_t size)
{
    while (*mountinfo) {
        size_t length = strcspn(mountinfo, "\n");
        char *line = memory_copy_n(mountinfo, length);
        const char *type = strstr(line, " - ");
        bool found = type && text_starts(type, " - cgroup2 ");
        if (found) {
            const char *fields = cgroup_skip_fields(line, 3);
            const char *second = cgroup_skip_fields(line, 4);
            found = fields && second && cgroup_copy_field(fields, root, size) && cgroup_copy_field(second, point, size);
        }
        free(line);
        if (found)
            return true;
        mountinfo += length;
        mountinfo += *mountinfo == '\n';
    }
    return false;
}

/* The path in the version 2 hierarchy: the line that begins "0::", whatever else is there. */
static bool cgroup_find_membership(const char *membership, char *out, size_t size)
{
    const char *line = text_starts(membership, "0::") ? membership : strstr(membership, "\n0::");
    if (!line)
        return false;
    line = strstr(line, "0::") + 3;
    size_t length = strcspn(line, "\n");
    const char *mark = " (deleted)";
    if (length > strlen(mark) && strncmp(line + length - strlen(mark), mark, strlen(mark)) == 0)
        length -= strlen(mark);
    if (length == 0 || length >= size || line[0] != '/')
        return false;
    memcpy(out, line, length);
    out[length] = '\0';
    return true;
}

bool cgroup_locate(const char *mountinfo, const char *membership, char *ret_path, size_t size)
{
    char root[CGROUP_PATH], point[CGROUP_PATH], own[CGROUP_PATH];
    if (!cgroup_find_mount(mountinfo, root, point, sizeof root) || !cgroup_find_membership(membership, own, sizeof own))
        return false;
    if (text_starts(own, "/..")) /* outside of what our namespace shows */
        return false;
    const char *below = own;
    if (strcmp(root, "/") != 0) {
        size_t length = strlen(root);
        if (strncmp(own, root, length) != 0 || (own[length] != '/' && own[length] != '\0'))
            return false;
        below = own + length;
    }
    if (strcmp(below, "/") == 0)
        below = "";
    int written = snprintf(ret_path, size, "%s%s", point, below);
    return written > 0 && (size_t)written < size;
}

static char *cgroup_read_proc(const char *path)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return NULL;
    char *text = memory_new(CGROUP_TEXT);
    size_t length = 0;
    ssize_t got;
    while (length < CGROUP_TEXT - 1 &&
           ((got = read(fd, text + length, CGROUP_TEXT - 1 - length)) > 0 || (got < 0 && errno == EINTR)))
        length += got > 0 ? (size_t)got : 0;
    close(fd);
    return text;
}

/* The folder of a process's cgroup; pid 0 is ours. */
static bool cgroup_of(pid_t pid, char *ret_path, size_t size)
{
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/cgroup", (int)(pid ? pid : getpid()));
    char *mountinfo = cgroup_read_proc("/proc/self/mountinfo");
    char *membership = cgroup_read_proc(path);
    bool found = mountinfo && membership && cgroup_locate(mountinfo, membership, ret_path, size);
    free(mountinfo);
    free(membership);
    return found;
}

bool cgroup_own(char *ret_path, size_t size, char *ret_mount, size_t mount_size)
{
    char root[CGROUP_PATH], point[CGROUP_PATH];
    char *mountinfo = cgroup_read_proc("/proc/self/mountinfo");
    bool found = mountinfo && cgroup_find_mount(mountinfo, root, point, sizeof root) && strlen(point) < mount_size &&
                 cgroup_of(0, ret_path, size);
    free(mountinfo);
    if (found)
        text_copy(ret_mount, mount_size, point);
    return found;
}

/* systemd marks the cgroups that it leaves to others, but an older one only in a way that root alone can see. A folder
 * of the system's hierarchy that belongs to an ordinary user was given to that user; below user@UID.service all folders
 * do, and it means nothing. */
static bool cgroup_is_delegated(const char *path)
{
    char value[8];
    struct stat status;
    if ((getxattr(path, "user.delegate", value, sizeof value) > 0 ||
         getxattr(path, "trusted.delegate", value, sizeof value) > 0) &&
        value[0] == '1')
        return true;
    const char *last = strrchr(path, '/'); /* a unit that kldumpd has asked its user's systemd for, delegated */
    if (last && text_starts(last, "/kldump-run-") && text_ends(last, ".service"))
        return true;
    return geteuid() != 0 && stat(path, &status) == 0 && status.st_uid == geteuid() && !strstr(path, "/user@");
}

/* ---- making one ---- */

void cgroup_set_none(struct cgroup *cgroup, const char *why)
{
    *cgroup = (struct cgroup){.kind = CGROUP_NONE, .directory_fd = -1, .kill_fd = -1, .events_fd = -1};
    snprintf(cgroup->guarantee, sizeof cgroup->guarantee, "keeper alone: no writable cgroup (%s)", why);
}

/* Makes PARENT/NAME and opens it. On failure nothing is left and `why` is filled. */
static bool cgroup_try_leaf(const char *parent, const char *name, enum cgroup_kind kind, struct cgroup *ret_cgroup,
                            char *why, size_t why_size)
{
    char *path = memory_format("%s/%s", parent, name);
    struct cgroup cgroup = {.kind = kind, .directory_fd = -1, .kill_fd = -1, .events_fd = -1};
    bool made = mkdir(path, 0755) == 0;
    if (made) {
        cgroup.directory_fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        if (cgroup.directory_fd >= 0 && flock(cgroup.directory_fd, LOCK_SH) == 0)
            cgroup.kill_fd = cgroup_control_open_kill(cgroup.directory_fd);
        if (cgroup.kill_fd >= 0)
            cgroup.events_fd = cgroup_control_open_events(cgroup.directory_fd);
    }
    if (cgroup.events_fd < 0) {
        snprintf(why, why_size, "%s: %s", made ? "a new one cannot be used" : parent, strerror(errno));
        if (cgroup.kill_fd >= 0)
            close(cgroup.kill_fd);
        if (cgroup.directory_fd >= 0)
            close(cgroup.directory_fd);
        if (made)
            rmdir(path);
        free(path);
        return false;
    }
    snprintf(cgroup.guarantee, sizeof cgroup.guarantee, "cgroup: %s", path);
    cgroup.path = path;
    *ret_cgroup = cgroup;
    return true;
}

/* Another guard that tidies up (cgroup_clear_left) can take it away before it is locked. */
static bool cgroup_make_leaf(const char *parent, const char *name, enum cgroup_kind kind, struct cgroup *ret_cgroup,
                             char *why, size_t why_size)
{
    bool made = false;
    for (int tries = 0; tries < 3 && !made; tries++)
        made = cgroup_try_leaf(parent, name, kind, ret_cgroup, why, why_size);
    return made;
}

void cgroup_make(const char *run_name, const char *cookie, pid_t keeper_pid, struct cgroup *ret_cgroup)
{
    char own[CGROUP_PATH], why[200] = "no cgroup of version 2 is mounted", parent[CGROUP_PATH];
    char *name = memory_format("kldump-%s-%.8s", run_name, cookie);
    char *scope = memory_format("%s.scope", name);
    bool located = cgroup_of(0, own, sizeof own);
    bool made = located && cgroup_is_delegated(own) &&
                cgroup_make_leaf(own, name, CGROUP_DELEGATED, ret_cgroup, why, sizeof why);
    if (located && !made && systemd_start_user_scope(scope, keeper_pid, "kldump run", NULL) == ERROR_NONE &&
        cgroup_of(keeper_pid, parent, sizeof parent) && text_ends(parent, scope))
        made = cgroup_make_leaf(parent, name, CGROUP_SCOPE, ret_cgroup, why, sizeof why);
    if (located && !made)
        made = cgroup_make_leaf(own, name, CGROUP_OWN, ret_cgroup, why, sizeof why);
    if (!made)
        cgroup_set_none(ret_cgroup, why);
    free(name);
    free(scope);
}

/* cgroup.kill came with Linux 5.14; the root has none to look for. */
static bool cgroup_kernel_kills(void)
{
    struct utsname system;
    unsigned major = 0, minor = 0;
    return uname(&system) == 0 && sscanf(system.release, "%u.%u", &major, &minor) == 2 &&
           (major > 5 || (major == 5 && minor >= 14));
}

enum cgroup_kind cgroup_foresee(char *ret_text, size_t size)
{
    char own[CGROUP_PATH];
    if (!cgroup_of(0, own, sizeof own)) {
        snprintf(ret_text, size, "no cgroup of version 2 is mounted, or ours lies outside of it");
        return CGROUP_NONE;
    }
    if (!cgroup_kernel_kills()) {
        snprintf(ret_text, size, "this kernel is older than 5.14 and has no cgroup.kill");
        return CGROUP_NONE;
    }
    bool writable = access(own, W_OK | X_OK) == 0;
    int problem = errno;
    snprintf(ret_text, size, "%s", own);
    if (writable && cgroup_is_delegated(own))
        return CGROUP_DELEGATED;
    if (systemd_has_user_bus()) {
        snprintf(ret_text, size, "systemd --user");
        return CGROUP_SCOPE;
    }
    if (writable)
        return CGROUP_OWN;
    snprintf(ret_text, size, "%.300s: %s", own, strerror(problem));
    return CGROUP_NONE;
}

/* Opens PARENT/NAME when neither a guard nor a keeper holds it: it stays locked until it is closed. -1: held or gone.
 */
static int cgroup_open_left(int parent_fd, const char *name)
{
    int fd = openat(parent_fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd >= 0 && flock(fd, LOCK_EX | LOCK_NB) < 0) {
        close(fd);
        fd = -1;
    }
    return fd;
}

static bool cgroup_is_empty(int folder_fd, const char *name)
{
    bool empty = false;
    int fd = cgroup_open_left(folder_fd, name);
    int events = fd >= 0 ? cgroup_control_open_events(fd) : -1;
    if (events >= 0) {
        empty = cgroup_control_populated(events) == 0;
        close(events);
    }
    if (fd >= 0)
        close(fd);
    return empty;
}

/* The number of processes in it; 0 also when one of them has a keeper: one of a version that does not lock. */
static size_t cgroup_count_unguarded(int directory_fd)
{
    int fd = openat(directory_fd, "cgroup.procs", O_RDONLY | O_CLOEXEC);
    FILE *procs = fd >= 0 ? fdopen(fd, "r") : NULL;
    size_t count = 0;
    bool guarded = procs == NULL;
    int pid;
    while (!guarded && fscanf(procs, "%d", &pid) == 1) {
        guarded = process_has_ancestor(pid, "kldump-keeper");
        count++;
    }
    if (procs)
        fclose(procs);
    return guarded ? 0 : count;
}

static void cgroup_clear(int directory_fd, const char *path, struct list *ret_told)
{
    int kill_fd = cgroup_control_open_kill(directory_fd), events = cgroup_control_open_events(directory_fd);
    size_t count = events >= 0 && cgroup_control_populated(events) == 1 ? cgroup_count_unguarded(directory_fd) : 0;
    if (count > 0 && kill_fd >= 0 && cgroup_control_kill(kill_fd) == 0) {
        cgroup_control_thaw(directory_fd);
        cgroup_control_wait_empty(events, 1000);
        list_add_format(ret_told, "killed %zu processes of a run whose guard and keeper are gone, in %s", count, path);
    }
    cgroup_control_remove(directory_fd); /* not while something lives in it */
    if (kill_fd >= 0)
        close(kill_fd);
    if (events >= 0)
        close(events);
}

void cgroup_clear_left(struct list *ret_told)
{
    char own[CGROUP_PATH];
    DIR *folder = cgroup_of(0, own, sizeof own) ? opendir(own) : NULL;
    if (!folder)
        return;
    const struct dirent *entry;
    while ((entry = readdir(folder)) != NULL) {
        bool leaf = text_starts(entry->d_name, "kldump-") && !text_ends(entry->d_name, ".run"); /* sys/cgroup_run.h */
        int fd = leaf ? cgroup_open_left(dirfd(folder), entry->d_name) : -1;
        if (fd < 0)
            continue;
        char *path = memory_format("%s/%s", own, entry->d_name);
        cgroup_clear(fd, path, ret_told);
        free(path);
        close(fd);
    }
    closedir(folder);
}

static void cgroup_walk(const char *path, int depth, struct list *ret_paths)
{
    enum { DEPTH_MOST = 12 };
    DIR *folder = depth < DEPTH_MOST ? opendir(path) : NULL;
    if (folder == NULL)
        return;
    const struct dirent *entry;
    while ((entry = readdir(folder)) != NULL) {
        if (entry->d_type != DT_DIR || entry->d_name[0] == '.')
            continue;
        bool is_ours = text_starts(entry->d_name, "kldump-");
        char *below = memory_format("%s/%s", path, entry->d_name);
        if (is_ours && cgroup_is_empty(dirfd(folder), entry->d_name))
            list_add(ret_paths, below);
        else
            cgroup_walk(below, depth + 1, ret_paths);
        free(below);
    }
    closedir(folder);
}

void cgroup_find_empty(struct list *ret_paths)
{
    char root[CGROUP_PATH], point[CGROUP_PATH];
    char *mountinfo = cgroup_read_proc("/proc/self/mountinfo");
    if (mountinfo && cgroup_find_mount(mountinfo, root, point, sizeof root))
        cgroup_walk(point, 0, ret_paths);
    free(mountinfo);
}

bool cgroup_kill(const struct cgroup *cgroup)
{
    if (cgroup->kind == CGROUP_NONE || cgroup_control_kill(cgroup->kill_fd) != 0)
        return false;
    cgroup_control_thaw(cgroup->directory_fd);
    return true;
}

bool cgroup_freeze(const struct cgroup *cgroup, int limit_ms)
{
    return cgroup->kind != CGROUP_NONE && cgroup_control_freeze(cgroup->directory_fd) == 0 &&
           cgroup_control_wait_frozen(cgroup->events_fd, limit_ms);
}

bool cgroup_thaw(const struct cgroup *cgroup)
{
    return cgroup->kind != CGROUP_NONE && cgroup_control_thaw(cgroup->directory_fd) == 0;
}

bool cgroup_fini(struct cgroup *cgroup)
{
    bool removed = true;
    if (cgroup->kind != CGROUP_NONE) {
        removed = cgroup_control_remove(cgroup->directory_fd) == 0;
        close(cgroup->kill_fd);
        close(cgroup->events_fd);
        close(cgroup->directory_fd);
        free(cgroup->path);
    }
    cgroup_set_none(cgroup, "not made");
    return removed;
}
