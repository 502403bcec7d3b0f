/* Which release of SGLang spells what how. Facts from the released wheels 0.5.9 to 0.5.23. Pure; any thread. */
#pragma once

#include "base/error.h"

#include <stdbool.h>
#include <stddef.h>

struct versions_number {
    unsigned int major, minor, patch;
};

struct versions_spelling {
    struct versions_number from; /* this release and those after it */
    const char *decode_graphs_off;
    const char *prefill_graphs_off;
};

/* The first release whose dumper has hooks; nothing can be proven with an older one. */
extern const struct versions_number versions_oldest;

/* All spellings there have been, oldest first: what can be tried when the release is not known. */
size_t versions_spelling_count(void);
const struct versions_spelling *versions_spelling_at(size_t index);

/* Finds the first number of the form A.B.C in `text` ("0.5.12.post1", "sglang version: 0.6.0.dev3+gabc"). */
bool versions_parse(const char *text, struct versions_number *ret_number);

/* Negative, 0, positive: a is older than, equal to, newer than b. */
int versions_compare(const struct versions_number *a, const struct versions_number *b);

/* The spelling of the release that `text` names; that of the newest one, with *ret_guessed set, when it names none.
 * ERROR_VERSION for a release without hooks. */
enum error_code versions_find(const char *text, const struct versions_spelling **ret_spelling, bool *ret_guessed,
                              struct error *err);
