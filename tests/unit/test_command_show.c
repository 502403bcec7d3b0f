/* kldumpctl show as a program's caller sees it. */
#include "base/memory.h"
#include "ctl/command.h"
#include "dump_files.h"
#include "json/json.h"
#include "sys/file.h"
#include "tests/standin/torch_file.h"

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

static const char first_name[] = "step=2___rank=1___dump_index=17___name=non_intrusive__model.norm.output___"
                                 "recompute_status=disabled.pt";

static void write_tensor(const char *folder, const char *name, enum torch_file_type type, const void *data)
{
    const struct torch_file_meta meta = {.step = 2,
                                         .rank = 1,
                                         .dump_index = 17,
                                         .name = "non_intrusive__model.norm.output",
                                         .layer_id = -1,
                                         .world_size = 2,
                                         .tokenizer_path = "a\x1b[31mb"};
    struct torch_file_value value = {
        .type = type, .device = "cuda:1", .dimensions = 2, .size = {2, 3}, .stride = {3, 1}, .data = data};
    struct text bytes;
    text_init(&bytes);
    torch_file_build(&value, &meta, "x", NULL, &bytes);
    dump_files_write(folder, name, bytes.data, bytes.length);
    text_fini(&bytes);
}

static int setup(void **state)
{
    static const float numbers[6] = {1, -2, 0.1F, 4.5F, 0, 5};
    char *folder = dump_files_folder();
    write_tensor(folder, first_name, TORCH_FILE_FLOAT32, numbers);
    *state = folder;
    return 0;
}

static int teardown(void **state)
{
    dump_files_remove(*state);
    free(*state);
    return 0;
}

/* Runs "show ARGUMENTS"; standard error goes nowhere. The output's text is the caller's. */
static int show(char **ret_text, const char *first, const char *second, const char *third)
{
    struct output out;
    output_init(&out, STDOUT_FILENO);
    char *argv[] = {(char *)"show", (char *)first, (char *)second, (char *)third, NULL};
    int argc = 0, saved = dup(STDERR_FILENO), saved_out = dup(STDOUT_FILENO);
    int nowhere = open("/dev/null", O_WRONLY | O_CLOEXEC);
    char path[] = "/tmp/kldump-show-XXXXXX";
    int fd = mkstemp(path);
    while (argv[argc] != NULL)
        argc++;
    dup2(nowhere, STDERR_FILENO);
    dup2(fd, STDOUT_FILENO);
    int status = command_show.run(&command_show, &out, argc, argv);
    output_flush(&out, NULL);
    dup2(saved, STDERR_FILENO);
    dup2(saved_out, STDOUT_FILENO);
    struct buffer text;
    buffer_init(&text);
    assert_int_equal(file_read(path, 1 << 20, &text, NULL), ERROR_NONE);
    *ret_text = buffer_steal(&text);
    buffer_fini(&text);
    close(saved);
    close(saved_out);
    close(nowhere);
    close(fd);
    unlink(path);
    output_fini(&out);
    return status;
}

static void has(const char *text, const char *part)
{
    if (strstr(text, part) == NULL)
        fail_msg("no '%s' in:\n%s", part, text);
}

static void a_file(void **state)
{
    char *path = memory_format("%s/%s", (char *)*state, first_name), *text;
    assert_int_equal(show(&text, "--verify", path, NULL), STATUS_DONE);
    has(text, "dtype       float32\nshape       [2, 3]\nstrides     [3, 1]\n");
    has(text, "storage     key 0 of cuda:1, 24 B at byte ");
    has(text, "statistics  min -2  max 5  mean 1.43333333");
    has(text, "0 NaN, 0 infinite, 1 zero of 6");
    has(text, "elements    1  -2  0.1  4.5  0  5\n");
    has(text, "checksums   fit");
    has(text, "  dump_index            17\n");
    has(text, "a?[31mb"); /* what a terminal would take for an order is made safe */
    assert_null(strchr(text, '\x1b'));
    assert_null(strstr(text, "note"));
    free(text);
    free(path);
}

static void a_name_that_was_changed(void **state)
{
    static const float numbers[6] = {0};
    char *text, *path = memory_format("%s/step=3___rank=1___dump_index=17___name=a___recompute_status=disabled.pt",
                                      (char *)*state);
    write_tensor(*state, strrchr(path, '/') + 1, TORCH_FILE_FLOAT32, numbers);
    assert_int_equal(show(&text, path, NULL, NULL), STATUS_DONE);
    has(text, "note        the file's name has another step than its meta");
    free(text);
    free(path);
}

static void as_json(void **state)
{
    char *path = memory_format("%s/%s", (char *)*state, first_name), *text;
    struct json *json;
    const char *word;
    uint64_t number;
    double mean;
    assert_int_equal(show(&text, "--json", path, NULL), STATUS_DONE);
    assert_int_equal(
        json_parse(text, strlen(text), (struct json_limits){1 << 20, JSON_DEPTH, JSON_ANY_VALUES}, &json, NULL),
        ERROR_NONE);
    json_get_string(json, "schema", &word, NULL);
    assert_string_equal(word, "kldump.show/1");
    json_get_string(json, "dtype", &word, NULL);
    assert_string_equal(word, "float32");
    json_get_u64(json, "shape.1", &number, NULL);
    assert_int_equal(number, 3);
    json_get_u64(json, "meta.sglang_parallel_info.tp_size", &number, NULL);
    assert_int_equal(number, 2);
    json_get_double(json, "statistics.mean", &mean, NULL);
    assert_true(mean > 1.4 && mean < 1.5);
    json_get_string(json, "first.2", &word, NULL);
    assert_string_equal(word, "0.1");
    json_free(json);
    free(text);
    free(path);
}

static void as_npy(void **state)
{
    static const uint16_t bits[6] = {0x3f80, 0x4000, 1, 2, 3, 4};
    write_tensor(*state, "b.pt", TORCH_FILE_BFLOAT16, bits);
    char *path = memory_format("%s/b.pt", (char *)*state), *to = memory_format("%s/b.npy", (char *)*state), *text;
    struct buffer bytes;
    buffer_init(&bytes);
    for (int turn = 0; turn < 2; turn++) { /* the second time it is there already */
        buffer_clear(&bytes);
        char *option = memory_format("--npy=%s", to);
        assert_int_equal(show(&text, option, path, NULL), STATUS_DONE);
        has(text, "b.npy: bfloat16 [2, 3], as its bits: <u2");
        free(text);
        free(option);
        assert_int_equal(file_read(to, 1000, &bytes, NULL), ERROR_NONE);
        assert_int_equal(bytes.length, 128 + 12);
        assert_memory_equal(bytes.data,
                            "\x93NUMPY\1\0\x76\0{'descr': '<u2', 'fortran_order': False, 'shape': (2, 3), }", 10 + 58);
        assert_int_equal(bytes.data[127], '\n');
        assert_memory_equal(bytes.data + 128, bits, 12);
    }
    assert_int_equal(show(&text, "--npy=/no/such/folder/x", path, NULL), STATUS_INTERNAL);
    free(text);
    assert_int_equal(show(&text, "--npy=-", path, "--json"), STATUS_USAGE);
    free(text);
    buffer_fini(&bytes);
    free(path);
    free(to);
}

static void a_folder(void **state)
{
    static const char *const ids[] = {"a", NULL};
    char *folder = dump_files_folder(), *text;
    static const float numbers[6] = {0};
    (void)state;
    for (uint64_t step = 0; step < 4; step++) {
        dump_files_ids(folder, step, 0, 2 * step + 1, ids);
        char *name = dump_files_name(step, 0, 2 * step + 2, "non_intrusive__model.norm.output", -1);
        write_tensor(folder, name, TORCH_FILE_FLOAT32, numbers);
        free(name);
    }
    assert_int_equal(show(&text, folder, NULL, NULL), STATUS_DONE);
    has(text, "NAME               DTYPE    SHAPE   STEPS  RANKS  FILES");
    has(text, "rids               texts    [1]     0-3    0          4");
    has(text, "model.norm.output  float32  [2, 3]  0-3    0          4");
    free(text);
    char *cut = dump_files_name(5, 0, 11, "rids", -1);
    dump_files_write(folder, cut, "PK\3\4", 4);
    assert_int_equal(show(&text, folder, NULL, NULL), STATUS_INCOMPLETE);
    has(text, "rids               cut short          5      0          1      4 B");
    free(text);
    assert_int_equal(show(&text, "--json", folder, NULL), STATUS_INCOMPLETE);
    has(text, "\"dump_index\":11,\"name\":\"rids\",\"bytes\":4,\"problem\":\"cut short\",\"error\":\"step=5");
    size_t lines = 0;
    for (const char *p = text; (p = strchr(p, '\n')) != NULL; p++)
        lines++;
    assert_int_equal(lines, 9);
    free(text);
    free(cut);
    dump_files_remove(folder);
    free(folder);
}

/* A list of more texts than are shown, and a list that contains itself. */
static void more_than_is_shown(void **state)
{
    static const char itself[] = "\x80\x02]q\0h\0a.";
    char *path = memory_format("%s/long.pt", (char *)*state), *text;
    struct buffer pickle, archive;
    buffer_init(&pickle);
    buffer_init(&archive);
    buffer_append(&pickle, "\x80\x02](", 4);
    for (int i = 0; i < 20000; i++)
        buffer_append(&pickle, "X\1\0\0\0a", 6);
    buffer_append(&pickle, "e.", 2);
    for (int turn = 0; turn < 2; turn++) {
        const struct dump_files_member member = {"data.pkl", turn == 0 ? pickle.data : itself,
                                                 turn == 0 ? pickle.length : sizeof itself - 1};
        buffer_clear(&archive);
        dump_files_archive(&archive, "x", &member, 1);
        dump_files_write(*state, "long.pt", archive.data, archive.length);
        assert_int_equal(show(&text, path, NULL, NULL), STATUS_DONE);
        has(text, turn == 0 ? "'a', 'a', ... (20000)]" : "[[[[[[[[[... (1)]]]]]]]]]");
        free(text);
        assert_int_equal(show(&text, "--json", path, NULL), STATUS_DONE);
        has(text, "\"truncated\":true");
        free(text);
    }
    buffer_fini(&pickle);
    buffer_fini(&archive);
    free(path);
}

/* A file of many tensors, as --debug-tensor-dump-output-folder writes them. */
static void tensors_by_name(void **state)
{
    static const char pickle[] = "\x80\x02}X\1\0\0\0actorch._utils\n_rebuild_tensor_v2\n((X\7\0\0\0storagectorch\n"
                                 "HalfStorage\nX\1\0\0\0"
                                 "0X\3\0\0\0cpuK\6tQK\0K\2K\3\x86K\3K\1\x86\x89]tRs.";
    const struct dump_files_member members[] = {{"data.pkl", pickle, sizeof pickle - 1},
                                                {"data/0", "0123456789ab", 12}};
    char *path = memory_format("%s/many.pt", (char *)*state), *text;
    struct buffer archive;
    buffer_init(&archive);
    dump_files_archive(&archive, "x", members, 2);
    dump_files_write(*state, "many.pt", archive.data, archive.length);
    assert_int_equal(show(&text, path, NULL, NULL), STATUS_DONE);
    has(text, "value       other, saved alone, without meta");
    has(text, "is          {'a': <float16 [2, 3]>}\n");
    free(text);
    buffer_fini(&archive);
    free(path);
}

static void failures(void **state)
{
    char *folder = *state, *text;
    static const struct {
        const char *name, *bytes;
        size_t length;
        int status;
    } files[] = {
        {"empty.pt", "", 0, STATUS_INCOMPLETE},
        {"cut.pt", "PK\3\4", 4, STATUS_INCOMPLETE},
        {"text.pt", "hello, this is a text", 21, STATUS_REFUSED_FILE},
        {"pickle.pt", "\x80\x02}q\0.", 6, STATUS_REFUSED_FILE},
    };
    for (size_t i = 0; i < sizeof files / sizeof files[0]; i++) {
        char *path = memory_format("%s/%s", folder, files[i].name);
        dump_files_write(folder, files[i].name, files[i].bytes, files[i].length);
        assert_int_equal(show(&text, path, NULL, NULL), files[i].status);
        assert_string_equal(text, "");
        free(text);
        free(path);
    }
    const struct dump_files_member evil[] = {{"data.pkl",
                                              "\x80\x02"
                                              "cposix\nsystem\nX\1\0\0\0a\x85R.",
                                              25}};
    struct buffer archive;
    buffer_init(&archive);
    dump_files_archive(&archive, "x", evil, 1);
    dump_files_write(folder, "evil.pt", archive.data, archive.length);
    buffer_fini(&archive);
    char *path = memory_format("%s/evil.pt", folder);
    assert_int_equal(show(&text, path, NULL, NULL), STATUS_REFUSED_FILE);
    free(text);
    free(path);
    assert_int_equal(show(&text, "/no/such/file.pt", NULL, NULL), STATUS_NO_RUN);
    free(text);
    assert_int_equal(show(&text, NULL, NULL, NULL), STATUS_USAGE);
    free(text);
    assert_int_equal(show(&text, folder, "--verify", NULL), STATUS_USAGE);
    free(text);
    char *nothing = dump_files_folder();
    assert_int_equal(show(&text, nothing, NULL, NULL), STATUS_INCOMPLETE);
    has(text, "no files of SGLang's dumper");
    free(text);
    dump_files_remove(nothing);
    free(nothing);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_file),          cmocka_unit_test(a_name_that_was_changed),
        cmocka_unit_test(as_json),         cmocka_unit_test(as_npy),
        cmocka_unit_test(a_folder),        cmocka_unit_test(more_than_is_shown),
        cmocka_unit_test(tensors_by_name), cmocka_unit_test(failures),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
