/* The run machine and a dumper that does not answer, or whose settings, counters and ranks change under a dump. */
#include "run_world.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

static struct run_world world;

/* ---- liveness ---- */

static void test_no_answer_and_nothing_grows(void **state)
{
    (void)state;
    run_world_reach(&world, RUN_DUMPING);
    run_world_live(&world, 30000);
    world.step += 5;
    run_world_live(&world, 2000);
    world.mute = true;
    run_world_live(&world, 60000);
    assert_int_equal(world.run.state, RUN_DUMPING);
    run_world_live(&world, 1100);
    run_world_ends(&world, 1000, RUN_OUTCOME_CONTROL_LOST, "asked for its counters and has not answered for 60.0 s");
    assert_non_null(strstr(world.run.message, "nothing grew for 62.0 s"));
    assert_non_null(strstr(world.run.message, "step 8"));
    assert_int_equal(run_exit_status(&world.run), STATUS_LOST);
}

static void test_growth_is_life(void **state)
{
    (void)state;
    run_world_reach(&world, RUN_DUMPING);
    world.mute = true;
    for (uint64_t i = 1; i <= 30; i++) { /* 20 minutes of one pass */
        run_world_live(&world, 40000);
        run_world_survey(&world, i * 1000, false);
    }
    assert_int_equal(world.run.state, RUN_DUMPING);
    run_world_live(&world, 60001);
    run_world_ends(&world, 1000, RUN_OUTCOME_CONTROL_LOST, "nothing grew for 60.0 s");
}

static void test_computing_alone_is_not_life_for_ever(void **state)
{
    (void)state;
    run_world_reach(&world, RUN_DUMPING);
    world.mute = true;
    uint64_t begin_ns = world.now_ns;
    for (int i = 0; i < 1000 && world.run.state == RUN_DUMPING; i++) {
        run_world_live(&world, 1000);
        run_world_survey(&world, 0, true);
    }
    assert_int_equal(world.run.outcome, RUN_OUTCOME_CONTROL_LOST);
    assert_in_range((world.now_ns - begin_ns) / 1000000000, 600, 602); /* ten times control_timeout */
}

static void test_enable_and_disable_that_hang(void **state)
{
    (void)state;
    run_world_reach(&world, RUN_ARMED);
    run_world_step(&world, run_world_event(&world, RUN_EVENT_DUMP));
    while (world.run.state != RUN_DUMPING)
        run_world_settle(&world, 1);
    world.mute = true;
    run_world_live(&world, 61000);
    run_world_ends(&world, 1000, RUN_OUTCOME_CONTROL_LOST, "to switch dumping on");
    assert_int_equal(world.reply_code, ERROR_STATE);

    run_world_reach(&world, RUN_DUMPING);
    world.mute = true;
    run_world_step(&world, run_world_event(&world, RUN_EVENT_PAUSE));
    run_world_live(&world, 59000);
    assert_int_equal(world.run.state, RUN_SEALING);
    run_world_live(&world, 2000);
    run_world_ends(&world, 1000, RUN_OUTCOME_CONTROL_LOST, "to switch dumping off");
    assert_int_equal(world.done[RUN_DO_SEAL], 1); /* after the death, from what is on the disk */
    assert_int_equal(world.run.sealed_by, RUN_SEALED_BY_DEATH);
}

static void spoil_closed(struct run_world *w, struct server_answer *answer)
{
    (void)w;
    answer->ok = false;
    answer->http_status = 0;
    snprintf(answer->problem, sizeof answer->problem, "no answer: connection closed");
}

static void test_connection_closed(void **state)
{
    (void)state;
    static const struct server_line line = {.kind = SERVER_LINE_CAUSE, .text = "CUDA out of memory"};
    for (int armed = 0; armed < 2; armed++) {
        run_world_reach(&world, armed ? RUN_ARMED : RUN_DUMPING);
        run_world_step(&world, (struct run_event){.kind = RUN_EVENT_LINE, .line = &line});
        for (unsigned outages = 1; outages <= 2; outages++) {
            world.spoil = spoil_closed;
            run_world_live(&world, 30000);
            assert_int_equal(run_world_noted(&world, "connection closed; its log says: CUDA out of memory"), outages);
            world.spoil = NULL;
            run_world_live(&world, 6000);
        }
        world.spoil = spoil_closed;
        run_world_live(&world, 70000); /* a server at rest is not killed for it */
        assert_int_equal(world.run.outcome, armed ? RUN_OUTCOME_NONE : RUN_OUTCOME_CONTROL_LOST);
    }
}

/* What the log said while the server came up is no cause of what happens later. */
static void test_a_cause_that_was_none(void **state)
{
    (void)state;
    static const struct server_line line = {.kind = SERVER_LINE_CAUSE, .text = "the model folder is not complete"};
    run_world_reach(&world, RUN_LOADING);
    run_world_step(&world, (struct run_event){.kind = RUN_EVENT_LINE, .line = &line});
    run_world_settle(&world, 100);
    assert_int_equal(world.run.state, RUN_ARMED);
    world.spoil = spoil_closed;
    run_world_live(&world, 30000);
    assert_int_equal(run_world_noted(&world, "connection closed"), 1);
    assert_int_equal(run_world_noted(&world, "the model folder"), 0);
    world.spoil = NULL;
}

/* ---- somebody else ---- */

static void test_our_dump_is_changed(void **state)
{
    (void)state;
    run_world_reach(&world, RUN_DUMPING);
    world.enabled = false;
    run_world_is_sealed(&world, 5000, RUN_SEALED_BY_OTHER, "switched off by somebody else");
    run_world_reach(&world, RUN_DUMPING);
    strcpy(world.experiment, "theirs");
    run_world_is_sealed(&world, 5000, RUN_SEALED_BY_OTHER, "under experiment theirs");
    assert_string_equal(world.run.seal_experiment, "dec");
}

static void test_wrong_setting(void **state)
{
    (void)state;
    run_world_reach(&world, RUN_DUMPING);
    for (int i = 0; i < 2; i++) {
        strcpy(world.wrong_setting, i == 0 ? "filter is \"x\" on rank 0; expected null" : "dir is /else");
        run_world_live(&world, 10000);
        assert_int_equal(run_world_noted(&world, world.wrong_setting), 1);
        assert_int_equal(world.run.state, RUN_DUMPING);
    }
    assert_non_null(strstr(world.run.disturbance, "filter is"));
    run_world_step(&world, run_world_event(&world, RUN_EVENT_PAUSE));
    run_world_is_sealed(&world, 5000, RUN_SEALED_BY_PAUSE, "filter is");
    run_world_step(&world, run_world_event(&world, RUN_EVENT_DUMP));
    run_world_live(&world, 1000);
    assert_int_equal(world.reply_code, ERROR_STATE);
    assert_non_null(strstr(world.reply_text, "dir is /else"));
    world.wrong_setting[0] = '\0';
    run_world_step(&world, run_world_event(&world, RUN_EVENT_DUMP));
    run_world_live(&world, 1000);
    assert_int_equal(world.run.state, RUN_DUMPING);
    assert_string_equal(world.run.disturbance, "");
    assert_int_equal(run_world_noted(&world, "settings hold again"), 1);
}

/* ---- reset ---- */

static void expect_revoked(void)
{
    assert_true(world.run.revoked);
    assert_int_equal(world.run.judgement.verdict, SERVER_FAILED);
    assert_string_equal(world.run.judgement.setting, "/dumper/reset");
    assert_int_equal(run_world_noted(&world, "the proofs are void"), 1);
    run_world_step(&world, run_world_event(&world, RUN_EVENT_DUMP));
    assert_int_equal(world.reply_code, ERROR_STATE);
    assert_non_null(strstr(world.reply_text, "start the run anew"));
}

static void test_reset(void **state)
{
    (void)state;
    run_world_reach(&world, RUN_ARMED);
    world.step = world.dump_index = 0;
    run_world_live(&world, 20000);
    assert_int_equal(world.run.state, RUN_ARMED);
    expect_revoked();

    run_world_reach(&world, RUN_DUMPING);
    world.dump_index += 1000;
    world.step += 8;
    run_world_live(&world, 2000);
    uint64_t last = world.dump_index;
    world.dump_index = 0; /* passes go on, and write nothing */
    world.step += 100;
    run_world_is_sealed(&world, 5000, RUN_SEALED_BY_OTHER, "reset was called");
    assert_int_equal(world.run.last.rank[0].dump_index, last); /* what the audit can expect */
    assert_false(world.run.counts_exact);
    expect_revoked();

    run_world_reach(&world, RUN_SEALING);
    world.step = world.dump_index = 0;
    run_world_is_sealed(&world, 5000, RUN_SEALED_BY_PAUSE, "reset was called");
    expect_revoked();

    run_world_reach(&world, RUN_ARMED); /* while a dump is being prepared */
    world.step = world.dump_index = 0;
    run_world_step(&world, run_world_event(&world, RUN_EVENT_DUMP));
    run_world_live(&world, 1000);
    assert_int_equal(world.reply_code, ERROR_STATE);
    expect_revoked();
}

static void spoil_reset(struct run_world *w, struct server_answer *answer)
{
    if (w->asked[SERVER_PROBE] > 0 && answer->question == SERVER_STATE && w->asked[SERVER_STATE] >= 5)
        answer->rank[0].step = answer->rank[0].dump_index = 0;
}

static void test_reset_while_verifying(void **state)
{
    (void)state;
    run_world_reach(&world, RUN_VERIFYING);
    world.spoil = spoil_reset;
    run_world_live(&world, 10000);
    assert_int_equal(world.run.outcome, RUN_OUTCOME_VERIFY_FAILED);
    assert_string_equal(world.run.judgement.setting, "/dumper/reset");
}

/* ---- ranks ---- */

static void test_rank_that_is_missing(void **state)
{
    (void)state;
    for (int armed = 0; armed < 2; armed++) {
        run_world_reach_with(&world, armed ? RUN_ARMED : RUN_DUMPING, 2);
        uint64_t look_ms = armed ? 5000 : 1000;
        world.ranks = 1;
        run_world_live(&world, 2 * look_ms);
        assert_int_equal(run_world_noted(&world, "only 1 of 2 ranks answered"), 1);
        world.ranks = 2;
        run_world_live(&world, look_ms);
        world.ranks = 1;
        run_world_live(&world, 2 * look_ms);
        assert_int_equal(world.run.state, armed ? RUN_ARMED : RUN_DUMPING);
        if (!armed)
            assert_non_null(strstr(world.run.disturbance, "rank 1 of 2"));
        run_world_live(&world, look_ms);
        run_world_ends(&world, 1000, RUN_OUTCOME_CONTROL_LOST, "rank 1 of 2 no longer answers");
    }
}

/* How an end goes is its cause only while no better one is known. */
static void test_symptom(void **state)
{
    (void)state;
    static const struct server_line lines[] = {
        {.kind = SERVER_LINE_SYMPTOM, .text = "all of it was ended"},
        {.kind = SERVER_LINE_CAUSE, .text = "out of memory"},
        {.kind = SERVER_LINE_SYMPTOM, .text = "a process failed"},
    };
    run_world_reach(&world, RUN_ARMED);
    for (size_t i = 0; i < 3; i++) {
        run_world_step(&world, (struct run_event){.kind = RUN_EVENT_LINE, .line = &lines[i]});
        assert_string_equal(world.run.cause, i == 0 ? "all of it was ended" : "out of memory");
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_symptom),
        cmocka_unit_test(test_a_cause_that_was_none),
        cmocka_unit_test(test_no_answer_and_nothing_grows),
        cmocka_unit_test(test_growth_is_life),
        cmocka_unit_test(test_computing_alone_is_not_life_for_ever),
        cmocka_unit_test(test_enable_and_disable_that_hang),
        cmocka_unit_test(test_connection_closed),
        cmocka_unit_test(test_our_dump_is_changed),
        cmocka_unit_test(test_wrong_setting),
        cmocka_unit_test(test_reset),
        cmocka_unit_test(test_reset_while_verifying),
        cmocka_unit_test(test_rank_that_is_missing),
    };
    return cmocka_run_group_tests_name("run_watch", tests, NULL, NULL);
}
