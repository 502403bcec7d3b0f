/* What holds of every diff, whatever is in the folders. */
#include "diff_case.h"

#include "dump_files.h"

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

enum { FILES = 4096 };

/* Two ranks, two requests, experts, and differences in several places. */
static struct diff_case rich(void)
{
    struct diff_case world = {.model = scenario_small(), .requests = 2, .prompt = {5, 7}, .length = {9, 12}};
    world.model.tp_size = 2;
    world.model.experts = 4;
    world.model.fused_qk_norm = true;
    world.faults[0] = (struct scenario_fault){.name = "model.layers.1.self_attn.attn.output",
                                              .change = SCENARIO_ULP,
                                              .when = SCENARIO_DECODE,
                                              .first = 8,
                                              .amount = 1};
    world.faults[1] = (struct scenario_fault){
        .name = "model.layers.2.mlp.gate.output", .change = SCENARIO_SCALE, .when = SCENARIO_PREFILL, .factor = 1.5};
    return world;
}

static void same_text(const struct diff *a, const struct diff *b)
{
    char *of_a = diff_case_text(a), *of_b = diff_case_text(b);
    assert_string_equal(of_a, of_b);
    free(of_a);
    free(of_b);
}

static int by_name(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

/* The names of a folder, sorted; the caller frees them. */
static size_t list_files(const char *folder, char **names)
{
    DIR *directory = opendir(folder);
    assert_non_null(directory);
    size_t count = 0;
    for (struct dirent *entry; (entry = readdir(directory)) != NULL;)
        if (entry->d_name[0] != '.') {
            assert_true(count < FILES);
            names[count++] = strdup(entry->d_name);
        }
    closedir(directory);
    qsort(names, count, sizeof *names, by_name);
    return count;
}

static char *read_file(const char *folder, const char *name, size_t *ret_length)
{
    char path[4096];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *file = fopen(path, "rb");
    assert_non_null(file);
    char *bytes = malloc(1 << 20);
    *ret_length = fread(bytes, 1, 1 << 20, file);
    fclose(file);
    return bytes;
}

/* The same files, made in the opposite order, somewhere else. */
static char *copy_reversed(const char *folder)
{
    static char *names[FILES];
    char *copy = dump_files_folder();
    for (size_t i = list_files(folder, names); i-- > 0;) {
        size_t length;
        char *bytes = read_file(folder, names[i], &length);
        dump_files_write(copy, names[i], bytes, length);
        free(bytes);
        free(names[i]);
    }
    return copy;
}

static void threads_and_order(void **state)
{
    (void)state;
    struct diff_case world = rich();
    struct diff_case_folders folders = diff_case_write(&world);
    struct diff one = diff_case_diff(folders.dec, folders.pre, 1, false);
    assert_int_equal(diff_status(&one), STATUS_NO);
    for (unsigned threads = 2; threads <= 8; threads += 3) {
        struct diff other = diff_case_diff(folders.dec, folders.pre, threads, false);
        same_text(&one, &other);
        diff_fini(&other);
    }
    struct diff_case_folders copy = {copy_reversed(folders.dec), copy_reversed(folders.pre)};
    struct diff other = diff_case_diff(copy.dec, copy.pre, 2, false);
    same_text(&one, &other);
    diff_fini(&other);
    diff_case_remove(&copy);
    struct diff swapped = diff_case_diff(folders.pre, folders.dec, 2, false);
    assert_true(swapped.swapped);
    same_text(&one, &swapped);
    diff_fini(&swapped);
    struct diff first = diff_case_diff(folders.dec, folders.pre, 1, true);
    assert_int_equal(first.verdict.kind, one.verdict.kind);
    assert_int_equal(first.verdict.first_unequal, one.verdict.first_unequal);
    assert_int_equal(first.verdict.first_pair, one.verdict.first_pair);
    assert_true(first.files_opened < one.files_opened);
    diff_fini(&first);
    diff_fini(&one);
    diff_case_remove(&folders);
}

static void with_itself(void **state)
{
    (void)state;
    struct diff_case world = rich();
    struct diff_case_folders folders = diff_case_write(&world);
    const char *const both[] = {folders.dec, folders.pre};
    for (int i = 0; i < 2; i++) {
        struct diff diff = diff_case_diff(both[i], both[i], 2, false);
        assert_int_equal(diff_status(&diff), STATUS_DONE);
        for (size_t k = 0; k < diff.observation_count; k++)
            assert_int_equal(diff.observations[k].unequal + diff.observations[k].control_unequal, 0);
        diff_fini(&diff);
    }
    diff_case_remove(&folders);
}

/* What is equal everywhere takes no memory for each of its pairs. */
static void equal_marks_are_shared(void **state)
{
    (void)state;
    struct diff_case world = {.model = scenario_small()};
    struct diff_case_folders folders = diff_case_write(&world);
    struct diff diff = diff_case_diff(folders.dec, folders.pre, 2, false);
    size_t shared = 0;
    for (size_t i = 0; i < diff.observation_count; i++) {
        const struct diff_observation *observation = &diff.observations[i];
        if (observation->tested + observation->control_tested < diff.pair_count)
            continue;
        assert_ptr_equal(observation->marks, diff.equal_marks);
        shared++;
    }
    assert_true(shared > diff.observation_count / 2);
    diff_fini(&diff);
    diff_case_remove(&folders);
}

/* Two decode runs, given one way and the other. */
static void mirrored(void **state)
{
    (void)state;
    struct diff_case world = {.model = scenario_small()};
    struct diff_case_folders plain = diff_case_write(&world);
    world.faults[0] = (struct scenario_fault){
        .name = "model.layers.1.mlp.down_proj.output", .change = SCENARIO_ULP, .when = SCENARIO_DECODE, .amount = 3};
    struct diff_case_folders other = diff_case_write(&world);
    struct diff forth = diff_case_diff(plain.dec, other.dec, 1, false);
    struct diff back = diff_case_diff(other.dec, plain.dec, 1, false);
    assert_int_equal(forth.verdict.kind, DIFF_KIND_OP);
    assert_int_equal(back.verdict.kind, DIFF_KIND_OP);
    assert_int_equal(forth.verdict.first_unequal, back.verdict.first_unequal);
    assert_int_equal(forth.verdict.first_pair, back.verdict.first_pair);
    for (size_t i = 0; i < forth.observation_count; i++) {
        const struct diff_observation *a = &forth.observations[i], *b = &back.observations[i];
        assert_string_equal(a->name, b->name);
        assert_int_equal(a->unequal, b->unequal);
        assert_int_equal(a->numbers.ulp_sum_up, b->numbers.ulp_sum_down);
        assert_int_equal(a->numbers.ulp_sum_down, b->numbers.ulp_sum_up);
        assert_true(a->numbers.first_a == b->numbers.first_b);
    }
    diff_fini(&forth);
    diff_fini(&back);
    diff_case_remove(&plain);
    diff_case_remove(&other);
}

/* Another request runs along in every pass, and has no counterpart. */
static void unrelated_request(void **state)
{
    (void)state;
    struct diff_case world = {.model = scenario_small()};
    world.faults[0] = (struct scenario_fault){.name = "model.layers.1.self_attn.o_proj.output",
                                              .change = SCENARIO_ULP,
                                              .when = SCENARIO_DECODE,
                                              .first = 6,
                                              .amount = 1};
    struct diff alone = diff_case_run(&world);
    world.other_tokens = true;
    struct diff both = diff_case_run(&world);
    assert_int_equal(alone.verdict.kind, DIFF_KIND_OP);
    assert_int_equal(both.verdict.kind, DIFF_KIND_OP);
    assert_int_equal(alone.verdict.first_unequal, both.verdict.first_unequal);
    assert_int_equal(alone.pair_count, both.pair_count);
    assert_int_equal(alone.verdict.first_pair, both.verdict.first_pair);
    for (size_t i = 0; i < alone.observation_count; i++) {
        assert_int_equal(alone.observations[i].tested, both.observations[i].tested);
        assert_int_equal(alone.observations[i].unequal, both.observations[i].unequal);
    }
    diff_fini(&alone);
    diff_fini(&both);
}

/* Flips the lowest bit of the first element of row `row` of `rows`. False: the tensor has no such rows. */
static bool flip(const char *folder, const char *name, size_t row, size_t rows)
{
    size_t length;
    char *bytes = read_file(folder, name, &length);
    char *at = memmem(bytes, length, "/data/0", 7);
    bool fits = false;
    if (at != NULL) {
        size_t begin = ((size_t)(at - bytes) + 7 + 4 + 63) / 64 * 64; /* behind the extra field */
        char *end = memmem(bytes + begin, length - begin, "PK\7\10", 4);
        assert_non_null(end);
        size_t size = (size_t)(end - bytes) - begin;
        fits = size % rows == 0 && size / rows >= 4;
        if (fits)
            bytes[begin + row * (size / rows)] ^= 1;
    }
    if (fits)
        dump_files_write(folder, name, bytes, length);
    free(bytes);
    return fits;
}

/* What a difference in this slot alone must be called. */
static enum diff_kind expected_kind(const struct diff *diff, const struct diff_observation *observation)
{
    const struct diff_call *call = &diff->calls[observation->call];
    if (observation->call == UINT32_MAX || observation->input)
        return DIFF_KIND_GAP;
    if (!call->leaf)
        return DIFF_KIND_GLUE;
    return call->class->class == MODULE_CLASS_STATE ? DIFF_KIND_OP_CACHE : DIFF_KIND_OP;
}

static void check_flip(const struct diff_case_folders *folders, const char *file, unsigned position)
{
    const char *name = strstr(file, "name=") + 5;
    char slot[512];
    snprintf(slot, sizeof slot, "%s", strncmp(name, "non_intrusive__", 15) == 0 ? name + 15 : name);
    *strstr(slot, "___") = '\0';
    struct diff diff = diff_case_diff(folders->dec, folders->pre, 1, false);
    if (strcmp(slot, "model.embed_tokens.output") == 0) {
        assert_int_equal(diff_status(&diff), STATUS_UNPROVEN);
        diff_fini(&diff);
        return;
    }
    if (!diff.proven || diff.verdict.kind == DIFF_KIND_NONE)
        fail_msg("nothing found for %s", file);
    const struct diff_observation *observation = &diff.observations[diff.verdict.first_unequal];
    if (strncmp(observation->name, slot, strlen(slot)) != 0)
        fail_msg("%s found instead of %s", observation->name, slot);
    const char *tag = strstr(file, "layer_id=");
    if (tag != NULL)
        assert_int_equal(observation->layer, atoi(tag + 9));
    assert_int_equal(diff.verdict.kind, expected_kind(&diff, observation));
    assert_int_equal(diff.verdict.unequal, 1);
    assert_int_equal(diff.pairs[diff.verdict.first_pair].position, position);
    diff_fini(&diff);
}

/* One bit of one row of one slot, in either run: found, and named right. Every slot, positions in turn. */
static void one_bit(void **state)
{
    (void)state;
    static char *names[FILES];
    struct diff_case world = {.model = scenario_small()};
    struct diff_case_folders folders = diff_case_write(&world);
    size_t tried = 0;
    for (unsigned side = 0; side < 2; side++) {
        const char *folder = side == 0 ? folders.dec : folders.pre;
        size_t count = list_files(folder, names);
        for (size_t i = 0; i < count; i++) {
            unsigned position = side == 0 ? 5 + (unsigned)(i % 4) : 5 + (unsigned)(i * 7 % 4);
            char step[32];
            snprintf(step, sizeof step, "step=%u___", side == 0 ? position - 4 : 5);
            bool core = strstr(names[i], "non_intrusive") == NULL && strstr(names[i], "layer_id") == NULL;
            bool logits = strstr(names[i], "next_token_logits") != NULL;
            size_t row = side == 0 ? 0 : position, rows = side == 0 ? 1 : 9;
            if (strncmp(names[i], step, strlen(step)) == 0 && !core && !logits && flip(folder, names[i], row, rows)) {
                check_flip(&folders, names[i], position);
                flip(folder, names[i], row, rows);
                tried++;
            }
        }
        for (size_t i = 0; i < count; i++)
            free(names[i]);
    }
    assert_true(tried > 100);
    diff_case_remove(&folders);
}

/* Of a prompt's row, one among its neighbours: it is the control that fails, in one row of one tensor. */
static void one_bit_of_the_prompt(void **state)
{
    (void)state;
    static char *names[FILES];
    struct diff_case world = {.model = scenario_small()};
    struct diff_case_folders folders = diff_case_write(&world);
    size_t count = list_files(folders.dec, names);
    for (size_t i = 0; i < count; i++) {
        if (strncmp(names[i], "step=0___", 9) == 0 && strstr(names[i], "layers.1.mlp.act_fn.output") != NULL) {
            assert_true(flip(folders.dec, names[i], 3, 5));
            struct diff diff = diff_case_diff(folders.dec, folders.pre, 1, false);
            const struct diff_observation *output = diff_case_observation(&diff, "model.layers.1.mlp.act_fn.output");
            assert_int_equal(diff_status(&diff), STATUS_DONE);
            assert_int_equal(diff.proofs[DIFF_PROOF_A8].state, DIFF_PROOF_FAILS);
            assert_int_equal(diff.control_unequal, 1);
            assert_int_equal(output->control_unequal, 1);
            assert_int_equal(output->marks[3], DIFF_MARK_ULP);
            assert_int_equal(output->marks[4], DIFF_MARK_EQUAL);
            diff_fini(&diff);
        }
        free(names[i]);
    }
    diff_case_remove(&folders);
}

/* Renames a module in all files; what is known by its name is not known any more. */
static void rename_all(const char *folder, const char *from, const char *to)
{
    static char *names[FILES];
    size_t count = list_files(folder, names);
    for (size_t i = 0; i < count; i++) {
        char *at = strstr(names[i], from), old[4096], new[4096];
        if (at != NULL) {
            snprintf(old, sizeof old, "%s/%s", folder, names[i]);
            snprintf(new, sizeof new, "%s/%.*s%s%s", folder, (int)(at - names[i]), names[i], to, at + strlen(from));
            assert_int_equal(rename(old, new), 0);
        }
        free(names[i]);
    }
}

static void renamed(void **state)
{
    (void)state;
    static const char *const pairs[][2] = {{".embed_tokens.", ".tok."},
                                           {".self_attn.attn.", ".self_attn.kernel."},
                                           {".qkv_proj.", ".wqkv."},
                                           {".input_layernorm.", ".ln_in."},
                                           {"__model.", "__net."}};
    static const char *const stateful[] = {"kernel", NULL};
    struct diff_case world = {.model = scenario_small()};
    world.model.first_layer = 17;
    world.faults[0] = (struct scenario_fault){
        .name = "model.layers.18.self_attn.attn.output", .change = SCENARIO_ULP, .when = SCENARIO_DECODE, .amount = 1};
    struct diff_case_folders folders = diff_case_write(&world);
    struct diff before = diff_case_diff(folders.dec, folders.pre, 1, false);
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++) {
        rename_all(folders.dec, pairs[i][0], pairs[i][1]);
        rename_all(folders.pre, pairs[i][0], pairs[i][1]);
    }
    struct diff after = diff_case_diff_with(folders.dec, folders.pre, (struct diff_options){.stateful = stateful});
    assert_true(after.proven);
    assert_int_equal(after.proofs[DIFF_PROOF_A4].state, DIFF_PROOF_HOLDS);
    assert_int_equal(before.verdict.kind, DIFF_KIND_OP_CACHE);
    assert_int_equal(after.verdict.kind, DIFF_KIND_OP_CACHE);
    assert_int_equal(after.verdict.first_unequal, before.verdict.first_unequal);
    assert_int_equal(after.verdict.first_pair, before.verdict.first_pair);
    assert_string_equal(before.calls[before.verdict.call].name, "model.layers.18.self_attn.attn");
    assert_string_equal(after.calls[after.verdict.call].name, "net.layers.18.self_attn.kernel");
    diff_fini(&after);
    after = diff_case_diff(folders.dec, folders.pre, 1, false);
    assert_int_equal(after.verdict.kind, DIFF_KIND_OP);
    assert_int_equal(after.calls[after.verdict.call].class->class, MODULE_CLASS_UNKNOWN);
    diff_fini(&after);
    diff_fini(&before);
    diff_case_remove(&folders);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(threads_and_order),      cmocka_unit_test(with_itself),
                                       cmocka_unit_test(equal_marks_are_shared), cmocka_unit_test(mirrored),
                                       cmocka_unit_test(unrelated_request),      cmocka_unit_test(one_bit),
                                       cmocka_unit_test(one_bit_of_the_prompt),  cmocka_unit_test(renamed)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
