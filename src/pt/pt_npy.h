/* The head of numpy's .npy file (format 1.0, numpy/lib/format.py) for a tensor: behind it come its elements in
 * row-major order. Element types that numpy does not have are stored as their bits, unsigned. Pure. */
#pragma once

#include "base/buffer.h"
#include "pt/pt_file.h"

void pt_npy_header(const struct pt_file_tensor *tensor, struct buffer *out);

/* What numpy calls the elements: "<f4", or "<u2" for bfloat16. */
const char *pt_npy_type(enum pt_dtype dtype);
