/* Between the files of scenario.c: one pass while it is written. */
#pragma once

#include "scenario.h"

/* What one tensor has for one token: its numbers are a function of hash and column, with a change laid over. */
struct scenario_row {
    uint64_t hash;
    unsigned offset; /* column of the tensor that this is a slice of */
    const struct scenario_fault *change;
};

struct scenario_sequence {
    char *rid;
    int64_t slot;
    int64_t *tokens;
    size_t count;
    uint64_t *history; /* [layer][rank][position]: of all key and value rows, or of the state, up to there */
    size_t computed;   /* positions that are in it */
};

struct scenario_token {
    struct scenario_sequence *sequence; /* NULL: filler */
    unsigned request;
    int64_t position, id;
    int64_t shown; /* as position in the files */
    bool decode, last;
};

struct scenario {
    struct scenario_model model;
    char root[SCENARIO_NAME / 4], layers[SCENARIO_NAME / 4]; /* "model", "model.layers" */
    struct scenario_sequence sequences[SCENARIO_REQUESTS];
    unsigned sequence_count;
    struct scenario_fault faults[SCENARIO_FAULTS * 8]; /* also healed ones: rows may still have them */
    unsigned fault_count, first_fault;
    char *folder;
    long step[SCENARIO_RANKS], index[SCENARIO_RANKS];
    /* The pass at hand. */
    bool silent; /* nothing is written, no fault is planted: what a cache holds */
    int first_rank, end_rank;
    struct scenario_token *tokens;
    size_t token_count;
};

uint64_t scenario_mix(uint64_t a, uint64_t b);

/* Rows of all ranks: rows[rank * token_count + token]. Plants faults and writes the files. `name` is without the
 * prefix; layer -1: no layer_id. `heads` > 1: written as [tokens * heads, width / heads]. */
void scenario_emit(struct scenario *scenario, const char *name, int layer, struct scenario_row *rows, unsigned width,
                   unsigned heads);
/* One int64 a row or several, the same on all ranks. Where rows are tokens, a fault changes `values`, too. */
void scenario_emit_integers(struct scenario *scenario, const char *name, bool core, int layer, int64_t *values,
                            size_t rows, unsigned columns);
/* float32 logits: rows of the tokens that are the last of their part. */
void scenario_emit_logits(struct scenario *scenario, const char *name, struct scenario_row *rows, unsigned width);
void scenario_emit_texts(struct scenario *scenario, const char *name, const char *const *texts, size_t count);

/* What an operator that read this row goes on with. */
uint64_t scenario_key(const struct scenario_row *row, unsigned width);

/* All modules, from the embedding to the logits. */
void scenario_forward(struct scenario *scenario);
