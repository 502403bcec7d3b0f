/* What investigation.c looks at before it chooses an end, and how it says what decided. Private to analysis. */
#pragma once

#include "analysis/investigation.h"
#include "base/list.h"

/* One bit each, so that a row of the table can name several. */
enum {
    INVESTIGATION_READ_UNKNOWN = 1,
    INVESTIGATION_READ_CLEAN = 2,
    INVESTIGATION_READ_REFUSED = 4,
    INVESTIGATION_READ_OPERATOR = 8, /* condition 1 */
    INVESTIGATION_READ_DECODE = 16,  /* condition 2 during decode */
    INVESTIGATION_READ_RESTORE = 32, /* condition 2 in the prefix restore */
    INVESTIGATION_READ_DIRTY = 8 | 16 | 32,
};
enum {
    INVESTIGATION_DIFF_UNKNOWN = 1,
    INVESTIGATION_DIFF_UNPROVEN = 2,
    INVESTIGATION_DIFF_UNUSABLE = 4,
    INVESTIGATION_DIFF_EQUAL = 8,
    INVESTIGATION_DIFF_OPERATOR = 16, /* equal inputs, another output: nothing but the operator is left */
    INVESTIGATION_DIFF_BETWEEN = 32,  /* code that no hook sees */
    INVESTIGATION_DIFF_CONTEXT = 64,  /* it carries state: its kernel, or what it reads of earlier passes */
    INVESTIGATION_DIFF_DIFFERENT = 16 | 32 | 64,
};

enum investigation_axes {
    INVESTIGATION_AXES_UNKNOWN,   /* not measured, or the step has failed: its numbers are of no use (others were there)
                                   */
    INVESTIGATION_AXES_UNCHANGED, /* all that were measured */
    INVESTIGATION_AXES_CACHED,    /* changed by one row on a cached prefix alone */
    INVESTIGATION_AXES_CHANGED,
};

struct investigation_facts {
    const struct investigation *in;
    unsigned own, dump, reading, diff;    /* bits from above; reading: of `basis` */
    const struct investigation_kl *basis; /* the reading that the end goes on with; NULL: none */
    enum investigation_axes axes;
    const struct investigation_axis *batch; /* whose dumps name an operator that depends on the size; NULL: none */
    bool dump_needed;                       /* false: the user's own flags are those of a dump, or nothing is dirty */
    bool other_prompts;                     /* the two were not taken over the same */
    bool not_compared[KL_PATHS], some_not_compared; /* dirty under own flags, not measured under those of a dump */
    enum investigation_step_id failed, not_reached; /* the first such step; INVESTIGATION_STEPS: none */
};
void investigation_facts(const struct investigation *investigation, struct investigation_facts *ret_facts);

bool investigation_facts_has_failed(const struct investigation_facts *facts, enum investigation_step_id id);
/* Whether invariance has found something that counts. */
bool investigation_facts_has_axes(const struct investigation *in);
/* "condition 1: operators that are not batch-invariant", "clean"; of one bit from above. */
const char *investigation_facts_reading_word(unsigned reading);
/* The operator with what is known of it: "model.layers.0.mlp (layer 0, matrix product, token-wise)"; the caller's. */
char *investigation_facts_operator(const struct investigation_facts *facts);
/* Paths that were measured, with tokens and those beyond stray; of a clean reading, how much stands behind it. The
 * caller's. */
char *investigation_facts_amount(const struct investigation_kl *kl);
char *investigation_facts_clean(const struct investigation_kl *kl);

/* What decided, with numbers. */
void investigation_evidence(const struct investigation_facts *facts, struct list *list);
/* What nothing is said about, and why. */
void investigation_gaps(const struct investigation_facts *facts, bool condition_1_first, struct list *list);
