/* Requests and answers of the control socket, from clients that behave and clients that do not. */
#include "control_helper.h"

static void test_hello_and_peer(void **state)
{
    struct fixture *f = *state;
    struct client client = client_open(f);
    send_text(f, &client, hello);
    struct json *answer = next_answer(f, &client);
    uint64_t version = 0;
    const char *run = "";
    assert_int_equal(json_get_u64(answer, "result.version", &version, NULL), ERROR_NONE);
    assert_int_equal(version, CONTROL_VERSION);
    assert_int_equal(json_get_string(answer, "result.run", &run, NULL), ERROR_NONE);
    assert_string_equal(run, "t");
    json_free(answer);
    send_text(f, &client, status);
    expect_text(f, &client, "result.state", "armed");
    assert_int_equal(f->seen_uid, geteuid());
    assert_int_equal(f->seen_pid, getpid());
    struct stat found;
    assert_int_equal(lstat(f->path, &found), 0);
    assert_int_equal(found.st_mode & 07777, 0600);
    client_close(&client);
    turn_until_gone(f, 1);
    assert_ptr_equal(f->gone_connection, f->last_connection);
}

static void test_first_must_be_hello(void **state)
{
    struct fixture *f = *state;
    static const struct {
        const char *line;
        int64_t code;
        const char *name;
    } cases[] = {
        {status, -32600, "protocol"},
        {"{\"jsonrpc\":\"2.0\",\"id\":0,\"method\":\"hello\",\"params\":{\"version\":2}}\n", -32000, "protocol"},
        {"{\"jsonrpc\":\"2.0\",\"id\":0,\"method\":\"hello\"}\n", -32602, "protocol"},
        {"GET / HTTP/1.1\r\n", -32700, "protocol"},
        {"\n", -32700, "protocol"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct client client = client_open(f);
        send_text(f, &client, cases[i].line);
        send_text(f, &client, status); /* thrown away */
        expect_error(f, &client, cases[i].code, cases[i].name);
        expect_end(f, &client);
        client_close(&client);
    }
    assert_int_equal(f->gone, 0); /* none had said hello */
}

static void test_malformed_requests(void **state)
{
    struct fixture *f = *state;
    static const struct {
        const char *line;
        int64_t code;
    } cases[] = {
        {"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"status\"} x\n", -32700},
        {"{\"jsonrpc\":\"2.0\",\"id\":1,\"id\":2,\"method\":\"status\"}\n", -32700},
        {"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"stat\xffus\"}\n", -32700},
        {"[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[1]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]\n", -32700},
        {"[]\n", -32600},
        {"[{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"status\"}]\n", -32600},
        {"{\"id\":1,\"method\":\"status\"}\n", -32600},
        {"{\"jsonrpc\":\"1.0\",\"id\":1,\"method\":\"status\"}\n", -32600},
        {"{\"jsonrpc\":\"2.0\",\"method\":\"status\"}\n", -32600},
        {"{\"jsonrpc\":\"2.0\",\"id\":null,\"method\":\"status\"}\n", -32600},
        {"{\"jsonrpc\":\"2.0\",\"id\":1.5,\"method\":\"status\"}\n", -32600},
        {"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":5}\n", -32600},
        {"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"status\",\"more\":1}\n", -32600},
        {"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"Status\"}\n", -32601},
        {"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"start\"}\n", -32601},
        {"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"status\",\"params\":[]}\n", -32602},
        {"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"status\",\"params\":{\"ru\":\"t\"}}\n", -32602},
        {"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"wait\",\"params\":{\"for\":\"armed\"}}\n", -32602},
        {"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"wait\",\"params\":{\"for\":null,\"timeout_ms\":1}}\n", -32602},
    };
    struct client client = client_ready(f);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        send_text(f, &client, cases[i].line);
        expect_error(f, &client, cases[i].code, "protocol");
    }
    send_text(f, &client, hello); /* once is enough */
    expect_error(f, &client, -32600, "protocol");
    send_text(f, &client, status); /* the connection is still good */
    expect_text(f, &client, "result.state", "armed");
    client_close(&client);
}

static void test_refusal_and_text_id(void **state)
{
    struct fixture *f = *state;
    struct client client = client_ready(f);
    send_text(f, &client,
              "{\"jsonrpc\":\"2.0\",\"id\":\"a\\u00e9\",\"method\":\"pause\",\"params\":{\"run\":\"t\"}}\n");
    struct json *answer = next_answer(f, &client);
    const char *text = "";
    assert_int_equal(json_get_string(answer, "id", &text, NULL), ERROR_NONE);
    assert_string_equal(text, "a\xc3\xa9");
    assert_int_equal(json_get_string(answer, "error.message", &text, NULL), ERROR_NONE);
    assert_string_equal(text, "the run is loading");
    json_free(answer);
    send_text(f, &client, "{\"jsonrpc\":\"2.0\",\"id\":5,\"method\":\"pause\"}\n");
    expect_error(f, &client, -32000, "state");
    client_close(&client);
}

static void test_one_byte_at_a_time(void **state)
{
    struct fixture *f = *state;
    struct client client = client_open(f);
    for (size_t i = 0; i < sizeof hello - 1; i++) {
        send_bytes(f, &client, hello + i, 1);
        uv_run(&f->loop, UV_RUN_NOWAIT);
    }
    expect_text(f, &client, "result.run", "t");
    for (size_t i = 0; i < sizeof status - 1; i++)
        send_bytes(f, &client, status + i, 1);
    expect_text(f, &client, "result.state", "armed");
    client_close(&client);
}

static void test_pipelined_in_order(void **state)
{
    struct fixture *f = *state;
    struct client client = client_open(f);
    struct buffer all;
    buffer_init(&all);
    buffer_text(&all, hello);
    for (int i = 1; i <= 500; i++)
        buffer_format(&all, "{\"jsonrpc\":\"2.0\",\"id\":%d,\"method\":\"status\"}\n", i);
    send_bytes(f, &client, all.data, all.length);
    for (int64_t i = 0; i <= 500; i++) {
        struct json *answer = next_answer(f, &client);
        int64_t id = -1;
        assert_int_equal(json_get_i64(answer, "id", &id, NULL), ERROR_NONE);
        assert_int_equal(id, i);
        json_free(answer);
    }
    buffer_fini(&all);
    client_close(&client);
}

/* A request of exactly `length` bytes: an unknown method with a long id is too easy to refuse, so blanks fill it. */
static void send_padded(struct fixture *f, struct client *client, size_t length)
{
    char *line = malloc(length + 1);
    memset(line, ' ', length);
    memcpy(line, status, sizeof status - 2);
    line[length] = '\n';
    send_bytes(f, client, line, length + 1);
    free(line);
}

static void test_frame_limit_in(void **state)
{
    struct fixture *f = *state;
    struct client client = client_ready(f);
    send_padded(f, &client, CONTROL_FRAME_MAX);
    expect_text(f, &client, "result.state", "armed");
    send_padded(f, &client, CONTROL_FRAME_MAX + 1);
    expect_error(f, &client, -32600, "too-large");
    expect_end(f, &client);
    client_close(&client);
}

static void test_frame_limit_out(void **state)
{
    struct fixture *f = *state;
    struct client client = client_ready(f);
    char line[128];
    size_t around = strlen("{\"jsonrpc\":\"2.0\",\"id\":7,\"result\":{\"text\":\"\"}}");
    snprintf(line, sizeof line, "{\"jsonrpc\":\"2.0\",\"id\":7,\"method\":\"logs\",\"params\":{\"offset\":%zu}}\n",
             (size_t)CONTROL_FRAME_MAX - around);
    send_text(f, &client, line);
    struct json *answer = next_answer(f, &client);
    const char *text = "";
    assert_int_equal(json_get_string(answer, "result.text", &text, NULL), ERROR_NONE);
    assert_int_equal(strlen(text), CONTROL_FRAME_MAX - around);
    json_free(answer);
    snprintf(line, sizeof line, "{\"jsonrpc\":\"2.0\",\"id\":8,\"method\":\"logs\",\"params\":{\"offset\":%zu}}\n",
             (size_t)CONTROL_FRAME_MAX - around + 1);
    send_text(f, &client, line);
    expect_error(f, &client, -32000, "too-large");
    client_close(&client);
}

static void test_client_gone_before_answer(void **state)
{
    struct fixture *f = *state;
    struct client client = client_ready(f);
    send_text(f, &client, wait_armed);
    turn_until_held(f, 1);
    assert_ptr_equal(f->held[0]->connection, f->last_connection);
    client_close(&client);
    turn_until_gone(f, 1);
    assert_ptr_equal(f->gone_connection, f->last_connection);
    assert_null(f->held[0]->connection);
    control_reply(f->held[0], json_object()); /* dropped */
    f->held_count = 0;
    struct client other = client_ready(f);
    send_text(f, &other, status);
    expect_text(f, &other, "result.state", "armed");
    client_close(&other);
}

static void test_clients_that_hang_up(void **state)
{
    struct fixture *f = *state;
    for (int i = 0; i < 300; i++) {
        int descriptor = open_socket(f->path);
        assert_true(descriptor >= 0);
        assert_true(send(descriptor, hello, sizeof hello - 1, MSG_NOSIGNAL) > 0);
        assert_true(send(descriptor, status, sizeof status - 1, MSG_NOSIGNAL) > 0);
        close(descriptor);
        uv_run(&f->loop, UV_RUN_NOWAIT);
    }
    uint64_t end = loop_now_ms() + LOOP_PATIENCE_MS;
    while (control_connections(f->server) > 0 && loop_now_ms() < end)
        loop_turn(&f->loop, -1);
    assert_int_equal(control_connections(f->server), 0);
}

static void test_outstanding_limit(void **state)
{
    struct fixture *f = *state;
    struct client client = client_ready(f);
    for (int i = 0; i < CONTROL_OUTSTANDING; i++)
        send_text(f, &client, wait_armed);
    turn_until_held(f, CONTROL_OUTSTANDING);
    send_text(f, &client, wait_armed);
    expect_error(f, &client, -32000, "busy");
    control_reply(f->held[--f->held_count], json_object());
    json_free(next_answer(f, &client));
    send_text(f, &client, status);
    expect_text(f, &client, "result.state", "armed");
    client_close(&client);
}

static void test_slow_reader(void **state)
{
    struct fixture *f = *state;
    struct client slow = client_ready(f);
    struct client good = client_ready(f);
    for (int i = 0; i < 20 && f->gone == 0; i++) {
        send_text(f, &slow, "{\"jsonrpc\":\"2.0\",\"id\":7,\"method\":\"logs\",\"params\":{\"offset\":1000000}}\n");
        loop_turn(&f->loop, -1);
    }
    turn_until_gone(f, 1);
    send_text(f, &good, status);
    expect_text(f, &good, "result.state", "armed");
    client_close(&slow);
    client_close(&good);
}

static void test_close_sends_what_is_queued(void **state)
{
    struct fixture *f = *state;
    struct client client = client_ready(f);
    send_text(f, &client, wait_armed);
    turn_until_held(f, 1);
    send_text(f, &client, "{\"jsonrpc\":\"2.0\",\"id\":7,\"method\":\"logs\",\"params\":{\"offset\":1000000}}\n");
    uv_run(&f->loop, UV_RUN_NOWAIT);
    control_close(f->server, 5000, loop_set_true, &f->closed);
    f->server = NULL;
    struct json *answer = next_answer(f, &client);
    assert_non_null(json_find(answer, "result.text"));
    json_free(answer);
    expect_end(f, &client);
    loop_until(&f->loop, &f->closed);
    assert_int_equal(f->gone, 0); /* nothing is called after the close */
    assert_int_equal(access(f->path, F_OK), -1);
    client_close(&client);
}

static void test_close_does_not_wait_for_ever(void **state)
{
    struct fixture *f = *state;
    struct client client = client_ready(f);
    send_text(f, &client, "{\"jsonrpc\":\"2.0\",\"id\":7,\"method\":\"logs\",\"params\":{\"offset\":1000000}}\n");
    struct pollfd answer = {client.descriptor, POLLIN, 0};
    for (int turns = 0; turns < 1000 && poll(&answer, 1, 0) == 0; turns++)
        loop_turn(&f->loop, client.descriptor);
    uint64_t start = loop_now_ms();
    control_close(f->server, 100, loop_set_true, &f->closed);
    f->server = NULL;
    loop_until(&f->loop, &f->closed);
    assert_in_range(loop_now_ms() - start, 50, 1500);
    client_close(&client);
}

int main(void)
{
    signal(SIGPIPE, SIG_IGN);
#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        T(test_hello_and_peer),
        T(test_first_must_be_hello),
        T(test_malformed_requests),
        T(test_refusal_and_text_id),
        T(test_one_byte_at_a_time),
        T(test_pipelined_in_order),
        T(test_frame_limit_in),
        T(test_frame_limit_out),
        T(test_client_gone_before_answer),
        T(test_clients_that_hang_up),
        T(test_outstanding_limit),
        T(test_slow_reader),
        T(test_close_sends_what_is_queued),
        T(test_close_does_not_wait_for_ever),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
