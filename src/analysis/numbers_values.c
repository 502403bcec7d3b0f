/* Comparison across dtypes: by value, and after rounding the wider to the narrower. */
#include "analysis/numbers.h"
#include "analysis/numbers_part.h"

#include <math.h>
#include <string.h>

/* How many digits a format has, and its smallest normal exponent: what rounding needs. */
struct precision {
    int digits, low,
        high; /* bits of the fraction with the leading one; exponents of 2 of the smallest normal and largest */
};

static bool precision_of(enum pt_dtype dtype, struct precision *ret)
{
    switch (dtype) {
    case PT_DTYPE_FLOAT64:
        *ret = (struct precision){53, -1022, 1023};
        return true;
    case PT_DTYPE_FLOAT32:
        *ret = (struct precision){24, -126, 127};
        return true;
    case PT_DTYPE_FLOAT16:
        *ret = (struct precision){11, -14, 15};
        return true;
    case PT_DTYPE_BFLOAT16:
        *ret = (struct precision){8, -126, 127};
        return true;
    case PT_DTYPE_FLOAT8_E4M3FN:
        *ret = (struct precision){4, -6, 8};
        return true;
    case PT_DTYPE_FLOAT8_E5M2:
        *ret = (struct precision){3, -14, 15};
        return true;
    default:
        return false;
    }
}

/* To nearest, ties to even; what is beyond the largest exponent becomes infinite. */
static double rounded(double value, const struct precision *to)
{
    if (value == 0 || !isfinite(value))
        return value;
    int exponent;
    frexp(value, &exponent); /* |value| in [2^(exponent-1), 2^exponent) */
    int unit = (exponent - 1 < to->low ? to->low : exponent - 1) - (to->digits - 1);
    double result = ldexp(nearbyint(ldexp(value, -unit)), unit);
    return fabs(result) >= ldexp(1, to->high + 1) ? copysign(INFINITY, value) : result;
}

static bool same_value(double a, double b)
{
    return a == b || (isnan(a) && isnan(b));
}

static bool is_integer(enum pt_dtype dtype)
{
    enum pt_dtype_kind kind = pt_dtype_kind(dtype);
    return kind == PT_DTYPE_KIND_SIGNED || kind == PT_DTYPE_KIND_UNSIGNED || kind == PT_DTYPE_KIND_BOOL;
}

/* Exact also beyond 2^53. */
static bool same_integer(enum pt_dtype dtype_a, const void *a, enum pt_dtype dtype_b, const void *b)
{
    struct numbers_part of_a = numbers_part_read(dtype_a, a, 0), of_b = numbers_part_read(dtype_b, b, 0);
    bool huge_a = dtype_a == PT_DTYPE_UINT64 && of_a.bits > INT64_MAX;
    bool huge_b = dtype_b == PT_DTYPE_UINT64 && of_b.bits > INT64_MAX;
    if (huge_a || huge_b)
        return huge_a && huge_b && of_a.bits == of_b.bits;
    int64_t value_a = dtype_a == PT_DTYPE_UINT64 ? (int64_t)of_a.bits : of_a.order;
    int64_t value_b = dtype_b == PT_DTYPE_UINT64 ? (int64_t)of_b.bits : of_b.order;
    return value_a == value_b;
}

static bool same_element(enum pt_dtype dtype_a, const void *a, enum pt_dtype dtype_b, const void *b)
{
    if (is_integer(dtype_a) && is_integer(dtype_b))
        return same_integer(dtype_a, a, dtype_b, b);
    for (unsigned part = 0; part < numbers_part_count(dtype_a); part++)
        if (!same_value(numbers_part_read(dtype_a, a, part).value, numbers_part_read(dtype_b, b, part).value))
            return false;
    return true;
}

uint64_t numbers_unequal_values(enum pt_dtype dtype_a, const void *a, enum pt_dtype dtype_b, const void *b,
                                uint64_t count, bool *ret_after_rounding)
{
    size_t bytes_a = pt_dtype_bytes(dtype_a), bytes_b = pt_dtype_bytes(dtype_b);
    struct precision of_a, of_b;
    bool floats = precision_of(dtype_a, &of_a) && precision_of(dtype_b, &of_b);
    bool comparable = numbers_part_count(dtype_a) == numbers_part_count(dtype_b);
    uint64_t unequal = 0, unequal_rounded = 0;
    for (uint64_t i = 0; i < count; i++) {
        const char *at_a = (const char *)a + i * bytes_a, *at_b = (const char *)b + i * bytes_b;
        bool same = comparable && same_element(dtype_a, at_a, dtype_b, at_b);
        unequal += !same;
        if (same)
            continue;
        double value_a = pt_dtype_value(dtype_a, at_a), value_b = pt_dtype_value(dtype_b, at_b);
        unequal_rounded += !floats || !same_value(of_a.digits > of_b.digits ? rounded(value_a, &of_b) : value_a,
                                                  of_a.digits > of_b.digits ? value_b : rounded(value_b, &of_a));
    }
    *ret_after_rounding = unequal_rounded == 0;
    return unequal;
}
