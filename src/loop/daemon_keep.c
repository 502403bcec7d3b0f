/* Happy path: a run is started, its record written. */
#include "loop/daemon_private.h"
#include "sys/launch.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

void daemon_keep_started(struct daemon *daemon, struct daemon_owned *owned)
{
    struct error err = ERROR_INIT;
    if (daemon_owned_write(daemon, owned, &err) != ERROR_NONE)
        fprintf(stderr, "kldumpd: run %s is not found again by the next kldumpd: %s\n", owned->name, err.message);
    if (owned->launched->pidfd >= 0)
        close(owned->launched->pidfd);
    daemon_owned_fini(owned);
}
