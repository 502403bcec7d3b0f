/* model.h: the sizes of the model that is played, from MODEL/config.json; a Llama of three layers where there is none.
 */
#ifndef KLDUMP_STANDIN_MODEL_H
#define KLDUMP_STANDIN_MODEL_H

#include <stddef.h>

#include "torch_file.h"

struct model {
    const char *path;
    char architecture[64];
    char type[32];
    size_t layers;
    size_t hidden;
    size_t query_width;     /* heads * head size, of all ranks */
    size_t key_value_width; /* key-value heads * head size, of all ranks */
    size_t intermediate;
    size_t vocabulary;
    size_t context;
    int end_token; /* eos_token_id, -1 for none */
    enum torch_file_type type_of_values;
};

/* `dtype` is the value of --dtype; `auto` serves a float32 checkpoint as float16 (SGLang 0.5.23, live). */
void model_load(struct model *model, const char *path, const char *dtype);

#endif
