/* compute.c: see compute.h. */
#include "compute.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "faults.h"
#include "knobs.h"
#include "kv.h"
#include "operators.h"
#include "text.h"
#include "weights.h"

static const float EPSILON = 1e-5F, WRONG_EPSILON = 0.05F;
enum { SPLITS = 4, EVICTED = 4, BLOCK = 16 }; /* of the faults batch-variant, window-eviction and length-split */

enum buffer {
    STREAM,
    RESIDUAL,
    SUMMED,
    NORMED,
    QUERY,
    KEY,
    VALUE,
    ROTATED_QUERY,
    ROTATED_KEY,
    ATTENTION,
    MIXED,
    MIXED_GATE,
    SCANNED,
    PROJECTED,
    NORMED_AGAIN,
    SUMMED_AGAIN,
    GATE,
    UP,
    ACTIVATED,
    ROUTER,
    TOPK_WEIGHTS,
    TOPK_IDS,
    EXPERT_GATE,
    EXPERT_UP,
    EXPERT_ACTIVATED,
    EXPERTS,
    DOWN,
    ANGLES,
    BUFFER_COUNT
};

/* The pieces of a value, and whether each rank holds a part of them. */
static const struct {
    enum buffer pieces[3];
    unsigned count;
    bool divided;
} VALUES[COMPUTE_COUNT] = {
    [COMPUTE_STREAM] = {{STREAM}, 1, false},
    [COMPUTE_RESIDUAL] = {{RESIDUAL}, 1, false},
    [COMPUTE_SUMMED] = {{SUMMED}, 1, false},
    [COMPUTE_NORMED] = {{NORMED}, 1, false},
    [COMPUTE_QUERY] = {{QUERY}, 1, true},
    [COMPUTE_KEY] = {{KEY}, 1, true},
    [COMPUTE_VALUE] = {{VALUE}, 1, true},
    [COMPUTE_FUSED] = {{QUERY, KEY, VALUE}, 3, true},
    [COMPUTE_ROTATED_QUERY] = {{ROTATED_QUERY}, 1, true},
    [COMPUTE_ROTATED_KEY] = {{ROTATED_KEY}, 1, true},
    [COMPUTE_ATTENTION] = {{ATTENTION}, 1, true},
    [COMPUTE_MIXED] = {{MIXED, MIXED_GATE}, 2, true},
    [COMPUTE_SCANNED] = {{SCANNED}, 1, true},
    [COMPUTE_PROJECTED] = {{PROJECTED}, 1, false},
    [COMPUTE_NORMED_AGAIN] = {{NORMED_AGAIN}, 1, false},
    [COMPUTE_SUMMED_AGAIN] = {{SUMMED_AGAIN}, 1, false},
    [COMPUTE_GATE_UP] = {{GATE, UP}, 2, true},
    [COMPUTE_ACTIVATED] = {{ACTIVATED}, 1, true},
    [COMPUTE_ROUTER] = {{ROUTER}, 1, false},
    [COMPUTE_TOPK_WEIGHTS] = {{TOPK_WEIGHTS}, 1, false},
    [COMPUTE_TOPK_IDS] = {{TOPK_IDS}, 1, false},
    [COMPUTE_EXPERTS] = {{EXPERTS}, 1, true},
    [COMPUTE_DOWN] = {{DOWN}, 1, false},
};

static struct {
    const struct model *model;
    const struct forward_pass *pass;
    enum torch_file_type type;
    size_t rows, ranks;
    const int64_t **contexts; /* for each row: the locations of its request, position by position */
    int64_t *lengths;         /* ... and how many these are */
    float *numbers[BUFFER_COUNT];
    size_t widths[BUFFER_COUNT];
    size_t capacity; /* rows that there is room for */
    /* room for the positions that one row of attention sees */
    const float **keys, **values;
    float *scores;
    size_t positions;
} state;

static float *at(enum buffer buffer, size_t row)
{
    return state.numbers[buffer] + row * state.widths[buffer];
}

/* ------------------------------------------------------------------ room */

static void set_widths(const struct model *model, size_t ranks)
{
    for (int i = 0; i < BUFFER_COUNT; i++)
        state.widths[i] = model->hidden;
    static const enum buffer QUERIES[] = {QUERY, ROTATED_QUERY, ATTENTION, MIXED, MIXED_GATE, SCANNED};
    for (size_t i = 0; i < sizeof QUERIES / sizeof QUERIES[0]; i++)
        state.widths[QUERIES[i]] = model->query_width;
    state.widths[KEY] = state.widths[VALUE] = state.widths[ROTATED_KEY] = model->key_value_width;
    state.widths[GATE] = state.widths[UP] = state.widths[ACTIVATED] = model->intermediate;
    state.widths[EXPERT_GATE] = state.widths[EXPERT_UP] = state.widths[EXPERT_ACTIVATED] = model->expert_width;
    state.widths[ROUTER] = model->experts;
    state.widths[TOPK_WEIGHTS] = state.widths[TOPK_IDS] = model->experts_per_token;
    state.widths[EXPERTS] = model->experts > 0 ? model->hidden * ranks : 0;
    state.widths[ANGLES] = model->head;
}

static void make_room(size_t rows)
{
    if (rows <= state.capacity)
        return;
    state.capacity = rows;
    for (int i = 0; i < BUFFER_COUNT; i++) {
        free(state.numbers[i]);
        state.numbers[i] = text_allocate(rows * state.widths[i] * sizeof(float));
    }
    free((void *)state.contexts);
    free(state.lengths);
    state.contexts = text_allocate(rows * sizeof state.contexts[0]);
    state.lengths = text_allocate(rows * sizeof state.lengths[0]);
}

static void make_room_to_attend(size_t positions)
{
    if (positions <= state.positions)
        return;
    state.positions = 2 * positions;
    free((void *)state.keys);
    free((void *)state.values);
    free(state.scores);
    state.keys = text_allocate(state.positions * sizeof state.keys[0]);
    state.values = text_allocate(state.positions * sizeof state.values[0]);
    state.scores = text_allocate(state.positions * sizeof state.scores[0]);
}

/* ------------------------------------------------------------------ faults */

static bool hits(enum faults_name fault, size_t layer)
{
    return faults_on(fault) && faults_number(fault) == (long long)layer;
}

/* A kernel that splits its sum when there is one row alone, or few. */
static size_t splits(size_t layer, const char *projection)
{
    const char *named = strchr(faults_value(FAULTS_BATCH_VARIANT), ':');
    const char *name = named != NULL ? named + 1 : "down_proj", *rows = strchr(name, ':');
    size_t length = rows != NULL ? (size_t)(rows - name) : strlen(name),
           most = rows != NULL ? (size_t)atol(rows + 1) : 1;
    bool this_one = strlen(projection) == length && strncmp(name, projection, length) == 0;
    return state.rows <= most && this_one && hits(FAULTS_BATCH_VARIANT, layer) ? SPLITS : 1;
}

/* ------------------------------------------------------------------ attention */

/* The fault: what is not ordered falls out one way or the other, and otherwise in another process. */
static bool loses_race(size_t layer, int64_t position)
{
    static unsigned long start;
    if (!hits(FAULTS_RACE, layer))
        return false;
    if (start == 0)
        start = (unsigned long)(knobs_seconds() * 1e9) | 1;
    return operators_hash(start, (uint64_t)position, 1.0F) < -0.5F;
}

/* What a decode at this position has forgotten of the beginning of its context. */
static size_t forgotten(int64_t position)
{
    if (faults_on(FAULTS_WINDOW_EVICTION) && position >= faults_number(FAULTS_WINDOW_EVICTION))
        return EVICTED;
    if (faults_on(FAULTS_PAGE_GAP) && position >= faults_number(FAULTS_PAGE_GAP))
        return state.model->page_size;
    return 0;
}

/* From which of its positions on a row sees, and how many. */
static void visible(size_t layer, int64_t position, size_t *ret_begin, size_t *ret_end)
{
    size_t begin = 0, end = (size_t)position + 1, window = state.model->window;
    if (window > 0 && end > window)
        begin = end - window;
    if (state.pass->decode && (hits(FAULTS_KV_OFF_BY_ONE, layer) || loses_race(layer, position)) && end - begin > 1)
        end--;
    if (state.pass->decode && begin + forgotten(position) < end)
        begin += forgotten(position);
    *ret_begin = begin;
    *ret_end = end;
}

/* A kernel that orders its sum by the length of the request. */
static bool is_backwards(size_t layer, size_t row)
{
    return hits(FAULTS_LENGTH_SPLIT, layer) && state.lengths[row] / BLOCK % 2 == 1;
}

static void attend(size_t layer, size_t row)
{
    const struct model *model = state.model;
    int64_t position = state.pass->positions[row];
    size_t begin, end, width = model->key_value_width;
    float *kept = kv_row(model, state.contexts[row][position], layer);
    memcpy(kept, at(ROTATED_KEY, row), width * sizeof kept[0]);
    memcpy(kept + width, at(VALUE, row), width * sizeof kept[0]);
    visible(layer, position, &begin, &end);
    make_room_to_attend(end);
    for (size_t i = begin; i < end; i++) {
        size_t place = is_backwards(layer, row) ? end - 1 - i : i - begin;
        state.keys[place] = kv_row(model, state.contexts[row][i], layer);
        state.values[place] = state.keys[place] + width;
    }
    operators_attend(state.type, at(ROTATED_QUERY, row), state.keys, state.values, end - begin, model->heads,
                     model->key_value_heads, model->head, state.scores, at(ATTENTION, row));
}

static void attention(size_t layer, const struct weights_layer *weights, size_t row)
{
    const struct model *model = state.model;
    size_t parts = splits(layer, "qkv_proj");
    operators_product(&weights->query, state.type, at(NORMED, row), parts, at(QUERY, row));
    operators_product(&weights->key, state.type, at(NORMED, row), parts, at(KEY, row));
    operators_product(&weights->value, state.type, at(NORMED, row), parts, at(VALUE, row));
    operators_rotate(state.type, at(QUERY, row), at(ANGLES, row), model->heads, model->head, at(ROTATED_QUERY, row));
    operators_rotate(state.type, at(KEY, row), at(ANGLES, row), model->key_value_heads, model->head,
                     at(ROTATED_KEY, row));
    attend(layer, row);
}

/* ------------------------------------------------------------------ recurrence */

/* A state that a decode keeps with fewer bits than the scan of a prefill. */
static void shorten_state(size_t layer, float *numbers, size_t count)
{
    if (state.pass->decode && hits(FAULTS_STATE_UPDATE, layer))
        operators_round(TORCH_FILE_BFLOAT16, numbers, count);
}

/* The fault: at this position the slot of state and convolution has been given to somebody else. */
static bool is_rotated(int64_t position)
{
    return state.pass->decode && faults_on(FAULTS_CHECKPOINT_ROTATION) &&
           position == faults_number(FAULTS_CHECKPOINT_ROTATION);
}

static void forget_inputs(size_t layer, const int64_t *context, int64_t position)
{
    for (int64_t tap = 1; tap < WEIGHTS_TAPS && tap <= position; tap++)
        memset(kv_row(state.model, context[position - tap], layer), 0, state.model->query_width * sizeof(float));
}

static void recurrence(size_t layer, const struct weights_layer *weights, size_t row)
{
    const struct model *model = state.model;
    int64_t position = state.pass->positions[row];
    const int64_t *context = state.contexts[row];
    size_t width = model->query_width;
    operators_product(&weights->mixed, state.type, at(NORMED, row), 1, at(MIXED, row));
    operators_product(&weights->mixed_gate, state.type, at(NORMED, row), 1, at(MIXED_GATE, row));
    float *kept = kv_row(model, context[position], layer), *output = at(SCANNED, row);
    memcpy(kept, at(MIXED, row), width * sizeof kept[0]);
    memset(output, 0, width * sizeof output[0]);
    if (is_rotated(position))
        forget_inputs(layer, context, position);
    for (int64_t tap = 0; tap < WEIGHTS_TAPS && tap <= position; tap++) {
        const float *input = kv_row(model, context[position - tap], layer);
        for (size_t i = 0; i < width; i++)
            output[i] += input[i] * weights->taps[i * WEIGHTS_TAPS + (size_t)tap];
    }
    float *now = kept + width;
    memset(now, 0, width * sizeof now[0]);
    if (position > 0 && !is_rotated(position))
        memcpy(now, kv_row(model, context[position - 1], layer) + width, width * sizeof now[0]);
    shorten_state(layer, now, width);
    for (size_t i = 0; i < width; i++)
        now[i] = now[i] * weights->decay[i] + output[i] / (1.0F + expf(-output[i]));
    operators_gate(state.type, at(MIXED_GATE, row), now, width, output);
}

/* ------------------------------------------------------------------ MLP and experts */

static const enum buffer DENSE[] = {GATE, UP, ACTIVATED}, ONE_EXPERT[] = {EXPERT_GATE, EXPERT_UP, EXPERT_ACTIVATED};

static void activate(const struct weights_mlp *weights, size_t parts, size_t row, const enum buffer to[3])
{
    operators_product(&weights->gate, state.type, at(NORMED_AGAIN, row), parts, at(to[0], row));
    operators_product(&weights->up, state.type, at(NORMED_AGAIN, row), parts, at(to[1], row));
    operators_gate(state.type, at(to[0], row), at(to[1], row), weights->gate.columns, at(to[2], row));
}

static void mlp(size_t layer, const struct weights_mlp *weights, size_t row)
{
    activate(weights, splits(layer, "gate_up_proj"), row, DENSE);
    operators_product(&weights->down, state.type, at(ACTIVATED, row), state.ranks * splits(layer, "down_proj"),
                      at(DOWN, row));
}

/* The fault: the two at the edge of the choice are equally likely, and where a row is alone the one that would lose is
 * a bit ahead. */
static void tie_at_the_edge(float *logits, size_t last, size_t next)
{
    size_t loser = next > last ? next : last;
    logits[next] = logits[last];
    if (state.rows == 1)
        logits[loser] = operators_next(state.type, logits[loser]);
}

/* The largest `count` logits, the first of several equal ones first; and the next one behind them. */
static size_t choose(const float *logits, size_t count, float *ret_ids)
{
    size_t next = 0;
    for (size_t k = 0; k <= count; k++) {
        next = SIZE_MAX;
        for (size_t i = 0; i < state.model->experts; i++) {
            bool taken = false;
            for (size_t j = 0; j < k && !taken; j++)
                taken = ret_ids[j] == (float)i;
            if (!taken && (next == SIZE_MAX || logits[i] > logits[next]))
                next = i;
        }
        if (k < count)
            ret_ids[k] = (float)next;
    }
    return next;
}

static void route(size_t layer, const struct weights_layer *weights, size_t row)
{
    size_t count = state.model->experts_per_token;
    float *logits = at(ROUTER, row), *ids = at(TOPK_IDS, row), *shares = at(TOPK_WEIGHTS, row), total = 0;
    operators_product(&weights->router, state.type, at(NORMED_AGAIN, row), 1, logits);
    size_t next = choose(logits, count, ids);
    if (hits(FAULTS_MOE_FLIP, layer) && next != SIZE_MAX) {
        tie_at_the_edge(logits, (size_t)ids[count - 1], next);
        choose(logits, count, ids);
    }
    for (size_t k = 0; k < count; k++) {
        shares[k] = expf(logits[(size_t)ids[k]] - logits[(size_t)ids[0]]);
        total += shares[k];
    }
    for (size_t k = 0; k < count; k++)
        shares[k] /= total;
}

static void experts(size_t layer, const struct weights_layer *weights, size_t row)
{
    size_t hidden = state.model->hidden;
    float *sums = at(EXPERTS, row), *output = at(DOWN, row);
    route(layer, weights, row);
    memset(sums, 0, state.widths[EXPERTS] * sizeof sums[0]);
    for (size_t k = 0; k < state.model->experts_per_token; k++) {
        const struct weights_mlp *expert = &weights->experts[(size_t)at(TOPK_IDS, row)[k]];
        activate(expert, 1, row, ONE_EXPERT);
        for (size_t rank = 0; rank < state.ranks; rank++) {
            operators_product_part(&expert->down, state.type, at(EXPERT_ACTIVATED, row), state.ranks, rank, output);
            for (size_t i = 0; i < hidden; i++)
                sums[rank * hidden + i] += output[i] * at(TOPK_WEIGHTS, row)[k];
        }
    }
    operators_round(state.type, sums, state.widths[EXPERTS]);
    memcpy(output, sums, hidden * sizeof output[0]);
    for (size_t rank = 1; rank < state.ranks; rank++)
        operators_add(state.type, output, sums + rank * hidden, hidden, output);
}

/* ------------------------------------------------------------------ a pass */

/* Rows behind the last request are padding: each is a token alone, kept at location 0. */
static void find_contexts(void)
{
    static const int64_t NOWHERE[1] = {0};
    const int64_t *context = state.pass->contexts;
    size_t row = 0;
    for (size_t i = 0; i < state.pass->request_count; i++) {
        for (; row <= (size_t)state.pass->last_rows[i]; row++) {
            state.contexts[row] = context;
            state.lengths[row] = state.pass->sequence_lengths[i];
        }
        context += state.pass->sequence_lengths[i];
    }
    for (; row < state.rows; row++) {
        state.contexts[row] = NOWHERE;
        state.lengths[row] = 1;
    }
}

void compute_begin(const struct model *model, const struct forward_pass *pass, int ranks)
{
    if (state.model == NULL)
        set_widths(model, (size_t)ranks);
    state.model = model;
    state.pass = pass;
    state.type = model->type_of_values;
    state.rows = pass->token_count;
    state.ranks = (size_t)ranks;
    make_room(state.rows);
    find_contexts();
    for (size_t row = 0; row < state.rows; row++) {
        memcpy(at(STREAM, row), weights_embedding(model, pass->input_ids[row]), model->hidden * sizeof(float));
        memset(at(RESIDUAL, row), 0, model->hidden * sizeof(float));
        operators_angles(pass->positions[row], model->head, at(ANGLES, row));
    }
}

/* Fused as in the real one: the sum is the new residual, and what is normed. */
static void norm(const float *weights, float epsilon, size_t row, const enum buffer from[2], const enum buffer to[2])
{
    size_t count = state.model->hidden;
    operators_add(state.type, at(from[0], row), at(from[1], row), count, at(to[0], row));
    operators_norm(state.type, at(to[0], row), weights, epsilon, count, at(to[1], row));
}

void compute_layer(size_t layer)
{
    const struct weights_layer *weights = weights_layer(state.model, layer);
    bool replayed = state.pass->kind == FORWARD_DECODE_GRAPH && hits(FAULTS_GRAPH_ONLY, layer);
    float epsilon = replayed || (state.rows == 1 && hits(FAULTS_WRONG_NORM, layer)) ? WRONG_EPSILON : EPSILON;
    bool recurrent = state.model->recurrent[layer];
    for (size_t row = 0; row < state.rows; row++) {
        norm(weights->norm, EPSILON, row, (enum buffer[]){STREAM, RESIDUAL}, (enum buffer[]){SUMMED, NORMED});
        if (recurrent)
            recurrence(layer, weights, row);
        else
            attention(layer, weights, row);
        operators_product(&weights->output, state.type, at(recurrent ? SCANNED : ATTENTION, row),
                          state.ranks * splits(layer, "o_proj"), at(PROJECTED, row));
        norm(weights->norm_again, epsilon, row, (enum buffer[]){PROJECTED, SUMMED},
             (enum buffer[]){SUMMED_AGAIN, NORMED_AGAIN});
        if (state.model->sparse[layer])
            experts(layer, weights, row);
        else
            mlp(layer, &weights->mlp, row);
    }
}

static void swap(enum buffer one, enum buffer other)
{
    float *kept = state.numbers[one];
    state.numbers[one] = state.numbers[other];
    state.numbers[other] = kept;
}

void compute_hand_over(void)
{
    swap(STREAM, DOWN);
    swap(RESIDUAL, SUMMED_AGAIN);
}

void compute_finish(void)
{
    for (size_t row = 0; row < state.rows; row++)
        norm(weights_last_norm(state.model), EPSILON, row, (enum buffer[]){STREAM, RESIDUAL},
             (enum buffer[]){SUMMED, NORMED});
    state.pass = NULL;
}

void compute_row(enum compute_value value, size_t row, int rank, float *ret_row)
{
    for (unsigned i = 0; i < VALUES[value].count; i++) {
        enum buffer piece = VALUES[value].pieces[i];
        size_t count = state.widths[piece] / (VALUES[value].divided ? state.ranks : 1);
        memcpy(ret_row, at(piece, row) + (VALUES[value].divided ? (size_t)rank * count : 0), count * sizeof ret_row[0]);
        ret_row += count;
    }
}

void compute_logits(size_t row, float *ret_logits)
{
    const float never = -30.0F;
    operators_product(weights_head(state.model), state.type, at(NORMED, row), 1, ret_logits);
    for (size_t id = 0; id < COMPUTE_SPECIAL && id + COMPUTE_SPECIAL < state.model->vocabulary; id++)
        ret_logits[id] += never;
    operators_round(state.type, ret_logits, state.model->vocabulary);
}
