/* alignment.h on dumps of the real SGLang: the pairs are those that truth.json of each names. */
#include "analysis/alignment.h"
#include "base/memory.h"
#include "dump_files.h"
#include "real_dump.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

struct read {
    struct side a, b;
    struct diff diff;
    struct alignment alignment;
};

static void align(const char *folder, const char *name, const char *first, const char *second, struct read *ret_read)
{
    char *dec = memory_format("%s/%s/%s", folder, name, first), *pre = memory_format("%s/%s/%s", folder, name, second);
    struct error err = ERROR_INIT;
    *ret_read = (struct read){.diff = {.usable = true}};
    if (side_read((const char *[]){dec, NULL}, 0, NULL, NULL, &ret_read->a, &err) != ERROR_NONE ||
        side_read((const char *[]){pre, NULL}, 0, NULL, NULL, &ret_read->b, &err) != ERROR_NONE ||
        alignment_make(&ret_read->a, &ret_read->b, false, &ret_read->diff, &ret_read->alignment, &err) != ERROR_NONE)
        fail_msg("%s: %s", name, err.message);
    free(dec);
    free(pre);
}

static void forget(struct read *read)
{
    alignment_fini(&read->alignment);
    diff_fini(&read->diff);
    side_fini(&read->a);
    side_fini(&read->b);
}

/* The n-th target pair. */
static const struct alignment_pair *target(const struct alignment *alignment, size_t n)
{
    for (size_t i = 0; i < alignment->pair_count; i++)
        if (alignment->pairs[i].target && n-- == 0)
            return &alignment->pairs[i];
    fail_msg("there are only %zu targets", alignment->target_count);
    return NULL;
}

static void check(const char *name, const struct json *tokens, const struct read *read)
{
    size_t n = 0, prompt = read->diff.requests[0].prompt_length;
    assert_int_equal(read->diff.request_count, 1);
    for (const struct json *token = json_first(tokens); token != NULL; token = json_next(token), n++) {
        const struct alignment_pair *pair = target(&read->alignment, n);
        const struct side_pass *a = &read->a.passes[pair->a_pass], *b = &read->b.passes[pair->b_pass];
        if (real_dump_number(token, "position") != pair->position ||
            real_dump_number(token, "dec_step") != (int64_t)a->step ||
            real_dump_number(token, "dec_row") != pair->a_row ||
            real_dump_number(token, "pre_step") != (int64_t)b->step ||
            real_dump_number(token, "pre_row") != pair->b_row)
            fail_msg("%s: target %zu is position %d", name, n, (int)pair->position);
        assert_int_equal(real_dump_number(token, "k"), pair->position - (int64_t)prompt);
    }
    if (n != read->alignment.target_count || prompt != read->alignment.pair_count - n)
        fail_msg("%s: %zu targets and %zu controls, not %zu and %zu", name, read->alignment.target_count,
                 read->alignment.pair_count - read->alignment.target_count, n, prompt);
    for (int id = DIFF_PROOF_A1; id <= DIFF_PROOF_A3; id++)
        assert_int_equal(read->diff.proofs[id].state, DIFF_PROOF_HOLDS);
    assert_int_equal(read->diff.message_count, 0);
    assert_true(read->diff.usable);
}

static void test_pairs(void **state)
{
    (void)state;
    static const char *const names[] = {"fault-rms-f32-0.5.23", "gpu-attn-bf16-0.5.16", "gpu-equal-bf16-0.5.16",
                                        "invariant-f32-0.5.23", "llama-bf16-0.5.23",    "llama-f32-0.5.20",
                                        "llama-f32-0.5.23"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        char *folder = real_dump_unpack(names[i]);
        struct json *truth = real_dump_truth(folder, names[i]);
        const struct json *tokens = json_find(truth, "ranks.0.requests.0.tokens");
        struct read read;
        assert_true(json_count(tokens) > 0);
        align(folder, names[i], "dec", "pre", &read);
        assert_false(read.diff.swapped);
        check(names[i], tokens, &read);
        forget(&read);
        align(folder, names[i], "pre", "dec", &read);
        assert_true(read.diff.swapped);
        check(names[i], tokens, &read);
        forget(&read);
        align(folder, names[i], "dec", "dec", &read);
        assert_true(read.alignment.target_count > 0); /* each row with itself */
        for (size_t k = 0; k < read.alignment.pair_count; k++)
            assert_true(read.alignment.pairs[k].a_pass == read.alignment.pairs[k].b_pass &&
                        read.alignment.pairs[k].a_row == read.alignment.pairs[k].b_row);
        forget(&read);
        json_free(truth);
        dump_files_remove(folder);
        free(folder);
    }
}

static void test_replayed_graphs(void **state)
{
    (void)state;
    static const char name[] = "gpu-graph-bf16-0.5.16";
    char *folder = real_dump_unpack(name);
    struct read read;
    align(folder, name, "dec", "pre", &read);
    assert_false(read.diff.usable);
    assert_int_equal(read.diff.messages[0].id, DIFF_MESSAGE_M4);
    assert_non_null(
        strstr(read.diff.messages[0].evidence,
               "steps 0 to 0 of rank 0 (1 passes, the first with 13 files) have no layer and no request ids"));
    forget(&read);
    dump_files_remove(folder);
    free(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_pairs), cmocka_unit_test(test_replayed_graphs)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
