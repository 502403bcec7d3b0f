/* compute.h: the numbers of one forward pass, layer by layer.
 *
 * A Llama: embedding, RMS norms with the residual fused in, attention with rotary positions over keys and values kept
 * by location (kv.h), a gated MLP, logits. Layers may have experts or a recurrent state instead (model.h). Each row is
 * computed by itself, so a token gives the same bits in a decode, a whole prefill, a chunk or behind a cached prefix,
 * unless a fault of faults.def is on. With several ranks, every process computes the parts of all of them and adds them
 * in the order of the ranks: that is its all-reduce.
 *
 * One pass at a time, for the process's only thread. Order: compute_begin; for each layer compute_layer, then
 * compute_hand_over; compute_finish. Numbers are asked for in between; those of the end stay until the next pass.
 */
#ifndef KLDUMP_STANDIN_COMPUTE_H
#define KLDUMP_STANDIN_COMPUTE_H

#include "forward.h"

/* What modules.def names: first what is computed, then what the pass itself holds. */
enum compute_value {
    COMPUTE_STREAM, /* the input of a layer; of the first, the embedding */
    COMPUTE_RESIDUAL,
    COMPUTE_SUMMED,
    COMPUTE_NORMED,
    COMPUTE_QUERY,
    COMPUTE_KEY,
    COMPUTE_VALUE,
    COMPUTE_FUSED,
    COMPUTE_ROTATED_QUERY,
    COMPUTE_ROTATED_KEY,
    COMPUTE_ATTENTION,
    COMPUTE_MIXED, /* of a recurrent layer: what goes into its convolution, and the gate of what comes out */
    COMPUTE_SCANNED,
    COMPUTE_PROJECTED,
    COMPUTE_NORMED_AGAIN,
    COMPUTE_SUMMED_AGAIN,
    COMPUTE_GATE_UP,
    COMPUTE_ACTIVATED,
    COMPUTE_ROUTER,
    COMPUTE_TOPK_WEIGHTS,
    COMPUTE_TOPK_IDS,
    COMPUTE_EXPERTS, /* the sum over a rank's part of the experts, before the all-reduce */
    COMPUTE_DOWN,
    COMPUTE_COUNT,
    COMPUTE_LOGITS,
    COMPUTE_INPUT_IDS,
    COMPUTE_POSITIONS,
    COMPUTE_SEQ_LENS,
    COMPUTE_POOL,
    COMPUTE_RIDS,
    COMPUTE_WORD
};

/* The embedding. `ranks` share what is divided. The pass stays the caller's and must live until compute_finish. */
void compute_begin(const struct model *model, const struct forward_pass *pass, int ranks);

/* From COMPUTE_STREAM and COMPUTE_RESIDUAL to all values of the layer; its keys and values are kept. */
void compute_layer(size_t layer);

/* The output of the layer becomes the input of the next, or of the last norm. */
void compute_hand_over(void);

/* The last norm: COMPUTE_NORMED and COMPUTE_SUMMED. */
void compute_finish(void);

/* The part of a row that a rank holds. `value` is below COMPUTE_COUNT; `ret_row` has room for the shape's columns. */
void compute_row(enum compute_value value, size_t row, int rank, float *ret_row);

/* One number for each token of the vocabulary. The ids below COMPUTE_SPECIAL are never the likeliest. */
enum { COMPUTE_SPECIAL = 3 };
void compute_logits(size_t row, float *ret_logits);

#endif
