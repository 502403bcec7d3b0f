/* What processes have written: the kernel's text, our own count, a tree with an orphan. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "sys/written.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

static void test_text(void **state)
{
    (void)state;
    static const char good[] = "rchar: 5\nwchar: 1234567890123\nsyscr: 1\n";
    uint64_t bytes = 7;
    assert_true(written_from_text(good, strlen(good), &bytes));
    assert_true(bytes == 1234567890123);
    static const char *const bad[] = {"", "wchar", "wchar: ", "xwchar: 5", "rchar: 5\n", "cancelled_write_bytes: 5\n"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        assert_false(written_from_text(bad[i], strlen(bad[i]), &bytes));
    assert_true(bytes == 1234567890123);
}

static void put(size_t bytes)
{
    static char block[4096];
    int fd = open("/dev/null", O_WRONLY | O_CLOEXEC);
    for (size_t done = 0; done < bytes; done += sizeof block)
        if (write(fd, block, sizeof block) < 0)
            _exit(1);
    close(fd);
}

static void test_own(void **state)
{
    (void)state;
    uint64_t before, after;
    assert_true(written_by(getpid(), &before));
    put(1 << 20);
    assert_true(written_by(getpid(), &after));
    assert_in_range(after - before, 1 << 20, (1 << 20) + 100000);
    assert_false(written_by(1 << 30, &after));
}

/* root of the tree (a subreaper) -> a child that ends -> its child, which is adopted; each writes. */
static void test_tree(void **state)
{
    (void)state;
    int ready[2];
    char byte;
    assert_int_equal(pipe2(ready, O_CLOEXEC), 0);
    pid_t root = fork();
    if (root == 0) {
        prctl(PR_SET_CHILD_SUBREAPER, 1);
        pid_t child = fork();
        if (child == 0) {
            put(4 << 20);
            if (fork() == 0) {
                put(8 << 20);
                (void)!write(ready[1], "x", 1);
                pause();
            }
            _exit(0);
        }
        waitpid(child, NULL, 0);
        put(2 << 20);
        (void)!write(ready[1], "x", 1);
        pause();
    }
    assert_int_equal(read(ready[0], &byte, 1), 1);
    assert_int_equal(read(ready[0], &byte, 1), 1);
    struct process_list all = {0};
    assert_true(process_snapshot(&all));
    uint64_t sum = written_by_tree(&all, root);
    assert_in_range(sum, 14 << 20, (14 << 20) + 100000);
    assert_int_equal(written_by_tree(&all, 1 << 30), 0);
    for (size_t i = 0; i < all.count; i++)
        if (all.items[i].parent == root)
            kill(all.items[i].pid, SIGKILL);
    kill(root, SIGKILL);
    waitpid(root, NULL, 0);
    process_list_fini(&all);
    close(ready[0]);
    close(ready[1]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_text),
        cmocka_unit_test(test_own),
        cmocka_unit_test(test_tree),
    };
    return cmocka_run_group_tests_name("written", tests, NULL, NULL);
}
