#include "audit_dump.h"
#include "base/memory.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <cmocka.h>

static const char *const two[] = {"own-1", "own-2", NULL};
static const char *const foreign[] = {"own-1", "HEALTH_CHECK_7", NULL};

static void complete(void **state)
{
    struct dump *dump = *state;
    list_add(&dump->expected.own_request_ids, "own-1");
    audit_dump_expect(dump, NULL);
    const struct audit *audit = &dump->audit;
    assert_int_equal(audit->ranks, 1);
    assert_int_equal(audit->steps, 4);
    assert_int_equal(audit->files, 4 * AUDIT_DUMP_FILES);
    assert_int_equal(audit->layers, AUDIT_DUMP_LAYERS);
    assert_int_equal(audit->pass_count, 4);
    assert_int_equal(audit->request_ids.count, 1);
    uint64_t bytes = 0;
    for (size_t i = 0; i < 4; i++) {
        const struct audit_pass *pass = &audit->passes[i];
        assert_int_equal(pass->step, 4 + i);
        assert_int_equal(pass->phase, i == 0 ? AUDIT_EXTEND : AUDIT_DECODE);
        assert_int_equal(pass->tokens, i == 0 ? 12 : 1);
        assert_int_equal(pass->requests, 1);
        assert_int_equal(pass->files, AUDIT_DUMP_FILES);
        assert_int_equal(pass->layers, AUDIT_DUMP_LAYERS);
        assert_int_equal(pass->layer_files, AUDIT_DUMP_LAYERS * DUMP_FILES_LAYER);
        assert_true(pass->has_request_ids);
        assert_int_equal(pass->foreign, 0);
        bytes += pass->bytes;
    }
    assert_int_equal(audit->bytes, bytes);
    dump->expected.known = false;
    audit_dump_expect(dump, NULL);
    dump->expected.known = true;
    dump->expected.exact = false;
    audit_dump_expect(dump, NULL);
}

static void phases(void **state)
{
    struct dump *dump = *state;
    static const char *const other[] = {"own-2", NULL};
    audit_dump_pass(dump, 0, 8, 1, other); /* one row, but seen for the first time: a prompt of one token */
    audit_dump_pass(dump, 0, 9, 2, two);   /* decode of both */
    audit_dump_pass(dump, 0, 10, 20, two); /* mixed chunk */
    audit_dump_expect(dump, NULL);
    assert_int_equal(dump->audit.passes[4].phase, AUDIT_EXTEND);
    assert_int_equal(dump->audit.passes[5].phase, AUDIT_DECODE);
    assert_int_equal(dump->audit.passes[6].phase, AUDIT_EXTEND);
}

static void index_gaps(void **state)
{
    struct dump *dump = *state;
    uint64_t last = dump->ranks[0].index_to;
    audit_dump_remove(dump, 4, 31, "non_intrusive__inputs.0", -1);
    audit_dump_remove(dump, 4, 35, "positions", -1);
    audit_dump_remove(dump, 4, 36, "req_pool_indices", -1);
    audit_dump_remove(dump, 7, last, "non_intrusive__output.next_token_logits", -1);
    audit_dump_expect(
        dump, "missing dump_index values (4): rank 0 dump_index 31, rank 0 dump_index 35-36, rank 0 dump_index 82;",
        NULL);
    dump->expected.exact = false;
    audit_dump_expect(dump, "missing dump_index values (4)", NULL);
    /* From the files alone only what lies between the first and the last can be missed. */
    dump->expected.known = false;
    audit_dump_expect(dump, "missing dump_index values (2): rank 0 dump_index 35-36;", "last step", NULL);
}

static void index_beyond(void **state)
{
    struct dump *dump = *state;
    dump->ranks[0].index_from++;
    dump->ranks[0].index_to--;
    audit_dump_expect(
        dump, "dump_index values that this dump did not count (2): step 4 rank 0 dump_index 31 inputs.0, step 7", NULL);
    dump->ranks[0].index_from--;
    dump->ranks[0].index_to += 3;
    audit_dump_expect(dump, "missing dump_index values (2): rank 0 dump_index 83-84;", NULL);
}

static void index_twice(void **state)
{
    struct dump *dump = *state;
    dump_files_tensor(dump->folder, 5, 0, 44, "non_intrusive__model.norm.output", -1, 8);
    audit_dump_expect(dump, "dump_index values that stand twice: step 5 rank 0 dump_index 44 model.norm.output;", NULL);
}

static void two_runs(void **state)
{
    struct dump *dump = *state;
    struct dump other = {.folder = dump->folder};
    audit_dump_pass(&other, 0, 0, 3, audit_dump_own);
    dump->expected.known = false;
    audit_dump_expect(dump, "steps without files (3): rank 0 step 1-3;",
                      "missing dump_index values (17): rank 0 dump_index 14-30", NULL);
    dump_files_tensor(dump->folder, 2, 0, 40, "non_intrusive__model.norm.output", -1, 8);
    audit_dump_run(dump);
    bool found = false;
    for (size_t i = 0; i < dump->audit.reasons.count; i++)
        found |= strncmp(dump->audit.reasons.items[i], "steps that go back", 18) == 0;
    assert_true(found);
}

static void steps_silent(void **state)
{
    struct dump *dump = *state;
    dump->ranks[0].step_to += 2;
    audit_dump_expect(dump, "steps that were counted and wrote no file (2): rank 0 step 8-9; a decode CUDA graph",
                      NULL);
    dump->ranks[0].step_to -= 3;
    dump->ranks[0].step_from--;
    audit_dump_expect(dump, "wrote no file: rank 0 step 3; a decode",
                      "steps that this dump did not count: rank 0 step 7;", NULL);
}

static void step_lost(void **state)
{
    struct dump *dump = *state;
    dump->ranks[0].index_to += AUDIT_DUMP_FILES;
    dump->ranks[0].step_to++;
    audit_dump_expect(dump, "steps without files: rank 0 step 8; files were deleted", "missing dump_index values",
                      NULL);
}

static void ranks_differ(void **state)
{
    struct dump *dump = *state;
    dump->expected.rank_count = 2;
    audit_dump_pass(dump, 1, 4, 12, audit_dump_own);
    audit_dump_pass(dump, 1, 5, 1, audit_dump_own);
    audit_dump_expect(dump, "ranks that ran a different number of steps: rank 0 ran 4, rank 1 ran 2;", NULL);
    dump->expected.known = false;
    audit_dump_expect(dump, "different number of steps: rank 0 has 4 steps (4-7), rank 1 has 2 (4-5);", NULL);
    dump->expected.known = true;
    dump->expected.rank_count = 1;
    audit_dump_expect(dump, "files of ranks that the server does not have: rank 1 of 1;", NULL);
}

static void ranks_missing(void **state)
{
    struct dump *dump = *state;
    dump->expected.rank_count = 2;
    dump->ranks[1].index_to = 90;
    dump->ranks[1].step_to = 8;
    audit_dump_expect(dump, "ranks without files: rank 1 wrote 60 files in 4 steps;", NULL);
    dump->expected.known = false;
    dump_files_tensor(dump->folder, 4, 2, 31, "input_ids", -1, 96);
    audit_dump_run(dump);
    assert_non_null(strstr(dump->audit.reasons.items[1], "ranks without files: rank 0 is there, but not rank 1;"));
}

/* Pipeline stages have layers and files of their own, and so numbers of their own. */
static void pipeline(void **state)
{
    struct dump *dump = *state;
    dump->expected.rank_count = 2;
    for (uint64_t step = 4; step < 8; step++) {
        const struct dump_files_pass pass = {
            .step = step, .rank = 1, .first_layer = AUDIT_DUMP_LAYERS, .layers = 5, .tokens = 1, .ids = audit_dump_own};
        dump_files_pass(dump->folder, &pass, &dump->ranks[1].index_to);
    }
    dump->ranks[1].step_to = 8;
    audit_dump_expect(dump, NULL);
    assert_int_equal(dump->audit.layers, AUDIT_DUMP_LAYERS + 5);
    assert_int_equal(dump->audit.steps, 4);
    assert_int_equal(dump->audit.ranks, 2);
    assert_int_equal(dump->audit.pass_count, 8);
    assert_int_equal(dump->audit.passes[4].phase, AUDIT_EXTEND); /* "seen before" is asked of the rank's own passes */
    assert_int_equal(dump->audit.passes[7].phase, AUDIT_DECODE);
    assert_int_equal(dump->audit.passes[7].layers, 5);
    dump->expected.known = false;
    audit_dump_expect(dump, NULL);
}

static void broken_files(void **state)
{
    struct dump *dump = *state;
    audit_dump_cut(dump, 5, 44, "non_intrusive__inputs.0", -1, 0);
    audit_dump_cut(dump, 5, 45, "non_intrusive__inputs.1", -1, 0);
    audit_dump_cut(dump, 6, 57, "non_intrusive__inputs.0", -1, 700);
    char *name = dump_files_name(6, 0, 58, "non_intrusive__inputs.1", -1);
    dump_files_write(dump->folder, name, "this is not an archive at all", 29);
    free(name);
    name = dump_files_name(6, 0, 60, "seq_lens", -1);
    dump_files_write(dump->folder, name, "\x80\x02\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19\x2e legacy", 22);
    free(name);
    audit_dump_expect(
        dump, "empty files (2): step 5 rank 0 dump_index 44 inputs.0, step 5 rank 0 dump_index 45 inputs.1; the disk",
        "files that are cut short: step 6 rank 0 dump_index 57 inputs.0 (cut short: 700 bytes",
        "files that are no torch.save archive (2): step 6 rank 0 dump_index 58 inputs.1 (not a torch.save archive: 29 "
        "bytes, the first are 74 68",
        NULL);
    assert_non_null(strstr(dump->audit.reasons.items[2], "legacy format"));
    assert_int_equal(dump->audit.passes[2].requests, 0);
}

static void many_empty_files(void **state)
{
    struct dump *dump = *state;
    for (unsigned i = 1; i <= 5; i++) {
        char *name = memory_format("non_intrusive__x.output.%u", i);
        char *file = dump_files_name(7, 0, ++dump->ranks[0].index_to, name, -1);
        dump_files_write(dump->folder, file, "", 0);
        free(file);
        free(name);
    }
    audit_dump_expect(
        dump,
        "empty files (5): step 7 rank 0 dump_index 83 x.output.1, step 7 rank 0 dump_index 84 x.output.2, step 7 "
        "rank 0 dump_index 85 x.output.3, ...; the disk was full",
        NULL);
}

static void damaged_files(void **state)
{
    struct dump *dump = *state;
    struct buffer bytes;
    buffer_init(&bytes);
    const struct dump_files_member members[] = {{"version", "3\n", 2}, {"data.pkl", "x", 1}};
    dump_files_archive(&bytes, "p", members, 1);
    char *name = dump_files_name(5, 0, 44, "non_intrusive__inputs.0", -1);
    dump_files_write(dump->folder, name, bytes.data, bytes.length);
    free(name);
    buffer_clear(&bytes);
    dump_files_archive(&bytes, "p", members, 2);
    name = dump_files_name(5, 0, 45, "non_intrusive__inputs.1", -1);
    dump_files_write(dump->folder, name, bytes.data, bytes.length);
    free(name);
    buffer_fini(&bytes);
    dump_files_tensor(dump->folder, 6, 0, 59, "input_ids", -1, 12);
    audit_dump_expect(
        dump, "files with a damaged archive: step 5 rank 0 dump_index 44 inputs.0 (an archive without data.pkl",
        "files without the tensor that they are named after: step 5 rank 0 dump_index 45 inputs.1 (",
        "input_ids or seq_lens of an odd size: step 6 rank 0 dump_index 59 input_ids (data/0 has 12 bytes", NULL);
    assert_int_equal(dump->audit.passes[2].tokens, 0);
    assert_int_equal(dump->audit.passes[2].phase, AUDIT_UNKNOWN);
}

static void irregular(void **state)
{
    struct dump *dump = *state;
    char *path = audit_dump_path(dump, 5, 44, "non_intrusive__inputs.0", -1);
    char *link_target = audit_dump_path(dump, 5, 45, "non_intrusive__inputs.1", -1);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(symlink(link_target, path), 0);
    free(path);
    free(link_target);
    path = audit_dump_path(dump, 5, 46, "input_ids", -1);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(mkfifo(path, 0600), 0);
    free(path);
    path = audit_dump_path(dump, 5, 47, "seq_lens", -1);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(mkdir(path, 0700), 0);
    free(path);
    audit_dump_expect(dump, "dump names that are links, folders or pipes (3): step 5 rank 0 dump_index 44 inputs.0 (",
                      NULL);
}

static void names(void **state)
{
    struct dump *dump = *state;
    static const char *const files[] = {"z.pt", "a.pt", "b\n\x1b[31m.pt", "d.pt", "e.pt", "notes.txt", ".hidden"};
    for (size_t i = 0; i < sizeof files / sizeof files[0]; i++)
        dump_files_write(dump->folder, files[i], "x", 1);
    audit_dump_expect(dump, "none of the dumper's (5): a.pt, b??[31m.pt, d.pt, ...; move them", NULL);
}

static void request_ids(void **state)
{
    struct dump *dump = *state;
    audit_dump_pass(dump, 0, 8, 2, foreign);
    audit_dump_pass(dump, 0, 9, 2, foreign);
    audit_dump_expect(dump, NULL); /* nobody asked */
    list_add(&dump->expected.own_request_ids, "own-1");
    audit_dump_expect(dump, "request ids of somebody else: HEALTH_CHECK_7; another client", NULL);
    assert_int_equal(dump->audit.passes[4].foreign, 1);
    assert_int_equal(dump->audit.passes[3].foreign, 0);
    assert_int_equal(dump->audit.foreign_request_ids.count, 1);
    assert_string_equal(dump->audit.foreign_request_ids.items[0], "HEALTH_CHECK_7");
    audit_dump_remove(dump, 5, 50, "rids", -1);
    audit_dump_expect(dump, "missing dump_index", "passes without request ids: step 5 rank 0;",
                      "request ids of somebody", NULL);
    dump_files_tensor(dump->folder, 5, 0, 50, "rids", -1, 8); /* a pickle that is no list of strings */
    audit_dump_expect(
        dump,
        "rids files whose request ids cannot be read: "
        "step=5___rank=0___dump_index=50___name=rids___recompute_status=disabled.pt: the value is no list of texts",
        "request ids of somebody", NULL);
    assert_false(dump->audit.passes[1].has_request_ids);
    assert_int_equal(dump->audit.passes[1].phase, AUDIT_UNKNOWN);
}

static void idle_pass(void **state)
{
    struct dump *dump = *state;
    static const char *const none[] = {NULL};
    list_add(&dump->expected.own_request_ids, "own-1");
    audit_dump_pass(dump, 0, 8, 0, none);
    char *path = audit_dump_path(dump, 8, 89, "rids", -1);
    assert_int_equal(unlink(path), 0);
    free(path);
    dump_files_tensor(dump->folder, 8, 0, 89, "non_intrusive__model.norm.output", -1, 0);
    audit_dump_expect(dump, NULL);
    assert_int_equal(dump->audit.passes[4].phase, AUDIT_UNKNOWN);
    dump_files_tensor(dump->folder, 8, 0, 85, "input_ids", -1, 8);
    audit_dump_expect(dump, "passes without request ids: step 8 rank 0;", NULL);
}

static void many_foreign_ids(void **state)
{
    struct dump *dump = *state;
    list_add(&dump->expected.own_request_ids, "own-1");
    for (unsigned i = 0; i < 40; i++) {
        char *id = memory_format("other-%u", i);
        const char *const ids[] = {id, NULL};
        audit_dump_pass(dump, 0, 8 + i, 2, ids);
        free(id);
    }
    audit_dump_expect(dump, "somebody else (40): other-0, other-1, other-2, ...;", NULL);
    assert_int_equal(dump->audit.foreign_request_ids.count, 16);
    assert_int_equal(dump->audit.request_ids.count, 41);
}

static void failed_saves(void **state)
{
    struct dump *dump = *state;
    dump->expected.failed_saves = 7;
    audit_dump_expect(dump, "could not save, by its log (7);", NULL);
}

static void silent_rank(void **state)
{
    struct dump *dump = *state;
    audit_dump_clear(dump);
    dump->ranks[0].index_to = dump->ranks[0].index_from;
    audit_dump_expect(
        dump, "passes ran and no file was written: rank 0 ran 4 steps and dump_index stayed at 30; the hooks", NULL);
    dump->ranks[0].step_to = dump->ranks[0].step_from;
    audit_dump_expect(dump, "the folder holds no dump file; send a request", NULL);
    dump->expected.known = false;
    audit_dump_expect(dump, "the folder holds no dump file;", NULL);
    char *path = memory_format("%s/dec", dump->folder);
    assert_int_equal(mkdir(path, 0700), 0);
    free(path);
    audit_dump_expect(dump, "holds no dump file: there are folders in it, such as 'dec';", NULL);
}

static void no_folder(void **state)
{
    struct dump *dump = *state;
    char *path = memory_format("%s/none", dump->folder);
    struct error err = ERROR_INIT;
    dump->audit.files = 77;
    assert_int_equal(audit_folder(path, NULL, NULL, &dump->audit, &err), ERROR_NOT_FOUND);
    assert_int_equal(dump->audit.files, 77);
    assert_int_equal(audit_folder(path, &dump->expected, NULL, &dump->audit, &err), ERROR_NONE);
    assert_false(dump->audit.complete);
    assert_non_null(strstr(dump->audit.reasons.items[0], "the folder does not exist"));
    free(path);
}

static void reset(void **state)
{
    struct dump *dump = *state;
    dump->ranks[0].index_to = 10;
    audit_dump_expect(dump, "counters that went back: rank 0 dump_index 30 to 10, step 4 to 8; somebody posted", NULL);
}

static void core_mode(void **state)
{
    struct dump *dump = *state;
    audit_dump_clear(dump);
    dump->ranks[0] = (struct audit_expected_rank){.index_to = 4, .step_to = 1};
    dump_files_tensor(dump->folder, 0, 0, 1, "input_ids", -1, 80);
    dump_files_tensor(dump->folder, 0, 0, 2, "seq_lens", -1, 8);
    dump_files_tensor(dump->folder, 0, 0, 3, "positions", 0, 80);
    dump_files_ids(dump->folder, 0, 0, 4, audit_dump_own);
    audit_dump_expect(dump,
                      "only core names, no module's inputs or outputs; core mode or a filter: start the server with "
                      "DUMPER_NON_INTRUSIVE_MODE=all",
                      NULL);
    assert_int_equal(dump->audit.passes[0].phase, AUDIT_EXTEND);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        AUDIT_DUMP_TEST(complete),
        AUDIT_DUMP_TEST(phases),
        AUDIT_DUMP_TEST(index_gaps),
        AUDIT_DUMP_TEST(index_beyond),
        AUDIT_DUMP_TEST(index_twice),
        AUDIT_DUMP_TEST(two_runs),
        AUDIT_DUMP_TEST(steps_silent),
        AUDIT_DUMP_TEST(step_lost),
        AUDIT_DUMP_TEST(ranks_differ),
        AUDIT_DUMP_TEST(ranks_missing),
        AUDIT_DUMP_TEST(pipeline),
        AUDIT_DUMP_TEST(broken_files),
        AUDIT_DUMP_TEST(many_empty_files),
        AUDIT_DUMP_TEST(damaged_files),
        AUDIT_DUMP_TEST(irregular),
        AUDIT_DUMP_TEST(names),
        AUDIT_DUMP_TEST(request_ids),
        AUDIT_DUMP_TEST(idle_pass),
        AUDIT_DUMP_TEST(many_foreign_ids),
        AUDIT_DUMP_TEST(failed_saves),
        AUDIT_DUMP_TEST(silent_rank),
        AUDIT_DUMP_TEST(no_folder),
        AUDIT_DUMP_TEST(reset),
        AUDIT_DUMP_TEST(core_mode),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
