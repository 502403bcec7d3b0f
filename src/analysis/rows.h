/* Which dimension of a tensor counts tokens or requests, judged by the shapes that it has in passes of different sizes,
 * of both sides (facts/dump-analysis.md 3.4). Pure; any thread. */
#pragma once

#include "analysis/diff.h"
#include "pt/pt_file.h"

struct rows_reading {
    enum diff_rows rows;
    unsigned dimension; /* of TOKEN and REQUEST */
    uint64_t factor;    /* TOKEN: this many times the tokens of the pass */
    bool by_part;       /* of factor > 1: all tokens of the first part, then all of the second; else token by token */
};

enum { ROWS_READINGS = 2 * PT_FILE_RANK_MAX + 1 };

/* The readings that all tensors so far allow. */
struct rows {
    bool begun;
    bool ranks_differ; /* tensors with another number of dimensions */
    bool varied;       /* passes of different numbers of tokens were seen */
    uint64_t tokens;   /* of the first */
    unsigned rank;
    uint64_t size[PT_FILE_RANK_MAX]; /* of the first */
    struct rows_reading readings[ROWS_READINGS];
    unsigned count;
};

/* Narrows down by a tensor of a pass with so many tokens and requests. The first one begins. */
void rows_narrow(struct rows *rows, const struct pt_file_tensor *tensor, uint64_t tokens, uint64_t requests);

/* True where readings of different meaning are left: another pass may decide. */
bool rows_open(const struct rows *rows);

/* The reading that is right or, among several, compares only what every one of them allows; DIFF_ROWS_NONE where none
 * fits, DIFF_ROWS_UNCLEAR where two fit that exclude each other. */
struct rows_reading rows_choose(const struct rows *rows);

/* True where both tensors can be read so: the counted dimension is that of their pass, the others are equal. */
bool rows_fit(const struct rows_reading *reading, const struct pt_file_tensor *a, uint64_t a_tokens,
              uint64_t a_requests, const struct pt_file_tensor *b, uint64_t b_tokens, uint64_t b_requests);

/* Elements `*ret_first` + i * `*ret_step`, i < *ret_pieces, each `*ret_length` long, are row `row` of a tensor: of
 * DIFF_ROWS_SHARED, the whole tensor (row 0). False: the tensor has no such row. */
bool rows_pieces(const struct rows_reading *reading, const struct pt_file_tensor *tensor, uint64_t row,
                 uint64_t *ret_first, uint64_t *ret_step, uint64_t *ret_pieces, uint64_t *ret_length);
