/* Guards as transient units of a systemd: the ways LAUNCH_SYSTEM_UNIT and LAUNCH_USER_UNIT of sys/launch.h. Beside
 * sys/systemd.h the only user of libsystemd. Any thread; blocks for up to 5 s. */
#pragma once

#include "sys/launch.h"

/* True where a systemd would take units of ours: that of the user, or the system's one, which must have booted this
 * machine. Nothing is sent. */
bool systemd_unit_has_bus(bool user);

/* Starts the unit result->unit for request->user (that of the system; the user's runs as that user anyway) and waits
 * until it has executed the guard. Fills pid, pidfd and cgroup of *result; pid 0 and pidfd -1 when the guard has ended
 * meanwhile. ERROR_EXISTS: a unit of this name is there. ERROR_SYSTEM, with systemd's own words. ERROR_TIMEOUT: the
 * guard may run, or be started later.
 *
 * All that the unit is told is readable by everybody (systemctl show), so it is told nothing of the run but the name
 * and the user: the command, its environment and folder are in the plan, which goes in as a descriptor. */
enum error_code systemd_unit_start(const struct launch_request *request, struct launch_result *result,
                                   struct error *err);
