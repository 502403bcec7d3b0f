/* The engine of `kldumpctl investigate`: runs the steps of investigation_steps.def in their order, each as a kldumpctl
 * of its own, on two runs that it holds one after the other. One thread.
 *
 * Happy path: investigate_open (the folder, what an earlier call has finished there), investigate_all, then what was
 * found is in `found`; investigate_close.
 * Failures: a step fails (`found` says which and why; what does not build on it goes on), also one that ends with the
 * status of an answer and gives none; Ctrl-C (the step ends its own orderly way, the run is stopped in order, the rest
 * is not reached); we are killed (no server is left; the next call goes on with what is finished). A finished step is
 * one whose result lies in the folder unchanged and was made from what would be given to it now, also the files of a
 * model's folder that CMD names; anything else is done again. */
#pragma once

#include "analysis/investigation.h"
#include "base/hash.h"
#include "base/list.h"
#include "ctl/held_run.h"

/* What a server is up for. */
enum investigate_kind { INVESTIGATE_NO_RUN, INVESTIGATE_PLAIN, INVESTIGATE_DUMP };

struct investigate {
    /* given; owned but for the two paths */
    char *name, *directory; /* of the runs; of the investigation, absolute */
    struct list options;    /* of a run, without --name, --dir, --kind */
    struct list server;     /* CMD */
    bool has_name;          /* given by the user; else that of an earlier call is taken */
    const char *prompts_path, *synthetic;
    uint64_t new_tokens, least;
    /* worked out */
    char *shown; /* CMD without its secrets, as it can be typed */
    char *dumps; /* of the runs: DIR/dumps, or DIR/dumps-2 where an earlier call has left dumps in that */
    char *given; /* the prompts as they were asked for: "synthetic 32:1500-4500:1" */
    char given_hash[HASH_TEXT], prompts_hash[HASH_TEXT]; /* of these; of their ids, "" until they are known */
    uint64_t model_stamp;                                /* changes with the files of the model */
    size_t prompt_count;                                 /* 0: not known yet */
    char *earlier;                                       /* name of the runs of an earlier call; NULL: none */
    int lock_fd;
    /* under way */
    struct investigation found;
    struct investigate_mark {
        char key[HASH_TEXT], content[HASH_TEXT]; /* what a finished step was made from, and its result's bytes */
    } marks[INVESTIGATION_STEPS];
    struct held_run run;
    enum investigate_kind kind; /* of that run */
    bool invariance_dumps;      /* invariance names its operators from dumps */
    size_t capture_most;        /* prompts of a capture */
    uint64_t start_ms;          /* of the last start of a server; 0: not known */
    bool interrupted;
};

/* Takes the folder, made where it is not there, and what an earlier call has left in it. ERROR_FORBIDDEN: it holds an
 * investigation of another CMD or other prompts (both are named), or something else, or another investigation is at
 * work there. */
enum error_code investigate_open(struct investigate *work, struct error *err);
void investigate_close(struct investigate *work); /* stops what runs; also of a zeroed one */

/* All steps, as far as they can be done: what became of each is in `found`. Fails where the folder cannot be
 * written. */
enum error_code investigate_all(struct investigate *work, struct error *err);

/* ---- between the files of the engine ---- */

/* investigate_state.c */
/* DIR/NAME.json of a step, DIR/NAME-2.json of its second part; the caller's. */
char *investigate_result(const struct investigate *work, enum investigation_step_id id, size_t part);
enum error_code investigate_save(struct investigate *work, struct error *err);
/* Gives the next run a folder for its dumps that holds none: those of an earlier one are left alone. */
void investigate_choose_dumps(struct investigate *work);
/* Whether the step is finished: see above. */
bool investigate_is_finished(const struct investigate *work, enum investigation_step_id id);
/* The step has been done: its result counts from now on. */
void investigate_mark(struct investigate *work, enum investigation_step_id id);
/* Its results, what they were made from and what lies beside them are forgotten, on the disk as well. */
void investigate_forget(struct investigate *work, enum investigation_step_id id);

/* investigate_steps.c */
struct investigate_step {
    enum investigate_kind needs;
    bool goes_on;      /* the next steps do not build on it */
    unsigned fine;     /* bit N: exit status N is an answer */
    unsigned built_on; /* bit ID: the result of that step */
    size_t parts;      /* commands, each with a result of its own */
    /* Of kldumpctl, for one part. */
    enum error_code (*arguments)(struct investigate *work, size_t part, struct list *arguments, struct error *err);
    const char *(*pointless)(const struct investigate *work); /* why it is not needed; NULL: it is */
    const char *beside;                                       /* file that it writes beside its results; NULL: none */
};
extern const struct investigate_step investigate_steps[INVESTIGATION_STEPS];
/* Whether the two dumps that the capture's result names are where it has put them. */
bool investigate_dumps_are_there(const struct investigate *work);

/* investigate_prompts.c */
/* Writes DIR/prompts.jsonl, all with ids, once the first server is up; or checks what an earlier call has written. */
enum error_code investigate_prompts(struct investigate *work, struct error *err);
/* Whether DIR/prompts.jsonl is what the finished steps have measured; counts them. */
bool investigate_prompts_are_there(struct investigate *work);
/* How a capture shows what kl has found under the flags of a dump; NULL: it cannot. */
struct investigate_way {
    enum kl_path_id path; /* whose requests diverge */
    bool alone, restore;  /* options of capture */
    bool prompts_alone;   /* no new token: the last one of a prompt is what is computed */
};
const struct investigate_way *investigate_way(const struct investigate *work);
/* Chooses for it at most `most` of the prompts that diverge, those first whose divergence begins earliest, and writes
 * them to DIR/capture-prompts.jsonl; *ret_new: new tokens that reach it. */
enum error_code investigate_choose(struct investigate *work, size_t most, size_t *ret_count, uint64_t *ret_new,
                                   struct error *err);

/* investigate_time.c: what is left from that step on; false: it cannot be told yet. */
bool investigate_left(const struct investigate *work, enum investigation_step_id from, uint64_t *ret_left_ms);
