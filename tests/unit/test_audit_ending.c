/* The audit of killed runs, of what SGLang itself wrote, and the threads of the audit. */
#include "audit_dump.h"
#include "base/memory.h"

#include <dirent.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <cmocka.h>

static int truncateat(int folder, const char *name)
{
    int fd = openat(folder, name, O_WRONLY | O_TRUNC | O_CLOEXEC);
    return fd < 0 ? -1 : close(fd);
}

/* A killed server: the pass after the last counter that was read may be a part. */
static void killed(void **state)
{
    struct dump *dump = *state;
    dump->expected.exact = false;
    struct audit_expected_rank read = dump->ranks[0];
    audit_dump_pass(dump, 0, 8, 1, audit_dump_own);
    dump->ranks[0] = read;
    audit_dump_expect(dump, NULL); /* whole, as its files are those of earlier decode steps */
    audit_dump_usable(dump, "steps 4-8");
    audit_dump_remove(dump, 8, 95, "non_intrusive__output.next_token_logits", -1);
    audit_dump_expect(
        dump,
        "ranks whose last step is not whole: rank 0 step 8 has 12 files, unlike every earlier decode step; "
        "usable: steps 4-7; the server ended inside a pass",
        NULL);
    audit_dump_cut(dump, 8, 94, "non_intrusive__model.output", -1, 100);
    audit_dump_expect(dump, "whose last step is not whole: rank 0 step 8", NULL); /* the torn file is part of that */
    audit_dump_cut(dump, 7, 81, "non_intrusive__model.output", -1, 100);
    audit_dump_expect(dump, "cut short: step 7", "last step", NULL);
    audit_dump_usable(dump, "steps 4-6");
}

static void killed_torn(void **state)
{
    struct dump *dump = *state;
    dump->expected.exact = false;
    struct audit_expected_rank read = dump->ranks[0];
    audit_dump_pass(dump, 0, 8, 1, audit_dump_own);
    dump->ranks[0] = read;
    audit_dump_cut(dump, 8, 95, "non_intrusive__output.next_token_logits", -1, 100);
    audit_dump_expect(dump, "last step is not whole: rank 0 step 8 has 13 files", NULL);
}

/* Whichever file of the last step is missing. */
static void killed_any_file(void **state)
{
    struct dump *dump = *state;
    dump->expected.exact = false;
    struct audit_expected_rank read = dump->ranks[0];
    audit_dump_pass(dump, 0, 8, 1, audit_dump_own);
    dump->ranks[0] = read;
    audit_dump_run(dump);
    assert_true(dump->audit.complete);
    struct list names = {0};
    DIR *folder = opendir(dump->folder);
    for (struct dirent *entry; (entry = readdir(folder)) != NULL;)
        if (strncmp(entry->d_name, "step=8___", 9) == 0)
            list_add(&names, entry->d_name);
    closedir(folder);
    assert_int_equal(names.count, AUDIT_DUMP_FILES);
    for (size_t i = 0; i < names.count; i++) {
        char *from = memory_format("%s/%s", dump->folder, names.items[i]);
        char *to = memory_format("%s.away", dump->folder);
        assert_int_equal(rename(from, to), 0);
        audit_dump_run(dump);
        assert_non_null(strstr(dump->audit.reasons.items[dump->audit.reasons.count - 1], "last step is not whole"));
        assert_int_equal(rename(to, from), 0);
        free(from);
        free(to);
    }
    list_fini(&names);
}

/* The last step is a prefill with the files of earlier decode steps, but not those of an earlier prefill. */
static void killed_other_phase(void **state)
{
    struct dump *dump = *state;
    static const char *const other[] = {"own-2", NULL};
    dump->expected.exact = false;
    audit_dump_clear(dump);
    dump->ranks[0].index_to = 30;
    const struct dump_files_pass pass = {.step = 4, .layers = 1, .tokens = 5, .ids = other};
    dump_files_pass(dump->folder, &pass, &dump->ranks[0].index_to);
    audit_dump_pass(dump, 0, 5, 1, other);
    struct audit_expected_rank read = dump->ranks[0];
    audit_dump_pass(dump, 0, 6, 7, other);
    dump->ranks[0] = read;
    audit_dump_expect(dump, "unlike every earlier extend step; usable: steps 4-5;", NULL);
    audit_dump_usable(dump, "steps 4-5");
}

static void killed_between_ranks(void **state)
{
    struct dump *dump = *state;
    dump->expected.exact = false;
    dump->expected.rank_count = 2;
    audit_dump_pass(dump, 1, 4, 12, audit_dump_own);
    for (uint64_t step = 5; step < 8; step++)
        audit_dump_pass(dump, 1, step, 1, audit_dump_own);
    audit_dump_expect(dump, NULL);
    struct audit_expected_rank read = dump->ranks[1];
    audit_dump_pass(dump, 1, 8, 1, audit_dump_own);
    dump->ranks[1] = read;
    audit_dump_expect(
        dump, "last step is not whole: rank 0 ends with step 7, rank 1 with step 8; usable: steps 4-7; the server",
        NULL);
    audit_dump_usable(dump, "steps 4-7");
}

/* The rank that came further is torn there: said of both, and the steps that are left are said once. */
static void killed_between_ranks_and_torn(void **state)
{
    struct dump *dump = *state;
    dump->expected.exact = false;
    dump->expected.rank_count = 2;
    audit_dump_pass(dump, 1, 4, 12, audit_dump_own);
    for (uint64_t step = 5; step < 8; step++)
        audit_dump_pass(dump, 1, step, 1, audit_dump_own);
    struct audit_expected_rank read = dump->ranks[1];
    dump_files_tensor(dump->folder, 8, 1, read.index_to + 1, "non_intrusive__inputs.0", -1, 8);
    audit_dump_expect(
        dump,
        "last step is not whole (2): rank 1 step 8 has 1 file, unlike every earlier unknown step; usable: "
        "steps 4-7, rank 0 ends with step 7, rank 1 with step 8; the server",
        NULL);
}

/* Nothing was read after the dump was switched on: what is there is held against itself. */
static void killed_before_a_counter_was_read(void **state)
{
    struct dump *dump = *state;
    dump->expected.exact = false;
    dump->ranks[0].index_to = dump->ranks[0].index_from;
    dump->ranks[0].step_to = dump->ranks[0].step_from;
    audit_dump_expect(dump, NULL);
    audit_dump_usable(dump, "steps 4-7");
    audit_dump_remove(dump, 7, 82, "non_intrusive__output.next_token_logits", -1);
    audit_dump_expect(dump, "last step is not whole: rank 0 step 7 has 12 files", NULL);
    audit_dump_usable(dump, "steps 4-6");
}

/* A new kind of step at the very end: it counts below the step that was read last, and not at it. */
static void killed_new_kind(void **state)
{
    struct dump *dump = *state;
    static const char *const other[] = {"own-2", NULL};
    dump->expected.exact = false;
    audit_dump_clear(dump);
    dump->ranks[0].index_to = 30;
    audit_dump_pass(dump, 0, 4, 12, audit_dump_own);
    const struct dump_files_pass pass = {.step = 5, .layers = 1, .tokens = 5, .ids = other};
    dump_files_pass(dump->folder, &pass, &dump->ranks[0].index_to);
    dump->ranks[0].step_to = 6;
    audit_dump_expect(dump, NULL);
    audit_dump_usable(dump, "steps 4-5");
    dump->ranks[0].step_to = 5;
    audit_dump_expect(dump, "rank 0 step 5 has 11 files, unlike every earlier extend step; usable: step 4;", NULL);
    dump->ranks[0].step_to = 6;
    audit_dump_remove(dump, 5, 54, "non_intrusive__output.next_token_logits", -1);
    audit_dump_expect(dump, "missing dump_index values: rank 0 dump_index 54;", NULL); /* it ended, and lost a file */
    audit_dump_usable(dump, "step 4");
}

static void killed_without_files(void **state)
{
    struct dump *dump = *state;
    dump->expected.exact = false;
    audit_dump_clear(dump);
    audit_dump_expect(dump, "ranks without files: rank 0 wrote 52 files in 4 steps", NULL);
    audit_dump_usable(dump, "none");
    dump->ranks[0].index_to = dump->ranks[0].index_from;
    dump->ranks[0].step_to = dump->ranks[0].step_from;
    audit_dump_expect(dump, "holds no dump file", NULL);
    assert_int_equal(rmdir(dump->folder), 0);
    audit_dump_expect(dump, "the folder does not exist", NULL);
    audit_dump_usable(dump, "none");
    assert_int_equal(mkdir(dump->folder, 0700), 0);
}

/* A full disk: empty files by the hundred, no gap, and lines in the log. The last step is one of them. */
static void full_disk(void **state)
{
    struct dump *dump = *state;
    for (uint64_t step = 8; step < 40; step++)
        audit_dump_pass(dump, 0, step, 1, audit_dump_own);
    DIR *folder = opendir(dump->folder);
    for (struct dirent *entry; (entry = readdir(folder)) != NULL;)
        if (strncmp(entry->d_name, "step=1", 6) == 0 || strncmp(entry->d_name, "step=39", 7) == 0)
            assert_int_equal(truncateat(dirfd(folder), entry->d_name), 0);
    closedir(folder);
    dump->expected.failed_saves = 11 * AUDIT_DUMP_FILES;
    audit_dump_expect(dump, "empty files (143): step 10", "could not save, by its log (143); see the lines", NULL);
    audit_dump_usable(dump, "steps 4-9, 20-38");
    dump->expected.exact = false; /* killed at the floor inside the pass that is not counted yet */
    dump->ranks[0].step_to = 39;
    dump->ranks[0].index_to -= AUDIT_DUMP_FILES;
    audit_dump_expect(dump, "empty files (130): step 10", "by its log (143)", "rank 0 step 39 has 13 files", NULL);
    audit_dump_usable(dump, "steps 4-9, 20-38");
}

/* A file that is lost between two steps may be of either. */
static void usable_around_a_gap(void **state)
{
    struct dump *dump = *state;
    audit_dump_remove(dump, 5, 44, "non_intrusive__inputs.0", -1);
    audit_dump_expect(dump, "missing dump_index values: rank 0 dump_index 44;", NULL);
    audit_dump_usable(dump, "steps 6-7");
    audit_dump_remove(dump, 6, 61, "positions", -1);
    audit_dump_expect(dump, "missing dump_index values (2): rank 0 dump_index 44, rank 0 dump_index 61;", NULL);
    audit_dump_usable(dump, "step 7");
}

static void first_step_only(void **state)
{
    struct dump *dump = *state;
    audit_dump_clear(dump);
    dump->ranks[0].index_to = 30;
    audit_dump_pass(dump, 0, 4, 12, audit_dump_own);
    dump->expected.exact = false;
    audit_dump_expect(dump, NULL); /* the counters say that it ended */
    dump->ranks[0].step_to = 4;
    dump->ranks[0].index_to = 30;
    audit_dump_expect(dump, "unlike every earlier extend step; no step is usable;", NULL);
    dump->expected.known = false;
    audit_dump_expect(dump, NULL); /* nothing to hold it against */
}

static void cut_without_counters(void **state)
{
    struct dump *dump = *state;
    dump->expected.known = false;
    audit_dump_remove(dump, 7, 82, "non_intrusive__output.next_token_logits", -1);
    audit_dump_expect(dump, "last step is not whole: rank 0 step 7 has 12 files", NULL);
    audit_dump_remove(dump, 7, 81, "non_intrusive__model.output", -1);
    audit_dump_expect(dump, "last step is not whole: rank 0 step 7 has 11 files", NULL);
    /* Another end than the beginning of an earlier step: another kind of pass, not a cut one. */
    dump_files_tensor(dump->folder, 7, 0, 81, "non_intrusive__output.hidden_states", -1, 8);
    audit_dump_expect(dump, NULL);
}

static uint64_t fingerprint(const struct audit *audit)
{
    uint64_t value = audit->files * 31 + audit->bytes * 7;
    for (size_t i = 0; i < audit->pass_count; i++)
        value = value * 1000003 + audit->passes[i].bytes + audit->passes[i].tokens + audit->passes[i].phase;
    for (size_t i = 0; i < audit->reasons.count; i++)
        for (const char *p = audit->reasons.items[i]; *p != '\0'; p++)
            value = value * 1000003 + (unsigned char)*p;
    return value;
}

struct progress {
    unsigned calls;
    uint64_t done, total;
};

static void note(void *context, uint64_t done, uint64_t total)
{
    struct progress *progress = context;
    assert_true(done >= progress->done && done <= total);
    progress->calls++;
    progress->done = done;
    progress->total = total;
}

static void threads(void **state)
{
    struct dump *dump = *state;
    for (uint64_t step = 8; step < 60; step++)
        audit_dump_pass(dump, 0, step, step % 2 == 0 ? 9 : 1, audit_dump_own);
    audit_dump_cut(dump, 5, 44, "non_intrusive__inputs.0", -1, 0);
    audit_dump_cut(dump, 50, 631, "input_ids", -1, 300);
    uint64_t first = 0;
    for (unsigned count = 1; count <= 9; count += 4) {
        struct progress progress = {0};
        const struct audit_folder_options options = {.threads = count, .progress = note, .context = &progress};
        assert_int_equal(audit_folder(dump->folder, &dump->expected, &options, &dump->audit, NULL), ERROR_NONE);
        assert_int_equal(dump->audit.reasons.count, 2);
        assert_int_equal(progress.done, 56 * AUDIT_DUMP_FILES);
        assert_int_equal(progress.total, 56 * AUDIT_DUMP_FILES);
        assert_true(count > 1 || progress.calls > 3);
        first = first == 0 ? fingerprint(&dump->audit) : first;
        assert_int_equal(fingerprint(&dump->audit), first);
    }
}

/* Numbers that a hostile name may claim cost nothing. */
static void huge_numbers(void **state)
{
    struct dump *dump = *state;
    dump_files_tensor(dump->folder, INT64_MAX, 0, INT64_MAX, "non_intrusive__a.output", -1, 8);
    dump_files_tensor(dump->folder, INT64_MAX, UINT32_MAX, INT64_MAX, "non_intrusive__a.output", -1, 8);
    dump_files_tensor(dump->folder, 0, 0, 0, "non_intrusive__a.output", -1, 8);
    audit_dump_run(dump);
    dump->expected.known = false;
    audit_dump_run(dump);
    dump->expected.known = true;
    dump->expected.exact = false;
    audit_dump_run(dump);
    assert_false(dump->audit.complete);
}

/* ---- what SGLang wrote ---- */

static void unpack(struct dump *dump, const char *name)
{
    const char *source = getenv("srcdir");
    char *command =
        memory_format("tar -xzf '%s/tests/data/%s.tar.gz' -C '%s'", source != NULL ? source : ".", name, dump->folder);
    assert_int_equal(system(command), 0);
    free(command);
}

static void real_pass(void **state)
{
    struct dump *dump = *state;
    unpack(dump, "one-pass");
    char *path = memory_format("%s/one-pass", dump->folder);
    struct audit_expected_rank rank = {.index_from = 123, .index_to = 246, .step_from = 1, .step_to = 2};
    struct audit_expected expected = {.known = true, .exact = true, .rank_count = 1, .ranks = &rank};
    list_add(&expected.own_request_ids, "dec-0");
    assert_int_equal(audit_folder(path, &expected, NULL, &dump->audit, NULL), ERROR_NONE);
    assert_true(dump->audit.complete);
    const struct audit_pass *pass = &dump->audit.passes[0];
    assert_int_equal(pass->files, 123);
    assert_int_equal(pass->tokens, 1);
    assert_int_equal(pass->requests, 1);
    assert_int_equal(pass->layers, 3);
    assert_int_equal(pass->layer_files, 100);
    assert_string_equal(dump->audit.request_ids.items[0], "dec-0");
    list_fini(&expected.own_request_ids);
    free(path);
}

static void real_graph(void **state)
{
    struct dump *dump = *state;
    unpack(dump, "graph-replay");
    char *path = memory_format("%s/graph-replay/dec", dump->folder);
    char *folder = dump->folder;
    dump->folder = path;
    dump->ranks[0] = (struct audit_expected_rank){.index_from = 0, .index_to = 13, .step_from = 0, .step_to = 7};
    list_add(&dump->expected.own_request_ids, "rid-dec");
    audit_dump_expect(
        dump, "no layer and no request ids: step 0 rank 0 with 13 files; a prefill CUDA graph was replayed",
        "steps that were counted and wrote no file (6): rank 0 step 1-6; a decode CUDA graph was replayed", NULL);
    assert_int_equal(dump->audit.passes[0].tokens, 16);
    assert_int_equal(dump->audit.passes[0].phase, AUDIT_UNKNOWN);
    dump->folder = folder;
    free(path);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        AUDIT_DUMP_TEST(killed),
        AUDIT_DUMP_TEST(killed_torn),
        AUDIT_DUMP_TEST(killed_any_file),
        AUDIT_DUMP_TEST(killed_other_phase),
        AUDIT_DUMP_TEST(killed_between_ranks),
        AUDIT_DUMP_TEST(killed_between_ranks_and_torn),
        AUDIT_DUMP_TEST(killed_before_a_counter_was_read),
        AUDIT_DUMP_TEST(killed_new_kind),
        AUDIT_DUMP_TEST(killed_without_files),
        AUDIT_DUMP_TEST(full_disk),
        AUDIT_DUMP_TEST(usable_around_a_gap),
        AUDIT_DUMP_TEST(first_step_only),
        AUDIT_DUMP_TEST(cut_without_counters),
        AUDIT_DUMP_TEST(threads),
        AUDIT_DUMP_TEST(huge_numbers),
        AUDIT_DUMP_TEST(real_pass),
        AUDIT_DUMP_TEST(real_graph),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
