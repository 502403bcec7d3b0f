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

/* Fills `ret_alignment`, and of `diff`: swapped, pairing, requests, proofs A1 to A3, messages M1 to M6, M8, M10, M11,
 * M13, M14. diff->usable, true before, becomes false where a side has no tensor of a module for what is to be compared
 * (M4, M11) or positions were computed in no pass (M5). Where nothing can be paired, target_count is 0 and a message
 * says why: that is no error. Fatal messages stand only where nothing can be paired; of several requests, those that
 * have no counterpart are counted in the evidence of A2.
 *
 * What is paired, in this order of preference: decode rows of one side with prefill rows of the other (and, as control,
 * prefill rows with prefill rows); where there are none, decode rows with decode rows (two runs); where no side
 * decodes, all rows (chunked with whole prefill), or, where one side has restored prefixes and besides only what filled
 * them, the rows behind those with the rows of a whole prefill. `a` and `b` may be the same folder, even the same side:
 * a request is then paired with another one, and with itself only where nothing else in the folder can have been meant.
 * Where the parallel layouts differ (M10) only rank 0 is paired; with data-parallel attention a request's rank may
 * differ. A position of the prompt that came from the prefix cache is a control by the prefill row (of another request
 * of that side) that filled the cache, where that is known. ERROR_MEMORY. */
enum error_code alignment_make(struct side *a, struct side *b, bool trust_slots, struct diff *diff,
                               struct alignment *ret_alignment, struct error *err);
void alignment_fini(struct alignment *alignment);
