/* One job of systemd's manager, from the call that makes it to its end; for systemd*.c of this folder. Results are 0 or
 * more, or a negative errno value. One thread; blocks. */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <systemd/sd-bus.h>

#define SYSTEMD_DESTINATION  "org.freedesktop.systemd1"
#define SYSTEMD_MANAGER_PATH "/org/freedesktop/systemd1"
#define SYSTEMD_MANAGER      "org.freedesktop.systemd1.Manager"

struct systemd_job {
    char path[256];  /* "" until the call was answered */
    char result[32]; /* "done", or systemd's word for what became of it; once `done` */
    bool done;
};

/* Asks to be told of the end of jobs: before the call, lest it is missed. `job` must outlive the bus. */
int systemd_job_listen(sd_bus *bus, struct systemd_job *job, sd_bus_error *error);

/* Sends `call`, a StartTransientUnit that is complete, and keeps which job it made. */
int systemd_job_call(sd_bus *bus, sd_bus_message *call, uint64_t limit_us, struct systemd_job *job,
                     sd_bus_error *error);

/* -ETIMEDOUT: no end in time. 0 says that it has ended, not how. */
int systemd_job_wait(sd_bus *bus, const struct systemd_job *job, uint64_t limit_us);

uint64_t systemd_job_now_us(void); /* CLOCK_MONOTONIC */
