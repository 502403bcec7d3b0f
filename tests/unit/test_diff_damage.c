/* diff_run on folders from which something is missing, or in which something is damaged or has another structure. */
#include "analysis/report.h"
#include "diff_case.h"

#include "dump_files.h"
#include "tests/standin/torch_file.h"

#include <dirent.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

enum { BYTES = 1 << 20 };

static struct diff_case plain(void)
{
    return (struct diff_case){.model = scenario_small()};
}

static struct scenario_fault fault(const char *name)
{
    return (struct scenario_fault){.name = name, .change = SCENARIO_ULP, .when = SCENARIO_DECODE, .amount = 1};
}

/* The name of the only file with all three texts; the caller frees. */
static char *find_file(const char *folder, const char *one, const char *two, const char *three)
{
    DIR *directory = opendir(folder);
    assert_non_null(directory);
    char *found = NULL;
    for (struct dirent *entry; (entry = readdir(directory)) != NULL;)
        if (strstr(entry->d_name, one) != NULL && strstr(entry->d_name, two) != NULL &&
            strstr(entry->d_name, three) != NULL) {
            assert_null(found);
            found = strdup(entry->d_name);
        }
    closedir(directory);
    assert_non_null(found);
    return found;
}

static size_t read_bytes(const char *folder, const char *name, char *bytes)
{
    char path[4096];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *file = fopen(path, "rb");
    assert_non_null(file);
    size_t length = fread(bytes, 1, BYTES, file);
    fclose(file);
    return length;
}

static void cut(const char *folder, const char *step, const char *slot)
{
    char *name = find_file(folder, step, slot, "___"), *bytes = malloc(BYTES);
    size_t length = read_bytes(folder, name, bytes);
    dump_files_write(folder, name, bytes, length / 2);
    free(bytes);
    free(name);
}

/* An archive that would run a command. */
static void poison(const char *folder, const char *step, const char *slot)
{
    static const char pickle[] = "\200\2cposix\nsystem\nX\2\0\0\0idq\0\205q\1Rq\2.";
    char *name = find_file(folder, step, slot, "___");
    struct dump_files_member members[] = {{"data.pkl", pickle, sizeof pickle - 1}, {"data/0", "", 0}};
    struct buffer bytes;
    buffer_init(&bytes);
    dump_files_archive(&bytes, "x", members, 2);
    dump_files_write(folder, name, bytes.data, bytes.length);
    buffer_fini(&bytes);
    free(name);
}

static bool was_told(const struct diff *diff, enum diff_message_id id, const char *part)
{
    for (size_t i = 0; i < diff->message_count; i++)
        if (diff->messages[i].id == id && strstr(diff->messages[i].evidence, part) != NULL)
            return true;
    return false;
}

static bool is_blind(const struct diff *diff, const char *one, const char *two)
{
    for (char **blind = diff->verdict.blind; *blind != NULL; blind++)
        if (strstr(*blind, one) != NULL && strstr(*blind, two) != NULL)
            return true;
    return false;
}

/* "Equal" is not said over a file that cannot be read; a difference elsewhere still is one. */
static void damaged(void **state)
{
    (void)state;
    struct diff_case world = plain();
    struct diff_case_folders folders = diff_case_write(&world);
    cut(folders.dec, "step=2___", "layers.1.mlp.act_fn.output");
    struct diff diff = diff_case_diff(folders.dec, folders.pre, 2, false);
    assert_int_equal(diff_status(&diff), STATUS_INCOMPLETE);
    assert_int_equal(diff.proofs[DIFF_PROOF_A9].state, DIFF_PROOF_FAILS);
    const struct diff_observation *observation = diff_case_observation(&diff, "model.layers.1.mlp.act_fn.output");
    assert_int_equal(observation->presence, DIFF_PRESENCE_UNREADABLE);
    assert_int_equal(observation->tested, 3);
    assert_non_null(strstr(observation->note, "step=2___"));
    diff_fini(&diff);
    diff_case_remove(&folders);
    world.faults[0] = fault("model.layers.0.self_attn.qkv_proj.output");
    folders = diff_case_write(&world);
    cut(folders.dec, "step=2___", "layers.1.mlp.act_fn.output");
    diff = diff_case_diff(folders.dec, folders.pre, 2, false);
    assert_int_equal(diff_status(&diff), STATUS_NO);
    assert_int_equal(diff.verdict.kind, DIFF_KIND_OP);
    assert_int_equal(diff.verdict.confidence, DIFF_CONFIDENCE_LIKELY);
    diff_fini(&diff);
    /* Inside the bracket: what an operator read is not known. */
    cut(folders.dec, "step=1___", "layers.0.self_attn.qkv_proj.inputs.0");
    diff = diff_case_diff(folders.dec, folders.pre, 2, false);
    assert_int_equal(diff.verdict.kind, DIFF_KIND_GAP);
    assert_true(is_blind(&diff, "qkv_proj.inputs.0", "not readable"));
    diff_fini(&diff);
    diff_case_remove(&folders);
}

/* What says which rows are whose: cut, it makes the dump unusable; hostile, it is refused. Neither blames the batch. */
static void core_files(void **state)
{
    (void)state;
    struct diff_case world = plain();
    for (int hostile = 0; hostile < 2; hostile++) {
        struct diff_case_folders folders = diff_case_write(&world);
        if (hostile)
            poison(folders.dec, "step=2___", "seq_lens");
        else
            cut(folders.dec, "step=2___", "input_ids");
        struct diff diff = diff_case_diff(folders.dec, folders.pre, 2, false);
        assert_int_equal(diff_status(&diff), hostile ? STATUS_REFUSED_FILE : STATUS_INCOMPLETE);
        assert_true(was_told(&diff, DIFF_MESSAGE_M14, hostile ? "posix.system" : "input_ids"));
        assert_false(was_told(&diff, DIFF_MESSAGE_M1, ""));
        assert_int_equal(diff.proofs[DIFF_PROOF_A1].state, DIFF_PROOF_FAILS);
        diff_fini(&diff);
        diff_case_remove(&folders);
    }
}

/* One of two inputs is missing in one pass: there the operator is not tested. */
static void half_an_input(void **state)
{
    (void)state;
    struct diff_case world = plain();
    world.faults[0] = fault("model.layers.1.post_attention_layernorm.output.0");
    struct diff_case_folders folders = diff_case_write(&world);
    cut(folders.dec, "step=1___", "layers.1.post_attention_layernorm.inputs.1");
    struct diff diff = diff_case_diff(folders.dec, folders.pre, 2, false);
    assert_int_equal(diff.verdict.kind, DIFF_KIND_GAP);
    assert_int_equal(diff_case_call(&diff, "model.layers.1.post_attention_layernorm")->tested, 3);
    assert_int_equal(diff_case_call(&diff, "model.layers.1.post_attention_layernorm")->unequal, 3);
    diff_fini(&diff);
    diff_case_remove(&folders);
}

/* Refused on the way to the verdict: status 5. Behind it, it is listed. */
static void refused(void **state)
{
    (void)state;
    struct diff_case world = plain();
    struct diff_case_folders folders = diff_case_write(&world);
    poison(folders.pre, "step=5___", "layers.1.mlp.act_fn.output");
    struct diff diff = diff_case_diff(folders.dec, folders.pre, 2, false);
    assert_int_equal(diff_status(&diff), STATUS_REFUSED_FILE);
    assert_non_null(strstr(diff.refused[0], "posix"));
    assert_null(diff.refused[1]);
    diff_fini(&diff);
    diff_case_remove(&folders);
    world.faults[0] = fault("model.layers.0.self_attn.qkv_proj.output");
    folders = diff_case_write(&world);
    poison(folders.dec, "step=1___", "layers.1.mlp.act_fn.output");
    diff = diff_case_diff(folders.dec, folders.pre, 2, false);
    assert_int_equal(diff_status(&diff), STATUS_NO);
    assert_non_null(diff.refused[0]);
    diff_fini(&diff);
    diff_case_remove(&folders);
}

/* M5: what stands around the hole is named; the rows of that pass are missing there. */
static void holes(void **state)
{
    (void)state;
    struct diff_case world = plain();
    world.faults[0] = fault("model.layers.1.mlp.inputs.0");
    struct diff_case_folders folders = diff_case_write(&world);
    assert_int_equal(scenario_remove(folders.dec, "step=1___", "layers.1.post_attention_layernorm", NULL), 4);
    struct diff diff = diff_case_diff(folders.dec, folders.pre, 2, false);
    assert_int_equal(diff.verdict.kind, DIFF_KIND_GAP);
    assert_true(was_told(&diff, DIFF_MESSAGE_M5, "(4 files), between step 1 rank 0"));
    assert_true(was_told(&diff, DIFF_MESSAGE_M5, "model.layers.1.mlp.inputs.0"));
    assert_true(is_blind(&diff, "layers.1.post_attention_layernorm.output.0", "not in this pass"));
    assert_int_equal(diff_case_observation(&diff, "model.layers.1.post_attention_layernorm.output.0")->tested, 3);
    diff_fini(&diff);
    diff_case_remove(&folders);
}

/* "Equal" is not said over missing files, as it is not over damaged ones. */
static void equal_but_for_holes(void **state)
{
    (void)state;
    struct diff_case world = plain();
    struct diff_case_folders folders = diff_case_write(&world);
    assert_int_equal(scenario_remove(folders.dec, "step=1___", "layers.1.post_attention_layernorm", NULL), 4);
    struct diff diff = diff_case_diff(folders.dec, folders.pre, 2, false);
    assert_int_equal(diff_status(&diff), STATUS_INCOMPLETE);
    assert_true(diff.proven);
    assert_non_null(strstr(report_summary(&diff), "what could be compared is equal, but files are missing"));
    diff_fini(&diff);
    diff_case_remove(&folders);
}

/* A pass whose tensor has another shape is not compared there: "equal" is no longer proven. */
static void another_shape_in_one_pass(void **state)
{
    (void)state;
    struct diff_case world = plain();
    struct diff_case_folders folders = diff_case_write(&world);
    char *from = find_file(folders.dec, "step=1___", "layers.1.mlp.inputs.0", "___"), *bytes = malloc(BYTES);
    char *to = find_file(folders.dec, "step=1___", "layers.1.mlp.act_fn.output", "___");
    dump_files_write(folders.dec, to, bytes, read_bytes(folders.dec, from, bytes));
    struct diff diff = diff_case_diff(folders.dec, folders.pre, 2, false);
    assert_int_equal(diff_status(&diff), STATUS_DONE);
    assert_int_equal(diff.proofs[DIFF_PROOF_A6].state, DIFF_PROOF_FAILS);
    assert_int_equal(diff.verdict.confidence, DIFF_CONFIDENCE_LIKELY);
    diff_fini(&diff);
    free(bytes);
    free(from);
    free(to);
    diff_case_remove(&folders);
}

/* M7: the same bytes in three layers; M9: no output of a layer. */
static void stale_and_filtered(void **state)
{
    (void)state;
    struct diff_case world = plain();
    struct diff_case_folders folders = diff_case_write(&world);
    char *bytes = malloc(BYTES);
    for (int side = 0; side < 2; side++) {
        const char *folder = side == 0 ? folders.dec : folders.pre, *step = side == 0 ? "step=1___" : "step=5___";
        char *from = find_file(folder, step, "layers.0.mlp.act_fn.output", "___");
        size_t length = read_bytes(folder, from, bytes);
        for (int layer = 1; layer < 3; layer++) {
            char slot[64];
            snprintf(slot, sizeof slot, "layers.%d.mlp.act_fn.output", layer);
            char *to = find_file(folder, step, slot, "___");
            dump_files_write(folder, to, bytes, length);
            free(to);
        }
        free(from);
    }
    free(bytes);
    scenario_remove(folders.dec, ".output___recompute_status=disabled.pt", "model.layers", NULL);
    scenario_remove(folders.pre, ".output___recompute_status=disabled.pt", "model.layers", NULL);
    struct diff diff = diff_case_diff(folders.dec, folders.pre, 2, false);
    assert_true(was_told(&diff, DIFF_MESSAGE_M7, "model.layers.0.mlp.act_fn.output is byte-identical in 3 layers"));
    assert_true(was_told(&diff, DIFF_MESSAGE_M9, "3 layers have inputs and no output"));
    diff_fini(&diff);
    diff_case_remove(&folders);
}

/* In all files of a folder, but for those of one step: `from` becomes `to`. */
static void rename_slots(const char *folder, const char *not_step, const char *from, const char *to)
{
    DIR *directory = opendir(folder);
    assert_non_null(directory);
    char *names[4096];
    size_t count = 0;
    for (struct dirent *entry; (entry = readdir(directory)) != NULL;)
        if (strstr(entry->d_name, from) != NULL && strstr(entry->d_name, not_step) == NULL)
            names[count++] = strdup(entry->d_name);
    closedir(directory);
    assert_true(count > 0);
    for (size_t i = 0; i < count; i++) {
        char old[4096], new[4096], *at = strstr(names[i], from);
        snprintf(old, sizeof old, "%s/%s", folder, names[i]);
        snprintf(new, sizeof new, "%s/%.*s%s%s", folder, (int)(at - names[i]), names[i], to, at + strlen(from));
        assert_int_equal(rename(old, new), 0);
        free(names[i]);
    }
}

/* Latent attention: prefill and decode run other modules. The verdict is the bracket around both. */
static void other_modules(void **state)
{
    (void)state;
    struct diff_case world = plain();
    world.faults[0] = fault("model.layers.1.self_attn.attn.output");
    struct diff_case_folders folders = diff_case_write(&world);
    rename_slots(folders.dec, "step=0___", ".self_attn.attn.", ".self_attn.attn_mqa.");
    rename_slots(folders.dec, "step=9___", ".self_attn.attn.", ".self_attn.attn_mha.");
    rename_slots(folders.pre, "step=9___", ".self_attn.attn.", ".self_attn.attn_mha.");
    struct diff diff = diff_case_diff(folders.dec, folders.pre, 2, false);
    assert_int_equal(diff.verdict.kind, DIFF_KIND_GAP);
    assert_string_equal(diff.observations[diff.verdict.first_unequal].name, "model.layers.1.self_attn.o_proj.inputs.0");
    assert_true(is_blind(&diff, "layers.1.self_attn.attn_mqa.output", "only on the decode side"));
    assert_true(is_blind(&diff, "layers.1.self_attn.attn_mha.output", "only on the reference side"));
    assert_int_equal(diff.proofs[DIFF_PROOF_A6].state, DIFF_PROOF_FAILS);
    diff_fini(&diff);
    diff_case_remove(&folders);
}

/* One tensor here, two there: a difference of structure, not of numbers. */
static void other_outputs(void **state)
{
    (void)state;
    struct diff_case world = plain();
    struct diff_case_folders folders = diff_case_write(&world);
    rename_slots(folders.dec, "step=9___", "layers.1.mlp.output___", "layers.1.mlp.output.0___");
    struct diff diff = diff_case_diff(folders.dec, folders.pre, 2, false);
    assert_int_equal(diff_status(&diff), STATUS_DONE);
    assert_int_equal(diff.verdict.confidence, DIFF_CONFIDENCE_LIKELY);
    const struct diff_observation *one = diff_case_observation(&diff, "model.layers.1.mlp.output");
    const struct diff_observation *two = diff_case_observation(&diff, "model.layers.1.mlp.output.0");
    assert_int_equal(one->presence, DIFF_PRESENCE_B_ONLY);
    assert_int_equal(two->presence, DIFF_PRESENCE_A_ONLY);
    assert_int_equal(one->call, two->call);
    diff_fini(&diff);
    diff_case_remove(&folders);
}

/* Two stages of a pipeline: rank 0 has layer 0, rank 1 the rest. Order and proofs go over both. */
static void stages(void **state)
{
    (void)state;
    struct diff_case world = plain();
    world.model.tp_size = 2;
    world.faults[0] = fault("model.layers.2.mlp.gate_up_proj.output");
    struct diff_case_folders folders = diff_case_write(&world);
    for (int side = 0; side < 2; side++) {
        const char *folder = side == 0 ? folders.dec : folders.pre;
        static const char *const first[] = {"layer_id=0.pt", "layers.0.output", "embed_tokens", "model.inputs"};
        static const char *const second[] = {"layer_id=1.pt", "layer_id=2.pt", "layers.1.output", "layers.2.output",
                                             "model.norm",    "model.output",  "logits"};
        for (size_t i = 0; i < sizeof first / sizeof *first; i++)
            scenario_remove(folder, "rank=1___", first[i], NULL);
        for (size_t i = 0; i < sizeof second / sizeof *second; i++)
            scenario_remove(folder, "rank=0___", second[i], NULL);
    }
    struct diff diff = diff_case_diff(folders.dec, folders.pre, 2, false);
    assert_int_equal(diff.verdict.kind, DIFF_KIND_OP);
    assert_string_equal(diff.calls[diff.verdict.call].name, "model.layers.2.mlp.gate_up_proj");
    assert_int_equal(diff.proofs[DIFF_PROOF_A4].state, DIFF_PROOF_HOLDS);
    assert_int_equal(diff.proofs[DIFF_PROOF_A7].state, DIFF_PROOF_HOLDS);
    uint32_t layer = 0;
    for (size_t i = 0; i < diff.observation_count; i++)
        if (diff.observations[i].has_layer) {
            assert_true(diff.observations[i].layer >= layer);
            layer = diff.observations[i].layer;
        }
    assert_int_equal(layer, 2);
    diff_fini(&diff);
    diff_case_remove(&folders);
}

/* Turns [tokens * heads, width] of one file from token by token to head by head. */
static void turn(const char *folder, const char *step, const char *slot, size_t tokens, size_t heads, size_t width)
{
    char *name = find_file(folder, step, slot, "___"), *bytes = malloc(BYTES), *turned = malloc(BYTES);
    size_t length = read_bytes(folder, name, bytes);
    char *at = memmem(bytes, length, "/data/0", 7);
    assert_non_null(at);
    char *data = bytes + ((size_t)(at - bytes) + 7 + 4 + 63) / 64 * 64;
    for (size_t token = 0; token < tokens; token++)
        for (size_t head = 0; head < heads; head++)
            memcpy(turned + (head * tokens + token) * width, data + (token * heads + head) * width, width);
    memcpy(data, turned, tokens * heads * width);
    dump_files_write(folder, name, bytes, length);
    free(bytes);
    free(turned);
    free(name);
}

/* Heads that lie head by head: found out by what fits. */
static void head_by_head(void **state)
{
    (void)state;
    struct diff_case world = plain();
    world.model.fused_qk_norm = true;
    struct diff_case_folders folders = diff_case_write(&world);
    turn(folders.pre, "step=5___", "layers.1.self_attn.q_norm.output", 9, 4, 16);
    turn(folders.dec, "step=0___", "layers.1.self_attn.q_norm.output", 5, 4, 16);
    struct diff diff = diff_case_diff(folders.dec, folders.pre, 2, false);
    const struct diff_observation *turned = diff_case_observation(&diff, "model.layers.1.self_attn.q_norm.output");
    const struct diff_observation *other = diff_case_observation(&diff, "model.layers.0.self_attn.q_norm.output");
    assert_int_equal(diff_status(&diff), STATUS_DONE);
    assert_int_equal(turned->factor, 4);
    assert_int_equal(turned->tested, 4);
    assert_int_equal(turned->control_tested, 5);
    assert_int_equal(other->tested, 4);
    diff_fini(&diff);
    diff_case_remove(&folders);
}

/* The dump_index behind the last one: one further would say that files are missing. */
static long next_index(const char *folder)
{
    DIR *directory = opendir(folder);
    assert_non_null(directory);
    long next = 0;
    for (struct dirent *entry; (entry = readdir(directory)) != NULL;) {
        const char *at = strstr(entry->d_name, "dump_index=");
        long index = at != NULL ? strtol(at + strlen("dump_index="), NULL, 10) : 0;
        next = index >= next ? index + 1 : next;
    }
    closedir(directory);
    return next;
}

/* Behind the last file of the last pass of a folder. */
static void add_tensor(const char *folder, long step, const struct torch_file_value *tensor)
{
    static const char slot[] = "non_intrusive__model.quantiser.output";
    long index = next_index(folder);
    char *name = dump_files_name((uint64_t)step, 0, (uint64_t)index, slot, -1);
    struct torch_file_meta meta = {
        .step = step, .dump_index = index, .name = slot, .layer_id = -1, .world_size = 1, .tokenizer_path = "model"};
    struct text text;
    text_init(&text);
    torch_file_build(tensor, &meta, "x", NULL, &text);
    dump_files_write(folder, name, text.data, text.length);
    text_fini(&text);
    free(name);
}

static void add_values(const char *folder, long step, enum torch_file_type type, const void *values, size_t count)
{
    add_tensor(
        folder, step,
        &(struct torch_file_value){
            .type = type, .device = "cpu", .dimensions = 1, .size = {count, 1}, .stride = {1, 1}, .data = values});
}

/* 32: a scale for the whole batch: no row of it belongs to a token. */
static void batch_wide(void **state)
{
    (void)state;
    struct diff_case world = plain();
    world.requests = 2;
    struct diff_case_folders folders = diff_case_write(&world);
    add_values(folders.dec, 4, TORCH_FILE_FLOAT32, (const float[]){0.5F}, 1);
    add_values(folders.pre, 5, TORCH_FILE_FLOAT32, (const float[]){0.25F}, 1);
    struct diff diff = diff_case_diff(folders.dec, folders.pre, 2, false);
    const struct diff_observation *scale = diff_case_observation(&diff, "model.quantiser.output");
    assert_int_equal(scale->rows, DIFF_ROWS_SHARED);
    assert_int_equal(scale->unequal, 2);
    assert_int_equal(diff.verdict.kind, DIFF_KIND_GAP);
    assert_non_null(strstr(diff.verdict.what, "one value for the whole batch"));
    diff_fini(&diff);
    diff_case_remove(&folders);
}

/* 33: the same numbers, row by row on one side and column by column on the other, are equal. */
static void views(void **state)
{
    (void)state;
    static const float rows[] = {1, 2, 3, 4, 5, 6}, columns[] = {1, 4, 2, 5, 3, 6};
    struct torch_file_value by_rows = {
        .device = "cpu", .type = TORCH_FILE_FLOAT32, .dimensions = 2, .size = {2, 3}, .stride = {3, 1}, .data = rows};
    struct torch_file_value by_columns = by_rows;
    by_columns.stride[0] = 1;
    by_columns.stride[1] = 2;
    for (int same = 0; same < 2; same++) {
        struct diff_case world = plain();
        struct diff_case_folders folders = diff_case_write(&world);
        by_columns.data = same ? columns : rows;
        add_tensor(folders.dec, 4, &by_columns);
        add_tensor(folders.pre, 5, &by_rows);
        struct diff diff = diff_case_diff(folders.dec, folders.pre, 1, false);
        assert_int_equal(diff_status(&diff), same ? STATUS_DONE : STATUS_NO);
        assert_int_equal(diff_case_observation(&diff, "model.quantiser.output")->tested, 1);
        diff_fini(&diff);
        diff_case_remove(&folders);
    }
}

/* Other types on the two sides: compared by value, and it is said when rounding explains the difference. */
static void other_types(void **state)
{
    (void)state;
    static const uint16_t narrow[] = {0x3F80, 0x4000, 0xC040};            /* bfloat16 */
    static const uint32_t equal[] = {0x3F800000, 0x40000000, 0xC0400000}; /* the same numbers */
    static const uint32_t near[] = {0x3F800001, 0x40000000, 0xC0400000};  /* rounded, they are */
    static const uint32_t far[] = {0x3F818000, 0x40000000, 0xC0400000};
    static const struct {
        const uint32_t *values;
        const char *note;
        size_t unequal;
    } cases[] = {{equal, "by value, equal", 0}, {near, "equal when rounded", 2}, {far, "unequal also when rounded", 2}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct diff_case world = plain();
        world.requests = 2;
        struct diff_case_folders folders = diff_case_write(&world);
        add_values(folders.dec, 4, TORCH_FILE_BFLOAT16, narrow, 3);
        add_values(folders.pre, 5, TORCH_FILE_FLOAT32, cases[i].values, 3);
        struct diff diff = diff_case_diff(folders.dec, folders.pre, 1, false);
        const struct diff_observation *both = diff_case_observation(&diff, "model.quantiser.output");
        assert_int_equal(both->presence, DIFF_PRESENCE_BOTH);
        assert_int_equal(both->unequal, cases[i].unequal);
        if (strstr(both->note, cases[i].note) == NULL)
            fail_msg("%s", both->note);
        assert_int_equal(diff.proofs[DIFF_PROOF_A6].state, DIFF_PROOF_FAILS);
        assert_non_null(strstr(diff.proofs[DIFF_PROOF_A6].evidence, "1 of another type"));
        diff_fini(&diff);
        diff_case_remove(&folders);
    }
}

/* A row that is stored once and shown four thousand million times is refused, not looked at that often. */
static void expanded(void **state)
{
    (void)state;
    struct diff_case world = plain();
    world.requests = 2;
    struct diff_case_folders folders = diff_case_write(&world);
    char *name = dump_files_name(4, 0, (uint64_t)next_index(folders.dec), "non_intrusive__model.quantiser.output", -1);
    static const char head[] =
        "\200\2}q\0(X\5\0\0\0valueq\1ctorch._utils\n_rebuild_tensor_v2\nq\2((X\7\0\0\0storageq\3"
        "ctorch\nFloatStorage\nq\4X\1\0\0\0000q\5X\3\0\0\0cpuq\6K\1tq\7QK\0\212\5\0\0\0\0\1\205q\10K\0"
        "\205q\11\211ccollections\nOrderedDict\nq\12)Rq\13tq\14Rq\15X\4\0\0\0metaq\16}q\17u.";
    struct dump_files_member members[] = {{"data.pkl", head, sizeof head - 1}, {"data/0", "\0\0\200?", 4}};
    struct buffer bytes;
    buffer_init(&bytes);
    dump_files_archive(&bytes, "x", members, 2);
    dump_files_write(folders.dec, name, bytes.data, bytes.length);
    buffer_fini(&bytes);
    free(name);
    add_values(folders.pre, 5, TORCH_FILE_FLOAT32, (const float[]){1.0F}, 1);
    struct diff diff = diff_case_diff(folders.dec, folders.pre, 1, false);
    if (diff.refused[0] == NULL)
        fail_msg("%s", diff_case_observation(&diff, "model.quantiser.output")->note);
    assert_int_equal(diff_status(&diff), STATUS_REFUSED_FILE);
    if (strstr(diff.refused[0], "more elements than it stores") == NULL)
        fail_msg("%s", diff.refused[0]);
    diff_fini(&diff);
    diff_case_remove(&folders);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(damaged),
                                       cmocka_unit_test(core_files),
                                       cmocka_unit_test(half_an_input),
                                       cmocka_unit_test(refused),
                                       cmocka_unit_test(holes),
                                       cmocka_unit_test(another_shape_in_one_pass),
                                       cmocka_unit_test(equal_but_for_holes),
                                       cmocka_unit_test(stale_and_filtered),
                                       cmocka_unit_test(other_modules),
                                       cmocka_unit_test(other_outputs),
                                       cmocka_unit_test(stages),
                                       cmocka_unit_test(batch_wide),
                                       cmocka_unit_test(views),
                                       cmocka_unit_test(other_types),
                                       cmocka_unit_test(expanded),
                                       cmocka_unit_test(head_by_head)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
