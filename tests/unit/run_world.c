#include "run_world.h"
#include "base/text.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

static const struct run_settings settings = {.name = "t",
                                             .probe_experiment = "kldump-probe-1",
                                             .probe_request = "kldump-1",
                                             .start_timeout_ms = 600000,
                                             .stop_timeout_ms = 10000,
                                             .control_timeout_ms = 60000,
                                             .blind_limit_ms = 10000};

void run_world_init(struct run_world *world)
{
    *world = (struct run_world){.now_ns = 1000000000, .verdict = SERVER_PROVEN, .ranks = 1};
    run_init(&world->run, &settings, world->now_ns);
}

static void check_invariants(struct run_world *world, enum run_state before)
{
    struct run *run = &world->run;
    assert_true(world->effects.count < RUN_EFFECTS_MAX);
    assert_true(run->state < RUN_STATES);
    assert_true((run->state == RUN_ENDED) == (world->finishes == 1));
    assert_true(run->state != RUN_ENDED || run->outcome != RUN_OUTCOME_NONE);
    if (before == RUN_ENDED)
        assert_int_equal(run->state, RUN_ENDED);
    if (before >= RUN_STOPPING)
        assert_true(run->state >= RUN_STOPPING);
    for (unsigned i = 0; i < world->effects.count; i++) {
        const struct run_effect *effect = &world->effects.effect[i];
        bool last = i + 1 == world->effects.count;
        assert_true(effect->kind != RUN_DO_FINISH || last);
        if (effect->kind == RUN_DO_ASK && effect->question == SERVER_ENABLE && !run->was_armed)
            assert_string_equal(effect->name, settings.probe_experiment);
    }
    /* Something must bring the machine on: an answer, a tick, or an event from outside. */
    if (run->state == RUN_VERIFYING || run->state == RUN_SEALING || run->state == RUN_WARMING)
        assert_true(run->waiting || run->wake_ns != UINT64_MAX);
    if (run->state == RUN_STOPPING)
        assert_true(run->wake_ns != UINT64_MAX || run->waiting);
}

static void keep_note(struct run_world *world, const char *text)
{
    size_t used = strlen(world->notes), size = strlen(text) + 2;
    if (size > sizeof world->notes)
        return;
    if (used + size > sizeof world->notes)
        used = 0;
    snprintf(world->notes + used, sizeof world->notes - used, "%s\n", text);
}

unsigned run_world_noted(const struct run_world *world, const char *text)
{
    unsigned count = 0;
    for (const char *at = strstr(world->notes, text); at != NULL; at = strstr(at + 1, text))
        count++;
    return count;
}

/* What will be answered; a question takes the place of the one before. */
static void keep_due(struct run_world *world, const struct run_effect *effect)
{
    struct run_effects *due = &world->due;
    for (unsigned i = 0; i < due->count; i++)
        if (due->effect[i].kind == effect->kind) {
            due->effect[i] = *effect;
            return;
        }
    if (due->count < RUN_EFFECTS_MAX)
        due->effect[due->count++] = *effect;
}

void run_world_step(struct run_world *world, struct run_event event)
{
    enum run_state before = world->run.state;
    run_step(&world->run, &event, world->now_ns, &world->effects);
    for (unsigned i = 0; i < world->effects.count; i++) {
        const struct run_effect *effect = &world->effects.effect[i];
        world->done[effect->kind]++;
        keep_due(world, effect);
        if (effect->kind == RUN_DO_ASK)
            world->asked[effect->question]++;
        if (effect->kind == RUN_DO_FINISH)
            world->finishes++;
        if (effect->kind == RUN_DO_NOTE)
            keep_note(world, effect->text);
        if (effect->kind == RUN_DO_REPLY) {
            text_copy(world->reply_text, sizeof world->reply_text, effect->text);
            world->reply_code = effect->code;
            world->reply_number = effect->number;
        }
    }
    check_invariants(world, before);
    if (event.kind == RUN_EVENT_TICK && world->run.wake_ns != UINT64_MAX)
        assert_true(world->run.wake_ns > world->now_ns); /* a tick that leaves itself due would spin */
}

static void state_answer(struct run_world *world, struct server_answer *answer)
{
    answer->rank_count = world->ranks;
    for (uint32_t i = 0; i < world->ranks; i++) {
        answer->rank[i] = (struct server_rank){world->dump_index, world->step, world->enabled, ""};
        text_copy(answer->rank[i].experiment, SERVER_NAME_MAX, world->experiment);
    }
    text_copy(answer->wrong_setting, sizeof answer->wrong_setting, world->wrong_setting);
}

static void answer_question(struct run_world *world, const struct run_effect *effect)
{
    static struct server_answer answer; /* too large for the stack of a loop */
    answer = (struct server_answer){.question = effect->question, .ok = true, .http_status = 200};
    switch (effect->question) {
    case SERVER_HEALTH:
        answer.ok = !world->health_down;
        break;
    case SERVER_STATE:
        state_answer(world, &answer);
        break;
    case SERVER_INFO:
        answer.facts.graphs_known = true;
        answer.facts.graphs_off = !world->graphs_on;
        text_copy(answer.facts.unfit_setting, sizeof answer.facts.unfit_setting,
                  world->graphs_on ? "--disable-graphs" : "");
        text_copy(answer.facts.unfit_problem, sizeof answer.facts.unfit_problem,
                  world->graphs_on ? "graphs are on" : "");
        break;
    case SERVER_LOAD:
        answer.load_known = true;
        answer.requests = world->requests;
        break;
    case SERVER_ENABLE:
        world->enabled = !world->enable_ignored;
        text_copy(world->experiment, SERVER_NAME_MAX, effect->name);
        break;
    case SERVER_DISABLE:
        world->enabled = false;
        break;
    case SERVER_PROBE:
        world->step += 3;
        world->dump_index += 369;
        break;
    default:
        break;
    }
    if (world->spoil != NULL)
        world->spoil(world, &answer);
    run_world_step(world, (struct run_event){.kind = RUN_EVENT_ANSWER, .number = effect->number, .answer = &answer});
}

static void answer_check(struct run_world *world, const struct run_effect *effect)
{
    struct server_judgement judgement = {.verdict = world->verdict, .setting = "x", .text = "as judged"};
    if (effect->probe)
        run_world_step(world,
                       (struct run_event){.kind = RUN_EVENT_JUDGED, .number = effect->number, .judgement = &judgement});
    else
        run_world_step(world, (struct run_event){
                                  .kind = RUN_EVENT_AUDITED, .number = effect->number, .ok = true, .complete = true});
}

static bool answer_effect(struct run_world *world, const struct run_effect *effect)
{
    switch (effect->kind) {
    case RUN_DO_ASK:
        answer_question(world, effect);
        return true;
    case RUN_DO_CHECK:
        answer_check(world, effect);
        return true;
    case RUN_DO_FIND_LISTENER:
        run_world_step(world, (struct run_event){.kind = RUN_EVENT_LISTENER, .listener = RUN_LISTENER_OWN});
        return true;
    case RUN_DO_TERM:
        run_world_step(world, (struct run_event){.kind = RUN_EVENT_EXITED, .exit_code = 0, .signal = -1});
        return true;
    case RUN_DO_KILL:
        run_world_step(world, (struct run_event){.kind = RUN_EVENT_GONE});
        return true;
    default:
        return false;
    }
}

/* Carries out one effect of those that are due; false when none of them brings an answer. */
static bool answer_effects(struct run_world *world)
{
    struct run_effects *due = &world->due;
    for (unsigned i = 0; i < due->count; i++) {
        struct run_effect effect = due->effect[i];
        if (effect.kind == RUN_DO_ASK && world->mute)
            continue;
        memmove(&due->effect[i], &due->effect[i + 1], (due->count - i - 1) * sizeof effect);
        due->count--;
        i--;
        if (answer_effect(world, &effect))
            return true;
    }
    return false;
}

void run_world_settle(struct run_world *world, unsigned limit)
{
    for (unsigned i = 0; i < limit && world->run.state != RUN_ENDED; i++) {
        if (answer_effects(world))
            continue;
        bool rests =
            world->run.state == RUN_ARMED || (world->run.state == RUN_DUMPING && world->run.wake_ns != UINT64_MAX);
        if (world->run.wake_ns == UINT64_MAX || rests)
            return;
        world->now_ns = world->run.wake_ns;
        run_world_step(world, (struct run_event){.kind = RUN_EVENT_TICK});
    }
}

void run_world_live(struct run_world *world, uint64_t ms)
{
    uint64_t until_ns = world->now_ns + ms * 1000000;
    while (world->run.state != RUN_ENDED) {
        if (answer_effects(world))
            continue;
        if (world->run.wake_ns > until_ns)
            break;
        world->now_ns = world->run.wake_ns;
        run_world_step(world, (struct run_event){.kind = RUN_EVENT_TICK});
    }
    world->now_ns = until_ns;
}

void run_world_space(struct run_world *world, enum space_level level)
{
    run_world_step(world, (struct run_event){.kind = RUN_EVENT_SPACE, .space = level, .text = "as measured"});
}

void run_world_survey(struct run_world *world, uint64_t written_bytes, bool busy)
{
    run_world_step(world, (struct run_event){.kind = RUN_EVENT_SURVEY, .written_bytes = written_bytes, .busy = busy});
}

void run_world_reach(struct run_world *world, enum run_state state)
{
    run_world_reach_with(world, state, 1);
}

void run_world_reach_with(struct run_world *world, enum run_state state, uint32_t ranks)
{
    run_world_init(world);
    world->ranks = ranks;
    world->run.settings.plain = state == RUN_READY;
    if (state == RUN_LAUNCHING)
        return;
    run_world_step(world, run_world_event(world, RUN_EVENT_STARTED));
    if (state == RUN_LOADING)
        return;
    world->now_ns = world->run.wake_ns;
    run_world_step(world, run_world_event(world, RUN_EVENT_TICK));
    for (unsigned i = 0; i < 100 && world->run.state < state && world->run.state < RUN_ARMED; i++) {
        if (!answer_effects(world)) {
            world->now_ns = world->run.wake_ns;
            run_world_step(world, run_world_event(world, RUN_EVENT_TICK));
        }
    }
    if (state == RUN_DUMPING || state == RUN_SEALING) {
        run_world_step(world, run_world_event(world, RUN_EVENT_DUMP));
        run_world_settle(world, 100);
    }
    if (state == RUN_SEALING)
        run_world_step(world, run_world_event(world, RUN_EVENT_PAUSE));
    if (state == RUN_STOPPING || state == RUN_ENDED)
        run_world_step(world, run_world_event(world, RUN_EVENT_STOP));
    if (state == RUN_ENDED)
        run_world_settle(world, 100);
    assert_int_equal(world->run.state, state);
}

struct run_event run_world_event(struct run_world *world, enum run_event_kind kind)
{
    static const struct server_line line = {.kind = SERVER_LINE_CAUSE, .text = "out of memory"};
    static struct server_answer answer = {.question = SERVER_STATE, .ok = true, .http_status = 200, .rank_count = 1};
    static const struct server_judgement judgement = {.verdict = SERVER_PROVEN, .text = "seen"};
    return (struct run_event){.kind = kind,
                              .number = kind == RUN_EVENT_DUMP || kind == RUN_EVENT_PAUSE ? 77
                                        : kind == RUN_EVENT_RESUMED                       ? 5000000000
                                                                                          : world->run.number,
                              .text = kind == RUN_EVENT_DUMP ? "dec" : NULL,
                              .pid = 4242,
                              .exit_code = 3,
                              .signal = -1,
                              .space = SPACE_SOFT,
                              .written_bytes = 1000,
                              .listener = RUN_LISTENER_OWN,
                              .ok = true,
                              .complete = true,
                              .wait_idle_ms = 30000,
                              .line = &line,
                              .answer = &answer,
                              .judgement = &judgement};
}

void run_world_ends(struct run_world *world, uint64_t ms, enum run_outcome outcome, const char *message)
{
    run_world_live(world, ms);
    assert_int_equal(world->run.state, RUN_ENDED);
    assert_int_equal(world->run.outcome, outcome);
    if (strstr(world->run.message, message) == NULL)
        fail_msg("'%s' is not in: %s", message, world->run.message);
}

void run_world_is_sealed(struct run_world *world, uint64_t ms, enum run_sealed_by by, const char *disturbance)
{
    run_world_live(world, ms);
    assert_int_equal(world->run.state, RUN_ARMED);
    assert_int_equal(world->run.sealed_by, by);
    assert_int_equal(world->done[RUN_DO_SEAL], 1);
    assert_false(world->enabled);
    if (disturbance == NULL)
        return;
    bool quiet = disturbance[0] == '\0';
    if (quiet ? world->run.disturbance[0] != '\0' : strstr(world->run.disturbance, disturbance) == NULL)
        fail_msg("'%s' is not in: %s", disturbance, world->run.disturbance);
    assert_int_equal(run_world_noted(world, "is sealed and complete"), quiet ? 1 : 0);
}
