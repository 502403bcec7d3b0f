/* src/sys/dump_folder.h: where a folder is, or would be once it is made. */
#include "sys/dump_folder.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

static void test_foresee(void **state)
{
    (void)state;
    char top[64] = "/tmp/kldump-folder-XXXXXX";
    assert_non_null(mkdtemp(top));
    assert_int_equal(chdir(top), 0);
    assert_int_equal(mkdir("a", 0755) + mkdir("a/b", 0755) + symlink("a/b", "l") + symlink("none", "lost"), 0);
    static const struct {
        const char *given, *whole, *nearest; /* below `top`, unless they begin with ! */
        int problem;
    } rows[] = {
        {"a/b", "/a/b", "/a/b", 0},
        {"a/b///", "/a/b", "/a/b", 0},
        {"a/./b/../b", "/a/b", "/a/b", 0},
        {"l/x/y", "/a/b/x/y", "/a/b", ENOENT},
        {"l/..", "/a", "/a", 0}, /* as the kernel goes */
        {"a/x/../../y", "/y", "", ENOENT},
        {"a/x/..//./../l/z", "/a/b/z", "/a/b", ENOENT},
        {"x/../a", "/a", "/a", 0},
        {"lost/d", "/lost/d", "", ELOOP},
        {"!/", "!/", "!/", 0},
        {"!/../..", "!/", "!/", 0},
        {"!/nonexistent-1/../nonexistent-2", "!/nonexistent-2", "!/", ENOENT},
        {"!/proc/version/x", "!/proc/version/x", "!/proc/version", ENOTDIR},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        char whole[300], near[300], *nearest = NULL;
        int problem = -1;
        bool outside = rows[i].given[0] == '!';
        snprintf(whole, sizeof whole, "%s%s", outside ? "" : top, rows[i].whole + outside);
        snprintf(near, sizeof near, "%s%s", outside ? "" : top, rows[i].nearest + outside);
        char *found = dump_folder_foresee(rows[i].given + outside, &nearest, &problem);
        assert_string_equal(found, whole);
        assert_string_equal(nearest, near);
        assert_int_equal(problem, rows[i].problem);
        free(found);
        free(nearest);
    }
    assert_int_equal(unlink("l") + unlink("lost") + rmdir("a/b") + rmdir("a") + rmdir(top), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_foresee)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
