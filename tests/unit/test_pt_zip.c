#include "dump_files.h"
#include "base/memory.h"
#include "pt/pt_zip.h"

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include <cmocka.h>

enum { END = 22, LOCATOR = 20, END64 = 56 };

static const char *const ids[] = {"dec-0", "dec-1"};

/* data.pkl, byteorder, data/0 of 24 bytes, version. */
static void make(struct buffer *out)
{
    static const char data[24] = {1, 2, 3};
    struct buffer pickle;
    buffer_init(&pickle);
    dump_files_pickle(&pickle, ids, 2);
    const struct dump_files_member members[] = {{"data.pkl", pickle.data, pickle.length},
                                                {"byteorder", "little", 6},
                                                {"data/0", data, 24},
                                                {"version", "3\n", 2}};
    dump_files_archive(out, "step=0___name=x.y", members, 4);
    buffer_fini(&pickle);
}

static uint64_t get(const struct buffer *bytes, size_t offset, size_t width)
{
    uint64_t value = 0;
    for (size_t i = width; i-- > 0;)
        value = value << 8 | (unsigned char)bytes->data[offset + i];
    return value;
}

static void put(struct buffer *bytes, size_t offset, uint64_t value, size_t width)
{
    for (size_t i = 0; i < width; i++)
        bytes->data[offset + i] = (char)(value >> (8 * i));
}

static size_t directory_of(const struct buffer *bytes)
{
    return (size_t)get(bytes, bytes->length - END + 16, 4);
}

/* Offset of the directory's entry number `n`. */
static size_t entry(const struct buffer *bytes, int n)
{
    size_t offset = directory_of(bytes);
    while (n-- > 0)
        offset += 46 + (size_t)get(bytes, offset + 28, 2) + (size_t)get(bytes, offset + 30, 2);
    return offset;
}

/* Reads the bytes from memory and from a file; both must say the same. Gives the problem, and the message. */
static enum pt_zip_problem read_both(const struct buffer *bytes, char *message, size_t message_size)
{
    struct pt_zip zip, of_file;
    struct error err = ERROR_INIT, file_err = ERROR_INIT;
    pt_zip_init(&zip);
    pt_zip_init(&of_file);
    int fd = memfd_create("zip", MFD_CLOEXEC);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, bytes->data, bytes->length), bytes->length);
    enum error_code code = pt_zip_read_memory(&zip, bytes->data, bytes->length, &err);
    enum error_code file_code = pt_zip_read_file(&of_file, fd, bytes->length, &file_err);
    assert_int_equal(code, file_code);
    assert_string_equal(err.message, file_err.message);
    assert_int_equal(zip.problem, of_file.problem);
    assert_int_equal(zip.member_count, of_file.member_count);
    assert_int_equal(code == ERROR_NONE, zip.problem == PT_ZIP_FINE);
    for (size_t i = 0; i < zip.member_count; i++) {
        const uint8_t *payload;
        struct buffer of_fd;
        buffer_init(&of_fd);
        code = pt_zip_payload_memory(&zip, &zip.members[i], &payload, NULL);
        assert_int_equal(code, pt_zip_payload_file(&of_file, fd, &of_file.members[i], 1 << 20, &of_fd, NULL));
        if (code == ERROR_NONE) {
            assert_int_equal(of_fd.length, zip.members[i].size);
            assert_memory_equal(of_fd.data, payload, of_fd.length);
        }
        buffer_fini(&of_fd);
    }
    enum pt_zip_problem problem = zip.problem;
    if (message != NULL)
        snprintf(message, message_size, "%s", err.message);
    close(fd);
    pt_zip_fini(&zip);
    pt_zip_fini(&of_file);
    return problem;
}

static void expect(const struct buffer *bytes, enum pt_zip_problem problem, const char *part)
{
    char message[800];
    assert_int_equal(read_both(bytes, message, sizeof message), problem);
    if (strstr(message, part) == NULL)
        fail_msg("'%s' has no '%s'", message, part);
}

static void whole(void **state)
{
    (void)state;
    struct buffer bytes;
    buffer_init(&bytes);
    make(&bytes);
    struct pt_zip zip;
    pt_zip_init(&zip);
    assert_int_equal(pt_zip_read_memory(&zip, bytes.data, bytes.length, NULL), ERROR_NONE);
    assert_int_equal(zip.member_count, 4);
    assert_int_equal(zip.prefix_length, strlen("step=0___name=x.y"));
    const struct pt_zip_member *data = pt_zip_find(&zip, "data/0");
    assert_non_null(data);
    assert_int_equal(data->size, 24);
    const uint8_t *payload;
    assert_int_equal(pt_zip_payload_memory(&zip, data, &payload, NULL), ERROR_NONE);
    assert_memory_equal(payload, "\1\2\3", 3);
    assert_null(pt_zip_find(&zip, "data/1"));
    assert_null(pt_zip_find(&zip, "data/"));
    assert_null(pt_zip_find(&zip, "data/00"));
    struct buffer out;
    buffer_init(&out);
    assert_int_equal(pt_zip_payload_file(&zip, -1, data, 23, &out, NULL), ERROR_TOO_LARGE);
    buffer_fini(&out);
    pt_zip_fini(&zip);
    assert_int_equal(read_both(&bytes, NULL, 0), PT_ZIP_FINE);
    buffer_fini(&bytes);
}

static void kinds(void **state)
{
    (void)state;
    static const char legacy[] = "\x80\x02\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19\x2e rest of the stream";
    static const struct {
        const char *bytes;
        size_t length;
        enum pt_zip_problem problem;
        const char *part;
    } cases[] = {
        {"", 0, PT_ZIP_EMPTY, "0 bytes"},
        {"PK", 2, PT_ZIP_TRUNCATED, "2 bytes"},
        {"PK\3\4 and nothing else at all, really", 36, PT_ZIP_TRUNCATED, "36 bytes"},
        {legacy, sizeof legacy, PT_ZIP_LEGACY, "legacy"},
        {"\x80\x04K\x01.", 5, PT_ZIP_FOREIGN, "bare pickle"},
        {"hello, this is text and no archive", 34, PT_ZIP_FOREIGN, "68 65 6c 6c 6f 2c 20 74"},
        {"\0\0\0", 3, PT_ZIP_FOREIGN, "3 bytes, the first are 00 00 00"},
        {"PK\5\6\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0", 22, PT_ZIP_DAMAGED, "without members"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct buffer bytes;
        buffer_init(&bytes);
        buffer_append(&bytes, cases[i].bytes, cases[i].length);
        expect(&bytes, cases[i].problem, cases[i].part);
        buffer_fini(&bytes);
    }
}

/* One field is overwritten; `from` says what the offset counts from. */
enum from { ENTRY, ENTRY_2, END_RECORD, END64_RECORD, LOCATOR_RECORD };
static void hostile(void **state)
{
    (void)state;
    static const struct {
        enum from from;
        size_t offset, width;
        uint64_t value;
        const char *part;
    } cases[] = {
        {END_RECORD, 4, 2, 1, "several parts"},
        {END_RECORD, 8, 2, 3, "several parts"},
        {END_RECORD, 10, 2, 65535, "several parts"},
        {END_RECORD, 12, 4, 7, "do not agree"},
        {END_RECORD, 16, 4, 1u << 31, "do not agree"},
        {LOCATOR_RECORD, 4, 4, 1, "several parts"},
        {LOCATOR_RECORD, 8, 8, UINT64_MAX, "no end record fits"},
        {LOCATOR_RECORD, 8, 8, 3, "long"}, /* as seen from the file: outside the window */
        {LOCATOR_RECORD, 16, 4, 9, "several parts"},
        {END64_RECORD, 0, 1, 'X', "no zip64 end record"},
        {END64_RECORD, 4, 8, UINT64_MAX, "says"},
        {END64_RECORD, 16, 4, 1, "several parts"},
        {END64_RECORD, 24, 8, UINT64_MAX, "several parts"},
        {END64_RECORD, 40, 8, UINT64_MAX, "do not agree"},
        {END64_RECORD, 48, 8, UINT64_MAX, "do not agree"},
        {ENTRY, 0, 1, 'X', "no directory entry"},
        {ENTRY, 8, 2, 1, "encrypted"},
        {ENTRY, 10, 2, 8, "compressed"},
        {ENTRY, 20, 4, 5, "two different sizes"},
        {ENTRY, 20, 8, UINT64_C(0x0000ffff0000ffff), "reaches past"},
        {ENTRY, 28, 2, 65535, "past the directory's end"},
        {ENTRY, 30, 2, 60000, "past the directory's end"},
        {ENTRY, 32, 2, 1, "no directory entry"}, /* a comment shifts the next */
        {ENTRY, 34, 2, 1, "part of another file"},
        {ENTRY, 42, 4, 0xfffffff0, "reaches past"},
        {ENTRY_2, 42, 4, 0, "reaches past"}, /* data/0 on top of data.pkl */
        {ENTRY, 46, 1, 0, "torch does not write"},
        {ENTRY, 46, 1, '/', "torch does not write"},
        {ENTRY, 46, 1, '\\', "torch does not write"},
        {ENTRY_2, 46, 1, 'S', "does not begin like"},
        {ENTRY_2, 46 + 18, 2, '.' | '.' << 8, NULL},  /* "..ta/0" is a name like any other */
        {ENTRY_2, 42, 4, 0xffffffff, "reaches past"}, /* zip64 value without the field */
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct buffer bytes;
        buffer_init(&bytes);
        make(&bytes);
        size_t bases[] = {entry(&bytes, 0), entry(&bytes, 2), bytes.length - END, bytes.length - END - LOCATOR - END64,
                          bytes.length - END - LOCATOR};
        put(&bytes, bases[cases[i].from] + cases[i].offset, cases[i].value, cases[i].width);
        if (cases[i].part == NULL)
            assert_int_equal(read_both(&bytes, NULL, 0), PT_ZIP_FINE);
        else if (strcmp(cases[i].part, "long") == 0)
            assert_int_equal(read_both(&bytes, NULL, 0), PT_ZIP_DAMAGED);
        else
            expect(&bytes, PT_ZIP_DAMAGED, cases[i].part);
        buffer_fini(&bytes);
    }
}

static void counts_without_memory(void **state)
{
    (void)state;
    struct buffer bytes;
    buffer_init(&bytes);
    make(&bytes);
    size_t end = bytes.length - END, end64 = end - LOCATOR - END64;
    put(&bytes, end + 8, 0xffff, 2);
    put(&bytes, end + 10, 0xffff, 2);
    put(&bytes, end64 + 24, UINT64_C(1) << 63, 8);
    put(&bytes, end64 + 32, UINT64_C(1) << 63, 8);
    expect(&bytes, PT_ZIP_DAMAGED, "9223372036854775808 members");
    put(&bytes, end64 + 24, 60000, 8);
    put(&bytes, end64 + 32, 60000, 8);
    expect(&bytes, PT_ZIP_DAMAGED, "60000 members");
    /* Saturated values whose truth is in the zip64 record are what a large file has. */
    put(&bytes, end64 + 24, 4, 8);
    put(&bytes, end64 + 32, 4, 8);
    put(&bytes, end + 12, 0xffffffff, 4);
    put(&bytes, end + 16, 0xffffffff, 4);
    assert_int_equal(read_both(&bytes, NULL, 0), PT_ZIP_FINE);
    put(&bytes, end64 + 40, get(&bytes, end64 + 40, 8) - 1, 8);
    expect(&bytes, PT_ZIP_DAMAGED, "does not end at byte");
    buffer_fini(&bytes);
}

/* A local header that is not the one of the directory shows when the payload is asked for. */
static void local_headers(void **state)
{
    (void)state;
    struct buffer bytes;
    buffer_init(&bytes);
    make(&bytes);
    static const size_t places[] = {0, 26, 28, 30}; /* signature, lengths, name */
    for (size_t i = 0; i < sizeof places / sizeof places[0]; i++) {
        struct pt_zip zip;
        struct error err = ERROR_INIT;
        const uint8_t *payload = NULL;
        pt_zip_init(&zip);
        bytes.data[places[i] + 1] = (char)(bytes.data[places[i] + 1] ^ 0x40);
        assert_int_equal(pt_zip_read_memory(&zip, bytes.data, bytes.length, NULL), ERROR_NONE);
        assert_int_equal(pt_zip_payload_memory(&zip, pt_zip_find(&zip, "data.pkl"), &payload, &err), ERROR_FORMAT);
        assert_non_null(strstr(err.message, "at byte 0"));
        assert_null(payload);
        assert_int_equal(pt_zip_payload_memory(&zip, pt_zip_find(&zip, "data/0"), &payload, NULL), ERROR_NONE);
        bytes.data[places[i] + 1] = (char)(bytes.data[places[i] + 1] ^ 0x40);
        pt_zip_fini(&zip);
    }
    buffer_fini(&bytes);
}

static void duplicate_names(void **state)
{
    (void)state;
    struct buffer bytes;
    buffer_init(&bytes);
    const struct dump_files_member members[] = {{"data/0", "x", 1}, {"data/1", "y", 1}, {"data/0", "z", 1}};
    dump_files_archive(&bytes, "p", members, 3);
    expect(&bytes, PT_ZIP_DAMAGED, "the same name");
    buffer_clear(&bytes);
    const struct dump_files_member up[] = {{"../x", "x", 1}};
    dump_files_archive(&bytes, "p", up, 1);
    expect(&bytes, PT_ZIP_DAMAGED, "torch does not write");
    buffer_clear(&bytes);
    char *name = memory_new(PT_ZIP_NAME_MAX + 1);
    memset(name, 'n', PT_ZIP_NAME_MAX);
    const struct dump_files_member longest[] = {{name, "x", 1}};
    dump_files_archive(&bytes, "p", longest, 1);
    expect(&bytes, PT_ZIP_DAMAGED, "torch does not write");
    free(name);
    buffer_fini(&bytes);
}

static void comments(void **state)
{
    (void)state;
    struct buffer bytes;
    buffer_init(&bytes);
    make(&bytes);
    put(&bytes, bytes.length - 2, 65535, 2);
    size_t length = bytes.length;
    for (int i = 0; i < 65535; i++)
        buffer_append(&bytes, "c", 1);
    assert_int_equal(read_both(&bytes, NULL, 0), PT_ZIP_FINE);
    put(&bytes, length - 2, 65534, 2);
    expect(&bytes, PT_ZIP_TRUNCATED, "no end record");
    buffer_fini(&bytes);
}

/* A directory longer than the first read. */
static void many_members(void **state)
{
    (void)state;
    enum { COUNT = 3000 };
    struct dump_files_member *members = memory_new(COUNT * sizeof *members);
    for (size_t i = 0; i < COUNT; i++)
        members[i] = (struct dump_files_member){memory_format("data/%zu", i), "12345678", i % 9};
    struct buffer bytes;
    buffer_init(&bytes);
    dump_files_archive(&bytes, "p", members, COUNT);
    assert_int_equal(read_both(&bytes, NULL, 0), PT_ZIP_FINE);
    for (size_t i = 0; i < COUNT; i++)
        free((char *)members[i].name);
    free(members);
    buffer_fini(&bytes);
}

/* Cut at every byte, and every byte changed in several ways: never a crash, and never "fine" for a cut file. */
static void every_byte(void **state)
{
    (void)state;
    struct buffer bytes;
    buffer_init(&bytes);
    make(&bytes);
    size_t full = bytes.length;
    for (size_t length = 0; length < full; length++) {
        struct buffer cut;
        buffer_init(&cut);
        buffer_append(&cut, bytes.data, length);
        assert_int_equal(read_both(&cut, NULL, 0), length == 0 ? PT_ZIP_EMPTY : PT_ZIP_TRUNCATED);
        buffer_fini(&cut);
    }
    static const unsigned char changes[] = {0x01, 0x80, 0xff, 0x5a};
    for (size_t i = 0; i < full; i++)
        for (size_t k = 0; k < sizeof changes; k++) {
            bytes.data[i] = (char)(bytes.data[i] ^ changes[k]);
            read_both(&bytes, NULL, 0);
            bytes.data[i] = (char)(bytes.data[i] ^ changes[k]);
        }
    buffer_fini(&bytes);
}

static void shrinks_while_read(void **state)
{
    (void)state;
    struct buffer bytes;
    buffer_init(&bytes);
    make(&bytes);
    int fd = memfd_create("zip", MFD_CLOEXEC);
    assert_int_equal(write(fd, bytes.data, bytes.length), bytes.length);
    struct pt_zip zip;
    struct error err = ERROR_INIT;
    pt_zip_init(&zip);
    assert_int_equal(pt_zip_read_file(&zip, fd, bytes.length + 1, &err), ERROR_FORMAT);
    assert_int_equal(zip.problem, PT_ZIP_TRUNCATED);
    close(fd);
    assert_int_equal(pt_zip_read_file(&zip, fd, bytes.length, &err), ERROR_SYSTEM);
    assert_int_equal(zip.problem, PT_ZIP_UNREADABLE);
    pt_zip_fini(&zip);
    buffer_fini(&bytes);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(whole),         cmocka_unit_test(kinds),
        cmocka_unit_test(hostile),       cmocka_unit_test(counts_without_memory),
        cmocka_unit_test(local_headers), cmocka_unit_test(duplicate_names),
        cmocka_unit_test(comments),      cmocka_unit_test(many_members),
        cmocka_unit_test(every_byte),    cmocka_unit_test(shrinks_while_read),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
