/* forward.h: what one forward pass of the model computes, tensor by tensor, in the order of the hooks.
 *
 * Names, order and shapes are those of modules.def, the numbers those of compute.h.
 */
#ifndef KLDUMP_STANDIN_FORWARD_H
#define KLDUMP_STANDIN_FORWARD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "model.h"
#include "torch_file.h"

enum forward_kind {
    FORWARD_EAGER,         /* every hook fires */
    FORWARD_PREFILL_GRAPH, /* a replayed prefill: the root's and the model's own tensors only */
    FORWARD_DECODE_GRAPH,  /* a replayed decode: nothing */
    FORWARD_DRAFT,         /* a draft model of one layer */
    FORWARD_ROOT,          /* two overlapping batches: layers run as separate operations, not by their modules */
    FORWARD_TRANSFER,      /* no pass of this server: its keys and values come from elsewhere */
};

/* Where a process stands in its torch world. */
struct forward_place {
    int tensor_rank, tensor_ranks; /* what is divided between ranks */
    int stage, stages;             /* which layers it has */
};

struct forward_pass {
    enum forward_kind kind;
    bool decode;        /* one token for each request, behind a prefill */
    size_t token_count; /* padded to the graph's size in a replayed prefill */
    const int64_t *input_ids;
    const int64_t *positions;
    size_t request_count;
    const int64_t *sequence_lengths;
    const int64_t *pool_indices;
    const int64_t *contexts;  /* locations of the tokens of each request, sequence_lengths[i] for the i-th (kv.h) */
    const int64_t *last_rows; /* row of the last token of each request */
    const char *const *rids;  /* NULL: the batch carries none */
};

struct forward_tensor {
    char name[256]; /* with `non_intrusive__` where the hook is not a core one */
    bool core;
    int layer_id;                  /* -1: not tagged */
    int layer;                     /* of the module, also where the file is not tagged */
    int value;                     /* enum compute_value */
    struct torch_file_value shape; /* data not filled in */
};

/* Called once per tensor; false stops the pass (an exception inside a hook). */
typedef bool forward_visitor(void *context, const struct forward_tensor *tensor);

/* Computes the pass and shows what the hooks of this place see; `visitor` NULL: no hooks. `device` as torch names it.
 * True when every visit returned true. */
bool forward_run(const struct model *model, const struct forward_pass *pass, const struct forward_place *place,
                 const char *device, forward_visitor *visitor, void *context);

/* The numbers of the tensor that is being visited, appended to `out`. */
void forward_fill(const struct model *model, const struct forward_pass *pass, const struct forward_place *place,
                  const struct forward_tensor *tensor, struct text *out);

/* Of a row of the pass that was computed last: the likeliest token behind it, and the logarithm of the probability that
 * `next` has there. */
int64_t forward_next_token(const struct model *model, size_t row);
double forward_log_probability(const struct model *model, size_t row, int64_t next);

/* The smallest size of a captured prefill graph that holds `tokens`, `tokens` itself when none does. */
size_t forward_graph_size(size_t tokens);

#endif
