/* model.h: the sizes of the model that is played, from MODEL/config.json; a Llama of three layers where there is none.
 *
 * Beside the keys of a Llama these of other models are read, each of them optional: sliding_window (positions that
 * attention sees, this one included); num_experts, num_experts_per_tok, moe_intermediate_size and mlp_only_layers (the
 * MLP of every layer but those is a mixture of experts, as in Qwen3-MoE); layer_types (a layer called linear_attention
 * has a convolution and a recurrent state in place of attention, as in Qwen3-Next).
 */
#ifndef KLDUMP_STANDIN_MODEL_H
#define KLDUMP_STANDIN_MODEL_H

#include <stdbool.h>
#include <stddef.h>

#include "torch_file.h"

enum { MODEL_LAYERS_MAX = 128 };

struct model {
    const char *path;
    char architecture[64];
    char type[32];
    size_t layers; /* 1 to MODEL_LAYERS_MAX */
    size_t hidden;
    size_t heads, key_value_heads, head; /* of all ranks; width of a head */
    size_t query_width;                  /* heads * head size, of all ranks */
    size_t key_value_width;              /* key-value heads * head size, of all ranks */
    size_t intermediate;
    size_t vocabulary;
    size_t context;
    size_t page_size; /* of the server, not of the model: of the keys and values that it keeps */
    size_t window;            /* 0: attention sees every position */
    size_t experts;           /* 0: no layer has any */
    size_t experts_per_token; /* at most `experts` */
    size_t expert_width;
    bool sparse[MODEL_LAYERS_MAX];    /* the layer has experts */
    bool recurrent[MODEL_LAYERS_MAX]; /* the layer has a recurrent state, no attention */
    int end_token;                    /* eos_token_id, -1 for none */
    enum torch_file_type type_of_values;
};

/* `dtype` is the value of --dtype; `auto` serves a float32 checkpoint as float16 (SGLang 0.5.23, live). */
void model_load(struct model *model, const char *path, const char *dtype);

/* Whether any layer has a recurrent state. */
bool model_recurs(const struct model *model);

#endif
