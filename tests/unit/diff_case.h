/* Test support: two folders of scenario.h, a decode run and its scoring prefill, and what diff_run finds in them. */
#pragma once

#include "analysis/diff.h"
#include "scenario.h"

enum { DIFF_CASE_REQUESTS = 4, DIFF_CASE_FAULTS = 4 };

struct diff_case {
    struct scenario_model model;
    unsigned requests;                              /* 0: one */
    unsigned prompt[DIFF_CASE_REQUESTS];            /* 0: 5 */
    unsigned length[DIFF_CASE_REQUESTS];            /* of prompt and generated tokens together; 0: 9 */
    struct scenario_fault faults[DIFF_CASE_FAULTS]; /* of both runs: `when` says which rows; name NULL ends */
    unsigned padding, decode_padding;               /* filler rows of the prefill and of the decode passes */
    bool other_tokens;                              /* another request, which has no counterpart, runs along in each */
};

struct diff_case_folders {
    char *dec, *pre;
};

/* One pass for all prompts and one for each further position; then one pass that scores all requests. */
struct diff_case_folders diff_case_write(const struct diff_case *world);
void diff_case_remove(struct diff_case_folders *folders);

/* diff_run, which must succeed. */
struct diff diff_case_diff(const char *a, const char *b, unsigned threads, bool first);
struct diff diff_case_diff_with(const char *a, const char *b, struct diff_options options); /* its paths are set */

/* Both at once; the folders are removed. */
struct diff diff_case_run(const struct diff_case *world);

const struct diff_call *diff_case_call(const struct diff *diff, const char *name); /* fails where there is none */
const struct diff_observation *diff_case_observation(const struct diff *diff, const char *name);

/* Everything that was found but the paths, as text; the caller frees. */
char *diff_case_text(const struct diff *diff);
