/* The run machine: every state x event, and each path that an issue or a fact names, under a virtual clock. */
#include "run_world.h"

#include <limits.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

static struct run_world world;

static void test_happy_path(void **state)
{
    (void)state;
    run_world_reach(&world, RUN_ARMED);
    assert_true(world.run.was_armed);
    assert_int_equal(world.asked[SERVER_PROBE], 1);
    assert_int_equal(world.done[RUN_DO_DISCARD], 1);
    assert_false(world.enabled);
    run_world_step(&world, run_world_event(&world, RUN_EVENT_DUMP));
    run_world_settle(&world, 50);
    assert_int_equal(world.run.state, RUN_DUMPING);
    assert_true(world.enabled);
    assert_string_equal(world.experiment, "dec");
    assert_int_equal(world.reply_code, ERROR_NONE);
    assert_int_equal(world.reply_number, 77);
    world.step += 8;
    world.dump_index += 8 * 123;
    struct run_event pause = run_world_event(&world, RUN_EVENT_PAUSE);
    pause.number = 78;
    run_world_step(&world, pause);
    run_world_settle(&world, 50);
    assert_int_equal(world.run.state, RUN_ARMED);
    assert_false(world.enabled);
    assert_int_equal(world.done[RUN_DO_SEAL], 1);
    assert_int_equal(world.reply_number, 78);
    assert_int_equal(world.run.last.rank[0].step - world.run.base.rank[0].step, 8);
    assert_true(world.run.counts_exact);
    run_world_step(&world, run_world_event(&world, RUN_EVENT_STOP));
    run_world_settle(&world, 50);
    assert_int_equal(world.run.state, RUN_ENDED);
    assert_int_equal(world.run.outcome, RUN_OUTCOME_STOPPED);
    assert_int_equal(run_exit_status(&world.run), 0);
}

/* Events of one kind that differ in what they ask of the machine: the number of them, and the one with this number. */
static unsigned variants(enum run_event_kind kind)
{
    static const unsigned counts[RUN_EVENTS] = {
        [RUN_EVENT_EXITED] = 3, [RUN_EVENT_EXEC_FAILED] = 2, [RUN_EVENT_LISTENER] = 3, [RUN_EVENT_ANSWER] = 6,
        [RUN_EVENT_JUDGED] = 3, [RUN_EVENT_AUDITED] = 3,     [RUN_EVENT_SPACE] = 4,    [RUN_EVENT_SURVEY] = 3,
        [RUN_EVENT_DUMP] = 4,   [RUN_EVENT_STOP] = 2,        [RUN_EVENT_LINE] = 6,     [RUN_EVENT_RESUMED] = 2,
    };
    return counts[kind] == 0 ? 1 : counts[kind];
}

static void vary_answer(struct run_event *event, unsigned variant)
{
    static struct server_answer answer;
    answer = (struct server_answer){.question = SERVER_STATE, .ok = variant > 1, .rank_count = variant % 2 + 1};
    answer.http_status = variant == 0 ? 0 : variant == 1 ? 500 : 200;
    answer.rank[0].enabled = answer.rank[1].enabled = variant >= 4;
    answer.rank[0].dump_index = answer.rank[0].step = variant > 2 ? 100000 : 0;
    snprintf(answer.rank[0].experiment, sizeof answer.rank[0].experiment, variant == 5 ? "../x" : "theirs");
    event->answer = &answer;
}

static struct run_event vary(struct run_event event, unsigned variant)
{
    static struct server_judgement judgement;
    static struct server_line line;
    judgement = (struct server_judgement){.verdict = (enum server_verdict)variant, .setting = "x", .text = "as judged"};
    line = (struct server_line){.kind = (enum server_line_kind)variant, .text = "words"};
    event.judgement = &judgement;
    event.line = &line;
    event.again = event.kind == RUN_EVENT_EXITED && variant == 1;
    event.exit_code = event.kind == RUN_EVENT_EXITED && variant == 2 ? 0 : event.exit_code;
    event.listener = (enum run_listener)(variant % 3);
    event.ok = variant != 1;
    event.complete = variant == 0;
    event.space = variant == 3 ? SPACE_UNMEASURABLE : (enum space_level)(variant % 3);
    event.written_bytes = variant * 1000;
    event.busy = variant == 1;
    event.for_ms = variant == 1 ? 1000 : 0;
    event.passes = variant == 2 ? 3 : 0;
    event.hold = variant == 3;
    event.now = variant == 1;
    if (event.kind == RUN_EVENT_ANSWER)
        vary_answer(&event, variant);
    if (event.kind == RUN_EVENT_EXEC_FAILED)
        event.number = variant == 0 ? 2 : 0;
    if (event.kind == RUN_EVENT_RESUMED && variant == 1)
        event.number = UINT64_MAX / 2;
    return event;
}

/* Every cell, with every variant: the machine takes any event in any state, keeps its invariants, and still reaches its
 * end. */
static void test_every_state_and_event(void **state)
{
    (void)state;
    unsigned cells = 0;
    for (int s = 0; s < RUN_STATES; s++)
        for (int e = 0; e < RUN_EVENTS; e++, cells++)
            for (unsigned v = 0; v < variants((enum run_event_kind)e); v++) {
                run_world_reach_with(&world, (enum run_state)s, 2);
                world.run.settings.budget_bytes = 2000;
                run_world_step(&world, vary(run_world_event(&world, (enum run_event_kind)e), v));
                run_world_settle(&world, 200);
                run_world_step(&world, (struct run_event){.kind = RUN_EVENT_STOP, .now = true});
                run_world_settle(&world, 200);
                run_world_step(&world, (struct run_event){.kind = RUN_EVENT_GONE});
                run_world_settle(&world, 200);
                assert_int_equal(world.run.state, RUN_ENDED);
            }
    assert_int_equal(cells, RUN_STATES * RUN_EVENTS);
}

/* What each state does with each event, written out a second time: the state that follows at once. One letter each: L
 * launching, o loading, w warming, v verifying, a armed, d dumping, s sealing, r ready, t stopping, e ended. A row's
 * columns are the states in which it comes. */
static void test_states_that_follow(void **state)
{
    (void)state;
    static const char letters[] = "Lowvadsrte";
    static const struct {
        enum run_event_kind kind;
        unsigned variant;
        const char *follows;
    } rows[] = {
        {RUN_EVENT_STARTED, 0, "oowvadsrte"},     {RUN_EVENT_EXEC_FAILED, 0, "towvadsrte"},
        {RUN_EVENT_EXITED, 0, "ttttttttte"},      {RUN_EVENT_EXITED, 1, "LLttttttte"},
        {RUN_EVENT_GONE, 0, "eeeeetteee"},        {RUN_EVENT_UNKILLABLE, 0, "eeeeetteee"},
        {RUN_EVENT_KEEPER_LOST, 0, "ttttttttte"}, {RUN_EVENT_LISTENER, 0, "Lowvadsrte"},
        {RUN_EVENT_LISTENER, 1, "Lwwvadsrte"},    {RUN_EVENT_LISTENER, 2, "Ltwvadsrte"},
        {RUN_EVENT_LINE, 1, "Lowvadsrte"},        {RUN_EVENT_TICK, 0, "Lowvadsrte"},
        {RUN_EVENT_FLOOR, 0, "ttttttttte"},       {RUN_EVENT_SPACE, 0, "Lowvadsrte"},
        {RUN_EVENT_SPACE, 1, "Lowvadsrte"},       {RUN_EVENT_SPACE, 2, "Lowvassrte"},
        {RUN_EVENT_SPACE, 3, "Lowvadsrte"},       {RUN_EVENT_SURVEY, 0, "Lowvadsrte"},
        {RUN_EVENT_SURVEY, 1, "Lowvadsrte"},      {RUN_EVENT_SURVEY, 2, "Lowvassrte"},
        {RUN_EVENT_SUSPEND, 0, "Lowvadsrte"},     {RUN_EVENT_RESUMED, 0, "Lowvadsrte"},
        {RUN_EVENT_DUMP, 0, "Lowvadsrte"},        {RUN_EVENT_PAUSE, 0, "Lowvassrte"},
        {RUN_EVENT_STOP, 0, "tttttsstte"},        {RUN_EVENT_STOP, 1, "ttttttttte"},
        {RUN_EVENT_INTERRUPT, 0, "tttttsstte"},   {RUN_EVENT_HOLDER_GONE, 0, "Lowvadsrte"},
    };
    bool kinds[RUN_EVENTS] = {false};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        kinds[rows[i].kind] = true;
        for (int s = 0; s < RUN_STATES; s++) {
            run_world_reach_with(&world, (enum run_state)s, 2);
            world.run.settings.budget_bytes = 2000;
            run_world_step(&world, vary(run_world_event(&world, rows[i].kind), rows[i].variant));
            char found = letters[world.run.state], expected = rows[i].follows[s];
            if (found != expected)
                fail_msg("event %d.%u in %s: %s", rows[i].kind, rows[i].variant, run_state_name((enum run_state)s),
                         run_state_name(world.run.state));
        }
    }
    for (int e = 0; e < RUN_EVENTS; e++) /* answers depend on the question: they have tests of their own */
        assert_true(kinds[e] || e == RUN_EVENT_ANSWER || e == RUN_EVENT_JUDGED || e == RUN_EVENT_AUDITED);
}

static void expect_end(enum run_outcome outcome, int status)
{
    run_world_settle(&world, 3000);
    assert_int_equal(world.run.state, RUN_ENDED);
    assert_int_equal(world.run.outcome, outcome);
    assert_int_equal(run_exit_status(&world.run), status);
    assert_true(world.run.message[0] != '\0');
}

static void test_death_in_each_state(void **state)
{
    (void)state;
    for (int s = RUN_LAUNCHING; s < RUN_STOPPING; s++) {
        run_world_reach(&world, (enum run_state)s);
        unsigned seals = world.done[RUN_DO_SEAL];
        bool open = world.run.experiment[0] != '\0';
        run_world_step(&world, run_world_event(&world, RUN_EVENT_EXITED)); /* exit code 3 */
        assert_int_equal(world.run.state, RUN_STOPPING);
        assert_int_equal(world.done[RUN_DO_KILL], 1);
        if (s < RUN_ARMED)
            expect_end(RUN_OUTCOME_START_FAILED, STATUS_NOT_ARMED);
        else
            expect_end(RUN_OUTCOME_SERVER_EXITED, 3);
        assert_int_equal(world.done[RUN_DO_SEAL] - seals, open ? 1 : 0);
        if (open)
            assert_int_equal(world.run.sealed_by, RUN_SEALED_BY_DEATH);
    }
}

static void test_floor_in_each_state(void **state)
{
    (void)state;
    for (int s = RUN_LAUNCHING; s < RUN_ENDED; s++) {
        run_world_reach(&world, (enum run_state)s);
        run_world_step(&world, run_world_event(&world, RUN_EVENT_FLOOR));
        assert_true(world.done[RUN_DO_KILL] >= 1);
        expect_end(RUN_OUTCOME_FLOOR, STATUS_FLOOR);
    }
}

static void test_floor_upgrades_a_stop_under_way(void **state)
{
    (void)state;
    run_world_reach(&world, RUN_DUMPING);
    run_world_step(&world, run_world_event(&world, RUN_EVENT_INTERRUPT));
    assert_int_equal(world.run.state, RUN_SEALING);
    assert_int_equal(world.done[RUN_DO_KILL], 0);
    run_world_step(&world, run_world_event(&world, RUN_EVENT_FLOOR));
    assert_int_equal(world.done[RUN_DO_KILL], 1);
    expect_end(RUN_OUTCOME_FLOOR, STATUS_FLOOR);
}

static void test_interrupt_seals_then_kills(void **state)
{
    (void)state;
    run_world_reach(&world, RUN_DUMPING);
    run_world_step(&world, run_world_event(&world, RUN_EVENT_INTERRUPT));
    run_world_settle(&world, 100);
    assert_int_equal(world.done[RUN_DO_SEAL], 1);
    assert_int_equal(world.run.sealed_by, RUN_SEALED_BY_STOP);
    expect_end(RUN_OUTCOME_STOPPED, STATUS_INTERRUPTED);

    run_world_reach(&world, RUN_DUMPING);
    run_world_step(&world, run_world_event(&world, RUN_EVENT_INTERRUPT));
    run_world_step(&world, run_world_event(&world, RUN_EVENT_INTERRUPT));
    assert_int_equal(world.run.state, RUN_STOPPING);
    assert_int_equal(world.done[RUN_DO_KILL], 1);
    expect_end(RUN_OUTCOME_STOPPED, STATUS_INTERRUPTED);

    for (int s = RUN_LAUNCHING; s < RUN_ENDED; s++) {
        run_world_reach(&world, (enum run_state)s);
        struct run_event quit = {.kind = RUN_EVENT_INTERRUPT, .now = true};
        run_world_step(&world, quit);
        assert_true(world.done[RUN_DO_KILL] >= 1);
        expect_end(RUN_OUTCOME_STOPPED, STATUS_INTERRUPTED);
    }
}

/* Whatever ends a run while it is verified, the probe's files go; only where they failed to prove are they kept. */
static void test_probe_that_is_cut_short_is_discarded(void **state)
{
    (void)state;
    for (int e = 0; e < 3; e++) {
        static const enum run_event_kind kinds[] = {RUN_EVENT_INTERRUPT, RUN_EVENT_FLOOR, RUN_EVENT_EXITED};
        run_world_reach(&world, RUN_VERIFYING);
        while (world.asked[SERVER_PROBE] == 0)
            run_world_settle(&world, 1);
        run_world_step(&world, run_world_event(&world, kinds[e]));
        run_world_settle(&world, 100);
        assert_int_equal(world.run.state, RUN_ENDED);
        assert_int_equal(world.done[RUN_DO_DISCARD], 1);
    }
    run_world_reach(&world, RUN_LOADING);
    run_world_step(&world, run_world_event(&world, RUN_EVENT_INTERRUPT));
    run_world_settle(&world, 100);
    assert_int_equal(world.done[RUN_DO_DISCARD], 0);
}

static void test_start_timeout(void **state)
{
    (void)state;
    for (int s = RUN_LAUNCHING; s < RUN_ARMED; s++) {
        run_world_reach(&world, (enum run_state)s);
        world.now_ns = world.run.launched_ns + 600001 * 1000000ull;
        run_world_step(&world, run_world_event(&world, RUN_EVENT_TICK));
        expect_end(RUN_OUTCOME_START_TIMEOUT, STATUS_NOT_ARMED);
    }
}

static void test_term_ignored(void **state)
{
    (void)state;
    run_world_reach(&world, RUN_ARMED);
    run_world_step(&world, run_world_event(&world, RUN_EVENT_STOP));
    assert_int_equal(world.done[RUN_DO_TERM], 1);
    uint64_t asked_at = world.now_ns;
    world.now_ns = world.run.wake_ns;
    assert_int_equal(world.now_ns - asked_at, 7500 * 1000000ull);
    run_world_step(&world, run_world_event(&world, RUN_EVENT_TICK));
    assert_int_equal(world.done[RUN_DO_TERM_GROUP], 1);
    world.now_ns = world.run.wake_ns;
    assert_int_equal(world.now_ns - asked_at, 10000 * 1000000ull); /* the stop timeout, all in all */
    run_world_step(&world, run_world_event(&world, RUN_EVENT_TICK));
    assert_int_equal(world.done[RUN_DO_KILL], 1);
    expect_end(RUN_OUTCOME_STOPPED, 0);
}

static void test_kill_that_does_not_help(void **state)
{
    (void)state;
    run_world_reach(&world, RUN_DUMPING);
    run_world_step(&world, (struct run_event){.kind = RUN_EVENT_STOP, .now = true, .text = "somebody"});
    run_world_step(&world, (struct run_event){.kind = RUN_EVENT_UNKILLABLE, .text = "pid 7 (python) in state D"});
    expect_end(RUN_OUTCOME_UNKILLABLE, STATUS_UNKILLABLE);
    assert_non_null(strstr(world.run.message, "pid 7"));
}

static void spoil_confirm(struct run_world *w, struct server_answer *answer)
{
    if (answer->question == SERVER_STATE && w->enabled)
        answer->rank[0].enabled = false;
}

static void spoil_enable(struct run_world *w, struct server_answer *answer)
{
    (void)w;
    if (answer->question == SERVER_ENABLE) {
        answer->ok = false;
        snprintf(answer->problem, sizeof answer->problem, "400 as spoilt");
    }
}

static void test_verify_failures(void **state)
{
    (void)state;
    run_world_reach(&world, RUN_WARMING);
    snprintf(world.wrong_setting, sizeof world.wrong_setting, "mode is core, expected all");
    expect_end(RUN_OUTCOME_VERIFY_FAILED, STATUS_UNVERIFIED);
    run_world_reach(&world, RUN_WARMING);
    world.dump_index = 984; /* somebody enabled it at boot */
    expect_end(RUN_OUTCOME_VERIFY_FAILED, STATUS_UNVERIFIED);
    run_world_reach(&world, RUN_WARMING);
    world.graphs_on = true;
    expect_end(RUN_OUTCOME_VERIFY_FAILED, STATUS_UNVERIFIED);
    run_world_reach(&world, RUN_WARMING);
    world.requests = 2; /* never idle */
    expect_end(RUN_OUTCOME_VERIFY_FAILED, STATUS_UNVERIFIED);
    run_world_reach(&world, RUN_WARMING);
    world.verdict = SERVER_FAILED;
    expect_end(RUN_OUTCOME_VERIFY_FAILED, STATUS_UNVERIFIED);
    assert_int_equal(world.done[RUN_DO_DISCARD], 0);
    run_world_reach(&world, RUN_WARMING);
    world.spoil = spoil_confirm;
    expect_end(RUN_OUTCOME_VERIFY_FAILED, STATUS_UNVERIFIED);
    assert_int_equal(world.asked[SERVER_PROBE], 0);
    run_world_reach(&world, RUN_WARMING);
    world.spoil = spoil_enable;
    expect_end(RUN_OUTCOME_VERIFY_FAILED, STATUS_UNVERIFIED);
}

static unsigned loads_to_spoil;

static void spoil_first_loads(struct run_world *w, struct server_answer *answer)
{
    (void)w;
    if (answer->question == SERVER_LOAD && loads_to_spoil > 0) {
        loads_to_spoil--;
        answer->ok = false;
        snprintf(answer->problem, sizeof answer->problem, "an empty list");
    }
}

/* SGLang 0.5.23, live: right after it is ready, the snapshot behind /v1/loads may still be empty. */
static void test_a_load_that_is_not_counted_yet(void **state)
{
    (void)state;
    loads_to_spoil = 3;
    run_world_reach(&world, RUN_WARMING);
    world.spoil = spoil_first_loads;
    run_world_settle(&world, 200);
    assert_int_equal(world.run.state, RUN_ARMED);
    assert_int_equal(loads_to_spoil, 0);
    loads_to_spoil = UINT_MAX;
    run_world_reach(&world, RUN_WARMING);
    world.spoil = spoil_first_loads;
    expect_end(RUN_OUTCOME_VERIFY_FAILED, STATUS_UNVERIFIED);
    assert_non_null(strstr(world.run.message, "an empty list"));
}

static void test_dump_refusals(void **state)
{
    (void)state;
    run_world_reach(&world, RUN_LOADING);
    run_world_step(&world, run_world_event(&world, RUN_EVENT_DUMP));
    assert_int_equal(world.reply_code, ERROR_STATE);
    run_world_reach(&world, RUN_DUMPING);
    run_world_step(&world, run_world_event(&world, RUN_EVENT_DUMP));
    assert_int_equal(world.reply_code, ERROR_BUSY);
    run_world_reach(&world, RUN_ARMED);
    run_world_step(&world, run_world_event(&world, RUN_EVENT_PAUSE));
    assert_int_equal(world.reply_code, ERROR_STATE);

    run_world_reach(&world, RUN_ARMED);
    world.requests = 1;
    run_world_step(&world, run_world_event(&world, RUN_EVENT_DUMP));
    for (int i = 0; i < 400 && world.run.dump_request != 0; i++) {
        run_world_settle(&world, 1);
        if (world.run.wake_ns != UINT64_MAX && !world.run.waiting) {
            world.now_ns = world.run.wake_ns;
            run_world_step(&world, run_world_event(&world, RUN_EVENT_TICK));
        }
    }
    assert_int_equal(world.reply_code, ERROR_BUSY);
    assert_int_equal(world.run.state, RUN_ARMED);
    assert_int_equal(world.asked[SERVER_ENABLE], 1); /* the probe's */
}

static void test_dump_enable_fails(void **state)
{
    (void)state;
    run_world_reach(&world, RUN_ARMED);
    world.spoil = spoil_enable;
    run_world_step(&world, run_world_event(&world, RUN_EVENT_DUMP));
    run_world_settle(&world, 100);
    assert_int_equal(world.reply_code, ERROR_SERVER);
    assert_int_equal(world.run.state, RUN_ARMED);
    assert_int_equal(world.done[RUN_DO_SEAL], 1); /* part of the ranks may have written */
}

static void test_holder_gone(void **state)
{
    (void)state;
    run_world_reach(&world, RUN_ARMED);
    struct run_event dump = run_world_event(&world, RUN_EVENT_DUMP);
    dump.hold = true;
    run_world_step(&world, dump);
    run_world_settle(&world, 50);
    assert_int_equal(world.run.state, RUN_DUMPING);
    run_world_step(&world, run_world_event(&world, RUN_EVENT_HOLDER_GONE));
    run_world_settle(&world, 50);
    assert_int_equal(world.run.state, RUN_ARMED);
    assert_false(world.enabled);
    run_world_reach(&world, RUN_DUMPING); /* not held: goes on */
    run_world_step(&world, run_world_event(&world, RUN_EVENT_HOLDER_GONE));
    assert_int_equal(world.run.state, RUN_DUMPING);
}

static void spoil_disable(struct run_world *w, struct server_answer *answer)
{
    (void)w;
    if (answer->question == SERVER_DISABLE)
        answer->ok = false;
}

static void test_dump_that_cannot_be_switched_off(void **state)
{
    (void)state;
    run_world_reach(&world, RUN_DUMPING);
    world.spoil = spoil_disable;
    run_world_step(&world, run_world_event(&world, RUN_EVENT_PAUSE));
    run_world_settle(&world, 1000);
    assert_int_equal(world.run.state, RUN_ENDED);
    assert_int_equal(world.run.outcome, RUN_OUTCOME_CONTROL_LOST);
    assert_int_equal(run_exit_status(&world.run), STATUS_LOST);
}

static void spoil_off(struct run_world *w, struct server_answer *answer)
{
    if (answer->question == SERVER_STATE && w->run.state == RUN_SEALING && w->asked[SERVER_DISABLE] == 2)
        answer->rank[0].enabled = true; /* the probe's disable was the first; an enable came late */
}

static void test_dump_that_comes_on_again_is_switched_off_again(void **state)
{
    (void)state;
    run_world_reach(&world, RUN_DUMPING);
    world.spoil = spoil_off;
    run_world_step(&world, run_world_event(&world, RUN_EVENT_PAUSE));
    run_world_settle(&world, 100);
    assert_int_equal(world.run.state, RUN_ARMED);
    assert_int_equal(world.asked[SERVER_DISABLE], 3);
    assert_int_equal(world.done[RUN_DO_SEAL], 1);
}

static void spoil_always_on(struct run_world *w, struct server_answer *answer)
{
    if (answer->question == SERVER_STATE && w->run.state == RUN_SEALING)
        answer->rank[0].enabled = true;
}

static void test_dump_that_comes_on_for_ever_ends_the_run(void **state)
{
    (void)state;
    run_world_reach(&world, RUN_DUMPING);
    world.spoil = spoil_always_on;
    run_world_step(&world, run_world_event(&world, RUN_EVENT_PAUSE));
    expect_end(RUN_OUTCOME_CONTROL_LOST, STATUS_LOST);
}

/* The audit after a death may hang on a dead disk: whoever asks twice is not held by it. */
static void test_last_audit_can_be_given_up(void **state)
{
    (void)state;
    for (int by = 0; by < 2; by++) {
        run_world_reach(&world, RUN_DUMPING);
        run_world_step(&world, run_world_event(&world, RUN_EVENT_EXITED));
        run_world_step(&world, run_world_event(&world, RUN_EVENT_GONE));
        assert_int_equal(world.done[RUN_DO_CHECK], 2); /* the probe's was the first */
        run_world_step(&world, run_world_event(&world, RUN_EVENT_INTERRUPT));
        assert_int_equal(world.run.state, RUN_STOPPING);
        if (by == 0)
            run_world_step(&world, run_world_event(&world, RUN_EVENT_INTERRUPT));
        else
            run_world_step(&world, (struct run_event){.kind = RUN_EVENT_STOP, .now = true});
        assert_int_equal(world.run.state, RUN_ENDED);
        assert_int_equal(world.done[RUN_DO_SEAL], 0);
        expect_end(RUN_OUTCOME_SERVER_EXITED, 3);
    }
}

static void test_late_answers_are_ignored(void **state)
{
    (void)state;
    run_world_reach(&world, RUN_DUMPING);
    struct run_event late = run_world_event(&world, RUN_EVENT_ANSWER);
    late.number = world.run.number - 1;
    struct run before = world.run;
    run_world_step(&world, late);
    assert_int_equal(world.effects.count, 0);
    assert_int_equal(world.run.step, before.step);
    assert_int_equal(world.run.waiting, before.waiting);
}

static void test_exit_statuses(void **state)
{
    (void)state;
    run_world_reach(&world, RUN_ARMED);
    run_world_step(&world, (struct run_event){.kind = RUN_EVENT_EXITED, .exit_code = 0, .signal = -1});
    expect_end(RUN_OUTCOME_COMPLETED, 0);
    run_world_reach(&world, RUN_ARMED);
    run_world_step(&world, (struct run_event){.kind = RUN_EVENT_EXITED, .exit_code = -1, .signal = 9});
    expect_end(RUN_OUTCOME_SERVER_EXITED, 137);
    run_world_reach(&world, RUN_LAUNCHING);
    run_world_step(&world, (struct run_event){.kind = RUN_EVENT_EXEC_FAILED, .number = 2, .text = "nosuch: not found"});
    expect_end(RUN_OUTCOME_START_FAILED, 127);
    run_world_reach(&world, RUN_LAUNCHING);
    run_world_step(&world, (struct run_event){.kind = RUN_EVENT_EXEC_FAILED, .number = 13, .text = "x: denied"});
    expect_end(RUN_OUTCOME_START_FAILED, 126);
    run_world_reach(&world, RUN_LAUNCHING); /* a rehearsed kill that took so long that the disk is too small */
    run_world_step(&world, (struct run_event){
                               .kind = RUN_EVENT_EXEC_FAILED, .exit_code = STATUS_FORBIDDEN, .text = "the kill level"});
    expect_end(RUN_OUTCOME_START_FAILED, STATUS_FORBIDDEN);
    run_world_reach(&world, RUN_LOADING);
    run_world_step(&world,
                   (struct run_event){.kind = RUN_EVENT_LISTENER, .listener = RUN_LISTENER_FOREIGN, .text = "pid 1"});
    expect_end(RUN_OUTCOME_START_FAILED, STATUS_NOT_ARMED);
    run_world_reach(&world, RUN_DUMPING);
    run_world_step(&world, run_world_event(&world, RUN_EVENT_KEEPER_LOST));
    expect_end(RUN_OUTCOME_GUARD_LOST, STATUS_LOST);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_happy_path),
        cmocka_unit_test(test_every_state_and_event),
        cmocka_unit_test(test_states_that_follow),
        cmocka_unit_test(test_death_in_each_state),
        cmocka_unit_test(test_floor_in_each_state),
        cmocka_unit_test(test_floor_upgrades_a_stop_under_way),
        cmocka_unit_test(test_interrupt_seals_then_kills),
        cmocka_unit_test(test_probe_that_is_cut_short_is_discarded),
        cmocka_unit_test(test_start_timeout),
        cmocka_unit_test(test_term_ignored),
        cmocka_unit_test(test_kill_that_does_not_help),
        cmocka_unit_test(test_verify_failures),
        cmocka_unit_test(test_a_load_that_is_not_counted_yet),
        cmocka_unit_test(test_dump_refusals),
        cmocka_unit_test(test_dump_enable_fails),
        cmocka_unit_test(test_holder_gone),
        cmocka_unit_test(test_dump_that_cannot_be_switched_off),
        cmocka_unit_test(test_dump_that_comes_on_again_is_switched_off_again),
        cmocka_unit_test(test_dump_that_comes_on_for_ever_ends_the_run),
        cmocka_unit_test(test_last_audit_can_be_given_up),
        cmocka_unit_test(test_late_answers_are_ignored),
        cmocka_unit_test(test_exit_statuses),
    };
    return cmocka_run_group_tests_name("run", tests, NULL, NULL);
}
