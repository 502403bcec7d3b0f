#include "sys/systemd.h"

#include "base/memory.h"
#include "base/text.h"

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

static uint64_t systemd_now_us(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000 + (uint64_t)now.tv_nsec / 1000;
}

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
    sd_notifyf(0, "RELOADING=1\nMONOTONIC_USEC=%" PRIu64, systemd_now_us());
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

bool systemd_is_booted(void)
{
    return sd_booted() > 0;
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

struct systemd_job {
    char path[256]; /* "" until the answer came */
    bool done, failed;
};

static int systemd_job_removed(sd_bus_message *message, void *userdata, sd_bus_error *error)
{
    (void)error;
    struct systemd_job *job = userdata;
    uint32_t id;
    const char *path, *unit, *result;
    if (sd_bus_message_read(message, "uoss", &id, &path, &unit, &result) < 0)
        return 0;
    if (job->path[0] && strcmp(path, job->path) == 0) {
        job->done = true;
        job->failed = strcmp(result, "done") != 0;
    }
    return 0;
}

static int systemd_call_start(sd_bus *bus, const char *name, pid_t pid, const char *description,
                              struct systemd_job *job, sd_bus_error *error)
{
    sd_bus_message *call = NULL, *reply = NULL;
    int result = sd_bus_message_new_method_call(bus, &call, "org.freedesktop.systemd1", "/org/freedesktop/systemd1",
                                                "org.freedesktop.systemd1.Manager", "StartTransientUnit");
    if (result >= 0)
        result = sd_bus_message_append(call, "ssa(sv)a(sa(sv))", name, "fail", 4, "Description", "s", description,
                                       "PIDs", "au", 1, (uint32_t)pid, "Delegate", "b", 1, "CollectMode", "s",
                                       "inactive-or-failed", 0);
    if (result >= 0)
        result = sd_bus_call(bus, call, SYSTEMD_LIMIT_US, error, &reply);
    const char *path;
    if (result >= 0)
        result = sd_bus_message_read(reply, "o", &path);
    if (result >= 0)
        text_copy(job->path, sizeof job->path, path);
    sd_bus_message_unref(call);
    sd_bus_message_unref(reply);
    return result;
}

static int systemd_wait_job(sd_bus *bus, struct systemd_job *job)
{
    uint64_t end_us = systemd_now_us() + SYSTEMD_LIMIT_US;
    while (!job->done) {
        int result = sd_bus_process(bus, NULL);
        if (result < 0)
            return result;
        if (result > 0)
            continue;
        uint64_t now_us = systemd_now_us();
        if (now_us >= end_us)
            return -ETIMEDOUT;
        result = sd_bus_wait(bus, end_us - now_us);
        if (result < 0 && result != -EINTR)
            return result;
    }
    return job->failed ? -EPROTO : 0;
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
    result = sd_bus_match_signal(bus, NULL, "org.freedesktop.systemd1", "/org/freedesktop/systemd1",
                                 "org.freedesktop.systemd1.Manager", "JobRemoved", systemd_job_removed, &job);
    if (result >= 0)
        result = sd_bus_call_method(bus, "org.freedesktop.systemd1", "/org/freedesktop/systemd1",
                                    "org.freedesktop.systemd1.Manager", "Subscribe", &error, NULL, "");
    if (result >= 0)
        result = systemd_call_start(bus, name, pid, description, &job, &error);
    if (result >= 0)
        result = systemd_wait_job(bus, &job);
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
