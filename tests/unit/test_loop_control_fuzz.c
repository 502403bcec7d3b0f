/* Requests that are nearly right: each line of a corpus, changed at random in every way that a broken client or a
 * hostile one may, is answered by one line, and the connection goes on. The seed is printed; KLDUMP_TEST_SEED takes
 * another. */
#include "control_helper.h"

enum { ROUNDS = 20000, AT_ONCE = 32, LINE_MAX_BYTES = 4096 };

static const char *const corpus[] = {
    "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"status\"}",
    "{\"jsonrpc\":\"2.0\",\"id\":\"a\\u00e9\\ud83d\\ude00\",\"method\":\"pause\",\"params\":{\"run\":\"t\"}}",
    "{\"jsonrpc\":\"2.0\",\"id\":9007199254740993,\"method\":\"logs\",\"params\":{\"offset\":12}}",
    "{\"jsonrpc\":\"2.0\",\"id\":-1,\"method\":\"dump\",\"params\":{\"experiment\":\"e\",\"own_request_ids\":[\"x\","
    "\"y\"]}}",
    "{\"jsonrpc\":\"2.0\",\"id\":1e3,\"method\":\"status\",\"params\":{\"run\":null}}",
    "{\"jsonrpc\":\"2.0\",\"id\":0,\"method\":\"hello\",\"params\":{\"version\":1,\"by\":\"b\"}}",
    "{\"jsonrpc\":\"2.0\",\"id\":[{}],\"method\":{},\"params\":[[[[[[]]]]]]}",
    "[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[1]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]",
    "",
};
static const char pieces[][12] = {"{",       "}",   "[", "]",    "\"",   ",",  ":",    "\\",       "\\u0000",
                                  "\\ud800", "1e9", "-", "null", "true", "id", "\xff", "\xc0\xaf", "\xed\xa0\x80",
                                  "\t",      "\r"};

static uint64_t state_of_random;

static size_t below(size_t limit)
{
    state_of_random ^= state_of_random << 13;
    state_of_random ^= state_of_random >> 7;
    state_of_random ^= state_of_random << 17;
    return limit == 0 ? 0 : (size_t)(state_of_random % limit);
}

static void put(char *line, size_t *length, size_t at, const char *bytes, size_t count)
{
    if (*length + count > LINE_MAX_BYTES)
        return;
    memmove(line + at + count, line + at, *length - at);
    memcpy(line + at, bytes, count);
    *length += count;
}

static void change(char *line, size_t *length)
{
    size_t at = below(*length + 1), from = below(*length + 1), count = below(*length - from + 1);
    char copy[LINE_MAX_BYTES];
    switch (below(5)) {
    case 0: /* another byte */
        if (at < *length)
            line[at] = (char)below(256);
        break;
    case 1: /* a part is gone */
        memmove(line + from, line + from + count, *length - from - count);
        *length -= count;
        break;
    case 2: /* a part is there twice */
        memcpy(copy, line + from, count);
        put(line, length, at, copy, count);
        break;
    case 3: { /* something that means something */
        const char *piece = pieces[below(sizeof pieces / sizeof pieces[0])];
        put(line, length, at, piece, strlen(piece));
        break;
    }
    default: /* it ends early */
        *length = at;
    }
}

/* One answer for each line; `held` ones are answered in the middle. */
static void expect_answers(struct fixture *f, struct client *client, int count)
{
    for (; count > 0; count--) {
        struct json *answer = next_answer(f, client);
        assert_non_null(answer);
        assert_true((json_member(answer, "result") == NULL) != (json_member(answer, "error") == NULL));
        assert_non_null(json_member(answer, "id"));
        json_free(answer);
    }
}

static void test_every_line_is_answered_once(void **state)
{
    struct fixture *f = *state;
    const char *told = getenv("KLDUMP_TEST_SEED");
    uint64_t seed = told != NULL ? strtoull(told, NULL, 10) : 20261130;
    state_of_random = seed | 1;
    print_message("seed %llu\n", (unsigned long long)seed);
    struct client client = client_ready(f);
    for (int round = 0; round < ROUNDS; round += AT_ONCE) {
        struct buffer all;
        buffer_init(&all);
        for (int i = 0; i < AT_ONCE; i++) {
            char line[LINE_MAX_BYTES];
            const char *text = corpus[below(sizeof corpus / sizeof corpus[0])];
            size_t length = strlen(text);
            memcpy(line, text, length);
            for (size_t changes = 1 + below(4); changes > 0; changes--)
                change(line, &length);
            for (size_t k = 0; k < length; k++)
                line[k] = line[k] == '\n' ? ' ' : line[k];
            buffer_append(&all, line, length);
            buffer_append(&all, "\n", 1);
        }
        send_bytes(f, &client, all.data, all.length);
        buffer_fini(&all);
        expect_answers(f, &client, AT_ONCE);
    }
    send_text(f, &client, status);
    expect_text(f, &client, "result.state", "armed");
    client_close(&client);
}

/* Whatever comes in place of hello: at most one line, then the end. */
static void test_in_place_of_hello(void **state)
{
    struct fixture *f = *state;
    for (int round = 0; round < ROUNDS / 20; round++) {
        char line[LINE_MAX_BYTES];
        size_t length = sizeof hello - 2;
        memcpy(line, hello, length);
        for (size_t changes = 1 + below(3); changes > 0; changes--)
            change(line, &length);
        for (size_t k = 0; k < length; k++)
            line[k] = line[k] == '\n' ? ' ' : line[k];
        put(line, &length, length, "\n", 1);
        struct client client = client_open(f);
        send_bytes(f, &client, line, length);
        struct json *answer = next_answer(f, &client);
        assert_non_null(answer);
        if (json_member(answer, "error") != NULL)
            expect_end(f, &client);
        json_free(answer);
        client_close(&client);
    }
}

int main(void)
{
    signal(SIGPIPE, SIG_IGN);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_every_line_is_answered_once, setup, teardown),
        cmocka_unit_test_setup_teardown(test_in_place_of_hello, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
