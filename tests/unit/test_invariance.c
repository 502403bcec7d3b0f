#include "analysis/invariance.h"
#include "base/memory.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

enum { TOKENS = 6 };
static const int64_t ids[TOKENS] = {20, 21, 22, 23, 24, 25};
static const double logprobs[TOKENS] = {NAN, -1, -2, -3, -0.5, -9};

static struct invariance_tokens tokens(const double *values)
{
    return (struct invariance_tokens){.first = 10, .count = TOKENS, .ids = ids, .logprobs = values};
}

static void compare(struct invariance_case *one, size_t request, const double *found)
{
    const struct invariance_tokens a = tokens(logprobs), b = tokens(found);
    invariance_compare(one, request, &a, &b);
}

/* ---- one case ---- */

static void equal_is_equal(void **state)
{
    (void)state;
    struct invariance_case one = {.size = 2};
    compare(&one, 0, logprobs);
    assert_int_equal(one.compared, TOKENS - 1); /* the first has no score */
    assert_int_equal(one.bit_equal, TOKENS - 1);
    assert_false(invariance_changed(&one));
}

static void one_ulp_is_a_change(void **state)
{
    (void)state;
    double found[TOKENS];
    memcpy(found, logprobs, sizeof found);
    found[3] = (double)nextafterf(-3.0f, 0.0f);
    struct invariance_case one = {.size = 2};
    compare(&one, 5, found);
    assert_true(invariance_changed(&one));
    assert_int_equal(one.stray, 1);
    assert_int_equal(one.beyond, 0);
    assert_int_equal(one.first.request, 5);
    assert_int_equal(one.first.position, 13);
    assert_int_equal(one.first.reference_id, 23);
    assert_int_equal(one.first.found_id, 23);
    assert_true(one.first.reference == -3 && one.first.found == found[3]);
    assert_int_equal(one.first.ulp, 1);
    assert_int_equal(one.first.class, KL_CLASS_STRAY);
    assert_true(one.max_abs == found[3] + 3);
}

static void ulps_across_zero(void **state)
{
    (void)state;
    const struct {
        double a, b;
        uint64_t ulp;
    } rows[] = {{0.0, -0.0, 0}, {-1e-45, 0, 1}, {-1e-45, 1e-45, 2}, {-1, -2, 1 << 23}, {-1, -1, 0}};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        const struct invariance_tokens a = {.count = 1, .ids = ids, .logprobs = &rows[i].a},
                                       b = {.count = 1, .ids = ids, .logprobs = &rows[i].b};
        struct invariance_case one = {0};
        invariance_compare(&one, 0, &a, &b);
        assert_int_equal(one.first.ulp, rows[i].ulp);
    }
}

static void the_first_is_of_the_lowest_request(void **state)
{
    (void)state;
    double found[TOKENS], early[TOKENS];
    memcpy(found, logprobs, sizeof found);
    memcpy(early, logprobs, sizeof early);
    found[4] = found[5] = -0.75;
    early[1] = -7;
    struct invariance_case one = {.size = 2};
    compare(&one, 3, early);
    compare(&one, 1, found);
    compare(&one, 2, early);
    assert_int_equal(one.beyond, 4);
    assert_int_equal(one.first.request, 1);
    assert_int_equal(one.first.position, 14);
    assert_true(one.max_abs == 8.25);
}

static void another_token_ends_the_comparison(void **state)
{
    (void)state;
    const int64_t others[TOKENS] = {20, 21, 22, 99, 24, 25};
    const struct invariance_tokens a = tokens(logprobs),
                                   b = {.first = 10, .count = TOKENS, .ids = others, .logprobs = logprobs};
    struct invariance_case one = {.size = 2};
    invariance_compare(&one, 0, &a, &b);
    assert_int_equal(one.compared, 3);
    assert_int_equal(one.beyond, 1); /* with an equal logprob, even */
    assert_int_equal(one.first.position, 13);
    assert_int_equal(one.first.found_id, 99);
}

static void only_what_both_have_counts(void **state)
{
    (void)state;
    const struct invariance_tokens a = tokens(logprobs),
                                   b = {.first = 12, .count = 2, .ids = ids + 2, .logprobs = logprobs + 2};
    struct invariance_case one = {.size = 2};
    invariance_compare(&one, 0, &a, &b);
    invariance_compare(&one, 0, &b, &a);
    assert_int_equal(one.compared, 4);
    assert_int_equal(one.bit_equal, 4);
}

/* ---- an axis ---- */

static struct invariance_case made(size_t size, size_t compared, size_t bit_equal)
{
    return (struct invariance_case){
        .size = size, .compared = compared, .bit_equal = bit_equal, .beyond = compared - bit_equal};
}

static struct invariance_axis axis_of(size_t count, const struct invariance_case *cases)
{
    struct invariance_axis axis = {.measured = true, .again = made(1, 10, 10)};
    for (size_t i = 0; i < count; i++)
        *invariance_case_at(&axis, cases[i].size, cases[i].cached) = cases[i];
    return axis;
}

static void the_first_size_is_the_smallest(void **state)
{
    (void)state;
    const struct invariance_case cases[] = {made(8, 9, 3), made(2, 9, 9), made(4, 9, 9), made(6, 9, 8), made(5, 9, 9)};
    struct invariance_axis axis = axis_of(5, cases);
    const struct invariance_case *before = NULL, *first = invariance_first(&axis, &before);
    assert_int_equal(first->size, 6);
    assert_int_equal(before->size, 5);
    assert_int_equal(invariance_state_of(&axis), INVARIANCE_CHANGED);
    for (size_t i = 1; i < axis.case_count; i++)
        assert_true(axis.cases[i - 1].size < axis.cases[i].size);
    assert_ptr_equal(invariance_case_at(&axis, 6, false), first);
    assert_int_equal(axis.case_count, 5);
    invariance_axis_fini(&axis);
}

static void the_cached_row_stands_first(void **state)
{
    (void)state;
    struct invariance_case cached = made(1, 4, 2);
    cached.cached = true;
    const struct invariance_case cases[] = {made(2, 9, 9), made(4, 9, 9), cached};
    struct invariance_axis axis = axis_of(3, cases);
    const struct invariance_case *before = &cases[0], *first = invariance_first(&axis, &before);
    assert_true(first->cached);
    assert_null(before);
    invariance_axis_fini(&axis);
}

static void states_of_an_axis(void **state)
{
    (void)state;
    const struct invariance_case clean = made(2, 9, 9), nothing = made(2, 0, 0);
    struct invariance_axis axis = axis_of(1, &clean);
    assert_int_equal(invariance_state_of(&axis), INVARIANCE_UNCHANGED);
    axis.again = made(1, 10, 9);
    assert_int_equal(invariance_state_of(&axis), INVARIANCE_NOT_REPEATABLE);
    axis.measured = false;
    assert_int_equal(invariance_state_of(&axis), INVARIANCE_NOT_MEASURED);
    invariance_axis_fini(&axis);
    axis = axis_of(1, &nothing);
    assert_int_equal(invariance_state_of(&axis), INVARIANCE_NOT_MEASURED);
    invariance_axis_fini(&axis);
}

/* ---- what it means ---- */

struct situation {
    const char *name;
    size_t bit_equal[INVARIANCE_AXES]; /* of 9 */
    size_t again;                      /* of 10, in the last axis */
    bool unmeasured, partial;          /* the last axis; extend */
    struct invariance_match match;
    enum invariance_condition condition;
    const char *words; /* in the text */
};

static const struct situation situations[] = {
    {"clean without match", {9, 9, 9}, 10, false, false, {0}, INVARIANCE_NOT_SHOWN, "one half"},
    {"clean with match",
     {9, 9, 9},
     10,
     false,
     false,
     {true, KL_GRADE_STRAY, KL_GRADE_BIT_EQUAL},
     INVARIANCE_HOLDS,
     "holds for these prompts"},
    {"match in a batch is noise",
     {9, 9, 9},
     10,
     false,
     false,
     {true, KL_GRADE_NOISE, KL_GRADE_BIT_EQUAL},
     INVARIANCE_NOT_SHOWN,
     "match is noise in a batch"},
    {"match alone is not zero",
     {9, 9, 9},
     10,
     false,
     false,
     {true, KL_GRADE_STRAY, KL_GRADE_NONZERO},
     INVARIANCE_NOT_SHOWN,
     "nonzero one request at a time"},
    {"match alone is missing",
     {9, 9, 9},
     10,
     false,
     false,
     {true, KL_GRADE_STRAY, KL_GRADE_NOT_MEASURED},
     INVARIANCE_NOT_SHOWN,
     "lacks match one request at a time"},
    {"decode changes, match is clean",
     {9, 9, 8},
     10,
     false,
     false,
     {true, KL_GRADE_BIT_EQUAL, KL_GRADE_BIT_EQUAL},
     INVARIANCE_BROKEN,
     "broken (decode)"},
    {"two axes change", {8, 9, 8}, 10, false, false, {0}, INVARIANCE_BROKEN, "broken (prefill, decode)"},
    {"decode does not repeat",
     {9, 9, 8},
     9,
     false,
     false,
     {true, KL_GRADE_BIT_EQUAL, KL_GRADE_BIT_EQUAL},
     INVARIANCE_NOT_SHOWN,
     "from one time to the next (decode)"},
    {"decode does not repeat, extend changes", {9, 8, 8}, 9, false, false, {0}, INVARIANCE_BROKEN, "broken (extend)"},
    {"decode was not measured",
     {9, 9, 9},
     10,
     true,
     false,
     {true, KL_GRADE_BIT_EQUAL, KL_GRADE_BIT_EQUAL},
     INVARIANCE_NOT_SHOWN,
     "not measured: decode"},
    {"one row was not measured",
     {9, 9, 9},
     10,
     false,
     true,
     {true, KL_GRADE_BIT_EQUAL, KL_GRADE_BIT_EQUAL},
     INVARIANCE_NOT_SHOWN,
     "a part of extend"},
};

static void forget(struct invariance_axis axes[INVARIANCE_AXES], struct invariance_reading *reading)
{
    invariance_reading_fini(reading);
    for (size_t id = 0; id < INVARIANCE_AXES; id++)
        invariance_axis_fini(&axes[id]);
}

static void what_it_means(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof situations / sizeof situations[0]; i++) {
        const struct situation *s = &situations[i];
        struct invariance_axis axes[INVARIANCE_AXES];
        struct invariance_reading reading = {0};
        for (size_t id = 0; id < INVARIANCE_AXES; id++) {
            const struct invariance_case one = made(2, 9, s->bit_equal[id]);
            axes[id] = axis_of(1, &one);
        }
        axes[INVARIANCE_DECODE].again = made(1, 10, s->again);
        axes[INVARIANCE_DECODE].measured = !s->unmeasured;
        axes[INVARIANCE_EXTEND].partial = s->partial;
        invariance_read(axes, &s->match, NULL, &reading);
        if (reading.condition != s->condition || strstr(reading.text, s->words) == NULL)
            fail_msg("%s: %s: %s", s->name, invariance_condition_word(reading.condition), reading.text);
        assert_true((reading.next == NULL) == (s->condition == INVARIANCE_HOLDS));
        invariance_reading_fini(&reading);
        invariance_read(axes, &s->match, "3 tokens", &reading);
        assert_true(reading.condition == INVARIANCE_REFUSED && strstr(reading.text, "3 tokens") != NULL);
        forget(axes, &reading);
    }
}

/* What comes back from the cache may be wrong, too: an operator is blamed where another size changes, or a dump has
 * proven one. */
static void a_restored_row_alone_decides_nothing(void **state)
{
    (void)state;
    const struct invariance_case clean = made(2, 9, 9), other = made(2, 9, 8);
    struct invariance_case cached = made(1, 9, 0);
    cached.cached = true;
    for (int kind = 0; kind < 5; kind++) {
        const struct invariance_case extend[] = {cached, kind == 1 ? other : clean};
        struct invariance_axis axes[INVARIANCE_AXES] = {
            [INVARIANCE_PREFILL] = axis_of(1, &clean),
            [INVARIANCE_EXTEND] = axis_of(2, extend),
            [INVARIANCE_DECODE] = axis_of(1, kind == 2 ? &other : &clean),
        };
        const struct invariance_match match = {kind == 4, KL_GRADE_STRAY, KL_GRADE_BIT_EQUAL};
        struct invariance_reading reading = {0};
        axes[INVARIANCE_EXTEND].operator_proven = kind == 3;
        invariance_read(axes, &match, NULL, &reading);
        bool open = kind == 0 || kind == 4;
        assert_int_equal(reading.condition, open ? INVARIANCE_NOT_SHOWN : INVARIANCE_BROKEN);
        assert_int_equal(strstr(reading.text, "what comes back from the prefix cache") != NULL, open);
        assert_int_equal(strstr(reading.text, "points at condition 2") != NULL, kind == 4);
        forget(axes, &reading);
    }
}

/* Shifted logprobs: a short extend lacks the token behind its last. */
static void the_last_token_alone_decides_nothing(void **state)
{
    (void)state;
    const struct invariance_case clean = made(2, 9, 9), other = made(2, 9, 8), restored = made(1, 9, 8);
    for (int kind = 0; kind < 7; kind++) {
        struct invariance_case extend[] = {made(1, 9, 9), made(2, 2, 0), made(4, 6, 4)};
        size_t count = kind == 5 ? 2 : 3;
        if (kind == 4)
            extend[0] = restored;
        extend[0].cached = true;
        extend[1].last = extend[2].last = 2;
        if (kind == 1)
            extend[2].last = 1; /* another row, too */
        if (kind == 2)
            extend[2] = made(4, 6, 6);
        struct invariance_axis axes[INVARIANCE_AXES] = {
            [INVARIANCE_PREFILL] = axis_of(1, kind == 3 ? &other : &clean),
            [INVARIANCE_EXTEND] = axis_of(count, extend),
            [INVARIANCE_DECODE] = axis_of(1, &clean),
        };
        struct invariance_reading reading = {0};
        axes[INVARIANCE_EXTEND].operator_proven = kind == 6;
        invariance_read(axes, &(struct invariance_match){0}, NULL, &reading);
        bool open = kind == 0 || kind == 4;
        assert_int_equal(reading.condition, open ? INVARIANCE_NOT_SHOWN : INVARIANCE_BROKEN);
        assert_int_equal(strstr(reading.text, "shifted") != NULL, open);
        assert_int_equal(strstr(reading.text, "one row on a cached prefix") != NULL, kind == 4);
        forget(axes, &reading);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(equal_is_equal),
        cmocka_unit_test(one_ulp_is_a_change),
        cmocka_unit_test(ulps_across_zero),
        cmocka_unit_test(the_first_is_of_the_lowest_request),
        cmocka_unit_test(another_token_ends_the_comparison),
        cmocka_unit_test(only_what_both_have_counts),
        cmocka_unit_test(the_first_size_is_the_smallest),
        cmocka_unit_test(the_cached_row_stands_first),
        cmocka_unit_test(states_of_an_axis),
        cmocka_unit_test(what_it_means),
        cmocka_unit_test(a_restored_row_alone_decides_nothing),
        cmocka_unit_test(the_last_token_alone_decides_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
