/* HTTP on the loop against a small server: answers, failures, many at once, and an end at any moment. */
#include "http_server.h"
#include "loop_helper.h"

#include "base/memory.h"
#include "loop/transfers.h"

#include <arpa/inet.h>
#include <sys/socket.h>

struct fixture {
    uv_loop_t loop;
    struct http_server *server;
    struct transfers *transfers;
    enum error_code code;
    int status, calls, wanted, again;
    char *body;
    size_t length;
    bool done, closed, close_in_done;
};

static int setup(void **state)
{
    struct fixture *f = calloc(1, sizeof *f);
    uv_loop_init(&f->loop);
    f->server = http_server_start();
    f->transfers = transfers_new(&f->loop);
    f->wanted = 1;
    *state = f;
    return 0;
}

static int teardown(void **state)
{
    struct fixture *f = *state;
    if (f->transfers != NULL)
        transfers_close(f->transfers, loop_set_true, &f->closed);
    loop_until(&f->loop, &f->closed);
    loop_end(&f->loop);
    http_server_stop(f->server);
    free(f->body);
    free(f);
    return 0;
}

static void submit(struct fixture *f, const char *path, uint64_t limit_ms);

static void on_done(void *user, const struct transfer_result *result)
{
    struct fixture *f = user;
    f->code = result->code;
    f->status = result->status;
    free(f->body);
    f->body = memory_copy_n(result->body, result->length);
    f->length = result->length;
    f->done = ++f->calls == f->wanted;
    if (f->again > 0) {
        f->again--;
        submit(f, "/ok", 5000);
    }
    if (f->close_in_done) {
        transfers_close(f->transfers, loop_set_true, &f->closed);
        f->transfers = NULL;
    }
}

static void submit(struct fixture *f, const char *path, uint64_t limit_ms)
{
    char url[128];
    snprintf(url, sizeof url, "http://127.0.0.1:%u%s", (unsigned)http_server_port(f->server), path);
    struct transfer_request request = {.method = "GET",
                                       .url = url,
                                       .connect_timeout_ms = 1000,
                                       .total_timeout_ms = limit_ms,
                                       .body_max_bytes = 1 << 20};
    struct error err = ERROR_INIT;
    int calls = f->calls;
    if (multi_submit(transfers_multi(f->transfers), &request, on_done, f, &err) != ERROR_NONE)
        fail_msg("%s", err.message);
    assert_int_equal(f->calls, calls); /* never from inside */
}

static void test_answer(void **state)
{
    struct fixture *f = *state;
    submit(f, "/ok", 5000);
    loop_until(&f->loop, &f->done);
    assert_int_equal(f->code, ERROR_NONE);
    assert_int_equal(f->status, 200);
    assert_string_equal(f->body, "hello");
    submit(f, "/big", 5000);
    f->done = false;
    f->wanted = 2;
    loop_until(&f->loop, &f->done);
    assert_int_equal(f->code, ERROR_NONE);
    assert_int_equal(f->length, 200 * 1024);
}

static void test_failures(void **state)
{
    struct fixture *f = *state;
    static const struct {
        const char *path;
        enum error_code code;
    } cases[] = {
        {"/never", ERROR_TIMEOUT},
        {"/slow", ERROR_TIMEOUT},
        {"/close", ERROR_UNREACHABLE},
        {"/endless", ERROR_TOO_LARGE},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        f->done = false;
        f->wanted = f->calls + 1;
        submit(f, cases[i].path, cases[i].code == ERROR_TIMEOUT ? 100 : 5000);
        loop_until(&f->loop, &f->done);
        assert_int_equal(f->code, cases[i].code);
        assert_int_equal(f->status, 0);
    }
}

static void test_nobody_listens(void **state)
{
    struct fixture *f = *state;
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof address;
    int taken = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0); /* bound, so nobody else gets it, and not listening */
    assert_int_equal(bind(taken, (struct sockaddr *)&address, sizeof address), 0);
    assert_int_equal(getsockname(taken, (struct sockaddr *)&address, &size), 0);
    char url[64];
    snprintf(url, sizeof url, "http://127.0.0.1:%u/", (unsigned)ntohs(address.sin_port));
    struct transfer_request request = {
        .method = "GET", .url = url, .connect_timeout_ms = 1000, .total_timeout_ms = 5000, .body_max_bytes = 100};
    assert_int_equal(multi_submit(transfers_multi(f->transfers), &request, on_done, f, NULL), ERROR_NONE);
    loop_until(&f->loop, &f->done);
    assert_int_equal(f->code, ERROR_UNREACHABLE);
    close(taken);
}

/* Connections close and open all the time, so descriptor numbers are used again at once. */
static void test_many_at_once(void **state)
{
    struct fixture *f = *state;
    static const char *const paths[] = {"/ok", "/close", "/ok", "/short", "/big"};
    f->again = 100;
    f->wanted = 160;
    for (int i = 0; i < 60; i++)
        submit(f, paths[i % 5], 8000);
    loop_until(&f->loop, &f->done);
    assert_int_equal(multi_count(transfers_multi(f->transfers)), 0);
}

static void test_idle_loop_sleeps(void **state)
{
    struct fixture *f = *state;
    submit(f, "/ok", 5000);
    loop_until(&f->loop, &f->done);
    uint64_t end = loop_now_ms() + 200;
    int turns = 0;
    while (loop_now_ms() < end) {
        loop_turn(&f->loop, -1); /* at most 10 ms each when nothing happens */
        turns++;
    }
    assert_in_range(turns, 0, 60);
}

static void test_close_with_requests_under_way(void **state)
{
    struct fixture *f = *state;
    for (int turns = 0; turns < 12; turns++) {
        submit(f, "/never", 5000);
        submit(f, "/slow", 5000);
        submit(f, "/endless", 5000);
        for (int i = 0; i < turns; i++)
            loop_turn(&f->loop, -1);
        int calls = f->calls;
        f->closed = false;
        transfers_close(f->transfers, loop_set_true, &f->closed);
        loop_until(&f->loop, &f->closed);
        assert_int_equal(f->calls, calls);
        f->transfers = transfers_new(&f->loop);
    }
    f->closed = false;
}

static void test_close_from_done(void **state)
{
    struct fixture *f = *state;
    f->close_in_done = true;
    submit(f, "/ok", 5000);
    submit(f, "/ok", 5000);
    submit(f, "/never", 5000);
    loop_until(&f->loop, &f->closed);
    assert_int_equal(f->calls, 1);
}

int main(void)
{
    signal(SIGPIPE, SIG_IGN);
#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        T(test_answer),          T(test_failures),         T(test_nobody_listens),
        T(test_many_at_once),    T(test_idle_loop_sleeps), T(test_close_with_requests_under_way),
        T(test_close_from_done),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
