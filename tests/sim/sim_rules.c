/* The rules that hold in every world. Each is a text, which tests/sim/planted.py knows too. A time that a rule allows
 * is the limit of the run plus what the machine needs to see it: a poll, an answer, a kill. */
#include "sim.h"
#include "base/text.h"

#include <string.h>

#define BLIND_SLACK    (20 * SIM_MS)
#define LOST_SLACK     (1300 * SIM_MS)
#define BUDGET_ALLOWED (7500 * SIM_MS)
#define GROWTH_ALLOWED (14000 * SIM_MS)
#define PASSES_ALLOWED (1500 * SIM_MS)

void sim_rules_require(struct sim_world *w, bool fine, const char *rule)
{
    if (!fine && w->watch.broken == NULL)
        w->watch.broken = rule;
}

static uint64_t latest(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

static bool past(const struct sim_world *w, uint64_t since_ns, uint64_t allowed_ns)
{
    return w->now_ns > since_ns + allowed_ns;
}

static bool may_dump(const struct sim_world *w)
{
    bool used_up = w->plan->budget_bytes > 0 && w->surveyed_bytes >= w->plan->budget_bytes;
    return w->told != SPACE_SOFT && w->told != SPACE_UNMEASURABLE && !used_up && !w->watch.reset_told;
}

static void count_quiet(struct sim_watch *watch, const struct server_answer *answer)
{
    const struct server_rank *rank = &answer->rank[0];
    bool same = rank->dump_index == watch->told_index && rank->step == watch->told_step;
    if (answer->ok && answer->question == SERVER_STATE)
        watch->quiet_answers = rank->enabled ? 0 : same ? watch->quiet_answers + 1 : 1;
}

void sim_rules_before(struct sim_world *w, const struct run_event *event)
{
    struct sim_watch *watch = &w->watch;
    if (event->kind == RUN_EVENT_ANSWER && w->run.waiting && event->number == w->run.number)
        count_quiet(watch, event->answer);
    watch->number_before = w->run.waiting ? w->run.number : 0;
    watch->hold_before = w->run.hold;
    watch->gone_before = w->run.gone;
    watch->kill_in_step = watch->off_in_step = false;
}

/* ---- effects ---- */

static void replied(struct sim_world *w, const struct run_effect *effect)
{
    struct sim_watch *watch = &w->watch;
    uint64_t number = effect->number;
    bool known = number < SIM_REQUESTS && watch->request[number].open;
    sim_rules_require(w, known, "a request is answered once");
    if (!known)
        return;
    watch->request[number].open = false;
    if (effect->code != ERROR_NONE || !watch->request[number].dump)
        return;
    watch->confirmed_ns = w->now_ns;
    watch->for_ms = watch->request[number].for_ms;
    watch->passes = watch->request[number].passes;
}

void sim_rules_effect(struct sim_world *w, const struct run_effect *effect)
{
    struct sim_watch *watch = &w->watch;
    const struct run *run = &w->run;
    sim_rules_require(w, watch->finishes == 0 || effect->kind == RUN_DO_REPLY, "no effect after the end but refusals");
    switch (effect->kind) {
    case RUN_DO_ASK:
        sim_rules_require(w,
                          !run->settings.plain || effect->question == SERVER_HEALTH ||
                              effect->question == SERVER_INFO || effect->question == SERVER_LOAD,
                          "a plain run asks nothing of the dumper");
        sim_rules_require(w, effect->question != SERVER_ENABLE || run->was_armed || strcmp(effect->name, "probe") == 0,
                          "nothing but the probe is enabled before the run is armed");
        watch->off_in_step = watch->off_in_step || effect->question == SERVER_DISABLE;
        break;
    case RUN_DO_CHECK:
        sim_rules_require(w, text_is_name(effect->name), "no audit of a folder that is not ours");
        sim_rules_require(w, effect->probe || run->gone || watch->quiet_answers >= 2,
                          "the audit begins when it is quiet");
        watch->audit_pending = true;
        break;
    case RUN_DO_SEAL:
        sim_rules_require(w, !watch->must_tell || run->disturbance[0] != '\0', "what somebody did is in the seal");
        break;
    case RUN_DO_SUSPEND:
        sim_rules_require(w, run->state != RUN_VERIFYING && run->state != RUN_LAUNCHING && !run->kill_sent,
                          "neither the probe nor a kill is suspended");
        break;
    case RUN_DO_LAUNCH:
        sim_rules_require(w, watch->gone_told && !w->alive, "launched again only when nothing lives");
        break;
    case RUN_DO_KILL:
        watch->kill_in_step = true;
        break;
    case RUN_DO_REPLY:
        replied(w, effect);
        break;
    case RUN_DO_FINISH:
        watch->finishes++;
        break;
    default:
        break;
    }
}

/* ---- answers ---- */

/* What the answer to a look at the counters shows that a dump which is on must tell. */
static bool is_disturbed(const struct sim_world *w, const struct server_answer *answer, enum run_state before)
{
    const struct sim_watch *watch = &w->watch;
    uint32_t ranks = w->plan->trait[SIM_TRAIT_TWO_RANKS] ? 2 : 1;
    bool back = answer->rank[0].dump_index < watch->told_index || answer->rank[0].step < watch->told_step;
    bool lost = answer->rank_count < ranks;
    if (before == RUN_SEALING)
        return back || lost;
    if (before != RUN_DUMPING || (!w->run.external && watch->confirmed_ns == 0))
        return false;
    bool off = !answer->rank[0].enabled && !w->run.external;
    bool renamed = answer->rank[0].enabled && strcmp(answer->rank[0].experiment, w->run.experiment) != 0;
    return back || lost || off || renamed || (answer->wrong_setting[0] != '\0' && !w->run.external);
}

static void counters_told(struct sim_world *w, const struct run_event *event, enum run_state before)
{
    struct sim_watch *watch = &w->watch;
    const struct server_rank *rank = &event->answer->rank[0];
    bool watched = before >= RUN_ARMED && before <= RUN_SEALING, lower = rank->dump_index < watch->told_index;
    bool same = rank->dump_index == watch->told_index && rank->step == watch->told_step;
    watch->must_tell = watch->must_tell || is_disturbed(w, event->answer, before);
    if (!same)
        watch->grown_ns = w->now_ns;
    watch->told_index = rank->dump_index;
    watch->told_step = rank->step;
    uint32_t ranks = w->plan->trait[SIM_TRAIT_TWO_RANKS] ? 2 : 1;
    watch->short_answers = event->answer->rank_count < ranks ? watch->short_answers + 1 : 0;
    if (!watched)
        return;
    watch->reset_told = watch->reset_told || lower;
    bool ended = w->run.state >= RUN_STOPPING;
    sim_rules_require(w, ended || !watch->reset_told || w->run.revoked, "a reset voids the proofs");
    if (before == RUN_ARMED && rank->enabled && !ended)
        sim_rules_require(w, text_is_name(rank->experiment) ? w->run.state != RUN_ARMED : watch->off_in_step,
                          "what somebody else switched on is guarded");
}

static void answered(struct sim_world *w, const struct run_event *event, enum run_state before)
{
    const struct server_answer *answer = event->answer;
    if (w->watch.number_before == 0 || event->number != w->watch.number_before)
        return;
    if (answer->ok || (answer->question == SERVER_ENABLE && answer->http_status != 0))
        w->watch.answered_ns = w->now_ns;
    if (answer->ok && answer->question == SERVER_STATE)
        counters_told(w, event, before);
}

/* ---- after each step ---- */

/* A dumper is given up for good reasons only. */
static bool is_lost(const struct sim_world *w)
{
    const struct sim_watch *watch = &w->watch;
    uint64_t limit = SIM_CONTROL_TIMEOUT_MS * SIM_MS, sign = latest(watch->answered_ns, watch->grown_ns);
    bool silent = w->now_ns - sign >= limit && (w->now_ns - watch->busy_ns >= limit || w->now_ns - sign >= 10 * limit);
    return silent || watch->short_answers >= 3 || w->now_ns - watch->seal_since_ns >= 2 * limit;
}

static void outcome_changed(struct sim_world *w, enum run_outcome from)
{
    const struct run *run = &w->run;
    bool graver = run->outcome == RUN_OUTCOME_FLOOR || run->outcome == RUN_OUTCOME_UNKILLABLE;
    sim_rules_require(w, from == RUN_OUTCOME_NONE || (graver && from != RUN_OUTCOME_UNKILLABLE),
                      "the first outcome stands unless a graver one comes");
    bool kills = run->outcome == RUN_OUTCOME_FLOOR || run->outcome == RUN_OUTCOME_BUDGET ||
                 run->outcome == RUN_OUTCOME_CONTROL_LOST || run->outcome == RUN_OUTCOME_VERIFY_FAILED;
    sim_rules_require(w, !kills || w->watch.kill_in_step || w->watch.gone_before, "what must die is killed at once");
    if (run->outcome == RUN_OUTCOME_CONTROL_LOST)
        sim_rules_require(w, is_lost(w), "a dumper that lives is not given up");
    if (run->outcome == RUN_OUTCOME_START_TIMEOUT)
        sim_rules_require(w, w->now_ns - w->begin_ns >= SIM_START_TIMEOUT_MS * SIM_MS,
                          "the start has its limit, and all of it");
}

static void dump_began(struct sim_world *w)
{
    struct sim_watch *watch = &w->watch;
    watch->must_tell = false;
    watch->confirmed_ns = watch->passes_done_ns = watch->for_ms = watch->passes = 0;
    watch->answered_ns = w->now_ns;
    sim_rules_require(w, w->run.external || may_dump(w), "no dump begins where none may");
}

static void dump_ended(struct sim_world *w)
{
    struct sim_watch *watch = &w->watch;
    const struct run *run = &w->run;
    if (run->state != RUN_SEALING)
        return;
    watch->seal_since_ns = w->now_ns;
    watch->quiet_answers = 0;
    if (run->sealed_by != RUN_SEALED_BY_LIMIT)
        return;
    bool time = watch->for_ms > 0 && w->now_ns >= watch->confirmed_ns + watch->for_ms * SIM_MS;
    bool passes = watch->passes > 0 && w->step >= run->base.rank[0].step + watch->passes;
    sim_rules_require(w, time || passes, "a dump ends by itself when it was asked to, not before");
}

static void state_changed(struct sim_world *w, enum run_state from)
{
    w->watch.state_since_ns = w->now_ns;
    w->watch.audit_pending = w->watch.audit_pending && w->run.state != RUN_DUMPING;
    if (w->run.state == RUN_DUMPING)
        dump_began(w);
    if (from == RUN_DUMPING)
        dump_ended(w);
    if (from == RUN_ARMED && w->run.state == RUN_SEALING) { /* somebody else's, where none may begin */
        dump_began(w);
        dump_ended(w);
    }
}

void sim_rules_after(struct sim_world *w, const struct run_event *event, enum run_state before)
{
    struct sim_watch *watch = &w->watch;
    const struct run *run = &w->run;
    if (run->state != before)
        state_changed(w, before);
    if (event->kind == RUN_EVENT_ANSWER)
        answered(w, event, before);
    if (event->kind == RUN_EVENT_FLOOR && !watch->gone_before && before != RUN_ENDED)
        watch->floor_told = true;
    if (run->outcome != watch->outcome)
        outcome_changed(w, watch->outcome);
    watch->outcome = run->outcome;
    sim_rules_require(w, w->effects.count < RUN_EFFECTS_MAX, "effects do not overflow");
    sim_rules_require(w, watch->finishes <= 1, "one end at most");
    sim_rules_require(w, (run->state == RUN_ENDED) == (watch->finishes == 1), "the end and its effect come together");
    sim_rules_require(w, watch->finishes == 0 || run->outcome != RUN_OUTCOME_NONE, "an end has an outcome");
    sim_rules_require(w,
                      !watch->floor_told || run->outcome == RUN_OUTCOME_FLOOR || run->outcome == RUN_OUTCOME_UNKILLABLE,
                      "the floor is the outcome");
    sim_rules_require(w, event->kind != RUN_EVENT_TICK || run->wake_ns > w->now_ns + w->suspended_ns,
                      "a tick does not leave itself due");
    sim_rules_require(w, run->state != RUN_DUMPING || w->told != SPACE_SOFT, "no dump goes on at the soft level");
    sim_rules_require(w,
                      event->kind != RUN_EVENT_HOLDER_GONE || before != RUN_DUMPING || !watch->hold_before ||
                          run->state != RUN_DUMPING,
                      "a dump does not outlive its holder");
}

/* ---- as time passes ---- */

static void remember(struct sim_world *w)
{
    struct sim_watch *watch = &w->watch;
    if (!w->enabled)
        watch->on_since_ns = 0;
    else if (watch->on_since_ns == 0)
        watch->on_since_ns = w->now_ns;
    if (!w->grows_on)
        watch->grows_since_ns = 0;
    else if (watch->grows_since_ns == 0)
        watch->grows_since_ns = w->now_ns;
    if (sim_server_troubled(w))
        watch->trouble_ns = w->now_ns;
    if (watch->passes > 0 && watch->passes_done_ns == 0 && w->run.state == RUN_DUMPING &&
        w->step >= w->run.base.rank[0].step + watch->passes)
        watch->passes_done_ns = w->now_ns;
}

static void while_dumping(struct sim_world *w)
{
    const struct sim_watch *watch = &w->watch;
    uint64_t limit = SIM_CONTROL_TIMEOUT_MS * SIM_MS + LOST_SLACK, sign = latest(watch->answered_ns, watch->grown_ns);
    bool silent = past(w, sign, limit) && (past(w, watch->busy_ns, limit) || past(w, sign, 9 * limit));
    sim_rules_require(w, watch->audit_pending || !silent, "a dumper that does not answer is given up");
    uint64_t blind = latest(watch->blind_since_ns, latest(watch->on_since_ns, watch->state_since_ns));
    bool on = w->enabled && sim_server_lives(w) && !watch->audit_pending;
    sim_rules_require(w,
                      !on || w->told != SPACE_UNMEASURABLE || w->run.state == RUN_SEALING ||
                          !past(w, blind, SIM_BLIND_LIMIT_MS * SIM_MS + BLIND_SLACK),
                      "no dump goes on blind");
    if (w->run.state != RUN_DUMPING)
        return;
    bool over = watch->for_ms > 0 && past(w, watch->confirmed_ns, watch->for_ms * SIM_MS + 2 * SIM_MS);
    bool passed =
        watch->passes_done_ns > 0 && past(w, latest(watch->passes_done_ns, watch->trouble_ns), PASSES_ALLOWED);
    sim_rules_require(w, !over && !passed, "a dump ends by itself when it was asked to");
}

static void over_budget(struct sim_world *w)
{
    const struct sim_watch *watch = &w->watch;
    bool looked_after = w->run.state >= RUN_ARMED && w->run.state <= RUN_SEALING && sim_server_lives(w);
    if (!looked_after || watch->used_up_since_ns == 0 || watch->audit_pending)
        return;
    uint64_t calm = latest(watch->used_up_since_ns, watch->trouble_ns);
    bool settles = w->run.state == RUN_ARMED || past(w, watch->state_since_ns, BUDGET_ALLOWED);
    sim_rules_require(w,
                      !w->enabled || !settles ||
                          !past(w, latest(calm, latest(watch->on_since_ns, watch->state_since_ns)), BUDGET_ALLOWED),
                      "no dump goes on over the budget");
    bool grows = w->grows_on && !w->enabled && w->plan->dump_rate > SIM_GIB / 1000;
    uint64_t since = latest(calm, latest(watch->grows_since_ns, watch->state_since_ns));
    sim_rules_require(w, !grows || !past(w, since, GROWTH_ALLOWED), "bytes that come over the budget end the run");
}

void sim_rules_time(struct sim_world *w)
{
    remember(w);
    enum run_state state = w->run.state;
    if (state == RUN_DUMPING || state == RUN_SEALING)
        while_dumping(w);
    over_budget(w);
    sim_rules_require(w, state >= RUN_ARMED || !past(w, w->begin_ns, SIM_START_TIMEOUT_MS * SIM_MS + 50 * SIM_MS),
                      "the start has its limit");
}

void sim_rules_end(struct sim_world *w)
{
    for (unsigned i = 0; i < SIM_REQUESTS; i++)
        sim_rules_require(w, !w->watch.request[i].open, "no request is left without an answer");
}
