/* A run that is made to stand still, in a cgroup and without: nothing of it moves, the guard may be silent meanwhile,
 * and afterwards it goes on or dies as if nothing had been. That it moves is told by what it writes. */
#include "keeper_world.h"
#include "sys/cgroup_control.h"
#include "sys/kill_tree.h"

#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

/* Three families in sessions of their own that fork all the time, and one process that is stopped already. */
static const char *const families = "for i in 1 2 3; do"
                                    " setsid sh -c 'echo ready; while :; do echo x; sleep 0.03; done' & done;"
                                    "sh -c 'echo $$; kill -STOP $$; :' & wait";

static void sleep_ms(int ms)
{
    nanosleep(&(struct timespec){ms / 1000, ms % 1000 * 1000000L}, NULL);
}

static void take_output(const struct keeper_world_run *run)
{
    char bytes[4096];
    struct pollfd wait = {.fd = run->out, .events = POLLIN};
    while (poll(&wait, 1, 0) > 0)
        assert_true(read(run->out, bytes, sizeof bytes) > 0);
}

static bool writes_within(const struct keeper_world_run *run, int ms)
{
    struct pollfd wait = {.fd = run->out, .events = POLLIN};
    return poll(&wait, 1, ms) > 0;
}

static void freeze(struct keeper_world_run *run)
{
    struct keeper_message message;
    assert_int_equal(keeper_send(&run->keeper, KEEPER_FREEZE, NULL), ERROR_NONE);
    assert_true(keeper_world_expect(run, KEEPER_FROZEN, 3000, &message));
    assert_int_equal(message.value, 0);
    take_output(run);
    assert_false(writes_within(run, 200));
}

static void thaw(struct keeper_world_run *run)
{
    assert_int_equal(keeper_send(&run->keeper, KEEPER_THAW, NULL), ERROR_NONE);
    assert_true(writes_within(run, 3000));
}

static void kill_and_finish(struct keeper_world_run *run)
{
    struct keeper_message message;
    assert_int_equal(keeper_send(&run->keeper, KEEPER_KILL, NULL), ERROR_NONE);
    assert_true(keeper_world_expect(run, KEEPER_GONE, 3000, &message));
    keeper_world_finish(run);
}

/* The members of the run in state T. */
static size_t count_stopped(const struct keeper_world_run *run, pid_t *ret_running)
{
    struct kill_tree tree;
    struct kill_tree_target target = {.ancestor = run->keeper.pid, .main = run->main_pid, .cookie = run->cookie};
    size_t stopped = 0;
    kill_tree_init(&tree, &target);
    kill_tree_collect(&tree);
    for (size_t i = 0; i < tree.members.count; i++) {
        if (tree.members.items[i].state == 'T')
            stopped++;
        else if (tree.members.items[i].state != 'D') /* between vfork and exec */
            *ret_running = tree.members.items[i].pid;
    }
    kill_tree_fini(&tree);
    return stopped;
}

static void test_freeze_and_thaw(bool cgroup)
{
    struct keeper_world_run run;
    pid_t running;
    keeper_world_start_shell(&run, cgroup, families, 4);
    while (count_stopped(&run, &running) != 1)
        sleep_ms(10); /* it said so before it did it */
    for (int i = 0; i < 5; i++) {
        freeze(&run);
        thaw(&run);
    }
    for (int i = 0; i < 300 && count_stopped(&run, &running) > 1; i++)
        sleep_ms(10); /* the first to go on has written already, the last may still be stopped */
    assert_int_equal(count_stopped(&run, &running), 1); /* who was stopped before is stopped still */
    kill_and_finish(&run);
}

/* Far longer than a guard may be silent otherwise; both ways of freezing at once, as each takes that time. */
static void test_silence_while_frozen(void **state)
{
    (void)state;
    struct keeper_world_run runs[2];
    int count = keeper_world_cgroups ? 2 : 1;
    for (int i = 0; i < count; i++) {
        keeper_world_start_shell(&runs[i], i == 1, families, 4);
        freeze(&runs[i]);
    }
    sleep_ms(KEEPER_SILENCE_MS + 1000);
    for (int i = 0; i < count; i++) {
        assert_true(keeper_world_survivors(runs[i].cookie) >= 4);
        assert_false(writes_within(&runs[i], 0));
        thaw(&runs[i]);
    }
    sleep_ms(KEEPER_SILENCE_MS + 800);
    for (int i = 0; i < count; i++) /* this guard is not stopped: it may be starved */
        assert_true(keeper_world_survivors(runs[i].cookie) >= 4);
    sleep_ms(KEEPER_STARVED_MS - KEEPER_SILENCE_MS); /* not frozen any more: silence is the end again */
    for (int i = 0; i < count; i++) {
        struct keeper_message message;
        assert_true(keeper_world_expect(&runs[i], KEEPER_GONE, 3000, &message));
        assert_int_equal(message.reason, KEEPER_REASON_SILENCE);
        keeper_world_finish(&runs[i]);
    }
}

static void test_kill_while_frozen(bool cgroup)
{
    struct keeper_world_run run;
    keeper_world_start_shell(&run, cgroup, families, 4);
    freeze(&run);
    kill_and_finish(&run);

    keeper_world_start_shell(&run, cgroup, families, 4);
    freeze(&run);
    keeper_world_finish(&run); /* the guard goes */
}

/* An order to end must reach a process that can act on it. */
static void test_term_while_frozen(bool cgroup)
{
    struct keeper_world_run run;
    struct keeper_message message;
    keeper_world_start_shell(&run, cgroup, "trap 'exit 7' TERM; echo ready; while :; do echo x; sleep 0.03; done", 1);
    freeze(&run);
    assert_int_equal(keeper_send(&run.keeper, KEEPER_TERM, NULL), ERROR_NONE);
    assert_true(keeper_world_expect(&run, KEEPER_EXITED, 3000, &message));
    assert_int_equal(message.value, 7 << 8);
    kill_and_finish(&run);
}

/* Somebody lets the run go on while its guard is stopped: nobody would look at the disk. */
static void test_let_go_by_others(bool cgroup)
{
    struct keeper_world_run run;
    keeper_world_start_shell(&run, cgroup, families, 4);
    freeze(&run);
    if (cgroup)
        assert_true(cgroup_thaw(&run.keeper.cgroup));
    else
        assert_int_equal(kill(-run.main_pid, SIGCONT), 0);
    sleep_ms(2500);
    take_output(&run);
    assert_false(writes_within(&run, 200));
    kill_and_finish(&run);
}

/* A process that has left the cgroup stops like the others, and goes on. */
static void test_escaped(void **state)
{
    (void)state;
    if (!keeper_world_cgroups)
        skip();
    struct keeper_world_run run;
    struct keeper_message message;
    pid_t running = 0;
    char script[6000], elsewhere[PATH_MAX + 16];
    char cookie[20];
    struct cgroup other;
    snprintf(cookie, sizeof cookie, "%08x", (unsigned)getpid());
    cgroup_make("elsewhere", cookie, getpid(), &other);
    assert_int_not_equal(other.kind, CGROUP_NONE);
    snprintf(elsewhere, sizeof elsewhere, "%s/cgroup.procs", other.path);
    snprintf(script, sizeof script, "echo $$ > %s; echo ready; while :; do echo x; sleep 0.03; done", elsewhere);
    keeper_world_start_shell(&run, true, script, 1);
    freeze(&run);
    assert_true(count_stopped(&run, &running) >= 1);
    assert_int_equal(running, 0);
    thaw(&run);
    freeze(&run);
    assert_int_equal(keeper_send(&run.keeper, KEEPER_KILL, NULL), ERROR_NONE);
    assert_true(keeper_world_expect(&run, KEEPER_GONE, 3000, &message));
    keeper_world_finish(&run);
    assert_true(cgroup_fini(&other));
}

/* What the guard itself can do with a cgroup. */
static void test_cgroup_freeze(void **state)
{
    (void)state;
    struct cgroup none;
    cgroup_set_none(&none, "none");
    assert_false(cgroup_freeze(&none, 100));
    assert_false(cgroup_thaw(&none));
    if (!keeper_world_cgroups)
        skip();
    struct keeper_world_run run;
    keeper_world_start_shell(&run, true, families, 4);
    assert_true(cgroup_freeze(&run.keeper.cgroup, 2000));
    take_output(&run);
    assert_false(writes_within(&run, 200));
    assert_true(cgroup_thaw(&run.keeper.cgroup));
    assert_true(writes_within(&run, 2000));
    kill_and_finish(&run);
}

KEEPER_WORLD_BOTH(test_freeze_and_thaw)
KEEPER_WORLD_BOTH(test_kill_while_frozen)
KEEPER_WORLD_BOTH(test_term_while_frozen)
KEEPER_WORLD_BOTH(test_let_go_by_others)

int main(void)
{
    if (!keeper_world_init())
        return 1;
    const struct CMUnitTest tests[] = {
        KEEPER_WORLD_TEST(test_freeze_and_thaw),   cmocka_unit_test(test_silence_while_frozen),
        KEEPER_WORLD_TEST(test_kill_while_frozen), KEEPER_WORLD_TEST(test_term_while_frozen),
        KEEPER_WORLD_TEST(test_let_go_by_others),  cmocka_unit_test(test_escaped),
        cmocka_unit_test(test_cgroup_freeze),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
