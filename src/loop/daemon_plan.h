/* From a request `start` to what a guard needs: the run's name, its folder, and the plan in a memfd. daemon_start.c
 * uses it. Loop thread; touches nothing but the runtime folder. */
#pragma once

#include "loop/control.h"

#include <stdbool.h>
#include <sys/types.h>

struct daemon;
struct daemon_owned;

struct daemon_plan {
    char name[65];
    uid_t uid;
    int fd;                        /* for the guard's standard input; the caller's */
    bool made;                     /* its folder is new */
    struct daemon_owned *previous; /* our record of an older run of this name, or NULL */
};

/* `uid` and `gid`: whose the run is to be. Picks the name (--name, else a random one), makes its folder
 * RUNTIME/runs/NAME (0700, that user's) and writes the plan. ERROR_BAD_VALUE: names the member of the request;
 * ERROR_EXISTS: a run of this name lives or is being started, or the folder is that of another user's run; the message
 * says whose. On success daemon_plan_fini is owed, on failure nothing is left. */
enum error_code daemon_plan_make(struct daemon *daemon, const struct control_request *request, uid_t uid, gid_t gid,
                                 struct daemon_plan *ret_plan, struct error *err);

/* The start was refused: what was there before is there again. Of a folder that the guard has had, only what a refused
 * guard leaves is removed, by name and through a descriptor of the folder: the user may have put links in it. */
void daemon_plan_undo(struct daemon *daemon, const struct daemon_plan *plan);

void daemon_plan_fini(struct daemon_plan *plan); /* also of one that was never made but is zeroed with fd -1 */
