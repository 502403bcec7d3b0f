/* What kldump says to the service manager and asks of it: the only user of libsystemd. */
#pragma once

#include "base/error.h"

#include <stdbool.h>
#include <stdint.h>
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

/* Microseconds between two watchdog messages that the manager wants (half its limit), 0: none. */
uint64_t systemd_watchdog_us(void);
void systemd_notify_watchdog(void);
void systemd_notify_reloading(void); /* then systemd_notify_ready once the new rules hold, or the old ones again */

/* Listening sockets of the service manager (LISTEN_FDS), told apart by their type, stream and sequential packet: -1
 * where it gave none. Taken once; the variables are unset, the descriptors the caller's and close-on-exec.
 * ERROR_BAD_VALUE: a descriptor that is neither, or a second one of a kind: then all stay open, and the caller ends. */
enum error_code systemd_take_sockets(int *ret_control, int *ret_register, struct error *err);
