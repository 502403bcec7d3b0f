/* The server that a measurement talks to: a guarded run, or any URL. Every request goes through here, so that a restart
 * between two phases, an error under status 200 or another's request is noticed in one place. One thread.
 *
 * Happy path: endpoint_open, then endpoint_flush and endpoint_generate in the order of a helper, endpoint_check at the
 * end of each phase. Failures name the server, the route, what came and what to do. Keys come from KLDUMP_API_KEY and
 * KLDUMP_ADMIN_API_KEY alone (a guard hands its server's keys to nobody); they are never stored or printed. */
#pragma once

#include "ctl/find.h"
#include "ctl/foreign.h"
#include "ctl/prompts.h"
#include "sglang/generate.h"

struct endpoint {
    char *name;      /* the run's name, or the URL */
    char *url;       /* "http://127.0.0.1:30000" */
    char *key;       /* or NULL */
    char *admin_key; /* of the routes that want it alone; NULL: `key` is theirs */
    bool is_run;
    struct find find;              /* where is_run */
    struct generate_server server; /* as it was when opened */
    char *model_note;              /* why config.json of the model could not be read; NULL: it was */
    struct foreign foreign;        /* who else uses it; up to date after endpoint_check */
    bool older_load;               /* which route tells of its load */
    int64_t looked_ms;             /* when it was asked for its load the last time, on the clock of now_ms */
    /* Asked about once a second while an answer is awaited, and after a signal; false ends the request with
     * ERROR_INTERRUPTED. NULL: it is waited for. The caller's, set after endpoint_open. */
    bool (*wanted)(void *user);
    void *user;
};

/* `target` is a URL (http:// or https://, a numeric address or localhost) or a run; NULL: the only live run. A run must
 * be armed, of the kind plain ready. ERROR_SERVER: it is not, or its guard does not answer; the status of ERROR_STATE
 * would be the answer "no" of a measurement. The model's config.json is read where it lies on this machine. */
enum error_code endpoint_open(const char *target, struct endpoint *ret_endpoint, struct error *err);
void endpoint_fini(struct endpoint *endpoint); /* also of a zeroed one */

/* Waits until the server is idle and its prefix cache is empty. ERROR_SERVER, ERROR_UNREACHABLE, ERROR_TIMEOUT;
 * ERROR_INCOMPLETE where requests run although none of ours does. */
enum error_code endpoint_flush(struct endpoint *endpoint, struct error *err);

/* One batch; the vocabulary of the request is set from the server's. ERROR_BAD_VALUE where a prompt with its new tokens
 * does not fit the context, or an id is not below the vocabulary's size: a server dies of that. ERROR_SERVER where the
 * answer is an error or not what was asked for. */
enum error_code endpoint_generate(struct endpoint *endpoint, const struct generate_request *request,
                                  struct generate_answers *ret_answers, struct error *err);

/* Whether the server takes a prompt of `length` ids (NULL: any) with so many new tokens: the errors of
 * endpoint_generate, before anything is sent. */
enum error_code endpoint_takes(const struct endpoint *endpoint, const int64_t *ids, size_t length, unsigned new_tokens,
                               struct error *err);

/* Gives every prompt that is a text its ids, as the server's tokenizer makes them, and takes the hash anew. */
enum error_code endpoint_tokenize(struct endpoint *endpoint, struct prompts *prompts, struct error *err);

/* Asks again what endpoint_open asked: ERROR_SERVER where the server was restarted or its weights were loaded anew.
 * That somebody else has used the server is no error: endpoint->foreign says it, and the report of the measurement. */
enum error_code endpoint_check(struct endpoint *endpoint, struct error *err);
