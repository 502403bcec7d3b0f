#include "analysis/state_diff.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

static struct state_diff compare(const char *a, const char *b)
{
    struct state_diff diff = {0};
    state_diff_read(&diff, &diff.a, a, strlen(a));
    state_diff_read(&diff, &diff.b, b, strlen(b));
    state_diff_compare(&diff);
    return diff;
}

#define expect_counts(diff, equal, differs, only_a, only_b)          \
    do {                                                             \
        assert_int_equal((diff).count[STATE_DIFF_EQUAL], equal);     \
        assert_int_equal((diff).count[STATE_DIFF_DIFFERS], differs); \
        assert_int_equal((diff).count[STATE_DIFF_ONLY_A], only_a);   \
        assert_int_equal((diff).count[STATE_DIFF_ONLY_B], only_b);   \
    } while (0)

static void a_line_is_found_anywhere(void **state)
{
    (void)state;
    struct state_diff diff = compare("loading\n"
                                     "[2026-11-29 10:00:00 TP1] kldump-state rank=1 slot=3 length=128 layer=2 "
                                     "name=conv absmax=1.5 more=x ; and more\r\n"
                                     "kldump-state slot=4 length=0 absmax=inf ;",
                                     "");
    assert_int_equal(diff.a.count, 2);
    assert_int_equal(diff.a.damaged, 0);
    const struct state_diff_hit *conv = &diff.a.hits[diff.a.hits[0].rank == 1 ? 0 : 1];
    const struct state_diff_hit *other = &diff.a.hits[conv == diff.a.hits ? 1 : 0];
    assert_int_equal(conv->slot, 3);
    assert_int_equal(conv->length, 128);
    assert_int_equal(conv->layer, 2);
    assert_string_equal(diff.names.texts[conv->name], "conv");
    assert_true(conv->absmax == 1.5);
    assert_int_equal(other->rank, 0);
    assert_string_equal(diff.names.texts[other->name], "state");
    assert_true(isinf(other->absmax));
    assert_int_equal(diff.nan, 1);
    expect_counts(diff, 0, 0, 2, 0);
    state_diff_fini(&diff);
}

static void a_damaged_line_is_counted_and_not_read(void **state)
{
    (void)state;
    static const char *const damaged[] = {
        "kldump-state slot=3 length=128 absmax=1.5",         /* cut: a value may be half there */
        "kldump-state slot=3 length=12kldump-state slot=",   /* twice */
        "kldump-state slot=3 length=128 absmax=1.5x ;",      /* written into */
        "kldump-state slot=3 length=128 absmax=-1 ;",        /* no largest magnitude */
        "kldump-state slot=-3 length=128 absmax=1 ;",        /* no slot */
        "kldump-state slot=3 length= absmax=1 ;",            /* nothing */
        "kldump-state slot=3 absmax=1 ;",                    /* a member is missing */
        "kldump-state slot=3 length=128 absmax=1;",          /* the end is not a word of its own */
        "kldump-state slot=3 length=128 name= absmax=1.5 ;", /* a name without a letter */
        "kldump-state slot=99999999999999999999 length=1 absmax=1 ;",
    };
    for (size_t i = 0; i < sizeof damaged / sizeof damaged[0]; i++) {
        struct state_diff diff = compare(damaged[i], "kldump-state slot=1 length=2 absmax=3 ;\n");
        assert_int_equal(diff.a.count, 0);
        assert_true(diff.a.damaged >= 1);
        assert_non_null(diff.a.first_damaged);
        assert_int_equal(diff.b.damaged, 0);
        state_diff_fini(&diff);
    }
    /* one line that another was written into: the whole one is read */
    struct state_diff diff = compare("kldump-state slot=3 lenkldump-state slot=1 length=2 absmax=3 ;\n", "");
    assert_int_equal(diff.a.count, 1);
    assert_int_equal(diff.a.damaged, 1);
    state_diff_fini(&diff);
}

static void a_probe_that_never_fires_has_no_rows(void **state)
{
    (void)state;
    struct state_diff diff = compare("The server is fired up and ready to roll!\n", "nothing of a kldump-statement\n");
    assert_int_equal(diff.a.count, 0);
    assert_int_equal(diff.b.count, 0);
    assert_int_equal(diff.row_count, 0);
    state_diff_fini(&diff);
}

static void equal_runs(void **state)
{
    (void)state;
    static const char log[] = "kldump-state slot=1 length=64 layer=0 absmax=1.25 ;\n"
                              "kldump-state slot=1 length=64 layer=1 absmax=2.5 ;\n"
                              "kldump-state slot=2 length=96 layer=0 absmax=3 ;\n"
                              "kldump-state slot=2 length=96 layer=1 absmax=4 ;\n";
    struct state_diff diff = compare(log, log);
    expect_counts(diff, 2, 0, 0, 0);
    assert_int_equal(diff.rows[0].compared, 2);
    assert_true(diff.rows[0].hit_a->absmax == 2.5); /* the largest */
    assert_int_equal(state_diff_row_length(&diff.rows[1]), 96);
    assert_false(diff.rows[0].several);
    state_diff_fini(&diff);
}

static void the_first_layer_that_differs_is_named(void **state)
{
    (void)state;
    struct state_diff diff = compare("kldump-state slot=1 length=64 layer=2 absmax=9 ;\n"
                                     "kldump-state slot=1 length=64 layer=0 absmax=1 ;\n"
                                     "kldump-state slot=1 length=64 layer=1 absmax=2 ;\n",
                                     "kldump-state slot=1 length=64 layer=0 absmax=1 ;\n"
                                     "kldump-state slot=1 length=64 layer=1 absmax=2.5 ;\n"
                                     "kldump-state slot=1 length=64 layer=2 absmax=8 ;\n");
    expect_counts(diff, 0, 1, 0, 0);
    assert_int_equal(diff.rows[0].different, 2);
    assert_int_equal(diff.rows[0].hit_a->layer, 1);
    assert_true(diff.rows[0].hit_a->absmax == 2 && diff.rows[0].hit_b->absmax == 2.5);
    assert_true(state_diff_row_dirty(&diff.rows[0]));
    state_diff_fini(&diff);
}

static void slots_in_another_order(void **state)
{
    (void)state;
    struct state_diff diff =
        compare("kldump-state slot=1 length=64 absmax=1 ;\nkldump-state slot=2 length=96 absmax=2 ;\n",
                "kldump-state slot=7 length=96 absmax=2 ;\nkldump-state slot=1 length=64 absmax=1 ;\n");
    expect_counts(diff, 2, 0, 0, 0);
    assert_int_equal(diff.rows[1].a->slot, 2);
    assert_int_equal(diff.rows[1].b->slot, 7);
    state_diff_fini(&diff);
}

static void several_slots_of_one_length(void **state)
{
    (void)state;
    /* the values changed places: each is found in the other run */
    struct state_diff diff =
        compare("kldump-state slot=1 length=64 absmax=1 ;\nkldump-state slot=2 length=64 absmax=2 ;\n",
                "kldump-state slot=1 length=64 absmax=2 ;\nkldump-state slot=2 length=64 absmax=1 ;\n");
    expect_counts(diff, 2, 0, 0, 0);
    assert_true(diff.rows[0].several);
    state_diff_fini(&diff);
    /* one differs: it is left over, and which is which is not certain */
    diff = compare("kldump-state slot=1 length=64 absmax=1 ;\nkldump-state slot=2 length=64 absmax=2 ;\n",
                   "kldump-state slot=1 length=64 absmax=3 ;\nkldump-state slot=2 length=64 absmax=1 ;\n");
    expect_counts(diff, 1, 1, 0, 0);
    for (size_t i = 0; i < 2; i++)
        if (state_diff_row_dirty(&diff.rows[i]))
            assert_true(diff.rows[i].hit_a->absmax == 2 && diff.rows[i].hit_b->absmax == 3);
    state_diff_fini(&diff);
}

static void a_slot_that_is_used_again(void **state)
{
    (void)state;
    struct state_diff diff =
        compare("kldump-state slot=1 length=64 absmax=1 ;\nkldump-state slot=1 length=96 absmax=2 ;\n"
                "kldump-state slot=1 length=96 absmax=3 ;\n",
                "kldump-state slot=1 length=64 absmax=1 ;\nkldump-state slot=1 length=96 absmax=2 ;\n");
    expect_counts(diff, 2, 0, 1, 0);
    state_diff_fini(&diff);
}

static void another_length_is_no_pair(void **state)
{
    (void)state;
    struct state_diff diff =
        compare("kldump-state slot=1 length=64 absmax=1 ;\n", "kldump-state slot=1 length=63 absmax=1 ;\n");
    expect_counts(diff, 0, 0, 1, 1);
    state_diff_fini(&diff);
    diff = compare("kldump-state rank=0 slot=1 length=64 absmax=1 ;\n",
                   "kldump-state rank=1 slot=1 length=64 absmax=1 ;\n");
    expect_counts(diff, 0, 0, 1, 1);
    state_diff_fini(&diff);
}

static void a_layer_that_one_run_alone_has(void **state)
{
    (void)state;
    struct state_diff diff = compare("kldump-state slot=1 length=64 layer=0 absmax=1 ;\n"
                                     "kldump-state slot=1 length=64 layer=1 absmax=1 ;\n",
                                     "kldump-state slot=1 length=64 layer=0 absmax=1 ;\n");
    expect_counts(diff, 0, 1, 0, 0);
    assert_int_equal(diff.rows[0].compared, 1);
    assert_int_equal(diff.rows[0].hit_a->layer, 1);
    assert_null(diff.rows[0].hit_b);
    state_diff_fini(&diff);
}

static void not_a_number(void **state)
{
    (void)state;
    static const char nan_line[] = "kldump-state slot=1 length=64 absmax=nan ;\n";
    struct state_diff diff = compare(nan_line, "kldump-state slot=1 length=64 absmax=1 ;\n");
    expect_counts(diff, 0, 1, 0, 0);
    assert_int_equal(diff.nan, 1);
    state_diff_fini(&diff);
    diff = compare(nan_line, nan_line); /* equal, and counted all the same */
    expect_counts(diff, 1, 0, 0, 0);
    assert_int_equal(diff.nan, 2);
    state_diff_fini(&diff);
}

static void what_the_probe_lost(void **state)
{
    (void)state;
    struct state_diff diff = compare("kldump-state lost=12 ;\nkldump-state rank=1 lost=3 ;\n", "");
    assert_int_equal(diff.a.lost, 15);
    assert_int_equal(diff.a.count, 0);
    assert_int_equal(diff.a.damaged, 0);
    state_diff_fini(&diff);
}

static void requests_are_found_by_length(void **state)
{
    (void)state;
    struct state_diff diff =
        compare("kldump-state slot=1 length=64 absmax=1 ;\nkldump-state slot=2 length=64 absmax=2 ;\n"
                "kldump-state slot=3 length=96 absmax=5 ;\n",
                "kldump-state slot=1 length=64 absmax=1 ;\nkldump-state slot=2 length=64 absmax=7 ;\n"
                "kldump-state slot=3 length=96 absmax=5 ;\n");
    const struct state_diff_request requests[] = {{"restore", "r0", 64, true}, {"restore", "r1", 64, false},
                                                  {"restore", "r2", 64, true}, {"match", "r3", 0, true},
                                                  {"restore", "r4", 96, true}, {"prefill_cache_hit", "r5", 64, true},
                                                  {"restore", "r6", 97, true}};
    enum { COUNT = sizeof requests / sizeof requests[0] };
    struct state_diff_join joins[COUNT];
    for (size_t i = 0; i < COUNT; i++)
        state_diff_find(&diff, requests, COUNT, i, &joins[i]);
    /* several requests of one length: all are told, and that they are several */
    assert_int_equal(joins[0].rows, 2);
    assert_int_equal(joins[0].dirty, 1);
    assert_int_equal(joins[0].row->a->slot, 2);
    assert_int_equal(joins[0].failing, 1);
    assert_int_equal(joins[0].clean, 1);
    /* nothing was restored: no slot, though one may claim 0 */
    assert_int_equal(joins[3].rows, 0);
    assert_null(joins[3].row);
    /* the slot is equal in both runs */
    assert_int_equal(joins[4].rows, 1);
    assert_int_equal(joins[4].dirty, 0);
    assert_int_equal(joins[4].row->a->slot, 3);
    /* another path has its own requests */
    assert_int_equal(joins[5].failing + joins[5].clean, 0);
    assert_int_equal(joins[6].rows, 0);
    state_diff_fini(&diff);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_line_is_found_anywhere),
        cmocka_unit_test(a_damaged_line_is_counted_and_not_read),
        cmocka_unit_test(a_probe_that_never_fires_has_no_rows),
        cmocka_unit_test(equal_runs),
        cmocka_unit_test(the_first_layer_that_differs_is_named),
        cmocka_unit_test(slots_in_another_order),
        cmocka_unit_test(several_slots_of_one_length),
        cmocka_unit_test(a_slot_that_is_used_again),
        cmocka_unit_test(another_length_is_no_pair),
        cmocka_unit_test(a_layer_that_one_run_alone_has),
        cmocka_unit_test(not_a_number),
        cmocka_unit_test(what_the_probe_lost),
        cmocka_unit_test(requests_are_found_by_length),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
