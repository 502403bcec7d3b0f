/* Happy path: an unknown uid is put down, a worker of libuv's pool asks the name service, the loop keeps the name.
 *
 * The name service does not answer: one worker waits, and all other names stay unknown meanwhile; nobody waits for
 * them. There is no such user: kept as well, so that he is not asked for at each request. The daemon ends while a
 * look-up is under way: its end frees what is left, and the loop waits for it as it does for every worker. */
#include "base/memory.h"
#include "base/text.h"
#include "loop/clock.h"
#include "loop/daemon_private.h"
#include "sys/admin_names.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { NAMES_MAX = 256, NAME_ROOM = 64 };
static const uint64_t kept_ms = 3600000;

struct name {
    uid_t uid;
    uint64_t since_ms;
    bool known;           /* else: being looked up */
    char text[NAME_ROOM]; /* "": there is none */
};

struct daemon_names {
    struct name names[NAMES_MAX];
    size_t count, next; /* the next one to be replaced, once all are taken */
    uv_work_t work;
    bool busy, ended;
    uid_t asked; /* by the worker; and its answer: */
    char answer[NAME_ROOM];
};

static void look_up(uv_work_t *work)
{
    struct daemon_names *names = work->data;
    if (!admin_names_user(names->asked, names->answer, sizeof names->answer))
        names->answer[0] = '\0';
}

static struct name *find(struct daemon_names *names, uid_t uid)
{
    for (size_t i = 0; i < names->count; i++)
        if (names->names[i].uid == uid)
            return &names->names[i];
    return NULL;
}

static void looked_up(uv_work_t *work, int status)
{
    struct daemon_names *names = work->data;
    names->busy = false;
    if (names->ended) {
        free(names);
        return;
    }
    struct name *name = find(names, names->asked);
    if (status != 0 || name == NULL)
        return;
    name->known = true;
    text_copy(name->text, sizeof name->text, names->answer);
}

/* What is known of him stays until the answer comes. */
static void ask(struct daemon *daemon, struct daemon_names *names, uid_t uid)
{
    struct name *name = find(names, uid);
    if (name == NULL) {
        name = &names->names[names->count < NAMES_MAX ? names->count++ : names->next++ % NAMES_MAX];
        *name = (struct name){.uid = uid};
    }
    name->since_ms = clock_now_ms();
    names->asked = uid;
    names->work.data = names;
    names->busy = uv_queue_work(&daemon->loop, &names->work, look_up, looked_up) == 0;
}

const char *daemon_names_find(struct daemon *daemon, uid_t uid)
{
    if (daemon->ending)
        return NULL;
    if (daemon->names == NULL)
        daemon->names = memory_new(sizeof *daemon->names);
    struct daemon_names *names = daemon->names;
    const struct name *name = find(names, uid);
    if ((name == NULL || clock_now_ms() - name->since_ms > kept_ms) && !names->busy)
        ask(daemon, names, uid);
    return name != NULL && name->known ? name->text : NULL;
}

void daemon_names_end(struct daemon *daemon)
{
    struct daemon_names *names = daemon->names;
    daemon->names = NULL;
    if (names != NULL && names->busy)
        names->ended = true;
    else
        free(names);
}
