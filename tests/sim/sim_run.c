/* Simulation: the real run machine and the real space policy in random worlds under a virtual clock. A world boots
 * slowly or never, loses requests, dies, fills its disk at any rate up to the worst, is asked for dumps, pauses and
 * stops at any time.
 *
 *   sim_run [RUNS [SEED]]
 *
 * Checked at every step: a dump begins only after the run was armed; the floor is never crossed; every request is
 * answered exactly once; exactly one end, and no effect after it; a world that is asked to stop ends. A failing seed is
 * printed and repeats the same trace. */
#include "core/run.h"
#include "core/space.h"
#include "base/text.h"

#include <inttypes.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MS  1000000ull
#define GIB (1ull << 30)

enum { PENDING_MAX = 64, REQUESTS_MAX = 64 };

enum pending_kind { PENDING_ANSWER, PENDING_AUDIT, PENDING_LISTENER, PENDING_EXIT, PENDING_GONE, PENDING_USER };

struct pending {
    uint64_t at_ns, number;
    enum pending_kind kind;
    enum server_question question;
    bool probe;
    char name[SERVER_NAME_MAX];
};

struct world {
    uint64_t seed, random;
    uint64_t now_ns, look_ns;
    struct run run;
    struct space_policy policy;
    uint64_t free_bytes, written_at_ns;
    struct pending pending[PENDING_MAX];
    unsigned pending_count;
    /* the server */
    bool started, alive, killed, boots, enabled, obeys_term;
    uint64_t open_ns, healthy_ns, dead_ns;
    char experiment[SERVER_NAME_MAX];
    uint64_t step, dump_index;
    unsigned fault_percent;
    uint64_t dump_rate, foreign_rate;
    /* requests */
    uint64_t request_number;
    bool open_request[REQUESTS_MAX];
    unsigned finishes, steps;
    const char *broken;
};

static uint64_t roll(struct world *w, uint64_t below)
{
    w->random += 0x9e3779b97f4a7c15ull; /* splitmix64 */
    uint64_t z = w->random;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
    return below == 0 ? 0 : (z ^ (z >> 31)) % below;
}

static bool chance(struct world *w, unsigned percent)
{
    return roll(w, 100) < percent;
}

static void require(struct world *w, bool fine, const char *rule)
{
    if (!fine && w->broken == NULL)
        w->broken = rule;
}

static struct pending *later(struct world *w, enum pending_kind kind, uint64_t delay_ns)
{
    static struct pending lost;
    require(w, w->pending_count < PENDING_MAX, "the world has room for what is pending");
    struct pending *p = w->pending_count < PENDING_MAX ? &w->pending[w->pending_count++] : &lost;
    *p = (struct pending){.at_ns = w->now_ns + delay_ns, .kind = kind};
    return p;
}

static void die(struct world *w, uint64_t delay_ns)
{
    if (!w->alive)
        return;
    later(w, PENDING_EXIT, delay_ns);
    later(w, PENDING_GONE, delay_ns + 1 * MS + roll(w, 500 * MS));
    uint64_t at = w->now_ns + delay_ns;
    w->dead_ns = at < w->dead_ns ? at : w->dead_ns;
}

static void carry_out(struct world *w, const struct run_effect *effect);

static void feed(struct world *w, const struct run_event *event)
{
    static struct run_effects effects;
    bool ended = w->run.state == RUN_ENDED;
    run_step(&w->run, event, w->now_ns, &effects);
    w->steps++;
    require(w, effects.count < RUN_EFFECTS_MAX, "effects do not overflow");
    struct run_effects mine = effects;
    for (unsigned i = 0; i < mine.count; i++) {
        require(w, !ended || mine.effect[i].kind == RUN_DO_REPLY, "no effect after the end but refusals");
        carry_out(w, &mine.effect[i]);
    }
    require(w, w->finishes <= 1, "one end at most");
    require(w, (w->run.state == RUN_ENDED) == (w->finishes == 1), "the end and its effect come together");
    require(w, w->finishes == 0 || w->run.outcome != RUN_OUTCOME_NONE, "an end has an outcome");
}

static void carry_out(struct world *w, const struct run_effect *effect)
{
    struct pending *p;
    switch (effect->kind) {
    case RUN_DO_ASK:
        require(w, effect->question != SERVER_ENABLE || w->run.was_armed || strcmp(effect->name, "probe") == 0,
                "nothing but the probe is enabled before the run is armed");
        p = later(w, PENDING_ANSWER, 1 * MS + roll(w, chance(w, 5) ? 70000 * MS : 50 * MS));
        p->number = effect->number;
        p->question = effect->question;
        text_copy(p->name, sizeof p->name, effect->name);
        break;
    case RUN_DO_CHECK:
        p = later(w, PENDING_AUDIT, 5 * MS + roll(w, 3000 * MS));
        p->number = effect->number;
        p->probe = effect->probe;
        break;
    case RUN_DO_FIND_LISTENER:
        later(w, PENDING_LISTENER, 1 * MS);
        break;
    case RUN_DO_TERM:
    case RUN_DO_TERM_GROUP:
        if (w->obeys_term)
            die(w, roll(w, 8000 * MS));
        break;
    case RUN_DO_KILL:
        require(w, w->run.state != RUN_ENDED, "no kill after the end");
        if (w->alive)
            die(w, roll(w, 5 * MS));
        else
            later(w, PENDING_GONE, 1 * MS);
        break;
    case RUN_DO_REPLY:
        require(w, effect->number < REQUESTS_MAX && w->open_request[effect->number], "a request is answered once");
        w->open_request[effect->number % REQUESTS_MAX] = false;
        break;
    case RUN_DO_FINISH:
        w->finishes++;
        break;
    default:
        break;
    }
}

static void answer(struct world *w, const struct pending *p)
{
    static struct server_answer a;
    a = (struct server_answer){.question = p->question, .ok = true, .http_status = 200, .load_known = true};
    bool fault = chance(w, w->fault_percent), reachable = w->alive && w->now_ns >= w->open_ns;
    if (!reachable || fault) {
        a.ok = false;
        a.http_status = reachable ? 500 : 0;
        text_copy(a.problem, sizeof a.problem, "as simulated");
    }
    /* a fault may strike before or after the server has obeyed */
    bool obeyed = reachable && (!fault || chance(w, 50));
    if (obeyed && p->question == SERVER_ENABLE) {
        w->enabled = true;
        text_copy(w->experiment, sizeof w->experiment, p->name);
    }
    if (obeyed && p->question == SERVER_DISABLE)
        w->enabled = false;
    if (obeyed && p->question == SERVER_PROBE && w->enabled) {
        w->step += 3;
        w->dump_index += 369;
    }
    if (p->question == SERVER_HEALTH && w->now_ns < w->healthy_ns)
        a.ok = false;
    a.requests = chance(w, 10) ? 1 : 0;
    a.rank_count = 1;
    a.rank[0] = (struct server_rank){w->dump_index, w->step, w->enabled, ""};
    text_copy(a.rank[0].experiment, sizeof a.rank[0].experiment, w->experiment);
    a.facts = (struct server_facts){.graphs_known = true, .graphs_off = !chance(w, 2)};
    feed(w, &(struct run_event){.kind = RUN_EVENT_ANSWER, .number = p->number, .answer = &a});
}

static void user(struct world *w)
{
    uint64_t number = w->request_number + 1;
    if (number + 1 < REQUESTS_MAX && w->run.state != RUN_ENDED) {
        switch (roll(w, 12)) {
        case 0:
            feed(w, &(struct run_event){.kind = RUN_EVENT_STOP, .now = chance(w, 30), .text = "somebody"});
            break;
        case 1:
            feed(w, &(struct run_event){.kind = RUN_EVENT_INTERRUPT});
            break;
        case 2:
            feed(w, &(struct run_event){.kind = RUN_EVENT_HOLDER_GONE});
            break;
        case 3:
        case 4:
        case 5:
            w->open_request[++w->request_number] = true;
            feed(w, &(struct run_event){.kind = RUN_EVENT_PAUSE, .number = w->request_number});
            break;
        default:
            w->open_request[++w->request_number] = true;
            feed(w, &(struct run_event){.kind = RUN_EVENT_DUMP,
                                        .number = w->request_number,
                                        .text = "exp",
                                        .hold = chance(w, 50),
                                        .force = chance(w, 20),
                                        .wait_idle_ms = roll(w, 30000)});
            break;
        }
    }
    later(w, PENDING_USER, roll(w, 20000 * MS));
}

static void happen(struct world *w, const struct pending *p)
{
    static const struct server_judgement proven = {.verdict = SERVER_PROVEN, .text = "seen"},
                                         failed = {.verdict = SERVER_FAILED, .text = "not seen"};
    switch (p->kind) {
    case PENDING_ANSWER:
        answer(w, p);
        break;
    case PENDING_AUDIT:
        if (p->probe)
            feed(w, &(struct run_event){
                        .kind = RUN_EVENT_JUDGED, .number = p->number, .judgement = chance(w, 5) ? &failed : &proven});
        else
            feed(w,
                 &(struct run_event){
                     .kind = RUN_EVENT_AUDITED, .number = p->number, .ok = chance(w, 95), .complete = chance(w, 80)});
        break;
    case PENDING_LISTENER:
        feed(w, &(struct run_event){.kind = RUN_EVENT_LISTENER,
                                    .listener = !w->alive || w->now_ns < w->open_ns ? RUN_LISTENER_NONE
                                                : chance(w, 1)                      ? RUN_LISTENER_FOREIGN
                                                                                    : RUN_LISTENER_OWN,
                                    .text = "pid 1"});
        break;
    case PENDING_EXIT:
        if (w->alive) {
            w->alive = w->enabled = false;
            feed(w, &(struct run_event){.kind = RUN_EVENT_EXITED, .exit_code = chance(w, 50) ? 0 : 1, .signal = -1});
        }
        break;
    case PENDING_GONE:
        feed(w, &(struct run_event){.kind = RUN_EVENT_GONE});
        break;
    case PENDING_USER:
        user(w);
        break;
    }
}

/* Bytes go from the disk: by the dump while it is on, by others always; together never faster than the worst rate. */
static void pass_time(struct world *w, uint64_t until_ns)
{
    bool writes = w->enabled && w->alive && w->now_ns < w->dead_ns;
    uint64_t rate = (writes ? w->dump_rate : 0) + (w->alive ? w->foreign_rate : 0);
    uint64_t bytes = (uint64_t)((unsigned __int128)rate * (until_ns - w->now_ns) / 1000000000u);
    w->free_bytes = bytes < w->free_bytes ? w->free_bytes - bytes : 0;
    require(w, w->free_bytes >= w->policy.limits.floor_bytes, "the floor is never crossed");
    w->now_ns = until_ns;
}

static void look(struct world *w)
{
    /* The promise holds for readings that tell something; one that does not comes while there is room. */
    bool blind = w->free_bytes > w->policy.act_bytes + GIB && chance(w, 1);
    struct space_reading reading = {
        .at_ns = w->now_ns, .measurable = !blind, .total_bytes = 1000 * GIB, .free_bytes = w->free_bytes};
    struct space_decision decision;
    space_policy_look(&w->policy, &reading, &decision);
    w->look_ns = w->now_ns + decision.interval_ns;
    if (decision.level == SPACE_FLOOR && !w->killed) {
        w->killed = true; /* the watcher pulls by itself; the machine is told */
        die(w, roll(w, w->policy.limits.kill_time_ns));
        feed(w, &(struct run_event){.kind = RUN_EVENT_FLOOR, .text = "at the floor"});
    }
}

static void turn(struct world *w)
{
    unsigned first = 0;
    for (unsigned i = 1; i < w->pending_count; i++)
        if (w->pending[i].at_ns < w->pending[first].at_ns)
            first = i;
    uint64_t event_ns = w->pending_count > 0 ? w->pending[first].at_ns : UINT64_MAX;
    uint64_t wake_ns = w->run.wake_ns > w->now_ns ? w->run.wake_ns : w->now_ns;
    if (w->look_ns <= event_ns && w->look_ns <= wake_ns) {
        pass_time(w, w->look_ns);
        look(w);
    } else if (event_ns <= wake_ns) {
        struct pending p = w->pending[first];
        w->pending[first] = w->pending[--w->pending_count];
        pass_time(w, event_ns);
        happen(w, &p);
    } else {
        pass_time(w, wake_ns);
        feed(w, &(struct run_event){.kind = RUN_EVENT_TICK});
    }
}

static void begin(struct world *w, uint64_t seed)
{
    static const struct run_settings settings = {.name = "sim",
                                                 .probe_experiment = "probe",
                                                 .probe_request = "probe",
                                                 .start_timeout_ms = 600000,
                                                 .stop_timeout_ms = 20000,
                                                 .control_timeout_ms = 60000,
                                                 .blind_limit_ms = 10000};
    static const struct space_limits limits = {.floor_bytes = 20 * GIB,
                                               .worst_rate_bytes_per_s = 10 * GIB,
                                               .kill_time_ns = 6 * MS,
                                               .min_interval_ns = 1 * MS,
                                               .max_interval_ns = 1000 * MS};
    *w = (struct world){.seed = seed, .random = seed, .now_ns = 1000 * MS, .alive = true, .dead_ns = UINT64_MAX};
    w->look_ns = w->now_ns;
    run_init(&w->run, &settings, w->now_ns);
    space_policy_init(&w->policy, &limits);
    w->free_bytes = w->policy.act_bytes + roll(w, 400 * GIB);
    w->boots = !chance(w, 5);
    w->obeys_term = chance(w, 80);
    w->open_ns = w->boots ? w->now_ns + roll(w, 120000 * MS) : UINT64_MAX;
    w->healthy_ns = w->boots ? w->open_ns + roll(w, 20000 * MS) : UINT64_MAX;
    w->fault_percent = chance(w, 50) ? 0 : (unsigned)roll(w, 10);
    w->dump_rate = roll(w, chance(w, 20) ? 9 * GIB : GIB);
    w->foreign_rate = chance(w, 70) ? 0 : roll(w, GIB);
    if (chance(w, 20))
        die(w, roll(w, 300000 * MS)); /* by itself */
    later(w, PENDING_USER, roll(w, 60000 * MS));
    feed(w, &(struct run_event){.kind = RUN_EVENT_STARTED, .pid = 4242});
}

static const char *run_world(struct world *w, uint64_t seed)
{
    begin(w, seed);
    uint64_t stop_ns = w->now_ns + 900000 * MS, limit_ns = stop_ns + 3600000 * MS;
    bool stopped = false;
    while (w->finishes == 0 && w->broken == NULL) {
        turn(w);
        if (!stopped && w->now_ns >= stop_ns) {
            stopped = true;
            feed(w, &(struct run_event){.kind = RUN_EVENT_STOP, .text = "the end of the simulation"});
        }
        require(w, w->now_ns < limit_ns, "a world that is asked to stop ends");
    }
    for (unsigned i = 0; i < REQUESTS_MAX; i++)
        require(w, !w->open_request[i] || w->broken != NULL, "no request is left without an answer");
    return w->broken;
}

int main(int argc, char **argv)
{
    static struct world world;
    uint64_t runs = argc > 1 ? strtoull(argv[1], NULL, 10) : 10000;
    uint64_t seed = argc > 2 ? strtoull(argv[2], NULL, 10) : 1;
    unsigned outcomes[RUN_OUTCOMES] = {0};
    uint64_t steps = 0;
    for (uint64_t i = 0; i < runs; i++) {
        const char *broken = run_world(&world, seed + i);
        if (broken != NULL) {
            printf("seed %" PRIu64 ", step %u, state %s: broken rule: %s\nagain: sim_run 1 %" PRIu64 "\n", seed + i,
                   world.steps, run_state_name(world.run.state), broken, seed + i);
            return 1;
        }
        steps += world.steps;
        outcomes[world.run.outcome]++;
    }
    printf("%" PRIu64 " runs from seed %" PRIu64 ", %" PRIu64 " steps:", runs, seed, steps);
    for (int outcome = 0; outcome < RUN_OUTCOMES; outcome++)
        if (outcomes[outcome] > 0)
            printf(" %s %u", run_outcome_name((enum run_outcome)outcome), outcomes[outcome]);
    printf("\n");
    return 0;
}
