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

/* One margin earlier for who writes, and back; never above what is free. */
static void test_stage(void **state)
{
    (void)state;
    struct space_policy policy;
    struct space_limits counted = limits;
    counted.floor_inodes = 1000;
    space_policy_init(&policy, &counted);
    uint64_t late = policy.act_bytes, late_inodes = policy.act_inodes, margin = late - counted.floor_bytes;
    space_policy_stage(&policy, true); /* nothing is known yet */
    assert_true(policy.act_bytes == late);
    look(&policy, 1, late + margin);
    space_policy_stage(&policy, true); /* it would kill at once */
    assert_true(policy.act_bytes == late);
    look(&policy, 2, late + margin + 1);
    space_policy_stage(&policy, true);
    assert_true(policy.act_bytes == late + margin);
    assert_true(policy.act_inodes == 2 * late_inodes - 1000);
    assert_int_equal(look(&policy, 3, late + margin + 1).level, SPACE_FINE);
    assert_int_equal(look(&policy, 4, late + margin).level, SPACE_FLOOR);
    space_policy_stage(&policy, true); /* it stays what it is */
    assert_true(policy.act_bytes == late + margin);
    space_policy_stage(&policy, false);
    assert_true(policy.act_bytes == late && policy.act_inodes == late_inodes);
    assert_int_equal(look(&policy, 5, late + 1).level, SPACE_FINE);
    space_policy_init(&policy, &limits);
    look(&policy, 1, 900 * GIB);
    space_policy_stage(&policy, true);
    assert_int_equal(policy.act_inodes, 0); /* not looked at */
    assert_true(policy.early);
}

/* Two guards with one floor, a writer at any rate up to the worst: only its own guard acts. */
static void test_the_writer_goes_first(void **state)
{
    (void)state;
    srandom(7);
    for (int world = 0; world < 2000; world++) {
        struct space_policy writer, idle;
        space_policy_init(&writer, &limits);
        space_policy_init(&idle, &limits);
        uint64_t free_bytes = writer.act_bytes + GIB + (uint64_t)random() % (4 * GIB), now = 1;
        uint64_t rate = 1 + (uint64_t)random() % limits.worst_rate_bytes_per_s;
        look(&writer, now, free_bytes);
        space_policy_stage(&writer, true);
        struct space_decision decision;
        while ((decision = look(&writer, now, free_bytes)).level != SPACE_FLOOR) {
            now += decision.interval_ns;
            uint64_t step = (uint64_t)((__uint128_t)rate * decision.interval_ns / (1000 * MS));
            free_bytes = free_bytes > step ? free_bytes - step : 0;
        }
        free_bytes -= (uint64_t)((__uint128_t)rate * limits.kill_time_ns / (1000 * MS));
        assert_true(free_bytes > idle.act_bytes);
    }
}

static void test_writes_most(void **state)
{
    (void)state;
    assert_true(space_writes_most(0, 0));
    assert_true(space_writes_most(0, (16 << 20) - 1));
    assert_false(space_writes_most(0, 16 << 20));
    assert_true(space_writes_most(5 * GIB, 10 * GIB));
    assert_false(space_writes_most(5 * GIB - 1, 10 * GIB));
    assert_true(space_writes_most(UINT64_MAX, 10 * GIB)); /* others remove meanwhile */
    assert_true(space_writes_most(UINT64_MAX, UINT64_MAX));
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

/* ---- levels above the floor ---- */

static const struct space_limits levels = {.floor_bytes = 20 * GIB,
                                           .soft_bytes = 40 * GIB,
                                           .warn_bytes = 50 * GIB,
                                           .soft_hold_ns = 2000 * MS,
                                           .worst_rate_bytes_per_s = 10 * GIB,
                                           .kill_time_ns = 5 * MS,
                                           .min_interval_ns = 1 * MS,
                                           .max_interval_ns = 1000 * MS};

static void test_levels_in_order(void **state)
{
    (void)state;
    struct space_policy policy;
    space_policy_init(&policy, &levels);
    assert_int_equal(look(&policy, 1, 50 * GIB + 1).level, SPACE_FINE);
    assert_int_equal(look(&policy, 2, 50 * GIB).level, SPACE_WARN);
    assert_int_equal(look(&policy, 3, 40 * GIB + 1).level, SPACE_WARN);
    uint64_t begin = 10 * MS;
    assert_int_equal(look(&policy, begin, 40 * GIB).level, SPACE_WARN); /* the hold time begins */
    assert_int_equal(look(&policy, begin + 2000 * MS - 1, 39 * GIB).level, SPACE_WARN);
    assert_int_equal(look(&policy, begin + 2000 * MS, 38 * GIB).level, SPACE_SOFT);
    assert_int_equal(look(&policy, begin + 2001 * MS, policy.act_bytes + 1).level, SPACE_SOFT);
    assert_int_equal(look(&policy, begin + 2002 * MS, policy.act_bytes).level, SPACE_FLOOR);
}

/* A level is left a 32nd above it, and the hold time begins anew when free space comes back and goes again. */
static void test_levels_are_left_with_a_margin(void **state)
{
    (void)state;
    struct space_policy policy;
    space_policy_init(&policy, &levels);
    look(&policy, 1, 39 * GIB);
    assert_int_equal(look(&policy, 2001 * MS, 39 * GIB).level, SPACE_SOFT);
    assert_int_equal(look(&policy, 2002 * MS, 40 * GIB + 1).level, SPACE_SOFT);
    assert_int_equal(look(&policy, 2003 * MS, 40 * GIB + 40 * GIB / 32).level, SPACE_SOFT);
    assert_int_equal(look(&policy, 2004 * MS, 40 * GIB + 40 * GIB / 32 + 1).level, SPACE_WARN);
    assert_int_equal(look(&policy, 2005 * MS, 39 * GIB).level, SPACE_WARN);
    assert_int_equal(look(&policy, 4005 * MS, 39 * GIB).level, SPACE_SOFT);
    assert_int_equal(look(&policy, 4006 * MS, 50 * GIB + 50 * GIB / 32).level, SPACE_WARN);
    assert_int_equal(look(&policy, 4007 * MS, 50 * GIB + 50 * GIB / 32 + 1).level, SPACE_FINE);
    assert_int_equal(look(&policy, 4008 * MS, 50 * GIB + 1).level, SPACE_FINE); /* entered at the level itself */
}

/* A dip below soft that is shorter than the hold time is no reason to end a dump; an unmeasurable look in between
 * changes nothing of it. */
static void test_soft_holds(void **state)
{
    (void)state;
    struct space_policy policy;
    space_policy_init(&policy, &levels);
    for (uint64_t second = 1; second < 20; second++)
        assert_int_equal(look(&policy, second * 1000 * MS, second % 2 ? 39 * GIB : 45 * GIB).level, SPACE_WARN);
    look(&policy, 30000 * MS, 39 * GIB);
    struct space_reading nothing = {.at_ns = 31000 * MS};
    struct space_decision decision;
    space_policy_look(&policy, &nothing, &decision);
    assert_int_equal(decision.level, SPACE_UNMEASURABLE);
    assert_int_equal(look(&policy, 32000 * MS, 39 * GIB).level, SPACE_SOFT);
}

static void test_no_levels(void **state)
{
    (void)state;
    struct space_policy policy;
    space_policy_init(&policy, &limits);
    assert_int_equal(look(&policy, 1, policy.act_bytes + 1).level, SPACE_FINE);
    assert_int_equal(look(&policy, 10000 * MS, policy.act_bytes + 1).level, SPACE_FINE);
    struct space_limits immediate = levels;
    immediate.soft_hold_ns = 0;
    immediate.warn_bytes = 0;
    space_policy_init(&policy, &immediate);
    assert_int_equal(look(&policy, 1, 40 * GIB).level, SPACE_SOFT);
    immediate.soft_bytes = 1 * GIB; /* below the act level: never seen, the floor is graver */
    space_policy_init(&policy, &immediate);
    assert_int_equal(look(&policy, 1, 21 * GIB).level, SPACE_FINE);
    assert_int_equal(look(&policy, 2, 1 * GIB).level, SPACE_FLOOR);
}

static void test_read_only_is_soft(void **state)
{
    (void)state;
    struct space_policy policy;
    struct space_decision decision;
    space_policy_init(&policy, &levels);
    struct space_reading reading = {
        .at_ns = 1, .measurable = true, .total_bytes = 1000 * GIB, .free_bytes = 900 * GIB, .read_only = true};
    space_policy_look(&policy, &reading, &decision);
    assert_int_equal(decision.level, SPACE_SOFT); /* at once */
    reading.read_only = false;
    reading.at_ns = 2;
    space_policy_look(&policy, &reading, &decision);
    assert_int_equal(decision.level, SPACE_FINE);
}

static void test_pending_counts_as_written(void **state)
{
    (void)state;
    struct space_policy policy;
    struct space_decision decision;
    space_policy_init(&policy, &levels);
    struct space_reading reading = {.at_ns = 1, .measurable = true, .total_bytes = 1000 * GIB, .free_bytes = 900 * GIB};
    space_policy_look(&policy, &reading, &decision);
    reading.at_ns += 1000 * MS;
    reading.pending_bytes = 10 * GIB;
    space_policy_look(&policy, &reading, &decision);
    assert_int_equal(decision.rate_bytes_per_s, 10 * GIB);
    assert_int_equal(decision.ms_to_floor, 87000);
    reading.pending_bytes = 900 * GIB - policy.act_bytes;
    reading.at_ns += 1000 * MS;
    space_policy_look(&policy, &reading, &decision);
    assert_int_equal(decision.level, SPACE_FLOOR);
    assert_false(decision.by_inodes);
    reading.pending_bytes = UINT64_MAX; /* more than there is: nothing is left, not plenty */
    reading.at_ns += 1000 * MS;
    space_policy_look(&policy, &reading, &decision);
    assert_int_equal(decision.level, SPACE_FLOOR);
    assert_int_equal(space_free(&reading), 0);
}

/* ---- inodes ---- */

static struct space_decision look_inodes(struct space_policy *policy, uint64_t at_ns, uint64_t total,
                                         uint64_t free_inodes)
{
    struct space_reading reading = {.at_ns = at_ns,
                                    .measurable = true,
                                    .total_bytes = 1000 * GIB,
                                    .free_bytes = 900 * GIB,
                                    .inodes_counted = total > 0,
                                    .total_inodes = total,
                                    .free_inodes = free_inodes};
    struct space_decision decision;
    space_policy_look(policy, &reading, &decision);
    return decision;
}

static void test_inodes(void **state)
{
    (void)state;
    struct space_policy policy;
    struct space_limits some = levels;
    some.floor_inodes = 1000;
    space_policy_init(&policy, &some);
    assert_int_equal(policy.act_inodes, 1000 + SPACE_WORST_FILES_PER_S * 6 / 1000);
    assert_int_equal(look_inodes(&policy, 1, 1000000, 900000).interval_ns, 1000 * MS);
    space_policy_init(&policy, &some);
    assert_int_equal(look_inodes(&policy, 1, 100000, policy.act_inodes + 20000).interval_ns, 100 * MS);
    struct space_decision decision = look_inodes(&policy, 2, 100000, policy.act_inodes);
    assert_int_equal(decision.level, SPACE_FLOOR);
    assert_true(decision.by_inodes);
    assert_int_equal(decision.interval_ns, 1 * MS);
    assert_int_equal(look_inodes(&policy, 3, 1000, 0).level, SPACE_FLOOR); /* counted, and none left */
    assert_int_equal(look_inodes(&policy, 4, 0, 0).level, SPACE_FINE);     /* 0 of 0: not counted, not exhausted */
    space_policy_init(&policy, &levels);                                   /* no floor of inodes */
    assert_int_equal(look_inodes(&policy, 1, 1000, 0).level, SPACE_FINE);
    assert_int_equal(policy.act_inodes, 0);
}

/* Faster than the worst rate: twice what was seen is expected. */
static void test_inodes_peak(void **state)
{
    (void)state;
    struct space_policy policy;
    struct space_limits some = levels;
    some.floor_inodes = 1000;
    space_policy_init(&policy, &some);
    look_inodes(&policy, 1, 10000000, 9000000);
    assert_int_equal(look_inodes(&policy, 1 + 1000 * MS, 10000000, policy.act_inodes + 1000000).interval_ns,
                     1000 * MS * 1000000 / (2 * (9000000 - 1000000 - policy.act_inodes)));
}

/* As for bytes: a maker of files at any rate up to the worst never meets the floor. */
static void test_floor_of_inodes_is_never_crossed(void **state)
{
    (void)state;
    srandom(2);
    struct space_limits some = levels;
    some.floor_inodes = 1000;
    for (int trial = 0; trial < 20000; trial++) {
        struct space_policy policy;
        space_policy_init(&policy, &some);
        uint64_t free_inodes = policy.act_inodes + (uint64_t)random() % 400000, now = 1;
        for (;;) {
            struct space_decision decision = look_inodes(&policy, now, 1000000, free_inodes);
            if (decision.level == SPACE_FLOOR)
                break;
            uint64_t most = SPACE_WORST_FILES_PER_S * decision.interval_ns / 1000000000u;
            uint64_t made = random() % 4 == 0 ? most : (uint64_t)random() % (most + 1);
            free_inodes = free_inodes > made ? free_inodes - made : 0;
            now += decision.interval_ns;
        }
        assert_true(free_inodes >= some.floor_inodes + SPACE_WORST_FILES_PER_S * some.kill_time_ns / 1000000000u);
    }
}

/* The interval is that of whatever can be gone first; no figure makes it leave its bounds. */
static void test_interval_bounds(void **state)
{
    (void)state;
    static const uint64_t figures[] = {0, 1, MIB, GIB, 20 * GIB, 21 * GIB, 900 * GIB, UINT64_MAX / 2, UINT64_MAX};
    enum { COUNT = sizeof figures / sizeof figures[0] };
    struct space_limits some = levels;
    some.floor_inodes = 1000;
    for (size_t i = 0; i < (size_t)COUNT * COUNT * COUNT; i++) {
        struct space_policy policy;
        struct space_decision decision;
        space_policy_init(&policy, &some);
        for (uint64_t at = 1; at < 4000 * MS; at += 700 * MS) {
            struct space_reading reading = {.at_ns = at,
                                            .measurable = true,
                                            .total_bytes = UINT64_MAX,
                                            .free_bytes = figures[i % COUNT],
                                            .pending_bytes = figures[i / COUNT % COUNT],
                                            .inodes_counted = true,
                                            .total_inodes = UINT64_MAX,
                                            .free_inodes = figures[i / COUNT / COUNT]};
            space_policy_look(&policy, &reading, &decision);
            assert_in_range(decision.interval_ns, 1 * MS, 1000 * MS);
            if (reading.free_inodes <= policy.act_inodes || space_free(&reading) <= policy.act_bytes)
                assert_int_equal(decision.level, SPACE_FLOOR);
        }
    }
}

static void test_limits_saturate(void **state)
{
    (void)state;
    struct space_policy policy;
    struct space_limits most = {.floor_bytes = UINT64_MAX,
                                .floor_inodes = UINT64_MAX,
                                .soft_bytes = UINT64_MAX,
                                .warn_bytes = UINT64_MAX,
                                .worst_rate_bytes_per_s = UINT64_MAX,
                                .kill_time_ns = UINT64_MAX,
                                .min_interval_ns = 1,
                                .max_interval_ns = UINT64_MAX};
    space_policy_init(&policy, &most);
    assert_true(policy.act_bytes == UINT64_MAX && policy.act_inodes == UINT64_MAX);
    assert_int_equal(look(&policy, 1, UINT64_MAX).level, SPACE_FLOOR);
}

/* ---- defaults ---- */

static void test_default_floor(void **state)
{
    (void)state;
    assert_int_equal(space_default_floor(10000 * GIB), 200 * GIB);
    assert_int_equal(space_default_floor(1000 * GIB), 50 * GIB);
    assert_int_equal(space_default_floor(252 * GIB), 20 * GIB);
    assert_int_equal(space_default_floor(64 * MIB), 64 * MIB / 10);
    assert_int_equal(space_default_floor(0), 0);
    assert_int_equal(space_start_level(20 * GIB), 25 * GIB);
    assert_true(space_start_level(UINT64_MAX) == UINT64_MAX);
    assert_true(space_units_left(GIB, 0, 0) == UINT64_MAX);
    assert_int_equal(space_units_left(3 * GIB, GIB, MIB), 2048);
    assert_int_equal(space_units_left(GIB, 3 * GIB, MIB), 0);
}

static void test_default_inodes(void **state)
{
    (void)state;
    const struct size none = {0}, bytes = {false, 20 * GIB}, five = {true, 5000}, whole = {true, 100000};
    assert_int_equal(space_floor_inodes(&none, 16000000), 160000);
    assert_int_equal(space_floor_inodes(&bytes, 16000000), 160000); /* bytes say nothing about inodes */
    assert_int_equal(space_floor_inodes(&five, 16000000), 800000);
    assert_int_equal(space_floor_inodes(&whole, 16000000), 16000000);
    assert_int_equal(space_floor_inodes(&none, 50000), 1000);
    assert_int_equal(space_floor_inodes(&none, 5000), 500);
    assert_int_equal(space_floor_inodes(&none, 9), 0);
    assert_int_equal(space_floor_inodes(&none, 0), 0);
    assert_int_equal(space_floor_inodes(&five, 0), 0);
    assert_true(space_floor_inodes(&none, UINT64_MAX) == UINT64_MAX / 100);
    assert_true(space_floor_inodes(&five, UINT64_MAX) == UINT64_MAX / 20);
}

static void test_default_soft_and_warn(void **state)
{
    (void)state;
    assert_int_equal(space_default_soft(20 * GIB, 900 * GIB), 40 * GIB);
    assert_int_equal(space_warn_level(20 * GIB, 40 * GIB, 900 * GIB), 50 * GIB);
    assert_int_equal(space_default_soft(20 * GIB, 30 * GIB), 25 * GIB);
    assert_int_equal(space_warn_level(20 * GIB, 25 * GIB, 30 * GIB), 27 * GIB + 512 * MIB);
    assert_int_equal(space_default_soft(20 * GIB, 20 * GIB), 20 * GIB);
    assert_int_equal(space_default_soft(20 * GIB, 1 * GIB), 20 * GIB);
    assert_int_equal(space_warn_level(20 * GIB, 20 * GIB, 1 * GIB), 20 * GIB);
    assert_int_equal(space_warn_level(20 * GIB, 899 * GIB, 900 * GIB), 899 * GIB + 512 * MIB);
    assert_int_equal(space_default_soft(0, 0), 0);
    assert_true(space_default_soft(UINT64_MAX, UINT64_MAX) == UINT64_MAX);
    assert_true(space_warn_level(0, UINT64_MAX, UINT64_MAX) == UINT64_MAX);
    /* whatever the figures: floor <= soft <= warn, and neither at or above what is free when the floor is not */
    srandom(3);
    for (int trial = 0; trial < 100000; trial++) {
        uint64_t mask = UINT64_MAX >> (random() % 63);
        uint64_t floor = (((uint64_t)random() << 33) ^ (uint64_t)random()) & mask;
        uint64_t free_bytes = (((uint64_t)random() << 33) ^ (uint64_t)random()) & mask;
        uint64_t soft = space_default_soft(floor, free_bytes), warn = space_warn_level(floor, soft, free_bytes);
        assert_true(floor <= soft && soft <= warn);
        if (free_bytes > floor)
            assert_true(soft < free_bytes && warn < free_bytes);
    }
}

/* The soft level is reached, and has held, before a run that writes most is killed; on a small disk it is still reached
 * first, and never above what is free. */
static void test_least_soft(void **state)
{
    (void)state;
    struct space_policy policy;
    struct space_limits soft = limits;
    space_policy_init(&policy, &limits);
    const uint64_t margin = policy.margin_bytes, floor = limits.floor_bytes;
    assert_int_equal(space_least_soft(&limits, 100 * GIB), floor + 3 * margin);
    assert_int_equal(space_least_soft(&limits, floor + 2 * margin + 100), floor + 2 * margin + 50);
    assert_int_equal(space_least_soft(&limits, floor + 2 * margin), floor + margin + margin / 2);
    soft.soft_bytes = space_least_soft(&limits, 100 * GIB);
    soft.soft_hold_ns = 2000 * MS;
    space_policy_init(&policy, &soft);
    uint64_t free_bytes = soft.soft_bytes + GIB, now_ns = 1;
    look(&policy, now_ns, free_bytes);
    space_policy_stage(&policy, true);
    assert_int_equal(policy.act_bytes, floor + 2 * margin);
    enum space_level level = SPACE_FINE;
    while (level != SPACE_SOFT) { /* 20 MiB/s */
        now_ns += 10 * MS;
        free_bytes -= 20 * MIB / 100;
        level = look(&policy, now_ns, free_bytes).level;
        assert_int_not_equal(level, SPACE_FLOOR);
    }
}

static void test_level_names(void **state)
{
    (void)state;
    assert_string_equal(space_level_name(SPACE_FINE), "fine");
    assert_string_equal(space_level_name(SPACE_UNMEASURABLE), "blind");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_act_level),
        cmocka_unit_test(test_stage),
        cmocka_unit_test(test_the_writer_goes_first),
        cmocka_unit_test(test_writes_most),
        cmocka_unit_test(test_interval),
        cmocka_unit_test(test_floor_is_never_crossed),
        cmocka_unit_test(test_unmeasurable),
        cmocka_unit_test(test_rate_and_time_to_floor),
        cmocka_unit_test(test_levels_in_order),
        cmocka_unit_test(test_levels_are_left_with_a_margin),
        cmocka_unit_test(test_soft_holds),
        cmocka_unit_test(test_no_levels),
        cmocka_unit_test(test_read_only_is_soft),
        cmocka_unit_test(test_pending_counts_as_written),
        cmocka_unit_test(test_inodes),
        cmocka_unit_test(test_inodes_peak),
        cmocka_unit_test(test_floor_of_inodes_is_never_crossed),
        cmocka_unit_test(test_interval_bounds),
        cmocka_unit_test(test_limits_saturate),
        cmocka_unit_test(test_default_floor),
        cmocka_unit_test(test_default_inodes),
        cmocka_unit_test(test_default_soft_and_warn),
        cmocka_unit_test(test_least_soft),
        cmocka_unit_test(test_level_names),
    };
    return cmocka_run_group_tests_name("space", tests, NULL, NULL);
}
