/* Takes the paths of a KL measurement on a server: the requests of SGLang's own helpers in their order (kl_helper.h),
 * and restore and match one request at a time beside them. One thread.
 *
 * Happy path of one: flush, the requests that fill the cache if the path has any, decode, flush, score exactly prompt +
 * output from position 0 on, endpoint_check. That a request has taken its way is proven by its cached tokens; one that
 * has not is kept with `dropped`, and a path of which half are dropped is not measured, with the reason. A server that
 * restarts, reloads weights, refuses or answers something else ends the whole with that error. */
#pragma once

#include "analysis/kl.h"
#include "ctl/endpoint.h"
#include "ctl/prompts.h"

struct kl_paths_plan {
    const struct prompts *prompts; /* with ids */
    unsigned new_tokens;           /* at least 2 */
    double temperature;
    const int64_t *comma; /* [comma_count], ids of what a second turn adds */
    size_t comma_count;
    bool wanted[KL_PATHS];
    void (*progress)(void *context, const char *what, uint64_t done, uint64_t total); /* NULL: none */
    void *context;
};

/* Fills all of `ret_paths` (kl_path_fini), measured by kl_measure; those that were not wanted or could not be taken say
 * why. Errors of the endpoint, prefixed with the path; before the first request ERROR_BAD_VALUE for a prompt that does
 * not fit the server with all that is decoded after it. */
enum error_code kl_paths_take(struct endpoint *endpoint, const struct kl_paths_plan *plan,
                              struct kl_path ret_paths[KL_PATHS], struct error *err);
