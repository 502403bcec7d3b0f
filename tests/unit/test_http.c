/* src/http: both drivers against a tiny server; the multi driver on a tiny poll() loop. */
#include "http/blocking.h"
#include "http/multi.h"
#include "http_server.h"

#include <arpa/inet.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>
#include <poll.h>

#include <cmocka.h>

static struct http_server *server;

/* The loop: watchers are heap objects, so that one that is used after it was let go shows up under a sanitizer. */
struct watcher {
    int fd, events;
};
enum { WATCHERS_MAX = 64 };
struct loop {
    struct watcher *watchers[WATCHERS_MAX];
    int64_t due_ms; /* -1: none */
    struct multi *multi;
};

static int64_t now_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

static void *loop_watch(void *user, void *known, int fd, int events)
{
    struct loop *loop = user;
    struct watcher *watcher = known;
    for (int i = 0; i < WATCHERS_MAX; i++) {
        if (loop->watchers[i] != watcher)
            continue;
        if (events == 0) {
            assert_non_null(watcher);
            assert_int_equal(watcher->fd, fd);
            free(watcher);
            loop->watchers[i] = NULL;
            return NULL;
        }
        if (watcher == NULL)
            loop->watchers[i] = watcher = calloc(1, sizeof *watcher);
        *watcher = (struct watcher){fd, events};
        return watcher;
    }
    fail_msg("no such watcher");
    return NULL;
}

static void loop_timer(void *user, int64_t ms)
{
    struct loop *loop = user;
    loop->due_ms = ms < 0 ? -1 : now_ms() + ms;
}

static void loop_init(struct loop *loop)
{
    *loop = (struct loop){.due_ms = -1};
    const struct multi_loop functions = {loop_watch, loop_timer, loop};
    loop->multi = multi_new(&functions);
}

static void loop_fini(struct loop *loop)
{
    multi_free(loop->multi);
    assert_true(loop->due_ms == -1);
    for (int i = 0; i < WATCHERS_MAX; i++)
        assert_null(loop->watchers[i]);
}

static void loop_turn(struct loop *loop)
{
    struct pollfd fds[WATCHERS_MAX];
    nfds_t count = 0;
    for (int i = 0; i < WATCHERS_MAX; i++)
        if (loop->watchers[i] != NULL)
            fds[count++] = (struct pollfd){.fd = loop->watchers[i]->fd,
                                           .events = (short)((loop->watchers[i]->events & MULTI_IN ? POLLIN : 0) |
                                                             (loop->watchers[i]->events & MULTI_OUT ? POLLOUT : 0))};
    int64_t left = loop->due_ms < 0 ? 5000 : loop->due_ms - now_ms();
    poll(fds, count, left < 0 ? 0 : (int)left);
    if (loop->due_ms >= 0 && now_ms() >= loop->due_ms) {
        loop->due_ms = -1;
        multi_timeout(loop->multi);
    }
    for (nfds_t i = 0; i < count; i++) {
        bool alive = false;
        for (int k = 0; k < WATCHERS_MAX; k++)
            alive |= loop->watchers[k] != NULL && loop->watchers[k]->fd == fds[i].fd;
        if (fds[i].revents != 0 && alive)
            multi_socket_ready(loop->multi, fds[i].fd,
                               (fds[i].revents & POLLIN ? MULTI_IN : 0) | (fds[i].revents & POLLOUT ? MULTI_OUT : 0) |
                                   (fds[i].revents & (POLLERR | POLLHUP) ? MULTI_ERROR : 0));
    }
}

static void loop_run(struct loop *loop)
{
    int64_t end = now_ms() + 10000;
    while (multi_count(loop->multi) > 0) {
        loop_turn(loop);
        assert_true(now_ms() < end);
    }
}

/* What came back, copied. */
struct got {
    int calls;
    struct transfer_result result;
    char body[64];
    /* for tests that act from inside */
    struct loop *loop;
    const char *next_url;
    bool cancel;
};

static struct transfer_request request_of(const char *url)
{
    return (struct transfer_request){
        .method = "GET", .url = url, .connect_timeout_ms = 2000, .total_timeout_ms = 5000, .body_max_bytes = 1000};
}

static void on_done(void *argument, const struct transfer_result *result)
{
    struct got *got = argument;
    got->calls++;
    got->result = *result;
    snprintf(got->body, sizeof got->body, "%s", result->body);
    assert_int_equal(strlen(result->body) > 0 || result->length > 0, result->length > 0);
    if (got->cancel)
        multi_cancel_all(got->loop->multi);
    if (got->next_url != NULL) {
        struct transfer_request request = request_of(got->next_url);
        got->next_url = NULL;
        assert_int_equal(multi_submit(got->loop->multi, &request, on_done, got, NULL), ERROR_NONE);
        assert_int_equal(got->calls, 1); /* not from inside submit */
    }
}

static const char *url_of(const char *path)
{
    static char url[8][128];
    static unsigned turn;
    char *out = url[turn++ % 8];
    snprintf(out, 128, "http://127.0.0.1:%u%s", http_server_port(server), path);
    return out;
}

/* Carries one request with both drivers and holds the answers against each other. */
static struct got carry(const struct transfer_request *request)
{
    struct loop loop;
    struct got got = {0};
    loop_init(&loop);
    assert_int_equal(multi_submit(loop.multi, request, on_done, &got, NULL), ERROR_NONE);
    assert_int_equal(got.calls, 0);
    loop_run(&loop);
    assert_int_equal(got.calls, 1);
    loop_fini(&loop);

    struct buffer body;
    struct transfer_result result = {0};
    struct error err = ERROR_INIT;
    buffer_init(&body);
    assert_int_equal(blocking_request(request, &body, &result, &err), got.result.code);
    if (got.result.code == ERROR_NONE) {
        assert_int_equal(result.status, got.result.status);
        assert_string_equal(result.body, got.body);
        assert_string_equal(got.result.problem, "");
    } else {
        assert_int_equal(got.result.status, 0);
        assert_string_equal(got.body, "");
        assert_string_not_equal(got.result.problem, "");
        assert_string_not_equal(err.message, "");
    }
    buffer_fini(&body);
    return got;
}

static void expect(const char *path, enum error_code code, int status, const char *body)
{
    struct transfer_request request = request_of(url_of(path));
    struct got got = carry(&request);
    if (got.result.code != code || got.result.status != status || strcmp(got.body, body) != 0)
        fail_msg("%s: code %s, status %d, body '%s', problem '%s'", path, error_name(got.result.code),
                 got.result.status, got.body, got.result.problem);
}

static void test_answers(void **state)
{
    (void)state;
    expect("/ok", ERROR_NONE, 200, "hello");
    expect("/key", ERROR_NONE, 401, "out");
    expect("/redirect", ERROR_NONE, 302, "");
    expect("/garbage", ERROR_FORMAT, 0, "");
    expect("/close", ERROR_UNREACHABLE, 0, "");
    expect("/short", ERROR_UNREACHABLE, 0, "");
    expect("/big", ERROR_TOO_LARGE, 0, "");
    expect("/endless", ERROR_TOO_LARGE, 0, "");
}

static void test_key_and_body(void **state)
{
    (void)state;
    struct transfer_request request = request_of(url_of("/key"));
    request.key = "s3cret";
    struct got got = carry(&request);
    assert_int_equal(got.result.status, 200);
    request = request_of(url_of("/echo"));
    request.method = "POST";
    request.body = "{\"a\":1}";
    request.body_length = 7;
    got = carry(&request);
    assert_string_equal(got.body, "{\"a\":1}");
    request.body = NULL;
    got = carry(&request);
    assert_int_equal(got.result.length, 0);
    assert_int_equal(got.result.status, 200);
}

static void test_time_limits(void **state)
{
    (void)state;
    static const char *const paths[] = {"/never", "/slow"};
    for (int i = 0; i < 2; i++) {
        struct transfer_request request = request_of(url_of(paths[i]));
        request.total_timeout_ms = 200;
        int64_t start = now_ms();
        struct got got = carry(&request);
        assert_int_equal(got.result.code, ERROR_TIMEOUT);
        assert_non_null(strstr(got.result.problem, "200 ms"));
        assert_true(now_ms() - start < 3000);
    }
}

static void test_refused(void **state)
{
    (void)state;
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t length = sizeof address;
    char url[64];
    int fd = socket(AF_INET, SOCK_STREAM, 0); /* bound, never listening: nobody else gets the port meanwhile */
    assert_int_equal(bind(fd, (struct sockaddr *)&address, length), 0);
    getsockname(fd, (struct sockaddr *)&address, &length);
    snprintf(url, sizeof url, "http://127.0.0.1:%u/", ntohs(address.sin_port));
    struct transfer_request request = request_of(url);
    struct got got = carry(&request);
    assert_int_equal(got.result.code, ERROR_UNREACHABLE);
    close(fd);
}

static void test_requests_that_may_not_be_carried(void **state)
{
    (void)state;
    static const char *const urls[] = {
        "http://localhost:1/", "http://example.org/",   "ftp://127.0.0.1/", "file:///etc/passwd",
        "127.0.0.1:80/",       "http://u:p@127.0.0.1/", "http://127.1/x y", ""};
    struct loop loop;
    struct got got = {0};
    struct error err = ERROR_INIT;
    loop_init(&loop);
    for (size_t i = 0; i < sizeof urls / sizeof urls[0]; i++) {
        struct transfer_request request = request_of(urls[i]);
        if (multi_submit(loop.multi, &request, on_done, &got, &err) != ERROR_BAD_VALUE)
            fail_msg("%s was taken", urls[i]);
    }
    struct transfer_request request = request_of(url_of("/ok"));
    request.key = "s3cret\r\nX: y";
    assert_int_equal(multi_submit(loop.multi, &request, on_done, &got, &err), ERROR_BAD_VALUE);
    assert_null(strstr(err.message, "s3cret"));
    request = request_of(url_of("/ok"));
    request.body_max_bytes = TRANSFER_BODY_MAX + 1;
    assert_int_equal(multi_submit(loop.multi, &request, on_done, &got, &err), ERROR_BAD_VALUE);
    request = request_of(url_of("/ok"));
    request.total_timeout_ms = 0;
    assert_int_equal(multi_submit(loop.multi, &request, on_done, &got, &err), ERROR_BAD_VALUE);
    assert_int_equal(got.calls, 0);
    loop_fini(&loop);
}

static bool only_twice(void *user)
{
    unsigned *asked = user;
    return ++*asked < 3;
}

/* An answer that never comes is waited for until it is not wanted any more. */
static void test_not_wanted_any_more(void **state)
{
    (void)state;
    unsigned asked = 0;
    struct buffer body;
    struct transfer_result result;
    struct error err = ERROR_INIT;
    struct transfer_request request = request_of(url_of("/never"));
    request.total_timeout_ms = 60000;
    request.wanted = only_twice;
    request.user = &asked;
    buffer_init(&body);
    assert_int_equal(blocking_request(&request, &body, &result, &err), ERROR_INTERRUPTED);
    assert_int_equal(asked, 3);
    buffer_fini(&body);
}

static void test_many_at_once_and_reuse(void **state)
{
    (void)state;
    struct loop loop;
    struct got got[20] = {0};
    loop_init(&loop);
    for (int i = 0; i < 20; i++) {
        struct transfer_request request = request_of(url_of(i % 3 == 0 ? "/ok" : i % 3 == 1 ? "/close" : "/garbage"));
        assert_int_equal(multi_submit(loop.multi, &request, on_done, &got[i], NULL), ERROR_NONE);
    }
    loop_run(&loop);
    for (int i = 0; i < 20; i++) {
        assert_int_equal(got[i].calls, 1);
        assert_int_equal(got[i].result.status, i % 3 == 0 ? 200 : 0);
    }
    unsigned before = http_server_connections(server);
    for (int i = 0; i < 5; i++) { /* one after the other: on a connection that is there */
        struct transfer_request request = request_of(url_of("/ok"));
        struct got one = {0};
        assert_int_equal(multi_submit(loop.multi, &request, on_done, &one, NULL), ERROR_NONE);
        loop_run(&loop);
        assert_int_equal(one.result.status, 200);
    }
    assert_int_equal(http_server_connections(server), before);
    loop_fini(&loop);
}

static void test_user_submits_and_cancels_from_inside(void **state)
{
    (void)state;
    struct loop loop;
    loop_init(&loop);
    struct got chain = {.loop = &loop, .next_url = url_of("/key")};
    struct transfer_request request = request_of(url_of("/ok"));
    assert_int_equal(multi_submit(loop.multi, &request, on_done, &chain, NULL), ERROR_NONE);
    loop_run(&loop);
    assert_int_equal(chain.calls, 2);
    assert_int_equal(chain.result.status, 401);

    struct got never = {0}, killer = {.loop = &loop, .cancel = true};
    struct transfer_request slow = request_of(url_of("/never"));
    assert_int_equal(multi_submit(loop.multi, &slow, on_done, &never, NULL), ERROR_NONE);
    assert_int_equal(multi_submit(loop.multi, &request, on_done, &killer, NULL), ERROR_NONE);
    loop_run(&loop);
    assert_int_equal(killer.calls, 1);
    assert_int_equal(never.calls, 0);
    loop_fini(&loop);
}

static void test_end_with_requests_under_way(void **state)
{
    (void)state;
    for (int turns = 0; turns < 6; turns++) {
        struct loop loop;
        struct got got = {0};
        loop_init(&loop);
        struct transfer_request request = request_of(url_of("/slow"));
        for (int i = 0; i < 3; i++)
            assert_int_equal(multi_submit(loop.multi, &request, on_done, &got, NULL), ERROR_NONE);
        for (int i = 0; i < turns; i++)
            loop_turn(&loop);
        loop_fini(&loop);
        assert_int_equal(got.calls, 0);
    }
}

static int start(void **state)
{
    (void)state;
    /* a proxy in the environment must not matter: nothing listens on this one */
    static const char *const names[] = {"http_proxy", "HTTP_PROXY", "https_proxy", "ALL_PROXY", "all_proxy"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        setenv(names[i], "http://127.0.0.1:1", 1);
    server = http_server_start();
    return 0;
}

static int stop(void **state)
{
    (void)state;
    http_server_stop(server);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_answers),
        cmocka_unit_test(test_key_and_body),
        cmocka_unit_test(test_time_limits),
        cmocka_unit_test(test_refused),
        cmocka_unit_test(test_requests_that_may_not_be_carried),
        cmocka_unit_test(test_not_wanted_any_more),
        cmocka_unit_test(test_many_at_once_and_reuse),
        cmocka_unit_test(test_user_submits_and_cancels_from_inside),
        cmocka_unit_test(test_end_with_requests_under_way),
    };
    return cmocka_run_group_tests(tests, start, stop);
}
