/* scenario.h: its files are those of a real pass, decode equals prefill, and a fault shows where it was planted. */
#include "dump_files.h"
#include "scenario.h"

#include <dirent.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static const int64_t TOKENS[] = {3, 1, 4, 1, 5, 9, 2, 6};

/* A prompt of 5, decode passes at 5 to 7 in `dec`, the scoring pass in `pre`. */
static void write_both(const struct scenario_model *model, const struct scenario_fault *fault, const char *dec,
                       const char *pre)
{
    struct scenario *scenario = scenario_begin(model);
    unsigned first = scenario_request(scenario, "dec-0", TOKENS, 8);
    scenario_open(scenario, dec);
    if (fault != NULL)
        scenario_fault(scenario, fault);
    scenario_prefill(scenario, first, 5);
    scenario_decode(scenario, first, 5, 7);
    scenario_heal(scenario);
    unsigned second = scenario_request(scenario, "pre-0", TOKENS, 8);
    scenario_open(scenario, pre);
    scenario_prefill(scenario, second, 8);
    scenario_end(scenario);
}

/* The bytes of data/0 of the file whose name contains "step=S___rank=R___" and "name=NAME_"; the caller frees. */
static char *payload(const char *folder, unsigned step, unsigned rank, const char *name, size_t *ret_size)
{
    char start[64], part[256], path[4096];
    snprintf(start, sizeof start, "step=%u___rank=%u___", step, rank);
    snprintf(part, sizeof part, "name=%s___", name);
    DIR *directory = opendir(folder);
    assert_non_null(directory);
    path[0] = '\0';
    for (struct dirent *entry; (entry = readdir(directory)) != NULL;)
        if (strncmp(entry->d_name, start, strlen(start)) == 0 && strstr(entry->d_name, part) != NULL)
            snprintf(path, sizeof path, "%s/%s", folder, entry->d_name);
    closedir(directory);
    if (path[0] == '\0')
        fail_msg("no %s %s", start, part);
    FILE *file = fopen(path, "r");
    char *bytes = malloc(1 << 20);
    size_t length = fread(bytes, 1, 1 << 20, file);
    fclose(file);
    char *at = memmem(bytes, length, "/data/0", 7);
    assert_non_null(at);
    size_t begin = ((size_t)(at - bytes) + 7 + 4 + 63) / 64 * 64; /* behind the extra field */
    char *end = memmem(bytes + begin, length - begin, "PK\7\10", 4);
    *ret_size = (size_t)(end - bytes) - begin;
    memmove(bytes, bytes + begin, *ret_size);
    return bytes;
}

static bool same_row(const char *dec, const char *pre, unsigned rank, unsigned position, const char *name)
{
    size_t one, many;
    char *a = payload(dec, position - 4, rank, name, &one), *b = payload(pre, 4, rank, name, &many);
    assert_int_equal(many, 8 * one);
    bool same = memcmp(a, b + position * one, one) == 0;
    free(a);
    free(b);
    return same;
}

static void test_names(void **state)
{
    (void)state;
    char *dec = dump_files_folder(), *pre = dump_files_folder();
    struct scenario_model model = scenario_small();
    write_both(&model, NULL, dec, pre);
    FILE *list = fopen(TEST_DATA "/standin/llama-3-layers-0.5.23.txt", "r");
    assert_non_null(list);
    char line[512], path[4096];
    unsigned lines = 0;
    while (fgets(line, sizeof line, list) != NULL) {
        char name[256] = "", layer[32] = "";
        if (sscanf(line, "%255s %31s", name, layer) < 1)
            continue;
        snprintf(path, sizeof path, "%s/step=0___rank=0___dump_index=%u___name=%s___recompute_status=disabled%s%s.pt",
                 dec, ++lines, name, layer[0] != '\0' ? "___layer_id=" : "", layer);
        FILE *file = fopen(path, "r");
        if (file == NULL)
            fail_msg("%s is not there", path);
        fclose(file);
    }
    fclose(list);
    assert_int_equal(lines, 123);
    assert_int_equal(scenario_remove(dec, "step=0___", NULL), 123);
    assert_int_equal(scenario_remove(dec, "step=", NULL), 3 * 123);
    dump_files_remove(dec);
    dump_files_remove(pre);
    free(dec);
    free(pre);
}

static const char *const LAST[] = {"non_intrusive__model.embed_tokens.output",
                                   "non_intrusive__model.layers.0.self_attn.qkv_proj.output",
                                   "non_intrusive__model.layers.1.mlp.down_proj.output",
                                   "non_intrusive__model.layers.2.mlp.output", "non_intrusive__model.norm.output.0"};

static void compare(const struct scenario_model *model, const struct scenario_fault *fault, unsigned position,
                    unsigned rank, unsigned first_different)
{
    char *dec = dump_files_folder(), *pre = dump_files_folder();
    write_both(model, fault, dec, pre);
    for (unsigned i = 0; i < sizeof LAST / sizeof LAST[0]; i++)
        if (same_row(dec, pre, rank, position, LAST[i]) != (i < first_different))
            fail_msg("%s at %u", LAST[i], position);
    dump_files_remove(dec);
    dump_files_remove(pre);
    free(dec);
    free(pre);
}

static void test_decode_equals_prefill(void **state)
{
    (void)state;
    struct scenario_model model = scenario_small();
    compare(&model, NULL, 5, 0, 5);
    compare(&model, NULL, 7, 0, 5);
    model.type = TORCH_FILE_BFLOAT16;
    model.recurrent = 2;
    model.fused_qk_norm = true;
    compare(&model, NULL, 7, 0, 5);
    model = scenario_small();
    model.tp_size = 2;
    compare(&model, NULL, 7, 1, 5);
}

static void test_a_fault_goes_on(void **state)
{
    (void)state;
    struct scenario_model model = scenario_small();
    struct scenario_fault fault = {.name = "model.layers.1.mlp.down_proj.output",
                                   .change = SCENARIO_ULP,
                                   .when = SCENARIO_DECODE,
                                   .first = 6,
                                   .last = 6,
                                   .element = 3,
                                   .elements = 1,
                                   .amount = 1};
    compare(&model, &fault, 5, 0, 5);
    compare(&model, &fault, 6, 0, 2);
    compare(&model, &fault, 7, 0, 3); /* by the cache of layer 2 */
    fault.harmless = true;
    fault.name = "model.norm.output.0";
    compare(&model, &fault, 6, 0, 4);
    model.tp_size = 2; /* what one rank has wrong reaches the other through the all-reduce */
    fault = (struct scenario_fault){
        .name = "model.layers.1.mlp.act_fn.output", .change = SCENARIO_SCALE, .factor = 1.5, .ranks = 2, .first = 7};
    compare(&model, &fault, 7, 0, 2);
    compare(&model, &fault, 7, 1, 2);
}

static void test_experts(void **state)
{
    (void)state;
    struct scenario_model model = scenario_small();
    model.experts = 8;
    char *dec = dump_files_folder(), *pre = dump_files_folder();
    struct scenario_fault fault = {
        .name = "model.layers.1.mlp.topk.output.1", .change = SCENARIO_SET, .first = 6, .elements = 1, .amount = 77};
    write_both(&model, &fault, dec, pre);
    assert_true(same_row(dec, pre, 0, 5, "non_intrusive__model.layers.1.mlp.topk.output.1"));
    assert_false(same_row(dec, pre, 0, 6, "non_intrusive__model.layers.1.mlp.topk.output.1"));
    assert_true(same_row(dec, pre, 0, 6, "non_intrusive__model.layers.1.mlp.topk.output.0"));
    assert_false(same_row(dec, pre, 0, 6, "non_intrusive__model.layers.1.mlp.experts.output"));
    dump_files_remove(dec);
    dump_files_remove(pre);
    free(dec);
    free(pre);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_names),
        cmocka_unit_test(test_decode_equals_prefill),
        cmocka_unit_test(test_a_fault_goes_on),
        cmocka_unit_test(test_experts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
