#include "kl_world.h"
#include "base/memory.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

enum { REQUESTS = 12, TOKENS = 64 };
static void expect_at(struct kl_world *world, const char *signature, enum kl_condition condition, enum kl_where where,
                      bool few, int line)
{
    kl_world_read(world);
    const struct kl_reading *r = &world->reading;
    if (strcmp(r->signature, signature) != 0 || r->condition != condition || r->where != where || r->few != few)
        fail_msg("line %d: read as %s, condition %s in %s, %s; expected %s", line, r->signature,
                 kl_condition_word(r->condition), kl_where_word(r->where), r->few ? "few" : "all", signature);
    assert_true(strlen(r->text) > 20);
}
#define expect(...) expect_at(__VA_ARGS__, __LINE__)

static bool says(char *const *texts, const char *part)
{
    for (; *texts != NULL; texts++)
        if (strstr(*texts, part) != NULL)
            return true;
    return false;
}
/* ---- a path ---- */

static void test_grades(void **unused)
{
    (void)unused;
    static const struct {
        double size;
        enum kl_grade grade;
    } cases[] = {{0, KL_GRADE_BIT_EQUAL}, {6e-7, KL_GRADE_STRAY}, {1e-5, KL_GRADE_NOISE}, {1e-2, KL_GRADE_NONZERO}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct kl_world world = kl_world_new();
        struct kl_path *path = &world.paths[KL_PATH_MATCH];
        path->requests[3].a[5] += cases[i].size;
        kl_measure(path);
        assert_int_equal(path->grade, cases[i].grade);
        assert_int_equal(path->tokens, KL_WORLD_REQUESTS * KL_WORLD_TOKENS);
        assert_int_equal(path->bit_equal + path->stray + path->beyond, path->tokens);
        kl_world_fini(&world);
    }
}

static void test_numbers_of_a_path(void **unused)
{
    (void)unused;
    struct kl_world world = kl_world_new();
    struct kl_path *path = &world.paths[KL_PATH_MATCH];
    path->requests[1].count = 2; /* short: the mean is taken over requests, not over tokens */
    path->requests[1].a[1] = path->requests[1].b[1] - 0.5;
    path->requests[2].dropped = memory_copy("no cached token");
    kl_world_add(&path->requests[2], 0, 3);
    path->requests[4].count = 0;
    kl_measure(path);
    double k3 = kl_k3(-0.5, 0);
    assert_int_equal(path->kept, KL_WORLD_REQUESTS - 2);
    assert_int_equal(path->tokens, (KL_WORLD_REQUESTS - 3) * KL_WORLD_TOKENS + 2);
    assert_true(fabs(path->mean - k3 / 2 / (KL_WORLD_REQUESTS - 2)) < 1e-12);
    assert_true(path->numbers[1].mean == path->numbers[1].max / 2);
    assert_true(fabs(path->max - k3) < 1e-12);
    assert_int_equal(path->numbers[1].first_beyond, path->requests[1].first + 1);
    assert_true(path->numbers[0].first_beyond == SIZE_MAX);
    assert_true(path->share_above[0] == 1.0 / (double)path->tokens);
    assert_true(path->share_above[KL_THRESHOLDS - 1] == 1.0 / (double)path->tokens);
    path->requests[0].a[0] = NAN;
    kl_measure(path);
    assert_int_equal(path->grade, KL_GRADE_NONZERO);
    assert_true(isnan(path->max) && isnan(path->mean));
    path->measured = false;
    kl_measure(path);
    assert_int_equal(path->grade, KL_GRADE_NOT_MEASURED);
    kl_world_fini(&world);
}

/* ---- readings: every row of the table alone ---- */

static void test_clean(void **unused)
{
    (void)unused;
    struct kl_world world = kl_world_new();
    expect(&world, "clean", KL_CONDITION_NONE, KL_WHERE_NONE, false);
    kl_world_spoil(&world, KL_PATH_MATCH, 0, 3e-7);
    expect(&world, "clean", KL_CONDITION_NONE, KL_WHERE_NONE, false);
    world.paths[KL_PATH_RESTORE].measured = false;
    expect(&world, "clean", KL_CONDITION_NONE, KL_WHERE_NONE, false);
    assert_non_null(strstr(world.reading.text, "Not measured: restore"));
    kl_world_fini(&world);
}

static void test_not_batch_invariant(void **unused)
{
    (void)unused;
    struct kl_world world = kl_world_new();
    kl_world_noise_everywhere(&world);
    kl_world_add(&world.paths[KL_PATH_RESTORE].requests[2], 0, 4e-6);
    expect(&world, "not-batch-invariant", KL_CONDITION_1, KL_WHERE_OPERATOR, false);
    assert_true(world.reading.condition_2_open && !world.reading.condition_2_in_restore);
    assert_null(strstr(world.reading.text, "cannot be expected"));
    world.server.deterministic = false;
    kl_world_read(&world);
    assert_non_null(strstr(world.reading.text, "condition 1 cannot be expected to hold"));
    world.server.mixture_of_experts = true;
    kl_world_read(&world);
    assert_non_null(strstr(world.reading.text, "amplified"));
    kl_world_fini(&world);
}

/* The first token differs already, prefills of one length never, and a batch is as good as one request at a time. */
static void test_length_dependent(void **unused)
{
    (void)unused;
    struct kl_world world = kl_world_new();
    kl_world_length_dependent(&world);
    expect(&world, "length-dependent", KL_CONDITION_1, KL_WHERE_OPERATOR, false);
    assert_true(says(world.reading.evidence, "depends on the length of a prefill"));
    assert_true(says(world.reading.evidence, "all 768 tokens of match have the same bits"));
    assert_true(says(world.reading.next, "its axis extend"));
    struct kl_request *request = &world.paths[KL_PATH_MATCH_ALONE].requests[3];
    request->b[KL_WORLD_TOKENS - 1] = nextafter(request->b[KL_WORLD_TOKENS - 1], 0);
    expect(&world, "not-batch-invariant", KL_CONDITION_1, KL_WHERE_OPERATOR, false);
    assert_true(says(world.reading.evidence, "depends on the length of a prefill"));
    request->b[KL_WORLD_TOKENS - 1] = world.paths[KL_PATH_MATCH].requests[3].b[KL_WORLD_TOKENS - 1];
    kl_world_spoil(&world, KL_PATH_RESTORE, 0, 0.01);
    expect(&world, "not-batch-invariant", KL_CONDITION_1, KL_WHERE_OPERATOR, false);
    assert_false(says(world.reading.evidence, "depends on the length of a prefill"));
    kl_world_fini(&world);
}

static void test_one_row(void **unused)
{
    (void)unused;
    struct kl_world world = kl_world_new();
    kl_world_one_row(&world);
    expect(&world, "one-row", KL_CONDITION_1, KL_WHERE_OPERATOR, false);
    assert_true(says(world.reading.evidence, "no request is dirty at its first token"));
    kl_world_fini(&world);
}

static void test_one_row_vanishes_in_a_batch(void **unused)
{
    (void)unused;
    struct kl_world world = kl_world_new();
    kl_world_spoil(&world, KL_PATH_MATCH_ALONE, 1, 0.01);
    expect(&world, "one-row-alone", KL_CONDITION_1, KL_WHERE_OPERATOR, false);
    assert_true(says(world.reading.evidence, "in a batch 0 of 768 tokens"));
    kl_world_fini(&world);
}

static void test_router_flip(void **unused)
{
    (void)unused;
    struct kl_world world = kl_world_new();
    world.server.mixture_of_experts = true;
    kl_world_one_row(&world);
    world.paths[KL_PATH_MATCH].requests[4].a[20] += 1.2;
    expect(&world, "router-flip", KL_CONDITION_1, KL_WHERE_OPERATOR, false);
    kl_world_fini(&world);
}

static void test_restored_prefix(void **unused)
{
    (void)unused;
    struct kl_world world = kl_world_new();
    kl_world_stale_prefix(&world);
    expect(&world, "restored-prefix", KL_CONDITION_2, KL_WHERE_RESTORE, false);
    assert_false(world.reading.condition_2_open);
    kl_world_fini(&world);
}

static void test_almost_all_cached(void **unused)
{
    (void)unused;
    struct kl_world world = kl_world_new();
    kl_world_spoil(&world, KL_PATH_PREFILL_CACHE_HIT, 0, 0.05);
    expect(&world, "restore-almost-all-cached", KL_CONDITION_2, KL_WHERE_RESTORE, false);
    kl_world_fini(&world);
}

/* A position that match does not reach, or what cannot be told from it: no fault of the cache is named then. */
static void test_second_turn(void **unused)
{
    (void)unused;
    struct kl_world world = kl_world_new();
    kl_world_spoil(&world, KL_PATH_DECODE_CACHE_HIT, 0, 0.05);
    expect(&world, "second-turn", KL_CONDITION_REFUSED, KL_WHERE_NONE, false);
    assert_true(says(world.reading.evidence, "the longest sequence has"));
    world.paths[KL_PATH_RESTORE].measured = world.paths[KL_PATH_PREFILL_CACHE_HIT].measured = false;
    expect(&world, "second-turn", KL_CONDITION_REFUSED, KL_WHERE_NONE, false);
    assert_false(says(world.reading.next, "dirty in match"));
    kl_world_fini(&world);
    world = kl_world_new();
    struct kl_path *turn = &world.paths[KL_PATH_DECODE_CACHE_HIT];
    for (size_t i = 0; i < KL_WORLD_REQUESTS; i++) {
        size_t first = turn->requests[i].first, from = 110 > first ? 110 - first : 1;
        kl_world_add(&turn->requests[i], from < KL_WORLD_TOKENS ? from : KL_WORLD_TOKENS, 0.05);
    }
    expect(&world, "decode-forgets", KL_CONDITION_2, KL_WHERE_DECODE, false);
    assert_true(says(world.reading.evidence, "decode cache hit: dirt begins at position 110"));
    kl_world_stale_prefix(&world);
    expect(&world, "restored-prefix", KL_CONDITION_2, KL_WHERE_RESTORE, false);
    kl_world_fini(&world);
}

/* Last bits behind a cached prefix may be an operator's: match has no such rows. */
static void test_faint_prefix(void **unused)
{
    (void)unused;
    struct kl_world world = kl_world_new();
    kl_world_noise(&world, KL_PATH_RESTORE);
    expect(&world, "restored-prefix", KL_CONDITION_2, KL_WHERE_RESTORE, false);
    assert_non_null(strstr(world.reading.text, "(condition 1) looks the same"));
    assert_true(says(world.reading.next, "kldumpctl invariance first"));
    kl_world_spoil(&world, KL_PATH_RESTORE, 0, 0.05);
    kl_world_read(&world);
    assert_null(strstr(world.reading.text, "looks the same"));
    kl_world_fini(&world);
}

/* Equal bits say nothing of a batch that was none. */
static void test_no_batch(void **unused)
{
    (void)unused;
    struct kl_world world = kl_world_new();
    kl_world_length_dependent(&world);
    world.server.one_at_a_time = true;
    expect(&world, "not-batch-invariant", KL_CONDITION_1, KL_WHERE_OPERATOR, false);
    world.server.one_at_a_time = false;
    for (size_t i = 1; i < KL_WORLD_REQUESTS; i++)
        for (size_t id = 0; id < KL_PATHS; id++)
            world.paths[id].requests[i].dropped = memory_copy("no cached token");
    expect(&world, "not-batch-invariant", KL_CONDITION_1, KL_WHERE_OPERATOR, false);
    kl_world_fini(&world);
}

static void test_few_requests(void **unused)
{
    (void)unused;
    static const enum kl_path_id paths[] = {KL_PATH_PREFILL_CACHE_HIT, KL_PATH_DECODE_CACHE_HIT, KL_PATH_RESTORE};
    struct kl_world world = kl_world_new();
    world.server.page_size = 28; /* every fourth request: lengths rise by 7 */
    for (size_t p = 0; p < 3; p++)
        for (size_t i = 1; i < KL_WORLD_REQUESTS; i += 4)
            kl_world_add(&world.paths[paths[p]].requests[i], 0, 0.05);
    expect(&world, "restored-prefix", KL_CONDITION_2, KL_WHERE_RESTORE, true);
    assert_true(says(world.reading.evidence, "3 of 12 requests are dirty"));
    assert_true(says(world.reading.evidence, "in every dirty request cached tokens % 28 = 18, in no clean one"));
    kl_world_fini(&world);
    world = kl_world_new();
    for (size_t i = 8; i < KL_WORLD_REQUESTS; i++)
        kl_world_add(&world.paths[KL_PATH_RESTORE].requests[i], 0, 0.05);
    expect(&world, "restored-prefix", KL_CONDITION_2, KL_WHERE_RESTORE, true);
    assert_true(says(world.reading.evidence, "at least 95, of clean ones at most 88"));
    kl_world_fini(&world);
}

static void test_decode_forgets(void **unused)
{
    (void)unused;
    struct kl_world world = kl_world_new();
    kl_world_decode_forgets(&world, 110);
    expect(&world, "decode-forgets", KL_CONDITION_2, KL_WHERE_DECODE, false);
    assert_true(says(world.reading.evidence, "begins at position 110"));
    assert_true(says(world.reading.evidence, "clean requests that end before it: 1"));
    struct kl_request *spared = &world.paths[KL_PATH_MATCH_ALONE].requests[3];
    memcpy(spared->a, spared->b, spared->count * sizeof spared->a[0]);
    expect(&world, "decode-forgets", KL_CONDITION_2, KL_WHERE_DECODE, true);
    kl_world_fini(&world);
    world = kl_world_new();
    world.server.sliding_window = 80;
    kl_world_decode_forgets(&world, 80);
    expect(&world, "decode-forgets", KL_CONDITION_2, KL_WHERE_DECODE, false);
    assert_true(says(world.reading.evidence, "dirty from their second token on: 6"));
    assert_true(says(world.reading.evidence, "at or past it"));
    kl_world_stale_prefix(&world);
    expect(&world, "decode-forgets-and-restore", KL_CONDITION_2, KL_WHERE_DECODE, false);
    assert_true(says(world.reading.evidence, "differs from prefill, without any decode"));
    kl_world_fini(&world);
}

static void test_shifted(void **unused)
{
    (void)unused;
    for (int by = -1; by <= 1; by += 2) {
        struct kl_world world = kl_world_new();
        kl_world_shift_all(&world, by);
        expect(&world, "shifted-logprobs", KL_CONDITION_REFUSED, KL_WHERE_NONE, false);
        assert_true(says(world.reading.evidence, by < 0 ? "position p-1" : "position p+1"));
        kl_world_noise_everywhere(&world);
        expect(&world, "shifted-logprobs", KL_CONDITION_REFUSED, KL_WHERE_NONE, false);
        kl_world_fini(&world);
        world = kl_world_new(); /* what another fault has left alone is enough */
        kl_world_shift_all(&world, by);
        for (size_t id = 0; id <= KL_PATH_DECODE_CACHE_HIT; id++)
            kl_world_spoil(&world, (enum kl_path_id)id, 20, 1);
        expect(&world, "shifted-logprobs", KL_CONDITION_REFUSED, KL_WHERE_NONE, false);
        kl_world_fini(&world);
    }
}

/* Before all else: nothing is read of numbers that somebody else may have changed. */
static void test_somebody_else(void **unused)
{
    (void)unused;
    struct kl_world world = kl_world_new();
    world.server.foreign = "somebody else has used the server: 3 tokens";
    expect(&world, "foreign-requests", KL_CONDITION_REFUSED, KL_WHERE_NONE, false);
    assert_true(says(world.reading.evidence, "3 tokens"));
    kl_world_shift_all(&world, 1);
    expect(&world, "foreign-requests", KL_CONDITION_REFUSED, KL_WHERE_NONE, false);
    kl_world_fini(&world);
}

static void test_not_enough(void **unused)
{
    (void)unused;
    struct kl_world world = kl_world_new();
    kl_world_stale_prefix(&world);
    world.paths[KL_PATH_MATCH].measured = false;
    expect(&world, "restored-prefix", KL_CONDITION_2, KL_WHERE_RESTORE, false);
    world.paths[KL_PATH_MATCH_ALONE].measured = false;
    expect(&world, "match-missing", KL_CONDITION_REFUSED, KL_WHERE_NONE, false);
    for (size_t id = 0; id < KL_PATHS; id++)
        world.paths[id].measured = false;
    expect(&world, "nothing-measured", KL_CONDITION_REFUSED, KL_WHERE_NONE, false);
    kl_world_fini(&world);
}

/* A dirty match is not yet condition 1: without restore that is said. */
static void test_without_restore(void **unused)
{
    (void)unused;
    struct kl_world world = kl_world_new();
    kl_world_noise_everywhere(&world);
    world.paths[KL_PATH_RESTORE].measured = false;
    expect(&world, "not-batch-invariant", KL_CONDITION_1, KL_WHERE_OPERATOR, false);
    assert_true(says(world.reading.next, "not yet condition 1"));
    kl_world_fini(&world);
}

/* ---- with the noise of condition 1 on top: settle that first ---- */

static void test_noise_on_top(void **unused)
{
    (void)unused;
    static void (*const faults[])(struct kl_world *) = {kl_world_one_row, kl_world_stale_prefix};
    for (size_t i = 0; i < 2; i++) {
        struct kl_world world = kl_world_new();
        faults[i](&world);
        kl_world_noise_everywhere(&world);
        kl_world_read(&world);
        assert_int_equal(world.reading.condition, KL_CONDITION_1);
        assert_true(world.reading.condition_2_open);
        assert_true(world.reading.condition_2_in_restore == (faults[i] == kl_world_stale_prefix));
        assert_true(says(world.reading.next, "settle condition 1 first"));
        kl_world_fini(&world);
    }
    /* Only with one request at a time: the position in the batch is no way around it. */
    struct kl_world world = kl_world_new();
    kl_world_decode_forgets(&world, 100);
    kl_world_noise(&world, KL_PATH_MATCH_ALONE);
    kl_world_read(&world);
    assert_int_equal(world.reading.condition, KL_CONDITION_1);
    kl_world_fini(&world);
    world = kl_world_new();
    kl_world_decode_forgets(&world, 100);
    kl_world_noise_everywhere(&world);
    kl_world_noise(&world, KL_PATH_RESTORE);
    expect(&world, "not-batch-invariant", KL_CONDITION_1, KL_WHERE_OPERATOR, false);
    assert_false(world.reading.condition_2_in_restore);
    kl_world_fini(&world);
}

static void test_two_at_once(void **unused)
{
    (void)unused;
    struct kl_world world = kl_world_new();
    kl_world_one_row(&world);
    kl_world_stale_prefix(&world);
    expect(&world, "not-batch-invariant", KL_CONDITION_1, KL_WHERE_OPERATOR, false);
    kl_world_fini(&world);
    world = kl_world_new();
    kl_world_spoil(&world, KL_PATH_MATCH_ALONE, 1, 1e-4);
    kl_world_stale_prefix(&world);
    expect(&world, "one-row-alone", KL_CONDITION_1, KL_WHERE_OPERATOR, false);
    assert_true(world.reading.condition_2_in_restore);
    assert_non_null(strstr(world.reading.text, "condition 2 is broken in the prefix restore as well"));
    kl_world_fini(&world);
}

/* ---- properties ---- */

static void reverse(struct kl_path *path)
{
    for (size_t i = 0; i < path->request_count / 2; i++) {
        struct kl_request kept = path->requests[i];
        path->requests[i] = path->requests[path->request_count - 1 - i];
        path->requests[path->request_count - 1 - i] = kept;
    }
}

static void swap_sides(struct kl_path *path)
{
    for (size_t i = 0; i < path->request_count; i++) {
        double *a = path->requests[i].a;
        path->requests[i].a = path->requests[i].b;
        path->requests[i].b = a;
    }
}

static void random_fault(struct kl_world *world)
{
    size_t kind = (size_t)(kl_world_random() * 7);
    if (kind == 0)
        kl_world_one_row(world);
    else if (kind == 1)
        kl_world_stale_prefix(world);
    else if (kind == 2)
        kl_world_decode_forgets(world, 60 + (size_t)(kl_world_random() * 60));
    else if (kind == 3)
        kl_world_noise_everywhere(world);
    else if (kind == 4)
        kl_world_length_dependent(world);
    else if (kind == 5)
        world->paths[(size_t)(kl_world_random() * KL_PATHS)].measured = false;
}

/* Neither the order of requests nor dropped ones bear on what is read; class and k3 of a token do not know a side. */
static void test_order_and_dropped_requests_do_not_matter(void **unused)
{
    (void)unused;
    for (int round = 0; round < 300; round++) {
        struct kl_world world = kl_world_new();
        random_fault(&world);
        random_fault(&world);
        kl_world_read(&world);
        const char *signature = world.reading.signature;
        bool few = world.reading.few;
        size_t beyond = world.paths[0].beyond;
        for (size_t id = 0; id < KL_PATHS; id++)
            reverse(&world.paths[id]);
        expect(&world, signature, world.reading.condition, world.reading.where, few);
        for (size_t id = 0; id < KL_PATHS; id++) {
            struct kl_path *path = &world.paths[id];
            path->requests = memory_resize(path->requests, path->request_count + 1, sizeof path->requests[0]);
            path->requests[path->request_count++] = (struct kl_request){.dropped = memory_copy("no cached token")};
        }
        expect(&world, signature, world.reading.condition, world.reading.where, few);
        swap_sides(&world.paths[0]);
        kl_measure(&world.paths[0]);
        assert_int_equal(world.paths[0].beyond, beyond);
        kl_world_fini(&world);
    }
}

/* More dirt in restore never turns a broken condition into a clean reading. */
static void test_dirt_is_never_clean(void **unused)
{
    (void)unused;
    for (int round = 0; round < 200; round++) {
        struct kl_world world = kl_world_new();
        size_t id = (size_t)(kl_world_random() * KL_PATHS);
        kl_world_add(&world.paths[id].requests[(size_t)(kl_world_random() * KL_WORLD_REQUESTS)],
                     (size_t)(kl_world_random() * KL_WORLD_TOKENS), 1e-4);
        kl_world_read(&world);
        assert_int_not_equal(world.reading.condition, KL_CONDITION_NONE);
        assert_non_null(world.reading.evidence[0]);
        assert_non_null(world.reading.next[0]);
        kl_world_fini(&world);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_grades),
        cmocka_unit_test(test_numbers_of_a_path),
        cmocka_unit_test(test_clean),
        cmocka_unit_test(test_not_batch_invariant),
        cmocka_unit_test(test_length_dependent),
        cmocka_unit_test(test_one_row),
        cmocka_unit_test(test_one_row_vanishes_in_a_batch),
        cmocka_unit_test(test_router_flip),
        cmocka_unit_test(test_restored_prefix),
        cmocka_unit_test(test_almost_all_cached),
        cmocka_unit_test(test_second_turn),
        cmocka_unit_test(test_faint_prefix),
        cmocka_unit_test(test_no_batch),
        cmocka_unit_test(test_few_requests),
        cmocka_unit_test(test_decode_forgets),
        cmocka_unit_test(test_shifted),
        cmocka_unit_test(test_somebody_else),
        cmocka_unit_test(test_not_enough),
        cmocka_unit_test(test_without_restore),
        cmocka_unit_test(test_noise_on_top),
        cmocka_unit_test(test_two_at_once),
        cmocka_unit_test(test_order_and_dropped_requests_do_not_matter),
        cmocka_unit_test(test_dirt_is_never_clean),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
