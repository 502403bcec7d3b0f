/* torch_file.h: the bytes that torch.save (2.13 and 2.14) writes for one dumped tensor or list of request ids.
 *
 * A zip of stored members with data descriptors, each member's data on a 64-byte boundary, a Zip64 end record before
 * the normal one; data.pkl is protocol 2. Checked byte for byte against files of a real server.
 */
#ifndef KLDUMP_STANDIN_TORCH_FILE_H
#define KLDUMP_STANDIN_TORCH_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "text.h"

enum torch_file_type {
    TORCH_FILE_INT64,
    TORCH_FILE_INT32,
    TORCH_FILE_FLOAT32,
    TORCH_FILE_FLOAT16,
    TORCH_FILE_BFLOAT16
};

/* Either a tensor (strings NULL), a list of strings or one string. */
struct torch_file_value {
    enum torch_file_type type;
    const char *device;  /* "cpu" or "cuda:0": the place that the storage names */
    unsigned dimensions; /* 1 or 2 */
    size_t size[2];
    size_t stride[2];
    const void *data; /* size[0] * size[1] elements, little-endian */
    const char *const *strings;
    size_t string_count;
    bool word; /* the first string alone, not a list of them */
};

struct torch_file_meta {
    long step;
    int rank;
    long dump_index;
    const char *name;
    int layer_id; /* -1: no such key */
    int world_size;
    int stages;             /* of the pipeline; 0: one */
    int attention_replicas; /* data parallelism of attention alone; 0: none */
    const char *tokenizer_path;
};

size_t torch_file_item_bytes(enum torch_file_type type);

/* "torch.float32" and so on. */
const char *torch_file_type_name(enum torch_file_type type);

/*
 * Appends the file to `out`. `record` is the folder inside the zip: the file's name without .pt. `serialization_id`
 * holds 40 digits; NULL makes one from the contents.
 */
void torch_file_build(const struct torch_file_value *value, const struct torch_file_meta *meta, const char *record,
                      const char *serialization_id, struct text *out);

#endif
