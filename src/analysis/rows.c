/* A list of readings that shrinks with every shape. */
#include "analysis/rows.h"

#include <string.h>

static void begin(struct rows *rows, const struct pt_file_tensor *tensor, uint64_t tokens, uint64_t requests)
{
    *rows = (struct rows){.begun = true, .tokens = tokens, .rank = tensor->rank};
    memcpy(rows->size, tensor->size, tensor->rank * sizeof *tensor->size);
    for (unsigned d = 0; d < tensor->rank; d++) {
        if (tokens > 0 && tensor->size[d] > 0 && tensor->size[d] % tokens == 0)
            rows->readings[rows->count++] =
                (struct rows_reading){.rows = DIFF_ROWS_TOKEN, .dimension = d, .factor = tensor->size[d] / tokens};
        if (requests > 0 && tensor->size[d] == requests)
            rows->readings[rows->count++] =
                (struct rows_reading){.rows = DIFF_ROWS_REQUEST, .dimension = d, .factor = 1};
    }
    rows->readings[rows->count++] = (struct rows_reading){.rows = DIFF_ROWS_SHARED, .factor = 1};
}

static bool fits(const struct rows *rows, const struct rows_reading *reading, const struct pt_file_tensor *tensor,
                 uint64_t tokens, uint64_t requests)
{
    for (unsigned d = 0; d < tensor->rank; d++) {
        bool counted = reading->rows != DIFF_ROWS_SHARED && d == reading->dimension;
        uint64_t wanted = !counted                           ? rows->size[d]
                          : reading->rows == DIFF_ROWS_TOKEN ? reading->factor * tokens
                                                             : requests;
        if (tensor->size[d] != wanted)
            return false;
    }
    return true;
}

void rows_narrow(struct rows *rows, const struct pt_file_tensor *tensor, uint64_t tokens, uint64_t requests)
{
    if (!rows->begun) {
        begin(rows, tensor, tokens, requests);
        return;
    }
    rows->varied |= tokens != rows->tokens;
    if (tensor->rank != rows->rank) {
        rows->ranks_differ = true;
        rows->count = 0;
        return;
    }
    unsigned kept = 0;
    for (unsigned i = 0; i < rows->count; i++)
        if (fits(rows, &rows->readings[i], tensor, tokens, requests))
            rows->readings[kept++] = rows->readings[i];
    rows->count = kept;
}

bool rows_open(const struct rows *rows)
{
    return rows->count > 1;
}

static const struct rows_reading *find(const struct rows *rows, enum diff_rows kind, bool first_dimension)
{
    for (unsigned i = 0; i < rows->count; i++)
        if (rows->readings[i].rows == kind && (!first_dimension || rows->readings[i].dimension == 0))
            return &rows->readings[i];
    return NULL;
}

struct rows_reading rows_choose(const struct rows *rows)
{
    const struct rows_reading *token = find(rows, DIFF_ROWS_TOKEN, true);
    const struct rows_reading *request = find(rows, DIFF_ROWS_REQUEST, true);
    const struct rows_reading *shared = find(rows, DIFF_ROWS_SHARED, false);
    if (rows->count == 0)
        return (struct rows_reading){.rows = DIFF_ROWS_NONE};
    if (token != NULL && (token->factor == 1 || shared == NULL))
        return *token;
    if (request != NULL)
        return *request;
    /* One token in every pass: the whole tensor is its row, whatever else it may be. */
    if (token != NULL && !rows->varied && rows->tokens == 1)
        return *token;
    if (token == NULL)
        token = find(rows, DIFF_ROWS_TOKEN, false);
    if (request == NULL)
        request = find(rows, DIFF_ROWS_REQUEST, false);
    if (shared != NULL && (token == NULL || rows->varied))
        return request != NULL ? *request : *shared;
    if (shared == NULL && token != NULL && request == NULL)
        return *token;
    if (shared == NULL && token == NULL && request != NULL)
        return *request;
    return (struct rows_reading){.rows = DIFF_ROWS_UNCLEAR};
}

bool rows_fit(const struct rows_reading *reading, const struct pt_file_tensor *a, uint64_t a_tokens,
              uint64_t a_requests, const struct pt_file_tensor *b, uint64_t b_tokens, uint64_t b_requests)
{
    if (a->rank != b->rank)
        return false;
    for (unsigned d = 0; d < a->rank; d++) {
        bool counted = reading->rows != DIFF_ROWS_SHARED && d == reading->dimension;
        if (!counted && a->size[d] != b->size[d])
            return false;
        if (counted && reading->rows == DIFF_ROWS_TOKEN &&
            (a->size[d] != reading->factor * a_tokens || b->size[d] != reading->factor * b_tokens))
            return false;
        if (counted && reading->rows == DIFF_ROWS_REQUEST && (a->size[d] != a_requests || b->size[d] != b_requests))
            return false;
    }
    return true;
}

bool rows_pieces(const struct rows_reading *reading, const struct pt_file_tensor *tensor, uint64_t row,
                 uint64_t *ret_first, uint64_t *ret_step, uint64_t *ret_pieces, uint64_t *ret_length)
{
    if (reading->rows == DIFF_ROWS_SHARED) {
        *ret_first = *ret_step = 0;
        *ret_pieces = 1;
        *ret_length = tensor->elements;
        return row == 0;
    }
    if (reading->dimension >= tensor->rank || (row + 1) * reading->factor > tensor->size[reading->dimension])
        return false;
    uint64_t outer = 1, inner = 1;
    for (unsigned d = 0; d < tensor->rank; d++)
        if (d < reading->dimension)
            outer *= tensor->size[d];
        else if (d > reading->dimension)
            inner *= tensor->size[d];
    if (reading->by_part && outer == 1) {
        *ret_length = inner;
        *ret_first = row * inner;
        *ret_step = tensor->size[reading->dimension] / reading->factor * inner;
        *ret_pieces = reading->factor;
        return true;
    }
    *ret_length = reading->factor * inner;
    *ret_first = row * *ret_length;
    *ret_step = tensor->size[reading->dimension] * inner;
    *ret_pieces = outer;
    return true;
}
