/* Which modules, layers and phases a dump covers, what a reader is told beside the verdict, and what times tell. */
#include "audit_dump.h"
#include "base/memory.h"
#include "sglang/request_id.h"

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <cmocka.h>

static const struct audit_module *module(const struct dump *dump, const char *name)
{
    for (size_t i = 0; i < dump->audit.module_count; i++)
        if (strcmp(dump->audit.modules[i].name, name) == 0)
            return &dump->audit.modules[i];
    fail_msg("no module '%s'", name);
    return NULL;
}

static bool noted(const struct dump *dump, const char *part)
{
    for (size_t i = 0; i < dump->audit.notes.count; i++)
        if (strstr(dump->audit.notes.items[i], part) != NULL)
            return true;
    return false;
}

/* The setup's four passes have two layers; nothing of the folder is left out of the sums. */
static void modules(void **state)
{
    struct dump *dump = *state;
    audit_dump_expect(dump, NULL);
    uint64_t files = 0, bytes = 0;
    for (size_t i = 0; i < dump->audit.module_count; i++) {
        files += dump->audit.modules[i].files;
        bytes += dump->audit.modules[i].bytes;
        if (i > 0)
            assert_true(dump->audit.modules[i - 1].bytes >= dump->audit.modules[i].bytes);
    }
    assert_int_equal(files, dump->audit.files);
    assert_int_equal(bytes, dump->audit.bytes);
    assert_int_equal(module(dump, "(root)")->extend_layers, 1);
    assert_int_equal(module(dump, "(core)")->files, 4 * 5);
    assert_int_equal(dump->audit.notes.count, 0);
}

/* A module that layers share bears the name of one of them: the tag has the layer. */
static void shared_module(void **state)
{
    struct dump *dump = *state;
    for (int layer = 0; layer < 2; layer++)
        dump_files_tensor(dump->folder, 7, 0, ++dump->ranks[0].index_to,
                          "non_intrusive__model.layers.0.self_attn.rotary_emb.output", layer, 8);
    audit_dump_expect(dump, NULL);
    const struct audit_module *rotary = module(dump, "model.layers.*.self_attn.rotary_emb");
    assert_int_equal(rotary->files, 2);
    assert_int_equal(rotary->extend_layers, 0);
    assert_int_equal(rotary->decode_layers, 2);
}

static void layers_of_one_phase(void **state)
{
    struct dump *dump = *state;
    for (unsigned layer = 5; layer < 8; layer++) {
        char *name = memory_format("non_intrusive__model.layers.%u.mlp.output", layer);
        dump_files_tensor(dump->folder, 7, 0, ++dump->ranks[0].index_to, name, (int)layer, 8);
        free(name);
    }
    audit_dump_run(dump);
    assert_true(noted(dump, "layers that only decode passes have: 5-7; the extend passes"));
    assert_false(noted(dump, "only extend"));
}

static void requests(void **state)
{
    static const char *const probe[] = {"HEALTH_CHECK_7", NULL};
    static const char *const made_up[] = {"0123456789abcdef0123456789abcdef", NULL};
    struct dump *dump = *state;
    audit_dump_pass(dump, 0, 8, 1, probe);
    audit_dump_pass(dump, 0, 9, 6, made_up);
    audit_dump_expect(dump, NULL);
    assert_true(noted(dump, "health probes among the requests: 1;"));
    assert_true(noted(dump, "requests that no client named: 1;"));
    assert_int_equal(request_id_kind("0123456789abcdef0123456789abcde"), REQUEST_ID_CLIENT);
    assert_int_equal(request_id_kind("0123456789abcdef0123456789abcdefa"), REQUEST_ID_CLIENT);
    assert_int_equal(request_id_kind("my HEALTH_CHECK"), REQUEST_ID_CLIENT);
}

/* Sets when a file was written last. */
static void set_time(const struct dump *dump, uint64_t step, uint64_t index, const char *name, time_t seconds)
{
    char *path = audit_dump_path(dump, step, index, name, -1);
    const struct timespec times[2] = {{.tv_sec = seconds}, {.tv_sec = seconds}};
    assert_int_equal(utimensat(AT_FDCWD, path, times, 0), 0);
    free(path);
}

static void older_files(void **state)
{
    struct dump *dump = *state;
    set_time(dump, 6, 57, "non_intrusive__inputs.0", 1000000);
    dump->expected.known = false;
    audit_dump_expect(dump, "files that are older than those written before them: first step 6 rank 0 dump_index 57",
                      NULL);
    /* What the writer counted says more than times do. */
    dump->expected.known = true;
    audit_dump_expect(dump, NULL);
}

/* A copy has the times of the copying, in the order of the folder: they say nothing. */
static void copied_files(void **state)
{
    struct dump *dump = *state;
    dump->expected.known = false;
    for (uint64_t step = 4; step < 8; step++) {
        set_time(dump, step, 31 + (step - 4) * AUDIT_DUMP_FILES, "non_intrusive__inputs.0", 1000000);
        set_time(dump, step, 33 + (step - 4) * AUDIT_DUMP_FILES, "input_ids", 1000000);
    }
    audit_dump_expect(dump, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        AUDIT_DUMP_TEST(modules),  AUDIT_DUMP_TEST(shared_module), AUDIT_DUMP_TEST(layers_of_one_phase),
        AUDIT_DUMP_TEST(requests), AUDIT_DUMP_TEST(older_files),   AUDIT_DUMP_TEST(copied_files),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
