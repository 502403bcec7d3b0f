/* What the steps of `kldumpctl investigate` found, and what follows from all of it together: which condition is broken,
 * which operator, on what evidence, and what was not measured. Plain data in, plain data out. Pure; any thread.
 *
 * The steps' own readings are taken as they are (kl.h, invariance.h, diff.h); here is only decided what they mean side
 * by side: a fault that shows under the user's own flags and not under those of a dump needs a CUDA graph (or whatever
 * else the flags switch off) and is no dump's business; condition 1 hides condition 2; an operator is named where a
 * proven diff and the reading of kl agree, and both are shown where they do not. */
#pragma once

#include "analysis/kl.h"
#include "base/error.h"

enum investigation_step_id {
#define X(constant, name, word) INVESTIGATION_##constant,
#include "analysis/investigation_steps.def"
#undef X
    INVESTIGATION_STEPS
};
const char *investigation_step_name(enum investigation_step_id id);
const char *investigation_step_word(enum investigation_step_id id);

enum investigation_state {
    INVESTIGATION_NOT_REACHED, /* stopped before */
    INVESTIGATION_NOT_NEEDED,  /* an earlier answer made it pointless: `why` */
    INVESTIGATION_FAILED,      /* could not be done: `why`, with the error of the step */
    INVESTIGATION_DONE,
};
const char *investigation_state_word(
    enum investigation_state state); /* "not reached", "not needed", "failed", "done" */

struct investigation_step {
    enum investigation_state state;
    int status;       /* exit status of the command, where DONE or FAILED */
    char *why;        /* NULL: nothing to say */
    char *command;    /* as it can be typed again; NULL: none was run */
    char *result;     /* file name in the folder of the investigation; NULL: none */
    uint64_t took_ms; /* 0: not known */
    bool taken_over;  /* finished in an earlier call */
};

/* Of a result of kl. */
struct investigation_kl {
    bool known;
    enum kl_condition condition;
    enum kl_where where;
    char *signature, *text;  /* of the reading */
    char **evidence, **next; /* NULL-terminated */
    struct {
        enum kl_grade grade;
        size_t kept, tokens, beyond;
        double mean, max; /* k3; 0 where nothing was measured */
        char *why_not;    /* NULL: it was measured */
    } paths[KL_PATHS];
    size_t requests, few;  /* kept in match; of them with a token beyond */
    uint64_t prompt_count; /* prompts of the set */
    bool deterministic, radix_cache, condition_2_open, condition_2_in_restore;
    bool moe_known, mixture_of_experts, graphs_known, graphs_off;
    uint64_t tp, window, new_tokens; /* window: sliding, in tokens; 0: none */
    bool past_window;
    double temperature;
    char *prompts_hash, *version, *model;
};

/* Of a result of invariance. */
struct investigation_axis {
    char *word, *state;  /* "prefill"; "changed" */
    uint64_t first_size; /* that changes a result; 0: none */
    bool cached;         /* ... which is one row on a cached prefix */
    uint64_t unchanged;  /* the nearest size before it that changes nothing; 0: none */
    uint64_t cases;      /* sizes that were measured */
    char *module;        /* that a dump of it names; NULL: none */
    char *kind;          /* of that verdict, as of a diff: "op"; NULL where no module is named */
    char *why_not;       /* what of it was not measured, and why; NULL: all was */
};

struct investigation {
    char *name, *directory, *command; /* CMD as it can be typed */
    struct investigation_step steps[INVESTIGATION_STEPS];
    struct investigation_kl own, dump;
    char **settings; /* NULL-terminated, from ab: "disable_cuda_graph: false under your flags, true in a dump" */
    bool invariance_known;
    char *invariance_condition; /* "broken", "not shown", "holds" */
    uint64_t invariance_most;   /* the largest batch */
    struct investigation_axis *axes;
    size_t axis_count;
    struct {
        bool known, complete, shifted, alone; /* alone: one request at a time */
        bool restore;                         /* a restored prefix against a whole prefill, nothing decoded is dumped */
        size_t requests, tokens, bit_equal;
        double largest;
        char **reasons; /* NULL-terminated: what is against it */
    } capture;
    struct {
        bool known, proven;
        int status;
        bool prefills; /* two prefills were compared: a whole one and one behind a restored prefix */
        /* Of the verdict; NULL where there is none. class_kind: "matrix product"; needs: what that needs to be
         * batch-invariant. */
        char *kind, *module, *class, *class_kind, *needs, *confidence, *reading, *what, *after, *first_unequal;
        bool has_layer;
        uint64_t layer, tested, unequal; /* targets at the place of the verdict */
        bool has_position;
        int64_t position;
        uint64_t tp;
        char **certificate; /* NULL-terminated: "A7 weak: 12 of 14 pairs", what does not hold first */
        char **against;     /* NULL-terminated: messages, each "M3: cause: evidence", and refused files */
        char **blind;       /* NULL-terminated: what is not seen inside the bracket */
        char *page;         /* diff.html */
    } diff;
};
void investigation_fini(struct investigation *investigation); /* also of a zeroed one */

/* How it ends: a row of the table in investigation.c. */
struct investigation_end {
    const char *name;            /* "clean", "operator", "needs-a-graph", ...: static; in --json and in the manual */
    enum kl_condition condition; /* NONE: neither shows a break; REFUSED: nothing can be said */
    enum kl_where where;
    bool condition_1_first;                  /* condition 1 hides whether 2 holds */
    bool condition_2_too;                    /* ... but 2 is broken in the restore as well */
    enum status status;                      /* what the command ends with, where nothing else ends it */
    const char *module;                      /* borrowed from the investigation; NULL: not named */
    char *text;                              /* one paragraph: the answer */
    char **evidence, **not_measured, **next; /* NULL-terminated, never NULL */
};

/* Always succeeds: an investigation that was stopped anywhere has an end, too ("unfinished"). Strings that came from
 * results stand in the texts as they are: whoever shows them makes them safe. */
void investigation_conclude(const struct investigation *investigation, struct investigation_end *ret_end);
void investigation_end_fini(struct investigation_end *end);

/* The name of the end in this row of the table (several rows may share one); NULL behind the last. */
const char *investigation_end_row(size_t row);
