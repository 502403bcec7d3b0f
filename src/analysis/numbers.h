/* Compares the elements of two equally long arrays: bits first, and where they differ, by how much.
 *
 * ULP: both bit patterns are mapped to integers in the order of their values (sign and magnitude to two's complement;
 * +0 and -0 are one integer) and subtracted; a difference beyond 2^63-1 counts as that. Equality of facts/
 * dump-analysis.md 4.5: +0 against -0 and two NaNs of different payload are counted in classes of their own and are not
 * `unequal`; NaN against a number is. There is no tolerance. Pure; any thread.
 *
 * Speed: memcmp first; a loop that the compiler can vectorise for float32, float16 and bfloat16. Every fast path has a
 * plain one beside it that the tests hold it against. */
#pragma once

#include "pt/pt_dtype.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* of the histogram: 0 (equal bits), +0/-0, 1, 2, 3-4, 5-8, ... , > 2^14, NaN (and a difference with an infinity) */
enum { NUMBERS_BUCKETS = 19 };

struct numbers {
    uint64_t elements;
    uint64_t unequal;                                     /* other bits and not one of the two classes below */
    uint64_t signed_zeros;                                /* +0 against -0 */
    uint64_t nan_payloads;                                /* both NaN, other bits */
    uint64_t nan_against_number, infinite_against_finite; /* among `unequal`; left out of everything below */
    uint64_t first_unequal;  /* index in the array as counted from the first call; UINT64_MAX: none */
    double first_a, first_b; /* there */
    uint64_t first_bits_a, first_bits_b;
    uint64_t max_ulp;
    uint64_t ulp_sum_up, ulp_sum_down; /* of b above a, of b below a; saturate */
    double max_abs, max_relative;      /* |a-b|, |a-b| / max(|a|,|b|) */
    uint64_t max_abs_index;
    uint64_t sign_flips;
    double sum_squares_a, sum_squares_b, sum_squares_difference, dot; /* for RMS, cosine and rel_diff */
    uint64_t histogram[NUMBERS_BUCKETS];
};

void numbers_init(struct numbers *numbers);

/* Adds the comparison of `count` elements. Both arrays have the dtype; any alignment. Returns true if all bits are
 * equal (then only `elements` and histogram[0] have grown: the sums of squares are not taken, so a caller that wants
 * them asks numbers_add_sums). */
bool numbers_add(struct numbers *numbers, enum pt_dtype dtype, const void *a, const void *b, uint64_t count);

/* The sums of squares of `count` elements that are equal in both arrays: what numbers_add leaves out. */
void numbers_add_sums(struct numbers *numbers, enum pt_dtype dtype, const void *elements, uint64_t count);

/* What numbers_add is held against: one element after the other, any dtype, the same result (the sums of squares up to
 * the order of addition). */
bool numbers_add_plain(struct numbers *numbers, enum pt_dtype dtype, const void *a, const void *b, uint64_t count);

/* Two results over different elements become one; `into` comes first in the order of elements. */
void numbers_merge(struct numbers *into, const struct numbers *from);

/* Integers of the same meaning in different widths, and floats of different dtypes after exact widening to double:
 * counts unequal values only. *ret_after_rounding: equal once the wider is rounded to the narrower (nearest even). */
uint64_t numbers_unequal_values(enum pt_dtype dtype_a, const void *a, enum pt_dtype dtype_b, const void *b,
                                uint64_t count, bool *ret_after_rounding);

/* Text of a bucket: "0", "+0/-0", "1", "2", "3-4", ..., "NaN". */
const char *numbers_bucket_name(unsigned bucket);

/* 1 - 2<a,b> / (|a|^2 + |b|^2), as SGLang's comparator; 0 where both are all zero (not NaN). And the cosine. */
double numbers_relative_difference(const struct numbers *numbers);
double numbers_cosine(const struct numbers *numbers);

/* "sparse, +-1 ULP, no bias: reduction order", "all elements scaled by 1.0039: scale", ... : a reading, labelled as one
 * by the caller; "" where none fits. */
const char *numbers_reading(const struct numbers *numbers, char *buffer, size_t size);
