/* Armed, dumping and sealing. Happy path:
 *   armed: asked -> wait for idle -> counters (the base) -> dumping: enable -> confirmed on every rank -> answered; on
 * until paused, the holder goes, its own limit is reached, or the run is stopped -> sealing: disable -> counters until
 * quiet -> audit -> seal written, who waits is answered -> armed, or on to stopping. Failure modes: not idle in time,
 * too little space, a reset, somebody else's dump (answered, nothing was switched); enable fails or is not everywhere
 * (answered, then sealed like any other dump, since part of the ranks may have written); disable fails (tried again,
 * then the run is ended, since a dump that cannot be switched off must not go on); what others do and whether the
 * server lives: run_watch.c; space: run_space.c; the server ends: run_end.c seals after its death. */
#include "core/run_internal.h"
#include "base/text.h"

#include <stdio.h>
#include <string.h>

static const uint64_t idle_ms = 200;
static const uint64_t passes_ms = 100;   /* counters, while passes are counted */
static const uint64_t quiet_ms = 150;    /* between two looks at the counters */
static const uint64_t disable_ms = 1000; /* between two tries to switch off */
enum { QUIET_TIMES = 2 };                /* control timeouts until quiet, once it is off */

/* ---- armed: preparing ---- */

void run_dump_rest(struct run_context *c, uint64_t look_ms)
{
    run_enter(c, RUN_ARMED, ARMED_WATCH);
    run_retry(c, look_ms);
}

void run_dump_asked(struct run_context *c)
{
    struct run *run = c->run;
    enum run_sealed_by by;
    char text[512];
    if (run->dump_request != 0) {
        run_reply(c, c->event->number, ERROR_BUSY, "another dump is being prepared");
        return;
    }
    if (run->revoked) {
        run_reply(c, c->event->number, ERROR_STATE, "%s", run->judgement.text);
        return;
    }
    if (run_space_refuses(run, &by, text, sizeof text)) {
        run_reply(c, c->event->number, ERROR_SPACE, "%s", text);
        return;
    }
    run->dump_request = c->event->number;
    run->for_ms = c->event->for_ms;
    run->passes = c->event->passes;
    run->hold = c->event->hold;
    run->force = c->event->force;
    text_copy(run->seal_experiment, sizeof run->seal_experiment, c->event->text);
    run->limit_ns = c->now_ns + c->event->wait_idle_ms * RUN_MS;
    run->watch_ns = c->now_ns + RUN_ARMED_WATCH_MS * RUN_MS;
    run_ask(c, DUMP_IDLE, SERVER_LOAD, "");
}

void run_dump_prepare_failed(struct run_context *c, enum error_code code, const char *text)
{
    struct run *run = c->run;
    run_reply(c, run->dump_request, code, "%s", text);
    run->dump_request = 0;
    run_dump_rest(c, RUN_ARMED_WATCH_MS);
}

void run_dump_cancelled(struct run_context *c)
{
    struct run *run = c->run;
    if (run->dump_request != 0 && run->hold)
        run_dump_prepare_failed(c, ERROR_INTERRUPTED, "the client is gone");
}

void run_dump_open(struct run_context *c, const char *experiment, const struct run_counts *base)
{
    struct run *run = c->run;
    run->base = *base;
    text_copy(run->experiment, sizeof run->experiment, experiment);
    run->failed_saves_base = run->failed_saves;
    run->disturbance[0] = run->unsafe_told[0] = '\0';
    run->external = run->counts_reset = run->counts_exact = run->switched_off = run->settled = run->grown_off = false;
    run->for_end_ns = run->passes_end = UINT64_MAX;
    run->on_since_ns = c->now_ns;
    run->grown_ns = 0;
    run->settled_surveys = 0;
}

static void look_for_idle(struct run_context *c)
{
    struct run *run = c->run;
    const struct server_answer *answer = c->event->answer;
    bool busy = !answer->ok || (answer->load_known && answer->requests > 0);
    if (!busy || run->force) {
        run_ask(c, DUMP_BASE, SERVER_STATE, "");
    } else if (c->now_ns >= run->limit_ns) {
        run_dump_prepare_failed(c, ERROR_BUSY,
                                answer->ok ? "requests are running: a dump that begins now would begin in the middle "
                                             "of them; wait for them, or use --force"
                                           : answer->problem);
    } else if (c->now_ns >= run->watch_ns) {
        run->watch_ns = c->now_ns + RUN_ARMED_WATCH_MS * RUN_MS;
        run_ask(c, DUMP_WATCH, SERVER_STATE, "");
    } else {
        run_retry(c, idle_ms);
    }
}

/* The counters that the dump begins with; somebody may have been faster, or may have changed something. */
static void take_base(struct run_context *c)
{
    struct run *run = c->run;
    run_watch_armed(c);
    if (run->state != RUN_ARMED || run->dump_request == 0)
        return;
    if (run->revoked) {
        run_dump_prepare_failed(c, ERROR_STATE, run->judgement.text);
    } else if (run->short_answers > 0) {
        run_dump_prepare_failed(c, ERROR_SERVER, "a rank of the server does not answer any more");
    } else if (run->wrong_told[0] != '\0') {
        char text[512];
        snprintf(text, sizeof text,
                 "somebody has changed a setting of the dumper: %s; set it back, or start the run anew",
                 run->wrong_told);
        run_dump_prepare_failed(c, ERROR_STATE, text);
    } else {
        run_dump_open(c, run->seal_experiment, &run->seen);
        run_enter(c, RUN_DUMPING, DUMP_ENABLE);
        run_ask(c, DUMP_ENABLE, SERVER_ENABLE, run->experiment);
    }
}

void run_dump_answer_armed(struct run_context *c)
{
    struct run *run = c->run;
    if (!run_answers(c))
        return;
    bool usable = run_watch_answered(c);
    if (run->step == DUMP_IDLE) {
        look_for_idle(c);
    } else if (run->step == DUMP_WATCH) {
        run->step = DUMP_IDLE;
        run_retry(c, idle_ms);
        if (usable)
            run_watch_armed(c);
    } else if (run->step == DUMP_BASE && !usable) {
        run_dump_prepare_failed(c, ERROR_SERVER, c->event->answer->problem);
    } else if (run->step == DUMP_BASE) {
        take_base(c);
    } else if (run->step == ARMED_DISABLE) {
        run_dump_rest(c, disable_ms);
    } else {
        run_dump_rest(c, RUN_ARMED_WATCH_MS);
        if (usable)
            run_watch_armed(c);
    }
}

/* ---- dumping ---- */

static void dump_refused(struct run_context *c, const char *text)
{
    run_dump_seal_begin(c, RUN_SEALED_BY_PAUSE, ERROR_SERVER, text);
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

static void look_again(struct run_context *c)
{
    run_retry(c, c->run->passes_end != UINT64_MAX ? passes_ms : RUN_DUMP_WATCH_MS);
}

static void confirmed(struct run_context *c)
{
    struct run *run = c->run;
    if (!run_watch_counters(c))
        return;
    if (run->counts_reset) {
        run_dump_seal_begin(c, RUN_SEALED_BY_OTHER, ERROR_STATE, run->judgement.text);
        return;
    }
    if (!on_everywhere(run, c->event->answer)) {
        dump_refused(c, "enable was answered with success, but not every rank has it");
        return;
    }
    run_note(c, RUN_INFO, RUN_NOTE_DUMP, "dumping under experiment %s on %u rank%s", run->experiment,
             (unsigned)run->base.ranks, run->base.ranks == 1 ? "" : "s");
    run_reply(c, run->dump_request, ERROR_NONE, "%s", run->experiment);
    run->dump_request = 0;
    run->step = DUMP_ON;
    if (run->for_ms > 0)
        run->for_end_ns = c->now_ns + run->for_ms * RUN_MS;
    if (run->passes > 0)
        run->passes_end = run->passes;
    look_again(c);
}

void run_dump_answer_dumping(struct run_context *c)
{
    struct run *run = c->run;
    const struct server_answer *answer = c->event->answer;
    if (!run_answers(c))
        return;
    bool usable = run_watch_answered(c);
    if (run->step == DUMP_ON) {
        look_again(c); /* no answer: a pass that is being written makes it wait */
        if (usable)
            run_watch_dumping(c);
    } else if (!usable) {
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
    pauser(c);
    run_dump_seal_begin(c, RUN_SEALED_BY_PAUSE, ERROR_INTERRUPTED, "paused before it was on");
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
    run_note(c, RUN_WARN, RUN_NOTE_DUMP, "the command that asked for dump %s is gone: dumping is switched off",
             run->experiment);
    run_dump_seal_begin(c, RUN_SEALED_BY_PAUSE, ERROR_INTERRUPTED, "the client is gone");
}

/* ---- sealing ---- */

void run_dump_seal_begin(struct run_context *c, enum run_sealed_by by, enum error_code code, const char *text)
{
    struct run *run = c->run;
    if (run->dump_request != 0)
        run_reply(c, run->dump_request, code, "%s", text);
    run->dump_request = 0;
    run->sealed_by = by;
    run->quiet_once = false;
    run->counts_exact = false;
    run->switched_off = false;
    run_enter(c, RUN_SEALING, SEAL_DISABLE);
    run->limit_ns = c->now_ns + RUN_DISABLE_TIMES * run->settings.control_timeout_ms * RUN_MS;
    run_ask(c, SEAL_DISABLE, SERVER_DISABLE, "");
}

void run_dump_not_off(struct run_context *c, const char *experiment, const char *why)
{
    run_message(c, "dumping of %s could not be switched off: %s", experiment, why);
    run_end_fail(c, RUN_OUTCOME_CONTROL_LOST);
}

static void look_for_quiet(struct run_context *c)
{
    struct run *run = c->run;
    const struct server_answer *answer = c->event->answer;
    bool off = run_watch_off(answer), same = run_watch_same(&run->seen, answer);
    if (!run_watch_counters(c))
        return;
    bool quiet = off && run->quiet_once && same;
    run->quiet_once = off;
    if (quiet) {
        run->counts_exact = !run->counts_reset;
        run->settled = true;
        run_check(c, SEAL_CHECK, run->experiment, false);
        return;
    }
    if (c->now_ns >= run->limit_ns) {
        run_dump_not_off(c, run->experiment, off ? "the counters still move" : "a rank has it on again and again");
        return;
    }
    /* Still on: an enable that was under way came after our disable, or somebody else's did. */
    if (!off)
        run->step = SEAL_DISABLE;
    run_retry(c, off ? quiet_ms : disable_ms);
}

static void switched_off(struct run_context *c)
{
    struct run *run = c->run;
    uint64_t limit_ns = c->now_ns + QUIET_TIMES * run->settings.control_timeout_ms * RUN_MS;
    if (!run->switched_off && limit_ns < run->limit_ns)
        run->limit_ns = limit_ns;
    run->switched_off = true;
    run_ask(c, SEAL_QUIET, SERVER_STATE, "");
}

void run_dump_answer_sealing(struct run_context *c)
{
    struct run *run = c->run;
    if (!run_answers(c))
        return;
    bool usable = run_watch_answered(c);
    if (usable && run->step == SEAL_DISABLE)
        switched_off(c);
    else if (usable)
        look_for_quiet(c);
    else if (c->now_ns >= run->limit_ns)
        run_dump_not_off(c, run->experiment, c->event->answer->problem);
    else
        run_retry(c, disable_ms);
}

void run_dump_sealed(struct run_context *c)
{
    struct run *run = c->run;
    text_copy(run->seal_experiment, sizeof run->seal_experiment, run->experiment);
    run->experiment[0] = '\0';
    run->hold = false;
    run_add(c, RUN_DO_SEAL);
    const char *reason = run->disturbance[0] != '\0' ? run->disturbance : c->event->text != NULL ? c->event->text : "";
    if (!c->event->ok)
        run_note(c, RUN_ERROR, RUN_NOTE_SEAL, "%s could not be audited: %s", run->seal_experiment,
                 c->event->text != NULL ? c->event->text : "");
    else if (!c->event->complete || run->disturbance[0] != '\0')
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
        run_dump_rest(c, RUN_ARMED_WATCH_MS);
}

/* ---- time ---- */

static const struct {
    int step;
    enum server_question question;
} repeated[] = {{ARMED_WATCH, SERVER_STATE},
                {DUMP_IDLE, SERVER_LOAD},
                {DUMP_ON, SERVER_STATE},
                {SEAL_DISABLE, SERVER_DISABLE},
                {SEAL_QUIET, SERVER_STATE}};

void run_dump_tick(struct run_context *c)
{
    struct run *run = c->run;
    if (run_watch_due(c) || run->waiting || c->now_ns < run->retry_ns)
        return;
    for (size_t i = 0; i < sizeof repeated / sizeof repeated[0]; i++)
        if (repeated[i].step == run->step)
            run_ask(c, run->step, repeated[i].question, "");
}
