/* Where our cgroup is, from the texts of /proc; and what a cgroup does once there is one. */
#include "sys/cgroup.h"
#include "sys/cgroup_control.h"
#include "sys/cgroup_run.h"

#include "base/list.h"
#include "base/memory.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

static const char *const unified = "24 30 0:22 / /sys/fs/cgroup rw,nosuid,nodev - cgroup2 cgroup2 rw,nsdelegate\n";
static const char *const hybrid = "31 23 0:28 / /sys/fs/cgroup rw - tmpfs tmpfs rw\n"
                                  "40 31 0:37 / /sys/fs/cgroup/systemd rw - cgroup cgroup rw,name=systemd\n"
                                  "41 31 0:38 / /sys/fs/cgroup/unified rw shared:4 master:2 - cgroup2 cgroup2 rw\n";
static const char *const bound = "24 30 0:22 /docker/abc /sys/fs/cgroup ro - cgroup2 cgroup rw\n";
static const char *const blank = "24 30 0:22 / /mnt/c\\040g rw - cgroup2 cgroup rw\n";

static void test_locate(void **state)
{
    (void)state;
    static const struct {
        const char *const *mounts;
        const char *membership, *expected;
    } cases[] = {
        {&unified, "0::/user.slice/x.scope\n", "/sys/fs/cgroup/user.slice/x.scope"},
        {&unified, "0::/\n", "/sys/fs/cgroup"},
        {&unified, "0::/a (deleted)\n", "/sys/fs/cgroup/a"},
        {&unified, "0::/a (deleted)b\n", "/sys/fs/cgroup/a (deleted)b"},
        {&hybrid, "9:name=systemd:/wrong\n1:cpu:/wrong\n0::/right\n", "/sys/fs/cgroup/unified/right"},
        {&hybrid, "9:name=0::/wrong:/wrong\n", NULL},
        {&hybrid, "1:cpu:/\n", NULL},
        {&bound, "0::/docker/abc/d\n", "/sys/fs/cgroup/d"},
        {&bound, "0::/docker/abc\n", "/sys/fs/cgroup"},
        {&bound, "0::/docker/abcd\n", NULL},
        {&bound, "0::/other\n", NULL},
        {&blank, "0::/x\n", "/mnt/c g/x"},
        {&unified, "0::/../x\n", NULL},
        {&unified, "", NULL},
        {&unified, "0::", NULL},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char path[256] = "untouched";
        bool found = cgroup_locate(*cases[i].mounts, cases[i].membership, path, sizeof path);
        assert_int_equal(found, cases[i].expected != NULL);
        if (found)
            assert_string_equal(path, cases[i].expected);
    }
    char path[256], small[8];
    assert_false(cgroup_locate("31 23 0:28 / /sys/fs/cgroup rw - tmpfs tmpfs rw\n", "0::/\n", path, sizeof path));
    assert_false(cgroup_locate("cgroup2 - cgroup2 \n - cgroup2 \n", "0::/\n", path, sizeof path));
    assert_false(cgroup_locate(unified, "0::/a\n", small, sizeof small));
}

static void test_none(void **state)
{
    (void)state;
    struct cgroup cgroup;
    cgroup_set_none(&cgroup, "read-only");
    assert_string_equal(cgroup.guarantee, "keeper alone: no writable cgroup (read-only)");
    assert_false(cgroup_kill(&cgroup));
    assert_true(cgroup_fini(&cgroup));
    assert_true(cgroup_fini(&cgroup));
}

/* ---- a cgroup of this program's own, so that nobody else's run tidies up beside it ---- */

static char outer[4096], inner[4200];

static bool enter(const char *folder)
{
    char path[4300];
    snprintf(path, sizeof path, "%s/cgroup.procs", folder);
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    bool entered = fd >= 0 && write(fd, "0", 1) == 1;
    if (fd >= 0)
        close(fd);
    return entered;
}

/* Where none can be made no test here has one. */
static int move_in(void **state)
{
    (void)state;
    char mount[4096];
    if (!cgroup_own(outer, sizeof outer, mount, sizeof mount))
        return 0;
    snprintf(inner, sizeof inner, "%s/unit-test-%d", outer, (int)getpid());
    if (mkdir(inner, 0755) == 0 && !enter(inner))
        rmdir(inner);
    return 0;
}

static int move_out(void **state)
{
    (void)state;
    if (access(inner, F_OK) == 0 && enter(outer))
        rmdir(inner);
    return 0;
}

/* A child in the cgroup that waits for ever. */
static pid_t start_member(int directory_fd)
{
    int ends[2];
    char byte = 1;
    assert_int_equal(pipe2(ends, O_CLOEXEC), 0);
    pid_t child = fork();
    if (child == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (cgroup_control_enter(directory_fd) != 0 || dup2(ends[1], 3) != 3)
            _exit(1);
        close_range(4, ~0U, 0); /* as a server: it shares no lock */
        if (write(3, &byte, 1) == 1)
            for (;;)
                pause();
        _exit(1);
    }
    close(ends[1]);
    assert_int_equal(read(ends[0], &byte, 1), 1);
    close(ends[0]);
    return child;
}

static bool make(struct cgroup *cgroup)
{
    char cookie[20];
    int64_t took_ns = 0;
    snprintf(cookie, sizeof cookie, "%08x", (unsigned)getpid());
    pid_t keeper = getpid();
    cgroup_make("unit-test", cookie, keeper, cgroup);
    if (cgroup->kind == CGROUP_NONE || cgroup_control_rehearse(cgroup->directory_fd, &took_ns) != 0) {
        print_message("%s: not run\n", cgroup->guarantee);
        const char *ci = getenv("CI");
        assert_false(ci && strcmp(ci, "true") == 0);
        cgroup_fini(cgroup);
        return false;
    }
    assert_true(took_ns > 0 && took_ns < 2000000000);
    print_message("rehearsed kill: %.3f ms\n", (double)took_ns / 1e6);
    return true;
}

static void test_kill(void **state)
{
    (void)state;
    struct cgroup cgroup;
    if (!make(&cgroup))
        skip();
    char *path = memory_copy(cgroup.path);
    assert_int_equal(strncmp(cgroup.guarantee, "cgroup: /", 9), 0);
    assert_non_null(strstr(path, "/kldump-unit-test-"));
    assert_int_equal(cgroup_control_populated(cgroup.events_fd), 0);
    pid_t first = start_member(cgroup.directory_fd), second = start_member(cgroup.directory_fd);
    assert_int_equal(cgroup_control_populated(cgroup.events_fd), 1);
    assert_false(cgroup_control_wait_empty(cgroup.events_fd, 20));
    assert_int_equal(cgroup_control_remove(cgroup.directory_fd), EBUSY);
    assert_int_equal(access(path, F_OK), 0);
    assert_true(cgroup_kill(&cgroup));
    assert_true(cgroup_control_wait_empty(cgroup.events_fd, 2000));
    int status;
    assert_true(waitpid(first, &status, 0) == first && WTERMSIG(status) == SIGKILL);
    assert_true(waitpid(second, &status, 0) == second && WTERMSIG(status) == SIGKILL);
    assert_true(cgroup_fini(&cgroup));
    assert_int_equal(access(path, F_OK), -1);
    free(path);
}

/* Frozen members die, and what enters afterwards is not frozen; cgroups that the server made below go too. */
static void test_frozen_and_nested(void **state)
{
    (void)state;
    struct cgroup cgroup;
    if (!make(&cgroup))
        skip();
    assert_int_equal(mkdirat(cgroup.directory_fd, "below", 0755), 0);
    int below = openat(cgroup.directory_fd, "below", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    pid_t child = start_member(below);
    int freeze = openat(cgroup.directory_fd, "cgroup.freeze", O_RDWR | O_CLOEXEC);
    assert_int_equal(write(freeze, "1", 1), 1);
    assert_int_equal(cgroup_control_populated(cgroup.events_fd), 1);
    assert_true(cgroup_kill(&cgroup));
    assert_true(cgroup_control_wait_empty(cgroup.events_fd, 2000));
    int status;
    assert_true(waitpid(child, &status, 0) == child && WTERMSIG(status) == SIGKILL);
    char frozen = '?';
    assert_int_equal(pread(freeze, &frozen, 1, 0), 1);
    assert_int_equal(frozen, '0');
    close(freeze);
    close(below);
    assert_true(cgroup_fini(&cgroup));
}

/* Removed by somebody else: counts as empty and as removed. */
static void test_removed(void **state)
{
    (void)state;
    struct cgroup cgroup;
    if (!make(&cgroup))
        skip();
    assert_int_equal(rmdir(cgroup.path), 0);
    assert_int_equal(cgroup_control_populated(cgroup.events_fd), 0);
    assert_true(cgroup_fini(&cgroup));
}

static bool has_part(const struct list *list, const char *part)
{
    for (size_t i = 0; i < list->count; i++)
        if (strstr(list->items[i], part))
            return true;
    return false;
}

enum { PATIENCE_S = 10 };

/* Who looks at all cgroups, as doctor does, holds each for a moment, and then nobody else does anything with it. */
static bool find_empty(const char *path)
{
    bool found = false;
    for (time_t end = time(NULL) + PATIENCE_S; !found && time(NULL) < end;) {
        struct list empty = {0};
        cgroup_find_empty(&empty);
        found = has_part(&empty, path);
        list_fini(&empty);
    }
    return found;
}

static bool clear_left(const char *path, struct list *ret_told)
{
    for (time_t end = time(NULL) + PATIENCE_S; access(path, F_OK) == 0 && time(NULL) < end;)
        cgroup_clear_left(ret_told);
    return access(path, F_OK) != 0;
}

/* The leaf of a guard and a keeper that were both killed, with a process in it and without, goes; one that is held
 * stays, and so does what lives in it. */
static void test_clear_left(void **state)
{
    (void)state;
    struct cgroup held, left[2];
    char *paths[2];
    if (!make(&held))
        skip();
    pid_t member = start_member(held.directory_fd), orphan = -1;
    for (int i = 0; i < 2; i++) {
        char cookie[20];
        snprintf(cookie, sizeof cookie, "%08x", (unsigned)getpid());
        cgroup_make(i == 0 ? "left-empty" : "left-full", cookie, getpid(), &left[i]);
        paths[i] = memory_copy(left[i].path);
    }
    orphan = start_member(left[1].directory_fd);
    struct list told = {0}, empty = {0};
    cgroup_clear_left(&told);
    assert_false(has_part(&told, paths[1])); /* all three are held */
    assert_int_equal(access(paths[0], F_OK), 0);
    for (int i = 0; i < 2; i++) {
        close(left[i].kill_fd);
        close(left[i].events_fd);
        close(left[i].directory_fd); /* and with it the lock */
        free(left[i].path);
    }
    assert_true(find_empty(paths[0]));
    cgroup_find_empty(&empty);
    assert_false(has_part(&empty, held.path));
    assert_true(clear_left(paths[0], &told) && clear_left(paths[1], &told));
    int status;
    assert_true(waitpid(orphan, &status, 0) == orphan && WTERMSIG(status) == SIGKILL);
    assert_int_equal(waitpid(member, &status, WNOHANG), 0);
    assert_int_equal(access(held.path, F_OK), 0);
    assert_true(has_part(&told, paths[1]));
    assert_true(cgroup_kill(&held));
    assert_true(waitpid(member, &status, 0) == member);
    assert_true(cgroup_control_wait_empty(held.events_fd, 2000));
    assert_true(cgroup_fini(&held));
    list_fini(&told);
    list_fini(&empty);
    free(paths[0]);
    free(paths[1]);
}

/* ---- cgroups of runs that kldumpd spawns ---- */

enum { MAKERS = 6, MAKES = 1000 };

static struct {
    pthread_mutex_t lock;
    uint64_t held[MAKERS]; /* inode that the maker has; 0: none */
    unsigned made, shared, makers;
} common = {.lock = PTHREAD_MUTEX_INITIALIZER};

static void hold(size_t own, uint64_t inode)
{
    pthread_mutex_lock(&common.lock);
    for (size_t i = 0; i < MAKERS; i++)
        common.shared += inode != 0 && common.held[i] == inode;
    common.held[own] = inode;
    common.made += inode != 0;
    pthread_mutex_unlock(&common.lock);
}

static void *make_many(void *argument)
{
    char path[CGROUP_RUN_PATH];
    struct stat status;
    for (int i = 0, fd; i < MAKES; i++) {
        while (!cgroup_run_make("test-several", geteuid(), getegid(), &fd, path))
            ; /* it gives up after some tries, and is asked again */
        hold((size_t)argument, fstat(fd, &status) == 0 ? status.st_ino : 1);
        cgroup_run_clear(); /* as another daemon does at that moment */
        hold((size_t)argument, 0);
        cgroup_run_undo(fd, path);
    }
    pthread_mutex_lock(&common.lock);
    common.makers--;
    pthread_mutex_unlock(&common.lock);
    return NULL;
}

static bool all_are_made(void)
{
    pthread_mutex_lock(&common.lock);
    bool made = common.makers == 0;
    pthread_mutex_unlock(&common.lock);
    return made;
}

/* Several daemons beside each other have runs of one name, and tidy up: each run has a cgroup of its own. */
static void test_of_several_daemons(void **state)
{
    (void)state;
    char path[CGROUP_RUN_PATH];
    int fd;
    if (!cgroup_run_make("test-first", geteuid(), getegid(), &fd, path)) {
        print_message("skipped: no cgroup of version 2 that may be written\n");
        skip();
    }
    cgroup_run_undo(fd, path);
    pthread_t threads[MAKERS];
    common.makers = MAKERS;
    for (size_t i = 0; i < MAKERS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, make_many, (void *)i), 0);
    while (!all_are_made())
        cgroup_run_clear();
    for (size_t i = 0; i < MAKERS; i++)
        pthread_join(threads[i], NULL);
    cgroup_run_clear();
    print_message("%u made, %u of them shared\n", common.made, common.shared);
    assert_int_equal(common.made, MAKERS * MAKES);
    assert_int_equal(common.shared, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_locate),
        cmocka_unit_test(test_none),
        cmocka_unit_test(test_kill),
        cmocka_unit_test(test_frozen_and_nested),
        cmocka_unit_test(test_removed),
        cmocka_unit_test(test_clear_left),
        cmocka_unit_test(test_of_several_daemons),
    };
    return cmocka_run_group_tests(tests, move_in, move_out);
}
