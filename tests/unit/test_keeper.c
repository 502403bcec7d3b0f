/* The real keeper with real process trees, in a cgroup and without: whatever the tree does, nothing of it survives. Who
 * survives is told by the run's cookie in /proc, not by the keeper's own word. */
#include "keeper_world.h"
#include "sys/kill_tree.h"

#include "base/memory.h"

#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

/* Kills by message and checks everything that is promised. */
static void kill_and_finish(struct keeper_world_run *run)
{
    struct keeper_message message;
    assert_int_equal(keeper_send(&run->keeper, KEEPER_KILL, NULL), ERROR_NONE);
    assert_true(keeper_world_expect(run, KEEPER_EXITED, 3000, &message));
    assert_int_equal(message.pid, run->main_pid);
    assert_true(WIFSIGNALED(message.value) && WTERMSIG(message.value) == SIGKILL);
    assert_int_equal(message.reason, KEEPER_REASON_ASKED);
    assert_true(keeper_world_expect(run, KEEPER_GONE, 3000, &message));
    assert_true(message.kill_ns > 0);
    assert_int_equal(keeper_world_survivors(run->cookie), 0);
    keeper_world_finish(run);
}

static const struct tree {
    const char *name, *script;
    int ready;
} trees[] = {
    {"plain", "sleep 100 & echo ready; wait", 1},
    {"setsid", "setsid sh -c 'echo ready; sleep 100; :' & echo ready; wait", 2},
    {"double fork", "(setsid sh -c '(sh -c \"echo ready; sleep 100; :\" &) ; exit' &); echo ready; sleep 100; :", 2},
    {"orphans of an orphan, no environment",
     "(setsid env -i sh -c '(sh -c \"echo ready; sleep 100; :\" &)' &); sleep 100", 1},
    {"ignores TERM", "trap '' TERM HUP INT; (trap '' TERM; echo ready; sleep 100; :) & echo ready; wait", 2},
    {"stopped", "sh -c 'echo ready; kill -STOP $$; :' & echo ready; wait", 2},
};

static void test_trees(bool cgroup)
{
    for (size_t i = 0; i < sizeof trees / sizeof trees[0]; i++) {
        struct keeper_world_run run;
        print_message("tree: %s\n", trees[i].name);
        keeper_world_start_shell(&run, cgroup, trees[i].script, trees[i].ready);
        kill_and_finish(&run);
    }
}

static void test_fork_storm(bool cgroup)
{
    struct keeper_world_run run;
    char *command[] = {keeper_world_own_program, "storm", NULL};
    keeper_world_start(&run, cgroup, command, 3);
    kill_and_finish(&run);
}

/* An ordinary end: TERM reaches the main process alone, its status is told, the rest lives until KILL. */
static void test_orderly(bool cgroup)
{
    struct keeper_world_run run;
    struct keeper_message message;
    keeper_world_start_shell(&run, cgroup, "trap 'exit 7' TERM; (trap '' TERM; exec sleep 100) & echo ready; wait", 1);
    assert_int_equal(keeper_send(&run.keeper, KEEPER_TERM, NULL), ERROR_NONE);
    assert_true(keeper_world_expect(&run, KEEPER_EXITED, 3000, &message));
    assert_true(WIFEXITED(message.value) && WEXITSTATUS(message.value) == 7);
    assert_int_equal(message.reason, KEEPER_REASON_NONE);
    assert_false(keeper_world_expect(&run, KEEPER_GONE, 300, &message));
    assert_int_equal(keeper_world_survivors(run.cookie), 1);
    assert_int_equal(keeper_send(&run.keeper, KEEPER_KILL, NULL), ERROR_NONE);
    assert_true(keeper_world_expect(&run, KEEPER_GONE, 3000, &message));
    keeper_world_finish(&run);

    keeper_world_start_shell(&run, cgroup, "sleep 100 & echo ready; wait", 1);
    assert_int_equal(keeper_send(&run.keeper, KEEPER_TERM_GROUP, NULL), ERROR_NONE);
    assert_true(keeper_world_expect(&run, KEEPER_EXITED, 3000, &message));
    assert_true(WIFSIGNALED(message.value) && WTERMSIG(message.value) == SIGTERM);
    assert_true(keeper_world_expect(&run, KEEPER_GONE, 3000, &message)); /* without KILL: nothing was left */
    assert_int_equal(message.reason, KEEPER_REASON_NONE);
    keeper_world_finish(&run);
}

static void test_output_and_descriptors(bool cgroup)
{
    struct keeper_world_run run;
    struct keeper_message message;
    char text[8192];
    size_t length = 0;
    ssize_t got;
    char *command[] = {keeper_world_own_program, "descriptors", NULL};
    keeper_world_start(&run, cgroup, command, 0);
    while ((got = read(run.out, text + length, sizeof text - 1 - length)) > 0)
        length += (size_t)got;
    text[length] = '\0';
    assert_string_equal(text,
                        "fds 0 1 2\nstdin /dev/null\nblocked 0\nignored 0\nleader 1\ncwd /\nservice 0\nmarked 1\n");
    assert_true(keeper_world_expect(&run, KEEPER_EXITED, 3000, &message));
    assert_int_equal(message.value, 0);
    assert_true(keeper_world_expect(&run, KEEPER_GONE, 3000, &message));
    keeper_world_finish(&run);
}

static void check_cannot(char *name, int expected, bool cgroup)
{
    struct keeper_world_run run = {0};
    struct keeper_message message;
    char *command[] = {name, NULL};
    assert_int_equal(keeper_world_spawn(&run, cgroup, command, NULL), ERROR_NONE);
    assert_true(keeper_world_expect(&run, KEEPER_EXEC_FAILED, 3000, &message));
    assert_int_equal(message.value, expected);
    assert_string_equal(message.text, "execute");
    assert_true(keeper_world_expect(&run, KEEPER_GONE, 3000, &message));
    keeper_world_finish(&run);
}

static void test_cannot_execute(bool cgroup)
{
    char folder[] = "/tmp/kldump-test-XXXXXX";
    assert_non_null(mkdtemp(folder));
    char *plain = memory_format("%s/plain", folder), *garbage = memory_format("%s/garbage", folder);
    int fd = open(plain, O_CREAT | O_WRONLY | O_CLOEXEC, 0644);
    close(fd);
    fd = open(garbage, O_CREAT | O_WRONLY | O_CLOEXEC, 0755);
    assert_int_equal(write(fd, "echo never\n", 11), 11);
    close(fd);
    check_cannot("no-such-command-anywhere", ENOENT, cgroup);
    check_cannot("/nonexistent/command", ENOENT, cgroup);
    check_cannot("", ENOENT, cgroup);
    check_cannot(plain, EACCES, cgroup);
    check_cannot(garbage, ENOEXEC, cgroup); /* no shell ever */
    check_cannot("/tmp", EACCES, cgroup);
    unlink(plain);
    unlink(garbage);
    rmdir(folder);
    free(plain);
    free(garbage);
}

/* ---- programs that the keeper runs: this file in another role ---- */

/* Three families, two of them in sessions of their own, whose members fork all the time. */
static int role_storm(void)
{
    for (int family = 0; family < 3; family++)
        if (fork() == 0) {
            if (family > 0)
                setsid();
            printf("ready\n");
            fflush(stdout);
            for (;;) {
                pid_t child = fork();
                if (child == 0) {
                    nanosleep(&(struct timespec){0, 3000000}, NULL);
                    if (fork() == 0)
                        nanosleep(&(struct timespec){0, 3000000}, NULL);
                    _exit(0);
                }
                nanosleep(&(struct timespec){0, 500000}, NULL);
                while (waitpid(-1, NULL, WNOHANG) > 0)
                    ;
            }
        }
    for (;;)
        pause();
}

static int role_descriptors(void)
{
    char text[PATH_MAX];
    printf("fds");
    for (int fd = 0; fd < 1024; fd++)
        if (fcntl(fd, F_GETFD) >= 0)
            printf(" %d", fd);
    ssize_t length = readlink("/proc/self/fd/0", text, sizeof text - 1);
    text[length > 0 ? length : 0] = '\0';
    printf("\nstdin %s\n", text);
    sigset_t blocked;
    sigprocmask(SIG_SETMASK, NULL, &blocked);
    int blocked_count = 0, ignored_count = 0;
    for (int number = 1; number < SIGRTMIN; number++) {
        struct sigaction action;
        blocked_count += sigismember(&blocked, number) == 1;
        ignored_count += sigaction(number, NULL, &action) == 0 && action.sa_handler == SIG_IGN;
    }
    printf("blocked %d\nignored %d\nleader %d\n", blocked_count, ignored_count,
           getsid(0) == getpid() && getpgrp() == getpid());
    printf("cwd %s\nservice %d\n", getcwd(text, sizeof text), getenv("NOTIFY_SOCKET") || getenv("LISTEN_FDS"));
    printf("marked %d\n", getenv(KILL_TREE_COOKIE) && getenv("SPT_NOENV"));
    return 0;
}

KEEPER_WORLD_BOTH(test_trees)
KEEPER_WORLD_BOTH(test_fork_storm)
KEEPER_WORLD_BOTH(test_orderly)
KEEPER_WORLD_BOTH(test_output_and_descriptors)
KEEPER_WORLD_BOTH(test_cannot_execute)

static void test_cgroup_is_there(void **state)
{
    (void)state;
    const char *ci = getenv("CI");
    if (ci && strcmp(ci, "true") == 0)
        assert_true(keeper_world_cgroups); /* CI has one: a skip there would hide half of this file */
}

static void test_bad_arguments(void **state)
{
    (void)state;
    pid_t child = fork();
    if (child == 0) {
        close(STDERR_FILENO);
        execl(keeper_world_program, "kldump-keeper", "3", "4", "-1", "c", "x", "7", "--", "true", NULL);
        _exit(1);
    }
    int status;
    waitpid(child, &status, 0);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 125);

    struct keeper_world_run run;
    struct error err = ERROR_INIT;
    char *command[] = {"true", NULL};
    char *right = keeper_world_program;
    keeper_world_program = "/nonexistent/kldump-keeper";
    assert_int_equal(keeper_world_spawn(&run, keeper_world_cgroups, command, &err), ERROR_NOT_FOUND);
    keeper_world_program = right;
    assert_non_null(strstr(err.message, "/nonexistent/kldump-keeper"));
    close(run.out);
}

int main(int argc, char **argv)
{
    if (argc == 2 && strcmp(argv[1], "storm") == 0)
        return role_storm();
    if (argc == 2 && strcmp(argv[1], "descriptors") == 0)
        return role_descriptors();
    if (!keeper_world_init())
        return 1;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_cgroup_is_there), cmocka_unit_test(test_bad_arguments),
        KEEPER_WORLD_TEST(test_trees),          KEEPER_WORLD_TEST(test_fork_storm),
        KEEPER_WORLD_TEST(test_orderly),        KEEPER_WORLD_TEST(test_output_and_descriptors),
        KEEPER_WORLD_TEST(test_cannot_execute),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
