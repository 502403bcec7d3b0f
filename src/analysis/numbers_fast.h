/* Blocks of float32, float16 and bfloat16, in loops that the compiler can vectorise. Private to numbers.c. */
#pragma once

#include "analysis/numbers.h"

enum { NUMBERS_FAST_BLOCK = 256 };

bool numbers_fast_knows(enum pt_dtype dtype);

/* Adds a block of at most NUMBERS_FAST_BLOCK elements; false, and nothing added: where bits differ there is a NaN or an
 * infinity in it. */
bool numbers_fast_add(struct numbers *numbers, enum pt_dtype dtype, const void *a, const void *b, unsigned count);

unsigned numbers_fast_bucket(uint64_t ulp); /* of the histogram; ulp >= 1 */
