/* The numbers of a KL measurement, and what they mean. Plain data in, plain data out; no tolerance but the classes of
 * DESIGN 6. Pure; any thread.
 *
 * d = a - b of the two logprobs of one token: a as scored (of restore: on the cached prefix), b as decoded (of restore:
 * scored fresh). k3 = exp(d) - 1 - d, as SGLang's helpers take it (test/kl_test_utils.py), but without the rounding of
 * that form (up to 2e-16): never negative. */
#pragma once

#include "base/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum kl_path_id {
#define X(constant, member, word, how) KL_PATH_##constant,
#include "analysis/kl_paths.def"
#undef X
    KL_PATHS
};

/* One request of one path: `count` tokens, the first at absolute position `first`. */
struct kl_request {
    char *rid;
    size_t prompt_length; /* of the request whose tokens are compared; of a second turn: prompt, first answer, comma */
    size_t cached_tokens; /* of it, found in the prefix cache; of restore: when it was scored again */
    size_t first, count;
    int64_t *context; /* [first], the ids before; NULL: not kept */
    int64_t *ids;     /* [count] */
    double *a, *b;    /* [count] */
    char *dropped;    /* why it does not count, by the helper's own rule ("no cached token"); NULL: it counts */
};

enum kl_class { KL_CLASS_EQUAL, KL_CLASS_STRAY, KL_CLASS_BEYOND };

/* Bit-equal; stray: |d| <= max(1e-6, 4 ULP of float32 at max(|a|,|b|)); beyond (also NaN against a number). */
enum kl_class kl_class_of(double a, double b);
double kl_k3(double a, double b);

enum kl_grade { KL_GRADE_NOT_MEASURED, KL_GRADE_BIT_EQUAL, KL_GRADE_STRAY, KL_GRADE_NOISE, KL_GRADE_NONZERO };
const char *kl_grade_word(enum kl_grade grade); /* "bit-equal", "stray", "noise", "nonzero", "not measured" */
bool kl_grade_clean(enum kl_grade grade);       /* the first two that are measured */

struct kl_request_numbers {
    size_t bit_equal, stray, beyond;
    double mean, max;    /* k3 */
    double max_abs;      /* of d */
    size_t first_beyond; /* absolute position; SIZE_MAX: none */
};

enum { KL_THRESHOLDS = 6 };
extern const double kl_thresholds[KL_THRESHOLDS]; /* 1e-9, 1e-6, 1e-4, 1e-3, 1e-2, 1e-1 */

struct kl_path {
    bool measured;
    char *why_not; /* where it was not: "the radix cache is off" */
    struct kl_request *requests;
    size_t request_count;
    /* filled by kl_measure */
    struct kl_request_numbers *numbers; /* [request_count] */
    size_t kept, tokens;
    double mean; /* over requests of their means, as the helpers take it */
    double max;
    double share_above[KL_THRESHOLDS];
    size_t bit_equal, stray, beyond;
    enum kl_grade grade;
};

/* Takes the numbers of one path from its requests. A path of which no token is kept has no grade. */
void kl_measure(struct kl_path *path);

/* What is known of the server and bears on the reading. */
struct kl_server {
    uint64_t page_size, sliding_window, state_checkpoint_interval; /* 0: none */
    bool deterministic, mixture_of_experts;
    bool one_at_a_time;  /* it runs no two requests together: a batch is none */
    const char *foreign; /* who else has used it meanwhile, in words; NULL: nobody */
};

enum kl_condition { KL_CONDITION_NONE, KL_CONDITION_1, KL_CONDITION_2, KL_CONDITION_REFUSED };
enum kl_where { KL_WHERE_NONE, KL_WHERE_OPERATOR, KL_WHERE_RESTORE, KL_WHERE_DECODE };

/* By the table of signatures in kl_reading.c. The order of requests does not matter to it. */
struct kl_reading {
    const char *signature; /* of the table; static */
    enum kl_condition condition;
    enum kl_where where;
    bool shifted;                /* the logprobs are those of the tokens beside: no number says anything */
    bool few;                    /* condition 2: some requests are dirty and others are clean */
    bool condition_2_open;       /* condition 1 is broken and hides whether 2 holds */
    bool condition_2_in_restore; /* ... but restore is dirty far beyond the noise: 2 is broken there too */
    char *text;                  /* one paragraph */
    char **evidence;             /* NULL-terminated: what decided, with numbers */
    char **next;                 /* NULL-terminated: what would decide further */
};

/* `paths` were measured by kl_measure. Always succeeds: where nothing can be said, the condition is "refused". */
void kl_read(const struct kl_path paths[KL_PATHS], const struct kl_server *server, struct kl_reading *ret_reading);

void kl_path_fini(struct kl_path *path); /* also of a zeroed one */
void kl_reading_fini(struct kl_reading *reading);
const char *kl_path_member(enum kl_path_id id);
const char *kl_path_word(enum kl_path_id id);
const char *kl_path_how(enum kl_path_id id);
const char *kl_condition_word(enum kl_condition condition); /* "none", "1", "2", "refused" */
const char *kl_where_word(enum kl_where where);             /* "none", "operator", "restore", "decode" */
