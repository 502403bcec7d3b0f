/* alignment.h: in random worlds (several requests with shared prefixes, chunks, mixed batches, padding)
 * the pairs are exactly the rows whose tokens are the same, whatever the order of the passes. */
#include "analysis/alignment.h"
#include "dump_files.h"
#include "scenario.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { REQUESTS = 5, TOKENS = 20, ROUNDS = 60 };

static uint64_t random_state = 1;
static unsigned pick(unsigned limit)
{
    random_state = random_state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (unsigned)(random_state >> 33) % limit;
}

struct place {
    unsigned step, row;
    bool there;
};

struct request {
    int64_t tokens[TOKENS];
    unsigned count, prompt, done; /* of decode; `done` of the side at hand */
    struct place dec[TOKENS], pre[TOKENS];
};

struct world {
    struct request requests[REQUESTS];
    unsigned count, unpaired; /* the last ones have no counterpart */
    struct scenario *scenario;
    unsigned numbers[REQUESTS];
    unsigned step;
};

static void make(struct world *world)
{
    *world = (struct world){.count = 1 + pick(REQUESTS)};
    for (unsigned i = 0; i < world->count; i++) {
        struct request *request = &world->requests[i];
        request->count = 6 + pick(TOKENS - 6);
        request->prompt = 2 + pick(request->count - 3);
        unsigned shared = i == 0 || pick(2) == 0 ? 0 : pick(TOKENS);
        for (unsigned k = 0; k < TOKENS; k++)
            request->tokens[k] = k < shared ? world->requests[i - 1].tokens[k] : (int64_t)pick(3);
    }
}

/* The rows of one request in the next pass: some of its prompt (never one row behind the first, which would look like
 * decode), or the next decoded token. */
static unsigned next_rows(const struct request *request, unsigned until)
{
    unsigned left = until - request->done;
    unsigned rows = left <= 3 ? left : 2 + pick(left - 1);
    return left - rows == 1 ? left : rows;
}

static void run_pass(struct world *world, bool decode)
{
    struct scenario_pass pass = {.padding = pick(3)};
    unsigned row = 0;
    for (unsigned k = 0, start = pick(world->count); k < world->count; k++) {
        unsigned i = (start + k) % world->count;
        struct request *request = &world->requests[i];
        unsigned until = decode ? request->prompt : request->count;
        if (request->done == request->count || pick(3) == 0)
            continue;
        unsigned rows = request->done < until ? next_rows(request, until) : 1;
        struct place *places = decode ? request->dec : request->pre;
        pass.parts[pass.part_count++] =
            (struct scenario_part){.request = world->numbers[i], .position = request->done, .rows = rows};
        for (unsigned at = 0; at < rows; at++)
            places[request->done++] = (struct place){world->step, row++, true};
    }
    if (pass.part_count == 0)
        return;
    scenario_pass(world->scenario, &pass);
    world->step++;
}

static bool is_done(const struct world *world)
{
    for (unsigned i = 0; i < world->count; i++)
        if (world->requests[i].done < world->requests[i].count)
            return false;
    return true;
}

static void write_side(struct world *world, const char *folder, bool decode)
{
    scenario_open(world->scenario, folder);
    for (unsigned i = 0; i < world->count; i++) {
        char rid[16];
        snprintf(rid, sizeof rid, "%s%u", decode ? "d" : "p", i);
        world->numbers[i] = scenario_request(world->scenario, rid, world->requests[i].tokens, world->requests[i].count);
        world->requests[i].done = 0;
    }
    while (!is_done(world))
        run_pass(world, decode);
}

static unsigned number_of(const char *rid)
{
    return (unsigned)atoi(rid + 1);
}

static void check(const struct world *world, const struct side *a, const struct side *b, const struct diff *diff,
                  const struct alignment *alignment)
{
    size_t targets = 0, controls = 0;
    for (unsigned i = 0; i < world->count; i++) {
        targets += world->requests[i].count - world->requests[i].prompt;
        controls += world->requests[i].prompt;
    }
    assert_int_equal(alignment->target_count, targets);
    assert_int_equal(alignment->pair_count - alignment->target_count, controls);
    assert_int_equal(diff->request_count, world->count);
    for (size_t i = 0; i < alignment->pair_count; i++) {
        const struct alignment_pair *pair = &alignment->pairs[i];
        const struct request *one = &world->requests[number_of(diff->requests[pair->request].a_rid)];
        const struct request *other = &world->requests[number_of(diff->requests[pair->request].b_rid)];
        size_t position = (size_t)pair->position;
        assert_memory_equal(one->tokens, other->tokens, (position + 1) * sizeof one->tokens[0]);
        assert_int_equal(a->passes[pair->a_pass].step, one->dec[position].step);
        assert_int_equal(pair->a_row, one->dec[position].row);
        assert_int_equal(b->passes[pair->b_pass].step, other->pre[position].step);
        assert_int_equal(pair->b_row, other->pre[position].row);
        assert_int_equal(pair->target, position >= one->prompt);
    }
}

static void read_side(const char *folder, struct side *ret_side)
{
    struct error err = ERROR_INIT;
    if (side_read((const char *[]){folder, NULL}, 1, NULL, NULL, ret_side, &err) != ERROR_NONE)
        fail_msg("%s", err.message);
}

static void test_random_worlds(void **state)
{
    (void)state;
    for (unsigned round = 0; round < ROUNDS; round++) {
        struct world world;
        struct scenario_model model = scenario_small();
        struct side a, b;
        struct diff diff = {.usable = true};
        struct alignment alignment;
        char *dec = dump_files_folder(), *pre = dump_files_folder();
        random_state = round;
        model.layers = 0;
        make(&world);
        world.scenario = scenario_begin(&model);
        write_side(&world, dec, true);
        write_side(&world, pre, false);
        scenario_end(world.scenario);
        read_side(round % 2 == 0 ? dec : pre, &a);
        read_side(round % 2 == 0 ? pre : dec, &b);
        assert_int_equal(alignment_make(&a, &b, false, &diff, &alignment, NULL), ERROR_NONE);
        assert_int_equal(diff.swapped, round % 2);
        check(&world, &a, &b, &diff, &alignment);
        alignment_fini(&alignment);
        diff_fini(&diff);
        side_fini(&a);
        side_fini(&b);
        dump_files_remove(dec);
        dump_files_remove(pre);
        free(dec);
        free(pre);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_random_worlds)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
