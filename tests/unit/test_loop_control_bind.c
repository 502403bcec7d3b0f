/* The control socket's file: where it may be, what it replaces, who may connect. */
#include "control_helper.h"

static void test_path_too_long(void **state)
{
    struct fixture *f = *state;
    struct control_options options = options_for(f);
    char path[300];
    memset(path, 'p', sizeof path);
    memcpy(path, f->folder, strlen(f->folder));
    path[strlen(f->folder)] = '/';
    path[108] = '\0';
    options.path = path;
    struct control_server *server = NULL;
    struct error err = ERROR_INIT;
    assert_int_equal(control_listen(&f->loop, &options, &server, &err), ERROR_BAD_VALUE);
    assert_non_null(strstr(err.message, "108"));
    assert_non_null(strstr(err.message, "107"));
    assert_null(server);
    path[107] = '\0';
    assert_int_equal(control_listen(&f->loop, &options, &server, &err), ERROR_NONE);
    bool closed = false;
    control_close(server, 0, loop_set_true, &closed);
    loop_until(&f->loop, &closed);
    assert_int_equal(access(path, F_OK), -1);
}

static void test_second_server_and_stale_socket(void **state)
{
    struct fixture *f = *state;
    struct control_options options = options_for(f);
    struct control_server *second = NULL;
    struct error err = ERROR_INIT;
    assert_int_equal(control_listen(&f->loop, &options, &second, &err), ERROR_EXISTS);
    struct client client = client_ready(f); /* the first is still reachable */
    client_close(&client);

    /* The first one loses its file to a later one; its end must not remove the later one's. */
    assert_int_equal(unlink(f->path), 0);
    assert_int_equal(control_listen(&f->loop, &options, &second, &err), ERROR_NONE);
    control_close(f->server, 0, loop_set_true, &f->closed);
    loop_until(&f->loop, &f->closed);
    f->server = second;
    f->closed = false;
    client = client_ready(f);
    client_close(&client);
}

static void test_dead_socket_is_replaced(void **state)
{
    struct fixture *f = *state;
    control_close(f->server, 0, loop_set_true, &f->closed);
    loop_until(&f->loop, &f->closed);
    f->server = NULL;
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    snprintf(address.sun_path, sizeof address.sun_path, "%.100s", f->path);
    int dead = socket(AF_UNIX, SOCK_STREAM, 0);
    assert_int_equal(bind(dead, (struct sockaddr *)&address, sizeof address), 0);
    close(dead);
    f->closed = false;
    listen_on(f, geteuid());
    struct client client = client_ready(f);
    client_close(&client);
}

static void test_unsafe_places(void **state)
{
    struct fixture *f = *state;
    struct control_options options = options_for(f);
    struct control_server *server = NULL;
    struct error err = ERROR_INIT;
    char folder[300], path[600];
    snprintf(folder, sizeof folder, "%s/open", f->folder);
    snprintf(path, sizeof path, "%s/control", folder);
    options.path = path;
    assert_int_equal(control_listen(&f->loop, &options, &server, &err), ERROR_SYSTEM); /* no such folder */
    assert_int_equal(mkdir(folder, 0700), 0);
    assert_int_equal(chmod(folder, 0770), 0);
    assert_int_equal(control_listen(&f->loop, &options, &server, &err), ERROR_FORBIDDEN);
    assert_int_equal(chmod(folder, 0700), 0);
    int file = open(path, O_CREAT | O_WRONLY, 0600);
    close(file);
    assert_int_equal(control_listen(&f->loop, &options, &server, &err), ERROR_EXISTS); /* never removes a file */
    assert_int_equal(access(path, F_OK), 0);
    unlink(path);
    rmdir(folder);
}

/* Connects as another user where that can be done, else makes the server somebody else's. */
static void test_other_users_are_refused(void **state)
{
    struct fixture *f = *state;
    if (geteuid() != 0) {
        control_close(f->server, 0, loop_set_true, &f->closed);
        loop_until(&f->loop, &f->closed);
        f->closed = false;
        listen_on(f, geteuid() + 1);
        struct client client = client_open(f);
        send_text(f, &client, hello);
        expect_error(f, &client, -32000, "forbidden");
        expect_end(f, &client);
        client_close(&client);
        return;
    }
    int ends[2];
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
    assert_int_equal(chmod(f->folder, 0711), 0);
    assert_int_equal(chmod(f->path, 0666), 0); /* the check must not rest on the mode alone */
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        char room[1024];
        if (setgid(65534) != 0 || setuid(65534) != 0)
            _exit(1);
        int descriptor = open_socket(f->path);
        fcntl(descriptor, F_SETFL, 0);
        ssize_t count = descriptor < 0 ? -1 : recv(descriptor, room, sizeof room, 0);
        _exit(count > 0 && send(ends[1], room, (size_t)count, MSG_NOSIGNAL) == count ? 0 : 1);
    }
    close(ends[1]);
    fcntl(ends[0], F_SETFL, O_NONBLOCK);
    struct client relay = {.descriptor = ends[0]};
    buffer_init(&relay.input);
    expect_error(f, &relay, -32000, "forbidden");
    client_close(&relay);
    int result = -1;
    assert_int_equal(waitpid(pid, &result, 0), pid);
    assert_int_equal(result, 0);
    assert_int_equal(f->gone, 0);
}

int main(void)
{
    signal(SIGPIPE, SIG_IGN);
#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        T(test_path_too_long), T(test_second_server_and_stale_socket), T(test_dead_socket_is_replaced),
        T(test_unsafe_places), T(test_other_users_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
