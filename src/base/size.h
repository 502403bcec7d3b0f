/* Sizes of space: "20G", "512MiB", "10.5G", "5%". Any thread. */
#pragma once

#include "base/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct size {
    bool percent;
    uint64_t value; /* bytes; with percent: thousandths of a percent (5 % = 5000) */
};

/* Takes B, KiB MiB GiB TiB, K M G T (powers of 1024 all), and % where `percent_allowed`; at most 3 decimals; no sign,
 * no blank, no exponent; letters in this case only. A number without a unit is refused (also "0"): ERROR_BAD_VALUE with
 * `what`, the text and the accepted forms. GB and the like are refused: some read them as powers of 1000. */
enum error_code size_parse(const char *what, const char *text, bool percent_allowed, struct size *ret_size,
                           struct error *err);

/* Bytes of `size` on a filesystem of `total_bytes`. */
uint64_t size_bytes(const struct size *size, uint64_t total_bytes);

/* "20.0 GiB", "312 B": for people. The buffer is of SIZE_TEXT bytes; returned for use in printf. */
enum { SIZE_TEXT = 24 };
const char *size_text(uint64_t bytes, char *buffer);
