/* diff_run on dump folders with a planted fault: the public cases of facts/dump-analysis.md 7 by their numbers. */
#include "diff_case.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#define LAYER     "model.layers."
#define ATTENTION "self_attn.attn"

static struct diff_case small(void)
{
    return (struct diff_case){.model = scenario_small()};
}

static const struct diff_call *culprit(const struct diff *diff)
{
    assert_true(diff->proven);
    assert_true(diff->verdict.call < diff->call_count);
    return &diff->calls[diff->verdict.call];
}

static int64_t first_position(const struct diff *diff)
{
    return diff->pairs[diff->verdict.first_pair].position;
}

static void says(const char *text, const char *part)
{
    if (text == NULL || strstr(text, part) == NULL)
        fail_msg("'%s' does not say '%s'", text == NULL ? "(nothing)" : text, part);
}

static void proof_is(const struct diff *diff, enum diff_proof_id id, enum diff_proof_state state)
{
    if (diff->proofs[id].state != state)
        fail_msg("%s %s: %s", diff_proof_name(id), diff_proof_state_word(diff->proofs[id].state),
                 diff->proofs[id].evidence);
}

static void all_hold(const struct diff *diff)
{
    for (int id = 0; id < DIFF_PROOF_COUNT; id++)
        proof_is(diff, (enum diff_proof_id)id, DIFF_PROOF_HOLDS);
}

/* 22, and 37's control: everything equal up to the logits. */
static void equal(void **state)
{
    (void)state;
    static const enum torch_file_type types[] = {TORCH_FILE_FLOAT32, TORCH_FILE_BFLOAT16, TORCH_FILE_FLOAT16};
    for (unsigned i = 0; i < 3; i++) {
        struct diff_case world = small();
        world.model.type = types[i];
        struct diff diff = diff_case_run(&world);
        assert_int_equal(diff_status(&diff), STATUS_DONE);
        assert_int_equal(diff.verdict.kind, DIFF_KIND_NONE);
        assert_int_equal(diff.verdict.confidence, DIFF_CONFIDENCE_PROVEN);
        says(diff.verdict.what, "behind the last tensor");
        all_hold(&diff);
        says(diff.proofs[DIFF_PROOF_A8].evidence, "0 of ");
        assert_int_equal(diff.control_unequal, 0);
        assert_true(diff.control_elements > 1000);
        assert_int_equal(diff_case_observation(&diff, "logits_processor.output.next_token_logits")->tested, 1);
        diff_fini(&diff);
    }
}

/* 1: one absolute boundary for prompts of any length. */
static void boundary(void **state)
{
    (void)state;
    struct diff_case world = small();
    world.model.layers = 1;
    world.requests = 2;
    world.prompt[0] = 4;
    world.prompt[1] = 12;
    world.length[0] = world.length[1] = 100;
    world.faults[0] = (struct scenario_fault){.name = LAYER "0." ATTENTION ".output",
                                              .change = SCENARIO_ULP,
                                              .when = SCENARIO_DECODE,
                                              .first = 96,
                                              .amount = 1};
    struct diff diff = diff_case_run(&world);
    assert_int_equal(diff_status(&diff), STATUS_NO);
    assert_int_equal(diff.verdict.kind, DIFF_KIND_OP_CACHE);
    assert_int_equal(diff.verdict.confidence, DIFF_CONFIDENCE_PROVEN);
    assert_string_equal(culprit(&diff)->name, LAYER "0." ATTENTION);
    assert_int_equal(first_position(&diff), 96);
    assert_true(diff.verdict.one_position);
    assert_false(diff.verdict.one_request);
    says(diff.verdict.what, "kernel");
    proof_is(&diff, DIFF_PROOF_A7, DIFF_PROOF_HOLDS);
    assert_int_equal(culprit(&diff)->unequal, 8);
    assert_int_equal(culprit(&diff)->history_equal, 8);
    diff_fini(&diff);
}

/* 2: one element by one ULP; a tolerance would pass. */
static void one_element(void **state)
{
    (void)state;
    struct diff_case world = small();
    world.model.type = TORCH_FILE_BFLOAT16;
    world.faults[0] = (struct scenario_fault){.name = LAYER "1." ATTENTION ".output",
                                              .change = SCENARIO_ULP,
                                              .when = SCENARIO_DECODE,
                                              .first = 7,
                                              .last = 7,
                                              .element = 11,
                                              .elements = 1,
                                              .amount = 1};
    struct diff diff = diff_case_run(&world);
    const struct diff_observation *output = diff_case_observation(&diff, LAYER "1." ATTENTION ".output");
    assert_int_equal(diff.verdict.kind, DIFF_KIND_OP_CACHE);
    assert_int_equal(output->unequal, 1);
    assert_int_equal(output->numbers.unequal, 1);
    assert_int_equal(output->numbers.max_ulp, 1);
    assert_int_equal(output->numbers.first_unequal, 11);
    assert_int_equal(output->row_elements, 16);
    assert_true(numbers_relative_difference(&output->numbers) < 1e-3);
    assert_int_equal(output->marks[output->first_unequal_pair], DIFF_MARK_ULP);
    assert_int_equal(first_position(&diff), 7);
    diff_fini(&diff);
}

/* 5: three operators at once; 20: only the first generated token, in steps of one size. */
static void several(void **state)
{
    (void)state;
    struct diff_case world = small();
    static const char *const names[] = {LAYER "1.mlp.gate_up_proj", LAYER "0.self_attn.o_proj",
                                        LAYER "2.input_layernorm"};
    static const char *const files[] = {LAYER "1.mlp.gate_up_proj.output", LAYER "0.self_attn.o_proj.output",
                                        LAYER "2.input_layernorm.output.0"};
    for (unsigned i = 0; i < 3; i++)
        world.faults[i] = (struct scenario_fault){.name = files[i],
                                                  .change = SCENARIO_ULP,
                                                  .when = SCENARIO_DECODE,
                                                  .first = 5 + i,
                                                  .last = 5 + i,
                                                  .amount = 4,
                                                  .harmless = true};
    struct diff diff = diff_case_run(&world);
    assert_int_equal(diff.verdict.kind, DIFF_KIND_OP);
    assert_string_equal(culprit(&diff)->name, names[1]);
    size_t culprits = 0;
    for (size_t i = 0; i < diff.call_count; i++)
        culprits += diff.calls[i].leaf && diff.calls[i].unequal > 0;
    assert_int_equal(culprits, 3);
    for (unsigned i = 0; i < 3; i++) {
        const struct diff_call *call = diff_case_call(&diff, names[i]);
        assert_int_equal(call->tested, 4);
        assert_int_equal(call->unequal, 1);
        assert_int_equal(diff.pairs[call->first_pair].position, 5 + i);
        assert_int_equal(call->max_ulp, 4);
    }
    const struct diff_observation *first = diff_case_observation(&diff, files[0]);
    assert_int_equal(first->numbers.histogram[4], first->numbers.elements);
    assert_string_equal(numbers_bucket_name(4), "3-4");
    diff_fini(&diff);
}

/* 8: one request of three, by far. */
static void one_request(void **state)
{
    (void)state;
    struct diff_case world = small();
    world.requests = 3;
    world.prompt[1] = 6;
    world.length[1] = 11;
    world.faults[0] = (struct scenario_fault){
        .name = LAYER "0." ATTENTION ".output", .change = SCENARIO_RANDOM, .when = SCENARIO_DECODE, .requests = 1 << 1};
    struct diff diff = diff_case_run(&world);
    assert_int_equal(diff.verdict.kind, DIFF_KIND_OP_CACHE);
    assert_true(diff.verdict.one_request);
    says(diff.verdict.what, "Look at the cache");
    says(diff.verdict.reading, "far apart");
    assert_int_equal(diff.verdict.unequal, 5);
    diff_fini(&diff);
}

/* The first pair is that of the first request, also where a later one differs in an earlier pass; and that two requests
 * differ from their first decode pass on is no boundary. */
static void order_of_requests(void **state)
{
    (void)state;
    struct diff_case world = small();
    world.requests = 2;
    world.faults[0] = (struct scenario_fault){.name = LAYER "1.mlp.down_proj.output",
                                              .change = SCENARIO_ULP,
                                              .when = SCENARIO_DECODE,
                                              .requests = 1 << 0,
                                              .first = 8,
                                              .element = 3,
                                              .amount = 2};
    world.faults[1] = world.faults[0];
    world.faults[1].requests = 1 << 1;
    world.faults[1].first = 5;
    world.faults[1].element = 0;
    struct diff diff = diff_case_run(&world);
    const struct diff_observation *output = diff_case_observation(&diff, LAYER "1.mlp.down_proj.output");
    assert_int_equal(diff.pairs[diff.verdict.first_pair].request, 0);
    assert_int_equal(first_position(&diff), 8);
    assert_int_equal(output->numbers.first_unequal, 3);
    assert_false(diff.verdict.one_position);
    diff_fini(&diff);
    world.faults[0].first = 5;
    diff = diff_case_run(&world);
    assert_int_equal(first_position(&diff), 5);
    assert_false(diff.verdict.one_position);
    assert_false(diff.verdict.one_request);
    diff_fini(&diff);
}

/* 13: the state itself is in no dump; 14: layer 0 is equal, layer 1 is not, what follows is downstream. */
static void recurrent(void **state)
{
    (void)state;
    for (unsigned layer = 0; layer < 2; layer++) {
        struct diff_case world = small();
        world.model.recurrent = 3;
        world.faults[0] = (struct scenario_fault){.name = layer == 0 ? LAYER "0.linear_attn.attn.output"
                                                                     : LAYER "1.linear_attn.attn.output",
                                                  .change = SCENARIO_ULP,
                                                  .when = SCENARIO_DECODE,
                                                  .amount = 2};
        struct diff diff = diff_case_run(&world);
        assert_int_equal(diff.verdict.kind, DIFF_KIND_STATE);
        assert_int_equal(culprit(&diff)->layer, layer);
        assert_string_equal(culprit(&diff)->class->kind, "recurrent state");
        assert_int_equal(diff.verdict.confidence, DIFF_CONFIDENCE_LIKELY);
        proof_is(&diff, DIFF_PROOF_A7, DIFF_PROOF_UNKNOWN);
        says(diff.verdict.what, "state");
        const struct diff_observation *last = diff_case_observation(&diff, LAYER "2.output");
        assert_int_equal(last->unequal, last->tested);
        diff_fini(&diff);
    }
}

/* 15: the same wrong bits on both ranks of an operator that ends in an all-reduce; and of one rank alone. */
static void ranks(void **state)
{
    (void)state;
    for (unsigned one = 0; one < 2; one++) {
        struct diff_case world = small();
        world.model.tp_size = 2;
        world.faults[0] = (struct scenario_fault){.name = one ? LAYER "1.self_attn.qkv_proj.output"
                                                              : LAYER "1.self_attn.o_proj.output",
                                                  .change = SCENARIO_ULP,
                                                  .when = SCENARIO_DECODE,
                                                  .ranks = one ? 2 : 0,
                                                  .amount = 1};
        struct diff diff = diff_case_run(&world);
        assert_int_equal(diff.ranks, 2);
        assert_int_equal(diff.tp_size, 2);
        assert_int_equal(diff.verdict.kind, DIFF_KIND_OP);
        proof_is(&diff, DIFF_PROOF_A5, DIFF_PROOF_HOLDS);
        assert_int_equal(diff.verdict.ranks_agree, !one);
        assert_int_equal(diff.verdict.unequal, one ? 4 : 8);
        assert_int_equal(diff.pairs[diff.verdict.first_pair].rank, one);
        if (!one) {
            says(diff.verdict.what, "all-reduce");
            assert_int_equal(culprit(&diff)->class->class, MODULE_CLASS_REDUCES);
        }
        diff_fini(&diff);
    }
}

/* 16: what computes the value is hooked on one side only. */
static void gap(void **state)
{
    (void)state;
    struct diff_case world = small();
    world.faults[0] = (struct scenario_fault){.name = LAYER "0.post_attention_layernorm.output.0",
                                              .change = SCENARIO_ULP,
                                              .when = SCENARIO_DECODE,
                                              .amount = 1};
    struct diff_case_folders folders = diff_case_write(&world);
    assert_true(scenario_remove(folders.pre, "layers.0.post_attention_layernorm", NULL) > 0);
    struct diff diff = diff_case_diff(folders.dec, folders.pre, 2, false);
    assert_int_equal(diff.verdict.kind, DIFF_KIND_GAP);
    assert_string_equal(culprit(&diff)->name, LAYER "0.mlp");
    assert_string_equal(diff.observations[diff.verdict.first_unequal].name, LAYER "0.mlp.inputs.0");
    assert_string_equal(diff.observations[diff.verdict.last_equal].name, LAYER "0.self_attn.output");
    assert_non_null(diff.verdict.blind[0]);
    says(diff.verdict.blind[0], "post_attention_layernorm");
    says(diff.verdict.blind[0], "only on the decode side");
    proof_is(&diff, DIFF_PROOF_A6, DIFF_PROOF_FAILS);
    proof_is(&diff, DIFF_PROOF_A9, DIFF_PROOF_FAILS);
    assert_int_equal(diff.verdict.confidence, DIFF_CONFIDENCE_LIKELY);
    diff_fini(&diff);
    diff_case_remove(&folders);
}

/* Code between two hooks: of an input whose producer is known, and inside a module behind its last part. */
static void between_hooks(void **state)
{
    (void)state;
    struct diff_case world = small();
    world.faults[0] = (struct scenario_fault){
        .name = LAYER "1.mlp.down_proj.inputs.0", .change = SCENARIO_ULP, .when = SCENARIO_DECODE, .amount = 1};
    struct diff diff = diff_case_run(&world);
    assert_int_equal(diff.verdict.kind, DIFF_KIND_GAP);
    assert_string_equal(culprit(&diff)->name, LAYER "1.mlp.down_proj");
    assert_string_equal(diff.calls[diff.verdict.after].name, LAYER "1.mlp.act_fn");
    says(diff.verdict.what, "reference side hands on " LAYER "1.mlp.act_fn.output unchanged");
    diff_fini(&diff);
    world.faults[0].name = LAYER "1.mlp.output";
    diff = diff_case_run(&world);
    assert_int_equal(diff.verdict.kind, DIFF_KIND_GLUE);
    assert_string_equal(culprit(&diff)->name, LAYER "1.mlp");
    assert_string_equal(diff.calls[diff.verdict.after].name, LAYER "1.mlp.down_proj");
    diff_fini(&diff);
}

/* 18: another number of filler rows, and the first product differs in all rows. */
static void padding(void **state)
{
    (void)state;
    struct diff_case world = small();
    world.padding = 55;
    world.decode_padding = 15;
    world.faults[0] = (struct scenario_fault){
        .name = LAYER "0.self_attn.qkv_proj.output", .change = SCENARIO_ULP, .when = SCENARIO_DECODE, .amount = 1};
    struct diff diff = diff_case_run(&world);
    assert_int_equal(diff.verdict.kind, DIFF_KIND_OP);
    assert_string_equal(culprit(&diff)->name, LAYER "0.self_attn.qkv_proj");
    assert_int_equal(diff.verdict.unequal, 4);
    says(diff.verdict.what, "16 rows in the decode pass and 64 in the reference");
    diff_fini(&diff);
}

/* 19: scores differ a little, three choices flip, the experts are far apart: first is the router. */
static void router(void **state)
{
    (void)state;
    struct diff_case world = small();
    world.model.experts = 8;
    world.faults[0] = (struct scenario_fault){
        .name = LAYER "1.mlp.gate.output", .change = SCENARIO_ULP, .when = SCENARIO_DECODE, .amount = 1};
    world.faults[1] = (struct scenario_fault){.name = LAYER "1.mlp.topk.output.1",
                                              .change = SCENARIO_SET,
                                              .when = SCENARIO_DECODE,
                                              .first = 6,
                                              .elements = 1,
                                              .amount = 9};
    struct diff diff = diff_case_run(&world);
    assert_int_equal(diff.verdict.kind, DIFF_KIND_OP);
    assert_string_equal(culprit(&diff)->name, LAYER "1.mlp.gate");
    assert_true(culprit(&diff)->class->router);
    says(diff.verdict.what, "3 of 8 choices of experts are others");
    assert_int_equal(diff_case_call(&diff, LAYER "1.mlp.experts")->unequal, 0);
    diff_fini(&diff);
}

/* 32: a scale of the whole batch makes all elements smaller or larger by one factor. */
static void scale(void **state)
{
    (void)state;
    struct diff_case world = small();
    world.model.hidden = 64;
    world.faults[0] = (struct scenario_fault){
        .name = LAYER "2.mlp.down_proj.output", .change = SCENARIO_SCALE, .when = SCENARIO_DECODE, .factor = 1.0625};
    struct diff diff = diff_case_run(&world);
    assert_int_equal(diff.verdict.kind, DIFF_KIND_OP);
    assert_string_equal(culprit(&diff)->name, LAYER "2.mlp.down_proj");
    says(diff.verdict.reading, "scale");
    diff_fini(&diff);
}

/* The weights differ (21), and a leading token (M6): no verdict. */
static void other_embedding(void **state)
{
    (void)state;
    struct diff_case world = small();
    world.faults[0] = (struct scenario_fault){
        .name = "model.embed_tokens.output", .change = SCENARIO_ULP, .when = SCENARIO_DECODE, .amount = 1};
    struct diff diff = diff_case_run(&world);
    assert_int_equal(diff_status(&diff), STATUS_UNPROVEN);
    proof_is(&diff, DIFF_PROOF_A4, DIFF_PROOF_FAILS);
    assert_int_equal(diff.messages[diff.message_count - 1].id, DIFF_MESSAGE_M12);
    diff_fini(&diff);
    world.faults[0] = (struct scenario_fault){
        .name = "model.embed_tokens.output", .change = SCENARIO_ROW, .when = SCENARIO_PREFILL, .amount = 1};
    diff = diff_case_run(&world);
    assert_int_equal(diff_status(&diff), STATUS_UNPROVEN);
    bool shifted = false;
    for (size_t i = 0; i < diff.message_count; i++)
        shifted |= diff.messages[i].id == DIFF_MESSAGE_M6;
    assert_true(shifted);
    diff_fini(&diff);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(equal),         cmocka_unit_test(boundary),       cmocka_unit_test(one_element),
        cmocka_unit_test(several),       cmocka_unit_test(one_request),    cmocka_unit_test(order_of_requests),
        cmocka_unit_test(recurrent),     cmocka_unit_test(ranks),          cmocka_unit_test(gap),
        cmocka_unit_test(between_hooks), cmocka_unit_test(padding),        cmocka_unit_test(router),
        cmocka_unit_test(scale),         cmocka_unit_test(other_embedding)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
