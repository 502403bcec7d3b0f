/* What kldump says to the service manager and asks of it: the only user of libsystemd. */
#pragma once

#include "base/error.h"

#include <stdbool.h>
#include <sys/types.h>

/* sd_notify(3); nothing happens where no service manager listens. Main thread of the main process. */
void systemd_notify_ready(const char *status);
void systemd_notify_status(const char *status);
void systemd_notify_stopping(const char *status);

/* True when the bus of the user's systemd is there; nothing is sent. */
bool systemd_has_user_bus(void);

/* Has systemd --user put the process `pid` into a new scope `name` (ends in ".scope") that is delegated to us, and
 * waits until it is done, 2 s at most. ERROR_NOT_FOUND where there is no user bus (found at once), ERROR_SYSTEM or
 * ERROR_TIMEOUT when it would not. The scope goes by itself with its last process. */
enum error_code systemd_start_user_scope(const char *name, pid_t pid, const char *description, struct error *err);
