/* The keeper when its guard is killed, stopped or gone, and the guard when its keeper is. */
#include "keeper_world.h"
#include "sys/cgroup_control.h"
#include "sys/kill_tree.h"

#include <fcntl.h>
#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

static void test_keeper_killed(bool cgroup)
{
    struct keeper_world_run run;
    struct keeper_message message;
    keeper_world_start_shell(&run, cgroup,
                             "setsid sh -c 'echo ready; sleep 100; :' & "
                             "(setsid env -i sh -c 'echo ready; sleep 100; :' &) ; " /* an orphan without a cookie */
                             "echo ready; wait",
                             3);
    kill(run.keeper.pid, SIGKILL);
    while (keeper_receive(&run.keeper, &message) >= 0) {
        struct pollfd wait = {.fd = run.keeper.channel_fd, .events = POLLIN};
        assert_true(poll(&wait, 1, 3000) > 0);
    }
    assert_int_not_equal(keeper_send(&run.keeper, KEEPER_KILL, NULL), ERROR_NONE);
    assert_true(keeper_kill_without(&run.keeper, run.main_pid, 3000));
    keeper_world_finish(&run);
}

static void test_keeper_stopped(bool cgroup)
{
    struct keeper_world_run run;
    keeper_world_start_shell(&run, cgroup, "echo ready; sleep 100; :", 1);
    kill(run.keeper.pid, SIGSTOP);
    int sent = 0;
    while (keeper_send(&run.keeper, KEEPER_HEARTBEAT, NULL) == ERROR_NONE)
        assert_true(sent++ < 100000);
    assert_int_equal(keeper_send(&run.keeper, KEEPER_KILL, NULL), ERROR_BUSY);
    assert_true(keeper_kill_without(&run.keeper, run.main_pid, 3000));
    assert_int_equal(keeper_world_survivors(run.cookie), 0);
    keeper_world_finish(&run);
}

/* The watcher's order must reach a keeper that somebody has stopped: where there is no cgroup it is the only way. */
static void test_keeper_stopped_and_told_to_kill(bool cgroup)
{
    struct keeper_world_run run;
    struct keeper_message gone;
    keeper_world_start_shell(&run, cgroup, "trap '' TERM; setsid sh -c 'echo ready; sleep 100; :' & echo ready; wait",
                             2);
    kill(run.keeper.pid, SIGSTOP);
    assert_int_equal(keeper_send(&run.keeper, KEEPER_KILL, NULL), ERROR_NONE);
    assert_true(keeper_world_expect(&run, KEEPER_GONE, 3000, &gone));
    keeper_world_finish(&run);
}

static void test_channel_closed(bool cgroup)
{
    struct keeper_world_run run;
    keeper_world_start_shell(&run, cgroup, "trap '' TERM; setsid sh -c 'echo ready; sleep 100; :' & echo ready; wait",
                             2);
    keeper_world_finish(
        &run); /* closes the channel; keeper_fini is true only when the keeper has ended and the cgroup is gone */
}

/* ---- a guard in a process of its own ---- */

struct news {
    struct keeper_world_run run;
    struct keeper_message exited, gone;
};

/* Starts a run, tells it, then beats until the tree is gone, tells that, and ends. Never returns. */
static void pretend_guard(bool cgroup, int report)
{
    struct news news = {0};
    keeper_world_start_shell(&news.run, cgroup,
                             "trap '' TERM; setsid sh -c 'echo ready; sleep 100; :' & echo ready; wait", 2);
    if (write(report, &news, sizeof news) != sizeof news)
        _exit(1);
    if (!keeper_world_expect(&news.run, KEEPER_EXITED, 30000, &news.exited) ||
        !keeper_world_expect(&news.run, KEEPER_GONE, 3000, &news.gone))
        _exit(2);
    if (write(report, &news, sizeof news) != sizeof news)
        _exit(1);
    keeper_world_finish(&news.run);
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
    assert_int_equal(keeper_world_survivors(news.run.cookie), 0);
    if (cgroup)
        assert_int_equal(access(news.run.cgroup_path, F_OK), -1);
    waitpid(guard, NULL, 0);
    close(keeper_fd);
    close(report);
}

/* Guard and keeper at once: the kernel ends the main process; what has left it is found by the cookie. */
static void test_both_killed(bool cgroup)
{
    struct news news;
    int report;
    pid_t guard = start_guard(cgroup, &news, &report);
    int main_fd = process_open(news.run.main_pid);
    assert_true(main_fd >= 0);
    kill(guard, SIGSTOP); /* so that it does not clean up */
    kill(news.run.keeper.pid, SIGKILL);
    kill(guard, SIGKILL);
    assert_true(wait_end(main_fd, 1000));
    waitpid(guard, NULL, 0);
    struct kill_tree tree;
    struct kill_tree_target target = {.cookie = news.run.cookie, .since_ticks = news.run.keeper.since_ticks};
    kill_tree_init(&tree, &target);
    assert_true(kill_tree_until_empty(&tree, 3000));
    kill_tree_fini(&tree);
    assert_int_equal(keeper_world_survivors(news.run.cookie), 0);
    if (cgroup) {
        int folder = open(news.run.cgroup_path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        int events_fd = cgroup_control_open_events(folder);
        assert_true(cgroup_control_wait_empty(events_fd, 2000));
        assert_int_equal(cgroup_control_remove(folder), 0);
        close(events_fd);
        close(folder);
    }
    close(main_fd);
    close(report);
}

/* Those that die with the main process have no pidfd here. */
static void check_dies(const char *cookie)
{
    for (int i = 0; keeper_world_survivors(cookie) > 0 && i < 100; i++)
        nanosleep(&(struct timespec){0, 10000000}, NULL);
    assert_int_equal(keeper_world_survivors(cookie), 0);
}

/* Both at once, as each takes the time of silence. */
static void test_guard_stopped(void **state)
{
    (void)state;
    struct news news[2];
    pid_t guards[2];
    int reports[2], main_fds[2], count = keeper_world_cgroups ? 2 : 1;
    for (int i = 0; i < count; i++) {
        guards[i] = start_guard(i == 1, &news[i], &reports[i]);
        main_fds[i] = process_open(news[i].run.main_pid);
        assert_true(main_fds[i] >= 0);
    }
    int64_t start_ns = keeper_world_now_ns();
    for (int i = 0; i < count; i++)
        kill(guards[i], SIGSTOP);
    for (int i = 0; i < count; i++) {
        assert_true(wait_end(main_fds[i], 4000));
        assert_true(keeper_world_now_ns() - start_ns > 1300000000);
        check_dies(news[i].run.cookie);
        kill(guards[i], SIGCONT);
        int status;
        assert_int_equal(read(reports[i], &news[i], sizeof news[i]), sizeof news[i]);
        assert_int_equal(news[i].exited.reason, KEEPER_REASON_SILENCE);
        assert_int_equal(news[i].gone.reason, KEEPER_REASON_SILENCE);
        waitpid(guards[i], &status, 0);
        assert_int_equal(status, 0);
        close(main_fds[i]);
        close(reports[i]);
    }
}

KEEPER_WORLD_BOTH(test_keeper_killed)
KEEPER_WORLD_BOTH(test_keeper_stopped)
KEEPER_WORLD_BOTH(test_keeper_stopped_and_told_to_kill)
KEEPER_WORLD_BOTH(test_channel_closed)
KEEPER_WORLD_BOTH(test_guard_killed)
KEEPER_WORLD_BOTH(test_both_killed)

int main(void)
{
    if (!keeper_world_init())
        return 1;
    const struct CMUnitTest tests[] = {
        KEEPER_WORLD_TEST(test_keeper_killed),
        KEEPER_WORLD_TEST(test_keeper_stopped),
        KEEPER_WORLD_TEST(test_keeper_stopped_and_told_to_kill),
        KEEPER_WORLD_TEST(test_channel_closed),
        KEEPER_WORLD_TEST(test_guard_killed),
        KEEPER_WORLD_TEST(test_both_killed),
        cmocka_unit_test(test_guard_stopped),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
