#include "sglang/filter_pattern.h"

#include <ctype.h>
#include <string.h>

/* A name has some 100 characters: more repetitions than this could take minutes for one name. */
enum { GROUPS_MOST = 16, REPEATS_MOST = 3 };

static bool fail(size_t at, const char *what, struct filter_pattern_problem *ret_problem)
{
    *ret_problem = (struct filter_pattern_problem){at, what};
    return false;
}

/* Behind the '[' at `at`: plain characters and rising ranges. */
static bool take_set(const char *pattern, size_t length, size_t at, size_t *ret_end,
                     struct filter_pattern_problem *ret_problem)
{
    size_t i = at + 1;
    if (i < length && pattern[i] == '^')
        i++;
    size_t first = i;
    for (; i < length && pattern[i] != ']'; i++) {
        unsigned char c = (unsigned char)pattern[i];
        if (!isalnum(c) && strchr("_.,:/ ", c) == NULL)
            return fail(i, "inside [ ] only letters, digits, _ . , : / and ranges as 0-9 are taken", ret_problem);
        if (i + 1 < length && pattern[i + 1] == '-') {
            if (i + 2 >= length || !isalnum((unsigned char)pattern[i + 2]) || (unsigned char)pattern[i + 2] < c)
                return fail(i + 1, "a range in [ ] must rise, as in 0-9 or a-z", ret_problem);
            i += 2;
        }
    }
    if (i >= length)
        return fail(at, "'[' without its ']'", ret_problem);
    if (i == first)
        return fail(at, "[ ] without a character", ret_problem);
    *ret_end = i;
    return true;
}

bool filter_pattern_check(const char *pattern, size_t length, struct filter_pattern_problem *ret_problem)
{
    bool repeatable = false; /* the last one was a character or a set */
    size_t open[GROUPS_MOST], groups = 0, repeats = 0;
    for (size_t i = 0; i < length; i++) {
        char c = pattern[i];
        if (c == '*' || c == '+' || c == '?') {
            if (!repeatable)
                return fail(i, "* + ? stand behind one character or one [ ] only", ret_problem);
            if (++repeats > REPEATS_MOST)
                return fail(i, "more than three of * + ? can take very long", ret_problem);
            repeatable = false;
        } else if (c == '\\') {
            if (i + 1 >= length ||
                (isalnum((unsigned char)pattern[i + 1]) && strchr("dDwWsSbB", pattern[i + 1]) == NULL))
                return fail(i, "a backslash stands before a punctuation mark or one of d D w W s S b B", ret_problem);
            i++;
            repeatable = pattern[i] != 'b' && pattern[i] != 'B';
        } else if (c == '[') {
            if (!take_set(pattern, length, i, &i, ret_problem))
                return false;
            repeatable = true;
        } else if (c == '(') {
            if (groups == GROUPS_MOST || (i + 1 < length && pattern[i + 1] == '?'))
                return fail(i, "plain groups only, 16 inside each other at most", ret_problem);
            open[groups++] = i;
            repeatable = false;
        } else if (c == ')') {
            if (groups == 0)
                return fail(i, "')' without its '('", ret_problem);
            groups--;
            repeatable = false;
        } else if (c == '{' || c == '}' || c == ']') {
            return fail(i, "write a backslash in front of it, in r'...'", ret_problem);
        } else {
            repeatable = c != '^' && c != '$' && c != '|';
        }
    }
    if (groups > 0)
        return fail(open[groups - 1], "'(' without its ')'", ret_problem);
    return true;
}
