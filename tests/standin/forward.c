/* forward.c: see forward.h. */
#include "forward.h"

#include <stdio.h>
#include <string.h>

#include "version.h"

enum section { ONCE_BEFORE, LAYER, ONCE_AFTER };

enum shape {
    SHAPE_TOKENS,
    SHAPE_REQUESTS,
    SHAPE_RIDS,
    SHAPE_HIDDEN,
    SHAPE_QKV,
    SHAPE_Q,
    SHAPE_KV,
    SHAPE_GATE_UP,
    SHAPE_MLP,
    SHAPE_LOGITS,
    SHAPE_WORD
};

enum value {
    VALUE_INPUT_IDS,
    VALUE_POSITIONS,
    VALUE_SEQ_LENS,
    VALUE_POOL,
    VALUE_RIDS,
    VALUE_EMBEDDING,
    VALUE_STREAM,
    VALUE_RESIDUAL,
    VALUE_SUMMED,
    VALUE_NORMED,
    VALUE_FUSED,
    VALUE_QUERY,
    VALUE_KEY,
    VALUE_VALUE,
    VALUE_ROTATED_QUERY,
    VALUE_ROTATED_KEY,
    VALUE_ATTENTION,
    VALUE_PROJECTED,
    VALUE_NORMED_AGAIN,
    VALUE_SUMMED_AGAIN,
    VALUE_GATE_UP,
    VALUE_ACTIVATED,
    VALUE_DOWN,
    VALUE_LOGITS,
    VALUE_WORD
};

enum {
    GRAPH = 1,
    FIRST = 2,
    LATER = 4,
    NEW = 8,
    OLD = 16,
    VIEW = 32,
    SHARED = 64,
    ENTRY = 128,
    JOINED = 256,
    EXIT = 512,
    HANDED = 1024
};

struct module {
    enum section section;
    const char *name;
    bool prefixed;
    bool tagged;
    enum shape shape;
    enum value value;
    unsigned flags;
};

static const struct module MODULES[] = {
#define MODULE(section, name, prefixed, tagged, shape, value, flags) \
    {section, name, prefixed, tagged, SHAPE_##shape, VALUE_##value, flags},
#include "modules.def"
#undef MODULE
};
static const size_t MODULE_COUNT = sizeof MODULES / sizeof MODULES[0];

/* ------------------------------------------------------------------ numbers */

static uint64_t mix(uint64_t value)
{
    value ^= value >> 30;
    value *= 0xbf58476d1ce4e5b9ULL;
    value ^= value >> 27;
    value *= 0x94d049bb133111ebULL;
    return value ^ value >> 31;
}

static uint64_t seed_of(enum value value, int layer, int64_t token, int64_t position, int rank)
{
    uint64_t seed = mix((uint64_t)value + 1);
    if (value == VALUE_EMBEDDING)
        return mix(seed ^ (uint64_t)token);
    seed = mix(seed ^ (uint64_t)(layer + 1));
    seed = mix(seed ^ (uint64_t)(rank + 1));
    seed = mix(seed ^ (uint64_t)token);
    return mix(seed ^ (uint64_t)position);
}

/* In [-2, 2), a multiple of 2^-6, so that it is the same number in every type. */
static float number_of(uint64_t seed, size_t column)
{
    return (float)((int)(mix(seed + column) & 0xff) - 128) / 64.0F;
}

/* The input of a layer is the output of the one below. */
static enum value origin(enum value value, int *layer)
{
    if (value == VALUE_STREAM || value == VALUE_RESIDUAL || value == VALUE_SUMMED) {
        if (*layer == 0)
            return VALUE_EMBEDDING;
        if (value == VALUE_SUMMED)
            return value;
        (*layer)--;
        return value == VALUE_STREAM ? VALUE_DOWN : VALUE_SUMMED_AGAIN;
    }
    return value;
}

int64_t forward_next_token(const struct model *model, int64_t token, int64_t position)
{
    size_t first = model->vocabulary > 6 ? 3 : 0; /* ids below are special tokens */
    uint64_t seed = seed_of(VALUE_LOGITS, (int)model->layers, token, position, 0);
    return (int64_t)(first + mix(seed ^ 0x5eedULL) % (model->vocabulary - first));
}

double forward_log_probability(const struct model *model, int64_t token, int64_t position, int64_t next)
{
    uint64_t seed = mix(seed_of(VALUE_LOGITS, (int)model->layers, token, position, 0) ^ (uint64_t)next);
    double part = (double)(seed & 0xfff) / 4096.0;
    return next == forward_next_token(model, token, position) ? -0.125 - part : -5.0 - 8.0 * part;
}

/* Exact in all three types: the numbers have few bits. */
static void store_number(char *target, enum torch_file_type type, float number)
{
    uint32_t bits;
    memcpy(&bits, &number, sizeof bits);
    if (type == TORCH_FILE_FLOAT32) {
        memcpy(target, &bits, sizeof bits);
        return;
    }
    uint16_t half = (uint16_t)(bits >> 16);
    if (type == TORCH_FILE_FLOAT16) {
        uint32_t exponent = bits >> 23 & 0xff;
        half = (uint16_t)(bits >> 16 & 0x8000);
        if (exponent != 0)
            half = (uint16_t)(half | (exponent - 112) << 10 | (bits >> 13 & 0x3ff));
    }
    memcpy(target, &half, sizeof half);
}

static void append_row(const struct model *model, enum value value, int layer, int64_t token, int64_t position,
                       int rank, int ranks, const struct torch_file_value *shape, struct text *out)
{
    size_t columns = shape->size[1];
    if (value == VALUE_FUSED) {
        struct torch_file_value part = *shape;
        part.size[1] = model->query_width / (size_t)ranks;
        append_row(model, VALUE_QUERY, layer, token, position, rank, ranks, &part, out);
        part.size[1] = model->key_value_width / (size_t)ranks;
        append_row(model, VALUE_KEY, layer, token, position, rank, ranks, &part, out);
        append_row(model, VALUE_VALUE, layer, token, position, rank, ranks, &part, out);
        return;
    }
    /* What every rank holds whole is the same on every rank. */
    bool sharded = value == VALUE_QUERY || value == VALUE_KEY || value == VALUE_VALUE || value == VALUE_ROTATED_QUERY ||
                   value == VALUE_ROTATED_KEY || value == VALUE_ATTENTION || value == VALUE_GATE_UP ||
                   value == VALUE_ACTIVATED;
    value = origin(value, &layer);
    uint64_t seed = seed_of(value, layer, token, position, sharded ? rank : 0);
    int64_t next = value == VALUE_LOGITS ? forward_next_token(model, token, position) : -1;
    size_t bytes = torch_file_item_bytes(shape->type);
    char *row = text_extend(out, columns * bytes);
    for (size_t column = 0; column < columns; column++)
        store_number(row + column * bytes, shape->type, (int64_t)column == next ? 6.0F : number_of(seed, column));
}

void forward_fill(const struct model *model, const struct forward_pass *pass, int rank, int ranks,
                  const struct forward_tensor *tensor, struct text *out)
{
    const int64_t *whole = tensor->value == VALUE_INPUT_IDS   ? pass->input_ids
                           : tensor->value == VALUE_POSITIONS ? pass->positions
                           : tensor->value == VALUE_SEQ_LENS  ? pass->sequence_lengths
                           : tensor->value == VALUE_POOL      ? pass->pool_indices
                                                              : NULL;
    if (whole != NULL) {
        text_bytes(out, whole, tensor->shape.size[0] * sizeof whole[0]);
        return;
    }
    for (size_t i = 0; i < tensor->shape.size[0]; i++) {
        size_t row = tensor->value == VALUE_LOGITS ? (size_t)pass->last_rows[i] : i;
        append_row(model, (enum value)tensor->value, tensor->layer, pass->input_ids[row], pass->positions[row], rank,
                   ranks, &tensor->shape, out);
    }
}

/* ------------------------------------------------------------------ shapes */

static size_t columns_of(const struct model *model, enum shape shape, size_t ranks)
{
    switch (shape) {
    case SHAPE_TOKENS:
    case SHAPE_REQUESTS:
    case SHAPE_RIDS:
    case SHAPE_WORD:
        return 0;
    case SHAPE_HIDDEN:
        return model->hidden;
    case SHAPE_QKV:
        return (model->query_width + 2 * model->key_value_width) / ranks;
    case SHAPE_Q:
        return model->query_width / ranks;
    case SHAPE_KV:
        return model->key_value_width / ranks;
    case SHAPE_GATE_UP:
        return 2 * model->intermediate / ranks;
    case SHAPE_MLP:
        return model->intermediate / ranks;
    case SHAPE_LOGITS:
        return model->vocabulary;
    }
    return 0;
}

static void describe(const struct model *model, const struct forward_pass *pass, const struct module *module, int layer,
                     int named_layer, int ranks, const char *device, struct forward_tensor *tensor)
{
    *tensor = (struct forward_tensor){.core = !module->prefixed, .layer = layer, .value = module->value};
    tensor->layer_id = module->tagged ? layer : -1;
    char name[200];
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
    snprintf(name, sizeof name, module->name, named_layer);
#pragma GCC diagnostic pop
    snprintf(tensor->name, sizeof tensor->name, "%s%s", module->prefixed ? "non_intrusive__" : "", name);

    struct torch_file_value *shape = &tensor->shape;
    shape->device = device;
    if (module->shape == SHAPE_RIDS) {
        shape->device = "cpu";
        shape->strings = pass->rids;
        shape->string_count = pass->request_count;
        return;
    }
    if (module->shape == SHAPE_WORD) {
        static const char *const PROXY[] = {"proxy"};
        shape->device = "cpu";
        shape->strings = PROXY;
        shape->string_count = 1;
        shape->word = true;
        return;
    }
    bool by_request = module->shape == SHAPE_REQUESTS || module->shape == SHAPE_LOGITS;
    size_t columns = columns_of(model, module->shape, (size_t)ranks);
    shape->size[0] = by_request ? pass->request_count : pass->token_count;
    if (columns == 0) {
        shape->type = TORCH_FILE_INT64;
        shape->dimensions = 1;
        shape->stride[0] = 1;
        return;
    }
    shape->type = module->shape == SHAPE_LOGITS ? TORCH_FILE_FLOAT32 : model->type_of_values;
    shape->dimensions = 2;
    shape->size[1] = columns;
    shape->stride[0] = columns;
    shape->stride[1] = 1;
    if (module->flags & VIEW && shape->size[0] == 1)
        shape->stride[0] = columns_of(model, SHAPE_QKV, (size_t)ranks);
}

static bool applies(const struct module *module, const struct forward_pass *pass, const struct forward_place *place,
                    int layer)
{
    unsigned flags = module->flags;
    bool pair = version_rules()->layer_output_is_pair, last = place->stage == place->stages - 1;
    return !(pass->kind == FORWARD_PREFILL_GRAPH && !(flags & GRAPH)) && !(flags & FIRST && layer > 0) &&
           !(flags & LATER && layer == 0) && !(flags & NEW && pair) && !(flags & OLD && !pair) &&
           !(flags & ENTRY && place->stage > 0) && !(flags & JOINED && place->stage == 0) && !(flags & EXIT && !last) &&
           !(flags & HANDED && last) && !(module->shape == SHAPE_RIDS && pass->rids == NULL) &&
           !(pass->kind == FORWARD_ROOT && module->section == LAYER);
}

/* The layers of a stage; the later stages have those that cannot be divided (3 layers: 1 and 2). */
static void stage_layers(const struct model *model, const struct forward_pass *pass, const struct forward_place *place,
                         int *ret_begin, int *ret_end)
{
    int layers = pass->kind == FORWARD_DRAFT ? 1 : (int)model->layers, even = layers / place->stages;
    int first_longer = place->stages - layers % place->stages;
    *ret_begin = place->stage * even + (place->stage > first_longer ? place->stage - first_longer : 0);
    *ret_end = *ret_begin + even + (place->stage >= first_longer ? 1 : 0);
}

bool forward_run(const struct model *model, const struct forward_pass *pass, const struct forward_place *place,
                 const char *device, forward_visitor *visitor, void *context)
{
    if (pass->kind == FORWARD_DECODE_GRAPH)
        return true;
    int first, after;
    stage_layers(model, pass, place, &first, &after);
    size_t begin = 0;
    for (int section = ONCE_BEFORE; section <= ONCE_AFTER; section++) {
        size_t end = begin;
        while (end < MODULE_COUNT && (int)MODULES[end].section == section)
            end++;
        int from = section == ONCE_AFTER ? after : first, rounds = section == LAYER ? after - first : 1;
        for (int layer = from; layer < from + rounds; layer++) {
            for (size_t i = begin; i < end; i++) {
                struct forward_tensor tensor;
                if (!applies(&MODULES[i], pass, place, layer))
                    continue;
                int named = MODULES[i].flags & SHARED ? first : layer;
                describe(model, pass, &MODULES[i], layer, named, place->tensor_ranks, device, &tensor);
                if (!visitor(context, &tensor))
                    return false;
            }
        }
        begin = end;
    }
    return true;
}

size_t forward_graph_size(size_t tokens)
{
    /* Captured sizes: 4 to 32 by 4, then by 16 to 256, by 32 to 512, by 64 to 1024, by 256 to 4096 (0.5.23, live). */
    static const struct {
        size_t upto, by;
    } STEPS[] = {{32, 4}, {256, 16}, {512, 32}, {1024, 64}, {4096, 256}};
    for (size_t i = 0; i < sizeof STEPS / sizeof STEPS[0]; i++)
        if (tokens <= STEPS[i].upto)
            return (tokens + STEPS[i].by - 1) / STEPS[i].by * STEPS[i].by;
    return tokens;
}
