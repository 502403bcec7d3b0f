/* Writes two dump folders for bench_diff.py, A and B below FOLDER: the same prefill passes with the same tensors.
 *
 *   dump_pairs FOLDER PASSES TOKENS HIDDEN LAYERS [FLIP]
 *
 * PASSES prompts of TOKENS tokens each, one a pass; a model of LAYERS layers with 14 tensors of [TOKENS, HIDDEN]
 * bfloat16 in each, named as SGLang 0.5.23 does. FLIP: one element of layer LAYERS/2's mlp.down_proj.output in pass 0
 * is one ULP off in B. */
#include "tests/standin/text.h"
#include "tests/standin/torch_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const char *const slots[] = {
    "inputs.1",
    "input_layernorm.inputs.0",
    "input_layernorm.output",
    "self_attn.qkv_proj.inputs.0",
    "self_attn.qkv_proj.output",
    "self_attn.o_proj.inputs.0",
    "self_attn.o_proj.output",
    "post_attention_layernorm.inputs.0",
    "post_attention_layernorm.output",
    "mlp.gate_up_proj.inputs.0",
    "mlp.gate_up_proj.output",
    "mlp.down_proj.inputs.0",
    "mlp.down_proj.output",
    "output",
};
enum { SLOTS = sizeof slots / sizeof slots[0], VOCABULARY = 5000 };

struct shape {
    size_t passes, tokens, hidden, layers;
    bool flip;
};

struct writer {
    int folder;
    const struct shape *shape;
    bool second;
    long step, index;
    uint16_t *rows; /* [tokens, hidden] */
    struct text text;
};

static void fail(const char *what)
{
    fprintf(stderr, "dump_pairs: %s: %s\n", what, strerror(errno));
    exit(EXIT_FAILURE);
}

/* Finite bfloat16 numbers near 1 that depend on token, place and column. */
static void fill(struct writer *w, uint64_t place)
{
    for (size_t token = 0; token < w->shape->tokens; token++) {
        uint64_t x = (place + 1) * UINT64_C(0x9e3779b97f4a7c15) ^ ((uint64_t)w->step << 40) ^ ((uint64_t)token << 16);
        uint16_t *row = w->rows + token * w->shape->hidden;
        for (size_t i = 0; i < w->shape->hidden; i++) {
            x ^= x << 13;
            x ^= x >> 7;
            x ^= x << 17;
            row[i] = (uint16_t)(0x3f00 | (x & 0x80ff));
        }
    }
}

static void write_file(struct writer *w, const char *name, int layer, const struct torch_file_value *value)
{
    char record[400], file[410];
    int length =
        snprintf(record, sizeof record, "step=%ld___rank=0___dump_index=%ld___name=%s___recompute_status=disabled",
                 w->step, ++w->index, name);
    if (layer >= 0)
        snprintf(record + length, sizeof record - (size_t)length, "___layer_id=%d", layer);
    snprintf(file, sizeof file, "%s.pt", record);
    const struct torch_file_meta meta = {.step = w->step,
                                         .dump_index = w->index,
                                         .name = name,
                                         .layer_id = layer,
                                         .world_size = 1,
                                         .tokenizer_path = "m"};
    text_clear(&w->text);
    torch_file_build(value, &meta, record, NULL, &w->text);
    int fd = openat(w->folder, file, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
    for (size_t done = 0; fd >= 0 && done < w->text.length;) {
        ssize_t n = write(fd, w->text.data + done, w->text.length - done);
        if (n < 0)
            fail(file);
        done += (size_t)n;
    }
    if (fd < 0 || close(fd) != 0)
        fail(file);
}

static void write_integers(struct writer *w, const char *name, const int64_t *values, size_t count)
{
    const struct torch_file_value value = {.type = TORCH_FILE_INT64,
                                           .device = "cpu",
                                           .dimensions = 1,
                                           .size = {count, 1},
                                           .stride = {1, 1},
                                           .data = values};
    write_file(w, name, -1, &value);
}

static void write_rows(struct writer *w, const char *name, int layer, uint64_t place)
{
    const struct torch_file_value value = {.type = TORCH_FILE_BFLOAT16,
                                           .device = "cpu",
                                           .dimensions = 2,
                                           .size = {w->shape->tokens, w->shape->hidden},
                                           .stride = {w->shape->hidden, 1},
                                           .data = w->rows};
    fill(w, place);
    if (w->second && w->shape->flip && w->step == 0 && layer == (int)w->shape->layers / 2 &&
        strstr(name, "mlp.down_proj.output") != NULL)
        w->rows[(w->shape->tokens / 2) * w->shape->hidden + w->shape->hidden / 3] ^= 1;
    write_file(w, name, layer, &value);
}

static void write_pass(struct writer *w)
{
    size_t tokens = w->shape->tokens;
    int64_t *ids = calloc(tokens, sizeof *ids), *positions = calloc(tokens, sizeof *positions);
    const int64_t length = (int64_t)tokens, slot = w->step + 1;
    char rid[32];
    if (ids == NULL || positions == NULL)
        fail("memory");
    for (size_t i = 0; i < tokens; i++) {
        ids[i] = (int64_t)((size_t)w->step * 31 + i * 7) % VOCABULARY;
        positions[i] = (int64_t)i;
    }
    snprintf(rid, sizeof rid, "r-%ld", w->step);
    const char *const rids[] = {rid};
    const struct torch_file_value names = {.strings = rids, .string_count = 1};
    write_integers(w, "input_ids", ids, tokens);
    write_integers(w, "seq_lens", &length, 1);
    write_integers(w, "positions", positions, tokens);
    write_integers(w, "req_pool_indices", &slot, 1);
    write_file(w, "rids", -1, &names);
    write_integers(w, "non_intrusive__model.embed_tokens.inputs.0", ids, tokens);
    write_rows(w, "non_intrusive__model.embed_tokens.output", -1, UINT64_MAX / 3);
    for (size_t layer = 0; layer < w->shape->layers; layer++)
        for (size_t slot_number = 0; slot_number < SLOTS; slot_number++) {
            char name[200];
            snprintf(name, sizeof name, "non_intrusive__model.layers.%zu.%s", layer, slots[slot_number]);
            write_rows(w, name, (int)layer, layer * SLOTS + slot_number);
        }
    free(ids);
    free(positions);
    w->step++;
}

static void write_folder(const char *parent, const char *name, const struct shape *shape)
{
    char path[4096];
    snprintf(path, sizeof path, "%s/%s", parent, name);
    if (mkdir(path, 0755) != 0)
        fail(path);
    struct writer w = {
        .folder = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC), .shape = shape, .second = *name == 'B'};
    w.rows = malloc(shape->tokens * shape->hidden * sizeof *w.rows);
    if (w.folder < 0 || w.rows == NULL)
        fail(path);
    text_init(&w.text);
    for (size_t pass = 0; pass < shape->passes; pass++)
        write_pass(&w);
    text_fini(&w.text);
    free(w.rows);
    close(w.folder);
}

int main(int argc, char **argv)
{
    if (argc != 6 && argc != 7) {
        fprintf(stderr, "usage: dump_pairs FOLDER PASSES TOKENS HIDDEN LAYERS [FLIP]\n");
        return 2;
    }
    const struct shape shape = {.passes = strtoul(argv[2], NULL, 10),
                                .tokens = strtoul(argv[3], NULL, 10),
                                .hidden = strtoul(argv[4], NULL, 10),
                                .layers = strtoul(argv[5], NULL, 10),
                                .flip = argc == 7};
    write_folder(argv[1], "A", &shape);
    write_folder(argv[1], "B", &shape);
    return EXIT_SUCCESS;
}
