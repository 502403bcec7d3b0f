/* Whether the dumper lives, and what somebody else does to it. From armed on its counters are read again and again.
 * Happy path: each answer has every proven rank, our settings, counters that are no lower than before, and dumping
 * on or off as we left it.
 *   Switched on in armed by somebody else: a dump like any other, with all limits. Switched off, or its experiment
 * changed, while it is on: sealed, with what happened as a reason. Counters that go back: a reset, which takes the
 * hooks away: no dump can be had any more. Ranks that are missing, no answer at all while nothing grows: the dumper is
 * lost, everything is killed. */
#include "core/run_internal.h"
#include "base/duration.h"
#include "base/text.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum { SHORT_ANSWERS = 3, BUSY_TIMES = 10 };

/* ---- comparing ---- */

bool run_watch_went_back(const struct run_counts *seen, const struct server_answer *answer, char *ret_text, size_t size)
{
    for (uint32_t i = 0; i < answer->rank_count && i < seen->ranks; i++) {
        const struct server_rank *now = &answer->rank[i];
        if (now->dump_index >= seen->rank[i].dump_index && now->step >= seen->rank[i].step)
            continue;
        snprintf(ret_text, size,
                 "the counters of rank %u went back, dump_index from %llu to %llu and step from %llu to %llu: somebody "
                 "has called reset, which takes the hooks away for good; start the run anew",
                 (unsigned)i, (unsigned long long)seen->rank[i].dump_index, (unsigned long long)now->dump_index,
                 (unsigned long long)seen->rank[i].step, (unsigned long long)now->step);
        return true;
    }
    return false;
}

bool run_watch_same(const struct run_counts *seen, const struct server_answer *answer)
{
    if (answer->rank_count != seen->ranks)
        return false;
    for (uint32_t i = 0; i < answer->rank_count; i++)
        if (answer->rank[i].dump_index != seen->rank[i].dump_index || answer->rank[i].step != seen->rank[i].step)
            return false;
    return true;
}

bool run_watch_off(const struct server_answer *answer)
{
    for (uint32_t i = 0; i < answer->rank_count; i++)
        if (answer->rank[i].enabled)
            return false;
    return answer->rank_count > 0;
}

void run_watch_disturb(struct run_context *c, const char *format, ...)
{
    char text[sizeof c->run->disturbance];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    if (c->run->experiment[0] != '\0' && c->run->disturbance[0] == '\0')
        text_copy(c->run->disturbance, sizeof c->run->disturbance, text);
}

/* ---- any answer ---- */

bool run_watch_answered(struct run_context *c)
{
    struct run *run = c->run;
    const struct server_answer *answer = c->event->answer;
    if (answer->http_status != 0)
        run->outage_told = false;
    text_copy(run->problem, sizeof run->problem, answer->ok || answer->http_status == 0 ? "" : answer->problem);
    /* A refusal is an answer, but not to the question for the counters. */
    if (answer->ok || (answer->http_status != 0 && run->question == SERVER_ENABLE))
        run->unanswered_ns = 0;
    if (answer->http_status == 0 && !answer->ok && !run->outage_told) {
        run->outage_told = true;
        run_note(c, RUN_WARN, RUN_NOTE_SERVER, "the server does not answer: %s%s%s", answer->problem,
                 run->cause[0] != '\0' ? "; its log says: " : "", run->cause);
    }
    return answer->ok;
}

/* ---- counters ---- */

static bool ranks_complete(struct run_context *c)
{
    struct run *run = c->run;
    unsigned found = c->event->answer->rank_count, proven = run->before.rank_count;
    if (found >= proven) {
        run->short_answers = 0;
        return true;
    }
    if (run->short_answers++ == 0)
        run_note(c, RUN_WARN, RUN_NOTE_SERVER, "only %u of %u ranks answered: rank %u does not", found, proven, found);
    run_watch_disturb(c, "rank %u of %u did not answer any more", found, proven);
    if (run->short_answers < SHORT_ANSWERS)
        return true;
    run_message(c, "rank %u of %u no longer answers: %d answers running had only %u", found, proven, SHORT_ANSWERS,
                found);
    run_end_fail(c, RUN_OUTCOME_CONTROL_LOST);
    return false;
}

static void look_for_reset(struct run_context *c)
{
    struct run *run = c->run;
    char text[384];
    if (!run_watch_went_back(&run->seen, c->event->answer, text, sizeof text))
        return;
    run->revoked = true;
    run->counts_reset = run->experiment[0] != '\0';
    run->judgement.verdict = SERVER_FAILED;
    text_copy(run->judgement.setting, sizeof run->judgement.setting, "/dumper/reset");
    text_copy(run->judgement.text, sizeof run->judgement.text, text);
    run_note(c, RUN_ERROR, RUN_NOTE_SERVER, "the proofs are void: %s", text);
    run_watch_disturb(c, "reset was called while it was on: nothing was written after that");
}

static void look_for_settings(struct run_context *c)
{
    struct run *run = c->run;
    const char *wrong = c->event->answer->wrong_setting;
    if (strcmp(wrong, run->wrong_told) == 0)
        return;
    text_copy(run->wrong_told, sizeof run->wrong_told, wrong);
    if (wrong[0] == '\0') {
        run_note(c, RUN_INFO, RUN_NOTE_SERVER, "the dumper's settings hold again");
        return;
    }
    run_note(c, RUN_WARN, RUN_NOTE_SERVER, "somebody has changed a setting of the dumper: %s", wrong);
    run_watch_disturb(c, "a setting was changed while it was on: %s", wrong);
}

static void take(struct run_context *c)
{
    struct run *run = c->run;
    const struct server_answer *answer = c->event->answer;
    if (!run_watch_same(&run->seen, answer))
        run->progress_ns = c->now_ns;
    uint32_t ranks = run->seen.ranks;
    run_counts_from(&run->seen, answer);
    if (run->seen.ranks < ranks)
        run->seen.ranks = ranks; /* of a missing rank the last that it said */
    if (!run->counts_reset)
        run->last = run->seen;
}

bool run_watch_counters(struct run_context *c)
{
    if (!ranks_complete(c))
        return false;
    look_for_reset(c);
    look_for_settings(c);
    take(c);
    return true;
}

/* ---- armed ---- */

static const struct server_rank *first_enabled(const struct server_answer *answer)
{
    for (uint32_t i = 0; i < answer->rank_count; i++)
        if (answer->rank[i].enabled)
            return &answer->rank[i];
    return NULL;
}

/* No folder of ours can be meant, so there is nothing to guard but the disk: it goes off at once. A name that was cut
 * ends in dots. */
static bool is_unsafe(const char *experiment)
{
    return !text_is_name(experiment) || (strlen(experiment) == SERVER_NAME_MAX - 1 && text_ends(experiment, "..."));
}

static void switch_off_unsafe(struct run_context *c, const char *experiment, const char *why)
{
    struct run *run = c->run;
    const char *shown = experiment[0] != '\0' ? experiment : "(none)";
    if (strcmp(run->unsafe_told, shown) != 0)
        run_note(c, RUN_WARN, RUN_NOTE_DUMP,
                 "dumping was switched on by somebody else under '%s', %s: it is switched off", shown, why);
    if (run->unsafe_told[0] == '\0')
        run->on_since_ns = c->now_ns;
    text_copy(run->unsafe_told, sizeof run->unsafe_told, shown);
    run_ask(c, ARMED_DISABLE, SERVER_DISABLE, "");
}

static void external(struct run_context *c, const char *experiment, const struct run_counts *base)
{
    struct run *run = c->run;
    enum run_sealed_by by;
    char text[512];
    run_dump_open(c, experiment, base);
    run->external = true;
    run->last = run->seen;
    if (run->wrong_told[0] != '\0')
        run_watch_disturb(c, "a setting had been changed before: %s", run->wrong_told);
    if (run->short_answers > 0)
        run_watch_disturb(c, "not every rank answered when it was found");
    run_enter(c, RUN_DUMPING, DUMP_ON);
    run_retry(c, RUN_DUMP_WATCH_MS);
    run_note(c, RUN_WARN, RUN_NOTE_DUMP,
             "dumping was switched on by somebody else under experiment %s: it is guarded like any other dump; end it "
             "with: kldumpctl pause %s",
             experiment, run->settings.name);
    if (run_space_refuses(run, &by, text, sizeof text)) {
        run_note(c, RUN_WARN, RUN_NOTE_SPACE, "dump %s is switched off: %s", experiment, text);
        run_dump_seal_begin(c, by, ERROR_SPACE, text);
    }
}

void run_watch_armed(struct run_context *c)
{
    struct run *run = c->run;
    struct run_counts base = run->seen;
    if (!run_watch_counters(c))
        return;
    const struct server_rank *rank = first_enabled(c->event->answer);
    if (rank == NULL) {
        run->unsafe_told[0] = '\0';
        run->grown_off = run->grown_ns != 0;
        return;
    }
    if (run->dump_request != 0)
        run_dump_prepare_failed(c, ERROR_BUSY, "somebody else has switched dumping on; look at: kldumpctl status");
    if (c->event->answer->elsewhere)
        switch_off_unsafe(c, rank->experiment, "into a folder that is not the run's, which nothing guards");
    else if (is_unsafe(rank->experiment))
        switch_off_unsafe(c, rank->experiment, "which is no experiment name");
    else
        external(c, rank->experiment, run->revoked ? &run->seen : &base);
}

/* ---- dumping ---- */

static bool is_changed(const struct run *run, const struct server_answer *answer)
{
    for (uint32_t i = 0; i < answer->rank_count; i++) {
        const struct server_rank *rank = &answer->rank[i];
        if (rank->enabled ? strcmp(rank->experiment, run->experiment) != 0 : !run->external)
            return true;
    }
    return false;
}

static bool has_passes(const struct run *run)
{
    for (uint32_t i = 0; i < run->base.ranks; i++)
        if (run->last.rank[i].step < run->base.rank[i].step + run->passes_end)
            return false;
    return run->passes_end != UINT64_MAX;
}

void run_watch_dumping(struct run_context *c)
{
    struct run *run = c->run;
    const struct server_answer *answer = c->event->answer;
    bool reset_before = run->counts_reset;
    if (!run_watch_counters(c))
        return;
    const struct server_rank *rank = first_enabled(answer);
    if (run->counts_reset && !reset_before) {
        run_dump_seal_begin(c, RUN_SEALED_BY_OTHER, ERROR_STATE, run->judgement.text);
    } else if (rank == NULL) {
        if (!run->external)
            run_watch_disturb(c, "it was switched off by somebody else");
        run_note(c, run->external ? RUN_INFO : RUN_WARN, RUN_NOTE_DUMP, "dump %s was switched off by somebody else",
                 run->experiment);
        run_dump_seal_begin(c, RUN_SEALED_BY_OTHER, ERROR_SERVER, "it was switched off by somebody else");
    } else if (is_changed(run, answer)) {
        run_watch_disturb(c, "somebody else has changed it: on only in part, or under experiment %s", rank->experiment);
        run_note(c, RUN_WARN, RUN_NOTE_DUMP,
                 "somebody else has changed dump %s: on only in part, or under experiment '%s'; it is switched off",
                 run->experiment, rank->experiment);
        run_dump_seal_begin(c, RUN_SEALED_BY_OTHER, ERROR_SERVER, "it was changed by somebody else");
    } else if (answer->elsewhere) {
        run_note(c, RUN_WARN, RUN_NOTE_DUMP, "dump %s is switched off: it goes to a folder that nothing guards: %s",
                 run->experiment, answer->wrong_setting);
        run_dump_seal_begin(c, RUN_SEALED_BY_OTHER, ERROR_SERVER, "somebody else has changed its folder");
    } else if (has_passes(run)) {
        run_note(c, RUN_INFO, RUN_NOTE_DUMP, "dump %s has the passes that were asked for", run->experiment);
        run_dump_seal_begin(c, RUN_SEALED_BY_LIMIT, ERROR_NONE, run->experiment);
    }
}

/* ---- time ---- */

static bool is_on(const struct run *run)
{
    return run->state == RUN_DUMPING || (run->state == RUN_SEALING && !run->settled) ||
           (run->state == RUN_ARMED && run->unsafe_told[0] != '\0');
}

/* Nothing has grown for the control timeout, nor was answered. A process that computes may be inside a pass that shows
 * nothing until it is over: that postpones it, though not for ever. */
static uint64_t lost_limit(const struct run *run)
{
    if (run->unanswered_ns == 0)
        return UINT64_MAX;
    uint64_t limit_ns = run->settings.control_timeout_ms * RUN_MS;
    uint64_t since = run->unanswered_ns > run->progress_ns ? run->unanswered_ns : run->progress_ns;
    uint64_t most = since + BUSY_TIMES * limit_ns, busy = run->busy_ns + limit_ns;
    uint64_t lost = since + limit_ns;
    if (busy > lost)
        lost = busy < most ? busy : most;
    return lost;
}

/* An unsafe dump has no sealing that would bound the time until it is off. */
static uint64_t unsafe_limit(const struct run *run)
{
    if (run->state != RUN_ARMED)
        return UINT64_MAX;
    return run->on_since_ns + RUN_DISABLE_TIMES * run->settings.control_timeout_ms * RUN_MS;
}

uint64_t run_watch_limit(const struct run *run)
{
    if (!is_on(run))
        return UINT64_MAX;
    uint64_t lost = lost_limit(run), blind = run_space_blind_limit(run), unsafe = unsafe_limit(run);
    uint64_t limit = lost < blind ? lost : blind;
    limit = unsafe < limit ? unsafe : limit;
    return run->state == RUN_DUMPING && run->for_end_ns < limit ? run->for_end_ns : limit;
}

static void lost(struct run_context *c)
{
    static const char *const asked[SERVER_QUESTIONS] = {
        [SERVER_ENABLE] = "to switch dumping on",
        [SERVER_DISABLE] = "to switch dumping off",
        [SERVER_STATE] = "for its counters",
    };
    struct run *run = c->run;
    char unanswered[DURATION_TEXT], still[DURATION_TEXT];
    uint64_t grown_ns = run->progress_ns > run->on_since_ns ? run->progress_ns : run->on_since_ns;
    run_message(c,
                "the dumper was asked %s and has %s for %s, and nothing grew for %s (control_timeout); rank "
                "0 was last seen at step %llu, dump_index %llu%s%s%s%s",
                asked[run->question] != NULL ? asked[run->question] : "something",
                run->problem[0] != '\0' ? "refused it" : "not answered",
                duration_text((c->now_ns - run->unanswered_ns) / RUN_MS, unanswered),
                duration_text((c->now_ns - grown_ns) / RUN_MS, still), (unsigned long long)run->seen.rank[0].step,
                (unsigned long long)run->seen.rank[0].dump_index, run->problem[0] != '\0' ? "; it says: " : "",
                run->problem, run->cause[0] != '\0' ? "; its log says: " : "", run->cause);
    run_note(c, RUN_ERROR, RUN_NOTE_SERVER, "killed: %s", run->message);
    run_end_fail(c, RUN_OUTCOME_CONTROL_LOST);
}

bool run_watch_due(struct run_context *c)
{
    struct run *run = c->run;
    if (!is_on(run))
        return false;
    if (c->now_ns >= run_space_blind_limit(run)) {
        run_space_blind(c);
    } else if (c->now_ns >= lost_limit(run)) {
        lost(c);
    } else if (c->now_ns >= unsafe_limit(run)) {
        run_dump_not_off(c, run->unsafe_told, "it is on again and again, or the server does not do it");
    } else if (run->state == RUN_DUMPING && c->now_ns >= run->for_end_ns) {
        run_note(c, RUN_INFO, RUN_NOTE_DUMP, "dump %s has been on for as long as was asked for", run->experiment);
        run_dump_seal_begin(c, RUN_SEALED_BY_LIMIT, ERROR_NONE, run->experiment);
    } else {
        return false;
    }
    return true;
}
