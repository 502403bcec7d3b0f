/* Who is ended by the backstop's policy, look by look: time, free space and counts are the test's own. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "core/backstop.h"

static const uint64_t mib = 1 << 20, ms = 1000000, look_ms = 50;

struct world {
    struct backstop policy;
    struct backstop_run runs[BACKSTOP_RUNS_MAX + 8];
    uint64_t rate[8]; /* bytes a second */
    size_t count;
    struct backstop_reading reading;
    struct backstop_decision decision;
};

static int setup(void **state)
{
    struct world *w = calloc(1, sizeof *w);
    backstop_init(&w->policy);
    w->reading = (struct backstop_reading){.at_ns = 1000 * ms,
                                           .measurable = true,
                                           .free_bytes = 1500 * mib,
                                           .floor_bytes = 1000 * mib,
                                           .worst_rate_bytes_per_s = 10240 * mib};
    for (uint64_t i = 0; i < 8; i++)
        w->runs[i] = (struct backstop_run){.id = i + 1, .counted = true};
    *state = w;
    return 0;
}

static int teardown(void **state)
{
    free(*state);
    return 0;
}

static uint64_t look(struct world *w)
{
    w->reading.at_ns += look_ms * ms;
    for (size_t i = 0; i < w->count && i < 8; i++)
        w->runs[i].written_bytes += w->rate[i] * look_ms / 1000;
    backstop_look(&w->policy, &w->reading, w->runs, w->count, &w->decision);
    return w->decision.id;
}

/* So many looks; the first order, or 0. */
static uint64_t looks(struct world *w, unsigned count)
{
    for (unsigned i = 0; i < count; i++)
        if (look(w) != 0)
            return w->decision.id;
    return 0;
}

static void drop_first(struct world *w)
{
    w->count--;
    memmove(w->runs, w->runs + 1, w->count * sizeof w->runs[0]);
    memmove(w->rate, w->rate + 1, w->count * sizeof w->rate[0]);
}

static void test_above(void **state)
{
    struct world *w = *state;
    w->count = 2;
    w->rate[0] = 500 * mib;
    assert_int_equal(looks(w, 100), 0);
    assert_true(w->decision.count_next); /* below twice the floor */
    w->reading.free_bytes = 1000 * mib;  /* at the floor is not below it */
    assert_int_equal(looks(w, 100), 0);
    w->reading.free_bytes = 100000 * mib;
    look(w);
    assert_false(w->decision.count_next);
    assert_int_equal(w->decision.interval_ns, 1000 * ms);
    w->reading.free_bytes = 1000 * mib + 1024 * mib;
    look(w);
    assert_int_equal(w->decision.interval_ns, 100 * ms);
    w->reading.free_bytes = 1001 * mib;
    look(w);
    assert_int_equal(w->decision.interval_ns, 50 * ms);
}

static void test_largest_then_next(void **state)
{
    struct world *w = *state;
    w->count = 3;
    w->rate[0] = 100 * mib;
    w->rate[1] = 40 * mib;
    assert_int_equal(looks(w, 60), 0);
    w->reading.free_bytes = 999 * mib;
    assert_int_equal(look(w), 0); /* once is not enough */
    assert_int_equal(look(w), 1);
    assert_false(w->decision.own);
    assert_int_equal(w->decision.floor_bytes, 1000 * mib);
    assert_in_range(w->decision.recent_bytes, 170 * mib, 200 * mib);
    assert_in_range(w->decision.recent_ms, 1700, 2000);
    assert_int_equal(looks(w, 39), 0); /* it is still going */
    drop_first(w);
    assert_int_equal(look(w), 2); /* gone: the next one that writes */
    drop_first(w);
    assert_int_equal(looks(w, 200), 0); /* the third writes nothing */
}

static void test_enough(void **state)
{
    struct world *w = *state;
    w->count = 2;
    w->rate[0] = 100 * mib;
    w->rate[1] = 40 * mib;
    looks(w, 60);
    w->reading.free_bytes = 999 * mib;
    assert_int_equal(looks(w, 2), 1);
    drop_first(w);
    w->reading.free_bytes = 1200 * mib;
    assert_int_equal(looks(w, 100), 0);
    w->reading.free_bytes = 900 * mib; /* again: two looks again */
    assert_int_equal(look(w), 0);
    assert_int_equal(look(w), 2);
}

/* One that does not go is not waited for for ever. */
static void test_unkillable(void **state)
{
    struct world *w = *state;
    w->count = 2;
    w->rate[0] = 100 * mib;
    w->rate[1] = 40 * mib;
    looks(w, 60);
    w->reading.free_bytes = 999 * mib;
    assert_int_equal(looks(w, 2), 1);
    assert_int_equal(looks(w, 39), 0);
    assert_int_equal(look(w), 2);
    assert_int_equal(looks(w, 100), 0); /* nobody twice */
}

/* Without a history (a floor that was raised) a second is waited for, unless free space is far below. */
static void test_no_history(void **state)
{
    struct world *w = *state;
    w->count = 2;
    w->rate[0] = 100 * mib;
    w->reading.free_bytes = 990 * mib;
    assert_int_equal(looks(w, 20), 0);
    assert_int_equal(looks(w, 6), 1);
    w->policy = (struct backstop){0};
    w->reading.free_bytes = 800 * mib;
    assert_int_equal(look(w), 0);
    assert_int_equal(look(w), 1);
}

/* It shrinks, and nobody is seen writing. */
static void test_creep(void **state)
{
    struct world *w = *state;
    w->count = 2;
    w->rate[1] = mib / 2; /* log lines */
    looks(w, 60);
    w->reading.free_bytes = 999 * mib;
    assert_int_equal(looks(w, 100), 0);
    w->reading.free_bytes = 999 * mib - 1000 * mib / 16;
    assert_int_equal(look(w), 0);
    w->reading.free_bytes -= mib;
    assert_int_equal(look(w), 2);
}

static void test_own_floor(void **state)
{
    struct world *w = *state;
    w->count = 3;
    w->rate[0] = 10 * mib;
    w->rate[2] = 300 * mib;
    w->runs[0].floor_bytes = 1400 * mib;
    w->runs[1].floor_bytes = 1300 * mib;
    looks(w, 60);
    w->reading.free_bytes = 1350 * mib;
    assert_int_equal(look(w), 0);
    assert_int_equal(look(w), 1); /* not the larger writer, which has asked for nothing */
    assert_true(w->decision.own);
    assert_int_equal(w->decision.floor_bytes, 1400 * mib);
    w->reading.free_bytes = 1299 * mib;
    assert_int_equal(looks(w, 40), 0); /* the second writes nothing: its guard has two seconds */
    assert_int_equal(look(w), 2);
    assert_true(w->decision.own);
    assert_int_equal(looks(w, 100), 0);
}

static void test_own_floor_recovers(void **state)
{
    struct world *w = *state;
    w->count = 1;
    w->runs[0].floor_bytes = 1400 * mib;
    for (int i = 0; i < 20; i++) {
        w->reading.free_bytes = 1399 * mib;
        assert_int_equal(looks(w, 30), 0);
        w->reading.free_bytes = 1400 * mib;
        assert_int_equal(look(w), 0);
    }
}

static void test_unmeasurable(void **state)
{
    struct world *w = *state;
    w->count = 1;
    w->rate[0] = 100 * mib;
    w->runs[0].floor_bytes = UINT64_MAX;
    w->reading.measurable = false;
    w->reading.free_bytes = 0;
    assert_int_equal(looks(w, 200), 0);
    assert_int_equal(w->decision.interval_ns, 1000 * ms);
}

/* A process that goes takes its count along; its run has still written that. */
static void test_count_falls(void **state)
{
    struct world *w = *state;
    w->count = 2;
    w->rate[0] = 50 * mib;
    w->rate[1] = 40 * mib;
    looks(w, 60);
    w->runs[0].written_bytes = 0;
    look(w);
    w->reading.free_bytes = 999 * mib;
    assert_int_equal(looks(w, 2), 1);
}

static void test_uncounted(void **state)
{
    struct world *w = *state;
    w->count = 2;
    w->rate[0] = 50 * mib;
    w->runs[0].counted = false; /* never looked at: nothing is known of it */
    w->rate[1] = 20 * mib;
    looks(w, 60);
    w->reading.free_bytes = 999 * mib;
    assert_int_equal(looks(w, 2), 2);
}

static void test_no_floor_and_nobody(void **state)
{
    struct world *w = *state;
    w->reading.floor_bytes = 0;
    w->reading.free_bytes = 0;
    w->count = 1;
    w->rate[0] = 50 * mib;
    assert_int_equal(looks(w, 100), 0);
    w->reading.floor_bytes = 1000 * mib;
    w->count = 0;
    assert_int_equal(looks(w, 100), 0);
}

static void test_too_many(void **state)
{
    struct world *w = *state;
    w->count = BACKSTOP_RUNS_MAX + 8;
    for (uint64_t i = 0; i < w->count; i++)
        w->runs[i] = (struct backstop_run){.id = i + 1, .counted = true, .floor_bytes = i >= 256 ? UINT64_MAX : 0};
    assert_int_equal(looks(w, 100), 0);
    assert_int_equal(w->policy.count, BACKSTOP_RUNS_MAX);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_above, setup, teardown),
        cmocka_unit_test_setup_teardown(test_largest_then_next, setup, teardown),
        cmocka_unit_test_setup_teardown(test_enough, setup, teardown),
        cmocka_unit_test_setup_teardown(test_unkillable, setup, teardown),
        cmocka_unit_test_setup_teardown(test_no_history, setup, teardown),
        cmocka_unit_test_setup_teardown(test_creep, setup, teardown),
        cmocka_unit_test_setup_teardown(test_own_floor, setup, teardown),
        cmocka_unit_test_setup_teardown(test_own_floor_recovers, setup, teardown),
        cmocka_unit_test_setup_teardown(test_unmeasurable, setup, teardown),
        cmocka_unit_test_setup_teardown(test_count_falls, setup, teardown),
        cmocka_unit_test_setup_teardown(test_uncounted, setup, teardown),
        cmocka_unit_test_setup_teardown(test_no_floor_and_nobody, setup, teardown),
        cmocka_unit_test_setup_teardown(test_too_many, setup, teardown),
    };
    return cmocka_run_group_tests_name("backstop", tests, NULL, NULL);
}
