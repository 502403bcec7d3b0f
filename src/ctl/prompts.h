/* The prompts of a measurement: read from JSON lines, or made from a seed; and the hash that says whether two results
 * are over the same ones. One thread. */
#pragma once

#include "base/error.h"
#include "base/hash.h"

#include <stddef.h>
#include <stdint.h>

struct prompts {
    struct {
        int64_t *ids;
        size_t length;
        char *text; /* of a line with "text" and without "input_ids": the server tokenises; NULL else */
    } * items;
    size_t count;
    char hash[HASH_TEXT]; /* 64 bits over all ids (or texts) in their order, in hexadecimal digits */
    char *source;         /* "prompts.jsonl", "synthetic 32:2000-4000:7": for people */
};

/* JSON lines, each {"input_ids":[..]} or {"text":".."} (other members are passed over; empty lines too). ERROR_FORMAT
 * with the line. */
enum error_code prompts_read(const char *path, struct prompts *ret_prompts, struct error *err);

/* "N:LEN[-LEN]:SEED": N prompts of LEN ids (of a length between the two), ids from 16 up to below `vocabulary` (0: not
 * known; 112 then, which any model has), none with a beginning in common. The same text gives the same ids on every
 * machine. ERROR_BAD_VALUE. */
enum error_code prompts_make(const char *text, uint64_t vocabulary, struct prompts *ret_prompts, struct error *err);

/* Takes the hash anew, once a text has got its ids: a text counts by its ids then. */
void prompts_hash(struct prompts *prompts);

/* ERROR_USAGE where both are given. */
enum error_code prompts_choose(const char *path, const char *recipe, struct error *err);

/* ERROR_BAD_VALUE where there are fewer than --min-samples asks for. */
enum error_code prompts_enough(size_t count, uint64_t least, struct error *err);

/* Those of the file `path`, else those that `recipe` makes, else (both NULL) those of the recipe `usual`.
 * ERROR_BAD_VALUE also for a file that is not as expected. */
enum error_code prompts_get(const char *path, const char *recipe, const char *usual, uint64_t vocabulary,
                            struct prompts *ret_prompts, struct error *err);

/* How many prompts_get would give, and what is wrong with them that no server has to be asked for. Errors as there. */
enum error_code prompts_foresee(const char *path, const char *recipe, const char *usual, size_t *ret_count,
                                struct error *err);

void prompts_fini(struct prompts *prompts); /* also of a zeroed one */
