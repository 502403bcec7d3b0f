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

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_what_cannot_begin), cmocka_unit_test(test_levels),
                                       cmocka_unit_test(test_kill_that_was_rehearsed)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
