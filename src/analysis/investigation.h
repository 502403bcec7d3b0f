/* What the steps of `kldumpctl investigate` found, and what follows from all of it together: which condition is broken,
 * which operator, on what evidence, and what was not measured. Plain data in, plain data out. Pure; any thread.
 *
 * The steps' own readings are taken as they are (kl.h, invariance.h, diff.h); here is only decided what they mean side
 * by side: a fault that shows under the user's own flags and not under those of a dump needs a CUDA graph (or whatever
 * else the flags switch off) and is no dump's business; condition 1 hides condition 2; an operator is named where a
 * proven diff and the reading of kl agree, and both are shown where they do not. */
#pragma once

#include "analysis/kl.h"

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
    char *signature, *text; /* of the reading */
    char **evidence;        /* NULL-terminated */
    struct {
        enum kl_grade grade;
        size_t tokens, beyond;
        double mean, max;
    } paths[KL_PATHS];
    size_t requests, few; /* kept in match; of them with a token beyond */
    bool deterministic, mixture_of_experts, condition_2_open, condition_2_in_restore;
    char *prompts_hash;
};

/* Of a result of invariance. */
struct investigation_axis {
    char *word, *state;  /* "prefill"; "changed" */
    uint64_t first_size; /* that changes a result; 0: none */
    char *module;        /* NULL: not named */
};

struct investigation {
    char *name, *directory, *command; /* CMD as it can be typed */
    struct investigation_step steps[INVESTIGATION_STEPS];
    struct investigation_kl own, dump;
    char **settings; /* NULL-terminated, from ab: "disable_cuda_graph: false under your flags, true in a dump" */
    bool invariance_known;
    char *invariance_condition; /* "broken", "not shown", "holds" */
    struct investigation_axis *axes;
    size_t axis_count;
    struct {
        bool known, complete, shifted, alone, restored; /* restored: prefill against a prefill on a cached prefix */
        size_t requests, tokens, bit_equal;
        double largest;
        char *reason; /* the first one against it */
    } capture;
    struct {
        bool known, proven;
        int status;
        char *kind, *module, *class, *confidence, *reading, *what; /* of the verdict; NULL where there is none */
        bool has_layer;
        uint64_t layer;
        int64_t position;
        char **blind; /* NULL-terminated */
        char *page;   /* diff.html */
    } diff;
};
void investigation_fini(struct investigation *investigation); /* also of a zeroed one */

/* How it ends: rows of the table in investigation.c, static words. */
struct investigation_end {
    const char *name;            /* "clean", "operator", "needs-a-graph", ...: in --json and in the manual */
    enum kl_condition condition; /* REFUSED: nothing can be said */
    bool condition_1_first;      /* condition 1 hides whether 2 holds */
    const char *module;          /* borrowed from the investigation; NULL: not named */
    char *text;                  /* one paragraph: the answer */
    char **evidence, **not_measured, **next; /* NULL-terminated */
};

/* Always succeeds: an investigation that was stopped anywhere has an end, too ("unfinished"). */
void investigation_conclude(const struct investigation *investigation, struct investigation_end *ret_end);
void investigation_end_fini(struct investigation_end *end);
