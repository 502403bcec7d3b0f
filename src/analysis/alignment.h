/* Which row of one side and which row of the other consumed the same token behind the same tokens: the pairs of a diff
 * (facts/dump-analysis.md 3.3), and what of the proofs A1, A2, A3 the core tensors alone can decide.
 *
 * A pair needs equal ids at every position up to and including its own. A rid need not be equal: the scoring request
 * has a new one. k counts from 0: decode pass k consumes generated token k at position plen + k. Any thread. */
#pragma once

#include "analysis/diff.h"
#include "analysis/side.h"

struct alignment_pair {
    uint32_t a_pass, a_row, b_pass, b_row; /* passes of side a (decode) and b (reference) */
    uint32_t a_request, b_request;         /* row of request-shaped tensors (logits) */
    bool a_last, b_last; /* the row is the last of its segment: request-shaped rows exist there only */
    bool target;         /* a's row decodes (or: no side decodes, and all rows are targets) */
    uint32_t request;    /* index in diff.requests */
    int64_t position;
};

struct alignment {
    struct alignment_pair *pairs; /* by request, then position, then rank */
    size_t pair_count;
    size_t target_count;
    bool swapped; /* the decode side was given second: a and b are already exchanged */
};

/* Fills `ret_alignment`, and of `diff`: requests, proofs A1 to A3, messages M1 to M4, M8, M10, M11. Where nothing can
 * be paired, pair_count is 0 and a fatal message says why: that is no error. ERROR_MEMORY. */
enum error_code alignment_make(struct side *a, struct side *b, bool trust_slots, struct diff *diff,
                               struct alignment *ret_alignment, struct error *err);
void alignment_fini(struct alignment *alignment);
