#include "core/space_start.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static const uint64_t gib = 1ull << 30;
enum { WORST_RATE = 1 << 30 };

struct given {
    const char *type;
    uint64_t total_gib, free_gib, inodes, free_inodes;
    const char *floor, *soft; /* NULL: not given */
};

static enum error_code check(const struct given *given, struct space_start *ret_start, struct error *err)
{
    struct settings settings = {.worst_rate_bytes_per_s = WORST_RATE};
    if (given->floor != NULL)
        assert_int_equal(size_parse("--floor", given->floor, true, &settings.floor, err), ERROR_NONE);
    if (given->soft != NULL)
        assert_int_equal(size_parse("--soft", given->soft, true, &settings.soft, err), ERROR_NONE);
    *ret_start = (struct space_start){.directory = "/dumps",
                                      .type = given->type,
                                      .measurable = given->total_gib > 0,
                                      .total_bytes = given->total_gib * gib,
                                      .free_bytes = given->free_gib * gib,
                                      .inodes_counted = given->inodes > 0,
                                      .total_inodes = given->inodes,
                                      .free_inodes = given->free_inodes};
    return space_start_check(ret_start, &settings, err);
}

static void test_what_cannot_begin(void **state)
{
    (void)state;
    static const struct {
        struct given given;
        enum error_code code;
        const char *text, *advice; /* what to do, after the last "; " */
    } rows[] = {
        {{"fuse", 0, 0, 0, 0, NULL, NULL}, ERROR_SPACE, "/dumps (fuse) does not tell", "give a --dir on another one"},
        {{"tmpfs", 3, 3, 0, 0, NULL, NULL}, ERROR_SPACE, "tmpfs of 3.0 GiB", "give another --dir, or say"},
        {{"ext4", 100, 90, 0, 0, "101G", NULL},
         ERROR_SPACE,
         "larger than the whole filesystem of /dumps (100.0 GiB",
         "give a lower --floor"},
        {{"ext4", 100, 24, 0, 0, "20G", NULL}, ERROR_SPACE, "starts from 25.0 GiB on", "make room"},
        {{"ext4", 100, 90, 0, 0, "20G", "19G"},
         ERROR_SETTINGS,
         "--soft 19.0 GiB is below the floor 20.0 GiB",
         "give a higher --soft"},
        {{"ext4", 100, 90, 0, 0, "20G", "90G"}, ERROR_SPACE, "no dump could begin", "make room"},
        {{"ext4", 100, 90, 1000000, 10000, "20G", NULL}, ERROR_SPACE, "10000 free inodes", "give a --dir on another"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct space_start start;
        struct error err = ERROR_INIT;
        assert_int_equal(check(&rows[i].given, &start, &err), rows[i].code);
        assert_non_null(strstr(err.message, rows[i].text));
        const char *last = strstr(err.message, "; ");
        while (last != NULL && strstr(last + 1, "; ") != NULL)
            last = strstr(last + 1, "; ");
        assert_non_null(last);
        assert_int_equal(strncmp(last + 2, rows[i].advice, strlen(rows[i].advice)), 0);
    }
}

static void test_levels(void **state)
{
    (void)state;
    struct space_start start;
    struct given given = {"ext4", 1000, 500, 1000000, 900000, NULL, NULL};
    assert_int_equal(check(&given, &start, NULL), ERROR_NONE);
    assert_int_equal(start.floor_bytes, 50 * gib);
    assert_int_equal(start.soft_bytes, 100 * gib);
    assert_true(start.warn_bytes > start.soft_bytes);
    assert_int_equal(start.floor_inodes, 10000);
    given = (struct given){"tmpfs", 3, 3, 0, 0, "1G", "50%"};
    assert_int_equal(check(&given, &start, NULL), ERROR_NONE);
    assert_int_equal(start.floor_bytes, gib);
    assert_int_equal(start.soft_bytes, 3 * gib / 2);
    assert_int_equal(start.floor_inodes, 0);
}

/* A soft level at which a run that writes most would be dead already is raised; one that was given says so. The floor
 * is 20 GiB, the kill levels are 6.1 MiB and 12.3 MiB above it. */
static void test_soft_above_the_kill(void **state)
{
    (void)state;
    static const struct {
        const char *soft;
        uint64_t soft_mib; /* what holds, rounded */
        const char *raised;
    } rows[] = {
        {NULL, 40 * 1024, ""},
        {"30G", 30 * 1024, ""},
        {"20500M", 20500, ""},
        {"20490M", 20498,
         "soft raised by 8.4 MiB to 20.0 GiB: a run that writes most may be killed 12.3 MiB above the floor, and "
         "dumping is switched off before"},
        {"20G", 20498,
         "soft raised by 18.4 MiB to 20.0 GiB: a run that writes most may be killed 12.3 MiB above the floor, and "
         "dumping is switched off before"}};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct space_start start;
        struct given given = {"ext4", 100, 90, 0, 0, "20G", rows[i].soft};
        assert_int_equal(check(&given, &start, NULL), ERROR_NONE);
        assert_int_equal(start.soft_bytes >> 20, rows[i].soft_mib);
        assert_string_equal(start.raised[2], rows[i].raised);
        assert_true(start.warn_bytes >= start.soft_bytes);
    }
    /* a kill that takes longer than was thought raises it once more */
    struct space_start start;
    struct space_limits limits;
    char text[320];
    struct given given = {"ext4", 100, 90, 0, 0, "20G", NULL};
    assert_int_equal(check(&given, &start, NULL), ERROR_NONE);
    space_start_limits(&start, 4999500000, &limits);
    space_start_raise_soft(&start, &limits, text);
    assert_int_equal(start.soft_bytes, 50 * gib);
    assert_int_equal(strncmp(text, "soft raised by 10.0 GiB to 50.0 GiB: ", 37), 0);
    assert_true(start.warn_bytes > 50 * gib);
    space_start_raise_soft(&start, &limits, text);
    assert_string_equal(text, "");
}

/* A kill that takes longer than was thought may leave no room. */
static void test_kill_that_was_rehearsed(void **state)
{
    (void)state;
    struct space_start start;
    struct space_limits limits;
    struct error err = ERROR_INIT;
    struct given given = {"ext4", 100, 26, 0, 0, "20G", NULL};
    assert_int_equal(check(&given, &start, NULL), ERROR_NONE);
    space_start_limits(&start, 1000, &limits);
    assert_int_equal(limits.kill_time_ns, 5000000);
    assert_int_equal(limits.worst_rate_bytes_per_s, WORST_RATE);
    assert_int_equal(space_start_refuse_small(&start, &limits, NULL), ERROR_NONE);
    space_start_limits(&start, 4000000000, &limits);
    assert_int_equal(limits.kill_time_ns, 8000000000);
    assert_int_equal(space_start_refuse_small(&start, &limits, &err), ERROR_SPACE);
    assert_non_null(strstr(err.message, "the kill level 28.0 GiB is above the 26.0 GiB that are free"));
}

/* The admin's: a default is raised and told, what the user asked for is refused; a higher one stays. */
static void test_rules(void **state)
{
    (void)state;
    static const struct {
        const char *floor;
        bool given;
        enum error_code code;
        uint64_t floor_gib, floor_inodes;
        const char *raised, *message;
    } rows[] = {
        {NULL, false, ERROR_NONE, 200, 200000, "floor 200.0 GiB: [limits] of /k; without it 50.0 GiB", ""},
        {"60G", false, ERROR_NONE, 200, 200000, "floor 200.0 GiB: [limits] of /k; without it 60.0 GiB", ""},
        {"201G", true, ERROR_NONE, 201, 200000, "", ""},
        {"200G", true, ERROR_NONE, 200, 200000, "", ""},
        {"25%", true, ERROR_NONE, 250, 250000, "", ""},
        {"199G", true, ERROR_FORBIDDEN, 200, 200000, "floor 200.0 GiB: [limits] of /k; without it 199.0 GiB",
         "floor 199.0 GiB was asked for, and [limits] of /k wants 200.0 GiB to stay free on the filesystem of /dumps; "
         "leave --floor out, or give more"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct error err = ERROR_INIT;
        struct settings settings = {.worst_rate_bytes_per_s = WORST_RATE};
        settings.given[SETTINGS_FLOOR] = rows[i].given;
        if (rows[i].floor != NULL)
            assert_int_equal(size_parse("--floor", rows[i].floor, true, &settings.floor, &err), ERROR_NONE);
        struct space_start start = {
            .directory = "/dumps",
            .type = "ext4",
            .measurable = true,
            .total_bytes = 1000 * gib,
            .free_bytes = 900 * gib,
            .inodes_counted = true,
            .total_inodes = 1000000,
            .free_inodes = 900000,
            .rules = {{{false, 100 * gib}, "[limits] of /etc", 2 * (uint64_t)WORST_RATE, "[limits] of /etc"},
                      {{true, 20000}, "[limits] of /k", WORST_RATE, "[limits] of /k"}}};
        assert_int_equal(space_start_check(&start, &settings, &err), rows[i].code);
        assert_string_equal(err.message, rows[i].message);
        assert_int_equal(start.floor_bytes, rows[i].floor_gib * gib);
        assert_int_equal(start.floor_inodes, rows[i].floor_inodes);
        assert_string_equal(start.raised[0], rows[i].raised);
        assert_string_equal(start.raised[1], "worst rate 2.0 GiB/s: [limits] of /etc; without it 1.0 GiB/s");
        assert_true(start.worst_rate_bytes_per_s == 2 * (uint64_t)WORST_RATE);
    }
}

/* Where there is no room for the admin's floor, no lower one is advised. */
static void test_rule_without_room(void **state)
{
    (void)state;
    static const struct {
        uint64_t total_gib, free_gib, soft_gib;
        const char *message;
    } rows[] = {
        {90, 80, 0,
         "the floor 100.0 GiB ([limits] of /k) is larger than the whole filesystem of /dumps (90.0 GiB, 80.0 GiB of it "
         "free); give another --dir, or ask the admin for another rule"},
        {1000, 110, 0,
         "/dumps has 110.0 GiB free, and a run with floor 100.0 GiB ([limits] of /k) starts from 125.0 GiB on (floor + "
         "a quarter); make room, give another --dir, or ask the admin for another rule"},
        {1000, 900, 99,
         "--soft 99.0 GiB is below the floor 100.0 GiB: dumping would be switched off after the run was killed; give a "
         "higher --soft"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct error err = ERROR_INIT;
        struct settings settings = {.worst_rate_bytes_per_s = WORST_RATE, .soft = {false, rows[i].soft_gib * gib}};
        struct space_start start = {.directory = "/dumps",
                                    .type = "ext4",
                                    .measurable = true,
                                    .total_bytes = rows[i].total_gib * gib,
                                    .free_bytes = rows[i].free_gib * gib,
                                    .rules = {{{false, 100 * gib}, "[limits] of /k", 0, NULL}}};
        assert_int_not_equal(space_start_check(&start, &settings, &err), ERROR_NONE);
        assert_string_equal(err.message, rows[i].message);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_what_cannot_begin),
                                       cmocka_unit_test(test_levels),
                                       cmocka_unit_test(test_soft_above_the_kill),
                                       cmocka_unit_test(test_kill_that_was_rehearsed),
                                       cmocka_unit_test(test_rules),
                                       cmocka_unit_test(test_rule_without_room)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
