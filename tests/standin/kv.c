/* kv.c: see kv.h. */
#include "kv.h"

#include <string.h>
#include <stdlib.h>

#include "text.h"

enum { BLOCK_LOCATIONS = 256 };

static float **blocks;
static size_t block_count;

static size_t layer_width(const struct model *model)
{
    size_t width = 2 * model->key_value_width;
    for (size_t layer = 0; layer < model->layers; layer++)
        if (model->recurrent[layer] && width < 2 * model->query_width)
            width = 2 * model->query_width;
    return width;
}

/* The list of blocks moves, the blocks stay. */
static void grow(size_t wanted)
{
    size_t count = wanted + block_count / 2;
    float **grown = text_allocate(count * sizeof(float *));
    if (block_count > 0)
        memcpy((void *)grown, (void *)blocks, block_count * sizeof(float *));
    free((void *)blocks);
    blocks = grown;
    block_count = count;
}

float *kv_row(const struct model *model, int64_t location, size_t layer)
{
    static size_t width;
    if (width == 0)
        width = layer_width(model);
    size_t block = (size_t)location / BLOCK_LOCATIONS, place = (size_t)location % BLOCK_LOCATIONS;
    if (block >= block_count)
        grow(block + 1);
    if (blocks[block] == NULL)
        blocks[block] = text_allocate(BLOCK_LOCATIONS * model->layers * width * sizeof(float));
    return blocks[block] + (place * model->layers + layer) * width;
}
