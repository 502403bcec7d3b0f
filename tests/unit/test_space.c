/* The space policy: the promise, the act level, the interval, the figures shown. */
#include "core/space.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>

#include <cmocka.h>

#define GIB (1ull << 30)
#define MIB (1ull << 20)
#define MS  1000000ull

static const struct space_limits limits = {.floor_bytes = 20 * GIB,
                                           .worst_rate_bytes_per_s = 10 * GIB,
                                           .kill_time_ns = 5 * MS,
                                           .min_interval_ns = 1 * MS,
                                           .max_interval_ns = 1000 * MS};

static struct space_decision look(struct space_policy *policy, uint64_t at_ns, uint64_t free_bytes)
{
    struct space_reading reading = {
        .at_ns = at_ns, .measurable = true, .total_bytes = 1000 * GIB, .free_bytes = free_bytes};
    struct space_decision decision;
    space_policy_look(policy, &reading, &decision);
    return decision;
}

static void test_act_level(void **state)
{
    (void)state;
    struct space_policy policy;
    space_policy_init(&policy, &limits);
    uint64_t expected = 20 * GIB + 10 * GIB * 6 / 1000;
    assert_true(policy.act_bytes >= expected - 1 && policy.act_bytes <= expected);
    assert_int_equal(look(&policy, 1, policy.act_bytes + 1).level, SPACE_FINE);
    assert_int_equal(look(&policy, 2, policy.act_bytes).level, SPACE_FLOOR);
    assert_int_equal(look(&policy, 3, 0).level, SPACE_FLOOR);
}

static void test_interval(void **state)
{
    (void)state;
    struct space_policy policy;
    space_policy_init(&policy, &limits);
    assert_int_equal(look(&policy, 1, 900 * GIB).interval_ns, 1000 * MS);
    uint64_t interval = look(&policy, 1000 * MS, policy.act_bytes + 1 * GIB).interval_ns;
    /* twice the peak (869 GiB in a second) beats the worst rate */
    assert_int_equal(interval, 1 * MS);
    space_policy_init(&policy, &limits);
    interval = look(&policy, 1, policy.act_bytes + 1 * GIB).interval_ns;
    assert_int_equal(interval, 100 * MS);
    assert_int_equal(look(&policy, 2, policy.act_bytes).interval_ns, 1 * MS);
}

/* The promise, by exhaustion: a writer at any rate up to the worst, any start, any jitter of its bursts, is caught with
 * the lowest free space above the floor when the kill takes as long as was rehearsed. */
static void test_floor_is_never_crossed(void **state)
{
    (void)state;
    srandom(1);
    for (int trial = 0; trial < 20000; trial++) {
        struct space_policy policy;
        space_policy_init(&policy, &limits);
        uint64_t free_bytes = policy.act_bytes + (uint64_t)random() % (4 * GIB), now = 1;
        for (;;) {
            struct space_decision decision = look(&policy, now, free_bytes);
            if (decision.level == SPACE_FLOOR)
                break;
            /* the worst rate in a random part of the interval, silence in the rest */
            uint64_t most =
                (uint64_t)((unsigned __int128)limits.worst_rate_bytes_per_s * decision.interval_ns / 1000000000u);
            uint64_t written = random() % 4 == 0 ? most : (uint64_t)random() % (most + 1);
            free_bytes = free_bytes > written ? free_bytes - written : 0;
            now += decision.interval_ns;
        }
        uint64_t while_dying =
            (uint64_t)((unsigned __int128)limits.worst_rate_bytes_per_s * limits.kill_time_ns / 1000000000u);
        assert_true(free_bytes >= while_dying + limits.floor_bytes);
    }
}

static void test_unmeasurable(void **state)
{
    (void)state;
    struct space_policy policy;
    space_policy_init(&policy, &limits);
    struct space_reading nothing = {.at_ns = 1};
    struct space_decision decision;
    space_policy_look(&policy, &nothing, &decision);
    assert_int_equal(decision.level, SPACE_UNMEASURABLE);
    assert_true(decision.interval_ns <= 1000 * MS);
    assert_int_equal(look(&policy, 2, 900 * GIB).level, SPACE_FINE);
}

static void test_rate_and_time_to_floor(void **state)
{
    (void)state;
    struct space_policy policy;
    space_policy_init(&policy, &limits);
    struct space_decision decision = look(&policy, 1, 100 * GIB);
    assert_int_equal(decision.rate_bytes_per_s, 0);
    assert_true(decision.ms_to_floor == UINT64_MAX);
    decision = look(&policy, 1 + 1000 * MS, 99 * GIB);
    assert_int_equal(decision.rate_bytes_per_s, GIB);
    assert_int_equal(decision.ms_to_floor, 79000);
    decision = look(&policy, 1 + 2000 * MS, 101 * GIB); /* space came back */
    assert_int_equal(decision.rate_bytes_per_s, 0);
}

static void test_default_floor(void **state)
{
    (void)state;
    assert_int_equal(space_default_floor(10000 * GIB), 200 * GIB);
    assert_int_equal(space_default_floor(1000 * GIB), 50 * GIB);
    assert_int_equal(space_default_floor(252 * GIB), 20 * GIB);
    assert_int_equal(space_default_floor(64 * MIB), 64 * MIB / 10);
    assert_int_equal(space_default_floor(0), 0);
    assert_int_equal(space_start_level(20 * GIB), 25 * GIB);
    assert_true(space_units_left(GIB, 0, 0) == UINT64_MAX);
    assert_int_equal(space_units_left(3 * GIB, GIB, MIB), 2048);
    assert_int_equal(space_units_left(GIB, 3 * GIB, MIB), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_act_level),
        cmocka_unit_test(test_interval),
        cmocka_unit_test(test_floor_is_never_crossed),
        cmocka_unit_test(test_unmeasurable),
        cmocka_unit_test(test_rate_and_time_to_floor),
        cmocka_unit_test(test_default_floor),
    };
    return cmocka_run_group_tests_name("space", tests, NULL, NULL);
}
