/* The run machine: who is answered, what is told and what stands when a run ends. */
#include "run_world.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

static struct run_world world;

/* The seal that a pause waits for never comes when the last audit is given up. */
static void test_pause_without_a_seal(void **state)
{
    (void)state;
    run_world_reach(&world, RUN_DUMPING);
    run_world_step(&world, run_world_event(&world, RUN_EVENT_PAUSE));
    run_world_step(&world, run_world_event(&world, RUN_EVENT_EXITED));
    run_world_step(&world, run_world_event(&world, RUN_EVENT_GONE));
    assert_int_equal(world.run.state, RUN_STOPPING);
    world.reply_number = 0;
    run_world_step(&world, (struct run_event){.kind = RUN_EVENT_STOP, .now = true});
    assert_int_equal(world.run.state, RUN_ENDED);
    assert_int_equal(world.reply_number, 77);
    assert_int_equal(world.reply_code, ERROR_STATE);
    assert_string_equal(world.run.experiment, "");
}

static void test_stop_at_once_in_each_state(void **state)
{
    (void)state;
    for (int s = RUN_LAUNCHING; s < RUN_ENDED; s++) {
        run_world_reach(&world, (enum run_state)s);
        run_world_step(&world, (struct run_event){.kind = RUN_EVENT_STOP, .now = true});
        assert_int_equal(world.run.outcome, RUN_OUTCOME_STOPPED);
        assert_true(world.done[RUN_DO_KILL] == 1);
        run_world_live(&world, 5000);
        assert_int_equal(world.run.state, RUN_ENDED);
        assert_int_equal(world.run.outcome, RUN_OUTCOME_STOPPED);
    }
}

static void test_stop_while_it_is_sealed(void **state)
{
    (void)state;
    run_world_reach(&world, RUN_SEALING);
    run_world_step(&world, run_world_event(&world, RUN_EVENT_STOP));
    assert_int_equal(world.run.sealed_by, RUN_SEALED_BY_STOP);
    run_world_live(&world, 20000);
    assert_int_equal(world.done[RUN_DO_SEAL], 1);
    assert_int_equal(world.run.outcome, RUN_OUTCOME_STOPPED);
}

/* The main process ends as asked; only its children are left to be killed, which nobody is warned of. */
static void test_children_that_are_left(void **state)
{
    (void)state;
    run_world_reach(&world, RUN_ARMED);
    run_world_step(&world, run_world_event(&world, RUN_EVENT_STOP));
    run_world_step(&world, run_world_event(&world, RUN_EVENT_EXITED));
    assert_true(world.run.exited);
    assert_int_equal(world.run.exit_code, 3);
    assert_int_equal(world.run.pid, 4242);
    assert_int_equal(world.done[RUN_DO_KILL], 0);
    assert_int_equal(world.run.wake_ns - world.now_ns, 2000 * 1000000ull);
    world.now_ns = world.run.wake_ns;
    run_world_step(&world, (struct run_event){.kind = RUN_EVENT_TICK});
    assert_int_equal(world.done[RUN_DO_KILL], 1);
    assert_int_equal(run_world_noted(&world, "still there"), 0);
}

static void test_end_that_nobody_saw(void **state)
{
    (void)state;
    run_world_reach(&world, RUN_ARMED);
    run_world_step(&world, run_world_event(&world, RUN_EVENT_GONE));
    assert_int_equal(world.run.outcome, RUN_OUTCOME_SERVER_EXITED);
    assert_non_null(strstr(world.run.message, "exit status of the server is not known"));
}

/* How fast it was stands at the end of the reason, and so in the last event and in status. */
static void test_how_fast_a_kill_at_the_floor_was(void **state)
{
    static const struct {
        uint64_t ns;
        const char *message;
    } cells[] = {{0, "1 GiB free"},
                 {1, "1 GiB free; everything dead 1 ms after the decision"},
                 {31000001, "1 GiB free; everything dead 32 ms after the decision"}};
    (void)state;
    for (size_t i = 0; i < sizeof cells / sizeof cells[0]; i++) {
        run_world_reach(&world, RUN_ARMED);
        run_world_step(&world, (struct run_event){.kind = RUN_EVENT_FLOOR, .text = "1 GiB free"});
        run_world_step(&world, (struct run_event){.kind = RUN_EVENT_GONE, .number = cells[i].ns});
        assert_int_equal(world.run.state, RUN_ENDED);
        assert_string_equal(world.run.message, cells[i].message);
        assert_true(run_world_noted(&world, cells[i].message) > 0);
    }
    run_world_reach(&world, RUN_ARMED); /* a run that ended for another reason */
    run_world_step(&world, (struct run_event){.kind = RUN_EVENT_STOP, .now = true});
    run_world_step(&world, (struct run_event){.kind = RUN_EVENT_GONE, .number = 7});
    assert_null(strstr(world.run.message, "dead"));
}

/* KILL, and its success is never reported: the dump is sealed all the same, and that may be given up. */
static void test_kill_that_is_never_answered(void **state)
{
    (void)state;
    run_world_reach(&world, RUN_DUMPING);
    run_world_step(&world, (struct run_event){.kind = RUN_EVENT_STOP, .now = true});
    world.now_ns = world.run.wake_ns;
    run_world_step(&world, (struct run_event){.kind = RUN_EVENT_TICK});
    assert_int_equal(world.run.outcome, RUN_OUTCOME_UNKILLABLE);
    assert_int_equal(world.done[RUN_DO_CHECK], 2); /* the probe's was the first */
    run_world_step(&world, (struct run_event){.kind = RUN_EVENT_STOP, .now = true});
    assert_int_equal(world.run.state, RUN_ENDED);
    assert_int_equal(world.done[RUN_DO_KILL], 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_pause_without_a_seal),    cmocka_unit_test(test_stop_at_once_in_each_state),
        cmocka_unit_test(test_stop_while_it_is_sealed), cmocka_unit_test(test_children_that_are_left),
        cmocka_unit_test(test_end_that_nobody_saw),     cmocka_unit_test(test_how_fast_a_kill_at_the_floor_was),
        cmocka_unit_test(test_end_that_nobody_saw),     cmocka_unit_test(test_kill_that_is_never_answered),
    };
    return cmocka_run_group_tests_name("run_end", tests, NULL, NULL);
}
