/* The run machine: launched again with another spelling, suspended and resumed. */
#include "run_world.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

static struct run_world world;

static void exit_again(void)
{
    run_world_step(&world, (struct run_event){.kind = RUN_EVENT_EXITED,
                                              .exit_code = 2,
                                              .signal = -1,
                                              .again = true,
                                              .text = "--disable-prefill-cuda-graph instead"});
}

static void test_again(void **state)
{
    (void)state;
    for (int s = RUN_LAUNCHING; s <= RUN_LOADING; s++) {
        run_world_reach(&world, (enum run_state)s);
        uint64_t launched_ns = world.run.launched_ns;
        exit_again();
        assert_int_equal(world.run.state, RUN_LAUNCHING);
        assert_int_equal(world.done[RUN_DO_KILL], 1);
        assert_int_equal(world.done[RUN_DO_LAUNCH], 0);
        assert_int_equal(run_world_noted(&world, "--disable-prefill-cuda-graph instead"), 1);
        run_world_step(&world, run_world_event(&world, RUN_EVENT_LISTENER)); /* a late answer */
        run_world_step(&world, run_world_event(&world, RUN_EVENT_STARTED));
        assert_int_equal(world.run.state, RUN_LAUNCHING);
        run_world_settle(&world, 1); /* gone */
        assert_int_equal(world.done[RUN_DO_LAUNCH], 1);
        assert_int_equal(world.run.state, RUN_LAUNCHING);
        assert_int_equal(world.run.pid, 0);
        assert_false(world.run.gone || world.run.exited);
        assert_int_equal(world.run.exit_code, -1);
        assert_int_equal(world.run.launched_ns, launched_ns);
        run_world_step(&world, run_world_event(&world, RUN_EVENT_STARTED));
        run_world_live(&world, 5000);
        assert_int_equal(world.run.state, RUN_ARMED);
    }
}

static void test_again_is_for_the_start(void **state)
{
    (void)state;
    for (int s = RUN_WARMING; s < RUN_ENDED; s++) {
        run_world_reach(&world, (enum run_state)s);
        exit_again();
        run_world_live(&world, 60000);
        assert_int_equal(world.run.state, RUN_ENDED);
        assert_int_equal(world.done[RUN_DO_LAUNCH], 0);
    }
}

static void expect_end(enum run_outcome outcome)
{
    run_world_live(&world, 90000);
    assert_int_equal(world.run.state, RUN_ENDED);
    assert_int_equal(world.run.outcome, outcome);
    assert_int_equal(world.done[RUN_DO_LAUNCH], 0);
}

static void test_again_that_is_cut_short(void **state)
{
    (void)state;
    run_world_reach(&world, RUN_LOADING);
    exit_again();
    run_world_step(&world, run_world_event(&world, RUN_EVENT_INTERRUPT));
    expect_end(RUN_OUTCOME_STOPPED);
    run_world_reach(&world, RUN_LOADING);
    exit_again();
    run_world_step(&world, run_world_event(&world, RUN_EVENT_UNKILLABLE));
    expect_end(RUN_OUTCOME_UNKILLABLE);
    run_world_reach(&world, RUN_LOADING); /* the end of the first try is never reported, not even of a second kill */
    exit_again();
    for (int i = 0; i < 2; i++) {
        world.now_ns = world.run.wake_ns;
        run_world_step(&world, (struct run_event){.kind = RUN_EVENT_TICK});
    }
    assert_int_equal(world.done[RUN_DO_KILL], 2);
    expect_end(RUN_OUTCOME_UNKILLABLE);
}

static void test_start_timeout_goes_on_counting(void **state)
{
    (void)state;
    run_world_reach(&world, RUN_LOADING);
    exit_again();
    world.now_ns = world.run.launched_ns + 599999 * 1000000ull;
    run_world_settle(&world, 1); /* gone */
    world.now_ns += 2000000;
    assert_true(world.run.wake_ns <= world.now_ns);
    run_world_step(&world, (struct run_event){.kind = RUN_EVENT_TICK});
    run_world_live(&world, 1000);
    assert_int_equal(world.run.outcome, RUN_OUTCOME_START_TIMEOUT);
}

static void test_suspend(void **state)
{
    (void)state;
    for (int s = RUN_LAUNCHING; s <= RUN_ENDED; s++) {
        run_world_reach(&world, (enum run_state)s);
        run_world_step(&world, (struct run_event){.kind = RUN_EVENT_SUSPEND});
        bool refused = s == RUN_LAUNCHING || s == RUN_VERIFYING || s == RUN_ENDED;
        assert_int_equal(world.done[RUN_DO_SUSPEND], refused ? 0 : 1);
        assert_int_equal(run_world_noted(&world, "cannot be suspended now"), refused && s != RUN_ENDED ? 1 : 0);
    }
    run_world_reach(&world, RUN_DUMPING);
    run_world_step(&world, run_world_event(&world, RUN_EVENT_FLOOR));
    run_world_step(&world, (struct run_event){.kind = RUN_EVENT_SUSPEND});
    assert_int_equal(world.done[RUN_DO_SUSPEND], 0);
    assert_int_equal(run_world_noted(&world, "the run is at its end and cannot be suspended now"), 1);
}

static void resume(uint64_t ms)
{
    world.now_ns += ms * 1000000;
    run_world_step(&world, (struct run_event){.kind = RUN_EVENT_RESUMED, .number = ms * 1000000});
}

static void test_resumed_shifts_what_is_due(void **state)
{
    (void)state;
    run_world_reach(&world, RUN_LOADING);
    uint64_t wake_ns = world.run.wake_ns, hour_ms = 3600000;
    resume(hour_ms);
    assert_int_equal(world.run.wake_ns, wake_ns + hour_ms * 1000000);
    run_world_step(&world, (struct run_event){.kind = RUN_EVENT_TICK});
    assert_int_equal(world.run.state, RUN_LOADING); /* no start timeout */

    run_world_reach(&world, RUN_STOPPING);
    uint64_t limit_ns = world.run.limit_ns;
    resume(hour_ms);
    assert_int_equal(world.run.limit_ns, limit_ns + hour_ms * 1000000);

    run_world_reach(&world, RUN_ARMED);
    struct run_event dump = run_world_event(&world, RUN_EVENT_DUMP);
    dump.for_ms = 30000;
    run_world_step(&world, dump);
    run_world_live(&world, 10000);
    run_world_space(&world, SPACE_UNMEASURABLE);
    world.mute = true;
    run_world_live(&world, 5000);
    resume(hour_ms);
    assert_true(world.run.wake_ns > world.now_ns);
    run_world_live(&world, 4900);
    assert_int_equal(world.run.state, RUN_DUMPING); /* neither blind for too long nor lost nor at its end */
    run_world_live(&world, 200);
    assert_int_equal(world.run.outcome, RUN_OUTCOME_FLOOR);

    run_world_reach(&world, RUN_DUMPING); /* a kill while we were away: its limit counts from now */
    run_world_step(&world, run_world_event(&world, RUN_EVENT_FLOOR));
    limit_ns = world.run.limit_ns;
    resume(hour_ms);
    assert_int_equal(world.run.limit_ns, limit_ns);
}

static void fail_answer(void)
{
    static struct server_answer answer = {.ok = false, .problem = "no answer: time limit"};
    run_world_step(&world, (struct run_event){.kind = RUN_EVENT_ANSWER, .number = world.run.number, .answer = &answer});
}

/* A question that failed for having been frozen is asked again: here the enable of a dump. */
static void test_question_that_was_frozen(void **state)
{
    (void)state;
    for (int frozen = 1; frozen >= 0; frozen--) {
        run_world_reach(&world, RUN_ARMED);
        run_world_step(&world, run_world_event(&world, RUN_EVENT_DUMP));
        while (world.run.state != RUN_DUMPING)
            run_world_settle(&world, 1);
        unsigned asked = world.asked[SERVER_ENABLE];
        if (frozen)
            resume(600000);
        fail_answer();
        assert_int_equal(world.asked[SERVER_ENABLE], asked + (frozen ? 1 : 0));
        run_world_live(&world, 3000);
        assert_int_equal(world.run.state, frozen ? RUN_DUMPING : RUN_ARMED);
        assert_int_equal(world.reply_code, frozen ? ERROR_NONE : ERROR_SERVER);
    }
    run_world_reach(&world, RUN_ARMED); /* once: what fails again has failed */
    run_world_step(&world, run_world_event(&world, RUN_EVENT_DUMP));
    while (world.run.state != RUN_DUMPING)
        run_world_settle(&world, 1);
    resume(600000);
    fail_answer();
    fail_answer();
    assert_int_equal(world.reply_code, ERROR_SERVER);
}

static void reach_the_probe(void)
{
    run_world_reach(&world, RUN_VERIFYING);
    while (world.run.question != SERVER_PROBE)
        run_world_settle(&world, 1);
}

/* The connection closes a moment before the server's end is seen: what explains it is waited for. */
static void test_no_answer_and_then_the_end(void **state)
{
    (void)state;
    for (int ends = 1; ends >= 0; ends--) {
        reach_the_probe();
        fail_answer();
        assert_int_equal(world.run.state, RUN_VERIFYING);
        if (ends)
            run_world_step(&world, (struct run_event){.kind = RUN_EVENT_EXITED, .exit_code = -1, .signal = 9});
        else
            run_world_live(&world, 4000);
        assert_int_equal(world.run.outcome, ends ? RUN_OUTCOME_START_FAILED : RUN_OUTCOME_VERIFY_FAILED);
    }
    assert_non_null(strstr(world.run.message, "no answer: time limit"));
}

/* The start's limit says what was seen last. */
static void test_start_timeout_says_what_came_instead(void **state)
{
    (void)state;
    run_world_reach(&world, RUN_WARMING);
    fail_answer();
    world.mute = true;
    run_world_live(&world, world.run.settings.start_timeout_ms);
    assert_int_equal(world.run.outcome, RUN_OUTCOME_START_TIMEOUT);
    assert_non_null(strstr(world.run.message, "last answer: no answer: time limit"));
}

static unsigned flushes_to_leave, flushes_to_spoil;

static void spoil_flushes(struct run_world *w, struct server_answer *answer)
{
    (void)w;
    if (answer->question != SERVER_FLUSH)
        return;
    if (flushes_to_leave > 0) {
        flushes_to_leave--;
    } else if (flushes_to_spoil > 0) {
        flushes_to_spoil--;
        answer->ok = false;
    }
}

/* A prefix of the probe may lie in the cache since the warm-up, and its own stays there when the server is busy: both
 * flushes are asked again, for a minute. */
static void test_flush_that_is_refused(void **state)
{
    static const char *const when[] = {"before the probe", "after the probe"};
    (void)state;
    for (unsigned after = 0; after < 2; after++) {
        for (int again = 0; again < 2; again++) {
            run_world_reach(&world, RUN_VERIFYING);
            flushes_to_leave = after;
            flushes_to_spoil = again ? 3 : UINT32_MAX;
            world.spoil = spoil_flushes;
            run_world_live(&world, 59000);
            assert_int_equal(world.run.state, again ? RUN_ARMED : RUN_VERIFYING);
            assert_int_equal(world.asked[SERVER_PROBE], after || again);
        }
        run_world_reach(&world, RUN_VERIFYING);
        flushes_to_leave = after;
        flushes_to_spoil = UINT32_MAX;
        world.spoil = spoil_flushes;
        run_world_live(&world, 70000);
        assert_int_equal(world.run.outcome, RUN_OUTCOME_VERIFY_FAILED);
        assert_string_equal(world.run.judgement.setting, "idle server");
        assert_non_null(strstr(world.run.judgement.text, when[after]));
    }
}

/* Up, its settings, ready: the dumper is asked nothing, and nothing is verified. */
static void test_plain(void **state)
{
    (void)state;
    run_world_reach(&world, RUN_READY);
    assert_true(world.run.was_armed);
    assert_int_equal(world.asked[SERVER_HEALTH] > 0, true);
    assert_int_equal(world.asked[SERVER_INFO], 1);
    run_world_live(&world, 60000);
    assert_int_equal(world.run.state, RUN_READY);
    assert_in_range(world.asked[SERVER_LOAD], 9, 13);
    static const enum server_question never[] = {SERVER_STATE, SERVER_ENABLE, SERVER_DISABLE, SERVER_PROBE,
                                                 SERVER_FLUSH};
    for (size_t i = 0; i < sizeof never / sizeof never[0]; i++)
        assert_int_equal(world.asked[never[i]], 0);
    run_world_step(&world, run_world_event(&world, RUN_EVENT_DUMP));
    assert_int_equal(world.reply_code, ERROR_STATE);
    assert_non_null(strstr(world.reply_text, "is of the kind plain"));
    run_world_step(&world, run_world_event(&world, RUN_EVENT_PAUSE));
    assert_int_equal(world.reply_code, ERROR_STATE);
    assert_non_null(strstr(world.reply_text, "ready, not dumping"));
    assert_int_equal(world.run.state, RUN_READY);
    run_world_step(&world, run_world_event(&world, RUN_EVENT_EXITED)); /* exit code 3: its own, as after armed */
    run_world_settle(&world, 3000);
    assert_int_equal(world.run.outcome, RUN_OUTCOME_SERVER_EXITED);
    assert_int_equal(run_exit_status(&world.run), 3);
    assert_int_equal(world.done[RUN_DO_SEAL] + world.done[RUN_DO_DISCARD] + world.done[RUN_DO_CHECK], 0);
}

static bool out;

static void spoil_out(struct run_world *w, struct server_answer *answer)
{
    (void)w;
    if (out)
        *answer = (struct server_answer){.question = answer->question, .problem = "no answer: timeout"};
}

/* Settings that are not told are no reason to refuse; an outage is told once, and its end. */
static void test_plain_with_problems(void **state)
{
    (void)state;
    run_world_reach(&world, RUN_READY);
    world.spoil = spoil_out;
    out = true;
    run_world_live(&world, 30000);
    assert_int_equal(run_world_noted(&world, "the server does not answer: no answer: timeout"), 1);
    out = false;
    run_world_live(&world, 30000);
    assert_int_equal(run_world_noted(&world, "the server answers again"), 1);
    assert_int_equal(world.run.state, RUN_READY);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_plain),
        cmocka_unit_test(test_plain_with_problems),
        cmocka_unit_test(test_again),
        cmocka_unit_test(test_again_is_for_the_start),
        cmocka_unit_test(test_again_that_is_cut_short),
        cmocka_unit_test(test_start_timeout_goes_on_counting),
        cmocka_unit_test(test_flush_that_is_refused),
        cmocka_unit_test(test_suspend),
        cmocka_unit_test(test_resumed_shifts_what_is_due),
        cmocka_unit_test(test_question_that_was_frozen),
        cmocka_unit_test(test_no_answer_and_then_the_end),
        cmocka_unit_test(test_start_timeout_says_what_came_instead),
    };
    return cmocka_run_group_tests_name("run_start", tests, NULL, NULL);
}
