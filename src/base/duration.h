/* Durations: "500ms", "30s", "10min", "2h". Any thread. */
#pragma once

#include "base/error.h"

#include <stdint.h>

/* Takes ms, s, min, h; whole numbers; no sign, no blank; a number without a unit is refused; at most 30 days.
 * ERROR_BAD_VALUE with `what`, the text and the accepted forms. */
enum error_code duration_parse(const char *what, const char *text, uint64_t *ret_ms, struct error *err);

/* "850 ms", "12.3 s", "5 min 20 s", "3 h 5 min": for people. The buffer is of DURATION_TEXT bytes. */
enum { DURATION_TEXT = 32 };
const char *duration_text(uint64_t ms, char *buffer);
