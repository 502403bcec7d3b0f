/* The order of work, and the threads. */
#include "analysis/compare.h"

#include "analysis/compare_rows.h"
#include "analysis/workers.h"
#include "base/buffer.h"
#include "base/memory.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

struct compare {
    struct compare_rows_shared shared;
    struct compare_options options;
    struct compare_rows reader; /* of compare_row */
    atomic_size_t next;
    size_t last;
    pthread_mutex_t lock; /* of the counters of the diff */
};

static int by_passes(const void *x, const void *y, void *pairs)
{
    const struct alignment_pair *all = pairs, *a = &all[*(const uint32_t *)x], *b = &all[*(const uint32_t *)y];
    uint64_t keys[4][2] = {{a->a_pass, b->a_pass}, {a->b_pass, b->b_pass}, {a->a_row, b->a_row}, {a->b_row, b->b_row}};
    for (int i = 0; i < 4; i++)
        if (keys[i][0] != keys[i][1])
            return keys[i][0] < keys[i][1] ? -1 : 1;
    return *(const uint32_t *)x < *(const uint32_t *)y ? -1 : 1;
}

static void make_runs(struct compare_rows_shared *shared)
{
    const struct alignment *alignment = shared->alignment;
    size_t count = alignment->pair_count;
    shared->order = memory_new((count + 1) * sizeof *shared->order);
    shared->runs = memory_new((count + 1) * sizeof *shared->runs);
    shared->groups = memory_new((count + 1) * sizeof *shared->groups);
    for (size_t i = 0; i < count; i++)
        shared->order[i] = (uint32_t)i;
    qsort_r(shared->order, count, sizeof *shared->order, by_passes, alignment->pairs);
    for (uint32_t i = 0; i < count; i++) {
        const struct alignment_pair *pair = &alignment->pairs[shared->order[i]];
        struct compare_group *group = shared->group_count == 0 ? NULL : &shared->groups[shared->group_count - 1];
        struct compare_run *run = shared->run_count == 0 ? NULL : &shared->runs[shared->run_count - 1];
        bool same = group != NULL && group->a_pass == pair->a_pass && group->b_pass == pair->b_pass;
        if (!same) {
            group = &shared->groups[shared->group_count++];
            *group = (struct compare_group){
                .a_pass = pair->a_pass, .b_pass = pair->b_pass, .first_run = (uint32_t)shared->run_count, .first = i};
        }
        if (!same || run->a_row + run->count != pair->a_row || run->b_row + run->count != pair->b_row) {
            run = &shared->runs[shared->run_count++];
            *run = (struct compare_run){.first = i, .a_row = pair->a_row, .b_row = pair->b_row};
            group->run_count++;
        }
        run->count++;
        group->count++;
    }
}

/* Passes of different sizes, in their order: what tells apart a dimension of tokens and one that happens to be equal.
 */
static void find_witnesses(struct compare_rows_shared *shared, int of)
{
    const struct side *side = shared->sides[of];
    for (uint32_t i = 0; i < side->pass_count && shared->witness_count[of] < COMPARE_ROWS_WITNESSES; i++) {
        bool seen = shared->files[of]->of_pass[i] == NULL;
        for (size_t k = 0; k < shared->witness_count[of] && !seen; k++) {
            const struct side_pass *other = &side->passes[shared->witnesses[of][k]];
            seen = other->tokens == side->passes[i].tokens && other->requests == side->passes[i].requests;
        }
        if (!seen)
            shared->witnesses[of][shared->witness_count[of]++] = i;
    }
}

struct compare *compare_new(const struct side *a, const struct side *b, const struct alignment *alignment,
                            const struct observations *observations, const struct compare_options *options,
                            struct diff *diff)
{
    struct compare *compare = memory_new(sizeof *compare);
    compare->options = *options;
    compare->shared = (struct compare_rows_shared){.sides = {a, b},
                                                   .files = {&observations->a, &observations->b},
                                                   .alignment = alignment,
                                                   .observations = observations,
                                                   .diff = diff,
                                                   .strict_zero = options->strict_zero,
                                                   .first_target = SIZE_MAX};
    diff->equal_marks = memory_new(alignment->pair_count + 1);
    memset(diff->equal_marks, DIFF_MARK_EQUAL, alignment->pair_count);
    compare->shared.found = memory_new((observations->count + 1) * sizeof *compare->shared.found);
    for (size_t i = alignment->pair_count; i-- > 0;)
        if (alignment->pairs[i].target)
            compare->shared.first_target = i;
    make_runs(&compare->shared);
    find_witnesses(&compare->shared, 0);
    find_witnesses(&compare->shared, 1);
    compare_rows_init(&compare->reader, &compare->shared);
    pthread_mutex_init(&compare->lock, NULL);
    return compare;
}

void compare_free(struct compare *compare)
{
    if (compare == NULL)
        return;
    for (size_t i = 0; i < compare->shared.observations->count; i++)
        free(compare->shared.found[i].trouble.text);
    free(compare->shared.found);
    free(compare->shared.order);
    free(compare->shared.runs);
    free(compare->shared.groups);
    compare_rows_fini(&compare->reader);
    pthread_mutex_destroy(&compare->lock);
    free(compare);
}

/* Takes observations until none is left. */
static void work(void *context, bool shows)
{
    struct compare *compare = context;
    struct compare_rows rows;
    compare_rows_init(&rows, &compare->shared);
    for (;;) {
        size_t index = atomic_fetch_add(&compare->next, 1);
        if (index >= compare->last)
            break;
        compare_rows_observation(&rows, index);
        if (shows && compare->options.progress != NULL)
            compare->options.progress(compare->options.context, index, compare->shared.observations->count);
    }
    pthread_mutex_lock(&compare->lock);
    compare->shared.diff->files_opened += rows.files_opened;
    compare->shared.diff->bytes_read += rows.bytes_read;
    pthread_mutex_unlock(&compare->lock);
    compare_rows_fini(&rows);
}

void compare_range(struct compare *compare, size_t first, size_t last)
{
    if (first >= last)
        return;
    atomic_store(&compare->next, first);
    compare->last = last;
    workers_run(compare->options.threads, last - first, work, compare);
}

const struct compare_found *compare_found(const struct compare *compare, size_t observation)
{
    return &compare->shared.found[observation];
}

bool compare_row_at(struct compare *compare, size_t observation, bool of_b, uint32_t pass, uint64_t row,
                    struct buffer *ret_row)
{
    struct compare_rows *rows = &compare->reader;
    const struct rows_reading *reading = &compare->shared.found[observation].reading;
    uint64_t first, step, pieces, length;
    if (rows->observation != observation) {
        rows->observation = observation;
        rows->open_pass[0] = rows->open_pass[1] = OBSERVATIONS_NONE;
    }
    const struct pt_file_tensor *tensor = compare_rows_open(rows, of_b, pass);
    if (tensor == NULL || reading->rows == DIFF_ROWS_NONE || reading->rows == DIFF_ROWS_UNCLEAR ||
        !rows_pieces(reading, tensor, row, &first, &step, &pieces, &length))
        return false;
    size_t bytes = pt_dtype_bytes(tensor->dtype), before = ret_row->length;
    if (length > PT_FILE_WINDOW / bytes || pieces * length > PT_FILE_WINDOW / bytes)
        return false;
    for (uint64_t piece = 0; piece < pieces; piece++) {
        const void *elements;
        if (pt_file_elements(rows->files[of_b], first + piece * step, length, &elements, NULL) != ERROR_NONE) {
            ret_row->length = before;
            return false;
        }
        buffer_append(ret_row, elements, length * bytes);
    }
    return true;
}

bool compare_row(struct compare *compare, size_t observation, size_t pair, bool of_b, struct buffer *ret_row)
{
    const struct alignment_pair *of = &compare->shared.alignment->pairs[pair];
    const struct rows_reading *reading = &compare->shared.found[observation].reading;
    uint64_t row = reading->rows == DIFF_ROWS_SHARED    ? 0
                   : reading->rows == DIFF_ROWS_REQUEST ? (of_b ? of->b_request : of->a_request)
                                                        : (of_b ? of->b_row : of->a_row);
    return compare_row_at(compare, observation, of_b, of_b ? of->b_pass : of->a_pass, row, ret_row);
}
