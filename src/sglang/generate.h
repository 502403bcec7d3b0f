/* Requests to /generate and /flush_cache, and what the answers say (SGLang 0.5.10 to 0.5.23, http_server.py,
 * io_struct.py, test/kl_test_utils.py; facts/sglang.md 6, 7). Bytes only: others carry them. Pure; any thread (but see
 * json.h: one at a time). */
#pragma once

#include "base/buffer.h"
#include "base/error.h"
#include "base/hash.h"
#include "core/server.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct json;

struct generate_prompt {
    const char *rid;
    const int64_t *ids;
    size_t length;
};

struct generate_request {
    const struct generate_prompt *prompts;
    size_t count;        /* a list of lists is sent, also for one prompt: the answer is then a list in the same order */
    unsigned new_tokens; /* 0: scoring */
    bool has_temperature; /* false: the server's default */
    double temperature;
    bool ignore_eos;
    bool logprobs;
    int64_t logprob_start; /* with `logprobs`: -1 output only; else the first position whose logprob is wanted */
    const int64_t *logprob_starts; /* [count], one for each prompt; NULL: logprob_start is that of all */
    uint64_t vocabulary;           /* 0: not known. Not sent: generate_read holds ids against it */
};

/* POST /generate; the caller owns *ret_request (server_request_fini). */
void generate_build(const struct generate_request *request, struct server_request *ret_request);

/* POST /flush_cache?timeout=SECONDS. `generate_flushed`: whether the answer means that the cache is empty; only status
 * 200 does ("Cache flushed" also stands in refusals of old releases). */
void generate_build_flush(unsigned wait_s, struct server_request *ret_request);
bool generate_flushed(int http_status, const char *body, size_t length, struct error *err);

/* POST /tokenize for one text, as /generate would take it; the ids, the caller's. ERROR_SERVER where the server has no
 * tokenizer (--skip-tokenizer-init) or the route is not there. */
void generate_build_tokenize(const char *text, struct server_request *ret_request);
enum error_code generate_read_tokenize(int http_status, const char *body, size_t length, int64_t **ret_ids,
                                       size_t *ret_count, struct error *err);

struct generate_answer {
    char *rid;
    size_t prompt_tokens, cached_tokens;
    size_t retractions; /* how often it was taken back and prefilled again */
    int64_t *output_ids;
    double *output_logprobs; /* [output_count], of output_ids; NULL: none asked for */
    size_t output_count;
    /* Scores of the prompt by absolute position: input_logprobs[p] belongs to prompt id p. NaN where there is none:
     * before logprob_start, and at the first position that was asked for. NULL: none asked for. */
    double *input_logprobs; /* [prompt_tokens] */
    char *weight_version;   /* NULL: not said */
    char *finish;           /* "length"; "stop" without ignore_eos */
};

struct generate_answers {
    struct generate_answer *items;
    size_t count;
};

/* Holds the answer against the request: count, rids, prompt_tokens equal to what was sent, ids echoed in the scores
 * equal to those sent (the last id of the vocabulary comes back as 0: no reason to refuse), output_count = new_tokens
 * unless eos may end it, finish reason "length" (or "stop" without ignore_eos; "abort" with its message is an error),
 * no null logprob but at the first scored position. ERROR_SERVER with the server's own message for an error body, also
 * under status 200; ERROR_FORMAT with member, value, expectation. */
enum error_code generate_read(const struct generate_request *request, int http_status, const char *body, size_t length,
                              struct generate_answers *ret_answers, struct error *err);
void generate_answers_fini(struct generate_answers *answers); /* also of a zeroed one */

/* What a measurement must know of the server, from /server_info and /model_info (0.5.9 and older: /get_...). */
struct generate_server {
    char *version, *model_path;
    uint64_t vocabulary;                /* ids must be below; 0: not said */
    uint64_t context_length;            /* 0: not said */
    uint64_t input_limit;               /* a prompt must be shorter (max_req_input_len); 0: not said */
    uint64_t page_size, sliding_window; /* 0: not said, or none */
    uint64_t state_checkpoint_interval; /* of recurrent models: mamba chunk or track interval; 0: none or not said */
    unsigned tp_size;
    bool radix_cache, deterministic, mixture_of_experts, moe_known;
    bool one_at_a_time; /* it runs one request at a time (max_running_requests) */
    bool mixed_passes;  /* a pass of a prefill may decode others, too */
    bool graphs_known, graphs_off;
    char *weight_version;  /* changes with the weights where whoever loads new ones says so; NULL: not said */
    char *start_text;      /* of this process of the server: differs after a restart; NULL: not said */
    struct json *settings; /* every resolved setting that can matter to numbers, by name; the rest is left out */
};
enum error_code generate_server_read(const char *info, size_t info_length, const char *model, size_t model_length,
                                     struct generate_server *ret_server, struct error *err);
/* What only the model's own config.json tells: adds vocabulary, context length, window, experts, recurrent state to a
 * server that was read. ERROR_FORMAT; the server is as before then. */
enum error_code generate_server_read_model(const char *config, size_t length, struct generate_server *server,
                                           struct error *err);
/* Whether `later` is the same process with the same weights as `earlier`. ERROR_STATE says what has changed. */
enum error_code generate_server_same(const struct generate_server *earlier, const struct generate_server *later,
                                     struct error *err);
/* 64 bits over version and settings that can matter to numbers, in hexadecimal digits: two results under other hashes
 * are not of the same server settings. The seed of the random numbers is not in it. */
void generate_server_hash(const struct generate_server *server, char ret_hash[HASH_TEXT]);
/* Requests for what generate_server_read takes: GET of /server_info and of /model_info, or with `older` the routes of
 * 0.5.9 and before. */
void generate_server_build(bool model, bool older, struct server_request *ret_request);
void generate_server_fini(struct generate_server *server); /* also of a zeroed one */
