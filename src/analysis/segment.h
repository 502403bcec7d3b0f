/* Cuts one forward pass into the pieces that belong to its requests. Nothing says where a request's rows begin or which
 * phase a pass is: only input_ids [T], positions [T], seq_lens [B] (the total context, this pass included) and rids [B]
 * are written (SGLang 0.5.10 to 0.5.23, dumper.py). The cut is unique: p0 = positions[r], n = seq_lens[i] - p0, and the
 * n rows must hold p0, p0+1, ...: no search (facts/dump-analysis.md 3.2). Pure; any thread. */
#pragma once

#include "base/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum segment_kind {
    SEGMENT_FRESH,  /* starts at position 0 */
    SEGMENT_EXTEND, /* starts later and has several rows: a chunk, or the rest behind a cached prefix */
    SEGMENT_DECODE, /* one row at a position > 0: a decode pass, or the last chunk of one token: the rows do not tell */
    SEGMENT_VERIFY, /* draft tokens behind seq_lens, which does not count them (speculative decoding) */
    SEGMENT_PADDING, /* filler rows: no request */
};

struct segment {
    enum segment_kind kind;
    uint32_t request; /* index in seq_lens */
    uint32_t row;     /* first of its rows */
    uint32_t rows;
    int64_t position; /* of the first row */
    bool tree;        /* of VERIFY: positions repeat (several branches), and which row follows which is not said */
};

struct segment_input {
    const int64_t *ids, *positions; /* [tokens]; ids may be NULL */
    size_t tokens;
    const int64_t *lengths; /* [requests]: seq_lens */
    size_t requests;
    size_t named; /* how many of the requests have an id in rids; SIZE_MAX: there is no rids file */
};

/* Fills `ret_segments` (room for requests + 1), in the order of the rows; an empty pass has none. Padding is what
 * stands behind the named requests: rows at position 0, in one segment whose `request` is the first filler entry.
 * Without rids the entries with length 1, position 0 and id 0 at the end count as filler: a one-token prompt of token 0
 * there looks the same. ERROR_FORMAT with the first contradicting row and both numbers: "positions[40] is 0, but
 * seq_lens[1] = 96 needs 41 to 95 there"; also for a negative token id (not known yet: the overlap schedule).
 * ERROR_TOO_LARGE. */
enum error_code segment_cut(const struct segment_input *input, struct segment *ret_segments, size_t *ret_count,
                            struct error *err);
