/* operators.h: what a forward pass does with one row of numbers.
 *
 * Numbers are float, and each result is rounded to the type of the model, as kernels store what they computed with
 * more bits. Every sum has one order, which depends on nothing but the sizes: a row gives the same bits whatever stands
 * beside it. (Compiled without contraction, so that no product is fused into a sum in one place and not in another.)
 */
#ifndef KLDUMP_STANDIN_OPERATORS_H
#define KLDUMP_STANDIN_OPERATORS_H

#include <stddef.h>
#include <stdint.h>

#include "torch_file.h"

/* inner x columns, in blocks of OPERATORS_BLOCK columns: block, row, column in the block. Filled up with zeros. */
enum { OPERATORS_BLOCK = 32 };
struct operators_matrix {
    size_t inner, columns;
    float *blocks;
};

/* To the nearest number of the type, ties to even; integers and float32 stay. */
void operators_round(enum torch_file_type type, float *numbers, size_t count);

/* The next larger number of the type. */
float operators_next(enum torch_file_type type, float number);

/* The bytes of a number that is one of the type. */
void operators_store(char *target, enum torch_file_type type, float number);

/* Uniform in [-scale, scale), a function of seed and place. */
float operators_hash(uint64_t seed, uint64_t place, float scale);

/* A matrix of hashed numbers with variance 1/inner; to be kept for the life of the process. */
struct operators_matrix operators_matrix_make(enum torch_file_type type, uint64_t seed, size_t inner, size_t columns);

/*
 * row * matrix. The sum over `inner` in `parts` pieces of (nearly) equal length, each rounded, then added and rounded
 * in order: one piece for each rank that holds a part of the row, or for each part of a split kernel.
 */
void operators_product(const struct operators_matrix *matrix, enum torch_file_type type, const float *row, size_t parts,
                       float *ret_row);

/* The `part` of these pieces alone, rounded. */
void operators_product_part(const struct operators_matrix *matrix, enum torch_file_type type, const float *row,
                            size_t parts, size_t part, float *ret_row);

void operators_add(enum torch_file_type type, const float *one, const float *other, size_t count, float *ret_sum);

/* RMS norm with weights. */
void operators_norm(enum torch_file_type type, const float *row, const float *weights, float epsilon, size_t count,
                    float *ret_row);

/* silu(gate) * up. */
void operators_gate(enum torch_file_type type, const float *gate, const float *up, size_t count, float *ret_row);

/* Rotates each head: `angles` holds cosine and sine for each of half a head's numbers. */
void operators_rotate(enum torch_file_type type, const float *row, const float *angles, size_t heads, size_t head,
                      float *ret_row);
void operators_angles(int64_t position, size_t head, float *ret_angles);

/*
 * One row of attention over `count` positions, in their order; keys[i] and values[i] hold all key-value heads of
 * position i. `scores` has room for `count` numbers.
 */
void operators_attend(enum torch_file_type type, const float *query, const float *const *keys,
                      const float *const *values, size_t count, size_t heads, size_t key_value_heads, size_t head,
                      float *scores, float *ret_row);

/* The logarithm of the softmax of `logits` at `place`. */
double operators_log_softmax(const float *logits, size_t count, size_t place);

/* The place of the largest, the first of several. */
size_t operators_largest(const float *numbers, size_t count);

#endif
