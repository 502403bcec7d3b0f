/* The server that a measurement talks to: a guarded run, or any URL. Every request goes through here, so that a restart
 * between two phases, an error under status 200 or another's request is noticed in one place. One thread.
 *
 * Happy path: endpoint_open, then endpoint_flush and endpoint_generate in the order of a helper, endpoint_check at the
 * end of each phase. Failures name the server, the route, what came and what to do. Keys come from the run (its guard
 * hands them to its owner only) or from KLDUMP_API_KEY; they are never stored or printed. */
#pragma once

#include "ctl/find.h"
#include "sglang/generate.h"

struct endpoint {
    char *name; /* the run's name, or the URL */
    char *url;  /* "http://127.0.0.1:30000" */
    char *key;  /* or NULL */
    bool is_run;
    struct find find;              /* where is_run */
    struct generate_server server; /* as it was when opened */
};

/* `target` is a URL (http:// or https://) or a run. A run must be armed (or of the kind plain: ready). */
enum error_code endpoint_open(const char *target, struct endpoint *ret_endpoint, struct error *err);
void endpoint_fini(struct endpoint *endpoint); /* also of a zeroed one */

/* Waits until the server is idle and its prefix cache is empty. ERROR_SERVER, ERROR_UNREACHABLE, ERROR_TIMEOUT. */
enum error_code endpoint_flush(struct endpoint *endpoint, struct error *err);

/* One batch. ERROR_TOO_LARGE where a prompt with its new tokens does not fit the context, ERROR_BAD_VALUE where an id
 * is not below the vocabulary's size: a server dies of that. */
enum error_code endpoint_generate(struct endpoint *endpoint, const struct generate_request *request,
                                  struct generate_answers *ret_answers, struct error *err);

/* Asks again what endpoint_open asked: ERROR_STATE where the server was restarted or its weights were loaded anew. */
enum error_code endpoint_check(struct endpoint *endpoint, struct error *err);
