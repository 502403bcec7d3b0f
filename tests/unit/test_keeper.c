/* The real keeper with real process trees, in a cgroup and without: whatever the tree does, nothing of it survives. Who
 * survives is told by the run's cookie in /proc, not by the keeper's own word. */
#include "sys/keeper.h"
#include "sys/cgroup_control.h"
#include "sys/kill_tree.h"

#include "base/memory.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

extern char **environ;

static char *keeper_program;
static char *own_program;
static bool cgroups_work;

struct run {
    struct keeper keeper;
    char cookie[20];
    int out; /* reading end of CMD's standard output */
    pid_t main_pid;
    char cgroup_path[PATH_MAX];
};

static int64_t now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

static void make_cookie(char cookie[20])
{
    uint64_t chance;
    assert_int_equal(getrandom(&chance, sizeof chance, 0), sizeof chance);
    snprintf(cookie, 20, "%016llx", (unsigned long long)chance);
}

static size_t survivors(const char *cookie)
{
    struct process_list all = {0};
    size_t count = 0;
    assert_true(process_snapshot(&all));
    for (size_t i = 0; i < all.count; i++)
        if (process_is_alive(&all.items[i]) && process_has_environment(all.items[i].pid, KILL_TREE_COOKIE, cookie)) {
            struct process again; /* the keeper itself carries it too; it is not of the run */
            if (strcmp(all.items[i].comm, "kldump-keeper") != 0 && process_read(all.items[i].pid, &again) &&
                process_is_alive(&again))
                count++;
        }
    process_list_fini(&all);
    return count;
}

/* Reads `count` lines "ready" from the tree. */
static void wait_ready(int fd, int count)
{
    int lines = 0;
    char byte;
    while (lines < count) {
        struct pollfd wait = {.fd = fd, .events = POLLIN};
        assert_true(poll(&wait, 1, 4000) > 0);
        assert_int_equal(read(fd, &byte, 1), 1);
        lines += byte == '\n';
    }
}

static enum error_code spawn(struct run *run, bool cgroup, char *const *command, struct error *err)
{
    struct list environment = {0};
    list_add_all(&environment, environ);
    list_environment_set(&environment, "NOTIFY_SOCKET", "/nowhere");
    list_environment_set(&environment, "LISTEN_FDS", "1");
    make_cookie(run->cookie);
    int out[2];
    assert_int_equal(pipe2(out, O_CLOEXEC), 0);
    struct keeper_plan plan = {
        .program = keeper_program,
        .run_name = "unit",
        .cookie = run->cookie,
        .command = command,
        .environment = &environment,
        .directory = "/",
        .out_fd = out[1],
        .err_fd = out[1],
        .no_cgroup = !cgroup,
    };
    enum error_code code = keeper_spawn(&plan, &run->keeper, err);
    close(out[1]);
    run->out = out[0];
    list_fini(&environment);
    return code;
}

/* The next message of that kind within `limit_ms`, with heartbeats meanwhile; others are skipped. */
static bool expect(struct run *run, enum keeper_kind kind, int limit_ms, struct keeper_message *message)
{
    int64_t end = now_ns() + (int64_t)limit_ms * 1000000;
    for (;;) {
        int got = keeper_receive(&run->keeper, message);
        if (got == 1 && message->kind == kind)
            return true;
        if (got < 0 || (got == 0 && now_ns() > end))
            return false;
        if (got == 0) {
            keeper_send(&run->keeper, KEEPER_HEARTBEAT, NULL);
            struct pollfd wait = {.fd = run->keeper.channel_fd, .events = POLLIN};
            poll(&wait, 1, 100);
        }
    }
}

static void start(struct run *run, bool cgroup, char *const *command, int ready)
{
    struct error err = ERROR_INIT;
    struct keeper_message message;
    if (spawn(run, cgroup, command, &err) != ERROR_NONE)
        fail_msg("%s", err.message);
    if (!expect(run, KEEPER_STARTED, 3000, &message))
        fail_msg("no STARTED: %d %s", message.value, message.text);
    run->main_pid = message.pid;
    assert_int_equal(message.cgroup_error, 0);
    assert_true(message.kill_ns > 0 && message.kill_ns < 2000000000);
    assert_int_equal(run->keeper.cgroup.kind != CGROUP_NONE, cgroup);
    run->cgroup_path[0] = '\0';
    if (cgroup)
        snprintf(run->cgroup_path, sizeof run->cgroup_path, "%s", run->keeper.cgroup.path);
    wait_ready(run->out, ready);
}

static void start_shell(struct run *run, bool cgroup, const char *script, int ready)
{
    char *command[] = {"sh", "-c", (char *)script, NULL};
    start(run, cgroup, command, ready);
}

/* Every process of the tree holds the writing end, also one without a cookie. */
static void check_output_ends(const struct run *run)
{
    char bytes[4096];
    ssize_t got;
    do {
        struct pollfd wait = {.fd = run->out, .events = POLLIN};
        assert_true(poll(&wait, 1, 1000) > 0);
        got = read(run->out, bytes, sizeof bytes);
    } while (got > 0);
    assert_int_equal(got, 0);
}

static void finish(struct run *run)
{
    assert_true(keeper_fini(&run->keeper, 3000));
    assert_int_equal(survivors(run->cookie), 0);
    check_output_ends(run);
    if (run->cgroup_path[0])
        assert_int_equal(access(run->cgroup_path, F_OK), -1);
    close(run->out);
}

/* Kills by message and checks everything that is promised. */
static void kill_and_finish(struct run *run)
{
    struct keeper_message message;
    assert_int_equal(keeper_send(&run->keeper, KEEPER_KILL, NULL), ERROR_NONE);
    assert_true(expect(run, KEEPER_EXITED, 3000, &message));
    assert_int_equal(message.pid, run->main_pid);
    assert_true(WIFSIGNALED(message.value) && WTERMSIG(message.value) == SIGKILL);
    assert_int_equal(message.reason, KEEPER_REASON_ASKED);
    assert_true(expect(run, KEEPER_GONE, 3000, &message));
    assert_true(message.kill_ns > 0);
    assert_int_equal(survivors(run->cookie), 0);
    finish(run);
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
        struct run run;
        print_message("tree: %s\n", trees[i].name);
        start_shell(&run, cgroup, trees[i].script, trees[i].ready);
        kill_and_finish(&run);
    }
}

static void test_fork_storm(bool cgroup)
{
    struct run run;
    char *command[] = {own_program, "storm", NULL};
    start(&run, cgroup, command, 3);
    kill_and_finish(&run);
}

/* An ordinary end: TERM reaches the main process alone, its status is told, the rest lives until KILL. */
static void test_orderly(bool cgroup)
{
    struct run run;
    struct keeper_message message;
    start_shell(&run, cgroup, "trap 'exit 7' TERM; (trap '' TERM; exec sleep 100) & echo ready; wait", 1);
    assert_int_equal(keeper_send(&run.keeper, KEEPER_TERM, NULL), ERROR_NONE);
    assert_true(expect(&run, KEEPER_EXITED, 3000, &message));
    assert_true(WIFEXITED(message.value) && WEXITSTATUS(message.value) == 7);
    assert_int_equal(message.reason, KEEPER_REASON_NONE);
    assert_false(expect(&run, KEEPER_GONE, 300, &message));
    assert_int_equal(survivors(run.cookie), 1);
    assert_int_equal(keeper_send(&run.keeper, KEEPER_KILL, NULL), ERROR_NONE);
    assert_true(expect(&run, KEEPER_GONE, 3000, &message));
    finish(&run);

    start_shell(&run, cgroup, "sleep 100 & echo ready; wait", 1);
    assert_int_equal(keeper_send(&run.keeper, KEEPER_TERM_GROUP, NULL), ERROR_NONE);
    assert_true(expect(&run, KEEPER_EXITED, 3000, &message));
    assert_true(WIFSIGNALED(message.value) && WTERMSIG(message.value) == SIGTERM);
    assert_true(expect(&run, KEEPER_GONE, 3000, &message)); /* without KILL: nothing was left */
    assert_int_equal(message.reason, KEEPER_REASON_NONE);
    finish(&run);
}

static void test_output_and_descriptors(bool cgroup)
{
    struct run run;
    struct keeper_message message;
    char text[8192];
    size_t length = 0;
    ssize_t got;
    char *command[] = {own_program, "descriptors", NULL};
    start(&run, cgroup, command, 0);
    while ((got = read(run.out, text + length, sizeof text - 1 - length)) > 0)
        length += (size_t)got;
    text[length] = '\0';
    assert_string_equal(text, "fds 0 1 2\nstdin /dev/null\nblocked 0\nignored 0\nleader 1\ncwd /\nservice 0\n");
    assert_true(expect(&run, KEEPER_EXITED, 3000, &message));
    assert_int_equal(message.value, 0);
    assert_true(expect(&run, KEEPER_GONE, 3000, &message));
    finish(&run);
}

static void check_cannot(char *name, int expected, bool cgroup)
{
    struct run run = {0};
    struct keeper_message message;
    char *command[] = {name, NULL};
    assert_int_equal(spawn(&run, cgroup, command, NULL), ERROR_NONE);
    assert_true(expect(&run, KEEPER_EXEC_FAILED, 3000, &message));
    assert_int_equal(message.value, expected);
    assert_string_equal(message.text, "execute");
    assert_true(expect(&run, KEEPER_GONE, 3000, &message));
    finish(&run);
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

static void test_keeper_killed(bool cgroup)
{
    struct run run;
    struct keeper_message message;
    start_shell(&run, cgroup, "setsid sh -c 'echo ready; sleep 100; :' & echo ready; wait", 2);
    kill(run.keeper.pid, SIGKILL);
    while (keeper_receive(&run.keeper, &message) >= 0) {
        struct pollfd wait = {.fd = run.keeper.channel_fd, .events = POLLIN};
        assert_true(poll(&wait, 1, 3000) > 0);
    }
    assert_int_not_equal(keeper_send(&run.keeper, KEEPER_KILL, NULL), ERROR_NONE);
    assert_true(keeper_kill_without(&run.keeper, run.main_pid, 3000));
    finish(&run);
}

static void test_keeper_stopped(bool cgroup)
{
    struct run run;
    start_shell(&run, cgroup, "echo ready; sleep 100; :", 1);
    kill(run.keeper.pid, SIGSTOP);
    int sent = 0;
    while (keeper_send(&run.keeper, KEEPER_HEARTBEAT, NULL) == ERROR_NONE)
        assert_true(sent++ < 100000);
    assert_int_equal(keeper_send(&run.keeper, KEEPER_KILL, NULL), ERROR_BUSY);
    assert_true(keeper_kill_without(&run.keeper, run.main_pid, 3000));
    assert_int_equal(survivors(run.cookie), 0);
    finish(&run);
}

static void test_channel_closed(bool cgroup)
{
    struct run run;
    start_shell(&run, cgroup, "trap '' TERM; setsid sh -c 'echo ready; sleep 100; :' & echo ready; wait", 2);
    finish(&run); /* closes the channel; keeper_fini is true only when the keeper has ended and the cgroup is gone */
}

/* ---- a guard in a process of its own ---- */

struct news {
    struct run run;
    struct keeper_message exited, gone;
};

/* Starts a run, tells it, then beats until the tree is gone, tells that, and ends. Never returns. */
static void pretend_guard(bool cgroup, int report)
{
    struct news news = {0};
    start_shell(&news.run, cgroup, "trap '' TERM; setsid sh -c 'echo ready; sleep 100; :' & echo ready; wait", 2);
    if (write(report, &news, sizeof news) != sizeof news)
        _exit(1);
    if (!expect(&news.run, KEEPER_EXITED, 30000, &news.exited) || !expect(&news.run, KEEPER_GONE, 3000, &news.gone))
        _exit(2);
    if (write(report, &news, sizeof news) != sizeof news)
        _exit(1);
    finish(&news.run);
    _exit(0);
}

static pid_t start_guard(bool cgroup, struct news *news, int *ret_report)
{
    int report[2];
    assert_int_equal(pipe2(report, O_CLOEXEC), 0);
    pid_t guard = fork();
    if (guard == 0)
        pretend_guard(cgroup, report[1]);
    close(report[1]);
    assert_int_equal(read(report[0], news, sizeof *news), sizeof *news);
    *ret_report = report[0];
    return guard;
}

static bool wait_end(int pid_fd, int limit_ms)
{
    struct pollfd wait = {.fd = pid_fd, .events = POLLIN};
    return poll(&wait, 1, limit_ms) > 0;
}

static void test_guard_killed(bool cgroup)
{
    struct news news;
    int report;
    pid_t guard = start_guard(cgroup, &news, &report);
    int keeper_fd = process_open(news.run.keeper.pid);
    assert_true(keeper_fd >= 0);
    kill(guard, SIGKILL);
    assert_true(wait_end(keeper_fd, 1000));
    assert_int_equal(survivors(news.run.cookie), 0);
    if (cgroup)
        assert_int_equal(access(news.run.cgroup_path, F_OK), -1);
    waitpid(guard, NULL, 0);
    close(keeper_fd);
    close(report);
}

static void test_guard_stopped(bool cgroup)
{
    struct news news;
    int report, status;
    pid_t guard = start_guard(cgroup, &news, &report);
    int main_fd = process_open(news.run.main_pid);
    assert_true(main_fd >= 0);
    int64_t start_ns = now_ns();
    kill(guard, SIGSTOP);
    assert_true(wait_end(main_fd, 4000));
    assert_true(now_ns() - start_ns > 1300000000);
    for (int i = 0; survivors(news.run.cookie) > 0 && i < 100; i++)
        nanosleep(&(struct timespec){0, 10000000}, NULL); /* the others die with it; they have no pidfd here */
    assert_int_equal(survivors(news.run.cookie), 0);
    kill(guard, SIGCONT);
    assert_int_equal(read(report, &news, sizeof news), sizeof news);
    assert_int_equal(news.exited.reason, KEEPER_REASON_SILENCE);
    assert_int_equal(news.gone.reason, KEEPER_REASON_SILENCE);
    waitpid(guard, &status, 0);
    assert_int_equal(status, 0);
    close(main_fd);
    close(report);
}

/* ---- figures ---- */

static int compare_numbers(const void *a, const void *b)
{
    int64_t left = *(const int64_t *)a, right = *(const int64_t *)b;
    return (left > right) - (left < right);
}

static void test_figures(bool cgroup)
{
    enum { REPETITIONS = 30, TREE = 8 };
    int64_t dead[REPETITIONS], told[REPETITIONS];
    for (int i = 0; i < REPETITIONS; i++) {
        struct run run;
        struct keeper_message message;
        start_shell(&run, cgroup, "for i in 1 2 3 4 5 6 7; do sh -c 'echo ready; sleep 100; :' & done; wait", 7);
        struct kill_tree tree;
        struct kill_tree_target target = {.ancestor = run.keeper.pid, .main = run.main_pid};
        kill_tree_init(&tree, &target);
        struct pollfd fds[64];
        size_t count = kill_tree_collect(&tree);
        assert_true(count >= TREE && count <= 64);
        for (size_t k = 0; k < count; k++)
            fds[k] = (struct pollfd){.fd = process_open(tree.members.items[k].pid), .events = POLLIN};
        int64_t start_ns = now_ns();
        keeper_send(&run.keeper, KEEPER_KILL, NULL);
        for (size_t k = 0; k < count; k++)
            assert_true(fds[k].fd < 0 || poll(&fds[k], 1, 3000) > 0);
        dead[i] = now_ns() - start_ns;
        assert_true(expect(&run, KEEPER_GONE, 3000, &message));
        told[i] = now_ns() - start_ns;
        for (size_t k = 0; k < count; k++)
            close(fds[k].fd);
        kill_tree_fini(&tree);
        finish(&run);
    }
    qsort(dead, REPETITIONS, sizeof dead[0], compare_numbers);
    qsort(told, REPETITIONS, sizeof told[0], compare_numbers);
    print_message("decision to all of 15 dead, %s: median %.2f ms, worst of 30 %.2f ms; to GONE: %.2f, %.2f ms\n",
                  cgroup ? "cgroup" : "keeper alone", (double)dead[REPETITIONS / 2] / 1e6,
                  (double)dead[REPETITIONS - 1] / 1e6, (double)told[REPETITIONS / 2] / 1e6,
                  (double)told[REPETITIONS - 1] / 1e6);
    assert_true(dead[REPETITIONS / 2] < 1000000000);
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
    return 0;
}

#define BOTH(name)                                          \
    static void name##_cgroup(void **state)                 \
    {                                                       \
        (void)state;                                        \
        if (!cgroups_work) {                                \
            print_message("no writable cgroup: not run\n"); \
            skip();                                         \
        }                                                   \
        name(true);                                         \
    }                                                       \
    static void name##_alone(void **state)                  \
    {                                                       \
        (void)state;                                        \
        name(false);                                        \
    }
BOTH(test_trees)
BOTH(test_fork_storm)
BOTH(test_orderly)
BOTH(test_output_and_descriptors)
BOTH(test_cannot_execute)
BOTH(test_keeper_killed)
BOTH(test_keeper_stopped)
BOTH(test_channel_closed)
BOTH(test_guard_killed)
BOTH(test_guard_stopped)
BOTH(test_figures)

static void test_cgroup_is_there(void **state)
{
    (void)state;
    const char *ci = getenv("CI");
    if (ci && strcmp(ci, "true") == 0)
        assert_true(cgroups_work); /* CI has one: a skip there would hide half of this file */
}

static void test_bad_arguments(void **state)
{
    (void)state;
    pid_t child = fork();
    if (child == 0) {
        close(STDERR_FILENO);
        execl(keeper_program, "kldump-keeper", "3", "4", "-1", "c", "x", "7", "--", "true", NULL);
        _exit(1);
    }
    int status;
    waitpid(child, &status, 0);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 125);

    struct run run;
    struct error err = ERROR_INIT;
    char *command[] = {"true", NULL};
    char *right = keeper_program;
    keeper_program = "/nonexistent/kldump-keeper";
    assert_int_equal(spawn(&run, cgroups_work, command, &err), ERROR_NOT_FOUND);
    keeper_program = right;
    assert_non_null(strstr(err.message, "/nonexistent/kldump-keeper"));
    close(run.out);
}

int main(int argc, char **argv)
{
    if (argc == 2 && strcmp(argv[1], "storm") == 0)
        return role_storm();
    if (argc == 2 && strcmp(argv[1], "descriptors") == 0)
        return role_descriptors();
    own_program = realpath("/proc/self/exe", NULL);
    keeper_program = realpath("kldump-keeper", NULL); /* tests run in the build folder's root */
    if (!own_program || !keeper_program) {
        fprintf(stderr, "test_keeper: kldump-keeper is not in the working folder\n");
        return 1;
    }
    struct cgroup cgroup;
    int64_t took_ns;
    cgroup_make("probe", "0123456789", getpid(), &cgroup);
    cgroups_work = cgroup.kind == CGROUP_DELEGATED || cgroup.kind == CGROUP_OWN;
    cgroups_work = cgroups_work && cgroup_control_rehearse(cgroup.directory_fd, &took_ns) == 0;
    cgroup_fini(&cgroup);
    (void)argv;
#define TEST(name) cmocka_unit_test(name##_cgroup), cmocka_unit_test(name##_alone)
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_cgroup_is_there),
        cmocka_unit_test(test_bad_arguments),
        TEST(test_trees),
        TEST(test_fork_storm),
        TEST(test_orderly),
        TEST(test_output_and_descriptors),
        TEST(test_cannot_execute),
        TEST(test_keeper_killed),
        TEST(test_keeper_stopped),
        TEST(test_channel_closed),
        TEST(test_guard_killed),
        TEST(test_guard_stopped),
        TEST(test_figures),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
