/* The grammar of RFC 8259 and nothing more, checked before cJSON sees the text: cJSON 1.7.15 takes trailing text,
 * leading zeros, raw control characters, a byte-order mark, invalid UTF-8, and cuts strings at \u0000. Any thread. */
#pragma once

#include "base/error.h"

#include <stddef.h>

/* ERROR_FORMAT with the byte position when `text` is not exactly one value with blanks around it, or is nested deeper
 * than `max_depth`. ERROR_TOO_LARGE when it holds more than `max_values` (each object and array counts, and each value
 * in them). */
enum error_code json_scan(const char *text, size_t length, size_t max_depth, size_t max_values, struct error *err);
