/* test_operators.c: the stand-in's arithmetic: every half and bfloat16 number, and what lies between two of them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tests/standin/operators.h"

enum { PATTERNS = 1 << 15, HALF_INFINITY = 0x7c00, BFLOAT_INFINITY = 0x7f80 };

/* By the definition of the formats, not by bits. */
static double half_value(unsigned pattern)
{
    int exponent = (int)(pattern >> 10);
    return exponent == 0 ? ldexp(pattern & 0x3ff, -24) : ldexp(1024 + (pattern & 0x3ff), exponent - 25);
}

static double bfloat_value(unsigned pattern)
{
    int exponent = (int)(pattern >> 7);
    return exponent == 0 ? ldexp(pattern & 0x7f, -133) : ldexp(128 + (pattern & 0x7f), exponent - 134);
}

static unsigned stored(enum torch_file_type type, double number)
{
    float rounded = (float)number;
    uint16_t pattern;
    operators_round(type, &rounded, 1);
    operators_store((char *)&pattern, type, rounded);
    return pattern;
}

static void check_type(enum torch_file_type type, double (*value)(unsigned), unsigned infinity)
{
    for (unsigned pattern = 0; pattern < infinity - 1; pattern++) {
        double here = value(pattern), next = value(pattern + 1), middle = (here + next) / 2;
        assert_int_equal(stored(type, here), pattern);
        assert_int_equal(stored(type, -here), pattern | PATTERNS);
        if ((float)middle != middle)
            continue; /* between two of the smallest bfloat16 there is no float */
        assert_int_equal(stored(type, middle), pattern + (pattern & 1));
        assert_int_equal(stored(type, nextafterf((float)middle, 0)), pattern);
        assert_int_equal(stored(type, nextafterf((float)middle, INFINITY)), pattern + 1);
        assert_true((double)operators_next(type, (float)here) == next);
        if (pattern > 0)
            assert_true((double)operators_next(type, (float)-next) == -here);
    }
    assert_int_equal(stored(type, INFINITY), infinity);
}

static void test_every_half(void **state)
{
    (void)state;
    check_type(TORCH_FILE_FLOAT16, half_value, HALF_INFINITY);
    assert_int_equal(stored(TORCH_FILE_FLOAT16, 65519), HALF_INFINITY - 1);
    assert_int_equal(stored(TORCH_FILE_FLOAT16, 65520), HALF_INFINITY);
}

static void test_every_bfloat16(void **state)
{
    (void)state;
    check_type(TORCH_FILE_BFLOAT16, bfloat_value, BFLOAT_INFINITY);
}

/* 43 columns: a block and a part of one. Against a sum in double. */
static void test_a_product(void **state)
{
    (void)state;
    enum { INNER = 40, COLUMNS = 43 };
    struct operators_matrix matrix = operators_matrix_make(TORCH_FILE_FLOAT32, 5, INNER, COLUMNS);
    float row[INNER], whole[COLUMNS], pieces[COLUMNS], part[COLUMNS], sum[COLUMNS] = {0};
    for (int i = 0; i < INNER; i++)
        row[i] = operators_hash(6, (uint64_t)i, 1);
    operators_product(&matrix, TORCH_FILE_FLOAT32, row, 1, whole);
    operators_product(&matrix, TORCH_FILE_FLOAT32, row, 3, pieces);
    for (size_t i = 0; i < 3; i++) {
        operators_product_part(&matrix, TORCH_FILE_FLOAT32, row, 3, i, part);
        operators_add(TORCH_FILE_FLOAT32, sum, part, COLUMNS, sum);
    }
    assert_memory_equal(pieces, sum, sizeof sum);
    assert_memory_not_equal(pieces, whole, sizeof whole);
    for (size_t column = 0; column < COLUMNS; column++) {
        double exact = 0;
        for (size_t i = 0; i < INNER; i++)
            exact += (double)row[i] * (double)matrix.blocks[column / OPERATORS_BLOCK * OPERATORS_BLOCK * INNER +
                                                            i * OPERATORS_BLOCK + column % OPERATORS_BLOCK];
        assert_true(fabs(exact - (double)whole[column]) < 1e-5 && fabs(exact - (double)pieces[column]) < 1e-5);
    }
    free(matrix.blocks);
}

/* With equal keys all positions weigh the same; with one of them, its values come out. */
static void test_attention(void **state)
{
    (void)state;
    const float query[4] = {1, 2, -1, 3}, key[2] = {0.5F, 1}, one[2] = {1, -2}, other[2] = {3, 6};
    const float *keys[] = {key, key}, *values[] = {one, other};
    float scores[2], row[4];
    operators_attend(TORCH_FILE_FLOAT32, query, keys, values, 2, 2, 1, 2, scores, row);
    assert_memory_equal(row, ((float[]){2, 2, 2, 2}), sizeof row);
    operators_attend(TORCH_FILE_FLOAT32, query, keys, values, 1, 2, 1, 2, scores, row);
    assert_memory_equal(row, ((float[]){1, -2, 1, -2}), sizeof row);
}

/* Halves of a head are the two sides of a plane; each pair turns by its own angle. */
static void test_rotation(void **state)
{
    (void)state;
    const float row[8] = {1, 0, 0, 2, 3, 1, 4, 0};
    float angles[4], turned[8];
    operators_angles(3, 4, angles);
    operators_rotate(TORCH_FILE_FLOAT32, row, angles, 2, 4, turned);
    for (size_t head = 0; head < 2; head++)
        for (size_t i = 0; i < 2; i++) {
            const float *from = row + 4 * head, *to = turned + 4 * head;
            double angle = 3 * pow(10000, -(double)i / 2), a = (double)from[i], b = (double)from[i + 2];
            assert_true(fabs((double)to[i] - (a * cos(angle) - b * sin(angle))) < 1e-6);
            assert_true(fabs((double)to[i + 2] - (b * cos(angle) + a * sin(angle))) < 1e-6);
        }
}

static void test_norm_and_gate(void **state)
{
    (void)state;
    const float row[] = {3, 4}, weights[] = {1, 2};
    float normed[2], gated[2];
    operators_norm(TORCH_FILE_FLOAT32, row, weights, 0, 2, normed);
    assert_true(fabs((double)normed[0] - 3 / sqrt(12.5)) < 1e-6 && fabs((double)normed[1] - 8 / sqrt(12.5)) < 1e-6);
    operators_gate(TORCH_FILE_FLOAT32, row, weights, 2, gated);
    assert_true(fabs((double)gated[1] - 8 / (1 + exp(-4))) < 1e-5);
}

static void test_log_softmax(void **state)
{
    (void)state;
    const float logits[] = {1, 3, 3, -2};
    assert_int_equal(operators_largest(logits, 4), 1);
    assert_true(fabs(operators_log_softmax(logits, 4, 1) - (3 - log(exp(1) + 2 * exp(3) + exp(-2)))) < 1e-6);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_half),    cmocka_unit_test(test_every_bfloat16), cmocka_unit_test(test_a_product),
        cmocka_unit_test(test_attention),     cmocka_unit_test(test_log_softmax),    cmocka_unit_test(test_rotation),
        cmocka_unit_test(test_norm_and_gate),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
