/* model.c: see model.h. */
#include "model.h"

#include <cjson/cJSON.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "text.h"

static cJSON *read_config(const char *path)
{
    struct text name, content;
    text_init(&name);
    text_init(&content);
    text_format(&name, "%s/config.json", path);
    FILE *file = fopen(name.data, "re");
    text_fini(&name);
    if (file == NULL)
        return NULL;
    char block[4096];
    size_t got;
    while ((got = fread(block, 1, sizeof block, file)) > 0)
        text_bytes(&content, block, got);
    fclose(file);
    cJSON *config = content.data != NULL ? cJSON_Parse(content.data) : NULL;
    text_fini(&content);
    return config;
}

static size_t number(const cJSON *config, const char *key, size_t otherwise)
{
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(config, key);
    return cJSON_IsNumber(item) && item->valuedouble >= 1 ? (size_t)item->valuedouble : otherwise;
}

static void copy_text(const cJSON *item, char *target, size_t size)
{
    if (cJSON_IsString(item))
        snprintf(target, size, "%s", item->valuestring);
}

static enum torch_file_type type_of(const char *name, enum torch_file_type otherwise)
{
    if (strcmp(name, "float32") == 0 || strcmp(name, "float") == 0)
        return TORCH_FILE_FLOAT32;
    if (strcmp(name, "bfloat16") == 0)
        return TORCH_FILE_BFLOAT16;
    if (strcmp(name, "float16") == 0 || strcmp(name, "half") == 0)
        return TORCH_FILE_FLOAT16;
    return otherwise;
}

static bool is_in(const cJSON *list, size_t layer)
{
    const cJSON *item;
    cJSON_ArrayForEach(item, list)
    {
        if (cJSON_IsNumber(item) && item->valuedouble == (double)layer)
            return true;
    }
    return false;
}

static void read_layers(const cJSON *config, struct model *model)
{
    const cJSON *dense = cJSON_GetObjectItemCaseSensitive(config, "mlp_only_layers");
    const cJSON *types = cJSON_GetObjectItemCaseSensitive(config, "layer_types");
    for (size_t layer = 0; layer < model->layers; layer++) {
        const char *type = cJSON_GetStringValue(cJSON_GetArrayItem(types, (int)layer));
        model->sparse[layer] = model->experts > 0 && !is_in(dense, layer);
        model->recurrent[layer] = type != NULL && strcmp(type, "linear_attention") == 0;
    }
}

void model_load(struct model *model, const char *path, const char *dtype)
{
    cJSON *config = read_config(path);
    size_t heads = number(config, "num_attention_heads", 4);
    *model = (struct model){.path = path, .architecture = "LlamaForCausalLM", .type = "llama"};
    model->hidden = number(config, "hidden_size", 64);
    model->heads = heads;
    model->head = number(config, "head_dim", model->hidden / heads);
    model->layers = number(config, "num_hidden_layers", 3);
    if (model->layers > MODEL_LAYERS_MAX)
        model->layers = MODEL_LAYERS_MAX;
    model->key_value_heads = number(config, "num_key_value_heads", config == NULL ? 2 : heads);
    model->query_width = heads * model->head;
    model->key_value_width = model->key_value_heads * model->head;
    model->intermediate = number(config, "intermediate_size", 2 * model->hidden);
    model->vocabulary = number(config, "vocab_size", 512);
    model->context = number(config, "max_position_embeddings", 2048);
    model->window = number(config, "sliding_window", 0);
    model->experts = number(config, "num_experts", 0);
    model->experts_per_token = number(config, "num_experts_per_tok", 2);
    if (model->experts_per_token > model->experts)
        model->experts_per_token = model->experts;
    model->expert_width = number(config, "moe_intermediate_size", model->intermediate);
    read_layers(config, model);
    model->end_token = (int)number(config, "eos_token_id", 2);
    copy_text(cJSON_GetObjectItemCaseSensitive(config, "model_type"), model->type, sizeof model->type);
    copy_text(cJSON_GetArrayItem(cJSON_GetObjectItemCaseSensitive(config, "architectures"), 0), model->architecture,
              sizeof model->architecture);
    char checkpoint[32] = "float32";
    copy_text(cJSON_GetObjectItemCaseSensitive(config, "torch_dtype"), checkpoint, sizeof checkpoint);
    enum torch_file_type served = type_of(checkpoint, TORCH_FILE_FLOAT16);
    if (served == TORCH_FILE_FLOAT32)
        served = TORCH_FILE_FLOAT16;
    model->type_of_values = type_of(dtype, served);
    cJSON_Delete(config);
}

bool model_recurs(const struct model *model)
{
    bool any = false;
    for (size_t layer = 0; layer < model->layers; layer++)
        any = any || model->recurrent[layer];
    return any;
}
