/* The runtime folder: sockets, locks and records of this user's runs. Any thread. */
#pragma once

#include "base/error.h"

/* $KLDUMP_RUNTIME_DIR, else $RUNTIME_DIRECTORY, else $XDG_RUNTIME_DIR/kldump, else /tmp/kldump-UID; RUNTIME_SYSTEM:
 * /run/kldump in place of the last two. */
enum runtime_use {
    RUNTIME_LOOK,
    RUNTIME_MAKE,
    RUNTIME_SYSTEM, /* makes that of a daemon for all users (root): 0755, root's; "runs" below 0755, where each run has
                       a folder of its user's, 0700; "owned" below 0700, the daemon's own records. One that is there
                       keeps its mode; it must be root's, and nobody else may write in it */
};

/* RUNTIME_MAKE: makes it, with "runs" below, when missing. Both check that it is a folder of ours that is closed to
 * others (ERROR_FORBIDDEN). RUNTIME_LOOK: ERROR_NOT_FOUND when it is not there. ERROR_BAD_VALUE: a variable holds no
 * absolute path, or one that leaves no room for the socket of a run. `ret_path` is the caller's. */
enum error_code runtime_directory(enum runtime_use use, char **ret_path, struct error *err);

/* The path alone, whatever is there; owned by the caller. */
char *runtime_path(void);

/* RUNTIME/runs/NAME, whether it is there or not; `name` must be text_is_name. Owned by the caller. */
char *runtime_run_folder(const char *runtime, const char *name);
