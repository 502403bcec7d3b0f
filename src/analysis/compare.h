/* Compares the rows of all pairs, observation by observation, and keeps what was found in the diff.
 *
 * Happy path: compare_new once, compare_range over the observations in the order of the program. A thread takes an
 * observation as a whole and writes to it alone, so the result does not depend on the number of threads. Within one,
 * the pairs are gone through pass by pass: each file is opened once, neighbouring rows of the same two files are
 * compared in one go, and only rows that differ are looked at element by element. Failure: a file that cannot be read
 * leaves its rows uncompared, and the trouble is kept; it ends nothing.
 *
 * Relied upon: pt_file reads at most a window at a time, so memory does not grow with the tensors. */
#pragma once

#include "analysis/alignment.h"
#include "analysis/observations.h"
#include "analysis/rows.h"
#include "pt/pt_file.h"

struct compare_options {
    unsigned threads; /* 0: as many as there are processors, up to 8 */
    bool strict_zero;
    side_progress *progress; /* NULL: none; caller's thread */
    void *context;
};

/* The first file of an observation that could not be used. */
struct compare_trouble {
    char *text; /* "FILE: what is wrong"; NULL: none */
    enum pt_file_problem problem;
    size_t files; /* how many */
};

/* Of an observation, beside what the diff has; filled by compare_range. */
struct compare_found {
    struct rows_reading reading;
    struct compare_trouble trouble;
    uint64_t control_elements, control_unequal;
    bool left_out;        /* the tensor has another shape in some passes, which were not compared */
    bool other_types;     /* the sides have other dtypes: compared by value */
    bool not_rounding;    /* of those: some row is unequal also after rounding to the narrower */
    uint64_t fingerprint; /* of the first target's row on side a; 0: constant, or not compared */
};

struct compare;

/* All arguments stay the caller's and must outlive it. */
struct compare *compare_new(const struct side *a, const struct side *b, const struct alignment *alignment,
                            const struct observations *observations, const struct compare_options *options,
                            struct diff *diff);
void compare_free(struct compare *compare); /* NULL is allowed */

/* Compares observations first .. last-1. */
void compare_range(struct compare *compare, size_t first, size_t last);

const struct compare_found *compare_found(const struct compare *compare, size_t observation);

/* The bytes of the row of a pair, of one side, as they lie in the file: appended to `ret_row`. False: not there, not
 * readable, or larger than PT_FILE_WINDOW. One thread. */
bool compare_row(struct compare *compare, size_t observation, size_t pair, bool of_b, struct buffer *ret_row);

/* Likewise of any row of a pass that a pair uses; of DIFF_ROWS_REQUEST, `row` counts requests. */
bool compare_row_at(struct compare *compare, size_t observation, bool of_b, uint32_t pass, uint64_t row,
                    struct buffer *ret_row);
