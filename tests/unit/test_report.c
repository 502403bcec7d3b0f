/* What the reports of a diff share: lines, words, marks, counts. */
#include "analysis/report.h"
#include "diff_world.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

static void line_has(const struct diff *diff, enum report_line line, const char *expected)
{
    char *text = report_line_text(diff, line);
    if (text == NULL || strstr(text, expected) == NULL)
        fail_msg("%s: '%s' is not in '%s'", report_line_label(line), expected, text != NULL ? text : "(nothing)");
    free(text);
}

static void operator(void **state)
{
    struct diff diff;
    (void)state;
    diff_world_make("op", &diff);
    assert_string_equal(report_headline(&diff), "DIFFERENT");
    line_has(&diff, REPORT_WHAT, "model.layers.1.input_layernorm (op, proven) - this operator: its inputs");
    line_has(&diff, REPORT_WHERE, "layer 1, first at position 12 of request dec-0 (decode pass 0)");
    line_has(&diff, REPORT_WHERE,
             "; last equal tensor model.layers.1.input_layernorm.inputs.0, first unequal "
             "model.layers.1.input_layernorm.output");
    line_has(&diff, REPORT_EVIDENCE, "8 of 8 rows differ; in them 74 of 512 elements, by up to 16 ULP (0.00781)");
    line_has(&diff, REPORT_EVIDENCE, "control: 0 of 123456 elements");
    line_has(&diff, REPORT_EVIDENCE, "looks like: sparse");
    line_has(&diff, REPORT_CLASS, "token-wise (normalisation). To be batch-invariant: one reduction order");
    line_has(&diff, REPORT_NEXT, "run the kernel alone");
    diff_fini(&diff);
}

static void proofs(void **state)
{
    struct diff diff;
    (void)state;
    diff_world_make("op", &diff);
    static const struct {
        enum diff_proof_state state;
        const char *text;
    } rows[] = {{DIFF_PROOF_HOLDS, "the prompt's rows, prefilled on both sides, are bit-identical"},
                {DIFF_PROOF_FAILS, "the prompt's rows, prefilled on both sides, differ"},
                {DIFF_PROOF_WEAK, "not sure: the prompt's rows, prefilled on both sides, are bit-identical"},
                {DIFF_PROOF_UNKNOWN, "whether the prompt's rows, prefilled on both sides, are bit-identical"}};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        diff.proofs[DIFF_PROOF_A8].state = rows[i].state;
        char *text = report_proof_text(&diff, DIFF_PROOF_A8);
        assert_string_equal(text, rows[i].text);
        free(text);
    }
    diff_fini(&diff);
}

static void patterns(void **state)
{
    struct diff diff;
    (void)state;
    diff_world_make("op-cache", &diff);
    line_has(&diff, REPORT_WHAT, "self_attn.attn (op+cache, proven)");
    line_has(&diff, REPORT_WHERE, "all requests begin to differ at this position");
    diff.verdict.one_position = false;
    diff.verdict.one_request = true;
    line_has(&diff, REPORT_WHERE, "in this one of 3 requests only");
    line_has(&diff, REPORT_CLASS, "carries state (attention)");
    diff_fini(&diff);
    diff_world_make("ranks", &diff);
    line_has(&diff, REPORT_WHERE, "rank 0; all 4 ranks have the same wrong bits");
    line_has(&diff, REPORT_CLASS, "reduces (matrix product, all-reduce)");
    diff_fini(&diff);
    diff_world_make("gap", &diff);
    line_has(&diff, REPORT_WHAT, "model.layers.1.mlp.inputs.0 (gap, proven) - between two hooks");
    line_has(&diff, REPORT_WHERE, "behind model.layers.1.post_attention_layernorm");
    diff_fini(&diff);
    diff_world_make("glue", &diff);
    line_has(&diff, REPORT_WHAT, "model.layers.1.mlp (glue, proven) - inside this module");
    diff_fini(&diff);
}

static void equal(void **state)
{
    struct diff diff;
    (void)state;
    diff_world_make("clean", &diff);
    assert_string_equal(report_headline(&diff), "EQUAL");
    line_has(&diff, REPORT_WHAT, "EQUAL (proven): no difference");
    line_has(&diff, REPORT_WHERE, "8 rows of 1 request");
    line_has(&diff, REPORT_EVIDENCE, "84 of 86 tensors compared, none unequal");
    char *text = report_line_text(&diff, REPORT_WHERE);
    assert_null(strstr(text, "not compared"));
    free(text);
    diff.requests[0].a_length += 5; /* decoded further than what was scored */
    line_has(&diff, REPORT_WHERE, "; 5 of 13 decoded tokens are in no scoring pass: not compared");
    assert_null(report_line_text(&diff, REPORT_CLASS));
    diff_fini(&diff);
}

/* The rule that everything else serves: what is not proven names no operator. */
static void nothing_without_proof(void **state)
{
    static const struct {
        const char *scenario, *headline;
    } cases[] = {{"m1", "NOT PROVEN"},   {"m2", "NOT PROVEN"},  {"m3", "NOT PROVEN"},   {"m4", "NOT PROVEN"},
                 {"m6", "NOT PROVEN"},   {"m11", "NOT PROVEN"}, {"m12", "NOT PROVEN"},  {"m13", "NOT PROVEN"},
                 {"m14", "NOT PROVEN"},  {"m15", "NOT PROVEN"}, {"refused", "REFUSED"}, {"unusable", "UNUSABLE"},
                 {"nothing", "UNUSABLE"}};
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct diff diff;
        diff_world_make(cases[i].scenario, &diff);
        assert_false(report_has_verdict(&diff));
        assert_string_equal(report_headline(&diff), cases[i].headline);
        for (int line = 0; line < REPORT_LINE_COUNT; line++)
            assert_null(report_line_text(&diff, (enum report_line)line));
        diff_fini(&diff);
    }
    struct diff diff;
    diff_world_make("m9", &diff); /* not a fatal one */
    assert_true(report_has_verdict(&diff));
    diff_fini(&diff);
}

static void recipe(void **state)
{
    (void)state;
    for (const char *const *scenario = diff_world_scenarios; *scenario != NULL; scenario++) {
        struct diff diff;
        diff_world_make(*scenario, &diff);
        bool expected = strcmp(*scenario, "m3") == 0 || strcmp(*scenario, "m4") == 0 || strcmp(*scenario, "m11") == 0 ||
                        strcmp(*scenario, "unusable") == 0; /* which has M11 */
        assert_int_equal(report_wants_recipe(&diff), expected);
        diff_fini(&diff);
    }
}

static void counts(void **state)
{
    struct diff diff;
    struct report_coverage c;
    (void)state;
    diff_world_make("op", &diff);
    report_count(&diff, &c);
    assert_int_equal(c.culprits, 1);
    assert_int_equal(c.exonerated, 8);
    assert_int_equal(c.least_tested, 8);
    assert_int_equal(c.culprits + c.exonerated + c.untested, 31); /* containers do not count */
    assert_int_equal(c.one_sided, 1);
    assert_int_equal(c.no_rows, 1);
    assert_int_equal(c.compared, diff.observation_count - 2);
    diff_fini(&diff);
}

static void marks(void **state)
{
    (void)state;
    assert_int_equal(report_mark_character(DIFF_MARK_NONE), ' ');
    assert_int_equal(report_mark_character(DIFF_MARK_EQUAL), '.');
    assert_int_equal(report_mark_character(DIFF_MARK_ULP), '1'); /* one ULP */
    assert_int_equal(report_mark_character(DIFF_MARK_ULP + 1), '2');
    assert_int_equal(report_mark_character(DIFF_MARK_ULP + 7), '8');
    assert_int_equal(report_mark_character(DIFF_MARK_ULP + 8), '9');
    assert_int_equal(report_mark_character(DIFF_MARK_ULP + 62), '9');
    assert_int_equal(report_mark_character(DIFF_MARK_OTHER), '#');
    assert_int_equal(report_mark_character(DIFF_MARK_NAN), '!');
}

static void texts(void **state)
{
    char buffer[REPORT_SHORT], ulp[REPORT_ULP_TEXT], name[1000];
    (void)state;
    assert_string_equal(report_ulp_text(0, ulp), "0");
    assert_string_equal(report_ulp_text(1048575, ulp), "1048575");
    assert_string_equal(report_ulp_text(UINT64_C(1) << 30, ulp), "2^30.0");
    assert_string_equal(report_ulp_text(INT64_MAX, ulp), "> 2^62");
    assert_ptr_equal(report_short("model", buffer), "model");
    memset(name, 'x', sizeof name);
    memcpy(name, "begin", 5);
    memcpy(name + sizeof name - 4, "end", 4);
    const char *shorter = report_short(name, buffer);
    assert_int_equal(strlen(shorter), REPORT_SHORT - 1);
    assert_int_equal(strncmp(shorter, "begin", 5), 0);
    assert_string_equal(shorter + REPORT_SHORT - 4, "end");
    assert_non_null(strstr(shorter, "..."));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(operator),
        cmocka_unit_test(patterns),
        cmocka_unit_test(proofs),
        cmocka_unit_test(equal),
        cmocka_unit_test(nothing_without_proof),
        cmocka_unit_test(recipe),
        cmocka_unit_test(counts),
        cmocka_unit_test(marks),
        cmocka_unit_test(texts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
