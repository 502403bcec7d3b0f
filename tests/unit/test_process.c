/* /proc readers, tree collection, listeners, pidfd signals. */
#include "sys/kill_tree.h"
#include "sys/listener.h"
#include "sys/process.h"

#include <arpa/inet.h>
#include <errno.h>
#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

static const char *const stat_end = " 8388608 1 2 3 4 100 23 0 0 20 0 5 0 123456 1 2 18446744073709551615 1 1 0\n";

static bool parse(const char *head, struct process *process)
{
    char line[512];
    snprintf(line, sizeof line, "%s%s", head, stat_end);
    return process_parse_stat(line, strlen(line), process);
}

static void test_stat_names(void **state)
{
    (void)state;
    static const char *const names[] = {"sh", "a) R 1 (b", ") Z 1 1 1 (", "", "((", "))", " ", "x\ny", "python3 -m"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        char head[128];
        struct process process;
        snprintf(head, sizeof head, "4711 (%s) S 12 34 56 0 -1", names[i]);
        assert_true(parse(head, &process));
        assert_int_equal(process.pid, 4711);
        assert_string_equal(process.comm, names[i]);
        assert_int_equal(process.state, 'S');
        assert_int_equal(process.parent, 12);
        assert_int_equal(process.group, 34);
        assert_int_equal(process.session, 56);
        assert_int_equal(process.threads, 5);
        assert_int_equal(process.cpu_ticks, 123);
        assert_int_equal(process.start_ticks, 123456);
    }
}

static void test_stat_malformed(void **state)
{
    (void)state;
    static const char *const lines[] = {"",
                                        "(",
                                        ")",
                                        "1",
                                        "1 (a",
                                        "1 (a)",
                                        "1 (a) ",
                                        "1 (a) S",
                                        "x (a) S 1 1 1 0 -1",
                                        "-1 (a) S 1 1 1 0 -1 ",
                                        "1 )a( S 1 1 1 0 -1",
                                        "1 (a) S 1 1 1 0 -1 2 3",
                                        "99999999999 (a) S 1 1 1 0 -1 1 1 1 1 1 1 1 1 1 1 1 1 1 1"};
    for (size_t i = 0; i < sizeof lines / sizeof lines[0]; i++) {
        struct process process = {.pid = 77};
        assert_false(process_parse_stat(lines[i], strlen(lines[i]), &process));
        assert_int_equal(process.pid, 77);
    }
    char whole[512];
    snprintf(whole, sizeof whole, "1 (a) S 1 1 1 0 -1%s", stat_end);
    struct process process;
    for (size_t length = 0; length < 40; length++) /* cut anywhere */
        assert_false(process_parse_stat(whole, length, &process));
}

static void test_alive(void **state)
{
    (void)state;
    assert_true(process_is_alive(&(struct process){.state = 'T', .threads = 1}));
    assert_true(process_is_alive(&(struct process){.state = 'D', .threads = 1}));
    assert_false(process_is_alive(&(struct process){.state = 'Z', .threads = 1}));
    assert_false(process_is_alive(&(struct process){.state = 'X', .threads = 0}));
    assert_true(process_is_alive(&(struct process){.state = 'Z', .threads = 3})); /* its main thread alone has ended */
}

/* A child with a hostile name; ends when the pipe's writing end closes. */
static pid_t start_child(int *ret_pipe)
{
    int ends[2];
    char byte;
    assert_int_equal(pipe(ends), 0);
    int named[2];
    assert_int_equal(pipe(named), 0);
    pid_t child = fork();
    if (child == 0) {
        close(ends[1]);
        prctl(PR_SET_NAME, "a) R 1 (b");
        close(named[1]);
        while (read(ends[0], &byte, 1) > 0)
            ;
        _exit(0);
    }
    close(named[1]);
    assert_int_equal(read(named[0], &byte, 1), 0);
    close(named[0]);
    close(ends[0]);
    *ret_pipe = ends[1];
    return child;
}

static void test_live_process(void **state)
{
    (void)state;
    int pipe_fd;
    pid_t child = start_child(&pipe_fd);
    struct process process;
    assert_true(process_read(child, &process));
    assert_int_equal(process.parent, getpid());
    assert_string_equal(process.comm, "a) R 1 (b");
    assert_int_equal(process_signal(&process, 0), 0);

    struct process other = process;
    other.start_ticks++; /* another process that once had this number */
    assert_int_equal(process_signal(&other, SIGKILL), ESRCH);

    struct process_list all = {0};
    assert_true(process_snapshot(&all));
    bool found = false;
    for (size_t i = 0; i < all.count; i++)
        found = found || all.items[i].pid == child;
    assert_true(found);
    process_list_fini(&all);

    assert_int_equal(process_signal(&process, SIGKILL), 0);
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(WTERMSIG(status), SIGKILL);
    assert_false(process_read(child, &process));
    assert_int_equal(process_signal(&process, 0), ESRCH);
    close(pipe_fd);
}

/* A process that lives for a tenth of a millisecond, and then its child; the number of its group. */
static pid_t start_storm(void)
{
    pid_t storm = fork();
    if (storm != 0) {
        assert_true(storm > 0);
        setpgid(storm, storm);
        return storm;
    }
    setpgid(0, 0);
    while (getppid() != 1) {
        nanosleep(&(struct timespec){0, 100000}, NULL);
        if (fork() > 0)
            _exit(0);
    }
    _exit(0);
}

static bool is_seen(const struct process_list *all, pid_t group)
{
    for (size_t i = 0; i < all->count; i++)
        if (all->items[i].group == group && process_is_alive(&all->items[i]))
            return true;
    return false;
}

static void test_snapshot_of_a_storm(void **state)
{
    (void)state;
    enum { LOOKS = 2000 };
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    signal(SIGCHLD, SIG_IGN); /* the dead of the storm, which become ours, are nobody's */
    pid_t storm = start_storm();
    struct process_list all = {0};
    unsigned missed = 0, twice = 0;
    for (int i = 0, running = 0; i < LOOKS; i++) {
        assert_true(process_snapshot(&all));
        running = is_seen(&all, storm) ? 0 : running + 1;
        missed += running > 0;
        twice += running > 1;
    }
    while (kill(-storm, SIGKILL) == 0)
        ;
    signal(SIGCHLD, SIG_DFL);
    prctl(PR_SET_CHILD_SUBREAPER, 0);
    for (size_t i = 1; i < all.count; i++)
        assert_true(all.items[i - 1].pid < all.items[i].pid);
    process_list_fini(&all);
    print_message("%d looks, %u missed it, %u after another that had\n", LOOKS, missed, twice);
    assert_int_equal(twice, 0);
}

static void test_environment(void **state)
{
    (void)state;
    /* The entry lies across the reader's 4096 bytes wherever it begins. */
    for (int padding = 4050; padding <= 4100; padding += 10) {
        char *filler = calloc(1, (size_t)padding + 3);
        memset(filler, 'x', (size_t)padding);
        filler[1] = '=';
        char *environment[] = {filler, "KLDUMP_RUN_COOKIE=abcdef", "Z=KLDUMP_RUN_COOKIE=other", NULL};
        char *arguments[] = {"sleep", "100", NULL};
        int ends[2];
        assert_int_equal(pipe2(ends, 02000000), 0);
        pid_t child = fork();
        if (child == 0) {
            execve("/bin/sleep", arguments, environment);
            _exit(1);
        }
        char byte;
        close(ends[1]);
        assert_int_equal(read(ends[0], &byte, 1), 0); /* it has executed */
        close(ends[0]);
        assert_true(process_has_environment(child, "KLDUMP_RUN_COOKIE", "abcdef"));
        assert_false(process_has_environment(child, "KLDUMP_RUN_COOKIE", "abcde"));
        assert_false(process_has_environment(child, "KLDUMP_RUN_COOKIE", "abcdefg"));
        assert_false(process_has_environment(child, "KLDUMP_RUN_COOKIE", "other"));
        kill(child, SIGKILL);
        waitpid(child, NULL, 0);
        free(filler);
    }
    assert_false(process_has_environment(-5, "A", "b"));
}

/* The caller, process 1, the guard and the ancestor are never members. */
static void test_spared(void **state)
{
    (void)state;
    int pipe_fd;
    pid_t child = start_child(&pipe_fd);
    struct kill_tree tree;
    struct kill_tree_target target = {.ancestor = getppid(), .main = getsid(0), .guard = child};
    kill_tree_init(&tree, &target);
    kill_tree_collect(&tree); /* our own session and our parent's children: we are in both */
    for (size_t i = 0; i < tree.members.count; i++) {
        assert_int_not_equal(tree.members.items[i].pid, 1);
        assert_int_not_equal(tree.members.items[i].pid, getpid());
        assert_int_not_equal(tree.members.items[i].pid, getppid());
        assert_int_not_equal(tree.members.items[i].pid, child);
    }
    kill_tree_fini(&tree);

    target = (struct kill_tree_target){.ancestor = getpid()};
    kill_tree_init(&tree, &target);
    assert_int_equal(kill_tree_collect(&tree), 1);
    assert_int_equal(tree.members.items[0].pid, child);
    assert_true(kill_tree_until_empty(&tree, 3000));
    kill_tree_fini(&tree);
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(WTERMSIG(status), SIGKILL);
    close(pipe_fd);
}

static void test_listener_lines(void **state)
{
    (void)state;
    static const char *const four = "   0: 0100007F:7530 00000000:0000 0A 00000000:00000000 00:00000000 00000000  1000 "
                                    "       0 424242 1 0 100 0 0 10 0";
    static const char *const six =
        "   1: 00000000000000000000000001000000:7530 00000000000000000000000000000000:0000 0A "
        "00000000:00000000 00:00000000 00000000     0        0 99 1 0 100 0 0 10 0";
    static const char *const connected = "   2: 0100007F:7530 0100007F:1234 01 00000000:00000000 00:00000000 00000000  "
                                         "1000        0 7 1 0 20 4 30 10 -1";
    struct listener listener;
    uint64_t inode;
    assert_true(listener_parse_line(four, 30000, &listener, &inode));
    assert_string_equal(listener.address, "127.0.0.1");
    assert_false(listener.ipv6);
    assert_int_equal(inode, 424242);
    assert_true(listener_parse_line(six, 30000, &listener, &inode));
    assert_string_equal(listener.address, "::1");
    assert_true(listener.ipv6);
    assert_false(listener_parse_line(four, 30001, &listener, &inode));
    assert_false(listener_parse_line(connected, 30000, &listener, &inode));
    assert_false(listener_parse_line("  sl  local_address rem_address   st", 30000, &listener, &inode));
    assert_false(listener_parse_line("", 30000, &listener, &inode));
}

static int listen_on(uint32_t address, uint16_t *port)
{
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    struct sockaddr_in name = {.sin_family = AF_INET, .sin_port = htons(*port), .sin_addr.s_addr = htonl(address)};
    socklen_t size = sizeof name;
    int one = 1;
    setsockopt(fd, SOL_SOCKET, SO_REUSEPORT, &one, sizeof one);
    assert_int_equal(bind(fd, (struct sockaddr *)&name, size), 0);
    assert_int_equal(listen(fd, 1), 0);
    assert_int_equal(getsockname(fd, (struct sockaddr *)&name, &size), 0);
    *port = ntohs(name.sin_port);
    return fd;
}

static void test_listener(void **state)
{
    (void)state;
    int pipe_fd;
    uint16_t port = 0;
    int fd = listen_on(INADDR_LOOPBACK, &port);
    pid_t child = start_child(&pipe_fd); /* holds the socket too */
    struct process self, heir;
    assert_true(process_read(getpid(), &self) && process_read(child, &heir));
    struct process_list own = {&self, 1, 1}, nobody = {&self, 0, 1}, child_list = {&heir, 1, 1};
    struct listener listener;

    assert_int_equal(listener_find(0, port, &own, &listener, NULL), ERROR_NONE);
    assert_int_equal(listener.owner, LISTENER_OWN);
    assert_int_equal(listener.pid, getpid());
    assert_string_equal(listener.address, "127.0.0.1");
    assert_false(listener.foreign_too);
    assert_false(listener_port_is_free(port));

    assert_int_equal(listener_find(getpid(), port, &nobody, &listener, NULL), ERROR_NONE);
    assert_int_equal(listener.owner, LISTENER_FOREIGN);
    assert_true(listener.pid == getpid() || listener.pid == child);

    close(fd);
    assert_int_equal(listener_find(0, port, &own, &listener, NULL), ERROR_NONE);
    assert_int_equal(listener.owner, LISTENER_FOREIGN);
    assert_int_equal(listener.pid, child);

    fd = listen_on(INADDR_ANY, &port); /* a second server beside the child's */
    assert_int_equal(listener_find(0, port, &own, &listener, NULL), ERROR_NONE);
    assert_int_equal(listener.owner, LISTENER_OWN);
    assert_string_equal(listener.address, "0.0.0.0");
    assert_true(listener.foreign_too);
    assert_int_equal(listener_find(0, port, &child_list, &listener, NULL), ERROR_NONE);
    assert_int_equal(listener.pid, child);
    close(fd);

    close(pipe_fd);
    waitpid(child, NULL, 0);
    assert_int_equal(listener_find(0, port, &own, &listener, NULL), ERROR_NONE);
    assert_int_equal(listener.owner, LISTENER_NONE);
    assert_true(listener_port_is_free(port));
}

static void on_signal(int number)
{
    (void)number;
}

/* How a child ends that forgets the handlers and then sends itself NUMBER; 0: it has lived through it. */
static int end_of_child(int number)
{
    int status = 0;
    pid_t child = fork();
    if (child == 0) {
        process_forget_handlers();
        raise(number);
        _exit(0);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    return process_exit_status(status);
}

static void test_forget_handlers(void **state)
{
    (void)state;
    signal(SIGUSR1, on_signal);
    signal(SIGUSR2, SIG_IGN);
    assert_int_equal(end_of_child(SIGUSR1), PROCESS_SIGNALED + SIGUSR1);
    assert_int_equal(end_of_child(SIGUSR2), 0);
    assert_int_equal(end_of_child(SIGTERM), PROCESS_SIGNALED + SIGTERM);
    signal(SIGUSR1, SIG_DFL);
    signal(SIGUSR2, SIG_DFL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_stat_names),      cmocka_unit_test(test_stat_malformed),
        cmocka_unit_test(test_alive),           cmocka_unit_test(test_live_process),
        cmocka_unit_test(test_environment),     cmocka_unit_test(test_spared),
        cmocka_unit_test(test_listener_lines),  cmocka_unit_test(test_listener),
        cmocka_unit_test(test_forget_handlers), cmocka_unit_test(test_snapshot_of_a_storm),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
