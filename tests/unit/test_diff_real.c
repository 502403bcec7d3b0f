/* diff_run on dumps of the real SGLang: what it finds is what truth.json, computed with torch, says. */
#include "diff_case.h"
#include "dump_files.h"
#include "real_dump.h"

#include "base/memory.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static const char *text_of(const struct json *object, const char *key)
{
    const char *text;
    assert_int_equal(json_get_string(object, key, &text, NULL), ERROR_NONE);
    return text;
}

static double double_of(const struct json *object, const char *key)
{
    double value;
    assert_int_equal(json_get_double(object, key, &value, NULL), ERROR_NONE);
    return value;
}

static size_t find_call(const struct diff *diff, const char *module, int64_t number)
{
    for (size_t i = 0; i < diff->call_count; i++)
        if (strcmp(diff->calls[i].module, module) == 0 && diff->calls[i].number == number)
            return i;
    fail_msg("no call %d of %s", (int)number, module);
    return 0;
}

/* '1', '0' or '-' at one pair, over the inputs or the outputs of a call. */
static char state_at(const struct diff *diff, size_t call, bool input, size_t pair)
{
    char state = '-';
    for (size_t i = 0; i < diff->observation_count; i++) {
        const struct diff_observation *observation = &diff->observations[i];
        if (observation->call != call || observation->input != input || observation->marks == NULL ||
            observation->marks[pair] == DIFF_MARK_NONE)
            continue;
        if (observation->marks[pair] != DIFF_MARK_EQUAL)
            return '0';
        state = '1';
    }
    return state;
}

/* The n-th target. */
static size_t target(const struct diff *diff, size_t n)
{
    for (size_t i = 0; i < diff->pair_count; i++)
        if (diff->pairs[i].target && n-- == 0)
            return i;
    fail_msg("too few targets");
    return 0;
}

static double largest_difference(const struct diff *diff, size_t call)
{
    double largest = 0;
    for (size_t i = 0; i < diff->observation_count; i++)
        if (diff->observations[i].call == call && !diff->observations[i].input &&
            diff->observations[i].rows == DIFF_ROWS_TOKEN && diff->observations[i].numbers.max_abs > largest)
            largest = diff->observations[i].numbers.max_abs;
    return (double)(float)largest; /* torch subtracts in float32 */
}

static void check_modules(const char *name, const struct diff *diff, const struct json *request)
{
    size_t before = 0, seen = 0;
    for (const struct json *module = json_first(json_find(request, "modules")); module != NULL;
         module = json_next(module), seen++) {
        size_t call = find_call(diff, text_of(module, "module"), real_dump_number(module, "call"));
        const char *inputs = text_of(module, "inputs"), *output = text_of(module, "output");
        if (call < before)
            fail_msg("%s: %s comes too late", name, diff->calls[call].name);
        before = call;
        for (size_t k = 0; inputs[k] != '\0'; k++) {
            size_t pair = target(diff, k);
            if ((inputs[k] != '-' && inputs[k] != state_at(diff, call, true, pair)) ||
                (output[k] != '-' && output[k] != state_at(diff, call, false, pair)))
                fail_msg("%s: %s at k=%zu", name, diff->calls[call].name, k);
        }
        if (strchr(output, '-') == NULL)
            assert_true(largest_difference(diff, call) == double_of(module, "max_abs_diff"));
    }
    assert_int_equal(seen, diff->call_count);
}

/* By token: the first call with equal inputs and another output. */
static void check_tokens(const struct diff *diff, const struct json *request)
{
    size_t k = 0;
    for (const struct json *token = json_first(json_find(request, "first_by_token")); token != NULL;
         token = json_next(token), k++) {
        const char *expected = text_of(token, ""), *found = "none";
        for (size_t call = diff->call_count; call-- > 0;)
            if (state_at(diff, call, true, target(diff, k)) == '1' &&
                state_at(diff, call, false, target(diff, k)) == '0')
                found = diff->calls[call].module;
        assert_string_equal(found, expected);
    }
    assert_int_equal(k, diff->target_count);
}

static void check_histories(const struct diff *diff, const struct json *request)
{
    for (const struct json *suspect = json_first(json_find(request, "attention_suspects_kv_history_equal"));
         suspect != NULL; suspect = json_next(suspect)) {
        char *module = memory_copy(json_key(suspect)), *number = strchr(module, '#');
        size_t equal = 0;
        *number = '\0';
        const struct diff_call *call = &diff->calls[find_call(diff, module, atoi(number + 1))];
        for (const struct json *k = json_first(suspect); k != NULL; k = json_next(k)) {
            bool holds;
            assert_int_equal(json_get_bool(k, "", &holds, NULL), ERROR_NONE);
            equal += holds;
        }
        assert_int_equal(call->unequal, json_count(suspect));
        assert_int_equal(call->history_equal, equal);
        free(module);
    }
}

static void check_verdict(const struct diff *diff, const struct json *request)
{
    const struct json *first = json_find(request, "first_equal_inputs_different_output");
    const struct diff_verdict *verdict = &diff->verdict;
    if (json_type(first) == JSON_STRING) {
        assert_int_equal(verdict->kind, DIFF_KIND_NONE);
        assert_int_equal(diff_status(diff), STATUS_DONE);
        return;
    }
    assert_int_equal(diff_status(diff), STATUS_NO);
    assert_int_equal(verdict->call, find_call(diff, text_of(first, "module"), real_dump_number(first, "call")));
    const struct diff_call *call = &diff->calls[verdict->call];
    assert_int_equal(verdict->kind, call->class->class == MODULE_CLASS_STATE ? DIFF_KIND_OP_CACHE : DIFF_KIND_OP);
    assert_int_equal(verdict->confidence, DIFF_CONFIDENCE_PROVEN);
    const struct json *list = json_find(first, "k");
    assert_int_equal(call->unequal, json_count(list));
    for (const struct json *k = json_first(list); k != NULL; k = json_next(k)) {
        size_t pair = target(diff, (size_t)real_dump_number(k, ""));
        assert_int_equal(state_at(diff, verdict->call, false, pair), '0');
        if (k == json_first(list))
            assert_int_equal(pair, verdict->first_pair);
    }
    assert_true(largest_difference(diff, verdict->call) == double_of(first, "max_abs_diff"));
}

static void truth(void **state)
{
    (void)state;
    static const char *const names[] = {"fault-rms-f32-0.5.23", "gpu-attn-bf16-0.5.16", "gpu-equal-bf16-0.5.16",
                                        "invariant-f32-0.5.23", "llama-bf16-0.5.23",    "llama-f32-0.5.20",
                                        "llama-f32-0.5.23"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        char *folder = real_dump_unpack(names[i]);
        struct json *truths = real_dump_truth(folder, names[i]);
        const struct json *request = json_find(truths, "ranks.0.requests.0");
        char *dec = memory_format("%s/%s/dec", folder, names[i]), *pre = memory_format("%s/%s/pre", folder, names[i]);
        struct diff diff = diff_case_diff(dec, pre, 0, false);
        assert_non_null(request);
        assert_true(diff.proven && diff.usable);
        check_verdict(&diff, request);
        check_modules(names[i], &diff, request);
        check_tokens(&diff, request);
        check_histories(&diff, request);
        diff_fini(&diff);
        free(dec);
        free(pre);
        json_free(truths);
        dump_files_remove(folder);
        free(folder);
    }
}

/* Replayed graphs left next to nothing: unusable, and no verdict. */
static void replayed(void **state)
{
    (void)state;
    static const char name[] = "gpu-graph-bf16-0.5.16";
    char *folder = real_dump_unpack(name);
    char *dec = memory_format("%s/%s/dec", folder, name), *pre = memory_format("%s/%s/pre", folder, name);
    struct diff diff = diff_case_diff(dec, pre, 0, false);
    assert_int_equal(diff_status(&diff), STATUS_INCOMPLETE);
    assert_false(diff.proven);
    diff_fini(&diff);
    free(dec);
    free(pre);
    dump_files_remove(folder);
    free(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(truth), cmocka_unit_test(replayed)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
