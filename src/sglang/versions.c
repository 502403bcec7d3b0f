#include "sglang/versions.h"

#include "base/number.h"
#include "base/text.h"

#include <limits.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

const struct versions_number versions_oldest = {0, 5, 10};

/* Oldest first. Up to 0.5.9 prefill graphs were opt-in and the dumper had no hooks. 0.5.10 turned prefill graphs on by
 * default under a flag of their own, and so it was in 0.5.13.post1; 0.5.14 gave each phase a flag and kept the old ones
 * up to 0.5.18; 0.5.20 removed the piecewise spelling (exit 2). */
static const struct versions_spelling spellings[] = {
    {{0, 5, 10}, "--disable-cuda-graph", "--disable-piecewise-cuda-graph"},
    {{0, 5, 14}, "--disable-decode-cuda-graph", "--disable-prefill-cuda-graph"},
};
enum { SPELLINGS = sizeof spellings / sizeof spellings[0] };

size_t versions_spelling_count(void)
{
    return SPELLINGS;
}

const struct versions_spelling *versions_spelling_at(size_t index)
{
    return &spellings[index];
}

static bool part(const char **text, unsigned int *ret_part)
{
    uint64_t value = 0;
    size_t digits = number_scan(*text, strlen(*text), &value);
    if (digits == 0 || value > INT_MAX)
        return false;
    *text += digits;
    *ret_part = (unsigned int)value;
    return true;
}

static bool point(const char **text)
{
    bool found = **text == '.';
    *text += found ? 1 : 0;
    return found;
}

bool versions_parse(const char *text, struct versions_number *ret_number)
{
    for (const char *start = text + strcspn(text, "0123456789"); *start != '\0';) {
        struct versions_number number;
        const char *p = start;
        if (part(&p, &number.major) && point(&p) && part(&p, &number.minor) && point(&p) && part(&p, &number.patch)) {
            *ret_number = number;
            return true;
        }
        start += strspn(start, "0123456789");
        start += strcspn(start, "0123456789");
    }
    return false;
}

int versions_compare(const struct versions_number *a, const struct versions_number *b)
{
    const unsigned int left[] = {a->major, a->minor, a->patch}, right[] = {b->major, b->minor, b->patch};
    for (size_t i = 0; i < 3; i++)
        if (left[i] != right[i])
            return left[i] < right[i] ? -1 : 1;
    return 0;
}

enum error_code versions_find(const char *text, const struct versions_spelling **ret_spelling, bool *ret_guessed,
                              struct error *err)
{
    struct versions_number number;
    if (!versions_parse(text, &number)) {
        *ret_spelling = &spellings[SPELLINGS - 1];
        *ret_guessed = true;
        return ERROR_NONE;
    }
    if (versions_compare(&number, &versions_oldest) < 0) {
        char shown[64];
        return error_set(err, ERROR_VERSION,
                         "SGLang %s has no forward hooks, so it cannot dump; %u.%u.%u or newer is needed: "
                         "pip install -U sglang",
                         text_clean(text, strlen(text), shown, sizeof shown), versions_oldest.major,
                         versions_oldest.minor, versions_oldest.patch);
    }
    size_t found = 0;
    for (size_t i = 0; i < SPELLINGS; i++)
        if (versions_compare(&number, &spellings[i].from) >= 0)
            found = i;
    *ret_spelling = &spellings[found];
    *ret_guessed = false;
    return ERROR_NONE;
}
