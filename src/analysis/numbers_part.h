/* One element of any dtype as one or two ordered numbers: the real and the imaginary part, or the two values of a
 * packed byte, else the element itself. Pure; any thread. */
#pragma once

#include "pt/pt_dtype.h"

#include <stdbool.h>
#include <stdint.h>

struct numbers_part {
    uint64_t bits;
    int64_t order; /* in the order of the values: neighbours differ by 1; +0 and -0 are both 0 */
    double value;
    bool nan, infinite;
};

unsigned numbers_part_count(enum pt_dtype dtype); /* 1 or 2 */
struct numbers_part numbers_part_read(enum pt_dtype dtype, const void *element, unsigned part);
