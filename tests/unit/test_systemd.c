/* What is said to the service manager, and where our other programs are. */
#include "sys/sibling.h"
#include "sys/systemd.h"

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

static void check_said(int fd, const char *expected)
{
    char text[512];
    ssize_t length = recv(fd, text, sizeof text - 1, MSG_DONTWAIT);
    assert_true(length > 0);
    text[length] = '\0';
    assert_string_equal(text, expected);
}

/* A socket for what is said to the manager; its path in NOTIFY_SOCKET. */
static int listen_as_manager(char folder[])
{
    struct sockaddr_un name = {.sun_family = AF_UNIX};
    assert_non_null(mkdtemp(folder));
    snprintf(name.sun_path, sizeof name.sun_path, "%s/notify", folder);
    int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(fd, (struct sockaddr *)&name, sizeof name), 0);
    setenv("NOTIFY_SOCKET", name.sun_path, 1);
    return fd;
}

static void stop_listening(int fd, const char *folder)
{
    unlink(getenv("NOTIFY_SOCKET"));
    unsetenv("NOTIFY_SOCKET");
    close(fd);
    rmdir(folder);
}

static void test_notify(void **state)
{
    (void)state;
    unsetenv("NOTIFY_SOCKET");
    systemd_notify_ready("nobody listens");
    char folder[] = "/tmp/kldump-test-XXXXXX";
    int fd = listen_as_manager(folder);
    systemd_notify_ready("2 runs");
    check_said(fd, "READY=1\nSTATUS=2 runs");
    systemd_notify_status("a\nREADY=0 \xff"); /* one line, UTF-8, whatever it is given */
    check_said(fd, "STATUS=a?READY=0 ?");
    systemd_notify_stopping("bye");
    check_said(fd, "STOPPING=1\nSTATUS=bye");
    stop_listening(fd, folder);
}

static void test_reload_and_watchdog(void **state)
{
    (void)state;
    char folder[] = "/tmp/kldump-test-XXXXXX", text[128], pid[16];
    int fd = listen_as_manager(folder);
    struct timespec now;
    unsigned long long said_us;
    systemd_notify_reloading();
    ssize_t length = recv(fd, text, sizeof text - 1, MSG_DONTWAIT);
    assert_true(length > 0);
    text[length] = '\0';
    assert_int_equal(sscanf(text, "RELOADING=1\nMONOTONIC_USEC=%llu", &said_us), 1);
    clock_gettime(CLOCK_MONOTONIC, &now);
    unsigned long long now_us = (unsigned long long)now.tv_sec * 1000000 + (unsigned long long)now.tv_nsec / 1000;
    assert_true(said_us <= now_us && now_us - said_us < 60000000);
    systemd_notify_watchdog();
    check_said(fd, "WATCHDOG=1");
    stop_listening(fd, folder);

    unsetenv("WATCHDOG_USEC");
    assert_int_equal(systemd_watchdog_us(), 0);
    setenv("WATCHDOG_USEC", "3000000", 1);
    snprintf(pid, sizeof pid, "%d", getpid());
    setenv("WATCHDOG_PID", pid, 1);
    assert_int_equal(systemd_watchdog_us(), 1500000);
    setenv("WATCHDOG_PID", "1", 1); /* it is another process that shall do it */
    assert_int_equal(systemd_watchdog_us(), 0);
    unsetenv("WATCHDOG_USEC");
    unsetenv("WATCHDOG_PID");
}

enum { FIRST = 3, MOST = 3 }; /* SD_LISTEN_FDS_START */

/* In a child, where the descriptors from 3 on are ours to give: `types` of listening sockets, 0 for a pipe. Its exit
 * status says what came: 10 * control + register, or 99 for an error that names `words`. */
static void pass_sockets(const int *types, size_t count, const char *words)
{
    char number[24];
    for (size_t i = 0; i < count; i++) {
        int fd, ends[2];
        struct sockaddr_un name = {.sun_family = AF_UNIX}; /* the kernel picks an abstract one */
        if (types[i] == 0) {
            if (pipe(ends) != 0)
                _exit(90);
            fd = ends[0];
        } else {
            fd = socket(AF_UNIX, types[i], 0);
            if (bind(fd, (struct sockaddr *)&name, sizeof name.sun_family) != 0 || listen(fd, 1) != 0)
                _exit(91);
        }
        dup2(fd, 20 + (int)i);
    }
    for (size_t i = 0; i < count; i++)
        dup2(20 + (int)i, FIRST + (int)i);
    snprintf(number, sizeof number, "%d", getpid());
    setenv("LISTEN_PID", number, 1);
    snprintf(number, sizeof number, "%zu", count);
    if (count > 0)
        setenv("LISTEN_FDS", number, 1);
    struct error err = ERROR_INIT;
    int control = 7, registering = 7;
    enum error_code code = systemd_take_sockets(&control, &registering, &err);
    if (count > 0 && (getenv("LISTEN_FDS") != NULL || getenv("LISTEN_PID") != NULL))
        _exit(92);
    if (code != ERROR_NONE)
        _exit(control == 7 && registering == 7 && words != NULL && strstr(err.message, words) != NULL ? 99 : 93);
    for (size_t i = 0; i < count; i++)
        if ((fcntl(FIRST + (int)i, F_GETFD) & FD_CLOEXEC) == 0)
            _exit(94);
    if (systemd_take_sockets(&(int){0}, &(int){0}, &err) != ERROR_NONE)
        _exit(95);
    _exit((control < 0 ? 0 : control) * 10 + (registering < 0 ? 0 : registering));
}

static void test_take_sockets(void **state)
{
    (void)state;
    static const struct {
        int types[MOST];
        size_t count;
        int status;
        const char *words;
    } cases[] = {
        {{0}, 0, 0, NULL},
        {{SOCK_STREAM, SOCK_SEQPACKET}, 2, 34, NULL},
        {{SOCK_SEQPACKET, SOCK_STREAM}, 2, 43, NULL}, /* whatever the order */
        {{SOCK_STREAM}, 1, 30, NULL},
        {{SOCK_SEQPACKET}, 1, 3, NULL},
        {{SOCK_STREAM, 0}, 2, 99, "(4) that is no listening Unix socket"},
        {{SOCK_STREAM, SOCK_SEQPACKET, SOCK_STREAM}, 3, 99, "(5) that is the second socket of its kind"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        int status;
        pid_t pid = fork();
        if (pid == 0)
            pass_sockets(cases[i].types, cases[i].count, cases[i].words);
        assert_int_equal(waitpid(pid, &status, 0), pid);
        assert_true(WIFEXITED(status));
        assert_int_equal(WEXITSTATUS(status), cases[i].status);
    }
}

static void test_no_user_bus(void **state)
{
    (void)state;
    struct error err = ERROR_INIT;
    unsetenv("DBUS_SESSION_BUS_ADDRESS");
    setenv("XDG_RUNTIME_DIR", "/nonexistent", 1);
    assert_int_equal(systemd_start_user_scope("x.scope", getpid(), "x", &err), ERROR_NOT_FOUND);
    setenv("DBUS_SESSION_BUS_ADDRESS", "unix:path=/nonexistent/bus", 1);
    assert_int_equal(systemd_start_user_scope("x.scope", getpid(), "x", &err), ERROR_NOT_FOUND);
}

static void test_sibling(void **state)
{
    (void)state;
    char *own = realpath("/proc/self/exe", NULL), *slash = strrchr(own, '/');
    char *path = sibling_path(slash + 1);
    assert_non_null(path);
    assert_string_equal(path, own);
    assert_null(sibling_path("no-such-program-of-kldump"));
    free(path);
    free(own);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_notify),       cmocka_unit_test(test_reload_and_watchdog),
        cmocka_unit_test(test_take_sockets), cmocka_unit_test(test_no_user_bus),
        cmocka_unit_test(test_sibling),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
