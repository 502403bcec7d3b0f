/* A simulated world: what comes next, what the machine's effects do, and time. */
#include "sim.h"
#include "base/text.h"

#include <stdio.h>
#include <string.h>

static const struct space_limits limits = {.floor_bytes = 20 * SIM_GIB,
                                           .soft_bytes = 40 * SIM_GIB,
                                           .warn_bytes = 60 * SIM_GIB,
                                           .soft_hold_ns = 300 * SIM_MS,
                                           .worst_rate_bytes_per_s = 10 * SIM_GIB,
                                           .kill_time_ns = SIM_KILL_MS * SIM_MS,
                                           .min_interval_ns = 1 * SIM_MS,
                                           .max_interval_ns = 1000 * SIM_MS};

uint64_t sim_world_noise(struct sim_world *w, uint64_t below)
{
    return sim_plan_roll(&w->noise, below);
}

struct sim_pending *sim_world_later(struct sim_world *w, enum sim_pending_kind kind, uint64_t delay_ns)
{
    static struct sim_pending lost;
    sim_rules_require(w, w->pending_count < SIM_PENDING, "the world has room for what is pending");
    struct sim_pending *p = w->pending_count < SIM_PENDING ? &w->pending[w->pending_count++] : &lost;
    *p = (struct sim_pending){.at_ns = w->now_ns + delay_ns, .asked_ns = w->now_ns, .kind = kind};
    return p;
}

/* ---- life and death of the server ---- */

void sim_world_launch(struct sim_world *w)
{
    const struct sim_plan *plan = w->plan;
    w->watch.launches++;
    w->watch.gone_told = false;
    sim_world_later(w, SIM_STARTED, 5 * SIM_MS);
    if (plan->trait[SIM_TRAIT_EXEC_FAILS])
        return;
    w->alive = true;
    w->hooks = true;
    w->dead_ns = UINT64_MAX;
    w->open_ns = plan->trait[SIM_TRAIT_NEVER_OPENS] ? UINT64_MAX : w->now_ns + plan->open_ms * SIM_MS;
    w->healthy_ns = plan->trait[SIM_TRAIT_NEVER_HEALTHY] ? UINT64_MAX : w->now_ns + plan->healthy_ms * SIM_MS;
    if (plan->trait[SIM_TRAIT_OTHER_SPELLING] && w->watch.launches == 1) {
        w->open_ns = w->healthy_ns = UINT64_MAX;
        sim_world_later(w, SIM_EXITED, 50 * SIM_MS + sim_world_noise(w, 3000 * SIM_MS))->again = true;
    }
}

void sim_world_die(struct sim_world *w, uint64_t delay_ns)
{
    uint64_t at_ns = w->now_ns + delay_ns;
    if (!w->alive || w->dead_ns <= at_ns)
        return;
    w->dead_ns = at_ns;
    sim_world_later(w, SIM_EXITED, delay_ns);
    sim_world_later(w, SIM_GONE, delay_ns + 1 * SIM_MS + sim_world_noise(w, 300 * SIM_MS));
}

static void exited(struct sim_world *w, const struct sim_pending *p)
{
    if (!w->alive)
        return;
    w->alive = w->enabled = w->grows_on = false;
    sim_world_feed(w, &(struct run_event){.kind = RUN_EVENT_EXITED,
                                          .exit_code = p->again ? 2 : (int)sim_world_noise(w, 2),
                                          .signal = -1,
                                          .again = p->again,
                                          .text = "as simulated"});
}

/* ---- effects ---- */

static void ask(struct sim_world *w, const struct run_effect *effect)
{
    struct sim_pending *p = sim_world_later(w, SIM_ANSWER, 1 * SIM_MS + sim_world_noise(w, 50 * SIM_MS));
    p->number = effect->number;
    p->question = effect->question;
    text_copy(p->name, sizeof p->name, effect->name);
}

static void kill_all(struct sim_world *w)
{
    if (w->plan->trait[SIM_TRAIT_UNKILLABLE] && w->alive)
        sim_world_later(w, SIM_UNKILLABLE_TOLD, 2000 * SIM_MS);
    else if (w->alive)
        sim_world_die(w, sim_world_noise(w, 5 * SIM_MS));
    else
        sim_world_later(w, SIM_GONE, 1 * SIM_MS);
}

static void carry_out(struct sim_world *w, const struct run_effect *effect)
{
    struct sim_pending *p;
    switch (effect->kind) {
    case RUN_DO_ASK:
        ask(w, effect);
        break;
    case RUN_DO_CHECK:
        p = sim_world_later(w, SIM_AUDIT, 5 * SIM_MS + sim_world_noise(w, 1000 * SIM_MS));
        p->number = effect->number;
        p->probe = effect->probe;
        break;
    case RUN_DO_FIND_LISTENER:
        sim_world_later(w, SIM_LISTENER, 1 * SIM_MS);
        break;
    case RUN_DO_TERM:
    case RUN_DO_TERM_GROUP:
        if (!w->plan->trait[SIM_TRAIT_IGNORES_TERM] && !w->plan->trait[SIM_TRAIT_UNKILLABLE])
            sim_world_die(w, sim_world_noise(w, 3000 * SIM_MS));
        break;
    case RUN_DO_KILL:
        kill_all(w);
        break;
    case RUN_DO_LAUNCH:
        sim_world_launch(w);
        break;
    case RUN_DO_NOTE:
        if (w->verbose)
            printf("%9.3f s      %s: %s\n", (double)(w->now_ns - w->begin_ns) / 1e9, run_note_name(effect->note),
                   effect->text);
        break;
    default:
        break;
    }
}

void sim_world_feed(struct sim_world *w, const struct run_event *event)
{
    enum run_state before = w->run.state;
    sim_rules_before(w, event);
    run_step(&w->run, event, w->now_ns + w->suspended_ns, &w->effects);
    w->steps++;
    for (unsigned i = 0; i < w->effects.count; i++) {
        sim_rules_effect(w, &w->effects.effect[i]);
        carry_out(w, &w->effects.effect[i]);
    }
    sim_rules_after(w, event, before);
}

/* ---- what comes next ---- */

static void started(struct sim_world *w)
{
    if (w->plan->trait[SIM_TRAIT_EXEC_FAILS])
        sim_world_feed(w, &(struct run_event){.kind = RUN_EVENT_EXEC_FAILED, .number = 2, .text = "nosuch"});
    else
        sim_world_feed(w, &(struct run_event){.kind = RUN_EVENT_STARTED, .pid = 4242});
}

static void audited(struct sim_world *w, const struct sim_pending *p)
{
    static const struct server_judgement proven = {.verdict = SERVER_PROVEN, .text = "seen"},
                                         failed = {.verdict = SERVER_FAILED, .text = "not seen"};
    bool bad = w->plan->trait[SIM_TRAIT_BAD_AUDITS];
    w->watch.audit_pending = false;
    if (p->probe)
        sim_world_feed(
            w, &(struct run_event){.kind = RUN_EVENT_JUDGED,
                                   .number = p->number,
                                   .judgement = w->plan->trait[SIM_TRAIT_UNPROVEN] || !w->hooks ? &failed : &proven});
    else
        sim_world_feed(
            w, &(struct run_event){.kind = RUN_EVENT_AUDITED, .number = p->number, .ok = !bad, .complete = !bad});
}

static void come(struct sim_world *w, const struct sim_pending *p)
{
    enum run_listener listener = !w->alive || w->now_ns < w->open_ns          ? RUN_LISTENER_NONE
                                 : w->plan->trait[SIM_TRAIT_FOREIGN_LISTENER] ? RUN_LISTENER_FOREIGN
                                                                              : RUN_LISTENER_OWN;
    switch (p->kind) {
    case SIM_ANSWER:
        sim_server_answer(w, p);
        break;
    case SIM_AUDIT:
        audited(w, p);
        break;
    case SIM_LISTENER:
        sim_world_feed(w, &(struct run_event){.kind = RUN_EVENT_LISTENER, .listener = listener, .text = "pid 1"});
        break;
    case SIM_STARTED:
        started(w);
        break;
    case SIM_EXITED:
        exited(w, p);
        break;
    case SIM_GONE:
        if (w->alive)
            break;
        w->watch.gone_told = true;
        sim_world_feed(w, &(struct run_event){.kind = RUN_EVENT_GONE});
        break;
    case SIM_UNKILLABLE_TOLD:
        sim_world_feed(w, &(struct run_event){.kind = RUN_EVENT_UNKILLABLE, .text = "pid 7"});
        break;
    }
}

static void happen(struct sim_world *w)
{
    const struct sim_happening *happening = &w->plan->happening[w->happened++];
    char text[128];
    if (w->verbose) {
        sim_plan_happening_text(happening, text, sizeof text);
        printf("%9.3f s  %s\n", (double)(w->now_ns - w->begin_ns) / 1e9, text);
    }
    sim_happen(w, happening);
}

static uint64_t happening_ns(const struct sim_world *w)
{
    if (w->happened == w->plan->count)
        return UINT64_MAX;
    return w->begin_ns + w->plan->happening[w->happened].at_ms * SIM_MS;
}

static uint64_t wake_ns(const struct sim_world *w)
{
    uint64_t wake = w->run.wake_ns;
    if (wake == UINT64_MAX)
        return UINT64_MAX;
    return wake > w->now_ns + w->suspended_ns ? wake - w->suspended_ns : w->now_ns;
}

static void turn(struct sim_world *w)
{
    unsigned first = 0;
    for (unsigned i = 1; i < w->pending_count; i++)
        if (w->pending[i].at_ns < w->pending[first].at_ns)
            first = i;
    uint64_t times[] = {w->look_ns, happening_ns(w), w->pending_count > 0 ? w->pending[first].at_ns : UINT64_MAX,
                        w->survey_ns, wake_ns(w)};
    unsigned next = 0;
    for (unsigned i = 1; i < sizeof times / sizeof times[0]; i++)
        if (times[i] < times[next])
            next = i;
    if (times[next] > w->now_ns)
        sim_server_pass_time(w, times[next]);
    sim_rules_time(w);
    if (next == 0) {
        sim_server_look(w);
    } else if (next == 1) {
        happen(w);
    } else if (next == 2) {
        struct sim_pending p = w->pending[first];
        w->pending[first] = w->pending[--w->pending_count];
        come(w, &p);
    } else if (next == 3) {
        sim_server_survey(w);
    } else {
        sim_world_feed(w, &(struct run_event){.kind = RUN_EVENT_TICK});
    }
}

static void begin(struct sim_world *w, const struct sim_plan *plan, bool verbose)
{
    const struct run_settings settings = {.name = "sim",
                                          .plain = plan->trait[SIM_TRAIT_PLAIN],
                                          .probe_experiment = "probe",
                                          .probe_request = "probe",
                                          .start_timeout_ms = SIM_START_TIMEOUT_MS,
                                          .stop_timeout_ms = SIM_STOP_TIMEOUT_MS,
                                          .control_timeout_ms = SIM_CONTROL_TIMEOUT_MS,
                                          .blind_limit_ms = SIM_BLIND_LIMIT_MS,
                                          .budget_bytes = plan->budget_bytes};
    memset(w, 0, sizeof *w);
    w->plan = plan;
    w->verbose = verbose;
    w->noise = plan->seed;
    w->begin_ns = w->now_ns = w->look_ns = w->survey_ns = 1000 * SIM_MS;
    run_init(&w->run, &settings, w->now_ns);
    space_policy_init(&w->policy, &limits);
    w->free_bytes = w->policy.act_bytes + plan->free_bytes;
    sim_world_launch(w);
}

const char *sim_world_run(struct sim_world *w, const struct sim_plan *plan, bool verbose)
{
    begin(w, plan, verbose);
    uint64_t stop_ns = w->begin_ns + SIM_STOP_MS * SIM_MS;
    while (w->watch.finishes == 0 && w->watch.broken == NULL) {
        turn(w);
        if (!w->stop_asked && w->now_ns >= stop_ns) {
            w->stop_asked = true;
            sim_world_feed(w, &(struct run_event){.kind = RUN_EVENT_STOP, .text = "the end of the simulation"});
        }
        sim_rules_require(w, w->now_ns < stop_ns + 150000 * SIM_MS, "a world that is asked to stop ends");
    }
    sim_rules_end(w);
    return w->watch.broken;
}
