/* Happy path: ask for new events (waiting for one), show them, ask for the state; until it is the one waited for.
 * The guard ends: its connection closes; its record tells the rest. */
#include "ctl/follow.h"
#include "ctl/output.h"
#include "ctl/show.h"

#include <inttypes.h>
#include <string.h>
#include <unistd.h>

enum { WAIT_MS = 1000, END_PATIENCE_MS = 15000 };

bool follow_is_up(const char *state)
{
    static const char *const states[] = {"armed", "ready", "dumping", "sealing"};
    for (size_t i = 0; i < sizeof states / sizeof states[0]; i++)
        if (strcmp(state, states[i]) == 0)
            return true;
    return false;
}

bool follow_may_show(void)
{
    return isatty(STDERR_FILENO);
}

static void show_events(struct output *out, const struct json *events)
{
    for (const struct json *e = json_first(events); e != NULL; e = json_next(e)) {
        char up[32];
        uint64_t uptime = 0;
        show_number(e, "uptime_ms", &uptime);
        output_format(out, "[%9s] ", show_seconds(uptime, up, sizeof up));
        output_safe(out, OUTPUT_PLAIN, show_member(e, "text"));
        output_text(out, "\n");
    }
    output_flush(out, NULL);
}

/* New events since the last time; waits for one. */
static enum error_code take_events(struct follow *follow, struct output *out, struct error *err)
{
    struct json *events = NULL;
    bool ended = false;
    enum error_code code = find_events(follow->find, follow->after, WAIT_MS, &events, &follow->after, &ended, err);
    if (code == ERROR_NONE && follow->show)
        show_events(out, events);
    json_free(events);
    return code;
}

static enum error_code follow_with(struct follow *follow, struct output *out, struct json **ret_run, struct error *err)
{
    for (;;) {
        struct json *run = NULL;
        enum error_code code = find_status(follow->find, &run, err);
        if (code == ERROR_NONE) {
            const char *state = show_member(run, "state");
            bool ended = strcmp(state, "ended") == 0;
            if (ended || follow->is_reached(state)) {
                /* the last events have not been shown */
                struct json *events = NULL;
                bool over = false;
                if (find_events(follow->find, follow->after, 0, &events, &follow->after, &over, NULL) == ERROR_NONE &&
                    follow->show)
                    show_events(out, events);
                json_free(events);
                *ret_run = run;
                return ERROR_NONE;
            }
            json_free(run);
            code = take_events(follow, out, err);
            if (code == ERROR_NO_RUN) /* ended since; of a wrapper's run kldumpd has its end then, and no events */
                code = ERROR_NONE;
        }
        if (code == ERROR_UNREACHABLE)
            code = find_again(follow->find, END_PATIENCE_MS, err);
        if (code == ERROR_NONE && follow->wanted != NULL && !follow->wanted(follow->user))
            code = error_set(err, ERROR_INTERRUPTED, "interrupted; run %s goes on", follow->find->name);
        if (code != ERROR_NONE)
            return code;
    }
}

enum error_code follow_run(struct follow *follow, struct json **ret_run, struct error *err)
{
    struct output out;
    output_init(&out, STDERR_FILENO);
    enum error_code code = follow_with(follow, &out, ret_run, err);
    output_fini(&out);
    return code;
}
