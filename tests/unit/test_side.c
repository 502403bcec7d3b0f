/* side.h: sequences, prefixes, draft passes and passes that cannot be cut, on folders of a small model. */
#include "analysis/side.h"
#include "dump_files.h"
#include "scenario.h"

#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include <cmocka.h>

static const int64_t TOKENS[] = {3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5, 8, 9, 7, 9, 3};

struct fixture {
    struct scenario *scenario;
    char *folder;
    struct side side;
};

static int setup(void **state)
{
    struct fixture *f = calloc(1, sizeof *f);
    struct scenario_model model = scenario_small();
    model.layers = 1;
    f->scenario = scenario_begin(&model);
    f->folder = dump_files_folder();
    scenario_open(f->scenario, f->folder);
    *state = f;
    return 0;
}

static int teardown(void **state)
{
    struct fixture *f = *state;
    side_fini(&f->side);
    scenario_end(f->scenario);
    dump_files_remove(f->folder);
    free(f->folder);
    free(f);
    return 0;
}

static void read_folder(struct fixture *f)
{
    const char *paths[] = {f->folder, NULL};
    struct error err = ERROR_INIT;
    if (side_read(paths, 1, NULL, NULL, &f->side, &err) != ERROR_NONE)
        fail_msg("%s", err.message);
}

/* "dec-0 plen 5 len 8 known 8: 0.0 0.1 0.2 0.3 0.4 1.0 2.0 3.0": pass and row of each position, - for nowhere. */
static void expect_sequence(const struct side *side, size_t number, const char *expected)
{
    char text[2048];
    assert_true(number < side->sequence_count);
    const struct side_sequence *sequence = &side->sequences[number];
    int length = snprintf(text, sizeof text, "%s", sequence->rid);
    if (sequence->incarnation > 0)
        length += snprintf(text + length, sizeof text - (size_t)length, "#%u", sequence->incarnation);
    if (sequence->rank > 0)
        length += snprintf(text + length, sizeof text - (size_t)length, " rank %u", sequence->rank);
    length +=
        snprintf(text + length, sizeof text - (size_t)length, " plen %zu len %zu known %zu:", sequence->prompt_length,
                 sequence->length, sequence->known_length);
    for (size_t i = 0; i < sequence->length; i++) {
        const struct side_token *token = &sequence->tokens[i];
        if (token->pass == SIDE_NOWHERE)
            length += snprintf(text + length, sizeof text - (size_t)length, " -");
        else
            length += snprintf(text + length, sizeof text - (size_t)length, " %u.%u", token->pass, token->row);
        if (token->id >= 0)
            assert_int_equal(token->id, TOKENS[i]);
    }
    if (strcmp(text, expected) != 0)
        fail_msg("%s\n not %s", text, expected);
}

static void test_prompt_and_decode(void **state)
{
    struct fixture *f = *state;
    unsigned first = scenario_request(f->scenario, "dec-0", TOKENS, 8);
    scenario_prefill(f->scenario, first, 5);
    scenario_decode(f->scenario, first, 5, 7);
    read_folder(f);
    assert_int_equal(f->side.pass_count, 4);
    assert_int_equal(f->side.ranks, 1);
    assert_int_equal(f->side.tp_size, 1);
    assert_true(f->side.passes[0].hooks);
    assert_false(f->side.passes[0].replayed);
    assert_int_equal(f->side.passes[3].first_index, f->side.passes[2].first_index + f->side.passes[2].file_count);
    assert_int_equal(f->side.sequence_count, 1);
    expect_sequence(&f->side, 0, "dec-0 plen 5 len 8 known 8: 0.0 0.1 0.2 0.3 0.4 1.0 2.0 3.0");
}

static void test_several_requests_mixed_chunks_padding(void **state)
{
    struct fixture *f = *state;
    struct scenario *s = f->scenario;
    unsigned a = scenario_request(s, "a", TOKENS, 8), b = scenario_request(s, "b", TOKENS, 6);
    scenario_pass(
        s, &(struct scenario_pass){.parts = {{.request = a, .rows = 3}, {.request = b, .rows = 2}}, .part_count = 2});
    scenario_pass(s, &(struct scenario_pass){
                         .parts = {{.request = b, .position = 2, .rows = 1}, {.request = a, .position = 3, .rows = 2}},
                         .part_count = 2});
    scenario_pass(s, &(struct scenario_pass){
                         .parts = {{.request = a, .position = 5, .rows = 1}, {.request = b, .position = 3, .rows = 1}},
                         .part_count = 2,
                         .padding = 6,
                         .padding_requests = 2});
    read_folder(f);
    assert_int_equal(f->side.sequence_count, 2);
    expect_sequence(&f->side, 0, "a plen 5 len 6 known 6: 0.0 0.1 0.2 1.1 1.2 2.0");
    expect_sequence(&f->side, 1, "b plen 2 len 4 known 4: 0.3 0.4 1.0 2.1");
    assert_int_equal(f->side.passes[2].segments[2].kind, SEGMENT_PADDING);
}

static void test_cached_prefix(void **state)
{
    struct fixture *f = *state;
    struct scenario *s = f->scenario;
    unsigned a = scenario_request(s, "a", TOKENS, 8), b = scenario_request(s, "b", TOKENS, 6);
    scenario_prefill(s, a, 8);
    scenario_pass(s, &(struct scenario_pass){.parts = {{.request = b, .position = 5, .rows = 1}}, .part_count = 1});
    read_folder(f);
    expect_sequence(&f->side, 1, "b plen 6 len 6 known 6: - - - - - 1.0");
    assert_int_equal(f->side.sequences[1].cached_length, 5);
    assert_int_equal(f->side.sequences[1].prefix_source, 0);
    assert_int_equal(f->side.sequences[0].prefix_source, SIDE_NOWHERE);
}

static void test_cached_prefix_of_two_sequences_is_not_guessed(void **state)
{
    struct fixture *f = *state;
    struct scenario *s = f->scenario;
    static const int64_t others[] = {3, 1, 7, 7, 7, 7, 7, 7};
    unsigned a = scenario_request(s, "a", TOKENS, 8);
    scenario_prefill(s, a, 8);
    for (unsigned i = 0; i < 2; i++) {
        unsigned cached = i == 0 ? 5 : 2;
        char rid[16];
        snprintf(rid, sizeof rid, "c%u", cached);
        unsigned c = scenario_request(s, rid, TOKENS, 6);
        scenario_pass(
            s, &(struct scenario_pass){.parts = {{.request = c, .position = cached, .rows = 1}}, .part_count = 1});
    }
    unsigned b = scenario_request(s, "b", others, 8);
    scenario_pass(s, &(struct scenario_pass){.parts = {{.request = b, .rows = 8}}, .part_count = 1, .core_only = true});
    read_folder(f);
    assert_int_equal(f->side.sequences[1].known_length, 0);
    assert_int_equal(f->side.sequences[2].known_length, 3); /* both begin with 3, 1 */
    assert_int_equal(f->side.sequences[2].tokens[1].id, 1);
    assert_false(f->side.passes[3].hooks);
}

/* Of two prompts each is known by its own earlier run; where the id was used for other tokens, nothing is. */
static void test_cached_prefix_of_the_same_request(void **state)
{
    struct fixture *f = *state;
    struct scenario *s = f->scenario;
    static const int64_t others[] = {9, 8, 7, 6, 5, 4, 3, 2}, third[] = {2, 2, 2, 2, 2, 2, 9, 9};
    unsigned a = scenario_request(s, "a", TOKENS, 8), b = scenario_request(s, "b", others, 8);
    unsigned c = scenario_request(s, "c", third, 8);
    scenario_prefill(s, a, 8);
    scenario_prefill(s, b, 8);
    scenario_prefill(s, c, 8);
    unsigned again = scenario_request(s, "c", TOKENS, 8);
    const unsigned requests[] = {a, b, again};
    for (unsigned i = 0; i < 3; i++)
        scenario_pass(
            s, &(struct scenario_pass){.parts = {{.request = requests[i], .position = 6, .rows = 2}}, .part_count = 1});
    read_folder(f);
    assert_int_equal(f->side.sequence_count, 6);
    for (unsigned i = 3; i < 5; i++) {
        assert_int_equal(f->side.sequences[i].prefix_source, i - 3);
        assert_int_equal(f->side.sequences[i].known_length, 8);
        assert_int_equal(f->side.sequences[i].tokens[2].id, i == 3 ? TOKENS[2] : 7);
    }
    assert_int_equal(f->side.sequences[5].known_length, 0);
    assert_int_equal(f->side.sequences[5].earlier, 2);
}

static void test_retraction_and_a_rid_used_again(void **state)
{
    struct fixture *f = *state;
    struct scenario *s = f->scenario;
    unsigned a = scenario_request(s, "a", TOKENS, 9);
    scenario_prefill(s, a, 4);
    scenario_decode(s, a, 4, 5);
    scenario_prefill(s, a, 7);
    scenario_decode(s, a, 7, 7);
    read_folder(f);
    assert_int_equal(f->side.sequence_count, 2);
    expect_sequence(&f->side, 0, "a plen 4 len 6 known 6: 0.0 0.1 0.2 0.3 1.0 2.0");
    expect_sequence(&f->side, 1, "a#1 plen 7 len 8 known 8: 3.0 3.1 3.2 3.3 3.4 3.5 3.6 4.0");
}

static void test_slots(void **state)
{
    struct fixture *f = *state;
    struct scenario *s = f->scenario;
    unsigned a = scenario_request(s, "a", TOKENS, 8), b = scenario_request(s, "b", TOKENS, 8);
    scenario_slot(s, a, 7);
    scenario_slot(s, b, 7);
    for (unsigned i = 0; i < 2; i++) {
        scenario_pass(
            s, &(struct scenario_pass){.parts = {{.request = a + i, .rows = 3}}, .part_count = 1, .no_rids = true});
        scenario_pass(s, &(struct scenario_pass){.parts = {{.request = a + i, .position = 3, .rows = 1}},
                                                 .part_count = 1,
                                                 .no_rids = true});
    }
    read_folder(f);
    assert_int_equal(f->side.sequence_count, 2);
    expect_sequence(&f->side, 0, "slot 7 plen 3 len 4 known 4: 0.0 0.1 0.2 1.0");
    expect_sequence(&f->side, 1, "slot 7#1 plen 3 len 4 known 4: 2.0 2.1 2.2 3.0");
    assert_true(f->side.sequences[0].linked_by_slot && f->side.sequences[0].reused && f->side.sequences[1].reused);
    assert_int_equal(f->side.sequences[1].first_step, 2);
}

static void test_without_slots_the_order_of_the_batch_is_all_there_is(void **state)
{
    struct fixture *f = *state;
    unsigned a = scenario_request(f->scenario, "a", TOKENS, 8);
    scenario_prefill(f->scenario, a, 3);
    scenario_decode(f->scenario, a, 3, 4);
    scenario_remove(f->folder, "name=rids", NULL);
    scenario_remove(f->folder, "name=req_pool", NULL);
    read_folder(f);
    assert_int_equal(f->side.sequence_count, 1);
    expect_sequence(&f->side, 0, "entry 0 plen 3 len 5 known 5: 0.0 0.1 0.2 1.0 2.0");
    assert_true(f->side.sequences[0].reused);
}

static void test_missing_passes_leave_a_hole(void **state)
{
    struct fixture *f = *state;
    unsigned a = scenario_request(f->scenario, "a", TOKENS, 12);
    scenario_prefill(f->scenario, a, 4);
    scenario_decode(f->scenario, a, 9, 10);
    read_folder(f);
    expect_sequence(&f->side, 0, "a plen 4 len 11 known 4: 0.0 0.1 0.2 0.3 - - - - - 1.0 2.0");
    assert_int_equal(f->side.sequences[0].hole_pass, 1);
    assert_int_equal(f->side.sequences[0].hole_first, 4);
    assert_int_equal(f->side.sequences[0].hole_last, 8);
}

static void test_drafts(void **state)
{
    struct fixture *f = *state;
    struct scenario *s = f->scenario;
    static const int64_t rejected[] = {9, 2, 0}; /* the right third is 6 */
    unsigned a = scenario_request(s, "a", TOKENS, 16);
    scenario_prefill(s, a, 5);
    scenario_pass(
        s, &(struct scenario_pass){.parts = {{.request = a, .position = 5, .rows = 3, .verify = true, .ids = rejected}},
                                   .part_count = 1});
    scenario_pass(s, &(struct scenario_pass){.parts = {{.request = a, .position = 7, .rows = 3, .verify = true}},
                                             .part_count = 1});
    read_folder(f);
    expect_sequence(&f->side, 0, "a plen 5 len 8 known 8: 0.0 0.1 0.2 0.3 0.4 1.0 1.1 2.0");
}

static void test_a_broken_chunk(void **state)
{
    struct fixture *f = *state;
    struct scenario *s = f->scenario;
    static const int64_t wrong[] = {0, 1, 2, 3};
    unsigned a = scenario_request(s, "a", TOKENS, 12);
    scenario_prefill(s, a, 4);
    scenario_pass(s, &(struct scenario_pass){
                         .parts = {{.request = a, .position = 4, .rows = 4}}, .part_count = 1, .positions = wrong});
    scenario_decode(s, a, 8, 8);
    read_folder(f);
    assert_int_equal(f->side.broken_pass_count, 1);
    assert_string_equal(f->side.passes[1].problem, "step 1 rank 0: seq_lens[0] = 8 needs positions 0 to 7 from row 0 "
                                                   "on, but the pass has only 4 rows");
    assert_int_equal(f->side.sequences[0].broken_pass, 1);
    assert_int_equal(f->side.broken_pass, SIDE_NOWHERE);
    expect_sequence(&f->side, 0, "a plen 4 len 9 known 4: 0.0 0.1 0.2 0.3 - - - - 2.0");
}

static void test_files_that_are_missing_or_damaged(void **state)
{
    struct fixture *f = *state;
    unsigned a = scenario_request(f->scenario, "a", TOKENS, 12);
    scenario_prefill(f->scenario, a, 4);
    scenario_decode(f->scenario, a, 4, 7);
    scenario_remove(f->folder, "step=1___", "name=positions___recompute_status=disabled.pt", NULL);
    scenario_remove(f->folder, "step=2___", "name=seq_lens", NULL);
    scenario_remove(f->folder, "step=3___", "name=rids", NULL);
    char *path = dump_files_name(3, 0, 0, "rids", -1);
    dump_files_write(f->folder, strrchr(path, '/') == NULL ? path : strrchr(path, '/') + 1, "junk", 4);
    read_folder(f);
    free(path);
    assert_string_equal(f->side.passes[1].problem, "step 1 rank 0: there is no positions among its 52 files");
    assert_non_null(strstr(f->side.passes[2].problem, "there is no seq_lens"));
    assert_non_null(strstr(f->side.passes[3].problem, "step 3 rank 0: rids: "));
    assert_int_equal(f->side.broken_pass, 2);
    expect_sequence(&f->side, 0, "a plen 4 len 8 known 4: 0.0 0.1 0.2 0.3 - - - 4.0");
}

/* Writes a core tensor of step 0 anew, under dump_index `index`. */
static void put(struct fixture *f, const char *name, long index, unsigned dimensions, size_t rows, size_t columns,
                const int64_t *values)
{
    char record[128], part[96];
    struct torch_file_value value = {.type = TORCH_FILE_INT64,
                                     .device = "cpu",
                                     .dimensions = dimensions,
                                     .size = {rows, columns},
                                     .stride = {dimensions == 1 ? 1 : columns, 1},
                                     .data = values};
    struct torch_file_meta meta = {
        .dump_index = index, .name = name, .layer_id = -1, .world_size = 1, .tokenizer_path = "MODEL"};
    struct text text;
    snprintf(part, sizeof part, "name=%s___recompute_status=disabled.pt", name);
    scenario_remove(f->folder, part, NULL);
    snprintf(record, sizeof record, "step=0___rank=0___dump_index=%ld___name=%s___recompute_status=disabled", index,
             name);
    text_init(&text);
    torch_file_build(&value, &meta, record, NULL, &text);
    char file[160];
    snprintf(file, sizeof file, "%s.pt", record);
    dump_files_write(f->folder, file, text.data, text.length);
    text_fini(&text);
}

static void test_positions_of_three_kinds_and_those_of_no_model(void **state)
{
    struct fixture *f = *state;
    static const int64_t three[] = {0, 1, 2, 3, 0, 0, 1, 1, 0, 1, 0, 1}, far[] = {0, 1, 2, INT64_C(1) << 40},
                         lengths[] = {3, (INT64_C(1) << 40) + 1}, slots[] = {1, 2};
    unsigned a = scenario_request(f->scenario, "a", TOKENS, 8);
    scenario_prefill(f->scenario, a, 4);
    put(f, "positions", 5, 2, 3, 4, three); /* mrope */
    read_folder(f);
    expect_sequence(&f->side, 0, "a plen 4 len 4 known 4: 0.0 0.1 0.2 0.3");
    side_fini(&f->side);
    put(f, "positions", 5, 1, 4, 1, far);
    put(f, "seq_lens", 4, 1, 2, 1, lengths);
    put(f, "req_pool_indices", 6, 1, 2, 1, slots);
    scenario_remove(f->folder, "name=rids", NULL);
    read_folder(f);
    assert_string_equal(f->side.passes[0].problem, "step 0 rank 0: positions[3] is 1099511627776, more than 16777216");
}

static void test_history_of_another_folder(void **state)
{
    struct fixture *f = *state;
    char *decode = dump_files_folder();
    unsigned a = scenario_request(f->scenario, "a", TOKENS, 8);
    scenario_prefill(f->scenario, a, 5);
    scenario_open(f->scenario, decode);
    scenario_counters(f->scenario, 0, 0);
    scenario_decode(f->scenario, a, 5, 6);
    const char *both[] = {f->folder, decode, NULL}, *alone[] = {decode, NULL};
    assert_int_equal(side_read(both, 1, NULL, NULL, &f->side, NULL), ERROR_NONE);
    assert_int_equal(f->side.sequence_count, 1);
    expect_sequence(&f->side, 0, "a plen 5 len 7 known 7: 0.0 0.1 0.2 0.3 0.4 1.0 2.0");
    side_fini(&f->side);
    assert_int_equal(side_read(alone, 1, NULL, NULL, &f->side, NULL), ERROR_NONE);
    expect_sequence(&f->side, 0, "a plen 6 len 7 known 0: - - - - - 0.0 1.0");
    dump_files_remove(decode);
    free(decode);
}

static void test_passes_of_a_draft_model(void **state)
{
    struct fixture *f = *state;
    struct scenario_model big = scenario_small();
    struct scenario *s = scenario_begin(&big), *draft = f->scenario;
    unsigned a = scenario_request(s, "a", TOKENS, 8), same = scenario_request(draft, "a", TOKENS, 8);
    scenario_open(s, f->folder);
    scenario_prefill(s, a, 4);
    for (unsigned position = 4; position < 7; position++) {
        scenario_counters(draft, scenario_step(s, 0), 1000 * position);
        scenario_decode(draft, same, position, position);
        scenario_counters(s, scenario_step(draft, 0), 1000 * position + 500);
        scenario_decode(s, a, position, position);
    }
    scenario_end(s);
    read_folder(f);
    assert_true(f->side.draft_passes);
    assert_int_equal(f->side.draft_pass_count, 3);
    assert_int_equal(f->side.sequence_count, 1);
    expect_sequence(&f->side, 0, "a plen 4 len 7 known 7: 0.0 0.1 0.2 0.3 2.0 4.0 6.0");
}

static void test_a_pass_that_lost_a_layer_is_no_draft(void **state)
{
    struct fixture *f = *state;
    struct scenario_model model = scenario_small();
    struct scenario *s = scenario_begin(&model);
    unsigned a = scenario_request(s, "a", TOKENS, 8);
    scenario_open(s, f->folder);
    scenario_prefill(s, a, 4);
    scenario_decode(s, a, 4, 5);
    scenario_end(s);
    assert_true(scenario_remove(f->folder, "step=1___", ".layers.2.", NULL) > 0);
    read_folder(f);
    assert_int_equal(f->side.draft_pass_count, 0);
    expect_sequence(&f->side, 0, "a plen 4 len 6 known 6: 0.0 0.1 0.2 0.3 1.0 2.0");
}

static void test_ranks_and_replicas(void **state)
{
    struct fixture *f = *state;
    struct scenario_model model = scenario_small();
    model.layers = 1;
    model.tp_size = 2;
    struct scenario *s = scenario_begin(&model);
    unsigned a = scenario_request(s, "a", TOKENS, 8);
    scenario_open(s, f->folder);
    scenario_prefill(s, a, 3);
    scenario_decode(s, a, 3, 3);
    scenario_end(s);
    read_folder(f);
    assert_int_equal(f->side.ranks, 2);
    assert_int_equal(f->side.tp_size, 2);
    assert_false(f->side.replicas);
    assert_int_equal(f->side.sequence_count, 2);
    expect_sequence(&f->side, 0, "a plen 3 len 4 known 4: 0.0 0.1 0.2 1.0");
    expect_sequence(&f->side, 1, "a rank 1 plen 3 len 4 known 4: 2.0 2.1 2.2 3.0");
    side_fini(&f->side);

    scenario_remove(f->folder, "step", NULL);
    model.replicas = true;
    s = scenario_begin(&model);
    a = scenario_request(s, "a", TOKENS, 8);
    unsigned b = scenario_request(s, "b", TOKENS, 8);
    scenario_open(s, f->folder);
    scenario_pass(s, &(struct scenario_pass){.parts = {{.request = a, .rows = 3}}, .part_count = 1, .rank = 0});
    scenario_pass(s, &(struct scenario_pass){.parts = {{.request = b, .rows = 2}}, .part_count = 1, .rank = 1});
    scenario_pass(s, &(struct scenario_pass){.part_count = 0, .rank = 1});
    scenario_end(s);
    read_folder(f);
    assert_true(f->side.replicas);
    assert_int_equal(f->side.sequence_count, 2);
    expect_sequence(&f->side, 1, "b rank 1 plen 2 len 2 known 2: 1.0 1.1");
    assert_null(f->side.passes[2].problem); /* idle */
    assert_int_equal(f->side.passes[2].segment_count, 0);
}

static void test_folders_that_are_no_dump(void **state)
{
    struct fixture *f = *state;
    struct error err = ERROR_INIT;
    const char *paths[] = {f->folder, NULL}, *nowhere[] = {"/nowhere/at/all", NULL};
    assert_int_equal(side_read(paths, 1, NULL, NULL, &f->side, &err), ERROR_INCOMPLETE);
    assert_non_null(strstr(err.message, "is no dump: the folder holds no dump file"));
    assert_int_equal(side_read(nowhere, 1, NULL, NULL, &f->side, &err), ERROR_NOT_FOUND);
    assert_null(f->side.passes);
}

int main(void)
{
#define T(function) cmocka_unit_test_setup_teardown(function, setup, teardown)
    const struct CMUnitTest tests[] = {
        T(test_prompt_and_decode),
        T(test_several_requests_mixed_chunks_padding),
        T(test_cached_prefix),
        T(test_cached_prefix_of_two_sequences_is_not_guessed),
        T(test_cached_prefix_of_the_same_request),
        T(test_retraction_and_a_rid_used_again),
        T(test_slots),
        T(test_without_slots_the_order_of_the_batch_is_all_there_is),
        T(test_missing_passes_leave_a_hole),
        T(test_drafts),
        T(test_a_broken_chunk),
        T(test_files_that_are_missing_or_damaged),
        T(test_positions_of_three_kinds_and_those_of_no_model),
        T(test_history_of_another_folder),
        T(test_passes_of_a_draft_model),
        T(test_a_pass_that_lost_a_layer_is_no_draft),
        T(test_ranks_and_replicas),
        T(test_folders_that_are_no_dump),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
