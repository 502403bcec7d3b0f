/* Results of an investigation's steps read again: whole, partly there, damaged. */
#include "base/error.h"
#include "base/memory.h"
#include "ctl/investigate_read.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#define PATH_OF(grade, beyond, why)                                                                           \
    "{\"how\":\"h\",\"grade\":\"" grade "\",\"fine\":false,\"why_not\":" why ",\"mean\":0.0002,\"max\":0.01," \
    "\"tokens\":24,\"kept\":2,\"bit_equal\":1,\"stray\":2,\"beyond\":" #beyond ",\"requests\":["              \
    "{\"rid\":\"a\",\"dropped\":null,\"beyond\":" #beyond "},{\"rid\":\"b\",\"dropped\":null,\"beyond\":0},"  \
    "{\"rid\":\"c\",\"dropped\":\"no cached token\",\"beyond\":7}]}"
#define KL_OF(condition, where)                                                                                                                                                                                          \
    "{\"schema\":\"kldump.kl/1\",\"target\":\"t\",\"clean\":false,\"prompts\":{\"hash\":\"abc\",\"source\":\"s\","                                                                                                       \
    "\"count\":3},\"new_tokens\":12,\"temperature\":0.5,\"past_window\":true,\"server\":{\"version\":\"0.5.23\","                                                                                                        \
    "\"model_path\":\"/m\",\"tp\":2,\"sliding_window\":64,\"radix_cache\":true,\"deterministic\":true,"                                                                                                                  \
    "\"mixture_of_experts\":null,\"graphs_off\":true},\"helpers\":{\"match\":" PATH_OF(                                                                                                                                  \
        "nonzero", 5,                                                                                                                                                                                                    \
        "null") ",\"match_alone\":" PATH_OF("noise", 1,                                                                                                                                                                  \
                                            "null") ",\"prefill_cache_hit\":" PATH_OF("stray", 0,                                                                                                                        \
                                                                                      "null") ",\"decode_cache_"                                                                                                         \
                                                                                              "hit\":" PATH_OF(                                                                                                          \
                                                                                                  "bit-"                                                                                                                 \
                                                                                                  "equa"                                                                                                                 \
                                                                                                  "l",                                                                                                                   \
                                                                                                  0,                                                                                                                     \
                                                                                                  "null") ",\"restore"                                                                                                   \
                                                                                                          "\""                                                                                                           \
                                                                                                          ":" PATH_OF(                                                                                                   \
                                                                                                              "not "                                                                                                     \
                                                                                                              "measur"                                                                                                   \
                                                                                                              "ed",                                                                                                      \
                                                                                                              0,                                                                                                         \
                                                                                                              "\"the "                                                                                                   \
                                                                                                              "radix "                                                                                                   \
                                                                                                              "cache "                                                                                                   \
                                                                                                              "is "                                                                                                      \
                                                                                                              "off\"") "},\"reading\":{\"signature\":\"one-row\",\"condition\":\"" condition                             \
                                                                                                                       "\",\"where\":\"" where                                                                           \
                                                                                                                       "\","                                                                                             \
                                                                                                                       "\"requests\":\"all\",\"condition_2_open\":true,\"condition_2_in_restore\":false,\"text\":\"T\"," \
                                                                                                                       "\"evidence\":[\"e1\",\"e2\"],\"next\":[\"n1\"]}}\n"

static const struct {
    const char *file, *text;
} results[] = {
    {"kl-own.json", KL_OF("1", "operator")},
    {"kl-dump.json", KL_OF("2", "decode")},
    {"ab.json", "{\"schema\":\"kldump.ab/1\",\"result\":\"changed\",\"settings\":[{\"name\":\"disable_cuda_graph\","
                "\"a\":\"false\",\"b\":\"true\",\"by_chance\":false},{\"name\":\"random_seed\",\"a\":\"1\",\"b\":\"2\","
                "\"by_chance\":true}],\"paths\":[]}"},
    {"invariance.json",
     "{\"schema\":\"kldump.invariance/1\",\"most\":16,\"axes\":{\"prefill\":{\"state\":\"changed\",\"why_not\":null,"
     "\"changed_at\":{\"size\":4,\"cached\":false},\"unchanged_at\":2,\"cases\":[{},{},{}],\"module\":\"mlp\"},"
     "\"extend\":{\"state\":\"changed\",\"why_not\":null,\"changed_at\":{\"size\":1,\"cached\":true},"
     "\"unchanged_at\":null,\"cases\":[{}]},\"decode\":{\"state\":\"not measured\",\"why_not\":\"asked for others\","
     "\"changed_at\":null,\"unchanged_at\":null,\"cases\":[]}},\"reading\":{\"condition_1\":\"broken\"}}"},
    {"capture.json",
     "{\"schema\":\"kldump.capture/1\",\"complete\":false,\"reasons\":[\"foreign request\"],"
     "\"alone\":true,\"restore\":true,\"logprobs\":{\"tokens\":24,\"bit_equal\":3,\"largest_difference\":0.25},"
     "\"requests\":[{},{}]}"},
    {"diff.json",
     "{\"schema\":\"kldump.diff/"
     "1\",\"status\":1,\"pairing\":\"phases\",\"alignment\":{\"proven\":true,\"certificate\":["
     "{\"id\":\"A1\",\"claim\":\"c1\",\"state\":\"holds\",\"fatal\":true,\"evidence\":\"14\"},"
     "{\"id\":\"A7\",\"claim\":\"c7\",\"state\":\"weak\",\"fatal\":false,\"evidence\":\"12 of 14\"},"
     "{\"id\":\"A4\",\"claim\":\"c4\",\"state\":\"fails\",\"fatal\":true,\"evidence\":null}],"
     "\"messages\":[{\"id\":\"M5\",\"fatal\":false,\"cause\":\"files are "
     "missing\",\"evidence\":\"3\",\"remedy\":\"r\"}]},"
     "\"refused\":[\"x.pt: no file of torch\"],\"tp_size\":2,\"verdict\":{\"kind\":\"op\",\"module\":\"m.0.qkv_proj\","
     "\"layer\":0,\"position\":37,\"class\":\"token-wise\",\"class_kind\":\"matrix product\",\"needs\":\"N.\","
     "\"confidence\":\"proven\",\"reading\":\"sparse\",\"what\":\"Look.\",\"after\":null,\"first_unequal\":\"u\","
     "\"tested\":14,\"unequal\":13,\"blind\":[\"b1\"]}}"},
};
enum { RESULTS = sizeof results / sizeof results[0] };

static char folder[] = "/tmp/investigate-XXXXXX";

static void put(const char *file, const char *text, size_t length)
{
    char *path = memory_format("%s/%s", folder, file);
    FILE *stream = fopen(path, "we");
    assert_non_null(stream);
    assert_int_equal(fwrite(text, 1, length, stream), length);
    assert_int_equal(fclose(stream), 0);
    free(path);
}

static void take_away(const char *file)
{
    char *path = memory_format("%s/%s", folder, file);
    unlink(path);
    free(path);
}

static int clear(void **state)
{
    (void)state;
    for (size_t i = 0; i < RESULTS; i++)
        take_away(results[i].file);
    take_away("diff.html");
    return 0;
}

static int remove_all(void **state)
{
    clear(state);
    return rmdir(folder);
}

static void put_all(void)
{
    for (size_t i = 0; i < RESULTS; i++)
        put(results[i].file, results[i].text, strlen(results[i].text));
}

static void test_nothing(void **state)
{
    (void)state;
    struct investigation in = {.name = memory_copy("n")};
    assert_int_equal(investigate_read(folder, &in, NULL), ERROR_NONE);
    assert_false(in.own.known || in.dump.known || in.invariance_known || in.capture.known || in.diff.known);
    assert_string_equal(in.name, "n");
    investigation_fini(&in);
}

static void check_kl(const struct investigation_kl *kl)
{
    assert_true(kl->known && kl->deterministic && kl->radix_cache && kl->graphs_known && kl->graphs_off);
    assert_true(!kl->moe_known && !kl->mixture_of_experts && kl->past_window && kl->condition_2_open);
    assert_true(kl->prompt_count == 3 && kl->new_tokens == 12 && kl->tp == 2 && kl->window == 64);
    assert_true(kl->temperature > 0.49 && kl->temperature < 0.51);
    assert_string_equal(kl->prompts_hash, "abc");
    assert_string_equal(kl->signature, "one-row");
    assert_string_equal(kl->evidence[1], "e2");
    assert_string_equal(kl->next[0], "n1");
    /* the dropped one does not count */
    assert_true(kl->requests == 2 && kl->few == 1);
    assert_int_equal(kl->paths[KL_PATH_MATCH].grade, KL_GRADE_NONZERO);
    assert_int_equal(kl->paths[KL_PATH_RESTORE].grade, KL_GRADE_NOT_MEASURED);
    assert_string_equal(kl->paths[KL_PATH_RESTORE].why_not, "the radix cache is off");
    assert_true(kl->paths[KL_PATH_MATCH].tokens == 24 && kl->paths[KL_PATH_MATCH].beyond == 5);
}

static void check_diff(const struct investigation *in)
{
    assert_true(in->diff.known && in->diff.proven && in->diff.status == 1 && !in->diff.prefills && in->diff.tp == 2);
    assert_string_equal(in->diff.module, "m.0.qkv_proj");
    assert_string_equal(in->diff.class_kind, "matrix product");
    assert_true(in->diff.has_layer && in->diff.layer == 0 && in->diff.has_position && in->diff.position == 37);
    assert_true(in->diff.tested == 14 && in->diff.unequal == 13);
    /* what does not hold, the fatal first */
    assert_string_equal(in->diff.certificate[0], "A4 fails, that c4");
    assert_string_equal(in->diff.certificate[1], "A7 weak, that c7: 12 of 14");
    assert_null(in->diff.certificate[2]);
    assert_string_equal(in->diff.against[0], "M5: files are missing: 3");
    assert_string_equal(in->diff.against[1], "refused: x.pt: no file of torch");
    assert_string_equal(in->diff.blind[0], "b1");
    assert_string_equal(in->diff.page, "diff.html");
}

static void test_all(void **state)
{
    (void)state;
    struct investigation in = {.name = memory_copy("n")};
    in.steps[INVESTIGATION_AB].why = memory_copy("kept");
    put_all();
    put("diff.html", "x", 1);
    for (int again = 0; again < 2; again++) { /* also over what is there */
        assert_int_equal(investigate_read(folder, &in, NULL), ERROR_NONE);
        check_kl(&in.own);
        check_kl(&in.dump);
        assert_true(in.own.condition == KL_CONDITION_1 && in.own.where == KL_WHERE_OPERATOR);
        assert_true(in.dump.condition == KL_CONDITION_2 && in.dump.where == KL_WHERE_DECODE);
        assert_string_equal(in.settings[0], "disable_cuda_graph: false under your flags, true in a dump");
        assert_null(in.settings[1]); /* drawn by chance: no switch */
        assert_true(in.invariance_known && in.invariance_most == 16 && in.axis_count == 3);
        assert_string_equal(in.axes[0].word, "prefill");
        assert_true(in.axes[0].first_size == 4 && in.axes[0].unchanged == 2 && in.axes[0].cases == 3);
        assert_string_equal(in.axes[0].module, "mlp");
        assert_true(in.axes[1].cached && in.axes[1].module == NULL);
        assert_string_equal(in.axes[2].why_not, "asked for others");
        assert_true(in.capture.known && !in.capture.complete && in.capture.alone && in.capture.restore &&
                    !in.capture.shifted);
        assert_true(in.capture.requests == 2 && in.capture.tokens == 24 && in.capture.bit_equal == 3);
        assert_string_equal(in.capture.reasons[0], "foreign request");
        check_diff(&in);
    }
    assert_string_equal(in.name, "n");
    assert_string_equal(in.steps[INVESTIGATION_AB].why, "kept");
    investigation_fini(&in);
}

static void test_without_a_verdict(void **state)
{
    (void)state;
    static const char text[] =
        "{\"schema\":\"kldump.diff/1\",\"status\":3,\"pairing\":\"whole\",\"alignment\":{\"proven\":"
        "false,\"certificate\":[],\"messages\":[]},\"refused\":[],\"tp_size\":1,\"verdict\":null}";
    struct investigation in = {0};
    struct investigation_end end;
    put("diff.json", text, sizeof text - 1);
    assert_int_equal(investigate_read(folder, &in, NULL), ERROR_NONE);
    assert_true(in.diff.known && !in.diff.proven && in.diff.kind == NULL && in.diff.prefills);
    investigation_conclude(&in, &end);
    investigation_end_fini(&end);
    investigation_fini(&in);
}

/* ---- damage ---- */

static void expect_refusal(const char *file, const char *part)
{
    struct investigation in = {.capture = {.tokens = 4711}};
    struct error err = ERROR_INIT;
    assert_int_equal(investigate_read(folder, &in, &err), ERROR_USAGE);
    if (strstr(err.message, file) == NULL || strstr(err.message, part) == NULL)
        fail_msg("'%s' or '%s' is not in: %s", file, part, err.message);
    assert_int_equal(in.capture.tokens, 4711);
    investigation_fini(&in);
}

static void test_wrong_members(void **state)
{
    (void)state;
    static const struct {
        size_t result;
        const char *from, *to, *part;
    } damages[] = {
        {0, "kldump.kl/1", "kldump.kl/2", "kldump.kl/1"},
        {0, "kldump.kl/1", "kldump.ab/1", "kldump.ab/1"},
        {0, "\"condition\":\"1\"", "\"condition\":\"7\"", "reading.condition is '7'"},
        {0, "\"grade\":\"noise\"", "\"grade\":\"loud\"", "helpers.match_alone: grade is 'loud'"},
        {1, "\"beyond\":5", "\"beyond\":-5", "helpers.match"},
        {1, "\"new_tokens\":12", "\"new_tokens\":\"x\"", "new_tokens"},
        {1, "\"tp\":2,", "", "server.tp"},
        {1, "\"evidence\":[", "\"evidence\":[7,", "reading.evidence"},
        {2, "\"by_chance\":false", "\"by_chance\":0", "settings: JSON member by_chance"},
        {2, "\"settings\":[", "\"setting\":[", "settings"},
        {3, "\"size\":4", "\"size\":\"four\"", "axes.prefill: JSON member changed_at.size"},
        {3, "\"axes\":{", "\"axis\":{", "axes"},
        {4, "\"complete\":false", "\"complete\":null", "complete"},
        {4, "\"requests\":[{},{}]", "\"requests\":{}", "requests"},
        {5, "\"proven\":true", "\"proven\":1", "alignment.proven"},
        {5, "\"tested\":14", "\"tested\":1.5", "verdict: JSON member tested"},
        {5, "\"kind\":\"op\",", "", "verdict: JSON member kind"},
        {5, "\"verdict\":{", "\"sentence\":{", "verdict"},
        {5, "\"cause\":", "\"because\":", "alignment.messages: JSON member cause"},
        {5, "\"state\":\"weak\",", "", "alignment.certificate: JSON member state"},
    };
    for (size_t i = 0; i < sizeof damages / sizeof damages[0]; i++) {
        const char *text = results[damages[i].result].text, *at = strstr(text, damages[i].from);
        assert_non_null(at);
        char *damaged = memory_format("%.*s%s%s", (int)(at - text), text, damages[i].to, at + strlen(damages[i].from));
        put_all();
        put(results[damages[i].result].file, damaged, strlen(damaged));
        expect_refusal(results[damages[i].result].file, damages[i].part);
        free(damaged);
    }
}

static void test_every_cut_and_byte(void **state)
{
    (void)state;
    for (size_t i = 0; i < RESULTS; i++) {
        size_t length = strlen(results[i].text);
        char *text = memory_copy(results[i].text);
        clear(state);
        for (size_t cut = 0; cut + 2 < length; cut++) {
            put(results[i].file, text, cut);
            expect_refusal(results[i].file, results[i].file);
        }
        for (size_t at = 0; at < length; at++) {
            struct investigation in = {0};
            struct error err = ERROR_INIT;
            text[at] ^= 1;
            put(results[i].file, text, length);
            enum error_code code = investigate_read(folder, &in, &err);
            assert_true(code == ERROR_NONE || (code == ERROR_USAGE && strstr(err.message, results[i].file) != NULL));
            investigation_fini(&in);
            text[at] ^= 1;
        }
        free(text);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(test_nothing, clear),
        cmocka_unit_test_teardown(test_all, clear),
        cmocka_unit_test_teardown(test_without_a_verdict, clear),
        cmocka_unit_test_teardown(test_wrong_members, clear),
        cmocka_unit_test_teardown(test_every_cut_and_byte, clear),
    };
    if (mkdtemp(folder) == NULL)
        return 1;
    return cmocka_run_group_tests(tests, NULL, remove_all);
}
