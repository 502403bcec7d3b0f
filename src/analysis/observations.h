/* Finds what can be compared: the slots of modules that the passes of both sides have, in the order of the program, and
 * the calls of modules that they belong to (facts/dump-analysis.md 4.1, 4.3).
 *
 * A slot is a name with its layer tag, the k-th time in a pass. The order is that of dump_index in the reference; what
 * only the other side or a later pass has is put behind what precedes it there. Calls are found by one scan with a
 * stack: inputs of M open a call, outputs of M end it. No file is opened. One thread. */
#pragma once

#include "analysis/alignment.h"
#include "analysis/diff.h"
#include "analysis/side.h"
#include "sglang/dump_name.h"

enum { OBSERVATIONS_NONE = UINT32_MAX };

struct observations_slot { /* parallel to diff.observations */
    char *text;            /* the name of one of its files */
    struct dump_name name; /* parsed from it */
    uint32_t occurrence;   /* the k-th file with this name in a pass */
    uint32_t around;       /* the innermost call in which it was seen; OBSERVATIONS_NONE */
    bool place;            /* says where something lies: not compared */
};

struct observations_span { /* parallel to diff.calls: indices of observations */
    uint32_t first, last;  /* of its own slots */
    uint32_t output;       /* first output; OBSERVATIONS_NONE */
    uint32_t children;     /* calls in it */
    bool stateful;         /* carries state, by its class or by --stateful */
};

struct observations_files {
    uint32_t **of_pass; /* [pass]: NULL where no pair uses the pass, else [count]: index of the file in the folder's
                           table; OBSERVATIONS_NONE */
    size_t pass_count;
};

struct observations {
    size_t count;
    struct observations_slot *slots;
    struct observations_span *spans;
    size_t span_count;
    struct observations_files a, b;
    size_t moved; /* slots that come in another order on the other side */
};

/* Fills the observations and calls of `diff` with names, places and presence (BOTH, A_ONLY, B_ONLY), and
 * `ret_observations`, which must go before the sides. */
void observations_make(const struct side *a, const struct side *b, const struct alignment *alignment,
                       const char *const *stateful, struct diff *diff, struct observations *ret_observations);
void observations_fini(struct observations *observations); /* also of a zeroed one */

/* The file of an observation in a pass; NULL: none. */
const struct audit_table_file *observations_file(const struct side *side, const struct observations_files *files,
                                                 uint32_t pass, size_t observation);
