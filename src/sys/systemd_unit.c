/* Happy path: on a connection of its own: Subscribe, StartTransientUnit, wait for the end of that job, read main pid
 * and cgroup; closed again, which also lets go of the reference that keeps a unit that has ended readable until then.
 *
 * The bus does not answer, refuses, or the job fails (the guard cannot be executed, systemd does not know the user):
 * the error has systemd's own words, and systemd tidies the unit up itself (CollectMode).
 * No end of the job in time: if its main process is there, that is it; else the unit is told to stop, and the error
 * says so. No answer at all: only the error says it, and the unit may still be started. */
#include "sys/systemd_unit.h"

#include "base/memory.h"
#include "base/text.h"
#include "sys/process.h"
#include "sys/systemd.h"
#include "sys/systemd_job.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <systemd/sd-bus.h>
#include <systemd/sd-daemon.h>
#include <unistd.h>

static const uint64_t UNIT_LIMIT_US = 5000000;
static const char unit_service[] = "org.freedesktop.systemd1.Service";

bool systemd_unit_has_bus(bool user)
{
    if (user)
        return systemd_has_user_bus();
    return sd_booted() > 0 &&
           (getenv("DBUS_SYSTEM_BUS_ADDRESS") != NULL || access("/run/dbus/system_bus_socket", W_OK) == 0);
}

/* ---- the properties ---- */

/* One (sv) of the array that is open. */
#define UNIT_PROPERTY(call, name, type, ...) sd_bus_message_append(call, "(sv)", name, type, __VA_ARGS__)

static int systemd_unit_add_list(sd_bus_message *call, const char *property, char *const *items)
{
    int result = sd_bus_message_open_container(call, 'r', "sv");
    if (result >= 0)
        result = sd_bus_message_append(call, "s", property);
    if (result >= 0)
        result = sd_bus_message_open_container(call, 'v', "as");
    if (result >= 0)
        result = sd_bus_message_append_strv(call, (char **)items);
    if (result >= 0)
        result = sd_bus_message_close_container(call);
    return result >= 0 ? sd_bus_message_close_container(call) : result;
}

/* Program and arguments; a failure of it counts. */
static int systemd_unit_add_command(sd_bus_message *call, const struct launch_request *request)
{
    int result = sd_bus_message_open_container(call, 'r', "sv");
    if (result >= 0)
        result = sd_bus_message_append(call, "s", "ExecStart");
    if (result >= 0)
        result = sd_bus_message_open_container(call, 'v', "a(sasb)");
    if (result >= 0)
        result = sd_bus_message_open_container(call, 'a', "(sasb)");
    if (result >= 0)
        result = sd_bus_message_open_container(call, 'r', "sasb");
    if (result >= 0)
        result = sd_bus_message_append(call, "s", request->program);
    if (result >= 0)
        result = sd_bus_message_append_strv(call, (char **)request->arguments);
    if (result >= 0)
        result = sd_bus_message_append(call, "b", 0);
    for (int i = 0; result >= 0 && i < 4; i++)
        result = sd_bus_message_close_container(call);
    return result;
}

static int systemd_unit_add_user(sd_bus_message *call, const struct launch_user *user)
{
    char number[24];
    struct list groups = {0};
    snprintf(number, sizeof number, "%u", (unsigned)user->uid);
    int result = UNIT_PROPERTY(call, "User", "s", number);
    snprintf(number, sizeof number, "%u", (unsigned)user->gid);
    if (result >= 0)
        result = UNIT_PROPERTY(call, "Group", "s", number);
    for (size_t i = 0; i < user->group_count; i++)
        list_add_format(&groups, "%u", (unsigned)user->groups[i]);
    if (result >= 0 && groups.count > 0)
        result = systemd_unit_add_list(call, "SupplementaryGroups", list_vector(&groups));
    list_fini(&groups);
    return result;
}

static int systemd_unit_add_limits(sd_bus_message *call, const struct rlimit *limit)
{
    static const struct {
        int resource;
        const char *name;
    } rows[] = {
        {RLIMIT_CPU, "LimitCPU"},           {RLIMIT_FSIZE, "LimitFSIZE"}, {RLIMIT_DATA, "LimitDATA"},
        {RLIMIT_STACK, "LimitSTACK"},       {RLIMIT_CORE, "LimitCORE"},   {RLIMIT_RSS, "LimitRSS"},
        {RLIMIT_NOFILE, "LimitNOFILE"},     {RLIMIT_AS, "LimitAS"},       {RLIMIT_NPROC, "LimitNPROC"},
        {RLIMIT_MEMLOCK, "LimitMEMLOCK"},   {RLIMIT_LOCKS, "LimitLOCKS"}, {RLIMIT_SIGPENDING, "LimitSIGPENDING"},
        {RLIMIT_MSGQUEUE, "LimitMSGQUEUE"}, {RLIMIT_NICE, "LimitNICE"},   {RLIMIT_RTPRIO, "LimitRTPRIO"},
        {RLIMIT_RTTIME, "LimitRTTIME"},
    };
    int result = 0;
    for (size_t i = 0; result >= 0 && i < sizeof rows / sizeof rows[0]; i++) {
        char soft[32];
        snprintf(soft, sizeof soft, "%sSoft", rows[i].name);
        result = UNIT_PROPERTY(call, rows[i].name, "t", (uint64_t)limit[rows[i].resource].rlim_max);
        if (result >= 0)
            result = UNIT_PROPERTY(call, soft, "t", (uint64_t)limit[rows[i].resource].rlim_cur);
    }
    return result;
}

static int systemd_unit_add_properties(sd_bus_message *call, const struct launch_request *request)
{
    static const struct {
        const char *name, *value;
    } texts[] = {
        {"Type", "exec"}, /* the job ends when the guard is executed, or cannot be */
        {"KillMode", "control-group"},
        {"CollectMode", "inactive-or-failed"},
        {"OOMPolicy", "continue"}, /* the guard says what the end of one process means */
        {"StandardError", "null"},
        {"WorkingDirectory", "/"},
    };
    char description[96];
    snprintf(description, sizeof description, "kldump run %.64s", request->name);
    int result = UNIT_PROPERTY(call, "Description", "s", description);
    for (size_t i = 0; result >= 0 && i < sizeof texts / sizeof texts[0]; i++)
        result = UNIT_PROPERTY(call, texts[i].name, "s", texts[i].value);
    if (result >= 0)
        result = UNIT_PROPERTY(call, "AddRef", "b", 1); /* what ended at once can still be asked about */
    if (result >= 0)
        result = UNIT_PROPERTY(call, "Delegate", "b", 1);
    if (result >= 0)
        result = UNIT_PROPERTY(call, "TasksMax", "t", UINT64_MAX); /* the user's own limits hold */
    if (result >= 0)
        result = UNIT_PROPERTY(call, "StandardInputFileDescriptor", "h", request->input_fd);
    if (result >= 0)
        result = UNIT_PROPERTY(call, "StandardOutputFileDescriptor", "h", request->output_fd);
    if (result >= 0)
        result = systemd_unit_add_list(call, "Environment", request->environment);
    if (result >= 0 && request->way == LAUNCH_SYSTEM_UNIT)
        result = systemd_unit_add_user(call, request->user);
    if (result >= 0)
        result = systemd_unit_add_limits(call, request->user->limit);
    return result >= 0 ? systemd_unit_add_command(call, request) : result;
}

/* ---- the job ---- */

static int systemd_unit_call_start(sd_bus *bus, const struct launch_request *request, const char *unit,
                                   struct systemd_job *job, sd_bus_error *error)
{
    sd_bus_message *call = NULL;
    int result = sd_bus_message_new_method_call(bus, &call, SYSTEMD_DESTINATION, SYSTEMD_MANAGER_PATH, SYSTEMD_MANAGER,
                                                "StartTransientUnit");
    if (result >= 0)
        result = sd_bus_message_append(call, "ss", unit, "fail");
    if (result >= 0)
        result = sd_bus_message_open_container(call, 'a', "(sv)");
    if (result >= 0)
        result = systemd_unit_add_properties(call, request);
    if (result >= 0)
        result = sd_bus_message_close_container(call);
    if (result >= 0)
        result = sd_bus_message_append(call, "a(sa(sv))", 0);
    if (result >= 0)
        result = systemd_job_call(bus, call, UNIT_LIMIT_US, job, error);
    sd_bus_message_unref(call);
    return result;
}

/* ---- what was started ---- */

static uint32_t systemd_unit_pid(sd_bus *bus, const char *path)
{
    uint32_t pid = 0;
    return sd_bus_get_property_trivial(bus, SYSTEMD_DESTINATION, path, unit_service, "MainPID", NULL, 'u', &pid) < 0
               ? 0
               : pid;
}

/* The pid is asked for once more when its pidfd is held: then it is that of the unit. */
static void systemd_unit_read(sd_bus *bus, const char *path, struct launch_result *result)
{
    char *cgroup = NULL;
    uint32_t pid = systemd_unit_pid(bus, path);
    result->pid = 0;
    result->pidfd = pid > 1 ? process_open((pid_t)pid) : -1;
    if (result->pidfd >= 0 && systemd_unit_pid(bus, path) != pid) {
        close(result->pidfd);
        result->pidfd = -1;
    }
    if (result->pidfd >= 0)
        result->pid = (pid_t)pid;
    result->cgroup[0] = '\0';
    if (sd_bus_get_property_string(bus, SYSTEMD_DESTINATION, path, unit_service, "ControlGroup", NULL, &cgroup) >= 0 &&
        strlen(cgroup) < sizeof result->cgroup)
        text_copy(result->cgroup, sizeof result->cgroup, cgroup);
    free(cgroup);
}

/* Why the job failed: "exit-code, status 217" says more than "failed". */
static enum error_code systemd_unit_failed(sd_bus *bus, const char *path, const char *unit,
                                           const struct systemd_job *job, struct error *err)
{
    char *why = NULL;
    int32_t status = 0;
    sd_bus_get_property_string(bus, SYSTEMD_DESTINATION, path, unit_service, "Result", NULL, &why);
    sd_bus_get_property_trivial(bus, SYSTEMD_DESTINATION, path, unit_service, "ExecMainStatus", NULL, 'i', &status);
    enum error_code code =
        error_set(err, ERROR_SYSTEM, "systemd did not start %s: %s (%s, status %d); journalctl -u %s says more%s", unit,
                  job->result, why ? why : "?", (int)status, unit,
                  status == 217 ? "; systemd must know the user by name, from /etc/passwd or the like" : "");
    free(why);
    return code;
}

/* `has_job`: systemd has taken the order, so the unit of that name is ours. A main process is as good as the end of the
 * job: it is watched from now on. */
static enum error_code systemd_unit_late(sd_bus *bus, const char *path, bool has_job, struct launch_result *result,
                                         struct error *err)
{
    if (!has_job)
        return error_set(err, ERROR_TIMEOUT, "systemd did not answer within 5 s whether it starts %s", result->unit);
    systemd_unit_read(bus, path, result);
    if (result->pid > 0)
        return ERROR_NONE;
    sd_bus_call_method(bus, SYSTEMD_DESTINATION, SYSTEMD_MANAGER_PATH, SYSTEMD_MANAGER, "StopUnit", NULL, NULL, "ss",
                       result->unit, "replace");
    return error_set(err, ERROR_TIMEOUT, "systemd did not start %s within 5 s; it was told to stop it", result->unit);
}

static int systemd_unit_begin(sd_bus *bus, const struct launch_request *request, const char *unit,
                              struct systemd_job *job, sd_bus_error *error)
{
    int result = systemd_job_listen(bus, job, error);
    if (result >= 0)
        result = systemd_unit_call_start(bus, request, unit, job, error);
    return result >= 0 ? systemd_job_wait(bus, job, UNIT_LIMIT_US) : result;
}

static enum error_code systemd_unit_run(sd_bus *bus, const struct launch_request *request, struct launch_result *result,
                                        struct error *err)
{
    struct systemd_job job = {.done = false};
    sd_bus_error error = SD_BUS_ERROR_NULL;
    char *path = NULL;
    enum error_code code = ERROR_NONE;
    int failure = sd_bus_path_encode("/org/freedesktop/systemd1/unit", result->unit, &path);
    if (failure >= 0)
        failure = systemd_unit_begin(bus, request, result->unit, &job, &error);
    if (failure == -ETIMEDOUT) {
        code = systemd_unit_late(bus, path, job.path[0] != '\0', result, err);
    } else if (failure < 0) {
        bool exists = sd_bus_error_has_name(&error, "org.freedesktop.systemd1.UnitExists");
        code = error_set(err, exists ? ERROR_EXISTS : ERROR_SYSTEM, "systemd did not start %s: %s", result->unit,
                         error.message ? error.message : strerror(-failure));
    } else if (strcmp(job.result, "done") != 0) {
        code = systemd_unit_failed(bus, path, result->unit, &job, err);
    } else {
        systemd_unit_read(bus, path, result);
    }
    sd_bus_error_free(&error);
    free(path);
    return code;
}

enum error_code systemd_unit_start(const struct launch_request *request, struct launch_result *result,
                                   struct error *err)
{
    sd_bus *bus = NULL;
    bool user = request->way == LAUNCH_USER_UNIT;
    int failure = user ? sd_bus_open_user(&bus) : sd_bus_open_system(&bus);
    if (failure < 0)
        return error_set_errno(err, ERROR_SYSTEM, -failure, "the %s bus, by which systemd is asked, does not answer",
                               user ? "user's" : "system's");
    sd_bus_set_method_call_timeout(bus, UNIT_LIMIT_US);
    enum error_code code = systemd_unit_run(bus, request, result, err);
    sd_bus_close(bus); /* no flush: it could block */
    sd_bus_unref(bus);
    return code;
}
