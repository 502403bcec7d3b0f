/* Whether a result depends on what it is computed among: the same token of the same request alone and in a batch, in a
 * long extend and in a short one, decoded alone and among others. Logprobs are compared bit for bit, their class (kl.h)
 * stands beside it. Plain data in, plain data out. Pure; any thread.
 *
 * Each axis has a reference, taken twice: what differs between these two is no matter of sizes, and then nothing can be
 * said about them. */
#pragma once

#include "analysis/kl.h"

enum invariance_axis_id { INVARIANCE_PREFILL, INVARIANCE_EXTEND, INVARIANCE_DECODE, INVARIANCE_AXES };
const char *invariance_axis_word(enum invariance_axis_id id); /* "prefill", "extend", "decode": also in --json */
const char *invariance_axis_what(enum invariance_axis_id id); /* what was held against what, for people */

/* Logprobs of one request: of the token ids[i] at absolute position first + i. NaN: not scored. */
struct invariance_tokens {
    size_t first, count;
    const int64_t *ids;     /* [count] */
    const double *logprobs; /* [count] */
};

struct invariance_change {
    size_t request, position;
    int64_t reference_id, found_id; /* they differ where another token was chosen */
    double reference, found;
    uint64_t ulp; /* of float32, between the two */
    enum kl_class class;
};

struct invariance_case {
    size_t size; /* requests in the batch; of the extend axis: rows of the extend */
    bool cached; /* the extend axis: one row on a cached prefix */
    size_t compared, bit_equal, stray, beyond;
    size_t last;                    /* changes at the last position that a request has */
    double max_abs;                 /* largest difference */
    struct invariance_change first; /* of the lowest request, its first position; where compared > bit_equal */
};

/* Adds one request to what `one` has; positions that both have scored count. Behind a position at which another token
 * was chosen the contexts differ: nothing is compared there. */
void invariance_compare(struct invariance_case *one, size_t request, const struct invariance_tokens *reference,
                        const struct invariance_tokens *found);
bool invariance_changed(const struct invariance_case *one); /* not all is bit-equal */

struct invariance_axis {
    bool measured;
    char
        *why_not; /* also where a part alone is missing: "the radix cache is off: no request extends a cached prefix" */
    bool partial; /* measured, but for the part of `why_not` */
    bool operator_proven; /* dumps of its first change name an operator that reads no cache, with equal inputs */
    struct invariance_case again;  /* the reference against itself */
    struct invariance_case *cases; /* [case_count], by size; one on a cached prefix comes first */
    size_t case_count;
};

/* The case of this size; an empty one is put where it belongs if there is none. Borrowed, until the next call. */
struct invariance_case *invariance_case_at(struct invariance_axis *axis, size_t size, bool cached);

enum invariance_state {
    INVARIANCE_NOT_MEASURED, /* or nothing was compared */
    INVARIANCE_NOT_REPEATABLE,
    INVARIANCE_CHANGED,
    INVARIANCE_UNCHANGED
};
enum invariance_state invariance_state_of(const struct invariance_axis *axis);
const char *invariance_state_word(enum invariance_state state); /* "not measured", "not repeatable", ... */

/* The first case that changes a result, or NULL; *ret_unchanged: the nearest before it that does not, or NULL. */
const struct invariance_case *invariance_first(const struct invariance_axis *axis,
                                               const struct invariance_case **ret_unchanged);

/* Condition 1: every operator on the path gives a row the same bits whatever else is in its batch. */
enum invariance_condition { INVARIANCE_BROKEN, INVARIANCE_NOT_SHOWN, INVARIANCE_HOLDS, INVARIANCE_REFUSED };
/* "broken", "not shown", "holds", "refused" */
const char *invariance_condition_word(enum invariance_condition condition);

/* What a KL result over the same prompts and settings says of match. */
struct invariance_match {
    bool given;
    enum kl_grade together, alone; /* in a batch, and one request at a time */
};

struct invariance_reading {
    enum invariance_condition condition;
    char *text; /* one paragraph */
    char *next; /* what would decide further; NULL: nothing more */
};

/* "holds" only where every axis is unchanged and match is bit-equal or stray, in a batch and alone: the axes hold one
 * kernel against itself, and match the kernels of prefill against those of decode. Not "broken" where one row on a
 * cached prefix alone changes: a prefix that is restored wrong (condition 2) looks the same; nor where the last token
 * of each short extend alone does: logprobs that are shifted look the same. `foreign` says who else has used the server
 * meanwhile (NULL: nobody): then the reading is refused. */
void invariance_read(const struct invariance_axis axes[INVARIANCE_AXES], const struct invariance_match *match,
                     const char *foreign, struct invariance_reading *ret_reading);

void invariance_axis_fini(struct invariance_axis *axis); /* also of a zeroed one */
void invariance_reading_fini(struct invariance_reading *reading);
