/* Whole files of torch.save: as the stand-in writes them (byte for byte what torch writes, test_torch_file.c), and from
 * real servers. */
#include "pt/pt_file.h"
#include "dump_files.h"
#include "tests/standin/torch_file.h"

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <cmocka.h>

struct world {
    char *folder;
    int folder_fd;
    struct pt_file *file;
};

static int set_up(void **state)
{
    struct world *world = calloc(1, sizeof *world);
    world->folder = dump_files_folder();
    world->folder_fd = open(world->folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    world->file = pt_file_new();
    *state = world;
    return 0;
}

static int tear_down(void **state)
{
    struct world *world = *state;
    pt_file_free(world->file);
    close(world->folder_fd);
    dump_files_remove(world->folder);
    free(world->folder);
    free(world);
    return 0;
}

static const struct torch_file_meta usual = {.step = 3,
                                             .rank = 1,
                                             .dump_index = 70000,
                                             .name = "model.layers.2.mlp.output",
                                             .layer_id = 2,
                                             .world_size = 2,
                                             .tokenizer_path = "m-llama"};

static void write_value(const struct world *world, const char *name, const struct torch_file_value *value)
{
    struct text bytes;
    text_init(&bytes);
    torch_file_build(value, &usual, "x", NULL, &bytes);
    dump_files_write(world->folder, name, bytes.data, bytes.length);
    text_fini(&bytes);
}

static void open_it(const struct world *world, const char *name)
{
    struct error err = ERROR_INIT;
    if (pt_file_open(world->file, world->folder_fd, name, &err) != ERROR_NONE)
        fail_msg("%s", err.message);
    assert_int_equal(pt_file_problem(world->file), PT_FILE_FINE);
}

static void a_tensor_and_its_meta(void **state)
{
    struct world *world = *state;
    static const float numbers[6] = {1, -2, 3, 4.5F, 5, 6};
    write_value(world, "a.pt",
                &(struct torch_file_value){.type = TORCH_FILE_FLOAT32,
                                           .device = "cuda:0",
                                           .dimensions = 2,
                                           .size = {2, 3},
                                           .stride = {3, 1},
                                           .data = numbers});
    open_it(world, "a.pt");
    assert_int_equal(pt_file_kind(world->file), PT_FILE_TENSOR);
    assert_false(pt_file_bare(world->file));
    const struct pt_file_tensor *tensor = pt_file_tensor(world->file);
    assert_int_equal(tensor->dtype, PT_DTYPE_FLOAT32);
    assert_int_equal(tensor->rank, 2);
    assert_int_equal(tensor->size[0], 2);
    assert_int_equal(tensor->size[1], 3);
    assert_int_equal(tensor->stride[0], 3);
    assert_int_equal(tensor->elements, 6);
    assert_true(tensor->contiguous);
    assert_string_equal(tensor->location, "cuda:0");
    assert_string_equal(tensor->storage_key, "0");
    assert_int_equal(tensor->storage_bytes, sizeof numbers);
    assert_int_equal(tensor->storage_position % 64, 0);
    const void *elements;
    assert_int_equal(pt_file_elements(world->file, 0, 6, &elements, NULL), ERROR_NONE);
    assert_memory_equal(elements, numbers, sizeof numbers);
    assert_int_equal(pt_file_elements(world->file, 4, 2, &elements, NULL), ERROR_NONE);
    assert_memory_equal(elements, numbers + 4, 8);
    assert_int_equal(pt_file_elements(world->file, 5, 2, &elements, NULL), ERROR_TOO_LARGE);
    bool recorded = false;
    assert_int_equal(pt_file_verify(world->file, &recorded, NULL), ERROR_NONE);
    assert_true(recorded);

    int64_t number = 0;
    const char *text;
    assert_true(pt_file_meta_integer(world->file, "step", &number));
    assert_int_equal(number, 3);
    assert_true(pt_file_meta_integer(world->file, "dump_index", &number));
    assert_int_equal(number, 70000);
    assert_true(pt_file_meta_integer(world->file, "sglang_parallel_info.tp_size", &number));
    assert_int_equal(number, 2);
    assert_false(pt_file_meta_integer(world->file, "sglang_parallel_info.nothing", &number));
    assert_false(pt_file_meta_integer(world->file, "name", &number));
    assert_false(pt_file_meta_integer(world->file, "step.step", &number));
    assert_true(pt_file_meta_text(world->file, "name", &text));
    assert_string_equal(text, "model.layers.2.mlp.output");
    assert_false(pt_file_meta_text(world->file, "step", &text));
}

/* Steps of the second dimension, as of a row that was cut out of a fused tensor. */
static void a_view_is_gathered(void **state)
{
    struct world *world = *state;
    static const int64_t numbers[6] = {1, 2, 3, 4, 5, 6}, turned[6] = {1, 3, 5, 2, 4, 6};
    write_value(world, "a.pt",
                &(struct torch_file_value){.type = TORCH_FILE_INT64,
                                           .device = "cpu",
                                           .dimensions = 2,
                                           .size = {2, 3},
                                           .stride = {1, 2},
                                           .data = numbers});
    open_it(world, "a.pt");
    assert_false(pt_file_tensor(world->file)->contiguous);
    const void *elements;
    for (uint64_t first = 0; first < 6; first++)
        for (uint64_t count = 0; first + count <= 6; count++) {
            assert_int_equal(pt_file_elements(world->file, first, count, &elements, NULL), ERROR_NONE);
            assert_memory_equal(elements, turned + first, count * 8);
        }
}

static void request_ids(void **state)
{
    struct world *world = *state;
    static const char *const ids[] = {"dec-0", "", "\xc3\xa9"}, *const wrong[] = {"a", "\xff"};
    struct list list = {0};
    struct error err = ERROR_INIT;
    write_value(world, "a.pt", &(struct torch_file_value){.strings = ids, .string_count = 3});
    open_it(world, "a.pt");
    assert_int_equal(pt_file_kind(world->file), PT_FILE_TEXTS);
    assert_null(pt_file_tensor(world->file));
    assert_int_equal(pt_file_texts(world->file, &list, &err), ERROR_NONE);
    assert_int_equal(list.count, 3);
    for (size_t i = 0; i < 3; i++)
        assert_string_equal(list.items[i], ids[i]);
    list_fini(&list);
    write_value(world, "b.pt", &(struct torch_file_value){.strings = wrong, .string_count = 2});
    open_it(world, "b.pt");
    assert_int_equal(pt_file_texts(world->file, &list, &err), ERROR_FORMAT);
    assert_non_null(strstr(err.message, "at byte "));
    assert_int_equal(list.count, 0);
    write_value(world, "c.pt", &(struct torch_file_value){.strings = ids, .string_count = 1, .word = true});
    open_it(world, "c.pt");
    assert_int_equal(pt_file_kind(world->file), PT_FILE_TEXT);
}

static void refuse(const struct world *world, const char *name, enum error_code code, enum pt_file_problem problem)
{
    struct error err = ERROR_INIT;
    assert_int_equal(pt_file_open(world->file, world->folder_fd, name, &err), code);
    assert_int_equal(pt_file_problem(world->file), problem);
    assert_true(strncmp(err.message, name, strlen(name)) == 0);
    assert_null(pt_file_tensor(world->file));
}

static void what_is_no_regular_file(void **state)
{
    struct world *world = *state;
    assert_int_equal(symlinkat("link.pt", world->folder_fd, "link.pt"), 0);
    assert_int_equal(mkdirat(world->folder_fd, "folder.pt", 0700), 0);
    assert_int_equal(mkfifoat(world->folder_fd, "pipe.pt", 0600), 0);
    dump_files_write(world->folder, "empty.pt", "", 0);
    refuse(world, "link.pt", ERROR_FORMAT, PT_FILE_IRREGULAR);
    refuse(world, "folder.pt", ERROR_FORMAT, PT_FILE_IRREGULAR);
    refuse(world, "pipe.pt", ERROR_FORMAT, PT_FILE_IRREGULAR);
    refuse(world, "nothing.pt", ERROR_NOT_FOUND, PT_FILE_MISSING);
    refuse(world, "empty.pt", ERROR_FORMAT, PT_FILE_ARCHIVE);
    assert_int_equal(pt_file_zip_problem(world->file), PT_ZIP_EMPTY);
}

/* Files of a real server (SGLang 0.5.23, torch 2.13.0). */
static void real_files(void **state)
{
    struct world *world = *state;
    char path[512];
    const char *source = getenv("srcdir");
    snprintf(path, sizeof path, "%s/tests/data/standin", source != NULL ? source : ".");
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    struct error err = ERROR_INIT;
    struct list list = {0};
    assert_true(fd >= 0);
    assert_int_equal(pt_file_open(world->file, fd, "rids.pt", &err), ERROR_NONE);
    assert_int_equal(pt_file_texts(world->file, &list, &err), ERROR_NONE);
    assert_int_equal(list.count, 1);
    assert_string_equal(list.items[0], "dec-0");
    list_fini(&list);
    assert_int_equal(pt_file_open(world->file, fd, "seq_lens.pt", &err), ERROR_NONE);
    assert_int_equal(pt_file_tensor(world->file)->dtype, PT_DTYPE_INT64);
    assert_int_equal(pt_file_tensor(world->file)->elements, 1);
    close(fd);
}

/* ---- a file of more than 4 GiB, all of whose storage but a few bytes is a hole ---- */

#define LARGE_BYTES (UINT64_C(5) << 30)

static void number(struct buffer *out, uint64_t value, size_t width)
{
    for (size_t i = 0; i < width; i++)
        buffer_append(out, &(char){(char)(value >> (8 * i))}, 1);
}

static void local_header(struct buffer *out, const char *name)
{
    number(out, 0x04034b50, 4);
    number(out, 0x08080000, 6);
    number(out, 0, 16); /* sizes stay 0: the directory has them */
    number(out, strlen(name), 2);
    number(out, 0, 2);
    buffer_text(out, name);
}

/* With a zip64 field that holds what is beyond 32 bits: size twice, offset. */
static void directory_entry(struct buffer *out, const char *name, uint64_t size, uint64_t offset)
{
    bool large = size > UINT32_MAX, far = offset > UINT32_MAX;
    size_t field = (large ? 16U : 0U) + (far ? 8U : 0U);
    number(out, 0x02014b50, 4);
    number(out, UINT64_C(0x080800000000), 8);
    number(out, 0, 8);
    number(out, large ? UINT32_MAX : size, 4);
    number(out, large ? UINT32_MAX : size, 4);
    number(out, strlen(name), 2);
    number(out, field > 0 ? field + 4 : 0, 2);
    number(out, 0, 10);
    number(out, far ? UINT32_MAX : offset, 4);
    buffer_text(out, name);
    if (field > 0)
        number(out, 1 | field << 16, 4);
    if (large) {
        number(out, size, 8);
        number(out, size, 8);
    }
    if (far)
        number(out, offset, 8);
}

static void end_records(struct buffer *out, uint64_t directory, uint64_t size, uint64_t count)
{
    number(out, 0x06064b50, 4);
    number(out, 44, 8);
    number(out, 0, 12);
    number(out, count, 8);
    number(out, count, 8);
    number(out, size, 8);
    number(out, directory, 8);
    number(out, 0x07064b50, 4);
    number(out, 0, 4);
    number(out, directory + size, 8);
    number(out, 1, 4);
    number(out, 0x06054b50, 4);
    number(out, 0, 4);
    number(out, count, 2);
    number(out, count, 2);
    number(out, size, 4);
    number(out, UINT32_MAX, 4);
    number(out, 0, 2);
}

/* A bare tensor of bytes: sizes [3, 2], `stride` between the rows. */
static void large_pickle(struct buffer *out, uint64_t stride)
{
    static const char begin[] = "\x80\x02"
                                "ctorch._utils\n_rebuild_tensor_v2\n((X\7\0\0\0storagectorch\nByteStorage\nX\1\0\0\0"
                                "0X\3\0\0\0cpu\x8a\x08";
    buffer_append(out, begin, sizeof begin - 1);
    number(out, LARGE_BYTES, 8);
    buffer_append(out, "tQK\5K\3K\2\x86\x8a\x08", 11);
    number(out, stride, 8);
    buffer_append(out, "K\1\x86\x89", 4);
    buffer_text(out, "ccollections\nOrderedDict\n)RtR.");
}

/* Returns where the storage begins. */
static uint64_t write_large(const struct world *world, const char *name, uint64_t stride)
{
    struct buffer head, tail, pickle;
    buffer_init(&head);
    buffer_init(&tail);
    buffer_init(&pickle);
    large_pickle(&pickle, stride);
    local_header(&head, "x/data.pkl");
    buffer_append(&head, pickle.data, pickle.length);
    uint64_t storage_header = head.length;
    local_header(&head, "x/data/0");
    uint64_t storage = head.length, version_header = storage + LARGE_BYTES;
    local_header(&tail, "x/version");
    buffer_text(&tail, "3\n");
    uint64_t directory = version_header + tail.length, before = tail.length;
    directory_entry(&tail, "x/data.pkl", pickle.length, 0);
    directory_entry(&tail, "x/data/0", LARGE_BYTES, storage_header);
    directory_entry(&tail, "x/version", 2, version_header);
    end_records(&tail, directory, tail.length - before, 3);
    dump_files_write(world->folder, name, head.data, head.length);
    int fd = openat(world->folder_fd, name, O_WRONLY | O_CLOEXEC);
    assert_int_equal(pwrite(fd, tail.data, tail.length, (off_t)version_header), tail.length);
    for (uint64_t row = 0; row < 3; row++) /* elements 5, 6, and the same in the rows below */
        assert_int_equal(
            pwrite(fd, (char[]){(char)(2 * row + 1), (char)(2 * row + 2)}, 2, (off_t)(storage + 5 + row * stride)), 2);
    close(fd);
    buffer_fini(&head);
    buffer_fini(&tail);
    buffer_fini(&pickle);
    return storage;
}

static void beyond_4_gib(void **state)
{
    struct world *world = *state;
    static const uint64_t strides[] = {UINT64_C(2) << 30, 3, 20 << 20}; /* read in runs; held in memory, twice */
    for (size_t i = 0; i < sizeof strides / sizeof strides[0]; i++) {
        uint64_t storage = write_large(world, "large.pt", strides[i]);
        open_it(world, "large.pt");
        const struct pt_file_tensor *tensor = pt_file_tensor(world->file);
        const void *elements;
        struct error err = ERROR_INIT;
        assert_true(pt_file_bare(world->file));
        assert_int_equal(tensor->storage_bytes, LARGE_BYTES);
        assert_int_equal(tensor->storage_position, storage);
        assert_false(tensor->contiguous);
        if (pt_file_elements(world->file, 0, 6, &elements, &err) != ERROR_NONE)
            fail_msg("%s", err.message);
        assert_memory_equal(elements, "\1\2\3\4\5\6", 6);
        assert_int_equal(pt_file_elements(world->file, 3, 2, &elements, &err), ERROR_NONE);
        assert_memory_equal(elements, "\4\5", 2);
    }
}

/* What is read on demand is not there any more: an error, no signal, and no elements of something else. */
static void shrinks_while_it_is_read(void **state)
{
    struct world *world = *state;
    struct error err = ERROR_INIT;
    const void *elements = NULL;
    uint64_t storage = write_large(world, "large.pt", UINT64_C(2) << 30);
    open_it(world, "large.pt");
    int fd = openat(world->folder_fd, "large.pt", O_WRONLY | O_CLOEXEC);
    assert_int_equal(ftruncate(fd, (off_t)(storage + 5 + (UINT64_C(2) << 30) + 1)), 0);
    close(fd);
    assert_int_equal(pt_file_elements(world->file, 0, 4, &elements, &err), ERROR_FORMAT);
    assert_null(elements);
    assert_int_equal(pt_file_problem(world->file), PT_FILE_UNREADABLE);
    assert_memory_equal(err.message, "large.pt: cut short while it was read: no byte 2147483", 54);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_tensor_and_its_meta, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_view_is_gathered, set_up, tear_down),
        cmocka_unit_test_setup_teardown(request_ids, set_up, tear_down),
        cmocka_unit_test_setup_teardown(what_is_no_regular_file, set_up, tear_down),
        cmocka_unit_test_setup_teardown(beyond_4_gib, set_up, tear_down),
        cmocka_unit_test_setup_teardown(shrinks_while_it_is_read, set_up, tear_down),
        cmocka_unit_test_setup_teardown(real_files, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
