/* Takes the three axes of invariance.h on a server. One thread.
 *
 * Happy path: each prompt scored alone, twice, on an empty cache; in batches of 2, 4, ... `most`, and between the last
 * size that changes nothing and the first that does; cut to 2, 4, 8, ... rows; as one row behind its cached prefix,
 * proven by the cached tokens; then decoded alone, twice, and in the same batches; endpoint_check at the end. A prefix
 * that is found where the cache was flushed, a restart, new weights or a refusal ends the whole with that error. */
#pragma once

#include "analysis/invariance.h"
#include "base/list.h"
#include "ctl/endpoint.h"
#include "ctl/prompts.h"

enum { INVARIANCE_TAKE_MOST = 256 };

struct invariance_take_plan {
    const struct prompts *prompts; /* with ids; the first `most` are sent */
    size_t most;                   /* 2 to INVARIANCE_TAKE_MOST: the largest batch */
    unsigned new_tokens;           /* at least 2 */
    void (*progress)(void *context, const char *what, uint64_t done, uint64_t total); /* NULL: none */
    void *context;
};

/* A batch of some of the prompts, or of their beginnings, the likeliest token always. */
struct invariance_take_batch {
    const struct list *rids; /* [count] */
    size_t first, count;
    size_t length; /* ids of each; 0: all */
    unsigned new_tokens;
    int64_t logprob_start; /* generate.h */
};
enum error_code invariance_take_send(struct endpoint *endpoint, const struct prompts *prompts,
                                     const struct invariance_take_batch *batch, struct generate_answers *ret_answers,
                                     struct error *err);

/* ERROR_BAD_VALUE before the first request for a prompt that does not fit the server with its new tokens. Errors of the
 * endpoint, prefixed with the axis; ERROR_INTERRUPTED once endpoint->wanted says no. */
enum error_code invariance_take(struct endpoint *endpoint, const struct invariance_take_plan *plan,
                                struct invariance_axis ret_axes[INVARIANCE_AXES], struct error *err);
