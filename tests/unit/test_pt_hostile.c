/* Damaged and hostile files: each is refused with its problem, the file's name and a byte position, or read as far as
 * it may be; from a file and from memory alike. */
#include "hostile_files.h"
#include "dump_files.h"
#include "pt/pt_summary.h"

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
    int fd;
    struct pt_file *file;
};

static int setup(void **state)
{
    struct world *world = calloc(1, sizeof *world);
    world->folder = dump_files_folder();
    world->fd = open(world->folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    world->file = pt_file_new();
    *state = world;
    return 0;
}

static int teardown(void **state)
{
    struct world *world = *state;
    pt_file_free(world->file);
    close(world->fd);
    dump_files_remove(world->folder);
    free(world->folder);
    free(world);
    return 0;
}

/* Everything that may be asked of an open file. */
static void use(struct pt_file *file)
{
    struct pt_summary summary;
    bool recorded;
    pt_file_verify(file, &recorded, NULL);
    const struct pt_file_tensor *tensor = pt_file_tensor(file);
    const void *elements;
    if (tensor == NULL || pt_summary_is_inflated(tensor))
        return;
    assert_int_equal(pt_summary_read(file, &summary, NULL), ERROR_NONE);
    for (uint64_t i = 0; i < tensor->elements; i++)
        assert_int_equal(pt_file_elements(file, i, 1, &elements, NULL), ERROR_NONE);
}

static void each_file(void **state)
{
    struct world *world = *state;
    const struct hostile_file *hostile;
    struct buffer bytes;
    buffer_init(&bytes);
    size_t count = 0;
    for (; (hostile = hostile_files_make(count, &bytes)) != NULL; count++) {
        struct error err = ERROR_INIT, memory_err = ERROR_INIT;
        dump_files_write(world->folder, hostile->id, bytes.data, bytes.length);
        char *exact = malloc(bytes.length); /* a read beyond it is found out */
        memcpy(exact, bytes.data, bytes.length);
        enum error_code memory = pt_file_open_memory(world->file, exact, bytes.length, hostile->id, &memory_err);
        if (memory == ERROR_NONE)
            use(world->file);
        enum error_code code = pt_file_open(world->file, world->fd, hostile->id, &err);
        free(exact);
        if (pt_file_problem(world->file) != hostile->problem || code != memory ||
            (code == ERROR_NONE) != (hostile->problem == PT_FILE_FINE))
            fail_msg("%s: problem %d, %d expected: %s", hostile->id, pt_file_problem(world->file), hostile->problem,
                     err.message);
        assert_string_equal(err.message, memory_err.message);
        if (strstr(err.message, hostile->part) == NULL)
            fail_msg("%s: no '%s' in '%s'", hostile->id, hostile->part, err.message);
        if (code == ERROR_NONE)
            use(world->file);
        else
            assert_memory_equal(err.message, hostile->id, strlen(hostile->id));
        buffer_clear(&bytes);
    }
    assert_true(count > 60);
    buffer_fini(&bytes);
}

static void find(const char *id, struct buffer *bytes)
{
    const struct hostile_file *hostile;
    for (size_t i = 0; (hostile = hostile_files_make(i, bytes)) != NULL && strcmp(hostile->id, id) != 0; i++)
        buffer_clear(bytes);
    assert_non_null(hostile);
}

/* A checksum of what is not looked at on opening. */
static void checksum_of_storage(void **state)
{
    struct world *world = *state;
    struct buffer bytes;
    struct error err = ERROR_INIT;
    bool recorded = false;
    buffer_init(&bytes);
    find("Z7-storage", &bytes);
    assert_int_equal(pt_file_open_memory(world->file, bytes.data, bytes.length, "a.pt", NULL), ERROR_NONE);
    assert_int_equal(pt_file_verify(world->file, &recorded, &err), ERROR_FORMAT);
    assert_non_null(strstr(err.message, "a.pt: member data/0 at byte "));
    assert_false(recorded);
    buffer_clear(&bytes);
    find("Z7-right", &bytes);
    assert_int_equal(pt_file_open_memory(world->file, bytes.data, bytes.length, "a.pt", NULL), ERROR_NONE);
    assert_int_equal(pt_file_verify(world->file, &recorded, &err), ERROR_NONE);
    assert_true(recorded);
    buffer_clear(&bytes);
    find("T0-fine", &bytes);
    assert_int_equal(pt_file_open_memory(world->file, bytes.data, bytes.length, "a.pt", NULL), ERROR_NONE);
    assert_int_equal(pt_file_verify(world->file, &recorded, &err), ERROR_NONE);
    assert_false(recorded);
    buffer_fini(&bytes);
}

/* Z1: cut at every byte; and every bit turned, which is read or refused. */
static void every_byte(void **state)
{
    struct world *world = *state;
    struct buffer bytes;
    buffer_init(&bytes);
    find("Z7-right", &bytes);
    for (size_t length = 0; length < bytes.length; length++) {
        char *exact = malloc(length + 1);
        memcpy(exact + 1, bytes.data, length);
        assert_int_equal(pt_file_open_memory(world->file, exact + 1, length, "a.pt", NULL), ERROR_FORMAT);
        assert_int_equal(pt_file_problem(world->file), PT_FILE_ARCHIVE);
        assert_int_equal(pt_file_zip_problem(world->file), length == 0 ? PT_ZIP_EMPTY : PT_ZIP_TRUNCATED);
        free(exact);
    }
    for (size_t i = 0; i < bytes.length; i++)
        for (unsigned bit = 0; bit < 8; bit++) {
            bytes.data[i] = (char)(bytes.data[i] ^ 1 << bit);
            if (pt_file_open_memory(world->file, bytes.data, bytes.length, "a.pt", NULL) == ERROR_NONE)
                use(world->file);
            bytes.data[i] = (char)(bytes.data[i] ^ 1 << bit);
        }
    buffer_fini(&bytes);
}

/* Behind the checksum of the pickle lies nothing that one bit could do: the same without checksums. */
static void every_bit_of_the_pickle(void **state)
{
    struct world *world = *state;
    struct buffer bytes;
    buffer_init(&bytes);
    find("T0-fine", &bytes);
    for (size_t i = 0; i < bytes.length; i++)
        for (unsigned bit = 0; bit < 8; bit++) {
            bytes.data[i] = (char)(bytes.data[i] ^ 1 << bit);
            if (pt_file_open_memory(world->file, bytes.data, bytes.length, "a.pt", NULL) == ERROR_NONE)
                use(world->file);
            bytes.data[i] = (char)(bytes.data[i] ^ 1 << bit);
        }
    buffer_fini(&bytes);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_file),
        cmocka_unit_test(checksum_of_storage),
        cmocka_unit_test(every_byte),
        cmocka_unit_test(every_bit_of_the_pickle),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
