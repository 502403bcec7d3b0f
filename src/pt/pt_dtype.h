/* Element types of tensors: pt_dtype.def with words around it. Pure; any thread. */
#pragma once

#include <stddef.h>

enum pt_dtype {
#define X(constant, name, bytes, kind, descr) PT_DTYPE_##constant,
#include "pt/pt_dtype.def"
#undef X
    PT_DTYPE_COUNT
};

enum pt_dtype_kind {
    PT_DTYPE_KIND_FLOAT,
    PT_DTYPE_KIND_PACKED, /* two values a byte */
    PT_DTYPE_KIND_COMPLEX,
    PT_DTYPE_KIND_SIGNED,
    PT_DTYPE_KIND_UNSIGNED,
    PT_DTYPE_KIND_BOOL,
    PT_DTYPE_KIND_BITS,
};

size_t pt_dtype_bytes(enum pt_dtype dtype);     /* of one element, never 0 */
const char *pt_dtype_name(enum pt_dtype dtype); /* "bfloat16" */
enum pt_dtype_kind pt_dtype_kind(enum pt_dtype dtype);
const char *pt_dtype_numpy(
    enum pt_dtype dtype); /* "<f4"; NULL: numpy has none, .npy stores the bits as "<u2" or "|u1" */

/* One element at `element` (any alignment, little endian) as a double, exactly where a double can hold it; of a complex
 * number its real part, of a packed pair the first. NaN payloads are not kept. */
double pt_dtype_value(enum pt_dtype dtype, const void *element);

/* The element as people write it: "-3", "1.5" (as many digits as the type can tell apart, no more), "nan", "True",
 * "1+2j", "0x1f" for bits, "0.5|-6" for a packed pair. Returns `out`, of PT_DTYPE_TEXT bytes. */
enum { PT_DTYPE_TEXT = 80 };
const char *pt_dtype_text(enum pt_dtype dtype, const void *element, char *out);

/* Numbers that one element holds, 1 or 2: real and imaginary part, the two of a packed pair. */
unsigned pt_dtype_parts(enum pt_dtype dtype);
double pt_dtype_part(enum pt_dtype dtype, const void *element, unsigned part);
