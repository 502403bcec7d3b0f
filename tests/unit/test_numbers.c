#include "analysis/numbers.h"
#include "analysis/numbers_part.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

enum { COUNT = 65536, SHIFTS = 24 };

static uint64_t seed = 1;

static uint64_t random_64(void)
{
    seed ^= seed << 13;
    seed ^= seed >> 7;
    seed ^= seed << 17;
    return seed;
}

static void same_sum(double a, double b)
{
    if (!(fabs(a - b) <= 1e-9 * fmax(fabs(a), fabs(b))) && !(isnan(a) && isnan(b)) && a != b)
        fail_msg("%.17g is not %.17g", a, b);
}

static void same(const struct numbers *a, const struct numbers *b)
{
    assert_int_equal(a->elements, b->elements);
    assert_int_equal(a->unequal, b->unequal);
    assert_int_equal(a->signed_zeros, b->signed_zeros);
    assert_int_equal(a->nan_payloads, b->nan_payloads);
    assert_int_equal(a->nan_against_number, b->nan_against_number);
    assert_int_equal(a->infinite_against_finite, b->infinite_against_finite);
    assert_int_equal(a->first_unequal, b->first_unequal);
    assert_int_equal(a->first_bits_a, b->first_bits_a);
    assert_int_equal(a->first_bits_b, b->first_bits_b);
    assert_int_equal(a->max_ulp, b->max_ulp);
    assert_int_equal(a->ulp_sum_up, b->ulp_sum_up);
    assert_int_equal(a->ulp_sum_down, b->ulp_sum_down);
    assert_true(a->max_abs == b->max_abs);
    assert_true(a->max_relative == b->max_relative);
    assert_int_equal(a->max_abs_index, b->max_abs_index);
    assert_int_equal(a->sign_flips, b->sign_flips);
    same_sum(a->sum_squares_a, b->sum_squares_a);
    same_sum(a->sum_squares_b, b->sum_squares_b);
    same_sum(a->sum_squares_difference, b->sum_squares_difference);
    same_sum(a->dot, b->dot);
    for (unsigned i = 0; i < NUMBERS_BUCKETS; i++)
        assert_int_equal(a->histogram[i], b->histogram[i]);
}

static void held_against_plain(enum pt_dtype dtype, const void *a, const void *b, uint64_t count)
{
    struct numbers fast, plain;
    numbers_init(&fast);
    numbers_init(&plain);
    assert_int_equal(numbers_add(&fast, dtype, a, b, count), numbers_add_plain(&plain, dtype, a, b, count));
    same(&fast, &plain);
}

/* All 65536 patterns of two bytes against a copy moved by 0, 1, 2, 3, 5, ... places. */
static void fast_16(void **state)
{
    (void)state;
    static uint16_t a[COUNT], b[COUNT];
    static const enum pt_dtype dtypes[] = {PT_DTYPE_BFLOAT16, PT_DTYPE_FLOAT16};
    for (unsigned d = 0; d < 2; d++)
        for (unsigned shift = 0, step = 0; step < SHIFTS; shift += 1 + step * step, step++) {
            for (unsigned i = 0; i < COUNT; i++) {
                a[i] = (uint16_t)i;
                b[i] = step % 3 != 0 && (random_64() & 7) != 0 ? a[i] : (uint16_t)(i + shift);
            }
            if (step % 2 == 1)
                for (unsigned i = 0; i < COUNT; i++)
                    if ((a[i] & 0x7C00) == 0x7C00 || (b[i] & 0x7C00) == 0x7C00)
                        a[i] = b[i] = 0;
            held_against_plain(dtypes[d], a, b, COUNT - step);
        }
}

static void fast_32(void **state)
{
    (void)state;
    static uint32_t a[4096], b[4096];
    for (unsigned round = 0; round < 64; round++) {
        for (unsigned i = 0; i < 4096; i++) {
            a[i] = (uint32_t)random_64();
            if (round % 2 == 0 && (a[i] & 0x7F800000) == 0x7F800000)
                a[i] &= 0x803FFFFF;
            uint64_t pick = random_64() % 16;
            b[i] = pick == 0 ? a[i] + 1 : pick == 1 ? a[i] ^ 0x80000000 : pick == 2 ? (uint32_t)random_64() : a[i];
        }
        held_against_plain(PT_DTYPE_FLOAT32, a, b, 1 + random_64() % 4096);
    }
}

static struct numbers one(enum pt_dtype dtype, const void *a, const void *b, uint64_t count)
{
    struct numbers numbers;
    numbers_init(&numbers);
    numbers_add(&numbers, dtype, a, b, count);
    return numbers;
}

/* In every format with a sign, from the smallest to the largest value each step is one ULP. */
static void order_of_values(void **state)
{
    (void)state;
    static const enum pt_dtype dtypes[] = {PT_DTYPE_FLOAT8_E4M3FN,
                                           PT_DTYPE_FLOAT8_E5M2,
                                           PT_DTYPE_FLOAT8_E4M3FNUZ,
                                           PT_DTYPE_FLOAT8_E5M2FNUZ,
                                           PT_DTYPE_FLOAT8_E8M0FNU,
                                           PT_DTYPE_INT8,
                                           PT_DTYPE_UINT8};
    for (unsigned d = 0; d < sizeof dtypes / sizeof *dtypes; d++)
        for (unsigned x = 0; x < 256; x++)
            for (unsigned y = 0; y < 256; y++) {
                uint8_t a = (uint8_t)x, b = (uint8_t)y;
                struct numbers_part of_a = numbers_part_read(dtypes[d], &a, 0),
                                    of_b = numbers_part_read(dtypes[d], &b, 0);
                if (of_a.nan || of_b.nan)
                    continue;
                assert_int_equal(of_a.value < of_b.value, of_a.order < of_b.order);
                assert_int_equal(of_a.value == of_b.value, of_a.order == of_b.order);
            }
}

static void special_values(void **state)
{
    (void)state;
    float zero[2] = {0.0F, 1.0F}, minus[2] = {-0.0F, 1.0F};
    struct numbers numbers = one(PT_DTYPE_FLOAT32, zero, minus, 2);
    assert_int_equal(numbers.unequal, 0);
    assert_int_equal(numbers.signed_zeros, 1);
    assert_int_equal(numbers.histogram[1], 1);
    uint32_t nan[2] = {0x7FC00000, 0x3F800000}, payload[2] = {0xFFC00001, 0x3F800000};
    numbers = one(PT_DTYPE_FLOAT32, nan, payload, 2);
    assert_int_equal(numbers.unequal, 0);
    assert_int_equal(numbers.nan_payloads, 1);
    float infinite[2] = {INFINITY, 1.0F};
    numbers = one(PT_DTYPE_FLOAT32, nan, infinite, 2);
    assert_int_equal(numbers.nan_against_number, 1);
    numbers = one(PT_DTYPE_FLOAT32, infinite, zero, 2);
    assert_int_equal(numbers.infinite_against_finite, 1);
    assert_int_equal(numbers.unequal, 1);
    assert_true(numbers.max_abs == 0);
    uint8_t fnuz_nan = 0x80, fnuz_zero = 0;
    assert_int_equal(one(PT_DTYPE_FLOAT8_E4M3FNUZ, &fnuz_nan, &fnuz_zero, 1).nan_against_number, 1);
    uint8_t e4m3_nan = 0x7F, e4m3_max = 0x7E;
    assert_int_equal(one(PT_DTYPE_FLOAT8_E4M3FN, &e4m3_nan, &e4m3_max, 1).nan_against_number, 1);
    uint8_t pair_a = 0x21, pair_b = 0x41;
    assert_int_equal(one(PT_DTYPE_FLOAT4_E2M1FN_X2, &pair_a, &pair_b, 1).max_ulp, 2);
    float complex_a[2] = {1.0F, 2.0F}, complex_b[2] = {1.0F, nextafterf(2.0F, 3.0F)};
    numbers = one(PT_DTYPE_COMPLEX64, complex_a, complex_b, 1);
    assert_int_equal(numbers.unequal, 1);
    assert_int_equal(numbers.max_ulp, 1);
    assert_true(numbers.first_a == 2);
    double least = -1.7976931348623157e308, most = 1.7976931348623157e308;
    assert_int_equal(one(PT_DTYPE_FLOAT64, &least, &most, 1).max_ulp, INT64_MAX);
    int64_t small = INT64_MIN, large = INT64_MAX;
    assert_int_equal(one(PT_DTYPE_INT64, &small, &large, 1).max_ulp, INT64_MAX);
    uint64_t u = 0, v = UINT64_MAX;
    assert_int_equal(one(PT_DTYPE_UINT64, &u, &v, 1).max_ulp, INT64_MAX);
}

static void buckets(void **state)
{
    (void)state;
    for (uint32_t ulp = 1; ulp < 70000; ulp++) {
        int32_t a = 0, b = (int32_t)ulp;
        struct numbers numbers = one(PT_DTYPE_INT32, &a, &b, 1);
        unsigned low, high;
        for (unsigned i = 2; i < NUMBERS_BUCKETS; i++) {
            const char *name = numbers_bucket_name(i);
            bool inside = sscanf(name, "%u-%u", &low, &high) == 2 ? ulp >= low && ulp <= high
                          : strcmp(name, "> 2^14") == 0           ? ulp > 16384
                          : strcmp(name, "NaN") == 0              ? false
                                                                  : ulp == (uint32_t)atoll(name);
            assert_int_equal(numbers.histogram[i], inside);
        }
    }
}

static void merging(void **state)
{
    (void)state;
    uint16_t a[512], b[512];
    for (unsigned i = 0; i < 512; i++) {
        a[i] = (uint16_t)(0x3F80 + i % 64);
        b[i] = (uint16_t)(a[i] + (i % 7 == 3));
    }
    struct numbers whole = one(PT_DTYPE_BFLOAT16, a, b, 512), first = one(PT_DTYPE_BFLOAT16, a, b, 3);
    struct numbers rest = one(PT_DTYPE_BFLOAT16, a + 3, b + 3, 509);
    assert_int_equal(first.first_unequal, UINT64_MAX);
    numbers_add_sums(&first, PT_DTYPE_BFLOAT16, a, 3);
    numbers_merge(&first, &rest);
    same(&first, &whole);
    assert_int_equal(whole.first_unequal, 3);
}

static void across_dtypes(void **state)
{
    (void)state;
    bool rounded;
    int32_t narrow[2] = {7, -1};
    int64_t wide[2] = {7, -1};
    assert_int_equal(numbers_unequal_values(PT_DTYPE_INT32, narrow, PT_DTYPE_INT64, wide, 2, &rounded), 0);
    assert_true(rounded);
    uint64_t huge = UINT64_MAX;
    assert_int_equal(numbers_unequal_values(PT_DTYPE_INT64, &wide[1], PT_DTYPE_UINT64, &huge, 1, &rounded), 1);
    for (unsigned pattern = 0; pattern < COUNT; pattern++) {
        uint16_t bits = (uint16_t)pattern;
        uint32_t exact = (uint32_t)pattern << 16, near = exact + 0x7FFF, far = exact + 0x8001;
        if ((pattern & 0x7F80) == 0x7F80)
            continue;
        assert_int_equal(numbers_unequal_values(PT_DTYPE_BFLOAT16, &bits, PT_DTYPE_FLOAT32, &exact, 1, &rounded), 0);
        assert_int_equal(numbers_unequal_values(PT_DTYPE_FLOAT32, &near, PT_DTYPE_BFLOAT16, &bits, 1, &rounded), 1);
        assert_true(rounded);
        assert_int_equal(numbers_unequal_values(PT_DTYPE_FLOAT32, &far, PT_DTYPE_BFLOAT16, &bits, 1, &rounded), 1);
        assert_false(rounded);
        uint32_t tie = exact + 0x8000;
        numbers_unequal_values(PT_DTYPE_FLOAT32, &tie, PT_DTYPE_BFLOAT16, &bits, 1, &rounded);
        assert_int_equal(rounded, pattern % 2 == 0);
    }
}

static void readings(void **state)
{
    (void)state;
    char text[128];
    float a[1024], b[1024];
    for (unsigned i = 0; i < 1024; i++) {
        a[i] = 1.0F + (float)i / 1024;
        b[i] = i % 16 == 0 ? nextafterf(a[i], i % 32 == 0 ? 9.0F : -9.0F) : a[i];
    }
    struct numbers numbers = one(PT_DTYPE_FLOAT32, a, b, 1024);
    assert_string_equal(numbers_reading(&numbers, text, sizeof text), "sparse, +-1 ULP, no bias: reduction order");
    assert_true(numbers_relative_difference(&numbers) < 1e-12);
    assert_true(numbers_cosine(&numbers) > 0.999999);
    for (unsigned i = 0; i < 1024; i++)
        b[i] = a[i] * 1.0039F;
    numbers = one(PT_DTYPE_FLOAT32, a, b, 1024);
    assert_string_equal(numbers_reading(&numbers, text, sizeof text), "all elements scaled by 1.0039: scale");
    for (unsigned i = 0; i < 1024; i++)
        b[i] = a[1023 - i] * (i % 2 == 0 ? 1.0F : -1.0F);
    numbers = one(PT_DTYPE_FLOAT32, a, b, 1024);
    assert_non_null(strstr(numbers_reading(&numbers, text, sizeof text), "far apart"));
    numbers_init(&numbers);
    assert_string_equal(numbers_reading(&numbers, text, sizeof text), "");
    assert_true(numbers_relative_difference(&numbers) == 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(fast_16),         cmocka_unit_test(fast_32),
                                       cmocka_unit_test(order_of_values), cmocka_unit_test(special_values),
                                       cmocka_unit_test(buckets),         cmocka_unit_test(merging),
                                       cmocka_unit_test(across_dtypes),   cmocka_unit_test(readings)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
