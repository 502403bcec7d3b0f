/* The requests of a KL measurement: ids of its own, the helpers' parameters, progress. One thread.
 *
 * Errors of the endpoint, as they are. */
#pragma once

#include "ctl/endpoint.h"

struct kl_ask {
    struct endpoint *endpoint;
    double temperature;
    void (*progress)(void *context, const char *what, uint64_t done, uint64_t total); /* NULL: none */
    void *context;
    char mark[HASH_TEXT]; /* in every request id of this measurement */
    uint64_t done, total; /* requests, for the progress */
};

struct kl_ask_sequence {
    int64_t *ids;
    size_t length;
    size_t number; /* in the request's id, once in a batch */
};

/* Fills the mark; the rest is the caller's. ERROR_SYSTEM. */
enum error_code kl_ask_begin(struct kl_ask *ask, struct error *err);

/* One batch with the ids "kl-MARK-STEP-NUMBER"; prompts, temperature and ignore_eos are set here, the rest is `like`.
 */
enum error_code kl_ask(struct kl_ask *ask, const char *step, const struct kl_ask_sequence *sequences, size_t count,
                       const struct generate_request *like, struct generate_answers *ret_answers, struct error *err);

/* A flush, then all logprobs: from position 0 on the server takes nothing from its cache. */
enum error_code kl_ask_scores(struct kl_ask *ask, const char *step, const struct kl_ask_sequence *sequences,
                              size_t count, struct generate_answers *ret_answers, struct error *err);
