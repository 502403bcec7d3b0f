/* What is said to the service manager, and where our other programs are. */
#include "sys/sibling.h"
#include "sys/systemd.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
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

static void test_notify(void **state)
{
    (void)state;
    unsetenv("NOTIFY_SOCKET");
    systemd_notify_ready("nobody listens");
    struct sockaddr_un name = {.sun_family = AF_UNIX};
    char folder[] = "/tmp/kldump-test-XXXXXX";
    assert_non_null(mkdtemp(folder));
    snprintf(name.sun_path, sizeof name.sun_path, "%s/notify", folder);
    int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(fd, (struct sockaddr *)&name, sizeof name), 0);
    setenv("NOTIFY_SOCKET", name.sun_path, 1);
    systemd_notify_ready("2 runs");
    check_said(fd, "READY=1\nSTATUS=2 runs");
    systemd_notify_status("a\nREADY=0 \xff"); /* one line, UTF-8, whatever it is given */
    check_said(fd, "STATUS=a?READY=0 ?");
    systemd_notify_stopping("bye");
    check_said(fd, "STOPPING=1\nSTATUS=bye");
    unsetenv("NOTIFY_SOCKET");
    close(fd);
    unlink(name.sun_path);
    rmdir(folder);
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
        cmocka_unit_test(test_notify),
        cmocka_unit_test(test_no_user_bus),
        cmocka_unit_test(test_sibling),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
