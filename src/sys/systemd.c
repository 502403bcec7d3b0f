#include "sys/systemd.h"

#include "base/memory.h"
#include "base/text.h"
#include "sys/systemd_job.h"

#include <errno.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <systemd/sd-bus.h>
#include <systemd/sd-daemon.h>
#include <time.h>
#include <unistd.h>

static const uint64_t SYSTEMD_LIMIT_US = 2000000;

static void systemd_notify(const char *assignment, const char *status)
{
    char clean[512]; /* one line of UTF-8, or the manager drops it */
    sd_notifyf(0, "%sSTATUS=%s", assignment, text_clean(status, strlen(status), clean, sizeof clean));
}

void systemd_notify_ready(const char *status)
{
    systemd_notify("READY=1\n", status);
}

void systemd_notify_status(const char *status)
{
    systemd_notify("", status);
}

void systemd_notify_stopping(const char *status)
{
    systemd_notify("STOPPING=1\n", status);
}

void systemd_notify_reloading(void)
{
    sd_notifyf(0, "RELOADING=1\nMONOTONIC_USEC=%" PRIu64, systemd_job_now_us());
}

void systemd_notify_watchdog(void)
{
    sd_notify(0, "WATCHDOG=1");
}

uint64_t systemd_watchdog_us(void)
{
    uint64_t limit_us;
    return sd_watchdog_enabled(0, &limit_us) > 0 ? limit_us / 2 : 0;
}

/* By what they are, not by their order or name: an admin's own socket unit may say anything. */
static enum error_code systemd_sort_socket(int descriptor, int *control, int *registering, struct error *err)
{
    int *place = NULL;
    if (sd_is_socket_unix(descriptor, SOCK_STREAM, 1, NULL, 0) > 0)
        place = control;
    else if (sd_is_socket_unix(descriptor, SOCK_SEQPACKET, 1, NULL, 0) > 0)
        place = registering;
    if (place == NULL || *place >= 0)
        return error_set(err, ERROR_BAD_VALUE,
                         "the service manager passed a descriptor (%d) that is %s; the socket unit may have one "
                         "ListenStream= and one ListenSequentialPacket=, each the path of a Unix socket",
                         descriptor, place == NULL ? "no listening Unix socket" : "the second socket of its kind");
    *place = descriptor;
    return ERROR_NONE;
}

enum error_code systemd_take_sockets(int *ret_control, int *ret_register, struct error *err)
{
    int control = -1, registering = -1;
    int count = sd_listen_fds(1);
    if (count < 0)
        return error_set_errno(err, ERROR_BAD_VALUE, -count, "LISTEN_FDS of the service manager");
    for (int i = 0; i < count; i++) {
        enum error_code code = systemd_sort_socket(SD_LISTEN_FDS_START + i, &control, &registering, err);
        if (code != ERROR_NONE)
            return code;
    }
    *ret_control = control;
    *ret_register = registering;
    return ERROR_NONE;
}

/* sd_bus_open_user starts nothing, but tells a missing bus only by its own words. */
bool systemd_has_user_bus(void)
{
    if (getenv("DBUS_SESSION_BUS_ADDRESS"))
        return true;
    const char *folder = getenv("XDG_RUNTIME_DIR");
    if (!folder)
        return false;
    char *path = memory_format("%s/bus", folder);
    bool there = access(path, W_OK) == 0;
    free(path);
    return there;
}

static int systemd_call_start(sd_bus *bus, const char *name, pid_t pid, const char *description,
                              struct systemd_job *job, sd_bus_error *error)
{
    sd_bus_message *call = NULL;
    int result = sd_bus_message_new_method_call(bus, &call, SYSTEMD_DESTINATION, SYSTEMD_MANAGER_PATH, SYSTEMD_MANAGER,
                                                "StartTransientUnit");
    if (result >= 0)
        result = sd_bus_message_append(call, "ssa(sv)a(sa(sv))", name, "fail", 4, "Description", "s", description,
                                       "PIDs", "au", 1, (uint32_t)pid, "Delegate", "b", 1, "CollectMode", "s",
                                       "inactive-or-failed", 0);
    if (result >= 0)
        result = systemd_job_call(bus, call, SYSTEMD_LIMIT_US, job, error);
    sd_bus_message_unref(call);
    return result;
}

enum error_code systemd_start_user_scope(const char *name, pid_t pid, const char *description, struct error *err)
{
    if (!systemd_has_user_bus())
        return error_set(err, ERROR_NOT_FOUND, "no user bus");
    sd_bus *bus = NULL;
    int result = sd_bus_open_user(&bus);
    if (result < 0)
        return error_set_errno(err, ERROR_NOT_FOUND, -result, "the user bus does not answer");
    sd_bus_set_method_call_timeout(bus, SYSTEMD_LIMIT_US);
    struct systemd_job job = {.done = false};
    sd_bus_error error = SD_BUS_ERROR_NULL;
    result = systemd_job_listen(bus, &job, &error);
    if (result >= 0)
        result = systemd_call_start(bus, name, pid, description, &job, &error);
    if (result >= 0)
        result = systemd_job_wait(bus, &job, SYSTEMD_LIMIT_US);
    if (result >= 0 && strcmp(job.result, "done") != 0)
        result = -EPROTO;
    enum error_code code = ERROR_NONE;
    if (result == -ETIMEDOUT)
        code = error_set(err, ERROR_TIMEOUT, "systemd --user did not start %s within 2 s", name);
    else if (result < 0)
        code = error_set(err, ERROR_SYSTEM, "systemd --user did not start %s: %s", name,
                         error.message ? error.message : strerror(-result));
    sd_bus_error_free(&error);
    sd_bus_close(bus); /* no flush: it could block */
    sd_bus_unref(bus);
    return code;
}
