/* weights.h: the weights of the model that is played: a hash of the seed KLDUMP_STANDIN_SEED, the same in every
 * process.
 *
 * Made when they are first asked for, kept for the life of the process; for its only thread.
 */
#ifndef KLDUMP_STANDIN_WEIGHTS_H
#define KLDUMP_STANDIN_WEIGHTS_H

#include "model.h"
#include "operators.h"

enum { WEIGHTS_TAPS = 4 }; /* of a recurrent layer's convolution: this token and the three before it */

struct weights_mlp {
    struct operators_matrix gate, up, down;
};

struct weights_layer {
    float *norm, *norm_again;
    struct operators_matrix query, key, value, output; /* of attention; a recurrent layer has the output alone */
    struct operators_matrix mixed, mixed_gate;         /* of a recurrent layer, and the next two */
    float *taps;                                       /* WEIGHTS_TAPS for each column */
    float *decay;                                      /* of the state, in [0.5, 1) */
    struct weights_mlp mlp;                            /* of a layer without experts */
    struct operators_matrix router;                    /* of a layer with experts, and the next */
    struct weights_mlp *experts;
};

const struct weights_layer *weights_layer(const struct model *model, size_t layer);

/* The row of a token; one that the vocabulary lacks has the first token's. */
const float *weights_embedding(const struct model *model, int64_t token);

const float *weights_last_norm(const struct model *model);
const struct operators_matrix *weights_head(const struct model *model);

#endif
