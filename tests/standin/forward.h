/* forward.h: what one forward pass of the model computes, tensor by tensor, in the order of the hooks.
 *
 * Names, order and shapes are those of modules.def. The numbers are a fixed function of token id, position, layer and
 * column (the embedding's of token id and column alone), so a decode pass agrees bit for bit with the row of the
 * prefill at the same position.
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
};

/* Where a process stands in its torch world. */
struct forward_place {
    int tensor_rank, tensor_ranks; /* what is divided between ranks */
    int stage, stages;             /* which layers it has */
};

struct forward_pass {
    enum forward_kind kind;
    size_t token_count; /* padded to the graph's size in a replayed prefill */
    const int64_t *input_ids;
    const int64_t *positions;
    size_t request_count;
    const int64_t *sequence_lengths;
    const int64_t *pool_indices;
    const int64_t *last_rows; /* row of the last token of each request */
    const char *const *rids;  /* NULL: the batch carries none */
};

struct forward_tensor {
    char name[256]; /* with `non_intrusive__` where the hook is not a core one */
    bool core;
    int layer_id;                  /* -1: not tagged */
    int layer;                     /* of the module, also where the file is not tagged */
    int value;                     /* row of the value table */
    struct torch_file_value shape; /* data not filled in */
};

/* Called once per tensor; false stops the pass (an exception inside a hook). */
typedef bool forward_visitor(void *context, const struct forward_tensor *tensor);

/* `device` as torch names it. True when every visit returned true. */
bool forward_run(const struct model *model, const struct forward_pass *pass, const struct forward_place *place,
                 const char *device, forward_visitor *visitor, void *context);

/* The numbers of one visited tensor, appended to `out`. */
void forward_fill(const struct model *model, const struct forward_pass *pass, int rank, int ranks,
                  const struct forward_tensor *tensor, struct text *out);

/* The token that follows `token` at `position`, and the logarithm of the probability that `next` has there. */
int64_t forward_next_token(const struct model *model, int64_t token, int64_t position);
double forward_log_probability(const struct model *model, int64_t token, int64_t position, int64_t next);

/* The smallest size of a captured prefill graph that holds `tokens`, `tokens` itself when none does. */
size_t forward_graph_size(size_t tokens);

#endif
