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
        snprintf(result.unit, sizeof result.unit, "kldump-run-%.64s%s.service", request->name, number);
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

/* The effective user, which SO_PEERCRED tells too. */
static bool launch_has_user(pid_t pid, uid_t uid)
{
    char path[40], text[4096];
    snprintf(path, sizeof path, "/proc/%d/status", (int)pid);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t length = fd >= 0 ? read(fd, text, sizeof text - 1) : -1;
    if (fd >= 0)
        close(fd);
    text[length > 0 ? length : 0] = '\0';
    const char *line = strstr(text, "\nUid:");
    unsigned real, effective;
    return line != NULL && sscanf(line, "\nUid: %u %u", &real, &effective) == 2 && effective == uid;
}

enum error_code launch_read_limits(pid_t pid, uid_t uid, struct rlimit ret_limit[RLIM_NLIMITS], struct error *err)
{
    struct rlimit limit[RLIM_NLIMITS];
    if (pid <= 0) /* 0 would be ourselves */
        return error_set(err, ERROR_NOT_FOUND,
                         "the client's process cannot be seen from here, so its limits are not known; ask from outside "
                         "of its container");
    bool read = launch_has_user(pid, uid);
    for (int i = 0; read && i < RLIM_NLIMITS; i++)
        read = prlimit(pid, (__rlimit_resource_t)i, NULL, &limit[i]) == 0;
    if (!read || !launch_has_user(pid, uid)) /* before and after: the number may have gone to another meanwhile */
        return error_set(err, ERROR_NOT_FOUND, "the client (pid %d) is gone, so its limits are not known", (int)pid);
    memcpy(ret_limit, limit, sizeof limit);
    return ERROR_NONE;
}
