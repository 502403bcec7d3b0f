#include "base/duration.h"
#include "base/number.h"

#include <stdio.h>
#include <string.h>

enum error_code duration_parse(const char *what, const char *text, uint64_t *ret_ms, struct error *err)
{
    static const struct {
        const char *suffix;
        uint64_t ms;
    } units[] = {{"ms", 1}, {"s", 1000}, {"min", 60000}, {"h", 3600000}};
    static const uint64_t longest_ms = 30ull * 24 * 3600000;
    uint64_t value = 0;
    size_t used = number_scan(text, strlen(text), &value);
    for (size_t i = 0; used > 0 && i < sizeof units / sizeof units[0]; i++) {
        if (strcmp(text + used, units[i].suffix) != 0)
            continue;
        uint64_t ms = number_multiply(value, units[i].ms);
        if (ms > longest_ms)
            return error_set(err, ERROR_BAD_VALUE, "%s: %.60s is longer than 30 days", what, text);
        *ret_ms = ms;
        return ERROR_NONE;
    }
    return error_set(err, ERROR_BAD_VALUE,
                     "%s: '%.60s' is not a duration; expected a whole number with a unit: ms, s, min, h, such as 30s",
                     what, text);
}

const char *duration_text(uint64_t ms, char *buffer)
{
    unsigned long long s = ms / 1000;
    if (ms < 1000)
        snprintf(buffer, DURATION_TEXT, "%llu ms", (unsigned long long)ms);
    else if (s < 120)
        snprintf(buffer, DURATION_TEXT, "%.1f s", (double)ms / 1000);
    else if (s < 7200)
        snprintf(buffer, DURATION_TEXT, "%llu min %llu s", s / 60, s % 60);
    else
        snprintf(buffer, DURATION_TEXT, "%llu h %llu min", s / 3600, s / 60 % 60);
    return buffer;
}
