/* Checked numbers. Any thread. */
#pragma once

#include "base/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Decimal digits only, the whole text, at most `max`; no sign, blank, or prefix. ERROR_BAD_VALUE names `what` and the
 * text. */
enum error_code number_parse(const char *what, const char *text, uint64_t max, uint64_t *ret_value, struct error *err);

/* The same of an option that may be left out: `text` NULL leaves *ret_value as it is. Below `least`: ERROR_BAD_VALUE. */
enum error_code number_option(const char *what, const char *text, uint64_t least, uint64_t max, uint64_t *ret_value,
                              struct error *err);

/* As far as digits go, for text inside other text: returns the number of digits eaten, 0 when none or on overflow. */
size_t number_scan(const char *text, size_t length, uint64_t *ret_value);

/* Saturating arithmetic: the result is UINT64_MAX (or 0 for subtraction) where the true one does not fit. */
uint64_t number_add(uint64_t a, uint64_t b);
uint64_t number_subtract(uint64_t a, uint64_t b);
uint64_t number_multiply(uint64_t a, uint64_t b);
/* a * b / c in 128 bit; c == 0 gives UINT64_MAX. */
uint64_t number_scale(uint64_t a, uint64_t b, uint64_t c);
