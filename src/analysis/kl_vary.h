/* What it means that a KL measurement gives the same numbers, or others, when the server is started anew under settings
 * that should not matter. Plain data in, plain data out. Pure; any thread.
 *
 * "The same" is bit for bit, both logprobs of every token. It says something only where the same flags give the same
 * numbers on a fresh server, as they do (facts/kl-reading.md 3); so that is measured first. A request of which another
 * number of tokens was restored has computed another thing: a decode that is wrong has left wrong keys and values, and
 * how many of them come back depends on the size of a page. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum kl_vary_state {
    KL_VARY_NOT_MEASURED, /* it did not start, or the measurement failed */
    KL_VARY_NO_EFFECT,    /* the server resolved no other setting than as given */
    KL_VARY_MEASURED
};
const char *kl_vary_state_word(enum kl_vary_state state); /* "not measured", "no effect", "measured" */

/* Where the numbers of two measurements differ first. */
struct kl_vary_place {
    const char *path; /* NULL: nowhere */
    size_t request;   /* counted from 0 */
    uint64_t position;
};

struct kl_vary_variant {
    const char *label; /* "page-size=16" */
    enum kl_vary_state state;
    /* Where measured, as what follows: clean in the paths that were measured here and as given; and these as given. */
    bool clean, given_clean;
    struct kl_vary_place differs;  /* where as many tokens were restored from the cache as given */
    struct kl_vary_place restored; /* where another number was, as under pages of another size */
};

struct kl_vary {
    bool clean;                 /* as given */
    struct kl_vary_place again; /* where the same command differs from itself */
    const struct kl_vary_variant *variants;
    size_t count;
    bool shifted; /* as given: the logprobs are those of the tokens beside (kl.h) */
};

/* By the table in kl_vary.c: its first row that fits. */
struct kl_vary_reading {
    const char *name; /* "deterministic", "moved", ..: in --json and in the manual; static */
    bool fine;        /* nothing is dirty, and all of it repeats */
    char *text;       /* one paragraph */
    char **next;      /* NULL-terminated: what to do now */
};
void kl_vary_read(const struct kl_vary *vary, struct kl_vary_reading *ret_reading);
void kl_vary_reading_fini(struct kl_vary_reading *reading); /* also of a zeroed one */
