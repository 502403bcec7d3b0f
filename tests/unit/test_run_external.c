/* The run machine and a dump that somebody else has switched on. */
#include "run_world.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

static struct run_world world;

static void test_switched_on_by_somebody_else(void **state)
{
    (void)state;
    run_world_reach(&world, RUN_ARMED);
    uint64_t base = world.dump_index;
    world.enabled = true;
    strcpy(world.experiment, "theirs");
    world.dump_index += 100;
    world.step += 1;
    run_world_live(&world, 5000);
    assert_int_equal(world.run.state, RUN_DUMPING);
    assert_true(world.run.external);
    assert_string_equal(world.run.experiment, "theirs");
    assert_int_equal(world.run.base.rank[0].dump_index, base);
    assert_int_equal(run_world_noted(&world, "switched on by somebody else under experiment theirs"), 1);
    run_world_step(&world, run_world_event(&world, RUN_EVENT_DUMP));
    assert_int_equal(world.reply_code, ERROR_BUSY);
    run_world_step(&world, run_world_event(&world, RUN_EVENT_PAUSE));
    run_world_is_sealed(&world, 5000, RUN_SEALED_BY_PAUSE, "");
    assert_int_equal(world.run.last.rank[0].dump_index - world.run.base.rank[0].dump_index, 100);
    run_world_step(&world, run_world_event(&world, RUN_EVENT_DUMP)); /* ours again */
    run_world_live(&world, 1000);
    assert_int_equal(world.run.state, RUN_DUMPING);
    assert_false(world.run.external);
}

static void reach_external(void)
{
    run_world_reach(&world, RUN_ARMED);
    world.enabled = true;
    strcpy(world.experiment, "theirs");
    run_world_live(&world, 6000);
    assert_int_equal(world.run.state, RUN_DUMPING);
}

static void test_all_limits_hold_for_it(void **state)
{
    (void)state;
    reach_external();
    world.enabled = false;
    run_world_is_sealed(&world, 5000, RUN_SEALED_BY_OTHER, "");
    reach_external();
    run_world_space(&world, SPACE_SOFT);
    run_world_is_sealed(&world, 5000, RUN_SEALED_BY_SOFT, "");
    reach_external();
    world.run.settings.budget_bytes = 5;
    run_world_survey(&world, 6, true);
    run_world_is_sealed(&world, 5000, RUN_SEALED_BY_BUDGET, "");
    reach_external();
    run_world_space(&world, SPACE_UNMEASURABLE);
    run_world_live(&world, 10001);
    run_world_ends(&world, 1000, RUN_OUTCOME_FLOOR, "could not be read");
    reach_external();
    world.mute = true;
    run_world_live(&world, 62000);
    run_world_ends(&world, 1000, RUN_OUTCOME_CONTROL_LOST, "has not answered");
    reach_external();
    run_world_step(&world, run_world_event(&world, RUN_EVENT_STOP));
    run_world_live(&world, 20000);
    assert_int_equal(world.done[RUN_DO_SEAL], 1);
    run_world_ends(&world, 1000, RUN_OUTCOME_STOPPED, "");

    run_world_reach(&world, RUN_ARMED); /* where none may begin it is switched off at once */
    run_world_space(&world, SPACE_UNMEASURABLE);
    world.enabled = true;
    run_world_live(&world, 10000);
    run_world_is_sealed(&world, 5000, RUN_SEALED_BY_SOFT, "");
}

static void test_unsafe_experiment(void **state)
{
    (void)state;
    static const char *const names[] = {"../../etc", "a/b", "", ".hidden"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        run_world_reach(&world, RUN_ARMED);
        unsigned disables = world.asked[SERVER_DISABLE];
        world.enabled = true;
        strcpy(world.experiment, names[i]);
        run_world_live(&world, 20000);
        assert_int_equal(world.run.state, RUN_ARMED);
        assert_false(world.enabled);
        assert_int_equal(world.asked[SERVER_DISABLE], disables + 1);
        assert_int_equal(run_world_noted(&world, "which is no experiment name"), 1);
        assert_int_equal(world.done[RUN_DO_CHECK], 1); /* the probe's */
    }
}

static void spoil_disable(struct run_world *w, struct server_answer *answer)
{
    if (answer->question == SERVER_DISABLE) {
        answer->ok = false;
        w->enabled = true;
    }
}

/* It is tried again and again, told once, and bounded like a dump. */
static void test_unsafe_experiment_that_stays_on(void **state)
{
    (void)state;
    run_world_reach(&world, RUN_ARMED);
    unsigned disables = world.asked[SERVER_DISABLE];
    world.spoil = spoil_disable;
    world.enabled = true;
    strcpy(world.experiment, "../x");
    run_world_live(&world, 20000);
    assert_int_equal(run_world_noted(&world, "which is no experiment name"), 1);
    assert_true(world.asked[SERVER_DISABLE] >= disables + 10);
    world.spoil = NULL;
    run_world_live(&world, 6000);
    assert_false(world.enabled);
    run_world_space(&world, SPACE_UNMEASURABLE);
    run_world_live(&world, 30000);
    world.spoil = spoil_disable;
    world.enabled = true;
    while (run_world_noted(&world, "which is no experiment name") < 2)
        run_world_live(&world, 100);
    run_world_live(&world, 9000);
    assert_int_equal(world.run.state, RUN_ARMED);
    run_world_live(&world, 1100);
    run_world_ends(&world, 1000, RUN_OUTCOME_FLOOR, "while ../x was being dumped");
    assert_int_equal(world.done[RUN_DO_SEAL], 0);

    run_world_reach(&world, RUN_ARMED);
    world.spoil = spoil_disable;
    world.enabled = true;
    strcpy(world.experiment, "../x");
    while (run_world_noted(&world, "which is no experiment name") == 0)
        run_world_live(&world, 100);
    run_world_live(&world, 10 * world.run.settings.control_timeout_ms - 1000);
    assert_int_equal(world.run.state, RUN_ARMED);
    run_world_live(&world, 2000);
    run_world_ends(&world, 1000, RUN_OUTCOME_CONTROL_LOST, "dumping of ../x could not be switched off");
}

/* Whoever switched it on gives it a proper name: from then on it is a dump like any other, and ends as one. */
static void test_unsafe_experiment_that_is_renamed(void **state)
{
    (void)state;
    run_world_reach(&world, RUN_ARMED);
    world.spoil = spoil_disable;
    world.enabled = true;
    strcpy(world.experiment, "../x");
    while (run_world_noted(&world, "which is no experiment name") == 0)
        run_world_live(&world, 100);
    world.spoil = NULL;
    world.enabled = true;
    strcpy(world.experiment, "theirs");
    while (world.run.state == RUN_ARMED)
        run_world_live(&world, 100);
    assert_string_equal(world.run.unsafe_told, "");
}

static void send_elsewhere(struct run_world *w, struct server_answer *answer)
{
    (void)w;
    answer->elsewhere = answer->question == SERVER_STATE;
    if (answer->elsewhere)
        strcpy(answer->wrong_setting, "dir is /elsewhere; expected /here");
}

/* Where nobody watches the disk nothing may be dumped. */
static void test_another_folder(void **state)
{
    (void)state;
    run_world_reach(&world, RUN_ARMED);
    strcpy(world.experiment, "theirs");
    world.spoil = send_elsewhere;
    world.enabled = true;
    run_world_live(&world, 10000);
    assert_int_equal(world.run.state, RUN_ARMED);
    assert_false(world.enabled);
    assert_int_equal(run_world_noted(&world, "into a folder that is not the run's"), 1);
    run_world_step(&world, run_world_event(&world, RUN_EVENT_DUMP));
    run_world_live(&world, 2000);
    assert_int_equal(world.reply_code, ERROR_STATE);
    assert_non_null(strstr(world.reply_text, "dir is /elsewhere"));

    run_world_reach(&world, RUN_DUMPING);
    world.spoil = send_elsewhere;
    run_world_live(&world, 20000);
    assert_int_equal(world.run.state, RUN_ARMED);
    assert_false(world.enabled);
    assert_int_equal(world.run.sealed_by, RUN_SEALED_BY_OTHER);
    assert_non_null(strstr(world.run.disturbance, "dir is /elsewhere"));
}

static void refuse_disable(struct run_world *w, struct server_answer *answer)
{
    spoil_disable(w, answer);
    if (answer->question != SERVER_DISABLE)
        return;
    answer->http_status = 500;
    strcpy(answer->problem, "POST /dumper/configure: HTTP 500: as spoilt");
}

/* That is an answer, though not the one that is needed. */
static void test_disable_that_is_refused(void **state)
{
    (void)state;
    run_world_reach(&world, RUN_DUMPING);
    world.spoil = refuse_disable;
    run_world_step(&world, run_world_event(&world, RUN_EVENT_PAUSE));
    run_world_live(&world, world.run.settings.control_timeout_ms + 2000);
    run_world_ends(&world, 1000, RUN_OUTCOME_CONTROL_LOST, "asked to switch dumping off and has refused it for 60.0 s");
    assert_non_null(strstr(world.run.message, "; it says: POST /dumper/configure: HTTP 500: as spoilt"));
}

/* Found while nothing can be read: it goes off, and has the whole blind limit for that. */
static void test_found_while_blind(void **state)
{
    (void)state;
    run_world_reach(&world, RUN_ARMED);
    run_world_space(&world, SPACE_UNMEASURABLE);
    run_world_live(&world, 60000);
    world.enabled = true;
    strcpy(world.experiment, "theirs");
    world.spoil = spoil_disable;
    while (world.run.state == RUN_ARMED)
        run_world_live(&world, 100);
    run_world_live(&world, 9000);
    assert_int_equal(world.run.state, RUN_SEALING);
    run_world_live(&world, 1100);
    run_world_ends(&world, 1000, RUN_OUTCOME_FLOOR, "while theirs was being dumped");
}

/* A dump that waits for an idle server does not look away. */
static void test_found_while_one_is_prepared(void **state)
{
    (void)state;
    run_world_reach(&world, RUN_ARMED);
    world.requests = 1;
    struct run_event dump = run_world_event(&world, RUN_EVENT_DUMP);
    dump.wait_idle_ms = 600000;
    run_world_step(&world, dump);
    run_world_live(&world, 20000);
    assert_int_equal(world.run.dump_request, dump.number);
    world.enabled = true;
    strcpy(world.experiment, "theirs");
    run_world_live(&world, 7000);
    assert_int_equal(world.run.state, RUN_DUMPING);
    assert_true(world.run.external);
    assert_int_equal(world.reply_number, dump.number);
    assert_int_equal(world.reply_code, ERROR_BUSY);
    assert_int_equal(world.done[RUN_DO_REPLY], 1);
}

/* What is known of it when it is found is all that is known should the server die then. */
static void test_found_and_dead(void **state)
{
    (void)state;
    run_world_reach_with(&world, RUN_ARMED, 2);
    uint64_t base = world.dump_index;
    world.enabled = true;
    strcpy(world.experiment, "theirs");
    strcpy(world.wrong_setting, "mode is core");
    world.dump_index += 100;
    while (world.run.state == RUN_ARMED)
        run_world_live(&world, 100);
    assert_non_null(strstr(world.run.disturbance, "mode is core"));
    run_world_step(&world, run_world_event(&world, RUN_EVENT_EXITED));
    assert_int_equal(world.run.base.rank[0].dump_index, base);
    assert_int_equal(world.run.last.rank[1].dump_index, base + 100);

    run_world_reach_with(&world, RUN_ARMED, 2);
    world.enabled = true;
    strcpy(world.experiment, "theirs");
    world.ranks = 1;
    while (world.run.state == RUN_ARMED)
        run_world_live(&world, 100);
    assert_non_null(strstr(world.run.disturbance, "not every rank"));
}

static void test_somebody_is_faster(void **state)
{
    (void)state;
    run_world_reach(&world, RUN_ARMED);
    world.enabled = true;
    strcpy(world.experiment, "theirs");
    run_world_step(&world, run_world_event(&world, RUN_EVENT_DUMP));
    run_world_live(&world, 1000);
    assert_int_equal(world.reply_code, ERROR_BUSY);
    assert_int_equal(world.run.state, RUN_DUMPING);
    assert_true(world.run.external);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_switched_on_by_somebody_else),
        cmocka_unit_test(test_all_limits_hold_for_it),
        cmocka_unit_test(test_unsafe_experiment),
        cmocka_unit_test(test_unsafe_experiment_that_stays_on),
        cmocka_unit_test(test_unsafe_experiment_that_is_renamed),
        cmocka_unit_test(test_another_folder),
        cmocka_unit_test(test_disable_that_is_refused),
        cmocka_unit_test(test_found_while_blind),
        cmocka_unit_test(test_found_while_one_is_prepared),
        cmocka_unit_test(test_found_and_dead),
        cmocka_unit_test(test_somebody_is_faster),
    };
    return cmocka_run_group_tests_name("run_external", tests, NULL, NULL);
}
