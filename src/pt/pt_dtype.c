#include "pt/pt_dtype.h"

#include <endian.h>
#include <inttypes.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
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

/* A number at the place of an imaginary part. */
static double small_part(enum pt_dtype dtype, const void *bytes)
{
    return pt_dtype_value(dtype == PT_DTYPE_COMPLEX128  ? PT_DTYPE_FLOAT64
                          : dtype == PT_DTYPE_COMPLEX64 ? PT_DTYPE_FLOAT32
                                                        : PT_DTYPE_FLOAT16,
                          bytes);
}

unsigned pt_dtype_parts(enum pt_dtype dtype)
{
    return types[dtype].kind == PT_DTYPE_KIND_COMPLEX || types[dtype].kind == PT_DTYPE_KIND_PACKED ? 2 : 1;
}

double pt_dtype_part(enum pt_dtype dtype, const void *element, unsigned part)
{
    const uint8_t *bytes = element;
    if (part == 0)
        return pt_dtype_value(dtype, element);
    if (types[dtype].kind == PT_DTYPE_KIND_COMPLEX) /* the imaginary part lies behind the real one */
        return small_part(dtype, bytes + types[dtype].bytes / 2);
    uint8_t second = bytes[0] >> 4;
    return pt_dtype_value(dtype, &second);
}

/* Digits that tell all numbers of a type apart. */
static int digits_of(enum pt_dtype dtype)
{
    size_t bytes = types[dtype].bytes / (types[dtype].kind == PT_DTYPE_KIND_COMPLEX ? 2U : 1U);
    return dtype == PT_DTYPE_BFLOAT16 ? 4 : bytes == 8 ? 17 : bytes == 4 ? 9 : bytes == 2 ? 5 : 4;
}

/* The fewest digits that read back as the same number, of doubles and floats; of narrower ones as many as they have. */
static int write_number(double value, int digits, char *out, size_t size)
{
    for (int fewer = digits == 17 ? 15 : digits == 9 ? 6 : digits; fewer < digits; fewer++) {
        int length = snprintf(out, size, "%.*g", fewer, value);
        if (digits == 17 ? strtod(out, NULL) == value : (double)strtof(out, NULL) == value)
            return length;
    }
    return snprintf(out, size, "%.*g", digits, value);
}

const char *pt_dtype_text(enum pt_dtype dtype, const void *element, char *out)
{
    size_t bytes = types[dtype].bytes;
    uint64_t bits = load(element, bytes < 8 ? bytes : 8);
    int digits = digits_of(dtype), used;
    char second[PT_DTYPE_TEXT / 2];
    switch (types[dtype].kind) {
    case PT_DTYPE_KIND_SIGNED: /* the sign of the narrow one, all digits of the wide one */
        snprintf(out, PT_DTYPE_TEXT, "%" PRId64, (int64_t)(bits << (64 - 8 * bytes)) >> (64 - 8 * bytes));
        break;
    case PT_DTYPE_KIND_UNSIGNED:
        snprintf(out, PT_DTYPE_TEXT, "%" PRIu64, bits);
        break;
    case PT_DTYPE_KIND_BITS:
        snprintf(out, PT_DTYPE_TEXT, "0x%0*" PRIx64, (int)(2 * bytes), bits);
        break;
    case PT_DTYPE_KIND_BOOL:
        snprintf(out, PT_DTYPE_TEXT, "%s", bits != 0 ? "True" : "False");
        break;
    default:
        used = write_number(pt_dtype_value(dtype, element), digits, out, PT_DTYPE_TEXT);
        if (pt_dtype_parts(dtype) == 1)
            break;
        write_number(pt_dtype_part(dtype, element, 1), digits, second, sizeof second);
        bool complex = types[dtype].kind == PT_DTYPE_KIND_COMPLEX, signed_second = second[0] == '-';
        snprintf(out + used, PT_DTYPE_TEXT - (size_t)used, "%s%s%s", complex ? (signed_second ? "" : "+") : "|", second,
                 complex ? "j" : "");
    }
    return out;
}
