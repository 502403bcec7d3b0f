/* Test support: known situations as dump folders (scenario.h), with what `kldumpctl diff` has to say of each. The
 * numbers in the names are those of the public cases that they were made after. */
#pragma once

#include "analysis/diff.h"
#include "scenario.h"

enum { SCENARIOS_NONE = -1 };

struct scenarios_folders {
    char *dec, *pre, *history; /* exist and are empty; history: a second folder of the decode side */
};

struct scenarios_case {
    const char *name;
    void (*write)(const struct scenarios_folders *folders);
    bool one_folder;  /* diff DEC DEC: both phases are in it */
    bool history;     /* the decode side is history and dec */
    bool turned;      /* diff PRE DEC */
    bool trust_slots; /* --trust-slots */
    /* The alignment. */
    size_t targets, controls;
    size_t requests;  /* 0: not looked at */
    int fails;        /* enum diff_proof_id that does not hold, or SCENARIOS_NONE */
    int message;      /* enum diff_message_id that is told, or SCENARIOS_NONE */
    const char *says; /* part of its evidence; NULL: not looked at */
    bool unusable;    /* status 4 */
    /* The verdict, where the alignment holds. */
    enum diff_kind kind;
    const char *module; /* of the call; NULL: none */
    int layer;          /* of it; -1: none */
    int64_t position;   /* of the first pair; -1: none */
};

extern const struct scenarios_case scenarios_all[];
extern const size_t scenarios_count;

/* scenarios_restored.c */
void scenarios_restored(const struct scenarios_folders *folders);
void scenarios_restored_unequal(const struct scenarios_folders *folders);
void scenarios_restored_one_row(const struct scenarios_folders *folders);
void scenarios_restored_both(const struct scenarios_folders *folders);

/* Tokens of all of them: the first 8 of TOKENS are a prompt of many. */
extern const int64_t scenarios_tokens[64];
