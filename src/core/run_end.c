/* Stopping and ended. Happy path of an ordered stop: (an open dump is sealed first) -> TERM to the main process -> it
 * ends -> whatever is left is killed -> GONE -> ended. After a death with an open dump: kill what is left -> GONE ->
 * audit with the counters that were read last -> seal -> ended. Failure modes: TERM is ignored -> TERM to the group
 * after --stop-timeout -> KILL; FLOOR, a second Ctrl-C or --now go straight to KILL from anywhere; processes that
 * survive KILL end the run as unkillable; a lost keeper is a kill too; the audit after a death may hang on the disk,
 * and the second Ctrl-C or --now gives it up. The first outcome stands, except that floor and unkillable replace a
 * milder one. */
#include "core/run_internal.h"
#include "base/text.h"

#include <stdio.h>
#include <string.h>

static const uint64_t group_most_ms =
    5000; /* after TERM to the group: the last quarter of the stop timeout, at most this */
static const uint64_t leftovers_ms = 2000;   /* for the children of a server that ended in order */
static const uint64_t gone_limit_ms = 30000; /* after KILL: then the keeper itself must be taken for lost */

static void set_outcome(struct run *run, enum run_outcome outcome)
{
    bool graver = outcome == RUN_OUTCOME_FLOOR || outcome == RUN_OUTCOME_UNKILLABLE;
    if (run->outcome == RUN_OUTCOME_NONE || (graver && run->outcome != RUN_OUTCOME_UNKILLABLE))
        run->outcome = outcome;
}

static void finish(struct run_context *c)
{
    struct run *run = c->run;
    /* A dump that was asked for and never came on, a pause that will not be answered by a seal any more. */
    if (run->dump_request != 0)
        run_reply(c, run->dump_request, ERROR_STATE, "run %s ended: %s", run->settings.name, run->message);
    for (unsigned i = 0; i < run->pausers; i++)
        run_reply(c, run->pause_request[i], ERROR_STATE, "run %s ended: %s", run->settings.name, run->message);
    run->dump_request = 0;
    run->pausers = 0;
    if (run->outcome != RUN_OUTCOME_VERIFY_FAILED) /* then the files may show why */
        run_start_discard(c);
    run_enter(c, RUN_ENDED, STEP_NONE);
    run_note(c, run->outcome == RUN_OUTCOME_COMPLETED || run->outcome == RUN_OUTCOME_STOPPED ? RUN_INFO : RUN_ERROR,
             RUN_NOTE_END, "%s%s%s", run_outcome_name(run->outcome), run->message[0] != '\0' ? ": " : "", run->message);
    run_add(c, RUN_DO_FINISH);
}

static void kill_all(struct run_context *c)
{
    struct run *run = c->run;
    run_enter(c, RUN_STOPPING, STOP_KILL);
    run_add(c, RUN_DO_KILL);
    run->kill_sent = true;
    run->limit_ns = c->now_ns + gone_limit_ms * RUN_MS;
}

void run_end_fail(struct run_context *c, enum run_outcome outcome)
{
    set_outcome(c->run, outcome);
    if (c->run->gone)
        finish(c);
    else
        kill_all(c);
}

/* The stop timeout is the whole time until KILL. */
static uint64_t group_ms(const struct run *run)
{
    uint64_t quarter = run->settings.stop_timeout_ms / 4;
    return quarter < group_most_ms ? quarter : group_most_ms;
}

void run_end_orderly(struct run_context *c)
{
    struct run *run = c->run;
    run_enter(c, RUN_STOPPING, STOP_TERM);
    run_add(c, RUN_DO_TERM);
    run_note(c, RUN_INFO, RUN_NOTE_STOP,
             "TERM sent; requests that still run may end, for %llu s at most (--stop-timeout)",
             (unsigned long long)(run->settings.stop_timeout_ms / 1000));
    run->limit_ns = c->now_ns + (run->settings.stop_timeout_ms - group_ms(run)) * RUN_MS;
}

/* An ordered stop from any living state. */
static void stop_in_order(struct run_context *c)
{
    struct run *run = c->run;
    set_outcome(run, RUN_OUTCOME_STOPPED);
    switch (run->state) {
    case RUN_DUMPING:
        run->stop_wanted = true;
        run_dump_seal_begin(c, RUN_SEALED_BY_STOP, ERROR_INTERRUPTED, "the run is being stopped");
        break;
    case RUN_SEALING:
        run->stop_wanted = true;
        run->sealed_by = RUN_SEALED_BY_STOP;
        break;
    case RUN_STOPPING:
        break;
    case RUN_LAUNCHING:
    case RUN_LOADING:
        kill_all(c); /* TERM now would leave orphans that load on; there is nothing to save yet */
        break;
    default:
        run_end_orderly(c);
        break;
    }
}

/* At once. When nothing lives any more only the last audit can be waited for, which on a slow or dead disk may take
 * long: then it is given up. */
static void stop_at_once(struct run_context *c)
{
    struct run *run = c->run;
    if (!run->gone) {
        kill_all(c);
        return;
    }
    run_note(c, RUN_WARN, RUN_NOTE_SEAL,
             "%s is left without a seal; the server has ended, so look at it when you like: kldumpctl check DIR/%s",
             run->experiment, run->experiment);
    run->experiment[0] = '\0';
    finish(c);
}

void run_end_stop(struct run_context *c)
{
    struct run *run = c->run;
    const char *who = c->event->text != NULL ? c->event->text : "";
    run_note(c, RUN_INFO, RUN_NOTE_STOP, "stop asked for%s%s%s", who[0] != '\0' ? " by " : "", who,
             c->event->now ? ", at once" : "");
    if (run->message[0] == '\0')
        run_message(c, "asked for%s%s", who[0] != '\0' ? " by " : "", who);
    if (!c->event->now) {
        stop_in_order(c);
        return;
    }
    set_outcome(run, RUN_OUTCOME_STOPPED);
    stop_at_once(c);
}

void run_end_interrupt(struct run_context *c)
{
    struct run *run = c->run;
    if (!run->interrupted && !c->event->now) {
        run->interrupted = true;
        run_note(c, RUN_INFO, RUN_NOTE_STOP, "interrupted: %s",
                 run->gone                    ? "the dump is being sealed; once more ends without the seal"
                 : run->experiment[0] != '\0' ? "sealing the dump, then stopping the server; once more kills at once"
                                              : "stopping the server; once more kills at once");
        if (run->message[0] == '\0')
            run_message(c, "interrupted");
        stop_in_order(c);
        return;
    }
    run_note(c, RUN_WARN, RUN_NOTE_STOP, "interrupted%s: %s", run->interrupted ? " again" : "",
             run->gone ? "not waiting for the audit" : "killing");
    run->interrupted = true;
    if (run->message[0] == '\0')
        run_message(c, "interrupted");
    set_outcome(run, RUN_OUTCOME_STOPPED);
    stop_at_once(c);
}

static void note_exit(struct run_context *c)
{
    struct run *run = c->run;
    run->exited = true;
    run->exit_code = c->event->exit_code;
    run->signal = c->event->signal;
}

void run_end_exited(struct run_context *c)
{
    struct run *run = c->run;
    note_exit(c);
    const char *why = c->event->text != NULL ? c->event->text : "the server ended";
    if (run->was_armed && run->exit_code == 0) {
        run_message(c, "%s", why);
        run_end_fail(c, RUN_OUTCOME_COMPLETED);
        return;
    }
    if (run->was_armed)
        run_message(c, "%s", why);
    else
        run_message(c, "the server ended while %s: %s", run_state_name(run->state), why);
    run_end_fail(c, run->was_armed ? RUN_OUTCOME_SERVER_EXITED : RUN_OUTCOME_START_FAILED);
}

void run_end_exited_stopping(struct run_context *c)
{
    note_exit(c);
    /* Its children normally follow at once; what does not is killed. */
    if (!c->run->kill_sent) {
        c->run->step = STOP_GROUP;
        c->run->limit_ns = c->now_ns + leftovers_ms * RUN_MS;
    }
}

/* Nothing lives any more: seal an open dump from what is on the disk, else end. */
static void after_death(struct run_context *c)
{
    struct run *run = c->run;
    if (run->experiment[0] == '\0') {
        finish(c);
        return;
    }
    run->sealed_by = RUN_SEALED_BY_DEATH;
    run_enter(c, RUN_STOPPING, STOP_CHECK);
    run_check(c, STOP_CHECK, run->experiment, false);
}

/* Rounded up: nothing counts as faster than it was. */
static void tell_kill_time(struct run_context *c)
{
    char reason[sizeof c->run->message];
    text_copy(reason, sizeof reason, c->run->message);
    run_message(c, "%.700s; everything dead %llu ms after the decision", reason,
                (unsigned long long)((c->event->number + RUN_MS - 1) / RUN_MS));
}

void run_end_gone(struct run_context *c)
{
    struct run *run = c->run;
    if (run->gone)
        return;
    run->gone = true;
    if (run->outcome == RUN_OUTCOME_FLOOR && c->event->number > 0)
        tell_kill_time(c);
    if (run->outcome == RUN_OUTCOME_NONE) {
        set_outcome(run, run->was_armed ? RUN_OUTCOME_SERVER_EXITED : RUN_OUTCOME_START_FAILED);
        run_message(c, "every process of the run is gone; the exit status of the server is not known");
    }
    after_death(c);
}

void run_end_audited(struct run_context *c)
{
    if (!run_answers(c))
        return;
    run_dump_sealed(c);
    finish(c);
}

void run_end_unkillable(struct run_context *c)
{
    struct run *run = c->run;
    set_outcome(run, RUN_OUTCOME_UNKILLABLE);
    run_message(c, "cannot be killed: %s", c->event->text != NULL ? c->event->text : "unknown processes");
    run->gone = true; /* as gone as it gets */
    after_death(c);
}

void run_end_keeper_lost(struct run_context *c)
{
    struct run *run = c->run;
    if (run->gone)
        return; /* its work was done */
    set_outcome(run, RUN_OUTCOME_GUARD_LOST);
    if (run->outcome == RUN_OUTCOME_GUARD_LOST)
        run_message(c, "%s",
                    c->event->text != NULL ? c->event->text : "the keeper process was lost; everything was killed");
    kill_all(c);
}

void run_end_floor(struct run_context *c)
{
    struct run *run = c->run;
    if (run->gone)
        return; /* nothing of this run can fill the disk any more */
    set_outcome(run, RUN_OUTCOME_FLOOR);
    run_message(c, "%s", c->event->text != NULL ? c->event->text : "free space reached the kill level");
    run_note(c, RUN_ERROR, RUN_NOTE_SPACE, "killed at the floor: %s", run->message);
    kill_all(c);
}

void run_end_tick(struct run_context *c)
{
    struct run *run = c->run;
    if (run->gone || c->now_ns < run->limit_ns)
        return;
    switch (run->step) {
    case STOP_TERM:
        run_note(c, RUN_WARN, RUN_NOTE_STOP, "the server did not end within %llu s of TERM: TERM to its whole group",
                 (unsigned long long)((run->settings.stop_timeout_ms - group_ms(run)) / 1000));
        run_add(c, RUN_DO_TERM_GROUP);
        run->step = STOP_GROUP;
        run->limit_ns = c->now_ns + group_ms(run) * RUN_MS;
        break;
    case STOP_GROUP:
        if (!run->exited)
            run_note(c, RUN_WARN, RUN_NOTE_STOP, "still there: KILL");
        kill_all(c);
        break;
    default:
        set_outcome(run, RUN_OUTCOME_UNKILLABLE);
        run_message(c, "KILL was sent %llu s ago and the end was never reported",
                    (unsigned long long)(gone_limit_ms / 1000));
        run->gone = true;
        after_death(c);
        break;
    }
}
