#include "analysis/kl.h"
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

static uint64_t seed = 1;

static double random_unit(void)
{
    seed ^= seed << 13;
    seed ^= seed >> 7;
    seed ^= seed << 17;
    return (double)(seed >> 11) / 9007199254740992.0;
}

/* ---- a world of five paths, clean until it is spoilt ---- */

struct world {
    struct kl_path paths[KL_PATHS];
    struct kl_server server;
    struct kl_reading reading;
};

static void fill(struct kl_path *path)
{
    path->measured = true;
    path->request_count = REQUESTS;
    path->requests = memory_new(REQUESTS * sizeof path->requests[0]);
    for (size_t i = 0; i < REQUESTS; i++) {
        struct kl_request *request = &path->requests[i];
        size_t length = 40 + 7 * i;
        *request = (struct kl_request){.rid = memory_format("r%zu", i),
                                       .prompt_length = length,
                                       .cached_tokens = length - 1,
                                       .first = length,
                                       .count = TOKENS,
                                       .ids = memory_new(TOKENS * sizeof(int64_t)),
                                       .a = memory_new(TOKENS * sizeof(double)),
                                       .b = memory_new(TOKENS * sizeof(double))};
        for (size_t t = 0; t < TOKENS; t++)
            request->a[t] = request->b[t] = (double)(float)(-6 * random_unit());
    }
}

static struct world world_new(void)
{
    struct world world = {.server = {.page_size = 1, .deterministic = true}};
    for (size_t id = 0; id < KL_PATHS; id++)
        fill(&world.paths[id]);
    return world;
}

static void read_it(struct world *world)
{
    kl_reading_fini(&world->reading);
    for (size_t id = 0; id < KL_PATHS; id++)
        kl_measure(&world->paths[id]);
    kl_read(world->paths, &world->server, &world->reading);
}

static void world_fini(struct world *world)
{
    for (size_t id = 0; id < KL_PATHS; id++)
        kl_path_fini(&world->paths[id]);
    kl_reading_fini(&world->reading);
}

static void expect_at(struct world *world, const char *signature, enum kl_condition condition, enum kl_where where,
                      bool few, int line)
{
    read_it(world);
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

/* ---- faults ---- */

static void add(struct kl_request *request, size_t from, double size)
{
    for (size_t t = from; t < request->count; t++)
        request->a[t] += size * (0.5 + random_unit());
}

/* All requests of a path from their token `from` on. */
static void spoil(struct world *world, enum kl_path_id id, size_t from, double size)
{
    for (size_t i = 0; i < REQUESTS; i++)
        add(&world->paths[id].requests[i], from, size);
}

/* What operators that are not batch-invariant leave on a float32 server: a third of the tokens beyond stray. */
static void noise(struct world *world, enum kl_path_id id)
{
    for (size_t i = 0; i < REQUESTS; i++)
        for (size_t t = 0; t < TOKENS; t++)
            world->paths[id].requests[i].a[t] += 6e-6 * (random_unit() - 0.5);
}

static void noise_everywhere(struct world *world)
{
    noise(world, KL_PATH_MATCH);
    noise(world, KL_PATH_MATCH_ALONE);
    noise(world, KL_PATH_PREFILL_CACHE_HIT);
    noise(world, KL_PATH_DECODE_CACHE_HIT);
}

static void decode_forgets(struct world *world, size_t position)
{
    for (size_t id = 0; id < KL_PATHS; id++)
        for (size_t i = 0; id != KL_PATH_RESTORE && i < REQUESTS; i++) {
            struct kl_request *request = &world->paths[id].requests[i];
            size_t from = position > request->first ? position - request->first : 1;
            add(request, from < request->count ? from : request->count, 0.02);
        }
}

static void one_row(struct world *world)
{
    spoil(world, KL_PATH_MATCH, 1, 0.01);
    spoil(world, KL_PATH_MATCH_ALONE, 1, 0.01);
    spoil(world, KL_PATH_PREFILL_CACHE_HIT, 0, 0.01);
    spoil(world, KL_PATH_DECODE_CACHE_HIT, 0, 0.01);
}

/* As a real bfloat16 server on a CPU. */
static void length_dependent(struct world *world)
{
    struct kl_path *match = &world->paths[KL_PATH_MATCH], *alone = &world->paths[KL_PATH_MATCH_ALONE];
    spoil(world, KL_PATH_MATCH, 0, 0.01);
    spoil(world, KL_PATH_PREFILL_CACHE_HIT, 0, 0.01);
    spoil(world, KL_PATH_DECODE_CACHE_HIT, 0, 0.01);
    for (size_t i = 0; i < REQUESTS; i++) {
        memcpy(alone->requests[i].a, match->requests[i].a, TOKENS * sizeof(double));
        memcpy(alone->requests[i].b, match->requests[i].b, TOKENS * sizeof(double));
    }
}

static void stale_prefix(struct world *world)
{
    spoil(world, KL_PATH_PREFILL_CACHE_HIT, 0, 0.05);
    spoil(world, KL_PATH_DECODE_CACHE_HIT, 0, 0.05);
    spoil(world, KL_PATH_RESTORE, 0, 0.05);
}

static void shift(struct world *world, enum kl_path_id id, int by)
{
    for (size_t i = 0; i < REQUESTS; i++) {
        struct kl_request *request = &world->paths[id].requests[i];
        for (size_t t = 0; t < request->count; t++) {
            size_t from = by < 0 ? t + 1 : t - 1;
            request->a[t] = from < request->count ? request->b[from] : -3;
        }
    }
}

static void shift_all(struct world *world, int by)
{
    for (size_t id = 0; id < KL_PATHS; id++)
        if (id != KL_PATH_RESTORE)
            shift(world, (enum kl_path_id)id, by);
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
        struct world world = world_new();
        struct kl_path *path = &world.paths[KL_PATH_MATCH];
        path->requests[3].a[5] += cases[i].size;
        kl_measure(path);
        assert_int_equal(path->grade, cases[i].grade);
        assert_int_equal(path->tokens, REQUESTS * TOKENS);
        assert_int_equal(path->bit_equal + path->stray + path->beyond, path->tokens);
        world_fini(&world);
    }
}

static void test_numbers_of_a_path(void **unused)
{
    (void)unused;
    struct world world = world_new();
    struct kl_path *path = &world.paths[KL_PATH_MATCH];
    path->requests[1].count = 2; /* short: the mean is taken over requests, not over tokens */
    path->requests[1].a[1] = path->requests[1].b[1] - 0.5;
    path->requests[2].dropped = memory_copy("no cached token");
    add(&path->requests[2], 0, 3);
    path->requests[4].count = 0;
    kl_measure(path);
    double k3 = kl_k3(-0.5, 0);
    assert_int_equal(path->kept, REQUESTS - 2);
    assert_int_equal(path->tokens, (REQUESTS - 3) * TOKENS + 2);
    assert_true(fabs(path->mean - k3 / 2 / (REQUESTS - 2)) < 1e-12);
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
    world_fini(&world);
}

/* ---- readings: every row of the table alone ---- */

static void test_clean(void **unused)
{
    (void)unused;
    struct world world = world_new();
    expect(&world, "clean", KL_CONDITION_NONE, KL_WHERE_NONE, false);
    spoil(&world, KL_PATH_MATCH, 0, 3e-7);
    expect(&world, "clean", KL_CONDITION_NONE, KL_WHERE_NONE, false);
    world.paths[KL_PATH_RESTORE].measured = false;
    expect(&world, "clean", KL_CONDITION_NONE, KL_WHERE_NONE, false);
    assert_non_null(strstr(world.reading.text, "Not measured: restore"));
    world_fini(&world);
}

static void test_not_batch_invariant(void **unused)
{
    (void)unused;
    struct world world = world_new();
    noise_everywhere(&world);
    add(&world.paths[KL_PATH_RESTORE].requests[2], 0, 4e-6);
    expect(&world, "not-batch-invariant", KL_CONDITION_1, KL_WHERE_OPERATOR, false);
    assert_true(world.reading.condition_2_open && !world.reading.condition_2_in_restore);
    assert_null(strstr(world.reading.text, "cannot be expected"));
    world.server.deterministic = false;
    read_it(&world);
    assert_non_null(strstr(world.reading.text, "condition 1 cannot be expected to hold"));
    world.server.mixture_of_experts = true;
    read_it(&world);
    assert_non_null(strstr(world.reading.text, "amplified"));
    world_fini(&world);
}

/* The first token differs already, prefills of one length never, and a batch is as good as one request at a time. */
static void test_length_dependent(void **unused)
{
    (void)unused;
    struct world world = world_new();
    length_dependent(&world);
    expect(&world, "length-dependent", KL_CONDITION_1, KL_WHERE_OPERATOR, false);
    assert_true(says(world.reading.evidence, "depends on the length of a prefill"));
    assert_true(says(world.reading.evidence, "all 768 tokens of match have the same bits"));
    assert_true(says(world.reading.next, "its axis extend"));
    struct kl_request *request = &world.paths[KL_PATH_MATCH_ALONE].requests[3];
    request->b[TOKENS - 1] = nextafter(request->b[TOKENS - 1], 0);
    expect(&world, "not-batch-invariant", KL_CONDITION_1, KL_WHERE_OPERATOR, false);
    assert_true(says(world.reading.evidence, "depends on the length of a prefill"));
    request->b[TOKENS - 1] = world.paths[KL_PATH_MATCH].requests[3].b[TOKENS - 1];
    spoil(&world, KL_PATH_RESTORE, 0, 0.01);
    expect(&world, "not-batch-invariant", KL_CONDITION_1, KL_WHERE_OPERATOR, false);
    assert_false(says(world.reading.evidence, "depends on the length of a prefill"));
    world_fini(&world);
}

static void test_one_row(void **unused)
{
    (void)unused;
    struct world world = world_new();
    one_row(&world);
    expect(&world, "one-row", KL_CONDITION_1, KL_WHERE_OPERATOR, false);
    assert_true(says(world.reading.evidence, "no request is dirty at its first token"));
    world_fini(&world);
}

static void test_one_row_vanishes_in_a_batch(void **unused)
{
    (void)unused;
    struct world world = world_new();
    spoil(&world, KL_PATH_MATCH_ALONE, 1, 0.01);
    expect(&world, "one-row-alone", KL_CONDITION_1, KL_WHERE_OPERATOR, false);
    assert_true(says(world.reading.evidence, "in a batch 0 of 768 tokens"));
    world_fini(&world);
}

static void test_router_flip(void **unused)
{
    (void)unused;
    struct world world = world_new();
    world.server.mixture_of_experts = true;
    one_row(&world);
    world.paths[KL_PATH_MATCH].requests[4].a[20] += 1.2;
    expect(&world, "router-flip", KL_CONDITION_1, KL_WHERE_OPERATOR, false);
    world_fini(&world);
}

static void test_restored_prefix(void **unused)
{
    (void)unused;
    struct world world = world_new();
    stale_prefix(&world);
    expect(&world, "restored-prefix", KL_CONDITION_2, KL_WHERE_RESTORE, false);
    assert_false(world.reading.condition_2_open);
    world_fini(&world);
}

static void test_almost_all_cached(void **unused)
{
    (void)unused;
    struct world world = world_new();
    spoil(&world, KL_PATH_PREFILL_CACHE_HIT, 0, 0.05);
    expect(&world, "restore-almost-all-cached", KL_CONDITION_2, KL_WHERE_RESTORE, false);
    world_fini(&world);
}

static void test_few_requests(void **unused)
{
    (void)unused;
    static const enum kl_path_id paths[] = {KL_PATH_PREFILL_CACHE_HIT, KL_PATH_DECODE_CACHE_HIT, KL_PATH_RESTORE};
    struct world world = world_new();
    world.server.page_size = 28; /* every fourth request: lengths rise by 7 */
    for (size_t p = 0; p < 3; p++)
        for (size_t i = 1; i < REQUESTS; i += 4)
            add(&world.paths[paths[p]].requests[i], 0, 0.05);
    expect(&world, "restored-prefix", KL_CONDITION_2, KL_WHERE_RESTORE, true);
    assert_true(says(world.reading.evidence, "3 of 12 requests are dirty"));
    assert_true(says(world.reading.evidence, "in every dirty request cached tokens % 28 = 18, in no clean one"));
    world_fini(&world);
    world = world_new();
    for (size_t i = 8; i < REQUESTS; i++)
        add(&world.paths[KL_PATH_RESTORE].requests[i], 0, 0.05);
    expect(&world, "restored-prefix", KL_CONDITION_2, KL_WHERE_RESTORE, true);
    assert_true(says(world.reading.evidence, "at least 95, of clean ones at most 88"));
    world_fini(&world);
}

static void test_decode_forgets(void **unused)
{
    (void)unused;
    struct world world = world_new();
    decode_forgets(&world, 110);
    expect(&world, "decode-forgets", KL_CONDITION_2, KL_WHERE_DECODE, false);
    assert_true(says(world.reading.evidence, "begins at position 110"));
    assert_true(says(world.reading.evidence, "clean requests that end before it: 1"));
    struct kl_request *spared = &world.paths[KL_PATH_MATCH_ALONE].requests[3];
    memcpy(spared->a, spared->b, spared->count * sizeof spared->a[0]);
    expect(&world, "decode-forgets", KL_CONDITION_2, KL_WHERE_DECODE, true);
    world_fini(&world);
    world = world_new();
    world.server.sliding_window = 80;
    decode_forgets(&world, 80);
    expect(&world, "decode-forgets", KL_CONDITION_2, KL_WHERE_DECODE, false);
    assert_true(says(world.reading.evidence, "dirty from their second token on: 6"));
    assert_true(says(world.reading.evidence, "at or past it"));
    stale_prefix(&world);
    expect(&world, "decode-forgets-and-restore", KL_CONDITION_2, KL_WHERE_DECODE, false);
    world_fini(&world);
}

static void test_shifted(void **unused)
{
    (void)unused;
    for (int by = -1; by <= 1; by += 2) {
        struct world world = world_new();
        shift_all(&world, by);
        expect(&world, "shifted-logprobs", KL_CONDITION_REFUSED, KL_WHERE_NONE, false);
        assert_true(says(world.reading.evidence, by < 0 ? "position p-1" : "position p+1"));
        noise_everywhere(&world);
        expect(&world, "shifted-logprobs", KL_CONDITION_REFUSED, KL_WHERE_NONE, false);
        world_fini(&world);
        world = world_new(); /* what another fault has left alone is enough */
        shift_all(&world, by);
        for (size_t id = 0; id <= KL_PATH_DECODE_CACHE_HIT; id++)
            spoil(&world, (enum kl_path_id)id, 20, 1);
        expect(&world, "shifted-logprobs", KL_CONDITION_REFUSED, KL_WHERE_NONE, false);
        world_fini(&world);
    }
}

/* Before all else: nothing is read of numbers that somebody else may have changed. */
static void test_somebody_else(void **unused)
{
    (void)unused;
    struct world world = world_new();
    world.server.foreign = "somebody else has used the server: 3 tokens";
    expect(&world, "foreign-requests", KL_CONDITION_REFUSED, KL_WHERE_NONE, false);
    assert_true(says(world.reading.evidence, "3 tokens"));
    shift_all(&world, 1);
    expect(&world, "foreign-requests", KL_CONDITION_REFUSED, KL_WHERE_NONE, false);
    world_fini(&world);
}

static void test_not_enough(void **unused)
{
    (void)unused;
    struct world world = world_new();
    stale_prefix(&world);
    world.paths[KL_PATH_MATCH].measured = false;
    expect(&world, "restored-prefix", KL_CONDITION_2, KL_WHERE_RESTORE, false);
    world.paths[KL_PATH_MATCH_ALONE].measured = false;
    expect(&world, "match-missing", KL_CONDITION_REFUSED, KL_WHERE_NONE, false);
    for (size_t id = 0; id < KL_PATHS; id++)
        world.paths[id].measured = false;
    expect(&world, "nothing-measured", KL_CONDITION_REFUSED, KL_WHERE_NONE, false);
    world_fini(&world);
}

/* A dirty match is not yet condition 1: without restore that is said. */
static void test_without_restore(void **unused)
{
    (void)unused;
    struct world world = world_new();
    noise_everywhere(&world);
    world.paths[KL_PATH_RESTORE].measured = false;
    expect(&world, "not-batch-invariant", KL_CONDITION_1, KL_WHERE_OPERATOR, false);
    assert_true(says(world.reading.next, "not yet condition 1"));
    world_fini(&world);
}

/* ---- with the noise of condition 1 on top: settle that first ---- */

static void test_noise_on_top(void **unused)
{
    (void)unused;
    static void (*const faults[])(struct world *) = {one_row, stale_prefix};
    for (size_t i = 0; i < 2; i++) {
        struct world world = world_new();
        faults[i](&world);
        noise_everywhere(&world);
        read_it(&world);
        assert_int_equal(world.reading.condition, KL_CONDITION_1);
        assert_true(world.reading.condition_2_open);
        assert_true(world.reading.condition_2_in_restore == (faults[i] == stale_prefix));
        assert_true(says(world.reading.next, "settle condition 1 first"));
        world_fini(&world);
    }
    /* Only with one request at a time: the position in the batch is no way around it. */
    struct world world = world_new();
    decode_forgets(&world, 100);
    noise(&world, KL_PATH_MATCH_ALONE);
    read_it(&world);
    assert_int_equal(world.reading.condition, KL_CONDITION_1);
    world_fini(&world);
    world = world_new();
    decode_forgets(&world, 100);
    noise_everywhere(&world);
    noise(&world, KL_PATH_RESTORE);
    expect(&world, "not-batch-invariant", KL_CONDITION_1, KL_WHERE_OPERATOR, false);
    assert_false(world.reading.condition_2_in_restore);
    world_fini(&world);
}

static void test_two_at_once(void **unused)
{
    (void)unused;
    struct world world = world_new();
    one_row(&world);
    stale_prefix(&world);
    expect(&world, "not-batch-invariant", KL_CONDITION_1, KL_WHERE_OPERATOR, false);
    world_fini(&world);
    world = world_new();
    spoil(&world, KL_PATH_MATCH_ALONE, 1, 1e-4);
    stale_prefix(&world);
    expect(&world, "one-row-alone", KL_CONDITION_1, KL_WHERE_OPERATOR, false);
    assert_true(world.reading.condition_2_in_restore);
    assert_non_null(strstr(world.reading.text, "condition 2 is broken in the prefix restore as well"));
    world_fini(&world);
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

static void random_fault(struct world *world)
{
    size_t kind = (size_t)(random_unit() * 7);
    if (kind == 0)
        one_row(world);
    else if (kind == 1)
        stale_prefix(world);
    else if (kind == 2)
        decode_forgets(world, 60 + (size_t)(random_unit() * 60));
    else if (kind == 3)
        noise_everywhere(world);
    else if (kind == 4)
        length_dependent(world);
    else if (kind == 5)
        world->paths[(size_t)(random_unit() * KL_PATHS)].measured = false;
}

/* Neither the order of requests nor dropped ones bear on what is read; class and k3 of a token do not know a side. */
static void test_order_and_dropped_requests_do_not_matter(void **unused)
{
    (void)unused;
    for (int round = 0; round < 300; round++) {
        struct world world = world_new();
        random_fault(&world);
        random_fault(&world);
        read_it(&world);
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
        world_fini(&world);
    }
}

/* More dirt in restore never turns a broken condition into a clean reading. */
static void test_dirt_is_never_clean(void **unused)
{
    (void)unused;
    for (int round = 0; round < 200; round++) {
        struct world world = world_new();
        size_t id = (size_t)(random_unit() * KL_PATHS);
        add(&world.paths[id].requests[(size_t)(random_unit() * REQUESTS)], (size_t)(random_unit() * TOKENS), 1e-4);
        read_it(&world);
        assert_int_not_equal(world.reading.condition, KL_CONDITION_NONE);
        assert_non_null(world.reading.evidence[0]);
        assert_non_null(world.reading.next[0]);
        world_fini(&world);
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
