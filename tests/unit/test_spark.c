#include "ctl/spark.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static void expect_drawn(const struct spark *spark, size_t width, bool utf8, const char *expected)
{
    struct buffer out;
    buffer_init(&out);
    spark_draw(spark, width, utf8, &out);
    assert_string_equal(out.data, expected);
    buffer_fini(&out);
}

static void test_from_lowest_to_highest(void **state)
{
    (void)state;
    static struct spark spark;
    expect_drawn(&spark, 10, false, "");
    spark_add(&spark, 100, 50);
    expect_drawn(&spark, 10, false, "");
    spark_add(&spark, 200, 57);
    spark_add(&spark, 200, 9); /* not later */
    spark_add(&spark, 300, 51);
    spark_add(&spark, 400, 50);
    uint64_t lowest, highest, span_ms;
    spark_bounds(&spark, &lowest, &highest, &span_ms);
    assert_int_equal(lowest, 50);
    assert_int_equal(highest, 57);
    assert_int_equal(span_ms, 300);
    expect_drawn(&spark, 3, false, "_._");
    expect_drawn(&spark, 3, true, "▁▂▁");
    expect_drawn(&spark, 0, false, "");
}

static void test_time_without_points_and_flat(void **state)
{
    (void)state;
    static struct spark spark;
    spark_add(&spark, 0, 7);
    spark_add(&spark, 10, 0);
    spark_add(&spark, 50, 7);
    spark_add(&spark, 100, 7);
    expect_drawn(&spark, 4, false, "_###"); /* a bar without a point is as the one before */
    static struct spark flat;
    for (uint64_t i = 0; i < 4; i++)
        spark_add(&flat, i, UINT64_MAX);
    expect_drawn(&flat, 9, false, "====");
}

static void test_full(void **state)
{
    (void)state;
    static struct spark spark;
    for (uint64_t i = 0; i < 40 * SPARK_POINTS; i++)
        spark_add(&spark, i, i);
    assert_true(spark.count <= SPARK_POINTS);
    assert_int_equal(spark.point[0].value, 0);
    assert_int_equal(spark.point[spark.count - 1].value, 40 * SPARK_POINTS - 1);
    expect_drawn(&spark, 8, false, "__.-~=+*"); /* as steep at the beginning as at the end */
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_from_lowest_to_highest),
                                       cmocka_unit_test(test_time_without_points_and_flat),
                                       cmocka_unit_test(test_full)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
