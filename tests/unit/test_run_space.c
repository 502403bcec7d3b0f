/* The run machine and what bounds a dump: levels of free space, the blind limit, the byte budget, --for, --passes. */
#include "run_world.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

static struct run_world world;

static void ask_dump(uint64_t for_ms, uint64_t passes)
{
    struct run_event dump = run_world_event(&world, RUN_EVENT_DUMP);
    dump.for_ms = for_ms;
    dump.passes = passes;
    run_world_step(&world, dump);
}

static void test_warn_and_back(void **state)
{
    (void)state;
    run_world_reach(&world, RUN_DUMPING);
    run_world_space(&world, SPACE_WARN);
    assert_int_equal(world.run.state, RUN_DUMPING);
    assert_int_equal(run_world_noted(&world, "getting low: as measured"), 1);
    run_world_space(&world, SPACE_WARN);
    assert_int_equal(run_world_noted(&world, "getting low"), 1);
    run_world_space(&world, SPACE_FINE);
    assert_int_equal(run_world_noted(&world, "enough free space again"), 1);
    assert_string_equal(world.run.space_text, "as measured");
}

static void test_soft_seals_and_refuses(void **state)
{
    (void)state;
    run_world_reach(&world, RUN_DUMPING);
    run_world_space(&world, SPACE_SOFT);
    assert_int_equal(world.run.state, RUN_SEALING);
    run_world_is_sealed(&world, 3000, RUN_SEALED_BY_SOFT, NULL);
    ask_dump(0, 0);
    assert_int_equal(world.reply_code, ERROR_SPACE);
    assert_non_null(strstr(world.reply_text, "as measured"));
    assert_non_null(strstr(world.reply_text, "--soft"));
    run_world_space(&world, SPACE_FINE);
    ask_dump(0, 0);
    run_world_live(&world, 1000);
    assert_int_equal(world.run.state, RUN_DUMPING);
}

/* While a dump is being prepared, or is not confirmed yet, who asked for it is told. */
static void test_soft_while_a_dump_begins(void **state)
{
    (void)state;
    for (int confirm = 0; confirm < 2; confirm++) {
        run_world_reach(&world, RUN_ARMED);
        ask_dump(0, 0);
        if (confirm)
            while (world.run.state != RUN_DUMPING)
                run_world_settle(&world, 1);
        run_world_space(&world, confirm ? SPACE_SOFT : SPACE_UNMEASURABLE);
        assert_int_equal(world.reply_code, ERROR_SPACE);
        assert_int_equal(world.reply_number, 77);
        assert_int_equal(world.run.dump_request, 0);
        run_world_live(&world, 3000);
        assert_int_equal(world.run.state, RUN_ARMED);
        assert_false(world.enabled);
    }
}

static void test_blind(void **state)
{
    (void)state;
    run_world_reach(&world, RUN_DUMPING);
    run_world_space(&world, SPACE_UNMEASURABLE);
    assert_int_equal(run_world_noted(&world, "free space cannot be read: as measured"), 1);
    run_world_live(&world, 9999);
    assert_int_equal(world.run.state, RUN_DUMPING);
    run_world_live(&world, 2);
    run_world_ends(&world, 60000, RUN_OUTCOME_FLOOR, "free space could not be read for 10.0 s");
    assert_int_equal(world.done[RUN_DO_KILL], 1);

    run_world_reach(&world, RUN_DUMPING); /* it passes */
    run_world_space(&world, SPACE_UNMEASURABLE);
    run_world_live(&world, 9000);
    run_world_space(&world, SPACE_FINE);
    assert_int_equal(run_world_noted(&world, "can be read again"), 1);
    run_world_live(&world, 20000);
    assert_int_equal(world.run.state, RUN_DUMPING);

    run_world_reach(&world, RUN_ARMED); /* nothing is being dumped: only told */
    run_world_space(&world, SPACE_UNMEASURABLE);
    run_world_live(&world, 60000);
    assert_int_equal(world.run.state, RUN_ARMED);
    ask_dump(0, 0);
    assert_int_equal(world.reply_code, ERROR_SPACE);
    assert_non_null(strstr(world.reply_text, "cannot be read"));
}

/* The question that hangs does not keep the limit from being seen. */
static void test_blind_while_a_disable_hangs(void **state)
{
    (void)state;
    run_world_reach(&world, RUN_DUMPING);
    run_world_space(&world, SPACE_UNMEASURABLE);
    world.mute = true;
    run_world_step(&world, run_world_event(&world, RUN_EVENT_PAUSE));
    run_world_live(&world, 10001);
    run_world_ends(&world, 60000, RUN_OUTCOME_FLOOR, "could not be read");
    assert_int_equal(world.done[RUN_DO_SEAL], 1);
}

static void test_budget(void **state)
{
    (void)state;
    run_world_reach(&world, RUN_DUMPING);
    world.run.settings.budget_bytes = 1000;
    run_world_survey(&world, 999, true);
    assert_int_equal(world.run.state, RUN_DUMPING);
    run_world_survey(&world, 1000, true);
    assert_int_equal(world.run.state, RUN_SEALING);
    run_world_survey(&world, 1200, true); /* the pass that was running */
    run_world_is_sealed(&world, 3000, RUN_SEALED_BY_BUDGET, NULL);
    run_world_survey(&world, 1300, false); /* began before it was over */
    run_world_survey(&world, 1400, false);
    run_world_survey(&world, 1400, false);
    assert_int_equal(world.run.grown_ns, 0);
    run_world_survey(&world, 1500, false); /* once is looked into, and is no growth */
    assert_int_equal(world.run.wake_ns, world.now_ns);
    for (int i = 0; i < 10; i++) {
        run_world_live(&world, 6000);
        run_world_survey(&world, 1500, false);
    }
    assert_int_equal(world.run.state, RUN_ARMED);
    ask_dump(0, 0);
    assert_int_equal(world.reply_code, ERROR_SPACE);
    assert_non_null(strstr(world.reply_text, "--budget"));
}

static void test_budget_that_still_grows(void **state)
{
    (void)state;
    run_world_reach(&world, RUN_DUMPING);
    world.run.settings.budget_bytes = 1000;
    run_world_survey(&world, 1000, true);
    run_world_live(&world, 3000);
    assert_int_equal(world.run.state, RUN_ARMED);
    for (uint64_t bytes = 1100; bytes <= 1300; bytes += 100) {
        assert_int_equal(world.run.state, RUN_ARMED);
        run_world_survey(&world, bytes, true);
        run_world_live(&world, 1000); /* the counters say that it is off */
    }
    run_world_survey(&world, 1400, true);
    run_world_ends(&world, 60000, RUN_OUTCOME_BUDGET, "bytes still came");
    assert_int_equal(run_exit_status(&world.run), STATUS_BUDGET);
}

/* Over the budget and on again by somebody else: switched off like any other dump, not killed. */
static void test_budget_and_somebody_else(void **state)
{
    (void)state;
    run_world_reach(&world, RUN_DUMPING);
    world.run.settings.budget_bytes = 1000;
    run_world_survey(&world, 1000, true);
    run_world_live(&world, 3000);
    world.enabled = true;
    for (uint64_t bytes = 1100; bytes <= 1300; bytes += 100)
        run_world_survey(&world, bytes, true);
    run_world_live(&world, 3000);
    assert_int_equal(world.run.state, RUN_ARMED);
    assert_true(world.run.external);
    assert_int_equal(world.run.sealed_by, RUN_SEALED_BY_BUDGET);
    assert_int_equal(world.done[RUN_DO_SEAL], 2);
    assert_false(world.enabled);
    for (uint64_t bytes = 1400; bytes <= 1600; bytes += 100) { /* its last pass has time too */
        run_world_survey(&world, bytes, true);
        run_world_live(&world, 1000);
    }
    assert_int_equal(world.run.state, RUN_ARMED);
}

static void test_budget_that_grows_under_the_audit(void **state)
{
    (void)state;
    run_world_reach(&world, RUN_DUMPING);
    world.run.settings.budget_bytes = 1000;
    run_world_survey(&world, 1000, true);
    while (world.done[RUN_DO_CHECK] < 2) /* the probe's was the first */
        run_world_settle(&world, 1);
    for (uint64_t bytes = 1100; bytes <= 1300; bytes += 100) {
        assert_int_equal(world.run.state, RUN_SEALING);
        run_world_survey(&world, bytes, true);
    }
    run_world_ends(&world, 60000, RUN_OUTCOME_BUDGET, "bytes still came");
}

static void test_budget_while_a_dump_is_prepared(void **state)
{
    (void)state;
    run_world_reach(&world, RUN_ARMED);
    world.run.settings.budget_bytes = 1000;
    world.requests = 1;
    ask_dump(0, 0);
    run_world_survey(&world, 1000, false);
    assert_int_equal(world.reply_code, ERROR_SPACE);
    assert_int_equal(world.run.dump_request, 0);
}

static void test_for(void **state)
{
    (void)state;
    run_world_reach(&world, RUN_ARMED);
    ask_dump(30000, 0);
    run_world_live(&world, 29000);
    assert_int_equal(world.run.state, RUN_DUMPING);
    world.mute = true; /* a question under way is not waited for */
    run_world_live(&world, 1100);
    assert_int_equal(world.run.state, RUN_SEALING);
    world.mute = false;
    run_world_step(&world, (struct run_event){.kind = RUN_EVENT_RESUMED});
    run_world_step(&world, (struct run_event){.kind = RUN_EVENT_PAUSE, .number = 78});
    assert_int_equal(world.run.sealed_by, RUN_SEALED_BY_LIMIT);
}

static void test_passes(void **state)
{
    (void)state;
    run_world_reach_with(&world, RUN_ARMED, 2);
    ask_dump(0, 8);
    run_world_live(&world, 1000);
    world.step += 7;
    run_world_live(&world, 1000);
    assert_int_equal(world.run.state, RUN_DUMPING);
    world.step += 1;
    run_world_live(&world, 100);
    assert_int_equal(world.run.sealed_by, RUN_SEALED_BY_LIMIT);
    run_world_is_sealed(&world, 3000, RUN_SEALED_BY_LIMIT, NULL);
    ask_dump(0, 0); /* the next one has no such limit */
    run_world_live(&world, 100);
    world.step += 100;
    run_world_live(&world, 60000);
    assert_int_equal(world.run.state, RUN_DUMPING);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_warn_and_back),
        cmocka_unit_test(test_soft_seals_and_refuses),
        cmocka_unit_test(test_soft_while_a_dump_begins),
        cmocka_unit_test(test_blind),
        cmocka_unit_test(test_blind_while_a_disable_hangs),
        cmocka_unit_test(test_budget),
        cmocka_unit_test(test_budget_that_still_grows),
        cmocka_unit_test(test_budget_and_somebody_else),
        cmocka_unit_test(test_budget_that_grows_under_the_audit),
        cmocka_unit_test(test_budget_while_a_dump_is_prepared),
        cmocka_unit_test(test_for),
        cmocka_unit_test(test_passes),
    };
    return cmocka_run_group_tests_name("run_space", tests, NULL, NULL);
}
