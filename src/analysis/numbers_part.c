/* Bit patterns to ordered integers (facts/dump-analysis.md 4.5). */
#include "analysis/numbers_part.h"

#include <string.h>

enum layout {
    LAYOUT_SIGN,     /* sign and magnitude */
    LAYOUT_NO_MINUS, /* the pattern of -0 is the only NaN (fnuz) */
    LAYOUT_UNSIGNED, /* no sign bit; NaN is the last pattern */
};

/* Of the float formats: `infinite` is the magnitude of infinity, `nan` the smallest magnitude that is a NaN. */
static const struct format {
    uint64_t infinite, nan;
    unsigned bits;
    enum layout layout;
} formats[PT_DTYPE_COUNT] = {
    [PT_DTYPE_FLOAT64] = {0x7FF0000000000000, 0x7FF0000000000001, 64, LAYOUT_SIGN},
    [PT_DTYPE_FLOAT32] = {0x7F800000, 0x7F800001, 32, LAYOUT_SIGN},
    [PT_DTYPE_FLOAT16] = {0x7C00, 0x7C01, 16, LAYOUT_SIGN},
    [PT_DTYPE_BFLOAT16] = {0x7F80, 0x7F81, 16, LAYOUT_SIGN},
    [PT_DTYPE_FLOAT8_E5M2] = {0x7C, 0x7D, 8, LAYOUT_SIGN},
    [PT_DTYPE_FLOAT8_E4M3FN] = {UINT64_MAX, 0x7F, 8, LAYOUT_SIGN},
    [PT_DTYPE_FLOAT8_E4M3FNUZ] = {UINT64_MAX, UINT64_MAX, 8, LAYOUT_NO_MINUS},
    [PT_DTYPE_FLOAT8_E5M2FNUZ] = {UINT64_MAX, UINT64_MAX, 8, LAYOUT_NO_MINUS},
    [PT_DTYPE_FLOAT8_E8M0FNU] = {UINT64_MAX, 0xFF, 8, LAYOUT_UNSIGNED},
    [PT_DTYPE_FLOAT4_E2M1FN_X2] = {UINT64_MAX, UINT64_MAX, 4, LAYOUT_SIGN},
};

/* What the parts of a complex number are. */
static enum pt_dtype half_of(enum pt_dtype dtype)
{
    return dtype == PT_DTYPE_COMPLEX128  ? PT_DTYPE_FLOAT64
           : dtype == PT_DTYPE_COMPLEX64 ? PT_DTYPE_FLOAT32
                                         : PT_DTYPE_FLOAT16;
}

unsigned numbers_part_count(enum pt_dtype dtype)
{
    enum pt_dtype_kind kind = pt_dtype_kind(dtype);
    return kind == PT_DTYPE_KIND_COMPLEX || kind == PT_DTYPE_KIND_PACKED ? 2 : 1;
}

static uint64_t load(const void *element, size_t bytes)
{
    const unsigned char *at = element;
    uint64_t bits = 0;
    for (size_t i = 0; i < bytes; i++)
        bits |= (uint64_t)at[i] << (8 * i);
    return bits;
}

static void read_float(const struct format *format, struct numbers_part *part)
{
    uint64_t sign_bit = (uint64_t)1 << (format->bits - 1);
    if (format->layout == LAYOUT_UNSIGNED) {
        part->order = (int64_t)part->bits;
        part->nan = part->bits >= format->nan;
        return;
    }
    bool negative = (part->bits & sign_bit) != 0;
    uint64_t magnitude = part->bits & (sign_bit - 1);
    part->order = negative ? -(int64_t)magnitude : (int64_t)magnitude;
    part->nan = format->layout == LAYOUT_NO_MINUS ? negative && magnitude == 0 : magnitude >= format->nan;
    part->infinite = magnitude == format->infinite;
}

static int64_t order_of_integer(enum pt_dtype dtype, uint64_t bits)
{
    unsigned width = 8 * (unsigned)pt_dtype_bytes(dtype);
    if (pt_dtype_kind(dtype) == PT_DTYPE_KIND_SIGNED)
        return width == 64 ? (int64_t)bits : (int64_t)(bits << (64 - width)) >> (64 - width);
    return width == 64 ? (int64_t)(bits ^ ((uint64_t)1 << 63)) : (int64_t)bits;
}

struct numbers_part numbers_part_read(enum pt_dtype dtype, const void *element, unsigned part)
{
    struct numbers_part result = {0};
    const unsigned char *at = element;
    unsigned char nibble = 0;
    const struct format *format = &formats[dtype];
    if (pt_dtype_kind(dtype) == PT_DTYPE_KIND_PACKED) {
        nibble = part == 0 ? at[0] & 0xF : at[0] >> 4;
        at = &nibble;
    } else if (pt_dtype_kind(dtype) == PT_DTYPE_KIND_COMPLEX) {
        dtype = half_of(dtype);
        format = &formats[dtype];
        at += part * pt_dtype_bytes(dtype);
    }
    result.bits = load(at, pt_dtype_bytes(dtype));
    result.value = pt_dtype_value(dtype, at);
    if (format->bits != 0)
        read_float(format, &result);
    else
        result.order = order_of_integer(dtype, result.bits);
    return result;
}
