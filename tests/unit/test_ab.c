#include "analysis/ab.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

enum { COUNT = 6 };

struct side {
    int64_t ids[COUNT];
    double scored[COUNT], decoded[COUNT];
    struct ab_request request;
};

static void fill(struct side *side)
{
    for (int k = 0; k < COUNT; k++) {
        side->ids[k] = 100 + k;
        side->scored[k] = side->decoded[k] = -0.25 * k;
    }
    side->request = (struct ab_request){.rid = "r",
                                        .cached = 3,
                                        .first = 40,
                                        .count = COUNT,
                                        .ids = side->ids,
                                        .values = {side->scored, side->decoded}};
}

static struct side a, b;

static int set_up(void **state)
{
    (void)state;
    fill(&a);
    fill(&b);
    return 0;
}

static struct ab_change compare(void)
{
    struct ab_change change;
    ab_compare(&a.request, &b.request, &change);
    return change;
}

static void equal_bits(void **state)
{
    (void)state;
    struct ab_change change = compare();
    assert_false(ab_changed(&change));
    assert_int_equal(change.compared, COUNT);
    assert_int_equal(change.position, UINT64_MAX);
}

static void one_bit(void **state)
{
    (void)state;
    b.scored[4] = nextafter(b.scored[4], 0);
    struct ab_change change = compare();
    assert_true(ab_changed(&change));
    assert_int_equal(change.values, 1);
    assert_int_equal(change.position, 44);
    assert_int_equal(change.classes, 1); /* bit-equal before, stray now */
    assert_true(change.largest > 0 && change.largest < 1e-15);
}

static void both_series_of_a_token_count_once(void **state)
{
    (void)state;
    b.scored[2] = b.decoded[2] = -7;
    struct ab_change change = compare();
    assert_int_equal(change.values, 1);
    assert_int_equal(change.classes, 0); /* bit-equal in both results */
    assert_true(change.largest == 6.5);
}

static void another_token_ends_the_comparison(void **state)
{
    (void)state;
    b.ids[3] = 7;
    b.scored[4] = -9; /* of another context */
    struct ab_change change = compare();
    assert_int_equal(change.compared, 3);
    assert_int_equal(change.behind, 3);
    assert_int_equal(change.values, 0);
    assert_int_equal(change.position, 43);
    assert_true(ab_changed(&change));
}

static void fewer_tokens(void **state)
{
    (void)state;
    b.request.count = 5;
    struct ab_change change = compare();
    assert_int_equal(change.compared, 5);
    assert_int_equal(change.behind, 1);
    assert_true(ab_changed(&change));
    b.request.count = COUNT;
    b.request.first = 41; /* other positions: nothing is compared, and that is no equality */
    change = compare();
    assert_int_equal(change.compared, 0);
    assert_true(ab_changed(&change));
}

static void not_a_number(void **state)
{
    (void)state;
    a.scored[0] = b.scored[0] = NAN; /* the first of a prompt has none */
    struct ab_change change = compare();
    assert_false(ab_changed(&change));
    b.scored[1] = NAN;
    change = compare();
    assert_int_equal(change.values, 1);
    assert_true(isinf(change.largest));
}

static void a_zero_has_a_sign(void **state)
{
    (void)state;
    a.scored[0] = 0.0;
    b.scored[0] = -0.0;
    struct ab_change change = compare();
    assert_int_equal(change.values, 1);
}

static void a_series_that_one_alone_has(void **state)
{
    (void)state;
    a.request.values[1] = NULL;
    b.decoded[0] = -3;
    struct ab_change change = compare();
    assert_false(ab_changed(&change));
    assert_int_equal(change.classes, 0);
}

static void what_was_cached_or_dropped(void **state)
{
    (void)state;
    b.request.cached = 0;
    struct ab_change change = compare();
    assert_true(change.cached && ab_changed(&change));
    assert_int_equal(change.position, UINT64_MAX);
    b.request.cached = a.request.cached;
    b.request.dropped = true;
    change = compare();
    assert_true(change.dropped && ab_changed(&change));
}

static void a_path(void **state)
{
    (void)state;
    struct ab_request of_a[] = {a.request, a.request, a.request}, of_b[] = {a.request, b.request, b.request};
    b.scored[5] = -1;
    struct ab_path left = {"match", "stray", of_a, 3}, right = {"match", "noise", of_b, 3};
    struct ab_path_change change;
    ab_compare_path(&left, &right, &change);
    assert_int_equal(change.count, 3);
    assert_int_equal(change.changed, 2);
    assert_int_equal(change.first, 1);
    assert_int_equal(change.sum.position, 45);
    assert_int_equal(change.sum.values, 2);
    assert_int_equal(change.sum.compared, 3 * COUNT);
    assert_true(change.sum.largest == 0.25);
    ab_path_change_fini(&change);
    ab_compare_path(&left, &left, &change);
    assert_int_equal(change.changed, 0);
    assert_int_equal(change.first, SIZE_MAX);
    ab_path_change_fini(&change);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(equal_bits, set_up),
        cmocka_unit_test_setup(one_bit, set_up),
        cmocka_unit_test_setup(both_series_of_a_token_count_once, set_up),
        cmocka_unit_test_setup(another_token_ends_the_comparison, set_up),
        cmocka_unit_test_setup(fewer_tokens, set_up),
        cmocka_unit_test_setup(not_a_number, set_up),
        cmocka_unit_test_setup(a_zero_has_a_sign, set_up),
        cmocka_unit_test_setup(a_series_that_one_alone_has, set_up),
        cmocka_unit_test_setup(what_was_cached_or_dropped, set_up),
        cmocka_unit_test_setup(a_path, set_up),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
