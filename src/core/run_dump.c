/* Armed, dumping and sealing. Happy path:
 *   armed: asked -> wait for idle -> counters (the base) -> dumping: enable -> confirmed on every rank -> answered; on
 * until paused, the holder goes, or the run is stopped -> sealing: disable -> counters until quiet -> audit -> seal
 * written, who waits is answered -> armed, or on to stopping. Failure modes: not idle in time (answered busy, nothing
 * was switched); enable fails or is not everywhere (answered, then sealed like any other dump, since part of the ranks
 * may have written); disable fails (tried again, then the run is ended, since a dump that cannot be switched off must
 * not go on); the server ends (run_end.c seals after its death). */
#include "core/run_internal.h"
#include "base/text.h"

#include <string.h>

static const uint64_t idle_ms = 200;
static const uint64_t watch_ms = 1000;   /* counters, while dumping */
static const uint64_t quiet_ms = 150;    /* between two looks at the counters */
static const uint64_t disable_ms = 1000; /* between two tries to switch off */
static const uint64_t disable_limit_ms = 120000;

/* ---- armed: preparing ---- */

void run_dump_asked(struct run_context *c)
{
    struct run *run = c->run;
    if (run->dump_request != 0) {
        run_reply(c, c->event->number, ERROR_BUSY, "another dump is being prepared");
        return;
    }
    run->dump_request = c->event->number;
    run->hold = c->event->hold;
    run->force = c->event->force;
    text_copy(run->seal_experiment, sizeof run->seal_experiment, c->event->text);
    run->limit_ns = c->now_ns + c->event->wait_idle_ms * RUN_MS;
    run_ask(c, DUMP_IDLE, SERVER_LOAD, "");
}

static void prepare_failed(struct run_context *c, enum error_code code, const char *text)
{
    struct run *run = c->run;
    run_reply(c, run->dump_request, code, "%s", text);
    run->dump_request = 0;
    run_enter(c, RUN_ARMED, STEP_NONE);
}

void run_dump_cancelled(struct run_context *c)
{
    struct run *run = c->run;
    if (run->dump_request != 0 && run->hold)
        prepare_failed(c, ERROR_INTERRUPTED, "the client is gone");
}

void run_dump_answer_armed(struct run_context *c)
{
    struct run *run = c->run;
    const struct server_answer *answer = c->event->answer;
    if (!run_answers(c) || run->dump_request == 0)
        return;
    if (run->step == DUMP_IDLE) {
        bool busy = !answer->ok || (answer->load_known && answer->requests > 0);
        if (!busy || run->force) {
            run_ask(c, DUMP_BASE, SERVER_STATE, "");
        } else if (c->now_ns >= run->limit_ns) {
            prepare_failed(c, ERROR_BUSY,
                           answer->ok
                               ? "requests are running: a dump that begins now would begin in the middle of them; "
                                 "wait for them, or use --force"
                               : answer->problem);
        } else {
            run_retry(c, idle_ms);
        }
        return;
    }
    if (!answer->ok) {
        prepare_failed(c, ERROR_SERVER, answer->problem);
        return;
    }
    run_counts_from(&run->base, answer);
    run->last = run->base;
    text_copy(run->experiment, sizeof run->experiment, run->seal_experiment);
    run->failed_saves_base = run->failed_saves;
    run->counts_exact = false;
    run_enter(c, RUN_DUMPING, DUMP_ENABLE);
    run_ask(c, DUMP_ENABLE, SERVER_ENABLE, run->experiment);
}

/* ---- dumping ---- */

static void dump_refused(struct run_context *c, const char *text)
{
    struct run *run = c->run;
    run_reply(c, run->dump_request, ERROR_SERVER, "%s", text);
    run->dump_request = 0;
    run_dump_seal_begin(c, RUN_SEALED_BY_PAUSE);
}

static bool on_everywhere(const struct run *run, const struct server_answer *answer)
{
    if (answer->rank_count == 0 || answer->rank_count != run->base.ranks)
        return false;
    for (uint32_t i = 0; i < answer->rank_count; i++)
        if (!answer->rank[i].enabled || strcmp(answer->rank[i].experiment, run->experiment) != 0)
            return false;
    return true;
}

static void confirmed(struct run_context *c)
{
    struct run *run = c->run;
    if (!on_everywhere(run, c->event->answer)) {
        dump_refused(c, "enable was answered with success, but not every rank has it");
        return;
    }
    run_note(c, RUN_INFO, RUN_NOTE_DUMP, "dumping under experiment %s on %u rank%s", run->experiment,
             (unsigned)run->base.ranks, run->base.ranks == 1 ? "" : "s");
    run_reply(c, run->dump_request, ERROR_NONE, "%s", run->experiment);
    run->dump_request = 0;
    run->step = DUMP_ON;
    run_retry(c, watch_ms);
}

void run_dump_answer_dumping(struct run_context *c)
{
    struct run *run = c->run;
    const struct server_answer *answer = c->event->answer;
    if (!run_answers(c))
        return;
    if (run->step == DUMP_ON) {
        if (answer->ok && answer->rank_count == run->base.ranks)
            run_counts_from(&run->last, answer);
        run_retry(c, watch_ms); /* no answer: a pass that is being written makes it wait */
    } else if (!answer->ok) {
        dump_refused(c, answer->problem);
    } else if (run->step == DUMP_ENABLE) {
        run_ask(c, DUMP_CONFIRM, SERVER_STATE, "");
    } else {
        confirmed(c);
    }
}

/* One more who waits for the seal. */
static void pauser(struct run_context *c)
{
    struct run *run = c->run;
    if (run->pausers < RUN_PAUSERS_MAX)
        run->pause_request[run->pausers++] = c->event->number;
    else
        run_reply(c, c->event->number, ERROR_BUSY, "too many wait for this seal");
}

void run_dump_pause(struct run_context *c)
{
    struct run *run = c->run;
    pauser(c);
    if (run->dump_request != 0) {
        run_reply(c, run->dump_request, ERROR_INTERRUPTED, "paused before it was on");
        run->dump_request = 0;
    }
    run_dump_seal_begin(c, RUN_SEALED_BY_PAUSE);
}

void run_dump_pause_joined(struct run_context *c)
{
    pauser(c);
}

void run_dump_holder_gone(struct run_context *c)
{
    struct run *run = c->run;
    if (!run->hold)
        return;
    if (run->dump_request != 0)
        run_reply(c, run->dump_request, ERROR_INTERRUPTED, "the client is gone");
    run->dump_request = 0;
    run_note(c, RUN_WARN, RUN_NOTE_DUMP, "the command that asked for dump %s is gone: dumping is switched off",
             run->experiment);
    run_dump_seal_begin(c, RUN_SEALED_BY_PAUSE);
}

/* ---- sealing ---- */

void run_dump_seal_begin(struct run_context *c, enum run_sealed_by by)
{
    struct run *run = c->run;
    run->sealed_by = by;
    run->quiet_once = false;
    run->counts_exact = false;
    run_enter(c, RUN_SEALING, SEAL_DISABLE);
    run->limit_ns = c->now_ns + disable_limit_ms * RUN_MS;
    run_ask(c, SEAL_DISABLE, SERVER_DISABLE, "");
}

static bool off_everywhere(const struct server_answer *answer)
{
    for (uint32_t i = 0; i < answer->rank_count; i++)
        if (answer->rank[i].enabled)
            return false;
    return answer->rank_count > 0;
}

static void look_for_quiet(struct run_context *c)
{
    struct run *run = c->run;
    struct run_counts counts;
    run_counts_from(&counts, c->event->answer);
    bool off = off_everywhere(c->event->answer);
    bool quiet = off && run->quiet_once && run_counts_equal(&counts, &run->last);
    run->last = counts;
    run->quiet_once = off;
    if (quiet) {
        run->counts_exact = true;
        run_check(c, SEAL_CHECK, run->experiment, false);
        return;
    }
    if (c->now_ns >= run->limit_ns) {
        run_message(c, "dumping of %s could not be switched off: %s", run->experiment,
                    off ? "the counters still move" : "a rank has it on again and again");
        run_end_fail(c, RUN_OUTCOME_CONTROL_LOST);
        return;
    }
    /* Still on: an enable that was under way came after our disable, or somebody else's did. */
    if (!off)
        run->step = SEAL_DISABLE;
    run_retry(c, off ? quiet_ms : disable_ms);
}

void run_dump_answer_sealing(struct run_context *c)
{
    struct run *run = c->run;
    const struct server_answer *answer = c->event->answer;
    if (!run_answers(c))
        return;
    if (answer->ok && run->step == SEAL_DISABLE) {
        run_ask(c, SEAL_QUIET, SERVER_STATE, "");
    } else if (answer->ok) {
        look_for_quiet(c);
    } else if (c->now_ns >= run->limit_ns) {
        run_message(c, "dumping of %s could not be switched off: %s", run->experiment, answer->problem);
        run_end_fail(c, RUN_OUTCOME_CONTROL_LOST);
    } else {
        run_retry(c, disable_ms);
    }
}

void run_dump_sealed(struct run_context *c)
{
    struct run *run = c->run;
    text_copy(run->seal_experiment, sizeof run->seal_experiment, run->experiment);
    run->experiment[0] = '\0';
    run->hold = false;
    run_add(c, RUN_DO_SEAL);
    const char *reason = c->event->text != NULL ? c->event->text : "";
    if (!c->event->ok)
        run_note(c, RUN_ERROR, RUN_NOTE_SEAL, "%s could not be audited: %s", run->seal_experiment, reason);
    else if (!c->event->complete)
        run_note(c, RUN_WARN, RUN_NOTE_SEAL, "%s is incomplete: %s", run->seal_experiment, reason);
    else
        run_note(c, RUN_INFO, RUN_NOTE_SEAL, "%s is sealed and complete", run->seal_experiment);
    for (unsigned i = 0; i < run->pausers; i++)
        run_reply(c, run->pause_request[i], ERROR_NONE, "%s", run->seal_experiment);
    run->pausers = 0;
}

void run_dump_audited(struct run_context *c)
{
    struct run *run = c->run;
    if (!run_answers(c))
        return;
    run_dump_sealed(c);
    if (run->stop_wanted)
        run_end_orderly(c);
    else
        run_enter(c, RUN_ARMED, STEP_NONE);
}

/* ---- time ---- */

static const struct {
    int step;
    enum server_question question;
} repeated[] = {
    {DUMP_IDLE, SERVER_LOAD}, {DUMP_ON, SERVER_STATE}, {SEAL_DISABLE, SERVER_DISABLE}, {SEAL_QUIET, SERVER_STATE}};

void run_dump_tick(struct run_context *c)
{
    struct run *run = c->run;
    if (run->waiting || c->now_ns < run->retry_ns)
        return;
    for (size_t i = 0; i < sizeof repeated / sizeof repeated[0]; i++)
        if (repeated[i].step == run->step)
            run_ask(c, run->step, repeated[i].question, "");
}
