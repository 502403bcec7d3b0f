/* Happy path: the guard of a wrapper's run, known from the register alone, goes; what it said last is kept for LAST_MS,
 * so that who has stopped the run, or waits for its end, learns how it ended. Its record is elsewhere, with its user.
 *
 * It went without having said the end: it was lost, or ended by the backstop. Too many: the oldest go. Too large: what
 * everybody may see. */
#include "base/memory.h"
#include "base/text.h"
#include "core/run.h"
#include "json/json.h"
#include "loop/clock.h"
#include "loop/daemon_private.h"
#include "loop/registry.h"
#include "sys/launch.h"
#include "sys/run_json.h"

#include <stdlib.h>
#include <string.h>

enum { LAST_MS = 60000, LAST_BYTES = 64 * 1024 };

struct last {
    char name[65]; /* "": none */
    uid_t uid;
    uint64_t gone_ms;
    struct json *run;
};

struct daemon_last {
    struct last runs[DAEMON_LAST_RUNS];
    size_t next; /* the oldest */
};

/* Of a run below our runtime folder; it may be over by now. */
static bool has_record(const struct daemon *daemon, const struct registry_entry *entry)
{
    uid_t owner;
    const struct daemon_owned *owned = daemon_keep_find(daemon, entry->name);
    if (owned != NULL)
        return owned->launched->pid == entry->pid;
    return daemon_runs_owner(daemon, entry->name, &owner) && owner == entry->uid;
}

static void end_run(struct json *run, bool at_floor)
{
    if (at_floor)
        run_json_end_backstop(run);
    else
        run_json_end(run, RUN_OUTCOME_GUARD_LOST, "its guard was lost; its keeper kills the run then");
}

void daemon_last_keep(struct daemon *daemon, const struct registry_entry *entry)
{
    const char *state = "";
    if (has_record(daemon, entry))
        return;
    if (daemon->last == NULL)
        daemon->last = memory_new(sizeof *daemon->last);
    struct last *last = &daemon->last->runs[daemon->last->next++ % DAEMON_LAST_RUNS];
    json_free(last->run);
    last->run = json_copy(entry->run);
    if (json_memory(last->run) > LAST_BYTES) {
        json_free(last->run);
        last->run = daemon_access_redact(entry->run);
    }
    json_optional_string(last->run, "state", "", &state, NULL);
    if (run_state_from_name(state) != RUN_ENDED)
        end_run(last->run, daemon_backstop_has_ended(entry));
    text_copy(last->name, sizeof last->name, entry->name);
    last->uid = entry->uid;
    last->gone_ms = clock_now_ms();
}

static bool is_fresh(const struct last *last, const char *name)
{
    return strcmp(last->name, name) == 0 && clock_now_ms() - last->gone_ms < LAST_MS;
}

bool daemon_last_at(const struct daemon *daemon, size_t index, const char *name, uid_t *ret_uid)
{
    const struct last *last = daemon->last != NULL ? &daemon->last->runs[index] : NULL;
    if (last == NULL || !is_fresh(last, name))
        return false;
    *ret_uid = last->uid;
    return true;
}

const struct json *daemon_last_find(const struct daemon *daemon, const char *name, uid_t uid)
{
    const struct last *newest = NULL;
    for (size_t i = 0; daemon->last != NULL && i < DAEMON_LAST_RUNS; i++) {
        const struct last *last = &daemon->last->runs[i];
        if (is_fresh(last, name) && last->uid == uid && (newest == NULL || last->gone_ms >= newest->gone_ms))
            newest = last;
    }
    return newest != NULL ? newest->run : NULL;
}

void daemon_last_free(struct daemon *daemon)
{
    for (size_t i = 0; daemon->last != NULL && i < DAEMON_LAST_RUNS; i++)
        json_free(daemon->last->runs[i].run);
    free(daemon->last);
    daemon->last = NULL;
}
