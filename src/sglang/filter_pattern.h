/* Regular expressions inside a filter: the part of Python's that cannot be malformed and cannot take long. Allowed are
 * plain characters, . ^ $ |, groups ( ), sets [a-z], a backslash before a punctuation mark or one of d D w W s S b B,
 * and * + ? behind one character or set (not behind a group: that can take for ever). Pure; any thread. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

struct filter_pattern_problem {
    size_t at;        /* in the pattern */
    const char *what; /* and what to do; static */
};

/* Without its quotes. False with the problem. */
bool filter_pattern_check(const char *pattern, size_t length, struct filter_pattern_problem *ret_problem);
