/* One measurement of kl, from an open server to its reading: what was asked for, and all that came of it. One thread.
 *
 * The same plan on two servers gives results that `kldumpctl ab` compares. */
#pragma once

#include "ctl/endpoint.h"
#include "ctl/kl_explain_take.h"
#include "ctl/kl_paths.h"
#include "ctl/kl_report.h"
#include "ctl/prompts.h"

#define KL_TAKE_PROMPTS "32:1500-4500:1" /* unless others are given */
enum { KL_TAKE_COMMA_MOST = 8, KL_TAKE_NEW_LEAST = 2, KL_TAKE_NEW_MOST = 1000000, KL_TAKE_SAMPLES_MOST = 100000 };

struct kl_take_plan {
    const char *prompts_file, *synthetic; /* one of them; both NULL: the default prompts */
    const char *thresholds;               /* a file; NULL: none */
    uint64_t new_tokens, least_samples;
    int64_t comma[KL_TAKE_COMMA_MOST]; /* ids of what a second turn adds */
    size_t comma_count;                /* 0: those that the server's tokenizer gives for a comma */
    bool wanted[KL_PATHS];
    const struct kl_explain_take_wish *explain; /* NULL: nothing is explained */

    void (*progress)(void *context, const char *what, uint64_t done, uint64_t total); /* NULL: none */
    void *context;
};

/* Refers to itself: never moved. */
struct kl_take {
    struct prompts prompts;
    int64_t comma[KL_TAKE_COMMA_MOST];
    struct kl_paths_plan plan;
    struct kl_report report; /* borrows the endpoint, which outlives it, and the plan's file of thresholds */
};

/* What is wrong with the files and the prompts of a plan that no server has to be asked for: before one is started or
 * waited for. ERROR_BAD_VALUE; a file that cannot be read: as file_read. */
enum error_code kl_take_check(const struct kl_take_plan *plan, struct error *err);

/* Errors of thresholds, prompts and endpoint; *ret_take is zeroed then. ERROR_BAD_VALUE: fewer prompts than
 * least_samples. */
enum error_code kl_take(struct endpoint *endpoint, const struct kl_take_plan *plan, struct kl_take *ret_take,
                        struct error *err);
void kl_take_fini(struct kl_take *take); /* also of a zeroed one */

double kl_take_temperature(const struct generate_server *server); /* at which its tokens are drawn; 0: the likeliest */
