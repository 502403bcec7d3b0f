/* Trees that do what they can not to be found or not to die; each is killed by message, in a cgroup and without. Who
 * lives is told by pidfds that the test took before, so also of processes without the run's cookie. */
#include "keeper_world.h"
#include "sys/cgroup_control.h"
#include "sys/kill_tree.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

/* ---- what each test does ---- */

enum { WATCHED_MAX = 64 };

struct watched {
    int fds[WATCHED_MAX];
    size_t count;
};

/* Everything that descends from the keeper now. */
static void watch(const struct keeper_world_run *run, size_t least, struct watched *ret_watched)
{
    struct kill_tree tree;
    struct kill_tree_target target = {.ancestor = run->keeper.pid};
    kill_tree_init(&tree, &target);
    size_t count = 0; /* one that changes its parent in this moment can be missed once */
    for (int i = 0; count < least && i < 100; i++)
        count = kill_tree_collect(&tree);
    assert_true(count >= least && count <= WATCHED_MAX);
    ret_watched->count = 0;
    for (size_t i = 0; i < count; i++) {
        int fd = process_open(tree.members.items[i].pid);
        if (fd >= 0)
            ret_watched->fds[ret_watched->count++] = fd;
    }
    kill_tree_fini(&tree);
}

static void assert_dead(struct watched *watched)
{
    for (size_t i = 0; i < watched->count; i++) {
        struct pollfd wait = {.fd = watched->fds[i], .events = POLLIN};
        assert_int_equal(poll(&wait, 1, 0), 1);
        close(watched->fds[i]);
    }
}

static void kill_and_finish(struct keeper_world_run *run, size_t least)
{
    struct keeper_message message;
    struct watched watched;
    watch(run, least, &watched);
    assert_int_equal(keeper_send(&run->keeper, KEEPER_KILL, NULL), ERROR_NONE);
    assert_true(keeper_world_expect(run, KEEPER_GONE, 3000, &message));
    assert_int_equal(message.value, 0);
    assert_dead(&watched);
    keeper_world_finish(run);
}

static void start_role(struct keeper_world_run *run, bool cgroup, char *role, int ready)
{
    char *command[] = {keeper_world_own_program, role, NULL};
    keeper_world_start(run, cgroup, command, ready);
}

static void say_ready(void)
{
    if (write(STDOUT_FILENO, "ready\n", 6) != 6)
        _exit(1);
}

static _Noreturn void wait_for_ever(void)
{
    for (;;)
        pause();
}

/* Starts itself in another role without any environment. */
static _Noreturn void become(char *role)
{
    char *arguments[] = {(char[]){"test_keeper_kill"}, role, NULL}, *nothing[] = {NULL};
    execve("/proc/self/exe", arguments, nothing);
    _exit(1);
}

static int role_wait(void)
{
    say_ready();
    wait_for_ever();
}

/* ---- a subreaper of its own ---- */

/* Adopts instead of the keeper; in a session of its own, and so is what it adopts, and none has the cookie. */
static int role_subreaper(void)
{
    if (fork() > 0)
        wait_for_ever();
    setsid();
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    for (int i = 0; i < 2; i++)
        if (fork() == 0) {
            setsid();
            if (fork() > 0)
                _exit(0);
            become("wait");
        }
    while (wait(NULL) > 0)
        ;
    return 0;
}

static void test_subreaper(bool cgroup)
{
    struct keeper_world_run run;
    start_role(&run, cgroup, "subreaper", 2);
    kill_and_finish(&run, 4);
}

/* ---- a pid namespace below ---- */

static int role_namespace(void)
{
    if (unshare(CLONE_NEWPID) < 0 && unshare(CLONE_NEWUSER | CLONE_NEWPID) < 0) {
        printf("%s\nready\n", strerror(errno));
        fflush(stdout);
        wait_for_ever();
    }
    if (fork() > 0)
        wait_for_ever();
    setsid(); /* process 1 of the namespace: no signal from inside reaches it */
    signal(SIGTERM, SIG_IGN);
    if (fork() == 0) {
        setsid();
        if (fork() > 0)
            _exit(0);
        become("wait");
    }
    while (wait(NULL) > 0)
        ;
    say_ready();
    wait_for_ever();
}

static void test_namespace(bool cgroup)
{
    struct keeper_world_run run;
    start_role(&run, cgroup, "namespace", 1);
    kill_and_finish(&run, 1);
}

/* ---- tracing ---- */

/* A debugger of the run's own that holds its child; both are to die. */
static int role_tracer(void)
{
    pid_t child = fork();
    if (child == 0) {
        setsid();
        become("wait");
    }
    if (ptrace(PTRACE_SEIZE, child, NULL, (void *)PTRACE_O_TRACEEXIT) < 0 ||
        ptrace(PTRACE_INTERRUPT, child, NULL, NULL) < 0)
        return 1;
    say_ready();
    wait_for_ever();
}

static void test_traced(bool cgroup)
{
    struct keeper_world_run run;
    start_role(&run, cgroup, "tracer", 1);
    kill_and_finish(&run, 2);
}

/* Somebody else's debugger: what dies under it is a zombie until that one has looked, and is waited for. */
static void test_traced_from_outside(bool cgroup)
{
    struct keeper_world_run run;
    struct keeper_message message;
    start_role(&run, cgroup, "two", 2);
    struct kill_tree tree;
    struct kill_tree_target target = {.ancestor = run.keeper.pid};
    kill_tree_init(&tree, &target);
    assert_true(kill_tree_collect(&tree) >= 2);
    pid_t child = tree.members.items[0].pid == run.main_pid ? tree.members.items[1].pid : tree.members.items[0].pid;
    kill_tree_fini(&tree);
    assert_int_equal(ptrace(PTRACE_SEIZE, child, NULL, NULL), 0);
    assert_int_equal(keeper_send(&run.keeper, KEEPER_KILL, NULL), ERROR_NONE);
    assert_true(keeper_world_expect(&run, KEEPER_EXITED, 3000, &message));
    assert_false(keeper_world_expect(&run, KEEPER_GONE, 300, &message));
    int status;
    assert_int_equal(waitpid(child, &status, __WALL), child);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
    assert_true(keeper_world_expect(&run, KEEPER_GONE, 3000, &message));
    assert_int_equal(message.value, 0);
    keeper_world_finish(&run);
}

static int role_two(void)
{
    if (fork() == 0)
        setsid();
    return role_wait();
}

/* ---- out of the cgroup ---- */

/* Moved into another cgroup, own session, no parent, no environment: the keeper has adopted it all the same. */
static void test_escaped(void **state)
{
    (void)state;
    if (!keeper_world_cgroups)
        skip();
    struct keeper_world_run run;
    struct cgroup other;
    char cookie[20], script[PATH_MAX + 300];
    snprintf(cookie, sizeof cookie, "%08x", (unsigned)getpid());
    cgroup_make("away", cookie, getpid(), &other);
    assert_int_not_equal(other.kind, CGROUP_NONE);
    snprintf(script, sizeof script,
             "(echo 0 > %s/cgroup.procs; setsid env -i %s wait &) & wait; echo ready; exec sleep 100", other.path,
             keeper_world_own_program);
    keeper_world_start_shell(&run, true, script, 2);
    assert_int_equal(cgroup_control_populated(other.events_fd), 1);
    kill_and_finish(&run, 2);
    assert_true(cgroup_fini(&other));
}

/* Removed by somebody else between the end of the last process and the kill: nothing to complain about. */
static void test_cgroup_removed(void **state)
{
    (void)state;
    if (!keeper_world_cgroups)
        skip();
    struct keeper_world_run run;
    struct keeper_message message;
    keeper_world_start_shell(&run, true, "echo ready", 1);
    assert_true(keeper_world_expect(&run, KEEPER_EXITED, 3000, &message));
    assert_true(keeper_world_expect(&run, KEEPER_GONE, 3000, &message));
    assert_int_equal(rmdir(run.cgroup_path), 0);
    assert_int_equal(keeper_send(&run.keeper, KEEPER_KILL, NULL), ERROR_NONE);
    assert_true(keeper_world_expect(&run, KEEPER_GONE, 3000, &message));
    keeper_world_finish(&run);
}

/* ---- forking while it is killed ---- */

/* Each process is replaced by another in a session of its own, some thousand times a second. */
static int role_relay(void)
{
    say_ready();
    for (;;) {
        setsid();
        pid_t next = fork();
        if (next != 0)
            _exit(0);
    }
}

static int role_relays(void)
{
    for (int i = 0; i < 2; i++)
        if (fork() == 0)
            role_relay();
    while (wait(NULL) > 0)
        ;
    wait_for_ever();
}

static void test_relay(bool cgroup)
{
    enum { TRIES = 10 };
    for (int i = 0; i < TRIES; i++) {
        struct keeper_world_run run;
        struct keeper_message message;
        start_role(&run, cgroup, "relays", 2);
        assert_int_equal(keeper_send(&run.keeper, KEEPER_KILL, NULL), ERROR_NONE);
        assert_true(keeper_world_expect(&run, KEEPER_GONE, 10000, &message));
        keeper_world_finish(&run);
    }
}

/* ---- who must live ---- */

/* An orphaned scheduler sends QUIT to its new parent a minute later; others may send more. */
static int role_quitter(void)
{
    pid_t parent = getpid();
    if (fork() > 0)
        _exit(0);
    while (getppid() == parent)
        nanosleep(&(struct timespec){0, 1000000}, NULL);
    for (int number = 1; number < 32; number++)
        if (number != SIGKILL && number != SIGSTOP)
            kill(getppid(), number);
    say_ready();
    wait_for_ever();
}

static void test_signals_from_orphans(bool cgroup)
{
    struct keeper_world_run run;
    struct keeper_message message;
    keeper_world_start_shell(&run, cgroup,
                             "setsid sh -c 'exec \"$0\" quitter' \"$PROGRAM\" & echo ready; exec sleep 100", 2);
    assert_int_equal(keeper_send(&run.keeper, KEEPER_HEARTBEAT, NULL), ERROR_NONE);
    assert_false(keeper_world_expect(&run, KEEPER_GONE, 100, &message));
    kill_and_finish(&run, 2);
}

/* Same program, same name, same user, but not of the run. */
static void test_canary(bool cgroup)
{
    pid_t canary = fork();
    if (canary == 0) {
        freopen("/dev/null", "w", stdout);
        become("wait");
    }
    for (int i = 0; i < 5; i++) {
        struct keeper_world_run run;
        start_role(&run, cgroup, "two", 2);
        kill_and_finish(&run, 2);
        assert_int_equal(waitpid(canary, NULL, WNOHANG), 0);
    }
    kill(canary, SIGKILL);
    waitpid(canary, NULL, 0);
}

/* ---- the end without a kill ---- */

/* The main process ends at once, another lives on a little: gone means that one too. */
static void test_gone_is_the_last(bool cgroup)
{
    struct keeper_world_run run;
    struct keeper_message message;
    keeper_world_start_shell(&run, cgroup, "(trap '' TERM; sleep 0.6) & echo ready", 1);
    int64_t start_ns = keeper_world_now_ns();
    assert_true(keeper_world_expect(&run, KEEPER_EXITED, 3000, &message));
    assert_true(keeper_world_expect(&run, KEEPER_GONE, 5000, &message));
    assert_true(keeper_world_now_ns() - start_ns > 400000000);
    assert_int_equal(message.reason, KEEPER_REASON_NONE);
    keeper_world_finish(&run);
}

KEEPER_WORLD_BOTH(test_subreaper)
KEEPER_WORLD_BOTH(test_namespace)
KEEPER_WORLD_BOTH(test_traced)
KEEPER_WORLD_BOTH(test_traced_from_outside)
KEEPER_WORLD_BOTH(test_relay)
KEEPER_WORLD_BOTH(test_signals_from_orphans)
KEEPER_WORLD_BOTH(test_canary)
KEEPER_WORLD_BOTH(test_gone_is_the_last)

int main(int argc, char **argv)
{
    static const struct {
        const char *name;
        int (*play)(void);
    } roles[] = {
        {"wait", role_wait}, {"subreaper", role_subreaper}, {"namespace", role_namespace}, {"tracer", role_tracer},
        {"two", role_two},   {"relays", role_relays},       {"quitter", role_quitter}};
    for (size_t i = 0; argc == 2 && i < sizeof roles / sizeof roles[0]; i++)
        if (strcmp(argv[1], roles[i].name) == 0)
            return roles[i].play();
    if (!keeper_world_init())
        return 1;
    setenv("PROGRAM", keeper_world_own_program, 1);
    const struct CMUnitTest tests[] = {
        KEEPER_WORLD_TEST(test_subreaper), KEEPER_WORLD_TEST(test_namespace),
        KEEPER_WORLD_TEST(test_traced),    KEEPER_WORLD_TEST(test_traced_from_outside),
        cmocka_unit_test(test_escaped),    cmocka_unit_test(test_cgroup_removed),
        KEEPER_WORLD_TEST(test_relay),     KEEPER_WORLD_TEST(test_signals_from_orphans),
        KEEPER_WORLD_TEST(test_canary),    KEEPER_WORLD_TEST(test_gone_is_the_last),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
