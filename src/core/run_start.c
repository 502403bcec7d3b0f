/* From launching to armed. Happy path:
 *   launching: STARTED -> loading: look for the listener each half second; ours -> warming: health until 200, then the
 *   dumper's state: our settings on every rank, nothing written yet -> verifying: what the server resolved, idle,
 * flush, counters, enable under the probe's name, confirmed on every rank, one request, disable, counters until quiet,
 * flush, audit, judgement -> armed. Failure modes: CMD cannot be executed, the port is somebody else's, a setting does
 * not hold, something was dumped before we enabled, graphs are on, requests by others, a reset, no answer: each ends
 * the run at once with a message that names the thing. A server that ends over a flag which the guard can spell
 * otherwise is cleaned away and launched again. */
#include "core/run_internal.h"
#include "base/text.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

static const uint64_t look_ms = 500;          /* listener, while loading */
static const uint64_t poll_ms = 250;          /* health, while warming */
static const uint64_t settle_ms = 100;        /* counters and idleness, while verifying */
static const uint64_t clean_limit_ms = 30000; /* for the end of the first launch */
static const uint64_t silent_ms = 3000;       /* from no answer to the server's end, where that is why */
static const uint64_t idle_limit_ms = 60000;  /* for foreign requests to end, for the flush to succeed */

static void limit_from_now(struct run_context *c, uint64_t ms)
{
    c->run->limit_ns = c->now_ns + ms * RUN_MS;
}

static bool past_limit(const struct run_context *c)
{
    return c->run->limit_ns != UINT64_MAX && c->now_ns >= c->run->limit_ns;
}

void run_start_started(struct run_context *c)
{
    if (c->run->step == LAUNCH_CLEAN)
        return;
    c->run->pid = c->event->pid;
    run_enter(c, RUN_LOADING, STEP_NONE);
    run_retry(c, look_ms);
}

/* ---- another spelling ---- */

/* Whatever the first try has left must be gone first: it may hold the port. */
void run_start_exited(struct run_context *c)
{
    struct run *run = c->run;
    if (run->step == LAUNCH_CLEAN)
        return;
    if (!c->event->again) {
        run_end_exited(c);
        return;
    }
    run_note(c, RUN_WARN, RUN_NOTE_SERVER, "the server does not take its arguments: %s",
             c->event->text != NULL ? c->event->text : "launched again with another spelling");
    run_enter(c, RUN_LAUNCHING, LAUNCH_CLEAN);
    run_add(c, RUN_DO_KILL);
    limit_from_now(c, clean_limit_ms);
}

/* The start timeout goes on counting from the first launch. */
void run_start_gone(struct run_context *c)
{
    struct run *run = c->run;
    if (run->step != LAUNCH_CLEAN) {
        run_end_gone(c);
        return;
    }
    run_enter(c, RUN_LAUNCHING, STEP_NONE);
    run->exited = false;
    run->exit_code = run->signal = -1;
    run->pid = 0;
    run->cause[0] = run->stage[0] = '\0';
    run_add(c, RUN_DO_LAUNCH);
}

static bool cannot_be_cleaned(struct run_context *c)
{
    if (c->run->step != LAUNCH_CLEAN || !past_limit(c))
        return false;
    run_message(c, "what was left of the first launch did not end within %llu s of KILL",
                (unsigned long long)(clean_limit_ms / 1000));
    run_end_fail(c, RUN_OUTCOME_START_FAILED);
    return true;
}

/* ---- launching, loading ---- */

void run_start_exec_failed(struct run_context *c)
{
    int error = (int)c->event->number;
    if (error != 0)
        c->run->exit_code = error == ENOENT ? STATUS_NOT_FOUND : STATUS_CANNOT_EXECUTE;
    else if (c->event->exit_code == STATUS_FORBIDDEN)
        c->run->exit_code = STATUS_FORBIDDEN;
    run_message(c, "%s", c->event->text != NULL ? c->event->text : "CMD cannot be executed");
    run_end_fail(c, RUN_OUTCOME_START_FAILED);
}

void run_start_listener(struct run_context *c)
{
    switch (c->event->listener) {
    case RUN_LISTENER_NONE:
        run_retry(c, look_ms);
        break;
    case RUN_LISTENER_FOREIGN:
        run_message(c, "the server's port is held by %s; stop that, or give CMD another --port",
                    c->event->text != NULL ? c->event->text : "another process");
        run_end_fail(c, RUN_OUTCOME_START_FAILED);
        break;
    case RUN_LISTENER_OWN:
        run_enter(c, RUN_WARMING, WARM_HEALTH);
        run_ask(c, WARM_HEALTH, SERVER_HEALTH, "");
        break;
    }
}

static void unproven(struct run_context *c, const char *setting)
{
    c->run->judgement.verdict = SERVER_FAILED;
    text_copy(c->run->judgement.setting, sizeof c->run->judgement.setting, setting);
    text_copy(c->run->judgement.text, sizeof c->run->judgement.text, c->run->message);
    run_end_fail(c, RUN_OUTCOME_VERIFY_FAILED);
}

/* What is waited for is no answer of the server. */
static bool is_audit(const struct run *run)
{
    return run->state == RUN_VERIFYING && run->step == VERIFY_CHECK;
}

static bool start_timed_out(struct run_context *c)
{
    struct run *run = c->run;
    if (c->now_ns < run->launched_ns + run->settings.start_timeout_ms * RUN_MS)
        return false;
    bool silent = run->waiting && run->number > 0 && !is_audit(run);
    run_message(c, "not ready after %llu s (--start-timeout): it is %s%s%s%s%s%s%s%s%s",
                (unsigned long long)(run->settings.start_timeout_ms / 1000), run_state_name(run->state),
                run->stage[0] != '\0' ? ", last seen: " : "", run->stage,
                run->problem[0] != '\0' ? "; last answer: " : "", run->problem, silent ? "; it has not answered " : "",
                silent ? server_question_text(run->question) : "", run->cause[0] != '\0' ? "; its log says: " : "",
                run->cause);
    run_end_fail(c, RUN_OUTCOME_START_TIMEOUT);
    return true;
}

void run_start_tick_loading(struct run_context *c)
{
    if (start_timed_out(c) || c->now_ns < c->run->retry_ns)
        return;
    c->run->retry_ns = UINT64_MAX;
    run_add(c, RUN_DO_FIND_LISTENER);
}

static const struct {
    int step;
    enum server_question question;
} repeated[] = {
    {WARM_HEALTH, SERVER_HEALTH}, {WARM_STATE, SERVER_STATE},   {WARM_INFO, SERVER_INFO},
    {VERIFY_IDLE, SERVER_LOAD},   {VERIFY_CLEAR, SERVER_FLUSH}, {VERIFY_AFTER, SERVER_STATE},
    {VERIFY_FLUSH, SERVER_FLUSH},
};

void run_start_tick(struct run_context *c)
{
    struct run *run = c->run;
    if (start_timed_out(c) || cannot_be_cleaned(c) || run->waiting || c->now_ns < run->retry_ns)
        return;
    if (run->step == VERIFY_SILENT) {
        unproven(c, "control channel");
        return;
    }
    for (size_t i = 0; i < sizeof repeated / sizeof repeated[0]; i++)
        if (repeated[i].step == run->step) {
            run_ask(c, run->step, repeated[i].question, "");
            return;
        }
}

/* ---- warming ---- */

static bool nothing_written(const struct server_answer *answer)
{
    for (uint32_t i = 0; i < answer->rank_count; i++)
        if (answer->rank[i].dump_index != 0 || answer->rank[i].step != 0)
            return false;
    return true;
}

void run_start_answer_warming(struct run_context *c)
{
    struct run *run = c->run;
    const struct server_answer *answer = c->event->answer;
    if (!run_answers(c))
        return;
    text_copy(run->problem, sizeof run->problem, answer->ok ? "" : answer->problem);
    if (run->step == WARM_INFO) {
        run_plain_info(c);
        return;
    }
    if (run->step == WARM_HEALTH) {
        if (answer->ok && run->settings.plain)
            run_plain_healthy(c);
        else if (answer->ok)
            run_ask(c, WARM_STATE, SERVER_STATE, "");
        else
            run_retry(c, poll_ms);
        return;
    }
    if (!answer->ok && answer->http_status == 0) {
        run_retry(c, poll_ms); /* no answer at all: busy or ending; the start limit and EXITED decide */
        return;
    }
    if (!answer->ok)
        run_message(c, "the dumper's control route: %s", answer->problem);
    else if (answer->wrong_setting[0] != '\0')
        run_message(c,
                    "a setting did not reach the server: %s; look at what stands between kldump and the server: a "
                    "script or an environment file that sets it",
                    answer->wrong_setting);
    else if (!nothing_written(answer))
        run_message(c,
                    "the dumper was on before it was asked: rank 0 has dump_index %llu, step %llu; expected 0 and 0: "
                    "look at what stands between kldump and the server",
                    (unsigned long long)answer->rank[0].dump_index, (unsigned long long)answer->rank[0].step);
    else {
        run_counts_from(&run->last, answer);
        run->cause[0] = '\0'; /* whatever its log said while it came up, it has come up */
        run_enter(c, RUN_VERIFYING, VERIFY_INFO);
        run_ask(c, VERIFY_INFO, SERVER_INFO, "");
        return;
    }
    unproven(c, answer->setting[0] != '\0' ? answer->setting : "environment of CMD");
}

/* ---- verifying ---- */

static bool enabled_everywhere(const struct server_answer *answer, const char *experiment)
{
    for (uint32_t i = 0; i < answer->rank_count; i++)
        if (!answer->rank[i].enabled || strcmp(answer->rank[i].experiment, experiment) != 0)
            return false;
    return answer->rank_count > 0;
}

static void info(struct run_context *c)
{
    struct run *run = c->run;
    run->facts = c->event->answer->facts;
    if (run->facts.unfit_setting[0] != '\0') {
        run_message(c, "%s", run->facts.unfit_problem);
        unproven(c, run->facts.unfit_setting);
        return;
    }
    limit_from_now(c, idle_limit_ms);
    run_ask(c, VERIFY_IDLE, SERVER_LOAD, "");
}

/* Nothing else may run during the probe. A server that has just come up may not have counted yet: it is asked again
 * too. */
static void idle(struct run_context *c)
{
    const struct server_answer *answer = c->event->answer;
    bool is_idle = answer->ok && (!answer->load_known || answer->requests == 0);
    if (!is_idle && !past_limit(c)) {
        if (!answer->ok)
            text_copy(c->run->stage, sizeof c->run->stage, answer->problem);
        run_retry(c, settle_ms);
        return;
    }
    if (!answer->ok) {
        run_message(c, "%s", answer->problem);
        unproven(c, answer->setting[0] != '\0' ? answer->setting : "control channel");
        return;
    }
    if (!is_idle) {
        run_message(c,
                    "%llu requests by somebody else were still running after %llu s: the probe needs an idle server; "
                    "keep clients away until the run is armed",
                    (unsigned long long)answer->requests, (unsigned long long)(idle_limit_ms / 1000));
        unproven(c, "idle server");
        return;
    }
    if (!answer->load_known)
        run_note(c, RUN_WARN, RUN_NOTE_NOTE, "this server does not tell how many requests run: it is taken to be idle");
    limit_from_now(c, idle_limit_ms);
    run_ask(c, VERIFY_CLEAR, SERVER_FLUSH, "");
}

static void confirm(struct run_context *c)
{
    struct run *run = c->run;
    if (!enabled_everywhere(c->event->answer, run->settings.probe_experiment)) {
        run_message(c, "enable was answered with success, but not every rank has it: %u ranks answered",
                    (unsigned)c->event->answer->rank_count);
        unproven(c, "control channel");
        return;
    }
    run_ask(c, VERIFY_PROBE, SERVER_PROBE, run->settings.probe_request);
}

static void after(struct run_context *c)
{
    struct run *run = c->run;
    struct run_counts counts;
    run_counts_from(&counts, c->event->answer);
    bool quiet = run->quiet_once && run_counts_equal(&counts, &run->last);
    run->last = counts;
    run->quiet_once = true;
    if (!quiet) {
        run_retry(c, settle_ms);
        return;
    }
    run->after = *c->event->answer;
    limit_from_now(c, idle_limit_ms);
    run_ask(c, VERIFY_FLUSH, SERVER_FLUSH, "");
}

/* Before the probe, lest a prefix of it lies in the cache since the warm-up; after it, lest it stays there itself. */
static void flushed(struct run_context *c)
{
    struct run *run = c->run;
    bool before = run->step == VERIFY_CLEAR;
    if (c->event->answer->ok) {
        if (before)
            run_ask(c, VERIFY_BEFORE, SERVER_STATE, "");
        else
            run_check(c, VERIFY_CHECK, run->settings.probe_experiment, true);
        return;
    }
    if (!past_limit(c)) {
        run_retry(c, settle_ms * 2);
        return;
    }
    run_message(c, "the prefix cache could not be flushed %s the probe: %s", before ? "before" : "after",
                c->event->answer->problem);
    unproven(c, "idle server");
}

/* Between two looks: the hooks that the probe is to prove would be gone. */
static bool was_reset(struct run_context *c)
{
    char text[384];
    if (!run_watch_went_back(&c->run->last, c->event->answer, text, sizeof text))
        return false;
    run_message(c, "%s", text);
    unproven(c, "/dumper/reset");
    return true;
}

void run_start_answer_verifying(struct run_context *c)
{
    struct run *run = c->run;
    const struct server_answer *answer = c->event->answer;
    if (!run_answers(c))
        return;
    if (!answer->ok && run->step != VERIFY_FLUSH && run->step != VERIFY_CLEAR && run->step != VERIFY_IDLE) {
        run_message(c, "%s%s%s", answer->problem, run->cause[0] != '\0' ? "; its log says: " : "", run->cause);
        if (answer->http_status != 0) {
            unproven(c, answer->setting[0] != '\0' ? answer->setting : "control channel");
            return;
        }
        run->step = VERIFY_SILENT;
        run_retry(c, silent_ms);
        return;
    }
    if (answer->question == SERVER_STATE && was_reset(c))
        return;
    switch (run->step) {
    case VERIFY_INFO:
        info(c);
        break;
    case VERIFY_IDLE:
        idle(c);
        break;
    case VERIFY_BEFORE:
        run->before = *answer;
        run_counts_from(&run->last, answer);
        run->probe_open = true;
        run_ask(c, VERIFY_ENABLE, SERVER_ENABLE, run->settings.probe_experiment);
        break;
    case VERIFY_ENABLE:
        run_ask(c, VERIFY_CONFIRM, SERVER_STATE, "");
        break;
    case VERIFY_CONFIRM:
        confirm(c);
        break;
    case VERIFY_PROBE:
        run->probe = *answer;
        run_ask(c, VERIFY_DISABLE, SERVER_DISABLE, "");
        break;
    case VERIFY_DISABLE:
        run->quiet_once = false;
        run_ask(c, VERIFY_AFTER, SERVER_STATE, "");
        break;
    case VERIFY_AFTER:
        after(c);
        break;
    case VERIFY_CLEAR:
    case VERIFY_FLUSH:
        flushed(c);
        break;
    }
}

void run_start_discard(struct run_context *c)
{
    struct run *run = c->run;
    if (!run->probe_open)
        return;
    run->probe_open = false;
    struct run_effect *effect = run_add(c, RUN_DO_DISCARD);
    text_copy(effect->name, sizeof effect->name, run->settings.probe_experiment);
}

void run_start_judged(struct run_context *c)
{
    struct run *run = c->run;
    if (!run_answers(c))
        return;
    run->judgement = *c->event->judgement;
    if (run->judgement.verdict == SERVER_FAILED) {
        run_message(c, "%s", run->judgement.text);
        run_end_fail(c, RUN_OUTCOME_VERIFY_FAILED);
        return;
    }
    run_start_discard(c);
    run_note(c, run->judgement.verdict == SERVER_LIMITED ? RUN_WARN : RUN_INFO, RUN_NOTE_NOTE, "%s%s",
             run->judgement.verdict == SERVER_LIMITED ? "limited: " : "", run->judgement.text);
    run->was_armed = true;
    run->stage[0] = '\0';
    run->failed_saves_base = run->failed_saves;
    run->seen = run->last;
    run_dump_rest(c, RUN_ARMED_WATCH_MS);
}
