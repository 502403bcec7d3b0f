#include "analysis/segment.h"

#include <inttypes.h>

static enum segment_kind kind_of(int64_t position, size_t rows)
{
    return position == 0 ? SEGMENT_FRESH : rows > 1 ? SEGMENT_EXTEND : SEGMENT_DECODE;
}

/* Rows that hold position, position + 1, ...: how many of the `rows`. */
static size_t run_length(const int64_t *positions, size_t rows)
{
    size_t length = 1;
    while (length < rows && positions[length] - positions[0] == (int64_t)length)
        length++;
    return length;
}

/* The piece of request `i`, whose first row is `row`. */
static enum error_code cut_one(const struct segment_input *input, size_t i, size_t row, struct segment *ret_segment,
                               struct error *err)
{
    int64_t length = input->lengths[i];
    if (row >= input->tokens)
        return error_set(err, ERROR_FORMAT, "seq_lens[%zu] = %" PRId64 " needs a row, but the pass has only %zu", i,
                         length, input->tokens);
    int64_t position = input->positions[row];
    if (position < 0)
        return error_set(err, ERROR_FORMAT, "positions[%zu] is %" PRId64, row, position);
    if (length <= position)
        return error_set(err, ERROR_FORMAT,
                         "positions[%zu] is %" PRId64 ", but seq_lens[%zu] = %" PRId64 " ends before it", row, position,
                         i, length);
    uint64_t rows = (uint64_t)(length - position);
    size_t there = rows < input->tokens - row ? (size_t)rows : input->tokens - row;
    size_t run = run_length(input->positions + row, there);
    if (run < there)
        return error_set(err, ERROR_FORMAT,
                         "positions[%zu] is %" PRId64 ", but seq_lens[%zu] = %" PRId64 " needs %" PRId64 " to %" PRId64
                         " there",
                         row + run, input->positions[row + run], i, length, position + (int64_t)run, length - 1);
    if (there < rows)
        return error_set(err, ERROR_FORMAT,
                         "seq_lens[%zu] = %" PRId64 " needs positions %" PRId64 " to %" PRId64
                         " from row %zu on, but the pass has only %zu rows",
                         i, length, position, length - 1, row, input->tokens);
    *ret_segment = (struct segment){.kind = kind_of(position, (size_t)rows),
                                    .request = (uint32_t)i,
                                    .row = (uint32_t)row,
                                    .rows = (uint32_t)rows,
                                    .position = position};
    return ERROR_NONE;
}

/* Filler rows `row` to the end. */
static enum error_code cut_padding(const struct segment_input *input, size_t requests, size_t row,
                                   struct segment *segments, size_t *count, struct error *err)
{
    for (size_t i = row; i < input->tokens; i++)
        if (input->positions[i] != 0)
            return error_set(err, ERROR_FORMAT,
                             "positions[%zu] is %" PRId64 ", but the %zu requests end with row %zu, and filler has 0",
                             i, input->positions[i], requests, row);
    if (row < input->tokens)
        segments[(*count)++] = (struct segment){.kind = SEGMENT_PADDING,
                                                .request = (uint32_t)requests,
                                                .row = (uint32_t)row,
                                                .rows = (uint32_t)(input->tokens - row)};
    return ERROR_NONE;
}

/* Without names: entries at the end that look like filler, one row each. */
static size_t count_fillers(const struct segment_input *input)
{
    size_t count = 0;
    if (input->named != SIZE_MAX || input->ids == NULL)
        return 0;
    while (count < input->requests && count < input->tokens && input->lengths[input->requests - 1 - count] == 1 &&
           input->positions[input->tokens - 1 - count] == 0 && input->ids[input->tokens - 1 - count] == 0)
        count++;
    return count;
}

static enum error_code cut_usual(const struct segment_input *input, size_t requests, struct segment *segments,
                                 size_t *ret_count, struct error *err)
{
    size_t row = 0, count = 0;
    for (size_t i = 0; i < requests; i++) {
        enum error_code code = cut_one(input, i, row, &segments[count], err);
        if (code != ERROR_NONE)
            return code;
        row += segments[count++].rows;
    }
    enum error_code code = cut_padding(input, requests, row, segments, &count, err);
    if (code == ERROR_NONE)
        *ret_count = count;
    return code;
}

/* A block of draft tokens: the first at the request's length, each further one at most one deeper than those before. */
static bool is_draft(const int64_t *positions, size_t rows, int64_t length, bool *ret_tree)
{
    int64_t deepest = length;
    bool tree = false;
    if (positions[0] != length)
        return false;
    for (size_t i = 1; i < rows; i++) {
        if (positions[i] <= length || positions[i] > deepest + 1)
            return false;
        tree |= positions[i] != deepest + 1;
        deepest = positions[i] > deepest ? positions[i] : deepest;
    }
    *ret_tree = tree;
    return true;
}

/* The same number of draft rows for each request. */
static bool cut_drafts(const struct segment_input *input, size_t requests, struct segment *segments, size_t *ret_count)
{
    size_t rows = input->requests == 0 ? 0 : input->tokens / input->requests;
    if (rows == 0 || requests == 0 || rows * input->requests != input->tokens)
        return false;
    for (size_t i = 0; i < requests; i++) {
        int64_t length = input->lengths[i];
        bool tree;
        if (length <= 0 || !is_draft(input->positions + i * rows, rows, length, &tree))
            return false;
        segments[i] = (struct segment){.kind = SEGMENT_VERIFY,
                                       .request = (uint32_t)i,
                                       .row = (uint32_t)(i * rows),
                                       .rows = (uint32_t)rows,
                                       .position = length,
                                       .tree = tree};
    }
    *ret_count = requests;
    if (requests < input->requests)
        segments[(*ret_count)++] = (struct segment){.kind = SEGMENT_PADDING,
                                                    .request = (uint32_t)requests,
                                                    .row = (uint32_t)(requests * rows),
                                                    .rows = (uint32_t)((input->requests - requests) * rows)};
    return true;
}

static enum error_code check_ids(const struct segment_input *input, const struct segment *segments, size_t count,
                                 struct error *err)
{
    for (size_t i = 0; i < count && input->ids != NULL; i++)
        for (size_t row = segments[i].row; row < segments[i].row + (size_t)segments[i].rows; row++)
            if (segments[i].kind != SEGMENT_PADDING && input->ids[row] < 0)
                return error_set(err, ERROR_FORMAT,
                                 "input_ids[%zu] is %" PRId64 ": the token was not known yet (overlap schedule)", row,
                                 input->ids[row]);
    return ERROR_NONE;
}

enum error_code segment_cut(const struct segment_input *input, struct segment *ret_segments, size_t *ret_count,
                            struct error *err)
{
    size_t count, requests = input->named != SIZE_MAX ? input->named : input->requests - count_fillers(input);
    if (input->tokens > UINT32_MAX || input->requests >= UINT32_MAX)
        return error_set(err, ERROR_TOO_LARGE, "%zu rows of %zu requests", input->tokens, input->requests);
    if (requests > input->requests)
        return error_set(err, ERROR_FORMAT, "rids names %zu requests, but seq_lens has %zu", requests, input->requests);
    enum error_code code = cut_usual(input, requests, ret_segments, &count, err);
    if (code != ERROR_NONE && !cut_drafts(input, requests, ret_segments, &count))
        return code;
    code = check_ids(input, ret_segments, count, err);
    if (code == ERROR_NONE)
        *ret_count = count;
    return code;
}
