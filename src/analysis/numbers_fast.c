/* A block is decoded to arrays of floats and ordered integers first; one loop over those serves all three formats. */
#include "analysis/numbers_fast.h"

#include <math.h>
#include <string.h>

enum {
    LANES = 8, /* partial sums: additions in a fixed order that a vector unit can keep */
    MAGNITUDE = 0x7FFFFFFF,
    INFINITE = 0x7F800000,
};

struct block {
    uint32_t raw[NUMBERS_FAST_BLOCK];  /* the element's bits */
    uint32_t wide[NUMBERS_FAST_BLOCK]; /* as float32 */
    int32_t order[NUMBERS_FAST_BLOCK];
};

bool numbers_fast_knows(enum pt_dtype dtype)
{
    return dtype == PT_DTYPE_FLOAT32 || dtype == PT_DTYPE_FLOAT16 || dtype == PT_DTYPE_BFLOAT16;
}

static void load_16(struct block *block, const void *elements, unsigned count)
{
    uint16_t bits[NUMBERS_FAST_BLOCK];
    memcpy(bits, elements, count * sizeof *bits);
    for (unsigned i = 0; i < count; i++) {
        int32_t magnitude = bits[i] & 0x7FFF;
        block->raw[i] = bits[i];
        block->order[i] = (bits[i] & 0x8000) != 0 ? -magnitude : magnitude;
    }
}

static void widen_bfloat16(struct block *block, unsigned count)
{
    for (unsigned i = 0; i < count; i++)
        block->wide[i] = block->raw[i] << 16;
}

/* Exponent and fraction moved to their places and multiplied by 2^112, which is exact and takes subnormals along; only
 * infinity and NaN need their exponent set. */
static void widen_float16(struct block *block, unsigned count)
{
    for (unsigned i = 0; i < count; i++) {
        uint32_t magnitude = (block->raw[i] & 0x7FFF) << 13, wide;
        float value;
        memcpy(&value, &magnitude, sizeof value);
        value *= 0x1p112F;
        memcpy(&wide, &value, sizeof wide);
        wide = magnitude >= 0x0F800000 ? magnitude | INFINITE : wide;
        block->wide[i] = wide | (block->raw[i] & 0x8000) << 16;
    }
}

static void load_32(struct block *block, const void *elements, unsigned count)
{
    memcpy(block->raw, elements, count * sizeof *block->raw);
    memcpy(block->wide, elements, count * sizeof *block->wide);
    for (unsigned i = 0; i < count; i++) {
        int32_t magnitude = (int32_t)(block->raw[i] & MAGNITUDE);
        block->order[i] = block->raw[i] >> 31 != 0 ? -magnitude : magnitude;
    }
}

static void load(struct block *block, enum pt_dtype dtype, const void *elements, unsigned count)
{
    if (dtype == PT_DTYPE_FLOAT32) {
        load_32(block, elements, count);
        return;
    }
    load_16(block, elements, count);
    if (dtype == PT_DTYPE_BFLOAT16)
        widen_bfloat16(block, count);
    else
        widen_float16(block, count);
}

static bool has_special_difference(const struct block *a, const struct block *b, unsigned count)
{
    uint32_t found = 0;
    for (unsigned i = 0; i < count; i++) {
        uint32_t special = (uint32_t)((a->wide[i] & MAGNITUDE) >= INFINITE) | ((b->wide[i] & MAGNITUDE) >= INFINITE);
        found |= special & (uint32_t)(a->raw[i] != b->raw[i]);
    }
    return found != 0;
}

/* Equal NaNs and infinities are left out of the sums. */
static void values(const struct block *block, unsigned count, float *ret_values)
{
    for (unsigned i = 0; i < count; i++) {
        uint32_t bits = (block->wide[i] & MAGNITUDE) >= INFINITE ? 0 : block->wide[i];
        memcpy(&ret_values[i], &bits, sizeof bits);
    }
}

static void add_sums(struct numbers *numbers, const float *a, const float *b, unsigned count)
{
    double aa[LANES] = {0}, bb[LANES] = {0}, ab[LANES] = {0}, dd[LANES] = {0};
    unsigned i = 0;
    for (; i + LANES <= count; i += LANES)
        for (unsigned lane = 0; lane < LANES; lane++) {
            double x = (double)a[i + lane], y = (double)b[i + lane], d = x - y;
            aa[lane] += x * x;
            bb[lane] += y * y;
            ab[lane] += x * y;
            dd[lane] += d * d;
        }
    for (; i < count; i++) {
        double x = (double)a[i], y = (double)b[i], d = x - y;
        aa[0] += x * x;
        bb[0] += y * y;
        ab[0] += x * y;
        dd[0] += d * d;
    }
    for (unsigned lane = 0; lane < LANES; lane++) {
        numbers->sum_squares_a += aa[lane];
        numbers->sum_squares_b += bb[lane];
        numbers->dot += ab[lane];
        numbers->sum_squares_difference += dd[lane];
    }
}

/* The few elements that differ, one by one. */
static void add_difference(struct numbers *numbers, const struct block *a, const struct block *b, const float *value_a,
                           const float *value_b, unsigned i)
{
    uint64_t index = numbers->elements + i;
    int64_t up = (int64_t)b->order[i] - a->order[i];
    if (up == 0) {
        numbers->signed_zeros++;
        numbers->histogram[1]++;
        numbers->histogram[0]--;
        return;
    }
    uint64_t ulp = (uint64_t)(up < 0 ? -up : up);
    uint64_t *sum = up > 0 ? &numbers->ulp_sum_up : &numbers->ulp_sum_down;
    *sum = *sum > UINT64_MAX - ulp ? UINT64_MAX : *sum + ulp;
    if (numbers->first_unequal == UINT64_MAX) {
        numbers->first_unequal = index;
        numbers->first_a = (double)value_a[i];
        numbers->first_b = (double)value_b[i];
        numbers->first_bits_a = a->raw[i];
        numbers->first_bits_b = b->raw[i];
    }
    numbers->unequal++;
    numbers->histogram[numbers_fast_bucket(ulp)]++;
    numbers->histogram[0]--;
    if (ulp > numbers->max_ulp)
        numbers->max_ulp = ulp;
    double x = (double)value_a[i], y = (double)value_b[i];
    double distance = fabs(x - y), size = fmax(fabs(x), fabs(y));
    if (distance > numbers->max_abs) {
        numbers->max_abs = distance;
        numbers->max_abs_index = index;
    }
    if (distance > numbers->max_relative * size)
        numbers->max_relative = distance / size;
    numbers->sign_flips += (x < 0) != (y < 0) && x != 0 && y != 0;
}

bool numbers_fast_add(struct numbers *numbers, enum pt_dtype dtype, const void *a, const void *b, unsigned count)
{
    struct block of_a, of_b;
    float value_a[NUMBERS_FAST_BLOCK], value_b[NUMBERS_FAST_BLOCK];
    load(&of_a, dtype, a, count);
    load(&of_b, dtype, b, count);
    if (has_special_difference(&of_a, &of_b, count))
        return false;
    values(&of_a, count, value_a);
    values(&of_b, count, value_b);
    add_sums(numbers, value_a, value_b, count);
    numbers->histogram[0] += count;
    for (unsigned i = 0; i < count; i++)
        if (of_a.raw[i] != of_b.raw[i])
            add_difference(numbers, &of_a, &of_b, value_a, value_b, i);
    numbers->elements += count;
    return true;
}
