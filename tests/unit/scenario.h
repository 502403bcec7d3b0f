/* Test support: dump folders of a small decoder model, written as SGLang 0.5.23 names and saves them (torch_file.h).
 *
 * Happy path: scenario_begin with a model, scenario_request for each sequence of tokens, scenario_open for a folder,
 * then one scenario_pass for each forward pass. No model is computed: every row is a hash of the operator, its weights
 * and what it read (of attention and of recurrent layers: all rows of earlier positions), so decode and prefill give
 * the same bits, and a change anywhere changes exactly what is computed from it. scenario_fault plants such a change.
 * Failures end the test. One thread. */
#pragma once

#include "tests/standin/torch_file.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { SCENARIO_RANKS = 4, SCENARIO_FAULTS = 16, SCENARIO_REQUESTS = 16, SCENARIO_NAME = 160 };

struct scenario_model {
    unsigned layers, hidden, heads, key_value_heads, head_size, intermediate, vocabulary;
    enum torch_file_type type;
    unsigned tp_size;   /* ranks; heads and intermediate are divided by it */
    bool replicas;      /* the ranks are data-parallel replicas of attention: nothing is divided, passes name a rank */
    unsigned experts;   /* 0: a dense MLP; else a router, topk (2 of them) and experts */
    unsigned recurrent; /* bit L: layer L has linear_attn with a state in place of self_attn */
    bool fused_qk_norm; /* q_norm and k_norm with [tokens * heads, head_size] between qkv_proj and rotary_emb */
    bool pairs;         /* 0.5.20 and older: model.layers.L.output.0/.1, and .inputs.3 */
    const char *layers_name; /* "model.layers" where NULL: everything before it is the root of the names, too */
    unsigned first_layer;    /* number of the first layer in the names */
    uint64_t weights;        /* other weights give other bits everywhere */
};

/* A model with 3 layers, hidden 16, 4 heads of 4, 2 key-value heads, intermediate 24, vocabulary 32, float32. */
struct scenario_model scenario_small(void);

enum scenario_change {
    SCENARIO_ULP,    /* `amount` units in the last place */
    SCENARIO_SCALE,  /* times `factor`, rounded by cutting */
    SCENARIO_RANDOM, /* other numbers altogether */
    SCENARIO_NAN,
    SCENARIO_ZERO, /* +0 */
    SCENARIO_NEGATIVE_ZERO,
    SCENARIO_ROW, /* the whole row of the token `amount` rows further in the pass, where there is one */
    SCENARIO_SET, /* of an integer tensor: `amount` */
};

enum scenario_when { SCENARIO_ALWAYS, SCENARIO_DECODE, SCENARIO_PREFILL }; /* decode: a part of one row behind 0 */

struct scenario_fault {
    const char *name; /* as in the file, without non_intrusive__; "NAME@2" only with layer_id=2. Of an input, it is the
                         code between two hooks that changes it */
    enum scenario_change change;
    enum scenario_when when;
    unsigned requests;          /* bit i: request i; 0: all */
    unsigned ranks;             /* bit i: rank i; 0: all */
    int64_t first, last;        /* positions; last 0: no end */
    unsigned element, elements; /* of the row; elements 0: to its end */
    int amount;
    double factor;
    bool harmless; /* only the file has it: what follows is computed without the change */
};

/* The rows of one request in a pass: its tokens position .. position + rows - 1. */
struct scenario_part {
    unsigned request;
    unsigned position, rows;
    bool verify;        /* draft tokens: seq_lens does not count them */
    const int64_t *ids; /* NULL: the request's tokens; else what is fed instead (rejected drafts) */
};

struct scenario_pass {
    struct scenario_part parts[8];
    size_t part_count;
    unsigned padding;          /* filler rows behind them: id 0, position 0 */
    unsigned padding_requests; /* filler entries of seq_lens (1) and req_pool_indices (0); without an id in rids */
    bool no_rids;
    bool core_only;           /* no module: as in mode core, or behind a replayed graph */
    int rank;                 /* of replicas: the only rank that runs it; else 0 */
    const int64_t *positions; /* NULL: the right ones; else what is written instead */
    const int64_t *lengths;   /* likewise of seq_lens */
};

struct scenario;

struct scenario *scenario_begin(const struct scenario_model *model);
void scenario_end(struct scenario *scenario);

/* Returns its number: 0, 1, ... Its pool slot is number + 1 until scenario_slot. The tokens are copied. */
unsigned scenario_request(struct scenario *scenario, const char *rid, const int64_t *tokens, size_t count);
void scenario_slot(struct scenario *scenario, unsigned request, int64_t slot);

/* Passes go to this folder (which exists) from now on. Counters go on; scenario_counters sets them (all ranks; the
 * next dump_index is index + 1). */
void scenario_open(struct scenario *scenario, const char *folder);
void scenario_counters(struct scenario *scenario, long step, long index);
long scenario_step(const struct scenario *scenario, int rank); /* of the next pass */

/* Holds for the passes that follow, until scenario_heal. */
void scenario_fault(struct scenario *scenario, const struct scenario_fault *fault);
void scenario_heal(struct scenario *scenario);

/* Rows that the pass does not have before a part's position were computed before, or lie in the prefix cache. A part
 * that begins before the end of what was computed begins again there (retraction, rejected drafts). */
void scenario_pass(struct scenario *scenario, const struct scenario_pass *pass);

/* A pass with the first `rows` tokens of one request; and, for positions first .. last, one pass each. */
void scenario_prefill(struct scenario *scenario, unsigned request, unsigned rows);
void scenario_decode(struct scenario *scenario, unsigned request, unsigned first, unsigned last);

/* Deletes the files of a folder whose name contains all given texts (NULL ends); how many. */
unsigned scenario_remove(const char *folder, ...);
