/* The server of a simulated world, and the disk that it writes to. */
#include "sim.h"
#include "base/text.h"

enum { QUESTION_LIMIT_MS = 6000, FILES_PER_PASS = 123 };

bool sim_server_lives(const struct sim_world *w)
{
    return w->alive && w->now_ns < w->dead_ns;
}

bool sim_server_computes(const struct sim_world *w)
{
    return sim_server_lives(w) && w->now_ns < w->traffic_until_ns && w->now_ns >= w->stuck_until_ns &&
           w->now_ns >= w->long_until_ns;
}

static bool hangs(const struct sim_world *w)
{
    return w->now_ns < w->hang_until_ns || w->now_ns < w->stuck_until_ns || w->now_ns < w->long_until_ns;
}

bool sim_server_troubled(const struct sim_world *w)
{
    return hangs(w) || w->now_ns < w->closed_until_ns || w->now_ns < w->fault_until_ns || w->now_ns < w->rank_until_ns;
}

/* ---- answers ---- */

static void obey(struct sim_world *w, const struct sim_pending *p)
{
    switch (p->question) {
    case SERVER_ENABLE:
        w->enabled = true;
        text_copy(w->experiment, sizeof w->experiment, p->name);
        break;
    case SERVER_DISABLE:
        w->enabled = false;
        break;
    case SERVER_PROBE:
        if (!w->enabled)
            break;
        w->step += 3;
        w->dump_index += w->hooks ? 3 * FILES_PER_PASS : 0;
        w->written_bytes += w->hooks ? 1 << 20 : 0;
        break;
    default:
        break;
    }
}

static void fill_state(struct sim_world *w, struct server_answer *a)
{
    uint32_t ranks = w->plan->trait[SIM_TRAIT_TWO_RANKS] ? 2 : 1;
    a->rank_count = ranks == 2 && w->now_ns < w->rank_until_ns ? 1 : ranks;
    for (uint32_t i = 0; i < a->rank_count; i++) {
        a->rank[i] = (struct server_rank){w->dump_index, w->step, w->enabled, ""};
        text_copy(a->rank[i].experiment, sizeof a->rank[i].experiment, w->experiment);
    }
    if (w->wrong)
        text_copy(a->wrong_setting, sizeof a->wrong_setting, "filter is 'x' on rank 0; expected null");
}

void sim_server_answer(struct sim_world *w, const struct sim_pending *p)
{
    static struct server_answer a;
    bool reachable = w->alive && w->now_ns >= w->open_ns && w->now_ns >= w->closed_until_ns;
    bool late = w->now_ns >= p->asked_ns + QUESTION_LIMIT_MS * SIM_MS;
    if (reachable && hangs(w) && !late) {
        uint64_t until = w->hang_until_ns > w->stuck_until_ns ? w->hang_until_ns : w->stuck_until_ns;
        until = w->long_until_ns > until ? w->long_until_ns : until;
        uint64_t limit = p->asked_ns + QUESTION_LIMIT_MS * SIM_MS;
        struct sim_pending *again = sim_world_later(w, SIM_ANSWER, 0);
        uint64_t at = until < limit ? until : limit;
        *again = *p;
        again->at_ns = at > w->now_ns ? at : w->now_ns + SIM_MS;
        return;
    }
    a = (struct server_answer){.question = p->question, .ok = true, .http_status = 200, .load_known = true};
    bool fault = w->now_ns < w->fault_until_ns;
    if (!reachable || late || fault) {
        a.ok = false;
        a.http_status = fault && reachable && !late ? 500 : 0;
        text_copy(a.problem, sizeof a.problem, "as simulated");
    }
    /* a fault may strike before or after the server has obeyed */
    if (reachable && !late && (!fault || sim_world_noise(w, 2) == 0))
        obey(w, p);
    if (p->question == SERVER_HEALTH && w->now_ns < w->healthy_ns)
        a.ok = false;
    if (p->question == SERVER_STATE && w->run.state == RUN_VERIFYING && w->dump_index > 0 &&
        w->plan->trait[SIM_TRAIT_RESET_IN_PROBE] && sim_world_noise(w, 2) == 0)
        w->step = w->dump_index = 0;
    a.requests = sim_server_computes(w) ? 1 : 0;
    if (a.ok)
        fill_state(w, &a);
    a.facts = (struct server_facts){.graphs_known = true, .graphs_off = !w->plan->trait[SIM_TRAIT_GRAPHS]};
    text_copy(a.facts.unfit_setting, sizeof a.facts.unfit_setting, a.facts.graphs_off ? "" : "--disable-graphs");
    sim_world_feed(w, &(struct run_event){.kind = RUN_EVENT_ANSWER, .number = p->number, .answer = &a});
}

/* ---- time and bytes ---- */

static uint64_t rate_of(const struct sim_world *w)
{
    bool dumps = w->enabled && w->hooks && sim_server_computes(w);
    return dumps || (w->grows_on && sim_server_lives(w)) ? w->plan->dump_rate : 0;
}

static void flow(struct sim_world *w, uint64_t until_ns)
{
    uint64_t passed_ns = until_ns - w->now_ns, rate = rate_of(w), others = w->plan->foreign_rate;
    if (w->now_ns < w->fill_until_ns)
        others += 2 * SIM_GIB;
    if (w->enabled && sim_server_computes(w)) {
        uint64_t pass_ns = w->plan->pass_ms * SIM_MS;
        w->pass_rest_ns += passed_ns;
        uint64_t passes = w->pass_rest_ns / pass_ns;
        w->pass_rest_ns -= passes * pass_ns;
        w->step += passes;
        w->dump_index += w->hooks ? passes * FILES_PER_PASS : 0;
    }
    uint64_t mine = (uint64_t)((unsigned __int128)rate * passed_ns / 1000000000u);
    uint64_t all = mine + (uint64_t)((unsigned __int128)others * passed_ns / 1000000000u);
    w->written_bytes += mine;
    w->free_bytes = all < w->free_bytes ? w->free_bytes - all : 0;
    bool could_live = w->alive && w->now_ns < w->dead_ns && !w->excused;
    if (could_live && !(w->run.kill_sent && w->plan->trait[SIM_TRAIT_UNKILLABLE]))
        sim_rules_require(w, w->free_bytes >= w->policy.limits.floor_bytes, "the floor is never crossed");
    w->now_ns = until_ns;
}

void sim_server_pass_time(struct sim_world *w, uint64_t until_ns)
{
    const uint64_t *const edges[] = {&w->traffic_until_ns, &w->stuck_until_ns, &w->long_until_ns, &w->fill_until_ns,
                                     &w->dead_ns};
    while (w->now_ns < until_ns) {
        uint64_t next = until_ns;
        for (unsigned i = 0; i < sizeof edges / sizeof edges[0]; i++)
            if (*edges[i] > w->now_ns && *edges[i] < next)
                next = *edges[i];
        flow(w, next);
    }
}

/* ---- what the guard's threads see ---- */

static void tell_level(struct sim_world *w, enum space_level level)
{
    if (level == w->told)
        return;
    w->told = level;
    w->watch.blind_since_ns = level == SPACE_UNMEASURABLE ? w->now_ns : 0;
    sim_world_feed(w, &(struct run_event){.kind = RUN_EVENT_SPACE, .space = level, .text = "as simulated"});
}

void sim_server_look(struct sim_world *w)
{
    static const uint64_t told_after_ns = 500 * SIM_MS;
    bool blind = w->now_ns < w->blind_until_ns;
    struct space_reading reading = {.at_ns = w->now_ns + w->suspended_ns,
                                    .measurable = !blind,
                                    .total_bytes = 1000 * SIM_GIB,
                                    .free_bytes = w->free_bytes};
    struct space_decision decision;
    space_policy_look(&w->policy, &reading, &decision);
    w->look_ns = w->now_ns + decision.interval_ns;
    if (blind) {
        w->excused = true;
        if (w->blind_from_ns == 0)
            w->blind_from_ns = w->now_ns;
        if (w->look_ns > w->blind_from_ns + told_after_ns && w->told != SPACE_UNMEASURABLE)
            w->look_ns = w->blind_from_ns + told_after_ns;
        if (w->look_ns <= w->now_ns)
            w->look_ns = w->now_ns + 50 * SIM_MS;
        if (w->now_ns >= w->blind_from_ns + told_after_ns)
            tell_level(w, SPACE_UNMEASURABLE);
        return;
    }
    w->blind_from_ns = 0;
    if (decision.level != SPACE_FLOOR) {
        w->excused = false;
        tell_level(w, decision.level);
    } else if (!w->pulled) {
        w->pulled = true; /* the watcher pulls by itself; the machine is told */
        if (!w->plan->trait[SIM_TRAIT_UNKILLABLE])
            sim_world_die(w, sim_world_noise(w, w->policy.limits.kill_time_ns));
        sim_world_feed(w, &(struct run_event){.kind = RUN_EVENT_FLOOR, .text = "at the floor"});
    }
}

void sim_server_survey(struct sim_world *w)
{
    struct sim_watch *watch = &w->watch;
    bool busy = sim_server_computes(w) || (sim_server_lives(w) && w->now_ns < w->long_until_ns);
    if (w->written_bytes > w->surveyed_bytes)
        watch->grown_ns = w->now_ns;
    if (busy)
        watch->busy_ns = w->now_ns;
    w->surveyed_bytes = w->written_bytes;
    if (w->plan->budget_bytes > 0 && w->surveyed_bytes >= w->plan->budget_bytes && watch->used_up_since_ns == 0)
        watch->used_up_since_ns = w->now_ns;
    w->survey_ns = w->now_ns + 1000 * SIM_MS;
    sim_world_feed(w, &(struct run_event){.kind = RUN_EVENT_SURVEY, .written_bytes = w->surveyed_bytes, .busy = busy});
}
