#include "pt/pt_dtype.h"

#include <endian.h>
#include <math.h>
#include <stdint.h>
#include <string.h>

static const struct {
    const char *name, *descr;
    uint8_t bytes, kind;
} types[] = {
#define X(constant, name, bytes, kind, descr) {name, descr, bytes, PT_DTYPE_KIND_##kind},
#include "pt/pt_dtype.def"
#undef X
};

size_t pt_dtype_bytes(enum pt_dtype dtype)
{
    return types[dtype].bytes;
}

const char *pt_dtype_name(enum pt_dtype dtype)
{
    return types[dtype].name;
}

enum pt_dtype_kind pt_dtype_kind(enum pt_dtype dtype)
{
    return (enum pt_dtype_kind)types[dtype].kind;
}

const char *pt_dtype_numpy(enum pt_dtype dtype)
{
    return types[dtype].descr;
}

/* What the largest exponent of a small float stands for. */
enum top { TOP_IEEE, TOP_ONE_NAN, TOP_NUMBERS };

/* A float of `exponent_bits` and `fraction_bits` behind a sign, as IEEE 754 reads it. ONE_NAN (e4m3fn): no infinity,
 * NaN where all bits are one. NUMBERS (fnuz, e2m1): no infinity; for fnuz the caller has looked for the one NaN. */
static double small_float(unsigned bits, int exponent_bits, int fraction_bits, int bias, enum top top)
{
    unsigned fraction = bits & ((1u << fraction_bits) - 1);
    int largest = (1 << exponent_bits) - 1, exponent = (int)(bits >> fraction_bits) & largest;
    double sign = (bits >> (exponent_bits + fraction_bits) & 1) != 0 ? -1.0 : 1.0;
    if (exponent == largest && top == TOP_IEEE)
        return fraction != 0 ? NAN : sign * INFINITY;
    if (exponent == largest && top == TOP_ONE_NAN && fraction == (1u << fraction_bits) - 1)
        return NAN;
    if (exponent == 0)
        return sign * ldexp(fraction, 1 - bias - fraction_bits);
    return sign * ldexp(fraction | 1u << fraction_bits, exponent - bias - fraction_bits);
}

static uint64_t load(const void *element, size_t bytes)
{
    uint64_t value = 0;
    memcpy(&value, element, bytes);
    return le64toh(value);
}

static double from_float32(uint32_t bits)
{
    float value;
    memcpy(&value, &bits, sizeof value);
    return (double)value;
}

static double from_float64(uint64_t bits)
{
    double value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

double pt_dtype_value(enum pt_dtype dtype, const void *element)
{
    size_t bytes = types[dtype].bytes < 8 ? types[dtype].bytes : 8;
    uint64_t bits = load(element, bytes);
    switch (dtype) {
    case PT_DTYPE_FLOAT64:
    case PT_DTYPE_COMPLEX128:
        return from_float64(bits);
    case PT_DTYPE_FLOAT32:
    case PT_DTYPE_COMPLEX64:
        return from_float32((uint32_t)bits);
    case PT_DTYPE_FLOAT16:
    case PT_DTYPE_COMPLEX32:
        return small_float((unsigned)bits & 0xffff, 5, 10, 15, TOP_IEEE);
    case PT_DTYPE_BFLOAT16:
        return from_float32((uint32_t)bits << 16);
    case PT_DTYPE_FLOAT8_E4M3FN:
        return small_float((unsigned)bits, 4, 3, 7, TOP_ONE_NAN);
    case PT_DTYPE_FLOAT8_E5M2:
        return small_float((unsigned)bits, 5, 2, 15, TOP_IEEE);
    case PT_DTYPE_FLOAT8_E4M3FNUZ:
        return bits == 0x80 ? NAN : small_float((unsigned)bits, 4, 3, 8, TOP_NUMBERS);
    case PT_DTYPE_FLOAT8_E5M2FNUZ:
        return bits == 0x80 ? NAN : small_float((unsigned)bits, 5, 2, 16, TOP_NUMBERS);
    case PT_DTYPE_FLOAT8_E8M0FNU:
        return bits == 0xff ? NAN : ldexp(1.0, (int)bits - 127);
    case PT_DTYPE_FLOAT4_E2M1FN_X2:
        return small_float((unsigned)bits & 15, 2, 1, 1, TOP_NUMBERS);
    case PT_DTYPE_INT64:
        return (double)(int64_t)bits;
    case PT_DTYPE_INT32:
        return (double)(int32_t)bits;
    case PT_DTYPE_INT16:
        return (double)(int16_t)bits;
    case PT_DTYPE_INT8:
        return (double)(int8_t)bits;
    default: /* unsigned, bool, bits */
        return (double)bits;
    }
}
