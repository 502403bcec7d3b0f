/* The run machine and a dump from the request to the seal. */
#include "run_world.h"
#include "base/text.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

static struct run_world world;

static void test_force(void **state)
{
    (void)state;
    for (int force = 0; force < 2; force++) {
        run_world_reach(&world, RUN_ARMED);
        world.requests = 1;
        struct run_event dump = run_world_event(&world, RUN_EVENT_DUMP);
        dump.force = force == 1;
        run_world_step(&world, dump);
        run_world_live(&world, 2000);
        assert_int_equal(world.run.state, force ? RUN_DUMPING : RUN_ARMED);
        assert_int_equal(world.run.dump_request, force ? 0 : 77);
    }
    world.enabled = false;
}

static void test_client_goes_while_it_is_prepared(void **state)
{
    (void)state;
    for (int hold = 0; hold < 2; hold++) {
        run_world_reach(&world, RUN_ARMED);
        world.requests = 1;
        struct run_event dump = run_world_event(&world, RUN_EVENT_DUMP);
        dump.hold = hold == 1;
        run_world_step(&world, dump);
        run_world_step(&world, run_world_event(&world, RUN_EVENT_HOLDER_GONE));
        assert_int_equal(world.run.dump_request, hold ? 0 : 77);
        assert_int_equal(world.done[RUN_DO_REPLY], hold);
    }
    assert_int_equal(world.reply_code, ERROR_INTERRUPTED);
    world.requests = 0;
    run_world_live(&world, 2000);
    assert_int_equal(world.run.state, RUN_ARMED);
}

static void spoil_state(struct run_world *w, struct server_answer *answer)
{
    (void)w;
    if (answer->question == SERVER_STATE) {
        answer->ok = false;
        text_copy(answer->problem, sizeof answer->problem, "HTTP 500: as spoilt");
    }
}

/* Without a base there is nothing to hold the dump against. */
static void test_no_base(void **state)
{
    (void)state;
    for (int missing = 0; missing < 2; missing++) {
        run_world_reach_with(&world, RUN_ARMED, 2);
        world.ranks = missing ? 1 : 2;
        world.spoil = missing ? NULL : spoil_state;
        run_world_step(&world, run_world_event(&world, RUN_EVENT_DUMP));
        run_world_live(&world, 1000);
        assert_int_equal(world.reply_code, ERROR_SERVER);
        assert_non_null(strstr(world.reply_text, missing ? "a rank of the server" : "as spoilt"));
        assert_int_equal(world.run.state, RUN_ARMED);
        assert_int_equal(world.asked[SERVER_ENABLE], 1); /* the probe's */
    }
}

/* The first tensor that was not saved is told for each dump. */
static void test_failed_saves(void **state)
{
    (void)state;
    static const struct server_line line = {.kind = SERVER_LINE_SAVE_FAILED, .text = "no space left"};
    run_world_reach(&world, RUN_DUMPING);
    for (unsigned dumps = 1; dumps <= 2; dumps++) {
        for (int i = 0; i < 3; i++)
            run_world_step(&world, (struct run_event){.kind = RUN_EVENT_LINE, .line = &line});
        assert_int_equal(run_world_noted(&world, "could not save a tensor of dec"), dumps);
        assert_int_equal(world.run.failed_saves - world.run.failed_saves_base, 3);
        run_world_step(&world, run_world_event(&world, RUN_EVENT_PAUSE));
        run_world_live(&world, 2000);
        run_world_step(&world, run_world_event(&world, RUN_EVENT_DUMP));
        run_world_live(&world, 2000);
        assert_int_equal(world.run.state, RUN_DUMPING);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_force),
        cmocka_unit_test(test_client_goes_while_it_is_prepared),
        cmocka_unit_test(test_no_base),
        cmocka_unit_test(test_failed_saves),
    };
    return cmocka_run_group_tests_name("run_dump", tests, NULL, NULL);
}
