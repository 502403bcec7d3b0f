/* Investigations made by hand, for the tests of ends and of reports. */
#pragma once

#include "analysis/investigation.h"

/* BOTH: condition 1, and restore is dirty far beyond its noise. */
enum world_reading {
    WORLD_UNKNOWN,
    WORLD_CLEAN,
    WORLD_REFUSED,
    WORLD_OPERATOR,
    WORLD_BOTH,
    WORLD_DECODE,
    WORLD_RESTORE,
    WORLD_READINGS
};

/* Kinds of verdicts, one that nobody knows yet, and NULL: no diff at all. */
enum { INVESTIGATION_WORLD_KINDS = 7 };
extern const char *const investigation_world_kinds[INVESTIGATION_WORLD_KINDS + 1];

/* Every step done; what kl reads under own flags and under those of a dump; capture and diff with a verdict of `kind`,
 * proven, at layer 0's qkv_proj from position 37 on (NULL: neither). */
struct investigation investigation_world(enum world_reading own, enum world_reading dump, const char *kind);
void investigation_world_capture(struct investigation *in); /* a complete one */
char **investigation_world_texts(const char *first);        /* a vector of that line; NULL: empty */
