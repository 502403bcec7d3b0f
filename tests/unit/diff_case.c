#include "diff_case.h"

#include "base/buffer.h"
#include "dump_files.h"

#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

static unsigned or_else(unsigned value, unsigned usual)
{
    return value == 0 ? usual : value;
}

/* Neighbours are never the same token. */
static void make_tokens(int64_t *tokens, size_t count, unsigned request, unsigned vocabulary)
{
    for (size_t i = 0; i < count; i++)
        tokens[i] = (int64_t)((i * (i + 3) / 2 + 7 * request + i) % vocabulary);
}

static void add_request(struct scenario *scenario, const struct diff_case *world, unsigned number, const char *side)
{
    int64_t tokens[512];
    char rid[32];
    unsigned length = or_else(world->length[number], 9);
    make_tokens(tokens, length, number, world->model.vocabulary);
    snprintf(rid, sizeof rid, "%s-%u", side, number);
    scenario_request(scenario, rid, tokens, length);
}

static void add_stranger(struct scenario *scenario, const char *rid, int64_t first)
{
    int64_t tokens[4] = {first, first + 1, first + 2, first + 3};
    scenario_request(scenario, rid, tokens, 4);
}

static void write_decode(struct scenario *scenario, const struct diff_case *world)
{
    unsigned requests = or_else(world->requests, 1), longest = 0;
    struct scenario_pass pass = {.padding = world->padding};
    for (unsigned i = 0; i < requests; i++) {
        add_request(scenario, world, i, "dec");
        pass.parts[i] = (struct scenario_part){.request = i, .rows = or_else(world->prompt[i], 5)};
        longest = or_else(world->length[i], 9) > longest ? or_else(world->length[i], 9) : longest;
    }
    pass.part_count = requests;
    if (world->other_tokens) {
        add_stranger(scenario, "stranger", 20);
        pass.parts[pass.part_count++] = (struct scenario_part){.request = requests, .rows = 4};
    }
    scenario_pass(scenario, &pass);
    for (unsigned step = 0; step < longest; step++) {
        pass = (struct scenario_pass){.padding = world->decode_padding};
        for (unsigned i = 0; i < requests; i++)
            if (or_else(world->prompt[i], 5) + step < or_else(world->length[i], 9))
                pass.parts[pass.part_count++] =
                    (struct scenario_part){.request = i, .position = or_else(world->prompt[i], 5) + step, .rows = 1};
        if (pass.part_count > 0)
            scenario_pass(scenario, &pass);
    }
}

static void write_prefill(struct scenario *scenario, const struct diff_case *world)
{
    unsigned requests = or_else(world->requests, 1);
    unsigned first = requests + world->other_tokens;
    struct scenario_pass pass = {.padding = world->padding};
    if (world->other_tokens) {
        pass.parts[pass.part_count++] = (struct scenario_part){.request = first + requests, .rows = 4};
    }
    for (unsigned i = 0; i < requests; i++) {
        add_request(scenario, world, i, "pre");
        pass.parts[pass.part_count++] =
            (struct scenario_part){.request = first + i, .rows = or_else(world->length[i], 9)};
    }
    if (world->other_tokens)
        add_stranger(scenario, "another", 10);
    scenario_pass(scenario, &pass);
}

struct diff_case_folders diff_case_write(const struct diff_case *world)
{
    struct diff_case_folders folders = {dump_files_folder(), dump_files_folder()};
    struct scenario *scenario = scenario_begin(&world->model);
    for (unsigned i = 0; i < DIFF_CASE_FAULTS && world->faults[i].name != NULL; i++)
        scenario_fault(scenario, &world->faults[i]);
    scenario_open(scenario, folders.dec);
    write_decode(scenario, world);
    scenario_open(scenario, folders.pre);
    write_prefill(scenario, world);
    scenario_end(scenario);
    return folders;
}

void diff_case_remove(struct diff_case_folders *folders)
{
    dump_files_remove(folders->dec);
    dump_files_remove(folders->pre);
    free(folders->dec);
    free(folders->pre);
}

struct diff diff_case_diff(const char *a, const char *b, unsigned threads, bool first)
{
    return diff_case_diff_with(a, b, (struct diff_options){.threads = threads, .first = first});
}

struct diff diff_case_diff_with(const char *a, const char *b, struct diff_options options)
{
    const char *a_paths[] = {a, NULL}, *b_paths[] = {b, NULL};
    options.a_paths = a_paths;
    options.b_paths = b_paths;
    struct diff diff;
    struct error error = ERROR_INIT;
    if (diff_run(&options, &diff, &error) != ERROR_NONE)
        fail_msg("%s", error.message);
    return diff;
}

struct diff diff_case_run(const struct diff_case *world)
{
    struct diff_case_folders folders = diff_case_write(world);
    struct diff diff = diff_case_diff(folders.dec, folders.pre, 0, false);
    diff_case_remove(&folders);
    return diff;
}

const struct diff_call *diff_case_call(const struct diff *diff, const char *name)
{
    for (size_t i = 0; i < diff->call_count; i++)
        if (strcmp(diff->calls[i].name, name) == 0)
            return &diff->calls[i];
    fail_msg("no call '%s'", name);
    return NULL;
}

const struct diff_observation *diff_case_observation(const struct diff *diff, const char *name)
{
    for (size_t i = 0; i < diff->observation_count; i++)
        if (strcmp(diff->observations[i].name, name) == 0)
            return &diff->observations[i];
    fail_msg("no observation '%s'", name);
    return NULL;
}

static void add_observation(struct buffer *text, const struct diff *diff, const struct diff_observation *observation)
{
    const struct numbers *numbers = &observation->numbers;
    buffer_format(text, "%s rows %d presence %d factor %u %zu/%zu %zu/%zu first %zu %s\n", observation->name,
                  observation->rows, observation->presence, observation->factor, observation->unequal,
                  observation->tested, observation->control_unequal, observation->control_tested,
                  observation->first_unequal_pair, observation->note == NULL ? "" : observation->note);
    buffer_format(text, "  %" PRIu64 " %" PRIu64 " %" PRIu64 " %.17g %.17g %.17g %.17g\n", numbers->elements,
                  numbers->unequal, numbers->first_unequal, numbers->first_a, numbers->first_b, numbers->max_abs,
                  numbers->dot);
    for (size_t i = 0; observation->marks != NULL && i < diff->pair_count; i++)
        buffer_format(text, "%u ", observation->marks[i]);
}

char *diff_case_text(const struct diff *diff)
{
    struct buffer text;
    buffer_init(&text);
    buffer_format(&text, "status %d kind %d call %u first %u last %u after %u pair %zu %zu/%zu confidence %d\n%s\n%s\n",
                  diff_status(diff), diff->verdict.kind, diff->verdict.call, diff->verdict.first_unequal,
                  diff->verdict.last_equal, diff->verdict.after, diff->verdict.first_pair, diff->verdict.unequal,
                  diff->verdict.tested, diff->verdict.confidence, diff->verdict.what, diff->verdict.reading);
    for (int i = 0; i < DIFF_PROOF_COUNT; i++)
        buffer_format(&text, "%d %s\n", diff->proofs[i].state, diff->proofs[i].evidence);
    for (size_t i = 0; i < diff->call_count; i++)
        buffer_format(&text, "%s %zu/%zu %zu %" PRIu64 " %zu\n", diff->calls[i].name, diff->calls[i].unequal,
                      diff->calls[i].tested, diff->calls[i].first_pair, diff->calls[i].max_ulp,
                      diff->calls[i].history_equal);
    for (size_t i = 0; i < diff->observation_count; i++)
        add_observation(&text, diff, &diff->observations[i]);
    char *result = buffer_steal(&text);
    buffer_fini(&text);
    return result;
}
