/* request.h: one request inside the leading scheduler, the slots of running requests and the radix cache. */
#ifndef KLDUMP_STANDIN_REQUEST_H
#define KLDUMP_STANDIN_REQUEST_H

#include <cjson/cJSON.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { REQUEST_STOPS_MAX = 16 };

struct request {
    struct request *next;
    long call;   /* the message of the main process that brought it; -1: nobody waits for an answer */
    int number;  /* place in that message */
    int replica; /* with data parallelism of attention: whose passes it runs in */
    char *rid;
    int64_t *ids;       /* prompt and what was generated */
    int64_t *locations; /* of their keys and values: as many as `located` */
    double *logprobs;   /* of each id behind those before it; what was not asked for is 0 */
    size_t prompt;
    size_t length;   /* of ids */
    size_t computed; /* tokens whose keys and values exist */
    size_t located;  /* computed, or about to be in the next pass */
    size_t cached;   /* of them, found in the radix cache */
    size_t refill;   /* 0, or the tokens that are prefilled again after a retraction */
    size_t retractions;
    size_t wanted; /* max_new_tokens */
    size_t produced;
    bool ignore_eos;
    int64_t stops[REQUEST_STOPS_MAX];
    size_t stop_count;
    int64_t matched; /* the stop token that ended it, -1: ended by length */
    bool return_logprob;
    long logprob_start;
    int64_t slot;        /* req_pool_indices */
    size_t extra_passes; /* decode passes still to run although the request is done */
    bool done;
    char *rejection; /* the scheduler rejects it: one pass over one token, then this text with 400; NULL: accepted */
};

/* From one element of `requests` of a generate message. */
struct request *request_new(const cJSON *message, long call, int number);
void request_free(struct request *request);

/* One of the scheduler's own: nobody is answered. */
struct request *request_new_internal(const char *rid, const int64_t *ids, size_t count, size_t wanted);

/* Slots are handed out from the end of a stack, as the real pool does. */
void request_pool_init(size_t slots);
void request_take_slots(struct request *const *requests, size_t count);
void request_give_slot(struct request *request);

/* Locations for the first `count` tokens; those that it has stay. `limit` locations in all: old sequences of the radix
 * cache go first where there are more. */
void request_locate(struct request *request, size_t count, size_t limit);

/* All of them are given back: nothing is computed any more. */
void request_forget(struct request *request);

/* Of a request without locations: takes the longest known beginning, in whole pages and never
 * the whole prompt, and returns its length. */
size_t request_cache_restore(struct request *request, size_t limit, size_t page);
void request_cache_insert(const struct request *request);
void request_cache_clear(void);

/* output_ids, finish_reason, token counts and logprobs, as /generate gives them; or the rejection. */
cJSON *request_answer(const struct request *request);

#endif
