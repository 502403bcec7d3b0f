/* The plain comparison, merging, and what the counts say. The fast loops are in numbers_fast.c. */
#include "analysis/numbers.h"

#include "analysis/numbers_fast.h"
#include "analysis/numbers_part.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

enum {
    BUCKET_EQUAL,
    BUCKET_ZEROS,
    BUCKET_ONE,
    BUCKET_FAR = NUMBERS_BUCKETS - 2,
    BUCKET_NAN = NUMBERS_BUCKETS - 1,
};

void numbers_init(struct numbers *numbers)
{
    *numbers = (struct numbers){.first_unequal = UINT64_MAX};
}

unsigned numbers_fast_bucket(uint64_t ulp)
{
    unsigned bucket = BUCKET_ONE + (ulp <= 1 ? 0 : 64 - (unsigned)__builtin_clzll(ulp - 1));
    return bucket < BUCKET_FAR ? bucket : BUCKET_FAR;
}

static uint64_t add_saturating(uint64_t a, uint64_t b)
{
    return a > UINT64_MAX - b ? UINT64_MAX : a + b;
}

/* What the parts of one element showed. */
struct element {
    bool unequal, zeros, payloads, nan, infinite;
    uint64_t ulp; /* the largest */
};

static void add_sums(struct numbers *numbers, const struct numbers_part *a, const struct numbers_part *b)
{
    if (a->nan || b->nan || a->infinite || b->infinite)
        return;
    double difference = a->value - b->value;
    numbers->sum_squares_a += a->value * a->value;
    numbers->sum_squares_b += b->value * b->value;
    numbers->sum_squares_difference += difference * difference;
    numbers->dot += a->value * b->value;
}

static void add_distance(struct numbers *numbers, const struct numbers_part *a, const struct numbers_part *b,
                         uint64_t index, struct element *element)
{
    uint64_t ulp =
        a->order < b->order ? (uint64_t)b->order - (uint64_t)a->order : (uint64_t)a->order - (uint64_t)b->order;
    if (ulp > INT64_MAX)
        ulp = INT64_MAX;
    uint64_t *sum = b->order > a->order ? &numbers->ulp_sum_up : &numbers->ulp_sum_down;
    *sum = add_saturating(*sum, ulp);
    if (ulp > element->ulp)
        element->ulp = ulp;
    if (ulp > numbers->max_ulp)
        numbers->max_ulp = ulp;
    double distance = fabs(a->value - b->value), size = fmax(fabs(a->value), fabs(b->value));
    if (distance > numbers->max_abs) {
        numbers->max_abs = distance;
        numbers->max_abs_index = index;
    }
    if (distance > numbers->max_relative * size)
        numbers->max_relative = distance / size;
    numbers->sign_flips += (a->value < 0) != (b->value < 0) && a->value != 0 && b->value != 0;
}

static void add_part(struct numbers *numbers, enum pt_dtype dtype, const struct numbers_part *a,
                     const struct numbers_part *b, uint64_t index, struct element *element)
{
    enum pt_dtype_kind kind = pt_dtype_kind(dtype);
    bool is_float = kind == PT_DTYPE_KIND_FLOAT || kind == PT_DTYPE_KIND_PACKED || kind == PT_DTYPE_KIND_COMPLEX;
    add_sums(numbers, a, b);
    if (a->bits == b->bits)
        return;
    if (a->nan && b->nan) {
        element->payloads = true;
    } else if (is_float && !a->nan && !b->nan && a->order == b->order) {
        element->zeros = true;
    } else {
        element->unequal = true;
        if (a->nan || b->nan)
            element->nan = true;
        else if (a->infinite || b->infinite)
            element->infinite = true;
        else
            add_distance(numbers, a, b, index, element);
    }
}

static void note_first(struct numbers *numbers, enum pt_dtype dtype, const void *a, const void *b, uint64_t index)
{
    if (numbers->first_unequal != UINT64_MAX)
        return;
    numbers->first_unequal = index;
    unsigned part = 0;
    if (numbers_part_count(dtype) == 2 && numbers_part_read(dtype, a, 0).bits == numbers_part_read(dtype, b, 0).bits)
        part = 1;
    struct numbers_part of_a = numbers_part_read(dtype, a, part), of_b = numbers_part_read(dtype, b, part);
    numbers->first_a = of_a.value;
    numbers->first_b = of_b.value;
    numbers->first_bits_a = of_a.bits;
    numbers->first_bits_b = of_b.bits;
}

static void add_element(struct numbers *numbers, enum pt_dtype dtype, const void *a, const void *b)
{
    struct element element = {0};
    uint64_t index = numbers->elements++;
    for (unsigned part = 0; part < numbers_part_count(dtype); part++) {
        struct numbers_part of_a = numbers_part_read(dtype, a, part), of_b = numbers_part_read(dtype, b, part);
        add_part(numbers, dtype, &of_a, &of_b, index, &element);
    }
    unsigned bucket = BUCKET_EQUAL;
    if (element.unequal) {
        numbers->unequal++;
        numbers->nan_against_number += element.nan;
        numbers->infinite_against_finite += element.infinite && !element.nan;
        note_first(numbers, dtype, a, b, index);
        bucket = element.nan || element.infinite ? BUCKET_NAN : numbers_fast_bucket(element.ulp);
    } else if (element.zeros) {
        numbers->signed_zeros++;
        bucket = BUCKET_ZEROS;
    } else if (element.payloads) {
        numbers->nan_payloads++;
        bucket = BUCKET_NAN;
    }
    numbers->histogram[bucket]++;
}

bool numbers_add_plain(struct numbers *numbers, enum pt_dtype dtype, const void *a, const void *b, uint64_t count)
{
    size_t bytes = pt_dtype_bytes(dtype);
    if (memcmp(a, b, count * bytes) == 0) {
        numbers->elements += count;
        numbers->histogram[BUCKET_EQUAL] += count;
        return true;
    }
    for (uint64_t i = 0; i < count; i++)
        add_element(numbers, dtype, (const char *)a + i * bytes, (const char *)b + i * bytes);
    return false;
}

bool numbers_add(struct numbers *numbers, enum pt_dtype dtype, const void *a, const void *b, uint64_t count)
{
    size_t bytes = pt_dtype_bytes(dtype);
    if (!numbers_fast_knows(dtype))
        return numbers_add_plain(numbers, dtype, a, b, count);
    if (memcmp(a, b, count * bytes) == 0) {
        numbers->elements += count;
        numbers->histogram[BUCKET_EQUAL] += count;
        return true;
    }
    const char *at_a = a, *at_b = b;
    for (uint64_t done = 0; done < count;) {
        uint64_t block = count - done < NUMBERS_FAST_BLOCK ? count - done : NUMBERS_FAST_BLOCK;
        const void *block_a = at_a + done * bytes, *block_b = at_b + done * bytes;
        /* Blocks where a NaN or an infinity meets something else are rare and take the plain way. */
        if (!numbers_fast_add(numbers, dtype, block_a, block_b, (unsigned)block))
            for (uint64_t i = 0; i < block; i++)
                add_element(numbers, dtype, (const char *)block_a + i * bytes, (const char *)block_b + i * bytes);
        done += block;
    }
    return false;
}

void numbers_add_sums(struct numbers *numbers, enum pt_dtype dtype, const void *elements, uint64_t count)
{
    size_t bytes = pt_dtype_bytes(dtype);
    for (uint64_t i = 0; i < count; i++)
        for (unsigned part = 0; part < numbers_part_count(dtype); part++) {
            struct numbers_part value = numbers_part_read(dtype, (const char *)elements + i * bytes, part);
            add_sums(numbers, &value, &value);
        }
}

void numbers_merge(struct numbers *into, const struct numbers *from)
{
    if (into->first_unequal == UINT64_MAX && from->first_unequal != UINT64_MAX) {
        into->first_unequal = into->elements + from->first_unequal;
        into->first_a = from->first_a;
        into->first_b = from->first_b;
        into->first_bits_a = from->first_bits_a;
        into->first_bits_b = from->first_bits_b;
    }
    if (from->max_abs > into->max_abs) {
        into->max_abs = from->max_abs;
        into->max_abs_index = into->elements + from->max_abs_index;
    }
    into->elements += from->elements;
    into->unequal += from->unequal;
    into->signed_zeros += from->signed_zeros;
    into->nan_payloads += from->nan_payloads;
    into->nan_against_number += from->nan_against_number;
    into->infinite_against_finite += from->infinite_against_finite;
    if (from->max_ulp > into->max_ulp)
        into->max_ulp = from->max_ulp;
    into->ulp_sum_up = add_saturating(into->ulp_sum_up, from->ulp_sum_up);
    into->ulp_sum_down = add_saturating(into->ulp_sum_down, from->ulp_sum_down);
    if (from->max_relative > into->max_relative)
        into->max_relative = from->max_relative;
    into->sign_flips += from->sign_flips;
    into->sum_squares_a += from->sum_squares_a;
    into->sum_squares_b += from->sum_squares_b;
    into->sum_squares_difference += from->sum_squares_difference;
    into->dot += from->dot;
    for (unsigned i = 0; i < NUMBERS_BUCKETS; i++)
        into->histogram[i] += from->histogram[i];
}

const char *numbers_bucket_name(unsigned bucket)
{
    static const char *const names[NUMBERS_BUCKETS] = {"0",         "+0/-0",      "1",        "2",         "3-4",
                                                       "5-8",       "9-16",       "17-32",    "33-64",     "65-128",
                                                       "129-256",   "257-512",    "513-1024", "1025-2048", "2049-4096",
                                                       "4097-8192", "8193-16384", "> 2^14",   "NaN"};
    return names[bucket];
}

double numbers_relative_difference(const struct numbers *numbers)
{
    double sum = numbers->sum_squares_a + numbers->sum_squares_b;
    return sum == 0 ? 0 : 1 - 2 * numbers->dot / sum;
}

double numbers_cosine(const struct numbers *numbers)
{
    double product = sqrt(numbers->sum_squares_a) * sqrt(numbers->sum_squares_b);
    return product == 0 ? numbers->sum_squares_a == numbers->sum_squares_b : numbers->dot / product;
}

/* b = factor * a but for a part of the difference that rounding explains. */
static bool is_scaled(const struct numbers *numbers, double *ret_factor)
{
    if (numbers->sum_squares_a == 0 || numbers->sum_squares_difference == 0)
        return false;
    double factor = numbers->dot / numbers->sum_squares_a;
    double rest = numbers->sum_squares_b - factor * numbers->dot;
    *ret_factor = factor;
    return fabs(factor - 1) > 1e-4 && numbers->unequal > 8 && rest < 0.05 * numbers->sum_squares_difference;
}

const char *numbers_reading(const struct numbers *numbers, char *buffer, size_t size)
{
    double factor = 1;
    double up = (double)numbers->ulp_sum_up, down = (double)numbers->ulp_sum_down;
    double share = numbers->elements == 0 ? 0 : (double)numbers->unequal / (double)numbers->elements;
    const char *text = "";
    if (numbers->nan_against_number + numbers->infinite_against_finite > 0)
        text = "NaN or infinity on one side only: no rounding";
    else if (numbers->unequal == 0 && numbers->signed_zeros > 0)
        text = "only the signs of zeros differ";
    else if (numbers->unequal == 0)
        text = "";
    else if (is_scaled(numbers, &factor)) {
        snprintf(buffer, size, "all elements scaled by %.5g: scale", factor);
        return buffer;
    } else if (numbers_relative_difference(numbers) > 0.01)
        text = "far apart, no rounding: another row, a cache, or a state";
    else if (numbers->unequal >= 16 && numbers->max_ulp <= 16 && (up > 19 * down || down > 19 * up))
        text = "all to one side: truncation or another rounding";
    else if (numbers->max_ulp <= 1 && share < 0.5)
        text = "sparse, +-1 ULP, no bias: reduction order";
    else if (numbers->max_abs > 0 && numbers_relative_difference(numbers) < 1e-4)
        text = "small, to both sides: rounding of sums in another order";
    snprintf(buffer, size, "%s", text);
    return buffer;
}
