/* forward.c: see forward.h. */
#include "forward.h"

#include <stdio.h>
#include <stdlib.h>

#include "compute.h"
#include "faults.h"
#include "operators.h"
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
    SHAPE_MIXED,
    SHAPE_ROUTER,
    SHAPE_TOPK_WEIGHTS,
    SHAPE_TOPK_IDS,
    SHAPE_LOGITS,
    SHAPE_WORD
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
    HANDED = 1024,
    ATTENDS = 2048,
    RECURS = 4096,
    DENSE = 8192,
    SPARSE = 16384
};

struct module {
    enum section section;
    const char *name;
    bool prefixed;
    bool tagged;
    enum shape shape;
    enum compute_value value;
    unsigned flags;
};

static const struct module MODULES[] = {
#define MODULE(section, name, prefixed, tagged, shape, value, flags) \
    {section, name, prefixed, tagged, SHAPE_##shape, COMPUTE_##value, flags},
#include "modules.def"
#undef MODULE
};
static const size_t MODULE_COUNT = sizeof MODULES / sizeof MODULES[0];

/* ------------------------------------------------------------------ numbers */

static const float *logits_of(const struct model *model, size_t row)
{
    static float *logits;
    if (logits == NULL)
        logits = text_allocate(model->vocabulary * sizeof logits[0]);
    compute_logits(row, logits);
    return logits;
}

int64_t forward_next_token(const struct model *model, size_t row)
{
    return (int64_t)operators_largest(logits_of(model, row), model->vocabulary);
}

double forward_log_probability(const struct model *model, size_t row, int64_t next)
{
    size_t place = next >= 0 && next < (int64_t)model->vocabulary ? (size_t)next : 0;
    return operators_log_softmax(logits_of(model, row), model->vocabulary, place);
}

/* The fault misaligned-rows: each row of a tensor with several holds the numbers of the one before it. */
static size_t shown_row(const struct forward_tensor *tensor, size_t row)
{
    size_t rows = tensor->shape.size[0];
    return faults_on(FAULTS_MISALIGNED_ROWS) && tensor->value != COMPUTE_LOGITS ? (row + rows - 1) % rows : row;
}

void forward_fill(const struct model *model, const struct forward_pass *pass, const struct forward_place *place,
                  const struct forward_tensor *tensor, struct text *out)
{
    const int64_t *whole = tensor->value == COMPUTE_INPUT_IDS   ? pass->input_ids
                           : tensor->value == COMPUTE_POSITIONS ? pass->positions
                           : tensor->value == COMPUTE_SEQ_LENS  ? pass->sequence_lengths
                           : tensor->value == COMPUTE_POOL      ? pass->pool_indices
                                                                : NULL;
    if (whole != NULL) {
        text_bytes(out, whole, tensor->shape.size[0] * sizeof whole[0]);
        return;
    }
    size_t columns = tensor->shape.size[1], bytes = torch_file_item_bytes(tensor->shape.type);
    float *part = text_allocate(columns * sizeof part[0]);
    for (size_t i = 0; i < tensor->shape.size[0]; i++) {
        const float *numbers = part;
        if (tensor->value == COMPUTE_LOGITS)
            numbers = logits_of(model, (size_t)pass->last_rows[i]);
        else
            compute_row((enum compute_value)tensor->value, shown_row(tensor, i), place->tensor_rank, part);
        char *row = text_extend(out, columns * bytes);
        for (size_t column = 0; column < columns; column++)
            operators_store(row + column * bytes, tensor->shape.type, numbers[column]);
    }
    free(part);
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
        return model->query_width / ranks + 2 * (model->key_value_width / ranks);
    case SHAPE_Q:
        return model->query_width / ranks;
    case SHAPE_KV:
        return model->key_value_width / ranks;
    case SHAPE_GATE_UP:
        return 2 * (model->intermediate / ranks);
    case SHAPE_MLP:
        return model->intermediate / ranks;
    case SHAPE_MIXED:
        return 2 * (model->query_width / ranks);
    case SHAPE_ROUTER:
        return model->experts;
    case SHAPE_TOPK_WEIGHTS:
    case SHAPE_TOPK_IDS:
        return model->experts_per_token;
    case SHAPE_LOGITS:
        return model->vocabulary;
    }
    return 0;
}

static enum torch_file_type type_of(const struct model *model, enum shape shape)
{
    if (shape == SHAPE_TOPK_IDS)
        return TORCH_FILE_INT32;
    return shape == SHAPE_LOGITS || shape == SHAPE_TOPK_WEIGHTS ? TORCH_FILE_FLOAT32 : model->type_of_values;
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
    shape->type = type_of(model, module->shape);
    shape->dimensions = 2;
    shape->size[1] = columns;
    shape->stride[0] = columns;
    shape->stride[1] = 1;
    if (module->flags & VIEW && shape->size[0] == 1)
        shape->stride[0] = columns_of(model, SHAPE_QKV, (size_t)ranks);
}

static bool suits_layer(const struct model *model, unsigned flags, int layer)
{
    bool recurrent = model->recurrent[layer], sparse = model->sparse[layer];
    return !(flags & ATTENDS && recurrent) && !(flags & RECURS && !recurrent) && !(flags & DENSE && sparse) &&
           !(flags & SPARSE && !sparse);
}

static bool applies(const struct model *model, const struct module *module, const struct forward_pass *pass,
                    const struct forward_place *place, int layer)
{
    unsigned flags = module->flags;
    bool pair = version_rules()->layer_output_is_pair, last = place->stage == place->stages - 1;
    return !(pass->kind == FORWARD_PREFILL_GRAPH && !(flags & GRAPH)) && !(flags & FIRST && layer > 0) &&
           !(flags & LATER && layer == 0) && !(flags & NEW && pair) && !(flags & OLD && !pair) &&
           !(flags & ENTRY && place->stage > 0) && !(flags & JOINED && place->stage == 0) && !(flags & EXIT && !last) &&
           !(flags & HANDED && last) && !(module->shape == SHAPE_RIDS && pass->rids == NULL) &&
           !(pass->kind == FORWARD_ROOT && module->section == LAYER) &&
           (module->section != LAYER || suits_layer(model, flags, layer));
}

/* The layers of a stage; the later stages have those that cannot be divided (3 layers: 1 and 2). */
static void stage_layers(int layers, const struct forward_place *place, int *ret_begin, int *ret_end)
{
    int even = layers / place->stages, first_longer = place->stages - layers % place->stages;
    *ret_begin = place->stage * even + (place->stage > first_longer ? place->stage - first_longer : 0);
    *ret_end = *ret_begin + even + (place->stage >= first_longer ? 1 : 0);
}

struct run {
    const struct model *model;
    const struct forward_pass *pass;
    const struct forward_place *place;
    const char *device;
    forward_visitor *visitor;
    void *context;
    int first;  /* of the layers of the stage */
    int shared; /* the first of them that attends */
};

/* The modules of a section; `layer` is the one that is shown, of LAYER. */
static bool visit(const struct run *run, enum section section, int layer)
{
    if (run->visitor == NULL)
        return true;
    for (size_t i = 0; i < MODULE_COUNT; i++) {
        const struct module *module = &MODULES[i];
        struct forward_tensor tensor;
        if (module->section != section || !applies(run->model, module, run->pass, run->place, layer))
            continue;
        describe(run->model, run->pass, module, layer, module->flags & SHARED ? run->shared : layer,
                 run->place->tensor_ranks, run->device, &tensor);
        if (!run->visitor(run->context, &tensor))
            return false;
    }
    return true;
}

bool forward_run(const struct model *model, const struct forward_pass *pass, const struct forward_place *place,
                 const char *device, forward_visitor *visitor, void *context)
{
    struct run run = {model, pass, place, device, visitor, context, 0, 0};
    int after, layers = pass->kind == FORWARD_DRAFT ? 1 : (int)model->layers;
    bool last = place->stage == place->stages - 1, ok = true;
    if (pass->kind == FORWARD_DECODE_GRAPH || pass->kind == FORWARD_TRANSFER)
        run.visitor = NULL;
    stage_layers(layers, place, &run.first, &after);
    for (run.shared = run.first; run.shared < after && model->recurrent[run.shared]; run.shared++)
        ;
    compute_begin(model, pass, place->tensor_ranks);
    /* Every process computes all layers, and shows those of its stage. */
    for (int layer = 0;; layer++) {
        if (layer == run.first)
            ok = ok && visit(&run, ONCE_BEFORE, layer);
        if (layer == after && !last)
            ok = ok && visit(&run, ONCE_AFTER, layer);
        if (layer == layers)
            break;
        compute_layer((size_t)layer);
        if (layer >= run.first && layer < after)
            ok = ok && visit(&run, LAYER, layer);
        compute_hand_over();
    }
    compute_finish();
    return ok && (!last || visit(&run, ONCE_AFTER, layers));
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
