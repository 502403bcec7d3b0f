/* `kl --vary`: the same KL measurement on servers that differ in one setting each, which should not matter. One thread.
 *
 * Happy path: kl_vary_prepare (what would be wrong is told before anything is started), kl_vary_measure: CMD as given
 * is started as a plain run, measured and stopped, then once more, then once for each variant; a variant whose server
 * resolves nothing else is not measured. Each leaves its result and the text of its run in the folder.
 * Failures: CMD as given does not start or cannot be measured: the whole ends with that. A variant: it says why, and
 * the others go on. Ctrl-C: the server is stopped in order, and the whole ends with ERROR_INTERRUPTED. */
#pragma once

#include "analysis/ab.h"
#include "analysis/kl_vary.h"
#include "conf/settings.h"
#include "ctl/ab_read.h"
#include "ctl/kl_take.h"
#include "sglang/vary.h"

/* What one variant's path has beside that of CMD as given. */
struct kl_vary_path {
    enum kl_grade grade;
    char *why_not; /* where not measured, or requests are lost; NULL else */
    size_t lost;   /* requests that are dirty as given and do not count here */
    bool fine;     /* clean, below its threshold, or not measured */
    double mean, max;
    size_t tokens;              /* that count in its result */
    bool compared;              /* some token is */
    size_t compared_tokens;     /* of requests that count in both */
    size_t differing;           /* of them, those with another logprob, and all behind the first other token */
    struct kl_vary_place place; /* of the first; .path NULL: none */
    bool restored;              /* another number of tokens was restored in each differing request */
};

struct kl_vary_start {
    char *label;                 /* "as given", "as given again", "page-size=16" */
    char *stem;                  /* of its files: "3-page-size=16"; a long label is cut */
    struct vary_setting setting; /* zeroed: as given */
    struct list command;         /* CMD for it */
    enum kl_vary_state state;
    char *why;                        /* where not measured */
    int status;                       /* exit status that belongs to that */
    bool started;                     /* its server was up */
    char *resolved;                   /* what the server made of its setting; NULL: as given, or not started */
    struct ab_read_settings settings; /* against CMD as given: A as given, B here */
    char *result;                     /* path of its result; NULL: none */
    bool clean, shifted;              /* of its reading, as the next */
    char *signature;
    struct kl_vary_path paths[KL_PATHS];
};

enum { KL_VARY_FIRST, KL_VARY_AGAIN, KL_VARY_VARIANTS }; /* positions: the two as given, then the variants */

struct kl_vary_plan {
    struct kl_take_plan take;
    const struct list *wanted;       /* of --vary, as given */
    const struct settings *settings; /* of the run */
    const struct list *options;      /* of the run, without --name, --dir, --kind */
    char *const *command;            /* CMD, NULL-terminated */
    bool show;                       /* progress on standard error */
};

struct kl_vary_all {
    const struct kl_vary_plan *plan;
    char *folder; /* absolute: results and texts */
    struct kl_vary_start *starts;
    size_t count;
    struct ab_read given; /* the result of CMD as given */
    struct list drifting; /* settings that differ between the two as given: they count for nothing */
    struct kl_vary_reading reading;
};

/* ERROR_BAD_VALUE: --vary; ERROR_SETTINGS: CMD takes no argument. ERROR_FORBIDDEN: the folder cannot be made. */
enum error_code kl_vary_prepare(const struct kl_vary_plan *plan, struct kl_vary_all *ret_all, struct error *err);

/* *ret_status: where CMD as given failed, the exit status that belongs to it. */
enum error_code kl_vary_measure(struct kl_vary_all *all, int *ret_status, struct error *err);

void kl_vary_all_fini(struct kl_vary_all *all); /* also of a zeroed one */
