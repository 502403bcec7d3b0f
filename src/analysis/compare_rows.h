/* One observation, compared by one thread. Private to compare.c. */
#pragma once

#include "analysis/compare.h"

/* Neighbouring rows of the same two passes: pairs order[first .. first+count-1]. */
struct compare_run {
    uint32_t first, count;
    uint32_t a_row, b_row;
};

/* All pairs of the same two passes. */
struct compare_group {
    uint32_t a_pass, b_pass;
    uint32_t first_run, run_count;
    uint32_t first, count; /* in `order` */
};

enum { COMPARE_ROWS_WITNESSES = 8 };

struct compare_rows_shared { /* read by all threads */
    const struct side *sides[2];
    const struct observations_files *files[2];
    const struct alignment *alignment;
    const struct observations *observations;
    struct diff *diff;
    struct compare_found *found;
    uint32_t *order; /* pairs by passes and rows */
    struct compare_run *runs;
    struct compare_group *groups;
    size_t run_count, group_count;
    uint32_t witnesses[2][COMPARE_ROWS_WITNESSES]; /* passes of different sizes */
    size_t witness_count[2];
    size_t first_target;
    bool strict_zero;
};

struct compare_rows { /* of one thread */
    const struct compare_rows_shared *shared;
    struct pt_file *files[2];
    uint32_t open_pass[2]; /* what is open, of `observation` */
    bool usable[2];
    size_t observation;
    uint64_t files_opened, bytes_read;
};

void compare_rows_init(struct compare_rows *rows, const struct compare_rows_shared *shared);
void compare_rows_fini(struct compare_rows *rows);

void compare_rows_observation(struct compare_rows *rows, size_t observation);

/* The tensor of a pass, opened unless it is; NULL: no file, or trouble (kept). */
const struct pt_file_tensor *compare_rows_open(struct compare_rows *rows, bool of_b, uint32_t pass);
