#include "analysis/kl_explain.h"
#include "base/memory.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

/* ---- a request of ten prompt ids and four new ones ---- */

enum { OWN = 14, PROMPT = 10, DIRTY = 11, LAST = -1 /* ends a list of ids */ };

static const int64_t own[OWN] = {10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23};
static const int64_t first_other[] = {50, 51, 52, 53, 54, 55, 56, 57, 58, 59, 60, 61};
static const int64_t second_other[] = {70, 71, 72, 73};
static const int64_t third_other[] = {80, 81, 82, 83, 84, 85, 86, 87, 18, 89, 90};
static const struct kl_explain_sequence others[] = {
    {first_other, sizeof first_other / sizeof first_other[0], 0},
    {second_other, sizeof second_other / sizeof second_other[0], 2}, /* shorter than the prefix */
    {third_other, sizeof third_other / sizeof third_other[0], 3},    /* has the same last id in it */
};

static struct kl_explain_case case_new(void)
{
    return (struct kl_explain_case){.own = {own, OWN, 1},
                                    .prefix = PROMPT - 1,
                                    .dirty = DIRTY,
                                    .server = {.page_size = 4, .sliding_window = 3, .state_checkpoint_interval = 3},
                                    .others = others,
                                    .other_count = sizeof others / sizeof others[0]};
}

static size_t alteration(const char *name)
{
    size_t i = 0;
    while (i < kl_explain_alterations() && strcmp(kl_explain_name(i), name) != 0)
        i++;
    assert_true(i < kl_explain_alterations());
    return i;
}

struct taken {
    struct kl_explain_prefill *prefills;
    size_t count;
    char *why_not;
};

static struct taken take(const struct kl_explain_case *about, const char *name)
{
    struct taken taken;
    kl_explain_prefills(about, alteration(name), &taken.prefills, &taken.count, &taken.why_not);
    assert_true((taken.count == 0) == (taken.why_not != NULL));
    return taken;
}

static void give(struct taken *taken)
{
    kl_explain_prefills_fini(taken->prefills, taken->count);
    free(taken->why_not);
}

/* Prefill `number` of the alteration has exactly these ids, and scores own tokens from `from` on from place `at` on. */
static void expect_at(const struct kl_explain_case *about, const char *name, size_t number, size_t from, size_t tokens,
                      size_t at, const int64_t *ids, int line)
{
    struct taken taken = take(about, name);
    if (number >= taken.count)
        fail_msg("line %d: %s has %zu prefills: %s", line, name, taken.count, taken.why_not);
    const struct kl_explain_prefill *prefill = &taken.prefills[number];
    size_t count = 0;
    while (ids[count] != LAST)
        count++;
    if (prefill->count != count || memcmp(prefill->ids, ids, count * sizeof ids[0]) != 0)
        fail_msg("line %d: %s: other ids, %zu of them", line, name, prefill->count);
    if (prefill->from != from || prefill->tokens != tokens || prefill->at != at)
        fail_msg("line %d: %s: from %zu, %zu tokens, at %zu", line, name, prefill->from, prefill->tokens, prefill->at);
    for (size_t i = 0; i < prefill->tokens; i++)
        assert_int_equal(prefill->ids[prefill->at + i], about->own.ids[prefill->from + i]);
    give(&taken);
}
#define expect(about, name, number, from, tokens, at, ...) \
    expect_at(about, name, number, from, tokens, at, (const int64_t[]){__VA_ARGS__, LAST}, __LINE__)

static void expect_none_at(const struct kl_explain_case *about, const char *name, const char *part, int line)
{
    struct taken taken = take(about, name);
    if (taken.count > 0 || strstr(taken.why_not, part) == NULL)
        fail_msg("line %d: %s: %zu prefills, %s", line, name, taken.count, taken.why_not);
    give(&taken);
}
#define expect_none(...) expect_none_at(__VA_ARGS__, __LINE__)

/* ---- ids ---- */

static void test_the_prefix(void **unused)
{
    (void)unused;
    struct kl_explain_case about = case_new();
    expect(&about, "unaltered", 0, 11, 3, 11, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23);
    expect(&about, "prefix-without-last", 0, 11, 3, 10, 10, 11, 12, 13, 14, 15, 16, 17, 19, 20, 21, 22, 23);
    expect(&about, "prefix-missing", 0, 11, 3, 2, 19, 20, 21, 22, 23);
    expect(&about, "nothing-before", 0, 11, 3, 1, 20, 21, 22, 23);
    /* The prefix has nine tokens: two whole pages of four and one; three checkpoints, the last one is its own end. */
    expect_none(&about, "prefix-page-short", "the same as \"the prefix without its last token");
    expect(&about, "prefix-checkpoint-short", 0, 11, 3, 8, 10, 11, 12, 13, 14, 15, 19, 20, 21, 22, 23);
    about.prefix = 8;
    expect(&about, "prefix-page-short", 0, 11, 3, 7, 10, 11, 12, 13, 18, 19, 20, 21, 22, 23);
    expect(&about, "prefix-checkpoint-short", 0, 11, 3, 9, 10, 11, 12, 13, 14, 15, 18, 19, 20, 21, 22, 23);
    about.server.state_checkpoint_interval = 100;
    expect_none(&about, "prefix-checkpoint-short", "the same as \"no prefix");
}

static void test_the_beginning(void **unused)
{
    (void)unused;
    struct kl_explain_case about = case_new();
    expect(&about, "first-missing", 0, 11, 3, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23);
    expect(&about, "first-four-missing", 0, 11, 3, 7, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23);
    expect_none(&about, "first-page-missing", "the same as \"the first four tokens");
    about.server.page_size = 8;
    expect(&about, "first-page-missing", 0, 11, 3, 3, 18, 19, 20, 21, 22, 23);
    about.server.page_size = 12;
    expect_none(&about, "first-page-missing", "reaches into the wrong tokens");
}

static void test_what_moves_with_the_token(void **unused)
{
    (void)unused;
    struct kl_explain_case about = case_new();
    expect(&about, "newest-missing", 0, 11, 1, 10, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 21);
    expect(&about, "newest-missing", 2, 13, 1, 12, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 23);
    expect(&about, "window", 0, 11, 1, 3, 18, 19, 20, 21);
    expect(&about, "window", 2, 13, 1, 3, 20, 21, 22, 23);
    expect(&about, "window-less-one", 0, 11, 1, 2, 19, 20, 21);
    expect(&about, "window-plus-one", 1, 12, 1, 4, 18, 19, 20, 21, 22);
    about.server.sliding_window = OWN;
    expect_none(&about, "window", "not longer than that");
    about.server.sliding_window = 1;
    expect_none(&about, "window-less-one", "nothing is left");
}

static void test_other_requests(void **unused)
{
    (void)unused;
    struct kl_explain_case about = case_new();
    expect(&about, "foreign-prefix", 0, 11, 3, 11, 50, 51, 52, 53, 54, 55, 56, 57, 58, 19, 20, 21, 22, 23);
    expect(&about, "foreign-prefix", 1, 11, 3, 11, 80, 81, 82, 83, 84, 85, 86, 87, 18, 19, 20, 21, 22, 23);
    expect(&about, "foreign-page", 0, 11, 3, 11, 10, 11, 12, 13, 14, 15, 16, 17, 58, 19, 20, 21, 22, 23);
    about.prefix = 8;
    expect(&about, "foreign-page", 1, 11, 3, 11, 10, 11, 12, 13, 84, 85, 86, 87, 18, 19, 20, 21, 22, 23);
    expect(&about, "foreign-last", 0, 11, 3, 11, 10, 11, 12, 13, 14, 15, 16, 57, 18, 19, 20, 21, 22, 23);
    struct taken taken = take(&about, "foreign-prefix");
    assert_int_equal(taken.count, 2);
    assert_int_equal(taken.prefills[0].other, 0);
    assert_int_equal(taken.prefills[1].other, 3);
    assert_int_not_equal(taken.prefills[0].variant, taken.prefills[1].variant);
    give(&taken);
    about.server.page_size = 1;
    about.prefix = 9; /* the last one has the same id there */
    about.others = &others[2];
    about.other_count = 1;
    expect_none(&about, "foreign-last", "no other request");
    about.other_count = 0;
    expect_none(&about, "foreign-prefix", "no other request");
}

static void test_what_a_server_has_not(void **unused)
{
    (void)unused;
    struct kl_explain_case about = case_new();
    about.server = (struct kl_server){.page_size = 1};
    expect_none(&about, "prefix-page-short", "pages have one token");
    expect_none(&about, "first-page-missing", "pages have one token");
    expect_none(&about, "foreign-page", "pages have one token");
    expect_none(&about, "prefix-checkpoint-short", "no checkpoints");
    for (size_t i = 0; i < 3; i++)
        expect_none(&about, (const char *[]){"window", "window-less-one", "window-plus-one"}[i], "no sliding window");
}

/* match, dirty from its first token on: what would stand at the very beginning has no logprob. */
static void test_a_token_at_the_very_beginning(void **unused)
{
    (void)unused;
    struct kl_explain_case about = case_new();
    about.prefix = about.dirty = PROMPT;
    expect(&about, "prefix-missing", 0, 11, 3, 1, 20, 21, 22, 23);
    about.own.count = PROMPT + 1;
    expect_none(&about, "prefix-missing", "no token that could be compared");
}

static void test_caps(void **unused)
{
    (void)unused;
    enum { LONG = 40, MANY = 12 };
    int64_t ids[LONG], other_ids[MANY][LONG];
    struct kl_explain_sequence many[MANY];
    for (size_t i = 0; i < LONG; i++)
        ids[i] = (int64_t)i;
    for (size_t m = 0; m < MANY; m++) {
        for (size_t i = 0; i < LONG; i++)
            other_ids[m][i] = (int64_t)(100 * (m + 1) + i);
        many[m] = (struct kl_explain_sequence){other_ids[m], LONG, m};
    }
    struct kl_explain_case about = {
        .own = {ids, LONG, MANY}, .prefix = 9, .dirty = 10, .others = many, .other_count = MANY};
    struct taken moving = take(&about, "newest-missing"), foreign = take(&about, "foreign-prefix");
    assert_int_equal(moving.count, KL_EXPLAIN_TOKENS);
    assert_int_equal(foreign.count, KL_EXPLAIN_OTHERS);
    give(&moving);
    give(&foreign);
}

/* ---- numbers and answer ---- */

/* A row whose tokens differ from the wrong ones by d. */
static struct kl_explain_row row_of(const struct kl_explain_case *about, const char *name, double d)
{
    struct taken taken = take(about, name);
    struct kl_explain_row row;
    double **logprobs = memory_new((taken.count + 1) * sizeof logprobs[0]);
    for (size_t i = 0; i < taken.count; i++) {
        const struct kl_explain_prefill *prefill = &taken.prefills[i];
        logprobs[i] = memory_new(prefill->count * sizeof(double));
        for (size_t t = 0; t < prefill->tokens; t++) /* the last variant is the nearest */
            logprobs[i][prefill->at + t] =
                about->wrong[prefill->from + t - about->dirty] + d * (double)(taken.count - i);
    }
    kl_explain_measure(about, alteration(name), taken.prefills, taken.count, (const double *const *)logprobs, &row);
    for (size_t i = 0; i < taken.count; i++)
        free(logprobs[i]);
    free(logprobs);
    give(&taken);
    return row;
}

static const double wrong[] = {-1.5, -2.25, -0.5};

static void conclude(struct kl_explanation *explanation, const struct kl_explain_row *rows, size_t count)
{
    *explanation = (struct kl_explanation){.asked = true, .row_count = count};
    explanation->rows = memory_new(count * sizeof rows[0]);
    memcpy(explanation->rows, rows, count * sizeof rows[0]);
    kl_explain_conclude(explanation, false);
}

static void test_numbers(void **unused)
{
    (void)unused;
    struct kl_explain_case about = case_new();
    about.wrong = wrong;
    struct kl_explain_row row = row_of(&about, "unaltered", 0.5);
    assert_int_equal(row.compared, 3);
    assert_int_equal(row.beyond, 3);
    assert_true(row.mean_abs == 0.5 && row.max_abs == 0.5);
    row = row_of(&about, "foreign-prefix", 0.5);
    assert_int_equal(row.variants, 2);
    assert_int_equal(row.other, 3);
    assert_true(row.max_abs == 0.5);
    row = row_of(&about, "window", 1e-7);
    assert_int_equal(row.variants, 1);
    assert_int_equal(row.stray, 3);
    row = row_of(&about, "prefix-missing", 0);
    assert_int_equal(row.bit_equal, 3);
}

static void test_the_answer(void **unused)
{
    (void)unused;
    struct kl_explain_case about = case_new();
    struct kl_explanation explanation;
    about.wrong = wrong;
    const struct kl_explain_row dirty = row_of(&about, "unaltered", 0.5), far = row_of(&about, "first-missing", 2),
                                near = row_of(&about, "prefix-missing", 0.25),
                                stray = row_of(&about, "first-four-missing", 1e-7),
                                equal = row_of(&about, "foreign-prefix", 0), clean = row_of(&about, "unaltered", 0);
    conclude(&explanation, (struct kl_explain_row[]){dirty, far, stray, equal}, 4);
    assert_int_equal(explanation.answer, 3);
    assert_true(explanation.rows[2].reproduces && !explanation.rows[1].reproduces && !explanation.rows[0].reproduces);
    assert_non_null(strstr(explanation.text, "the right answer to \"another request's prefix\""));
    assert_non_null(strstr(explanation.text, "As well: \"the first four"));
    kl_explanation_fini(&explanation);
    conclude(&explanation, (struct kl_explain_row[]){dirty, far, near}, 3);
    assert_true(explanation.answer == SIZE_MAX && explanation.nearest == 2);
    assert_non_null(strstr(explanation.text, "None of them reproduces"));
    assert_non_null(strstr(explanation.text, "largest 0.25"));
    kl_explanation_fini(&explanation);
    conclude(&explanation, (struct kl_explain_row[]){dirty, far}, 2);
    assert_true(explanation.answer == SIZE_MAX && explanation.nearest == SIZE_MAX);
    assert_non_null(strstr(explanation.text, "none is nearer"));
    kl_explanation_fini(&explanation);
    const struct kl_explain_row clean_but_stray = row_of(&about, "unaltered", 1e-7);
    conclude(&explanation, (struct kl_explain_row[]){clean_but_stray, equal}, 2);
    assert_true(explanation.answer == SIZE_MAX && !explanation.rows[1].reproduces);
    kl_explanation_fini(&explanation);
    conclude(&explanation, (struct kl_explain_row[]){clean, equal}, 2);
    assert_true(explanation.answer == SIZE_MAX && explanation.nearest == SIZE_MAX);
    assert_non_null(strstr(explanation.text, "The context as it is gives these logprobs now"));
    kl_explanation_fini(&explanation);
}

/* ---- the worst ---- */

static void add_request(struct kl_path *path, double d)
{
    path->measured = true;
    path->requests = memory_resize(path->requests, path->request_count + 1, sizeof path->requests[0]);
    struct kl_request *request = &path->requests[path->request_count++];
    *request = (struct kl_request){.rid = memory_copy("r"),
                                   .first = 3,
                                   .count = 1,
                                   .ids = memory_new(sizeof(int64_t)),
                                   .a = memory_new(sizeof(double)),
                                   .b = memory_new(sizeof(double))};
    request->a[0] = -1;
    request->b[0] = -1 - d;
}

static void test_the_worst(void **unused)
{
    (void)unused;
    struct kl_path paths[KL_PATHS] = {0};
    struct kl_reading reading = {.where = KL_WHERE_RESTORE};
    enum kl_path_id path = KL_PATHS;
    size_t request = SIZE_MAX;
    assert_false(kl_explain_worst(paths, &reading, &path, &request));
    for (size_t i = 0; i < 4; i++) {
        add_request(&paths[KL_PATH_MATCH], i == 2 ? 3 : 1);
        add_request(&paths[KL_PATH_RESTORE], 0);
        add_request(&paths[KL_PATH_PREFILL_CACHE_HIT], i == 1 ? 2 : 0);
    }
    for (size_t id = 0; id < KL_PATHS; id++)
        kl_measure(&paths[id]);
    assert_true(kl_explain_worst(paths, &reading, &path, &request));
    assert_true(path == KL_PATH_PREFILL_CACHE_HIT && request == 1);
    reading.where = KL_WHERE_DECODE;
    assert_true(kl_explain_worst(paths, &reading, &path, &request));
    assert_true(path == KL_PATH_MATCH && request == 2);
    paths[KL_PATH_MATCH].requests[2].dropped = memory_copy("no cached token");
    assert_true(kl_explain_worst(paths, &reading, &path, &request));
    assert_true(path == KL_PATH_MATCH && request != 2);
    for (size_t id = 0; id < KL_PATHS; id++)
        kl_path_fini(&paths[id]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_prefix),
        cmocka_unit_test(test_the_beginning),
        cmocka_unit_test(test_what_moves_with_the_token),
        cmocka_unit_test(test_other_requests),
        cmocka_unit_test(test_what_a_server_has_not),
        cmocka_unit_test(test_a_token_at_the_very_beginning),
        cmocka_unit_test(test_caps),
        cmocka_unit_test(test_numbers),
        cmocka_unit_test(test_the_answer),
        cmocka_unit_test(test_the_worst),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
