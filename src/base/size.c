#include "base/size.h"
#include "base/number.h"

#include <stdio.h>
#include <string.h>

static const struct {
    const char *suffix;
    unsigned shift;
} unit_table[] = {{"B", 0},  {"K", 10},   {"KiB", 10}, {"M", 20},  {"MiB", 20},
                  {"G", 30}, {"GiB", 30}, {"T", 40},   {"TiB", 40}};

/* Eats "12" or "12.345" into thousandths, UINT64_MAX where they are more; returns the bytes eaten, 0 when malformed. */
static size_t scan_thousandths(const char *text, uint64_t *ret_thousandths)
{
    uint64_t whole = 0, fraction = 0;
    size_t length = strlen(text), used = strspn(text, "0123456789");
    if (used == 0)
        return 0;
    if (number_scan(text, used, &whole) != used)
        whole = UINT64_MAX;
    if (text[used] == '.') {
        size_t digits = number_scan(text + used + 1, length - used - 1, &fraction);
        if (digits == 0 || digits > 3)
            return 0;
        used += 1 + digits;
        for (; digits < 3; digits++)
            fraction *= 10;
    }
    *ret_thousandths = number_add(number_multiply(whole, 1000), fraction);
    return used;
}

enum error_code size_parse(const char *what, const char *text, bool percent_allowed, struct size *ret_size,
                           struct error *err)
{
    uint64_t thousandths = 0;
    size_t used = scan_thousandths(text, &thousandths);
    if (used > 0 && percent_allowed && strcmp(text + used, "%") == 0 && thousandths <= 100000) {
        *ret_size = (struct size){true, thousandths};
        return ERROR_NONE;
    }
    if (used > 0 && percent_allowed && strcmp(text + used, "%") == 0)
        return error_set(err, ERROR_BAD_VALUE, "%s: %.60s is more than the whole; expected at most 100%%", what, text);
    for (size_t i = 0; used > 0 && i < sizeof unit_table / sizeof unit_table[0]; i++) {
        if (strcmp(text + used, unit_table[i].suffix) != 0)
            continue;
        uint64_t bytes = number_scale(thousandths, 1ull << unit_table[i].shift, 1000);
        if (thousandths == UINT64_MAX || bytes > INT64_MAX)
            return error_set(err, ERROR_BAD_VALUE, "%s: %.60s is larger than any disk; expected a size such as 20G",
                             what, text);
        *ret_size = (struct size){false, bytes};
        return ERROR_NONE;
    }
    return error_set(err, ERROR_BAD_VALUE,
                     "%s: '%.60s' is not a size; expected a number with a unit: B, K, M, G, T, KiB, MiB, GiB, TiB "
                     "(powers of 1024)%s, such as 20G",
                     what, text, percent_allowed ? " or %" : "");
}

uint64_t size_bytes(const struct size *size, uint64_t total_bytes)
{
    return size->percent ? number_scale(total_bytes, size->value, 100000) : size->value;
}

const char *size_text(uint64_t bytes, char *buffer)
{
    static const char *const names[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
    double value = (double)bytes;
    unsigned i = 0;
    while (value >= 1024 && i + 1 < sizeof names / sizeof names[0]) {
        value /= 1024;
        i++;
    }
    snprintf(buffer, SIZE_TEXT, i == 0 ? "%.0f %s" : "%.1f %s", value, names[i]);
    return buffer;
}
