/* Where runs are looked for: the runtime folder of the user, and the kldumpds that may know more. One thread. */
#pragma once

#include "base/error.h"
#include "base/list.h"

struct find_places {
    char *own;           /* our runtime folder, or NULL where nothing of ours has ever run */
    char *shared;        /* runtime folder of root's kldumpd, in which each run has a folder of its user's; or NULL */
    struct list daemons; /* sockets of kldumpd in the order in which they are asked, whether anybody listens or not */
};

/* $KLDUMP_RUNTIME_DIR stands for all of it when it is set: one's own folder, or that of a kldumpd of root's. Else our
 * runtime folder with the kldumpd there, then the system's, /run/kldump. A folder of root's that nobody else may write
 * in is trusted as that of a kldumpd; any other must be ours and closed (ERROR_FORBIDDEN). */
enum error_code find_places_get(struct find_places *ret_places, struct error *err);
void find_places_fini(struct find_places *places); /* also of a zeroed one */
