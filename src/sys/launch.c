#include "sys/launch.h"

#include "sys/cgroup_run.h"
#include "sys/launch_spawn.h"
#include "sys/process.h"
#include "sys/systemd_unit.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { LAUNCH_UNIT_TRIES = 10 };
static const char launch_prefix[] = "kldump-run-";

enum launch_way launch_way(void)
{
    bool root = geteuid() == 0;
    if (!systemd_unit_has_bus(!root))
        return LAUNCH_SPAWN;
    return root ? LAUNCH_SYSTEM_UNIT : LAUNCH_USER_UNIT;
}

/* A unit of the name can be there: systemd still ends an older run, or another daemon has one of that name. */
static enum error_code launch_unit(const struct launch_request *request, struct launch_result *ret_result,
                                   struct error *err)
{
    struct launch_result result = {.pidfd = -1};
    struct process process;
    enum error_code code = ERROR_EXISTS;
    for (unsigned i = 1; code == ERROR_EXISTS && i <= LAUNCH_UNIT_TRIES; i++) {
        char number[16] = "";
        if (i > 1)
            snprintf(number, sizeof number, ".%u", i);
        snprintf(result.unit, sizeof result.unit, "%s%.64s%s.service", launch_prefix, request->name, number);
        code = systemd_unit_start(request, &result, err);
    }
    if (code != ERROR_NONE)
        return code;
    if (result.cgroup[0] != '\0')
        result.cgroup_inode = cgroup_run_inode(result.cgroup);
    if (result.pidfd >= 0 && process_read(result.pid, &process))
        result.start_ticks = process.start_ticks;
    *ret_result = result;
    return ERROR_NONE;
}

enum error_code launch_start(const struct launch_request *request, struct launch_result *ret_result, struct error *err)
{
    return request->way == LAUNCH_SPAWN ? launch_spawn(request, ret_result, err)
                                        : launch_unit(request, ret_result, err);
}

/* "kldump-run-NAME", perhaps a number, and how it was started: the length of that part of the path, 0: it is none. */
static size_t launch_part(const char *part, const char *name, bool *ret_is_unit)
{
    size_t length = strcspn(part, "/"), at = strlen(launch_prefix), name_length = strlen(name);
    if (strncmp(part, launch_prefix, at) != 0 || strncmp(part + at, name, name_length) != 0)
        return 0;
    at += name_length;
    if (part[at] == '.' && part[at + 1] >= '1' && part[at + 1] <= '9')
        at += 1 + strspn(part + at + 1, "0123456789");
    for (int unit = 0; unit < 2; unit++) {
        const char *suffix = unit ? ".service" : ".run";
        if (length - at == strlen(suffix) && strncmp(part + at, suffix, length - at) == 0) {
            *ret_is_unit = unit;
            return length;
        }
    }
    return 0;
}

enum error_code launch_find(const char *name, pid_t pid, struct launch_result *ret_result, struct error *err)
{
    struct launch_result result = {.pid = pid, .pidfd = -1};
    struct process process;
    char path[4096];
    bool is_unit = false;
    size_t length = 0;
    const char *part = process_read_cgroup(pid, path, sizeof path) && process_read(pid, &process) ? path : NULL;
    while (part != NULL && (length = launch_part(part + 1, name, &is_unit)) == 0)
        part = strchr(part + 1, '/');
    if (part == NULL || (size_t)(part - path) + 1 + length >= sizeof result.cgroup || length >= sizeof result.unit)
        return error_set(err, ERROR_NOT_FOUND, "process %d is in no cgroup that was made for run %s", (int)pid, name);
    memcpy(result.cgroup, path, (size_t)(part - path) + 1 + length);
    if (is_unit)
        memcpy(result.unit, part + 1, length);
    result.cgroup_inode = cgroup_run_inode(result.cgroup);
    result.start_ticks = process.start_ticks;
    *ret_result = result;
    return ERROR_NONE;
}

enum error_code launch_kill(const struct launch_result *launched, struct error *err)
{
    struct process process;
    if (launched->cgroup[0] != '\0' && launched->cgroup_inode != 0 &&
        cgroup_run_kill(launched->cgroup, launched->cgroup_inode))
        return ERROR_NONE;
    if (launched->pid <= 1 || !process_read(launched->pid, &process) || process.start_ticks != launched->start_ticks)
        return error_set(err, ERROR_NOT_FOUND, "neither the run's cgroup nor its guard is there any more");
    int system = process_signal(&process, SIGKILL);
    return system == 0 ? ERROR_NONE
                       : error_set_errno(err, ERROR_SYSTEM, system, "cannot end pid %d", (int)launched->pid);
}

/* ---- limits ---- */

static bool launch_read_proc(pid_t pid, const char *file, char *text, size_t size)
{
    char path[40];
    snprintf(path, sizeof path, "/proc/%d/%s", (int)pid, file);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t length = fd >= 0 ? read(fd, text, size - 1) : -1;
    if (fd >= 0)
        close(fd);
    text[length > 0 ? length : 0] = '\0';
    return length > 0;
}

/* The effective user, which SO_PEERCRED tells too. */
static bool launch_has_user(pid_t pid, uid_t uid)
{
    uid_t real, effective;
    return process_read_users(pid, &real, &effective) && effective == uid;
}

/* "unlimited" or a number; the end of it, or NULL. */
static const char *launch_parse_limit(const char *text, rlim_t *ret_limit)
{
    static const char none[] = "unlimited";
    char *end;
    text += strspn(text, " ");
    if (strncmp(text, none, sizeof none - 1) == 0) {
        *ret_limit = RLIM_INFINITY;
        return text + sizeof none - 1;
    }
    errno = 0;
    *ret_limit = strtoull(text, &end, 10);
    return end == text || errno != 0 ? NULL : end;
}

/* proc(5): prlimit(2) would need CAP_SYS_RESOURCE to look at another user's process, this file nothing. */
static bool launch_parse_limits(const char *text, struct rlimit limit[RLIM_NLIMITS])
{
    static const char *const names[RLIM_NLIMITS] = {
        [RLIMIT_CPU] = "Max cpu time",
        [RLIMIT_FSIZE] = "Max file size",
        [RLIMIT_DATA] = "Max data size",
        [RLIMIT_STACK] = "Max stack size",
        [RLIMIT_CORE] = "Max core file size",
        [RLIMIT_RSS] = "Max resident set",
        [RLIMIT_NPROC] = "Max processes",
        [RLIMIT_NOFILE] = "Max open files",
        [RLIMIT_MEMLOCK] = "Max locked memory",
        [RLIMIT_AS] = "Max address space",
        [RLIMIT_LOCKS] = "Max file locks",
        [RLIMIT_SIGPENDING] = "Max pending signals",
        [RLIMIT_MSGQUEUE] = "Max msgqueue size",
        [RLIMIT_NICE] = "Max nice priority",
        [RLIMIT_RTPRIO] = "Max realtime priority",
        [RLIMIT_RTTIME] = "Max realtime timeout",
    };
    for (int i = 0; i < RLIM_NLIMITS; i++) {
        const char *line = names[i] != NULL ? strstr(text, names[i]) : NULL;
        if (line != NULL)
            line = launch_parse_limit(line + strlen(names[i]), &limit[i].rlim_cur);
        if (line == NULL || launch_parse_limit(line, &limit[i].rlim_max) == NULL)
            return false;
    }
    return true;
}

enum error_code launch_read_limits(pid_t pid, uid_t uid, struct rlimit ret_limit[RLIM_NLIMITS], struct error *err)
{
    struct rlimit limit[RLIM_NLIMITS];
    char text[4096];
    if (pid <= 0)
        return error_set(err, ERROR_NOT_FOUND,
                         "the client's process cannot be seen from here, so its limits are not known; ask from outside "
                         "of its container");
    /* the user before and after: the number may have gone to another process meanwhile */
    if (!launch_has_user(pid, uid) || !launch_read_proc(pid, "limits", text, sizeof text) ||
        !launch_parse_limits(text, limit) || !launch_has_user(pid, uid))
        return error_set(err, ERROR_NOT_FOUND, "the client (pid %d) is gone, so its limits are not known", (int)pid);
    memcpy(ret_limit, limit, sizeof limit);
    return ERROR_NONE;
}
