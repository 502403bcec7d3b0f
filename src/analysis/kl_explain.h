/* What a wrong output is the right answer to: the ids of a dirty request, altered as faults alter a context, are scored
 * anew, and the alteration whose logprobs are those of the wrong output names the fault. Pure; any thread.
 *
 * An alteration takes a span of positions out of the ids before a token, or puts another request's ids there; what
 * follows keeps its order. So one prefill scores all tokens of a request, but where the span moves with the token
 * ("the last 100 tokens"): then each token has a prefill of its own, for the first KL_EXPLAIN_TOKENS of them.
 *
 * What a prefill of other ids cannot be: tokens behind a span that was taken out stand at other positions, which rotary
 * embeddings turn into other last bits (recurrent layers know no positions); keys and values that a fault left standing
 * were made with the tokens that it lost later in view, and a prefill makes them without (one attention layer has no
 * such memory); a key of zeros is no token's. Each alteration says in `limit` when it is exact; "none of them, nearest
 * is ..." is the usual answer.
 *
 * Happy path: for each alteration kl_explain_prefills, score those ids, kl_explain_measure; then kl_explain_conclude.
 */
#pragma once

#include "analysis/kl.h"

enum {
    KL_EXPLAIN_TOKENS = 8, /* of an alteration that moves with the token: the first wrong ones */
    KL_EXPLAIN_OTHERS = 8, /* requests whose ids are tried */
};

struct kl_explain_sequence {
    const int64_t *ids;
    size_t count;
    size_t number; /* of the request in its path */
};

struct kl_explain_case {
    struct kl_explain_sequence own; /* prompt + output */
    size_t prefix;                  /* tokens that came from the cache, or that prefill handed to decode */
    size_t dirty;                   /* the first position beyond stray: from there on tokens are compared */
    const double *wrong;            /* [own.count - dirty], their logprobs as the wrong side has them */
    struct kl_server server;
    const struct kl_explain_sequence *others; /* [other_count], at most KL_EXPLAIN_OTHERS of them are tried */
    size_t other_count;
};

/* The alterations, by number from 0; the first is none: the context as it is. */
size_t kl_explain_alterations(void);
const char *kl_explain_name(size_t alteration);  /* "prefix-without-last" */
const char *kl_explain_text(size_t alteration);  /* "the prefix without its last token" */
const char *kl_explain_limit(size_t alteration); /* when its numbers are exact */

/* Ids to be scored: own token from + i, for i < tokens, is ids[at + i]. */
struct kl_explain_prefill {
    int64_t *ids;
    size_t count;
    size_t from, tokens, at;
    size_t variant; /* prefills of one variant belong together */
    size_t other;   /* the number of the request whose ids are in it; SIZE_MAX: none */
};

/* The prefills of an alteration, the caller's (kl_explain_prefills_fini). None where it does not apply, with the reason
 * in *ret_why_not (the caller's; else NULL). */
void kl_explain_prefills(const struct kl_explain_case *about, size_t alteration,
                         struct kl_explain_prefill **ret_prefills, size_t *ret_count, char **ret_why_not);
void kl_explain_prefills_fini(struct kl_explain_prefill *prefills, size_t count);

struct kl_explain_row {
    size_t alteration;
    char *why_not; /* why it was not tried; NULL: it was */
    size_t variants;
    size_t other;                              /* of the variant that is shown, the nearest; SIZE_MAX: none */
    size_t compared, bit_equal, stray, beyond; /* tokens */
    double mean_abs, max_abs;                  /* of the difference of two logprobs */
    bool reproduces; /* some token was compared, none is beyond, and the context as it is does not do as well */
};

/* `logprobs[i]`: of all ids of prefill i, by position. Takes the variant with the smallest mean difference. */
void kl_explain_measure(const struct kl_explain_case *about, size_t alteration,
                        const struct kl_explain_prefill *prefills, size_t count, const double *const *logprobs,
                        struct kl_explain_row *ret_row);

struct kl_explanation {
    bool asked;
    char *nothing; /* why there is nothing to explain; NULL: there is, and the rest is filled */
    enum kl_path_id path;
    size_t request; /* its number in the path */
    char *rid;
    bool wrong_is_a; /* of restore: the scores on the cached prefix */
    size_t prefix, dirty, tokens, others;
    struct kl_explain_row *rows; /* [row_count], the first is the context as it is */
    size_t row_count;
    size_t answer, nearest; /* rows; SIZE_MAX: none reproduces it; the context as it is is the nearest */
    char *text;             /* one paragraph */
};

/* Fills reproduces, answer, nearest and text from the rows. `noisy`: condition 1 is broken. */
void kl_explain_conclude(struct kl_explanation *explanation, bool noisy);
void kl_explanation_fini(struct kl_explanation *explanation); /* also of a zeroed one */

/* The dirty request that is worst: the largest mean k3 in the first dirty path, those first that the reading blames.
 * False: no request is dirty. */
bool kl_explain_worst(const struct kl_path paths[KL_PATHS], const struct kl_reading *reading, enum kl_path_id *ret_path,
                      size_t *ret_request);
