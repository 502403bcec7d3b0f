/* The server's output: every byte passed on, lines cut right, and an end although somebody holds the pipe. */
#include "loop_helper.h"

#include "base/buffer.h"
#include "loop/output.h"

#include <fcntl.h>

struct fixture {
    uv_loop_t loop;
    int writers[OUTPUT_STREAMS];
    struct output *output;
    struct buffer bytes; /* of both streams */
    struct buffer lines; /* "O:LINE|" or "E:LINE|" each */
    size_t longest;
    bool drained, complete, closed;
    bool close_in_line;
};

static void on_bytes(enum output_stream stream, const char *data, size_t length, void *user)
{
    (void)stream;
    struct fixture *f = user;
    buffer_append(&f->bytes, data, length);
}

static void on_line(enum output_stream stream, const char *line, size_t length, void *user)
{
    struct fixture *f = user;
    buffer_format(&f->lines, "%c:%.*s|", stream == OUTPUT_STDOUT ? 'O' : 'E', (int)length, line);
    f->longest = length > f->longest ? length : f->longest;
    if (f->close_in_line) {
        output_close(f->output, loop_set_true, &f->closed);
        f->output = NULL;
    }
}

static void on_drained(bool complete, void *user)
{
    struct fixture *f = user;
    assert_false(f->drained);
    f->drained = true;
    f->complete = complete;
}

static int setup(void **state)
{
    struct fixture *f = calloc(1, sizeof *f);
    uv_loop_init(&f->loop);
    buffer_init(&f->bytes);
    buffer_init(&f->lines);
    struct output_options options = {.bytes = on_bytes, .line = on_line, .user = f};
    for (int i = 0; i < OUTPUT_STREAMS; i++) {
        int ends[2];
        assert_int_equal(pipe2(ends, O_CLOEXEC), 0);
        options.descriptors[i] = ends[0];
        f->writers[i] = ends[1];
    }
    assert_int_equal(output_start(&f->loop, &options, &f->output, NULL), ERROR_NONE);
    *state = f;
    return 0;
}

static void shut(struct fixture *f, enum output_stream stream)
{
    if (f->writers[stream] >= 0)
        close(f->writers[stream]);
    f->writers[stream] = -1;
}

static int teardown(void **state)
{
    struct fixture *f = *state;
    if (f->output != NULL) {
        output_close(f->output, loop_set_true, &f->closed);
        loop_until(&f->loop, &f->closed);
    }
    loop_end(&f->loop);
    shut(f, OUTPUT_STDOUT);
    shut(f, OUTPUT_STDERR);
    buffer_fini(&f->bytes);
    buffer_fini(&f->lines);
    free(f);
    return 0;
}

/* Writes all of it while the loop reads. */
static void put(struct fixture *f, enum output_stream stream, const char *data, size_t length)
{
    fcntl(f->writers[stream], F_SETFL, O_NONBLOCK);
    uint64_t end = loop_now_ms() + LOOP_PATIENCE_MS;
    while (length > 0 && loop_now_ms() < end) {
        ssize_t count = write(f->writers[stream], data, length);
        if (count > 0) {
            data += count;
            length -= (size_t)count;
        }
        uv_run(&f->loop, UV_RUN_NOWAIT);
    }
    assert_int_equal(length, 0);
    uv_run(&f->loop, UV_RUN_NOWAIT);
}

static void put_text(struct fixture *f, enum output_stream stream, const char *text)
{
    put(f, stream, text, strlen(text));
}

static void drain(struct fixture *f, uint64_t limit_ms)
{
    output_drain(f->output, limit_ms, on_drained, f);
    assert_false(f->drained);
    loop_until(&f->loop, &f->drained);
}

static void test_lines_of_two_streams(void **state)
{
    struct fixture *f = *state;
    put_text(f, OUTPUT_STDOUT, "one\ntw");
    put_text(f, OUTPUT_STDERR, "err\n");
    put_text(f, OUTPUT_STDOUT, "o\n\n10%\r20%\r\nlast");
    shut(f, OUTPUT_STDOUT);
    shut(f, OUTPUT_STDERR);
    drain(f, 5000);
    assert_true(f->complete);
    assert_string_equal(f->lines.data, "O:one|E:err|O:two|O:10%|O:20%|O:last|");
    assert_string_equal(f->bytes.data, "one\ntwerr\no\n\n10%\r20%\r\nlast");
    assert_int_equal(output_bytes(f->output), f->bytes.length);
}

/* A turn of the loop takes a bounded part of what is there: the heartbeat must not wait behind output. */
static void test_turn_is_bounded(void **state)
{
    struct fixture *f = *state;
    int writer = f->writers[OUTPUT_STDOUT];
    fcntl(writer, F_SETFL, O_NONBLOCK);
    if (fcntl(writer, F_SETPIPE_SZ, 1024 * 1024) < 1024 * 1024)
        skip();
    char *text = malloc(1024 * 1024);
    memset(text, '\n', 1024 * 1024);
    assert_int_equal(write(writer, text, 1024 * 1024), 1024 * 1024);
    uv_run(&f->loop, UV_RUN_NOWAIT);
    assert_in_range(f->bytes.length, 1, 512 * 1024);
    free(text);
}

static void test_long_line(void **state)
{
    struct fixture *f = *state;
    size_t length = 1000000;
    char *text = malloc(length);
    memset(text, 'L', length);
    put(f, OUTPUT_STDERR, text, length);
    put_text(f, OUTPUT_STDERR, "\nshort\n");
    assert_int_equal(f->bytes.length, length + 7);
    assert_memory_equal(f->bytes.data, text, length);
    assert_int_equal(f->longest, OUTPUT_LINE_MAX);
    assert_int_equal(f->lines.length, 2 + OUTPUT_LINE_MAX + 1 + 2 + 5 + 1);
    assert_string_equal(f->lines.data + f->lines.length - 8, "E:short|");
    free(text);
}

static void test_line_of_exactly_the_limit(void **state)
{
    struct fixture *f = *state;
    char text[OUTPUT_LINE_MAX + 2];
    memset(text, 'x', sizeof text);
    text[OUTPUT_LINE_MAX] = '\n';
    put(f, OUTPUT_STDOUT, text, OUTPUT_LINE_MAX + 1);
    put(f, OUTPUT_STDOUT, text, 1); /* then one byte more, in two pieces */
    put(f, OUTPUT_STDOUT, text, OUTPUT_LINE_MAX);
    put_text(f, OUTPUT_STDOUT, "\nz\n");
    assert_int_equal(f->longest, OUTPUT_LINE_MAX);
    assert_int_equal(f->lines.length, 2 * (OUTPUT_LINE_MAX + 3) + strlen("O:z|"));
}

static void test_drain_after_the_end(void **state)
{
    struct fixture *f = *state;
    put_text(f, OUTPUT_STDOUT, "x\n");
    shut(f, OUTPUT_STDOUT);
    shut(f, OUTPUT_STDERR);
    for (int i = 0; i < 5; i++)
        uv_run(&f->loop, UV_RUN_NOWAIT);
    drain(f, 60000);
    assert_true(f->complete);
}

static void test_somebody_holds_the_pipe(void **state)
{
    struct fixture *f = *state;
    put_text(f, OUTPUT_STDOUT, "no end");
    uint64_t start_ms = loop_now_ms();
    drain(f, 100);
    assert_in_range(loop_now_ms() - start_ms, 80, 3000);
    assert_false(f->complete);
    assert_string_equal(f->lines.data, "O:no end|");
    assert_true(write(f->writers[OUTPUT_STDOUT], "late\n", 5) == 5);
    uv_run(&f->loop, UV_RUN_NOWAIT);
    assert_string_equal(f->bytes.data, "no end");
}

/* The loop was busy for longer than the limit: what lies in the pipe must not be lost to the timer. */
static void test_late_turn_loses_nothing(void **state)
{
    struct fixture *f = *state;
    char block[4096];
    memset(block, 'b', sizeof block);
    size_t written = 0;
    fcntl(f->writers[OUTPUT_STDERR], F_SETFL, O_NONBLOCK);
    ssize_t count;
    while ((count = write(f->writers[OUTPUT_STDERR], block, sizeof block)) > 0)
        written += (size_t)count;
    output_drain(f->output, 10, on_drained, f);
    usleep(30000);
    loop_until(&f->loop, &f->drained);
    assert_int_equal(f->bytes.length, written);
}

static void test_close_from_a_line(void **state)
{
    struct fixture *f = *state;
    f->close_in_line = true;
    put_text(f, OUTPUT_STDOUT, "a\nb\nc\n");
    loop_until(&f->loop, &f->closed);
    assert_string_equal(f->lines.data, "O:a|");
}

static void test_bad_descriptor(void **state)
{
    struct fixture *f = *state;
    struct output_options options = {.descriptors = {-1, 9999}, .user = f};
    struct output *output = NULL;
    struct error err = ERROR_INIT;
    assert_int_equal(output_start(&f->loop, &options, &output, &err), ERROR_SYSTEM);
    assert_null(output);
    options.descriptors[OUTPUT_STDERR] = -1; /* nothing to read at all */
    assert_int_equal(output_start(&f->loop, &options, &output, &err), ERROR_NONE);
    output_drain(output, 60000, on_drained, f);
    loop_until(&f->loop, &f->drained);
    assert_true(f->complete);
    output_close(output, NULL, NULL);
}

int main(void)
{
#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        T(test_lines_of_two_streams),      T(test_turn_is_bounded),     T(test_long_line),
        T(test_line_of_exactly_the_limit), T(test_drain_after_the_end), T(test_somebody_holds_the_pipe),
        T(test_late_turn_loses_nothing),   T(test_close_from_a_line),   T(test_bad_descriptor),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
