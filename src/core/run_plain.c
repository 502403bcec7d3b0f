/* A plain run: guarded like any other (space, kill, records), with the server as its user starts it.
 * Happy path: warming: up -> its settings, for the record -> ready, with a question each 5 s that costs no pass.
 * Failure modes: no settings are told (said; ready all the same, since nothing depends on them); no answer while ready
 * (said once, and when it answers again: whoever measures decides); dumps and pauses are refused in run.c. */
#include "core/run_internal.h"
#include "base/text.h"

void run_plain_healthy(struct run_context *c)
{
    run_ask(c, WARM_INFO, SERVER_INFO, "");
}

static void rest(struct run_context *c)
{
    run_enter(c, RUN_READY, READY_WATCH);
    run_retry(c, RUN_ARMED_WATCH_MS);
}

void run_plain_info(struct run_context *c)
{
    struct run *run = c->run;
    const struct server_answer *answer = c->event->answer;
    if (!answer->ok && answer->http_status == 0) {
        run_retry(c, RUN_DUMP_WATCH_MS); /* busy or ending; the start limit and EXITED decide */
        return;
    }
    if (answer->ok)
        run->facts = answer->facts;
    else
        run_note(c, RUN_WARN, RUN_NOTE_SERVER, "the server's settings are not known: %s", answer->problem);
    run->cause[0] = run->stage[0] = run->problem[0] = '\0';
    run->was_armed = true;
    rest(c);
}

void run_plain_answer(struct run_context *c)
{
    struct run *run = c->run;
    bool was_out = run->outage_told;
    if (!run_answers(c))
        return;
    (void)run_watch_answered(c);
    if (was_out && !run->outage_told)
        run_note(c, RUN_INFO, RUN_NOTE_SERVER, "the server answers again");
    rest(c);
}

void run_plain_tick(struct run_context *c)
{
    if (!c->run->waiting && c->now_ns >= c->run->retry_ns)
        run_ask(c, READY_WATCH, SERVER_LOAD, "");
}
