#include "base/number.h"

#include <inttypes.h>

#include <string.h>

size_t number_scan(const char *text, size_t length, uint64_t *ret_value)
{
    uint64_t value = 0;
    size_t i = 0;
    for (; i < length && text[i] >= '0' && text[i] <= '9'; i++)
        if (__builtin_mul_overflow(value, 10u, &value) ||
            __builtin_add_overflow(value, (uint64_t)(text[i] - '0'), &value))
            return 0;
    if (i > 0)
        *ret_value = value;
    return i;
}

enum error_code number_parse(const char *what, const char *text, uint64_t max, uint64_t *ret_value, struct error *err)
{
    uint64_t value = 0;
    size_t length = strlen(text);
    if (length == 0 || number_scan(text, length, &value) != length)
        return error_set(err, ERROR_BAD_VALUE, "%s: '%.60s' is not a whole number", what, text);
    if (value > max)
        return error_set(err, ERROR_BAD_VALUE, "%s: %.60s is larger than the limit %llu", what, text,
                         (unsigned long long)max);
    *ret_value = value;
    return ERROR_NONE;
}

enum error_code number_option(const char *what, const char *text, uint64_t least, uint64_t max, uint64_t *ret_value,
                              struct error *err)
{
    uint64_t value;
    if (text == NULL)
        return ERROR_NONE;
    enum error_code code = number_parse(what, text, max, &value, err);
    if (code == ERROR_NONE && value < least)
        code = error_set(err, ERROR_BAD_VALUE, "%s: %" PRIu64 " is too few; at least %" PRIu64, what, value, least);
    if (code == ERROR_NONE)
        *ret_value = value;
    return code;
}

uint64_t number_add(uint64_t a, uint64_t b)
{
    uint64_t sum;
    return __builtin_add_overflow(a, b, &sum) ? UINT64_MAX : sum;
}

uint64_t number_subtract(uint64_t a, uint64_t b)
{
    return a > b ? a - b : 0;
}

uint64_t number_multiply(uint64_t a, uint64_t b)
{
    uint64_t product;
    return __builtin_mul_overflow(a, b, &product) ? UINT64_MAX : product;
}

uint64_t number_scale(uint64_t a, uint64_t b, uint64_t c)
{
    if (c == 0)
        return UINT64_MAX;
    unsigned __int128 value = (unsigned __int128)a * b / c;
    return value > UINT64_MAX ? UINT64_MAX : (uint64_t)value;
}
