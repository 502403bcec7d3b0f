#include "sys/systemd_job.h"

#include "base/text.h"

#include <errno.h>
#include <string.h>
#include <time.h>

uint64_t systemd_job_now_us(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000 + (uint64_t)now.tv_nsec / 1000;
}

static int systemd_job_removed(sd_bus_message *message, void *userdata, sd_bus_error *error)
{
    (void)error;
    struct systemd_job *job = userdata;
    uint32_t id;
    const char *path, *unit, *result;
    if (sd_bus_message_read(message, "uoss", &id, &path, &unit, &result) < 0 || strcmp(path, job->path) != 0)
        return 0;
    job->done = true;
    text_copy(job->result, sizeof job->result, result);
    return 0;
}

int systemd_job_listen(sd_bus *bus, struct systemd_job *job, sd_bus_error *error)
{
    int result = sd_bus_match_signal(bus, NULL, SYSTEMD_DESTINATION, SYSTEMD_MANAGER_PATH, SYSTEMD_MANAGER,
                                     "JobRemoved", systemd_job_removed, job);
    if (result >= 0)
        result = sd_bus_call_method(bus, SYSTEMD_DESTINATION, SYSTEMD_MANAGER_PATH, SYSTEMD_MANAGER, "Subscribe", error,
                                    NULL, "");
    return result;
}

int systemd_job_call(sd_bus *bus, sd_bus_message *call, uint64_t limit_us, struct systemd_job *job, sd_bus_error *error)
{
    sd_bus_message *reply = NULL;
    const char *path;
    int result = sd_bus_call(bus, call, limit_us, error, &reply);
    if (result >= 0)
        result = sd_bus_message_read(reply, "o", &path);
    if (result >= 0)
        text_copy(job->path, sizeof job->path, path);
    sd_bus_message_unref(reply);
    return result;
}

int systemd_job_wait(sd_bus *bus, const struct systemd_job *job, uint64_t limit_us)
{
    uint64_t end_us = systemd_job_now_us() + limit_us;
    while (!job->done) {
        int result = sd_bus_process(bus, NULL);
        if (result < 0)
            return result;
        if (result > 0)
            continue;
        uint64_t now_us = systemd_job_now_us();
        if (now_us >= end_us)
            return -ETIMEDOUT;
        result = sd_bus_wait(bus, end_us - now_us);
        if (result < 0 && result != -EINTR)
            return result;
    }
    return 0;
}
