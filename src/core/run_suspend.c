/* Ctrl-Z and its end. The guard freezes the run and stops itself; what was due meanwhile is due that much later, and a
 * question that was under way may fail for having been frozen: it is asked again (run_answers). Not while the probe
 * runs, whose passes are counted and timed, and not where a freeze would only be in the way of the run's birth or end.
 */
#include "core/run_internal.h"
#include "base/duration.h"

void run_suspend_asked(struct run_context *c)
{
    if (c->run->kill_sent || c->run->gone)
        run_suspend_refused(c);
    else
        run_add(c, RUN_DO_SUSPEND);
}

void run_suspend_refused(struct run_context *c)
{
    struct run *run = c->run;
    run_note(c, RUN_WARN, RUN_NOTE_NOTE, "the run is %s and cannot be suspended now; try again a little later",
             run->kill_sent || run->gone ? "at its end" : run_state_name(run->state));
}

void run_suspend_resumed(struct run_context *c)
{
    struct run *run = c->run;
    uint64_t stopped_ns = c->event->number;
    char text[DURATION_TEXT];
    /* 0 and UINT64_MAX mean "none". A limit after KILL was set when we ran again: a kill refuses to be suspended. */
    uint64_t *const times[] = {&run->launched_ns, &run->retry_ns,   &run->progress_ns,
                               &run->busy_ns,     &run->for_end_ns, &run->unanswered_ns,
                               &run->on_since_ns, &run->grown_ns,   &run->blind_since_ns};
    for (unsigned i = 0; i < sizeof times / sizeof times[0]; i++)
        if (*times[i] != 0 && *times[i] < UINT64_MAX - stopped_ns)
            *times[i] += stopped_ns;
    if (!run->kill_sent && run->limit_ns < UINT64_MAX - stopped_ns)
        run->limit_ns += stopped_ns;
    run->resumed_number = run->waiting ? run->number : 0;
    run_note(c, RUN_INFO, RUN_NOTE_NOTE, "running again after %s", duration_text(stopped_ns / RUN_MS, text));
}
