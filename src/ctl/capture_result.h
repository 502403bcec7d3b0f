/* What `kldumpctl capture` keeps beside its two dumps, EXP.capture.json: schema kldump.capture/1, described in
 * man/kldumpctl.1. One thread. */
#pragma once

#include "base/list.h"
#include "ctl/endpoint.h"
#include "ctl/prompts.h"

enum capture_phase { CAPTURE_DECODE, CAPTURE_SCORE, CAPTURE_RESTORE, CAPTURE_PHASES };

/* One prompt, decoded, then scored, and of a capture of the restored prefix scored again behind that. */
struct capture_request {
    int64_t *ids; /* prompt and output: what is scored */
    size_t prompt_length, output_count;
    double *decoded;  /* [output_count], as generated; NULL: not decoded */
    double *scored;   /* [prompt_length + output_count], by absolute position, NaN at 0; NULL: not scored */
    double *restored; /* likewise, NaN before prompt_length; NULL: not scored behind a restored prefix */
    const char *rid[CAPTURE_PHASES];
    size_t cached[CAPTURE_PHASES];
};

struct capture_result {
    const char *run, *directory, *name;     /* name: EXP */
    const char *experiment[CAPTURE_PHASES]; /* NULL: this phase is not dumped */
    const struct prompts *prompts;
    const struct generate_server *server;
    const struct foreign *foreign;
    unsigned new_tokens;
    bool alone;   /* one request at a time; else all in one batch */
    bool restore; /* the scoring and the one behind the restored prefix are dumped, not the decode */
    struct capture_request *requests;
    size_t count;
    struct json *seal[CAPTURE_PHASES]; /* NULL: there is none; owned */
    struct list reasons;               /* why it is not complete; owned */
};

/* What the logprobs of all tokens behind the prompts say: the scored ones against those of the other dump. */
struct capture_tally {
    size_t tokens, bit_equal;
    double largest; /* |difference| */
    bool shifted;   /* each scored one is, bit for bit, that decoded for the next token, and not its own */
};
void capture_result_tally(const struct capture_result *result, struct capture_tally *ret_tally);

/* The object; the caller's. Complete: there is no reason against it. */
struct json *capture_result_json(const struct capture_result *result);

/* Writes it to DIRECTORY/NAME.capture.json; the path is the caller's. As file_replace. */
enum error_code capture_result_write(const struct json *object, const struct capture_result *result, char **ret_path,
                                     struct error *err);
void capture_result_fini(struct capture_result *result); /* also of a zeroed one */
