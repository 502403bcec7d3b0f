/* rows.h against shapes of tensors in passes of different sizes. */
#include "analysis/rows.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

enum { PASSES = 3, RANK = 3 };

struct shape {
    uint64_t tokens, requests;
    unsigned rank;
    uint64_t size[RANK];
};

static struct pt_file_tensor tensor_of(const struct shape *shape)
{
    struct pt_file_tensor tensor = {.rank = shape->rank, .elements = 1};
    for (unsigned d = 0; d < shape->rank; d++)
        tensor.elements *= tensor.size[d] = shape->size[d];
    return tensor;
}

static struct rows_reading read_shapes(const struct shape *shapes)
{
    struct rows rows = {0};
    for (unsigned i = 0; i < PASSES && (shapes[i].tokens > 0 || shapes[i].rank > 0); i++) {
        struct pt_file_tensor tensor = tensor_of(&shapes[i]);
        rows_narrow(&rows, &tensor, shapes[i].tokens, shapes[i].requests);
    }
    return rows_choose(&rows);
}

static void readings(void **state)
{
    (void)state;
    static const struct {
        const char *what;
        struct shape shapes[PASSES];
        enum diff_rows rows;
        unsigned dimension;
        uint64_t factor;
    } cases[] = {
        {"hidden states", {{20, 1, 2, {20, 64}}, {1, 1, 2, {1, 64}}}, DIFF_ROWS_TOKEN, 0, 1},
        {"heads of tokens", {{20, 1, 2, {80, 16}}, {1, 1, 2, {4, 16}}}, DIFF_ROWS_TOKEN, 0, 4},
        {"positions of three kinds", {{20, 1, 2, {3, 20}}, {1, 1, 2, {3, 1}}}, DIFF_ROWS_TOKEN, 1, 1},
        {"logits", {{20, 1, 2, {1, 32}}, {1, 1, 2, {1, 32}}}, DIFF_ROWS_REQUEST, 0, 1},
        {"logits of several", {{20, 3, 2, {3, 32}}, {2, 2, 2, {2, 32}}}, DIFF_ROWS_REQUEST, 0, 1},
        {"weights", {{20, 1, 2, {8, 64}}, {1, 1, 2, {8, 64}}, {5, 2, 2, {8, 64}}}, DIFF_ROWS_SHARED, 0, 1},
        {"a number", {{20, 1, 0, {0}}, {1, 1, 0, {0}}}, DIFF_ROWS_SHARED, 0, 1},
        {"one scale, several requests", {{20, 2, 1, {1}}, {2, 2, 1, {1}}}, DIFF_ROWS_SHARED, 0, 1},
        {"hidden as wide as the pass", {{64, 1, 2, {64, 64}}, {1, 1, 2, {1, 64}}}, DIFF_ROWS_TOKEN, 0, 1},
        {"the same pass twice", {{20, 1, 2, {20, 64}}, {20, 1, 2, {20, 64}}}, DIFF_ROWS_TOKEN, 0, 1},
        {"heads, the same pass twice", {{20, 1, 2, {80, 16}}, {20, 1, 2, {80, 16}}}, DIFF_ROWS_UNCLEAR, 0, 0},
        {"another pass tells", {{20, 1, 2, {80, 16}}, {20, 1, 2, {80, 16}}, {1, 1, 2, {4, 16}}}, DIFF_ROWS_TOKEN, 0, 4},
        {"one token each", {{1, 1, 2, {8, 64}}, {1, 1, 2, {8, 64}}}, DIFF_ROWS_TOKEN, 0, 8},
        {"token by token", {{20, 1, 2, {20, 20}}, {1, 1, 2, {1, 1}}}, DIFF_ROWS_NONE, 0, 0},
        {"rows of experts", {{20, 1, 2, {37, 64}}, {1, 1, 2, {2, 64}}}, DIFF_ROWS_NONE, 0, 0},
        {"other dimensions", {{20, 1, 2, {20, 64}}, {1, 1, 3, {1, 4, 16}}}, DIFF_ROWS_NONE, 0, 0},
        {"another width", {{20, 1, 2, {20, 64}}, {1, 1, 2, {1, 128}}}, DIFF_ROWS_NONE, 0, 0},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct rows_reading reading = read_shapes(cases[i].shapes);
        if (reading.rows != cases[i].rows)
            fail_msg("%s: %d", cases[i].what, reading.rows);
        if (reading.rows == DIFF_ROWS_TOKEN || reading.rows == DIFF_ROWS_REQUEST) {
            assert_int_equal(reading.dimension, cases[i].dimension);
            assert_int_equal(reading.factor, cases[i].factor);
        }
    }
}

static void pieces(void **state)
{
    (void)state;
    uint64_t first, step, count, length;
    struct shape shape = {5, 2, 3, {3, 10, 4}};
    struct pt_file_tensor tensor = tensor_of(&shape);
    struct rows_reading token = {DIFF_ROWS_TOKEN, 1, 2, false}, shared = {DIFF_ROWS_SHARED, 0, 1, false};
    assert_true(rows_pieces(&token, &tensor, 4, &first, &step, &count, &length));
    assert_int_equal(first, 32);
    assert_int_equal(step, 40);
    assert_int_equal(count, 3);
    assert_int_equal(length, 8);
    assert_false(rows_pieces(&token, &tensor, 5, &first, &step, &count, &length));
    assert_true(rows_pieces(&shared, &tensor, 0, &first, &step, &count, &length));
    assert_int_equal(count * length, 120);
    assert_false(rows_pieces(&shared, &tensor, 1, &first, &step, &count, &length));
    struct shape parts = {5, 1, 2, {15, 4}};
    struct pt_file_tensor by_parts = tensor_of(&parts);
    struct rows_reading part = {DIFF_ROWS_TOKEN, 0, 3, true};
    assert_true(rows_pieces(&part, &by_parts, 2, &first, &step, &count, &length));
    assert_int_equal(first, 8);
    assert_int_equal(step, 20);
    assert_int_equal(count, 3);
    assert_int_equal(length, 4);
    assert_true(rows_fit(&token, &tensor, 5, 2, &tensor, 5, 2));
    assert_false(rows_fit(&token, &tensor, 5, 2, &tensor, 4, 2));
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(readings), cmocka_unit_test(pieces)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
