/* weights.c: see weights.h. */
#include "weights.h"

#include "knobs.h"
#include "text.h"

/* Each tensor has a number of its own, below that of its layer; `outer` ones stand under a layer that does not exist.
 */
enum {
    NORM,
    NORM_AGAIN,
    QUERY,
    KEY,
    VALUE,
    OUTPUT,
    MIXED,
    MIXED_GATE,
    TAPS,
    DECAY,
    ROUTER,
    MLP,
    EMBEDDING,
    LAST_NORM,
    HEAD,
    PER_LAYER = 4096,
    OUTER = MODEL_LAYERS_MAX
};

static uint64_t seed_of(size_t layer, size_t tensor)
{
    return ((uint64_t)knobs_get()->seed << 32) + layer * PER_LAYER + tensor;
}

static float *vector(const struct model *model, uint64_t seed, size_t count, float middle, float scale)
{
    float *numbers = text_allocate(count * sizeof numbers[0]);
    for (size_t i = 0; i < count; i++)
        numbers[i] = middle + operators_hash(seed, i, scale);
    operators_round(model->type_of_values, numbers, count);
    return numbers;
}

static struct weights_mlp mlp(const struct model *model, size_t layer, size_t number, size_t width)
{
    enum torch_file_type type = model->type_of_values;
    uint64_t seed = seed_of(layer, MLP + 8 + 3 * number);
    return (struct weights_mlp){.gate = operators_matrix_make(type, seed, model->hidden, width),
                                .up = operators_matrix_make(type, seed + 1, model->hidden, width),
                                .down = operators_matrix_make(type, seed + 2, width, model->hidden)};
}

static void make_mixer(const struct model *model, size_t layer, struct weights_layer *ret_layer)
{
    enum torch_file_type type = model->type_of_values;
    size_t hidden = model->hidden, query = model->query_width, key = model->key_value_width;
    ret_layer->output = operators_matrix_make(type, seed_of(layer, OUTPUT), query, hidden);
    if (model->recurrent[layer]) {
        ret_layer->mixed = operators_matrix_make(type, seed_of(layer, MIXED), hidden, query);
        ret_layer->mixed_gate = operators_matrix_make(type, seed_of(layer, MIXED_GATE), hidden, query);
        ret_layer->taps = vector(model, seed_of(layer, TAPS), query * WEIGHTS_TAPS, 0, 1);
        ret_layer->decay = vector(model, seed_of(layer, DECAY), query, 0.75F, 0.25F);
        return;
    }
    ret_layer->query = operators_matrix_make(type, seed_of(layer, QUERY), hidden, query);
    ret_layer->key = operators_matrix_make(type, seed_of(layer, KEY), hidden, key);
    ret_layer->value = operators_matrix_make(type, seed_of(layer, VALUE), hidden, key);
}

static void make_layer(const struct model *model, size_t layer, struct weights_layer *ret_layer)
{
    ret_layer->norm = vector(model, seed_of(layer, NORM), model->hidden, 1, 0.25F);
    ret_layer->norm_again = vector(model, seed_of(layer, NORM_AGAIN), model->hidden, 1, 0.25F);
    make_mixer(model, layer, ret_layer);
    if (!model->sparse[layer]) {
        ret_layer->mlp = mlp(model, layer, 0, model->intermediate);
        return;
    }
    ret_layer->router =
        operators_matrix_make(model->type_of_values, seed_of(layer, ROUTER), model->hidden, model->experts);
    ret_layer->experts = text_allocate(model->experts * sizeof ret_layer->experts[0]);
    for (size_t i = 0; i < model->experts; i++)
        ret_layer->experts[i] = mlp(model, layer, i, model->expert_width);
}

const struct weights_layer *weights_layer(const struct model *model, size_t layer)
{
    static struct weights_layer layers[MODEL_LAYERS_MAX];
    if (layers[layer].norm == NULL)
        make_layer(model, layer, &layers[layer]);
    return &layers[layer];
}

const float *weights_embedding(const struct model *model, int64_t token)
{
    static float *table;
    if (table == NULL)
        table = vector(model, seed_of(OUTER, EMBEDDING), model->vocabulary * model->hidden, 0, 1.75F);
    return table + (token >= 0 && token < (int64_t)model->vocabulary ? (size_t)token : 0) * model->hidden;
}

const float *weights_last_norm(const struct model *model)
{
    static float *norm;
    if (norm == NULL)
        norm = vector(model, seed_of(OUTER, LAST_NORM), model->hidden, 2, 0.5F);
    return norm;
}

const struct operators_matrix *weights_head(const struct model *model)
{
    static struct operators_matrix head;
    if (head.blocks == NULL)
        head = operators_matrix_make(model->type_of_values, seed_of(OUTER, HEAD), model->hidden, model->vocabulary);
    return &head;
}
