/* The writer threads: nothing that a target does holds a producer up, and what is lost is counted. */
#include "sys/file.h"
#include "sys/sink.h"

#include "base/memory.h"

#include <fcntl.h>
#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

static char folder[64];

static char *in_folder(const char *name)
{
    return memory_format("%s/%s", folder, name);
}

static int setup(void **state)
{
    (void)state;
    strcpy(folder, "/tmp/kldump-test-XXXXXX");
    return mkdtemp(folder) ? 0 : -1;
}

static int teardown(void **state)
{
    (void)state;
    umount2(folder, MNT_DETACH); /* of the test of a full disk, when it failed half way */
    return file_remove_all(folder) ? 0 : -1;
}

static uint64_t now_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

static void read_whole(const char *path, struct buffer *buffer)
{
    buffer_clear(buffer);
    assert_int_equal(file_read(path, 100000000, buffer, NULL), ERROR_NONE);
}

static void test_log(void **state)
{
    (void)state;
    struct sink *sink;
    int target;
    char *path = in_folder("server.log");
    struct buffer text;
    struct sink_log range;
    buffer_init(&text);
    assert_int_equal(sink_new(0, 0600, &sink, NULL), ERROR_NONE);
    assert_int_equal(sink_add_log(sink, path, 0, &target, NULL), ERROR_NONE);
    assert_true(sink_append(sink, target, "one\n", 4));
    assert_true(sink_append(sink, target, "two\n", 4));
    assert_true(sink_flush(sink, 3000));
    read_whole(path, &text);
    assert_string_equal(text.data, "one\ntwo\n");
    sink_get_log(sink, target, &range);
    assert_true(range.first == 0 && range.current == 0 && range.end == 8);
    assert_int_equal(unlink(path), 0); /* by somebody else */
    assert_true(sink_append(sink, target, "three\n", 6));
    assert_true(sink_flush(sink, 3000));
    read_whole(path, &text);
    assert_string_equal(text.data, "three\n");
    assert_true(sink_free(sink, 3000));
    buffer_fini(&text);
    free(path);
}

/* The last half of the cap is always there, never more than the cap, every byte in its place. */
static void test_log_rotation(void **state)
{
    (void)state;
    enum { CAP = 4000, LINES = 2000 };
    struct sink *sink;
    int target;
    char *path = in_folder("server.log"), *older = in_folder("server.log.1"), line[32];
    struct buffer text, all;
    struct sink_log range;
    struct stat status;
    buffer_init(&text);
    buffer_init(&all);
    assert_int_equal(file_replace(older, "of an earlier run", 17, 0600, FILE_NO_SYNC, NULL), ERROR_NONE);
    assert_int_equal(sink_new(0, 0600, &sink, NULL), ERROR_NONE);
    assert_int_equal(sink_add_log(sink, path, CAP, &target, NULL), ERROR_NONE);
    for (int i = 0; i < LINES; i++) {
        int length = snprintf(line, sizeof line, "line %d\n", i);
        buffer_append(&all, line, (size_t)length);
        assert_true(sink_append(sink, target, line, (size_t)length));
        if (i % 97 == 0) {
            assert_true(sink_flush(sink, 3000));
            uint64_t total = stat(path, &status) == 0 ? (uint64_t)status.st_size : 0;
            total += stat(older, &status) == 0 ? (uint64_t)status.st_size : 0;
            assert_true(total <= CAP);
            assert_true(total >= CAP / 2 || total == all.length);
            sink_get_log(sink, target, &range);
            assert_int_equal(range.end, all.length);
            assert_int_equal(range.end - range.first, total);
            read_whole(path, &text);
            assert_memory_equal(text.data, all.data + range.current, text.length);
            if (range.first < range.current) {
                read_whole(older, &text);
                assert_int_equal(text.length, range.current - range.first);
                assert_memory_equal(text.data, all.data + range.first, text.length);
            }
        }
    }
    assert_true(range.first > 0);
    assert_true(sink_free(sink, 3000));
    buffer_fini(&text);
    buffer_fini(&all);
    free(path);
    free(older);
}

static void test_log_without_folder(void **state)
{
    (void)state;
    struct sink *sink;
    struct sink_state counts;
    int target;
    char *below = in_folder("gone"), *path = in_folder("gone/server.log");
    assert_int_equal(sink_new(0, 0600, &sink, NULL), ERROR_NONE);
    assert_int_equal(sink_add_log(sink, path, 0, &target, NULL), ERROR_NONE);
    assert_true(sink_append(sink, target, "lost", 4));
    assert_true(sink_flush(sink, 3000));
    sink_get(sink, &counts);
    assert_int_equal(counts.failed_bytes, 4);
    assert_int_equal(counts.failures, 1);
    assert_false(counts.full);
    assert_non_null(strstr(counts.problem, "gone/server.log"));
    assert_int_equal(mkdir(below, 0700), 0); /* and it goes on as soon as it can */
    assert_true(sink_append(sink, target, "kept", 4));
    assert_true(sink_free(sink, 3000));
    struct buffer text;
    buffer_init(&text);
    read_whole(path, &text);
    assert_string_equal(text.data, "kept");
    buffer_fini(&text);
    free(below);
    free(path);
}

static void test_replace(void **state)
{
    (void)state;
    struct sink *sink;
    char *first = in_folder("record.json"), *second = in_folder("other.json"), line[32];
    struct buffer text;
    buffer_init(&text);
    assert_int_equal(sink_new(1000, 0600, &sink, NULL), ERROR_NONE);
    for (int i = 0; i <= 5000; i++) {
        snprintf(line, sizeof line, "number %d", i);
        sink_replace(sink, first, line, strlen(line));
        sink_replace(sink, second, line, strlen(line));
    }
    char *large = memory_new(2000000); /* larger than the queue: files are never dropped */
    memset(large, 'x', 2000000 - 1);
    assert_true(sink_flush(sink, 3000));
    read_whole(first, &text);
    assert_string_equal(text.data, "number 5000");
    sink_replace(sink, second, large, 2000000);
    assert_true(sink_free(sink, 3000)); /* flushes */
    read_whole(second, &text);
    assert_int_equal(text.length, 2000000);
    buffer_fini(&text);
    free(large);
    free(first);
    free(second);
}

/* A reader that does not read: the producer goes on, the record and the log go on, bytes are counted. */
static void test_stalled_reader(void **state)
{
    (void)state;
    struct sink *sink;
    struct sink_state counts;
    int target, log_target, ends[2];
    char *path = in_folder("record.json"), *log = in_folder("server.log"), piece[1000];
    memset(piece, 'x', sizeof piece);
    assert_int_equal(pipe2(ends, O_CLOEXEC), 0);
    assert_int_equal(sink_new(100000, 0600, &sink, NULL), ERROR_NONE);
    assert_int_equal(sink_add_descriptor(sink, ends[1], &target, NULL), ERROR_NONE);
    assert_int_equal(sink_add_log(sink, log, 0, &log_target, NULL), ERROR_NONE);
    uint64_t start_ms = now_ms(), accepted = 0, refused = 0;
    for (int i = 0; i < 10000; i++)
        *(sink_append(sink, target, piece, sizeof piece) ? &accepted : &refused) += sizeof piece;
    assert_true(now_ms() - start_ms < 2000);
    assert_true(refused > 9000000);
    sink_get(sink, &counts);
    assert_int_equal(counts.dropped_bytes, refused);
    assert_true(counts.waiting_bytes <= 100000);
    assert_false(sink_flush(sink, 50));

    sink_append(sink, log_target, "still\n", 6);
    sink_replace(sink, path, "still", 5);
    struct buffer text;
    buffer_init(&text);
    for (int i = 0; access(path, F_OK) < 0 && i < 300; i++) /* flush would wait for the pipe */
        poll(NULL, 0, 10);
    read_whole(path, &text);
    assert_string_equal(text.data, "still");

    uint64_t drained = 0; /* the reader wakes: exactly what was accepted comes, in order */
    while (drained < accepted) {
        ssize_t got = read(ends[0], piece, sizeof piece);
        assert_true(got > 0);
        drained += (uint64_t)got;
    }
    assert_true(sink_flush(sink, 3000));
    read_whole(log, &text);
    assert_string_equal(text.data, "still\n");
    assert_true(sink_free(sink, 3000));
    buffer_fini(&text);
    close(ends[0]);
    close(ends[1]);
    free(path);
    free(log);
}

/* A non-blocking descriptor that others share; and a reader that leaves. */
static void test_descriptor(void **state)
{
    (void)state;
    struct sink *sink;
    struct sink_state counts;
    int target, ends[2];
    char *piece = memory_new(300000), *copy = memory_new(300000);
    memset(piece, 'y', 300000);
    assert_int_equal(pipe2(ends, O_CLOEXEC | O_NONBLOCK), 0);
    assert_int_equal(sink_new(0, 0600, &sink, NULL), ERROR_NONE);
    assert_int_equal(sink_add_descriptor(sink, ends[1], &target, NULL), ERROR_NONE);
    assert_true(sink_append(sink, target, piece, 300000));
    size_t length = 0;
    while (length < 300000) {
        struct pollfd wait = {.fd = ends[0], .events = POLLIN};
        assert_true(poll(&wait, 1, 3000) > 0);
        ssize_t got = read(ends[0], copy + length, 300000 - length);
        assert_true(got > 0);
        length += (size_t)got;
    }
    assert_memory_equal(piece, copy, 300000);
    close(ends[0]); /* EPIPE, and no signal */
    assert_true(sink_append(sink, target, "12345", 5));
    assert_true(sink_flush(sink, 3000));
    assert_true(sink_append(sink, target, "67890", 5));
    assert_true(sink_flush(sink, 3000));
    sink_get(sink, &counts);
    assert_int_equal(counts.failed_bytes, 10);
    assert_true(sink_free(sink, 3000));
    close(ends[1]);
    free(piece);
    free(copy);
}

/* An end that cannot be waited for: in time, and without touching memory that is gone (run under a sanitizer too). */
static void test_hanging_end(void **state)
{
    (void)state;
    struct sink *sink;
    int target, ends[2];
    char *piece = memory_new(300000);
    assert_int_equal(pipe2(ends, O_CLOEXEC), 0);
    assert_int_equal(sink_new(0, 0600, &sink, NULL), ERROR_NONE);
    assert_int_equal(sink_add_descriptor(sink, ends[1], &target, NULL), ERROR_NONE);
    assert_true(sink_append(sink, target, piece, 300000));
    uint64_t start_ms = now_ms();
    assert_false(sink_free(sink, 100));
    assert_true(now_ms() - start_ms < 1000);
    for (size_t left = 300000; left > 0;) { /* the thread left behind still ends in order */
        ssize_t got = read(ends[0], piece, left);
        assert_true(got > 0);
        left -= (size_t)got;
    }
    close(ends[0]);
    free(piece);
}

static void test_full_disk(void **state)
{
    (void)state;
    if (mount("tmpfs", folder, "tmpfs", 0, "size=64k") < 0) {
        print_message("may not mount: not run\n");
        const char *ci = getenv("CI");
        assert_false(ci && strcmp(ci, "true") == 0);
        skip();
    }
    struct sink *sink;
    struct sink_state counts;
    struct stat status;
    int target;
    char *path = in_folder("server.log"), *record = in_folder("record.json"), *piece = memory_new(100000);
    memset(piece, 'z', 100000);
    assert_int_equal(sink_new(0, 0600, &sink, NULL), ERROR_NONE);
    assert_int_equal(sink_add_log(sink, path, 0, &target, NULL), ERROR_NONE);
    sink_replace(sink, record, "before", 6);
    assert_true(sink_flush(sink, 3000));
    assert_true(sink_append(sink, target, piece, 100000));
    assert_true(sink_flush(sink, 3000));
    sink_get(sink, &counts);
    assert_int_equal(counts.system, 0); /* of replacements only */
    sink_replace(sink, record, piece, 50000);
    assert_true(sink_flush(sink, 3000));
    sink_get(sink, &counts);
    assert_true(counts.full);
    assert_int_equal(counts.system, ENOSPC);
    assert_int_equal(stat(path, &status), 0);
    assert_int_equal(counts.failed_bytes, 100000 - status.st_size + 50000);
    struct buffer text;
    buffer_init(&text);
    read_whole(record, &text);
    assert_string_equal(text.data, "before");
    buffer_fini(&text);
    assert_true(sink_free(sink, 3000));
    assert_int_equal(umount2(folder, 0), 0);
    free(path);
    free(record);
    free(piece);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(test_log),         TEST(test_log_rotation),   TEST(test_log_without_folder),
        TEST(test_replace),     TEST(test_stalled_reader), TEST(test_descriptor),
        TEST(test_hanging_end), TEST(test_full_disk),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
