/* Files replaced whole, read under a cap, locked; private folders; the runtime folder; free space figures. */
#include "sys/file.h"
#include "sys/file_below.h"
#include "sys/runtime.h"
#include "sys/space.h"

#include "base/memory.h"

#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
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
    return file_remove_all(folder) ? 0 : -1;
}

static void check_contents(const char *path, const char *expected)
{
    struct buffer buffer;
    buffer_init(&buffer);
    assert_int_equal(file_read(path, 100000, &buffer, NULL), ERROR_NONE);
    assert_string_equal(buffer.data, expected);
    buffer_fini(&buffer);
}

static void test_replace(void **state)
{
    (void)state;
    char *path = in_folder("record");
    struct stat status;
    assert_int_equal(file_replace(path, "a longer text", 13, 0600, FILE_SYNC, NULL), ERROR_NONE);
    check_contents(path, "a longer text");
    assert_int_equal(file_replace(path, "short", 5, 0600, FILE_NO_SYNC, NULL), ERROR_NONE);
    check_contents(path, "short");
    assert_int_equal(stat(path, &status), 0);
    assert_int_equal(status.st_mode & 0777, 0600);
    assert_int_equal(file_replace(path, "", 0, 0644, FILE_NO_SYNC, NULL), ERROR_NONE);
    check_contents(path, "");
    struct error err = ERROR_INIT;
    assert_true(file_is_leftover("report.json.0f52303a.tmp"));
    assert_false(file_is_leftover("report.json.tmp"));
    assert_false(file_is_leftover("report.json.0f52303g.tmp"));
    assert_false(file_is_leftover("0f52303a.tmp"));
    assert_false(file_is_leftover("report.json-0f52303a.tmp"));
    assert_false(file_is_leftover("report.json.0f52303a.tmp2"));
    assert_int_equal(file_replace("/nonexistent/x", "a", 1, 0600, FILE_NO_SYNC, &err), ERROR_SYSTEM);
    assert_int_equal(err.system, ENOENT);
    assert_non_null(strstr(err.message, "/nonexistent/x"));
    free(path);
}

/* What is no file is not replaced: as root, /dev/null would be gone for all. */
static void test_replace_spares_what_is_no_file(void **state)
{
    (void)state;
    char *pipe = in_folder("pipe"), *inside = in_folder("inside"), *link = in_folder("link"),
         *plain = in_folder("plain");
    struct stat status;
    assert_int_equal(mkfifo(pipe, 0600), 0);
    assert_int_equal(mkdir(inside, 0700), 0);
    assert_int_equal(symlink("/dev/null", link), 0);
    const char *const paths[] = {pipe, inside, link};
    for (size_t i = 0; i < 3; i++) {
        struct error err = ERROR_INIT;
        assert_int_equal(file_replace(paths[i], "x", 1, 0600, FILE_NO_SYNC, &err), ERROR_FORMAT);
        assert_non_null(strstr(err.message, "no regular file"));
        assert_int_equal(lstat(paths[i], &status), 0);
        assert_false(S_ISREG(status.st_mode));
    }
    assert_int_equal(unlink(link), 0);
    assert_int_equal(file_replace(plain, "old", 3, 0600, FILE_NO_SYNC, NULL), ERROR_NONE);
    assert_int_equal(symlink(plain, link), 0);
    assert_int_equal(file_replace(link, "new", 3, 0600, FILE_NO_SYNC, NULL), ERROR_NONE);
    check_contents(link, "new");
    check_contents(plain, "old");
    free(pipe);
    free(inside);
    free(link);
    free(plain);
}

/* A write that fails at byte N, for every N: the old file stays, nothing else does. */
static void test_replace_fault(void **state)
{
    (void)state;
    char *path = in_folder("faulty");
    const char *text = "0123456789abcdef";
    assert_int_equal(file_replace(path, "old", 3, 0600, FILE_NO_SYNC, NULL), ERROR_NONE);
    for (rlim_t limit = 0; limit < 16; limit++) {
        pid_t child = fork();
        if (child == 0) {
            struct error err = ERROR_INIT;
            signal(SIGXFSZ, SIG_IGN);
            setrlimit(RLIMIT_FSIZE, &(struct rlimit){limit, limit});
            _exit(file_replace(path, text, 16, 0600, FILE_NO_SYNC, &err) == ERROR_SYSTEM && err.system == EFBIG ? 0
                                                                                                                : 1);
        }
        int status;
        waitpid(child, &status, 0);
        assert_int_equal(status, 0);
        check_contents(path, "old");
    }
    assert_int_equal(unlink(path), 0);
    assert_int_equal(rmdir(folder), 0); /* no temporary file is left */
    assert_int_equal(mkdir(folder, 0700), 0);
    free(path);
}

/* A reader never sees a part. */
static void test_replace_atomic(void **state)
{
    (void)state;
    char *path = in_folder("raced");
    char *texts[2] = {memory_new(20001), memory_new(301)};
    memset(texts[0], 'a', 20000);
    memset(texts[1], 'b', 300);
    assert_int_equal(file_replace(path, texts[1], 300, 0600, FILE_NO_SYNC, NULL), ERROR_NONE);
    pid_t child = fork();
    if (child == 0)
        for (unsigned i = 0;; i++)
            file_replace(path, texts[i % 2], i % 2 ? 300 : 20000, 0600, FILE_NO_SYNC, NULL);
    struct buffer buffer;
    buffer_init(&buffer);
    unsigned seen[2] = {0};
    for (int i = 0; i < 10000; i++) {
        buffer_clear(&buffer);
        assert_int_equal(file_read(path, 20000, &buffer, NULL), ERROR_NONE);
        bool large = buffer.length == 20000;
        assert_true(large || buffer.length == 300);
        assert_memory_equal(buffer.data, texts[large ? 0 : 1], buffer.length);
        seen[large]++;
    }
    assert_true(seen[0] > 0 && seen[1] > 0);
    kill(child, SIGKILL);
    waitpid(child, NULL, 0);
    buffer_fini(&buffer);
    free(texts[0]);
    free(texts[1]);
    free(path);
}

static void test_read(void **state)
{
    (void)state;
    char *path = in_folder("text"), *fifo = in_folder("fifo");
    struct buffer buffer;
    struct error err = ERROR_INIT;
    buffer_init(&buffer);
    buffer_text(&buffer, "before ");
    assert_int_equal(file_replace(path, "0123456789", 10, 0600, FILE_NO_SYNC, NULL), ERROR_NONE);
    assert_int_equal(file_read(path, 9, &buffer, &err), ERROR_TOO_LARGE);
    assert_string_equal(buffer.data, "before ");
    assert_int_equal(file_read(path, 10, &buffer, NULL), ERROR_NONE);
    assert_string_equal(buffer.data, "before 0123456789");
    buffer_clear(&buffer);
    assert_int_equal(file_read_part(path, 4, 3, &buffer, NULL), ERROR_NONE);
    assert_int_equal(file_read_part(path, 8, 100, &buffer, NULL), ERROR_NONE);
    assert_int_equal(file_read_part(path, 100, 100, &buffer, NULL), ERROR_NONE);
    assert_string_equal(buffer.data, "45689");
    assert_int_equal(file_read("/nonexistent", 10, &buffer, &err), ERROR_NOT_FOUND);
    assert_int_equal(mkfifo(fifo, 0600), 0);
    assert_int_equal(file_read(fifo, 10, &buffer, &err), ERROR_FORMAT);
    assert_int_equal(file_read(folder, 10, &buffer, &err), ERROR_FORMAT);
    /* Files of /proc say that they have no size. */
    buffer_clear(&buffer);
    assert_int_equal(file_read("/proc/self/mountinfo", 1000000, &buffer, NULL), ERROR_NONE);
    assert_true(buffer.length > 0);
    buffer_fini(&buffer);
    free(path);
    free(fifo);
}

static void test_private_folder(void **state)
{
    (void)state;
    char *path = in_folder("private"), *link = in_folder("link"), *file = in_folder("file"),
         *open_one = in_folder("open");
    struct error err = ERROR_INIT;
    struct stat status;
    mode_t before = umask(0);
    assert_int_equal(file_make_private_folder(path, NULL), ERROR_NONE);
    umask(before);
    assert_int_equal(stat(path, &status), 0);
    assert_int_equal(status.st_mode & 0777, 0700);
    assert_int_equal(file_make_private_folder(path, NULL), ERROR_NONE);
    assert_int_equal(symlink(path, link), 0);
    assert_int_equal(file_make_private_folder(link, &err), ERROR_FORBIDDEN);
    assert_int_equal(file_replace(file, "", 0, 0600, FILE_NO_SYNC, NULL), ERROR_NONE);
    assert_int_equal(file_make_private_folder(file, &err), ERROR_FORBIDDEN);
    assert_int_equal(mkdir(open_one, 0700), 0);
    assert_int_equal(chmod(open_one, 0750), 0);
    assert_int_equal(file_make_private_folder(open_one, &err), ERROR_FORBIDDEN);
    assert_int_equal(stat(open_one, &status), 0);
    assert_int_equal(status.st_mode & 0777, 0750); /* never made right by us */
    if (geteuid() == 0) {
        assert_int_equal(chmod(open_one, 0700), 0);
        assert_int_equal(chown(open_one, 12345, 12345), 0);
        assert_int_equal(file_make_private_folder(open_one, &err), ERROR_FORBIDDEN);
        assert_non_null(strstr(err.message, "12345"));
    }
    free(path);
    free(link);
    free(file);
    free(open_one);
}

static void test_lock(void **state)
{
    (void)state;
    char *path = in_folder("lock");
    int fd, second;
    struct error err = ERROR_INIT;
    assert_false(file_is_locked(path));
    assert_int_equal(file_lock(path, &fd, NULL), ERROR_NONE);
    assert_true(file_is_locked(path));
    assert_int_equal(file_lock(path, &second, &err), ERROR_BUSY);
    close(fd);
    assert_false(file_is_locked(path));
    assert_int_equal(file_lock(path, &fd, NULL), ERROR_NONE);
    close(fd);
    free(path);
}

/* Who lists runs all the time must not make a start fail. */
static void test_lock_while_others_look(void **state)
{
    (void)state;
    char *path = in_folder("lock");
    int fd;
    assert_int_equal(file_lock(path, &fd, NULL), ERROR_NONE);
    close(fd);
    int begun[2];
    char byte;
    assert_int_equal(pipe(begun), 0);
    pid_t child = fork();
    while (child == 0) {
        file_is_locked(path);
        if (begun[1] >= 0 && write(begun[1], "x", 1) == 1)
            begun[1] = -1;
    }
    assert_int_equal(read(begun[0], &byte, 1), 1);
    close(begun[0]);
    close(begun[1]);
    int failures = 0;
    for (int i = 0; i < 300; i++) {
        if (file_lock(path, &fd, NULL) == ERROR_NONE)
            close(fd);
        else
            failures++;
    }
    kill(child, SIGKILL);
    waitpid(child, NULL, 0);
    assert_int_equal(failures, 0);
    free(path);
}

static void test_remove_all(void **state)
{
    (void)state;
    char *tree = in_folder("tree"), *below = in_folder("tree/a/b"), *kept = in_folder("kept"),
         *link = in_folder("tree/a/link");
    char *a = in_folder("tree/a");
    assert_int_equal(file_replace(kept, "x", 1, 0600, FILE_NO_SYNC, NULL), ERROR_NONE);
    assert_true(mkdir(tree, 0700) == 0 && mkdir(a, 0700) == 0 && mkdir(below, 0700) == 0);
    assert_int_equal(symlink(folder, link), 0);
    assert_true(file_remove_all(tree));
    assert_int_equal(access(tree, F_OK), -1);
    check_contents(kept, "x");
    assert_true(file_remove_all(tree)); /* nothing there: fine */
    assert_true(file_remove_all(kept));
    free(tree);
    free(below);
    free(kept);
    free(link);
    free(a);
}

static void test_runtime(void **state)
{
    (void)state;
    char *path = NULL, *wanted = in_folder("runtime"), *runs = in_folder("runtime/runs");
    struct error err = ERROR_INIT;
    unsetenv("RUNTIME_DIRECTORY");
    setenv("KLDUMP_RUNTIME_DIR", wanted, 1);
    assert_int_equal(runtime_directory(RUNTIME_LOOK, &path, &err), ERROR_NOT_FOUND);
    assert_int_equal(runtime_directory(RUNTIME_MAKE, &path, NULL), ERROR_NONE);
    assert_string_equal(path, wanted);
    assert_int_equal(access(runs, X_OK), 0);
    free(path);
    unsetenv("KLDUMP_RUNTIME_DIR");
    setenv("RUNTIME_DIRECTORY", wanted, 1);
    setenv("XDG_RUNTIME_DIR", "/nonexistent", 1);
    assert_int_equal(runtime_directory(RUNTIME_LOOK, &path, NULL), ERROR_NONE);
    char *run = runtime_run_folder(path, "quiet-otter-7");
    char *expected = in_folder("runtime/runs/quiet-otter-7");
    assert_string_equal(run, expected);
    free(run);
    free(expected);
    free(path);
    unsetenv("RUNTIME_DIRECTORY");
    setenv("XDG_RUNTIME_DIR", folder, 1);
    assert_int_equal(runtime_directory(RUNTIME_MAKE, &path, NULL), ERROR_NONE);
    char *xdg = in_folder("kldump");
    assert_string_equal(path, xdg);
    free(xdg);
    free(path);
    setenv("KLDUMP_RUNTIME_DIR", "relative", 1);
    assert_int_equal(runtime_directory(RUNTIME_MAKE, &path, &err), ERROR_BAD_VALUE);
    char long_path[120];
    memset(long_path, 'x', sizeof long_path - 1);
    long_path[0] = '/';
    long_path[sizeof long_path - 1] = '\0';
    setenv("KLDUMP_RUNTIME_DIR", long_path, 1);
    assert_int_equal(runtime_directory(RUNTIME_MAKE, &path, &err), ERROR_BAD_VALUE);
    assert_non_null(strstr(err.message, "119 characters"));
    setenv("KLDUMP_RUNTIME_DIR", "/dev/null/x", 1);
    assert_int_equal(runtime_directory(RUNTIME_LOOK, &path, &err), ERROR_SYSTEM);
    assert_string_equal(err.message, "cannot look at the runtime folder /dev/null/x (from KLDUMP_RUNTIME_DIR): Not a "
                                     "directory; choose another with KLDUMP_RUNTIME_DIR");
    unsetenv("KLDUMP_RUNTIME_DIR");
    free(wanted);
    free(runs);
}

/* ---- free space ---- */

static const uint64_t GIB = 1024ULL * 1024 * 1024;

static struct space convert(unsigned long bsize, unsigned long frsize, uint64_t blocks, uint64_t bfree, uint64_t bavail)
{
    struct statvfs figures = {
        .f_bsize = bsize, .f_frsize = frsize, .f_blocks = blocks, .f_bfree = bfree, .f_bavail = bavail};
    struct space space;
    space_from_statvfs(&figures, &space);
    return space;
}

static void test_space_figures(void **state)
{
    (void)state;
    struct space space = convert(1048576, 4096, 10000000, 2621440, 2621440);
    assert_true(space.measurable);
    assert_int_equal(space.free_bytes, 10 * GIB); /* in fragments, not in preferred blocks */
    static const unsigned long units[] = {512, 4096, 1048576, 0};
    for (size_t b = 0; b < 4; b++)
        for (size_t f = 0; f < 4; f++) {
            unsigned long unit = units[f] ? units[f] : units[b];
            space = convert(units[b], units[f], 1000, 100, 100);
            assert_int_equal(space.measurable, unit > 0);
            assert_int_equal(space.free_bytes, 100 * unit);
        }
    space = convert(4096, 4096, 26214400, 30 * GIB / 4096, 9 * GIB / 4096); /* root's reserve is not ours */
    assert_int_equal(space.free_bytes, 9 * GIB);
    space = convert(4096, 4096, 1 << 28, 100, UINT64_MAX - 1000); /* the count wrapped */
    assert_true(space.measurable);
    assert_int_equal(space.free_bytes, 0);
    space = convert(4096, 4096, 5000000000, 3248532185, 3248532185); /* beyond 32 bit */
    assert_int_equal(space.free_bytes, 13305987829760ULL);
    space = convert(1048576, 1048576, UINT64_MAX, UINT64_MAX, UINT64_MAX - 1); /* saturates */
    assert_int_equal(space.free_bytes, UINT64_MAX);
    space = convert(4096, 4096, 0, 0, 0);
    assert_false(space.measurable);
    space = convert(4096, 4096, 1000, 0, 0);
    assert_true(space.measurable);
    assert_int_equal(space.free_bytes, 0);
    assert_int_equal(space.total_bytes, 1000 * 4096);
}

static void test_space_inodes(void **state)
{
    (void)state;
    struct space space;
    space_from_statvfs(&(struct statvfs){.f_frsize = 4096, .f_blocks = 10}, &space);
    assert_false(space.inodes_counted);
    space_from_statvfs(&(struct statvfs){.f_frsize = 4096, .f_blocks = 10, .f_files = 1000}, &space);
    assert_true(space.inodes_counted);
    assert_int_equal(space.free_inodes, 0);
    space_from_statvfs(&(struct statvfs){.f_frsize = 4096, .f_blocks = 10, .f_files = 1000, .f_favail = 7}, &space);
    assert_int_equal(space.free_inodes, 7);
}

static void test_space_read(void **state)
{
    (void)state;
    int fd = open(folder, O_PATH | O_CLOEXEC);
    struct space space;
    struct error err = ERROR_INIT;
    char buffer[SPACE_TYPE_TEXT];
    assert_int_equal(space_read(fd, &space, NULL), ERROR_NONE);
    assert_true(space.measurable && space.free_bytes <= space.total_bytes);
    assert_true(strlen(space_type(fd, buffer)) > 0);
    close(fd);
    assert_int_equal(space_read(fd, &space, &err), ERROR_SYSTEM);
    fd = open("/proc", O_PATH | O_CLOEXEC); /* 0 blocks */
    assert_int_equal(space_read(fd, &space, NULL), ERROR_NONE);
    assert_false(space.measurable);
    close(fd);
    fd = open("/dev/shm", O_PATH | O_CLOEXEC);
    if (fd >= 0) {
        assert_string_equal(space_type(fd, buffer), "tmpfs");
        close(fd);
    }
    assert_false(space_type_lags("tmpfs"));
    assert_true(space_type_lags("nfs"));
    assert_true(space_type_lags("type 0x1234"));
}

static uint64_t pending(const char *text)
{
    return space_pending_from_text(text, strlen(text));
}

static void test_pending(void **state)
{
    (void)state;
    assert_int_equal(pending("MemTotal:  7 kB\nDirty:            120 kB\nWriteback:         8 kB\nAnonPages: 9 kB\n"),
                     128 * 1024);
    assert_int_equal(pending("NFS_Unstable: 1 kB\nWritebackTmp:   2 kB\nDirty: 4 kB"), 7 * 1024);
    assert_int_equal(pending(""), 0);
    assert_int_equal(pending("Dirty:"), 0);
    assert_int_equal(pending("Dirty: many kB\nWriteback: -1 kB\n"), 0);
    assert_int_equal(pending("NotDirty: 5 kB\n Dirty: 5 kB\n"), 0);
    assert_int_equal(space_pending_from_text("Dirty: 55 kB\n", 8), 5 * 1024); /* no further than the length */
    assert_true(pending("Dirty: 18446744073709551615 kB\nWriteback: 1 kB\n") == UINT64_MAX);
    assert_int_equal(space_read_pending(-1), 0);
    int fd = space_open_pending();
    assert_true(fd >= 0);
    (void)space_read_pending(fd);
    close(fd);
    assert_int_equal(space_read_pending(fd), 0);
}

static void make_files(const char *below, size_t count)
{
    char *path = in_folder(below);
    assert_int_equal(mkdir(path, 0700), 0);
    for (size_t i = 0; i < count; i++) {
        char *file = memory_format("%s/%zu", path, i);
        assert_int_equal(mknod(file, S_IFREG | 0600, 0), 0);
        free(file);
    }
    free(path);
}

/* Whose folder it is may have put there what he likes: each call does its piece. */
static void test_remove_below_in_pieces(void **state)
{
    (void)state;
    int fd = open(folder, O_PATH | O_DIRECTORY | O_CLOEXEC);
    size_t most = 100;
    assert_int_equal(file_below_remove(fd, "none", &most), FILE_BELOW_GONE);
    make_files("a", 10);
    make_files("a/b", 200);
    most = 100;
    assert_int_equal(file_below_remove(fd, "a", &most), FILE_BELOW_MORE);
    assert_int_equal(most, 0);
    assert_int_equal(file_below_remove(fd, "a", &most), FILE_BELOW_STUCK); /* nothing may be looked at */
    most = 100;
    assert_int_equal(file_below_remove(fd, "a", &most), FILE_BELOW_MORE);
    most = 100;
    assert_int_equal(file_below_remove(fd, "a", &most), FILE_BELOW_GONE);
    assert_true(most > 50);
    /* an older one that was set aside, larger than a call may take */
    make_files("x.damaged", FILE_BELOW_REMOVE_MAX + 100);
    make_files("x", 0);
    char *inner = in_folder("x/f");
    assert_int_equal(mknod(inner, S_IFREG | 0600, 0), 0);
    free(inner);
    assert_false(file_below_set_aside(fd, "x"));
    assert_true(file_below_set_aside(fd, "x"));
    /* too deep to be removed */
    char *deep = in_folder("deep");
    for (int i = 0; i < 40; i++) {
        assert_int_equal(mkdir(deep, 0700), 0);
        char *deeper = memory_format("%s/d", deep);
        free(deep);
        deep = deeper;
    }
    free(deep);
    most = FILE_BELOW_REMOVE_MAX;
    assert_int_equal(file_below_remove(fd, "deep", &most), FILE_BELOW_STUCK);
    deep = in_folder("deep/d/d/d/d/d/d/d/d/d/d/d/d/d/d/d/d");
    assert_true(file_remove_all(deep));
    free(deep);
    close(fd);
}

static void test_replace_in_pieces(void **state)
{
    (void)state;
    char *path = in_folder("record");
    struct file_replacement replacement;
    struct error err = ERROR_INIT;
    assert_int_equal(file_replace(path, "old", 3, 0600, FILE_NO_SYNC, NULL), ERROR_NONE);
    assert_int_equal(file_replace_begin(path, 0600, &replacement, &err), ERROR_NONE);
    assert_int_equal(file_replace_write(&replacement, "new ", 4, &err), ERROR_NONE);
    check_contents(path, "old");
    char *temporary = memory_copy(replacement.temporary);
    file_replace_abandon(&replacement);
    check_contents(path, "old");
    assert_int_equal(access(temporary, F_OK), -1);
    free(temporary);
    assert_int_equal(file_replace_begin(path, 0600, &replacement, &err), ERROR_NONE);
    assert_int_equal(file_replace_write(&replacement, "new ", 4, &err), ERROR_NONE);
    assert_int_equal(file_replace_write(&replacement, "text", 4, &err), ERROR_NONE);
    assert_int_equal(file_replace_commit(&replacement, FILE_SYNC, &err), ERROR_NONE);
    check_contents(path, "new text");
    assert_int_equal(file_replace_begin("/no/such/folder/x", 0600, &replacement, &err), ERROR_SYSTEM);
    free(path);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(test_replace),
        TEST(test_replace_spares_what_is_no_file),
        TEST(test_replace_in_pieces),
        TEST(test_replace_fault),
        TEST(test_replace_atomic),
        TEST(test_read),
        TEST(test_private_folder),
        TEST(test_lock),
        TEST(test_remove_all),
        TEST(test_runtime),
        TEST(test_space_figures),
        TEST(test_space_inodes),
        TEST(test_space_read),
        TEST(test_lock_while_others_look),
        TEST(test_remove_below_in_pieces),
        cmocka_unit_test(test_pending),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
