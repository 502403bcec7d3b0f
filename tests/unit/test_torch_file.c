/* test_torch_file.c: the stand-in's .pt files are those of torch, byte for byte.
 *
 * The three files come from a real SGLang 0.5.23 (torch 2.13.0): a vector, a list of request ids, and a view of one row
 * whose stride is that of the fused tensor. Their data and serialization ids are read back from them.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/standin/torch_file.h"

static void read_sample(const char *name, struct text *content)
{
    const char *source = getenv("srcdir");
    char path[512], block[4096];
    snprintf(path, sizeof path, "%s/tests/data/standin/%s", source != NULL ? source : ".", name);
    FILE *file = fopen(path, "rb");
    assert_non_null(file);
    size_t got;
    while ((got = fread(block, 1, sizeof block, file)) > 0)
        text_bytes(content, block, got);
    fclose(file);
}

/* The data of a member: behind its padded local header. */
static const char *member(const struct text *file, const char *suffix)
{
    size_t length = strlen(suffix);
    for (size_t i = 0; i + length < file->length; i++) {
        if (memcmp(file->data + i, suffix, length) != 0 || memcmp(file->data + i + length, "FB", 2) != 0)
            continue;
        return file->data + (i + length + 4 + 63) / 64 * 64;
    }
    fail_msg("no member %s", suffix);
    return NULL;
}

static void check(const char *sample, struct torch_file_value *value, const struct torch_file_meta *meta,
                  const char *record)
{
    struct text expected, got;
    char id[41] = "";
    text_init(&expected);
    text_init(&got);
    read_sample(sample, &expected);
    if (value->strings == NULL)
        value->data = member(&expected, "/data/0");
    memcpy(id, member(&expected, "/.data/serialization_id"), 40);
    torch_file_build(value, meta, record, id, &got);
    assert_int_equal(got.length, expected.length);
    assert_memory_equal(got.data, expected.data, expected.length);
    text_fini(&expected);
    text_fini(&got);
}

static void a_vector_of_int64_is_equal(void **state)
{
    (void)state;
    struct torch_file_value value = {
        .type = TORCH_FILE_INT64, .device = "cpu", .dimensions = 1, .size = {1}, .stride = {1}};
    struct torch_file_meta meta = {
        .dump_index = 4, .name = "seq_lens", .layer_id = -1, .world_size = 1, .tokenizer_path = "m-llama"};
    check("seq_lens.pt", &value, &meta, "step=0___rank=0___dump_index=4___name=seq_lens___recompute_status=disabled");
}

static void a_list_of_request_ids_is_equal(void **state)
{
    (void)state;
    static const char *const RIDS[] = {"dec-0"};
    struct torch_file_value value = {.device = "cpu", .strings = RIDS, .string_count = 1};
    struct torch_file_meta meta = {
        .dump_index = 7, .name = "rids", .layer_id = -1, .world_size = 1, .tokenizer_path = "m-llama"};
    check("rids.pt", &value, &meta, "step=0___rank=0___dump_index=7___name=rids___recompute_status=disabled");
}

static void a_view_of_one_row_keeps_its_stride(void **state)
{
    (void)state;
    struct torch_file_value value = {
        .type = TORCH_FILE_FLOAT32, .device = "cpu", .dimensions = 2, .size = {1, 64}, .stride = {128, 1}};
    struct torch_file_meta meta = {.step = 1,
                                   .dump_index = 179,
                                   .name = "non_intrusive__model.layers.0.self_attn.rotary_emb.inputs.1",
                                   .layer_id = 1,
                                   .world_size = 1,
                                   .tokenizer_path = "m-llama"};
    check("rotary_emb.pt", &value, &meta,
          "step=1___rank=0___dump_index=179___name=non_intrusive__model.layers.0.self_attn.rotary_emb.inputs.1"
          "___recompute_status=disabled___layer_id=1");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_vector_of_int64_is_equal),
        cmocka_unit_test(a_list_of_request_ids_is_equal),
        cmocka_unit_test(a_view_of_one_row_keeps_its_stride),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
