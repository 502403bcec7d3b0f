/* A socket file that was removed (by a cleaner of temporary folders, by a mistake) is made again: the kernel tells of
 * changes in the runtime folder, so nothing is polled; SIGUSR1 asks for the same look.
 *
 * The kernel has no watch left for us: told once, SIGUSR1 remains.
 * The folder itself is gone, or is no safe place any more: told once; it is tried again at each change and signal. */
#include "base/memory.h"
#include "loop/daemon_private.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct daemon_watch {
    uv_fs_event_t event;
    struct daemon *daemon;
    bool told; /* why it could not be made again */
};

static void on_closed(uv_handle_t *handle)
{
    free(handle->data);
}

void daemon_watch_look(struct daemon *daemon)
{
    struct error err = ERROR_INIT;
    bool again = false;
    if (daemon->ending || daemon->control == NULL)
        return;
    enum error_code code = control_look(daemon->control, &again, &err);
    if (again)
        fprintf(stderr, "kldumpd: %s/control was removed; it was made again\n", daemon->runtime);
    if (code != ERROR_NONE && !daemon->watch->told)
        fprintf(stderr, "kldumpd: %s/control was removed and cannot be made again: %s\n", daemon->runtime, err.message);
    daemon->watch->told = code != ERROR_NONE;
}

static void on_event(uv_fs_event_t *event, const char *name, int events, int status)
{
    struct daemon_watch *watch = event->data;
    (void)events;
    if (status == 0 && (name == NULL || strcmp(name, "control") == 0))
        daemon_watch_look(watch->daemon);
}

void daemon_watch_begin(struct daemon *daemon)
{
    struct daemon_watch *watch = memory_new(sizeof *watch);
    watch->daemon = daemon;
    watch->event.data = watch;
    daemon->watch = watch;
    uv_fs_event_init(&daemon->loop, &watch->event);
    int failure = uv_fs_event_start(&watch->event, on_event, daemon->runtime, 0);
    if (failure != 0)
        fprintf(stderr, "kldumpd: cannot watch %s (%s): after a removal of its socket send kldumpd SIGUSR1\n",
                daemon->runtime, uv_strerror(failure));
}

void daemon_watch_end(struct daemon *daemon)
{
    if (daemon->watch != NULL)
        uv_close((uv_handle_t *)&daemon->watch->event, on_closed);
    daemon->watch = NULL;
}
