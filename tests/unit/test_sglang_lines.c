/* Log lines and endings in words. */
#include "sglang/lines.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

static void test_lines(void **state)
{
    (void)state;
    static const struct {
        const char *line;
        enum server_line_kind kind;
        const char *text; /* part of it */
    } rows[] = {
        {"[Dumper, rank=0, t=1.5] Observe error=basic_ios::clear: iostream error when saving data, skip the tensor",
         SERVER_LINE_SAVE_FAILED, "iostream error"},
        {"sglang serve: error: unrecognized arguments: --disable-piecewise-cuda-graph", SERVER_LINE_UNKNOWN_FLAG,
         "does not know an argument (another release spells it otherwise): --disable-piecewise-cuda-graph"},
        {"launch_server.py: error: argument --port: invalid int value: 'x'", SERVER_LINE_CAUSE,
         "refused its arguments: --port"},
        {"x: error: ambiguous option: --d could match --dp-size, --device", SERVER_LINE_CAUSE,
         "fits several flags: --d"},
        {"x: error: the following arguments are required: --model-path, --model", SERVER_LINE_CAUSE,
         "arguments are missing: --model-path --model"},
        {"[2026-11-29 21:49:05] server_args={'model_path': 'm', 'api_key': 'K'", SERVER_LINE_STAGE, "arguments read"},
        {"[2026] Init torch distributed begin.", SERVER_LINE_STAGE, "connecting"},
        {"[2026] Init parallel begin.", SERVER_LINE_STAGE, "connecting"},
        {"[2026-11-29 21:49:35] Load weight begin. avail mem=21.88 GB", SERVER_LINE_STAGE, "loading weights"},
        {"[2026-11-29 21:49:35] Load weight end. elapsed=0.11 s", SERVER_LINE_STAGE, "weights loaded"},
        {"[2026] KV Cache is allocated. dtype: torch.float32", SERVER_LINE_STAGE, "KV cache allocated"},
        {"[2026] Capture target decode CUDA graph begin. backend=full", SERVER_LINE_STAGE, "decode graphs"},
        {"[2026] Capture target prefill CUDA graph begin. backend=breakable", SERVER_LINE_STAGE, "prefill graphs"},
        {"[2026] Capture cuda graph begin. This can take up to several minutes.", SERVER_LINE_STAGE, "decode graphs"},
        {"[2026] Capture piecewise CUDA graph begin.", SERVER_LINE_STAGE, "prefill graphs"},
        {"[2026] Running FlashInfer autotune", SERVER_LINE_STAGE, "tuning"},
        {"[2026] Running warmup voice_chat", SERVER_LINE_STAGE, "warming up"},
        {"[2026] INFO:     Application startup complete.", SERVER_LINE_STAGE, "opening the port"},
        {"[2026] INFO:     Uvicorn running on http://127.0.0.1:30000", SERVER_LINE_STAGE, "port open"},
        {"[2026] The server is fired up and ready to roll!", SERVER_LINE_READY, "ready"},
        {"SIGTERM received. signum=15", SERVER_LINE_SYMPTOM, "asked to end (SIGTERM)"},
        {"[2026] Gracefully exiting... Remaining number of requests 0", SERVER_LINE_SYMPTOM, "waits for its requests"},
        {"[2026] SIGQUIT received. signum=None, frame=None. It usually means one child failed.", SERVER_LINE_SYMPTOM,
         "failed and had all of it ended"},
        {"[2026] Received sigquit from a child process. It usually means the child failed.", SERVER_LINE_SYMPTOM,
         "while loading"},
        {"[2026] Sleeping 5 seconds before crash diagnostics", SERVER_LINE_SYMPTOM, "failed"},
        {"[2026] Health check failed. Server couldn't get a response from detokenizer for last 20 seconds.",
         SERVER_LINE_SYMPTOM, "does not answer"},
        {"OSError: [Errno 12] Cannot allocate memory", SERVER_LINE_CAUSE, "memory is used up"},
        {"MemoryError", SERVER_LINE_CAUSE, "memory is used up"},
        {"OSError: [Errno 24] Too many open files", SERVER_LINE_CAUSE, "ulimit -n"},
        {"RuntimeError: The server socket has failed to listen. EADDRINUSE, message: Address already in use",
         SERVER_LINE_CAUSE, "--nccl-port"},
        {"Fatal Python error: Segmentation fault", SERVER_LINE_CAUSE, "crashed: Fatal Python error"},
        {"./serve.sh: line 3: 4242 Killed                  python3 -m sglang.launch_server", SERVER_LINE_CAUSE,
         "killed by signal 9"},
        {"Subprocess detokenizer (pid=7) crashed with exit code -15. Triggering SIGQUIT", SERVER_LINE_CAUSE,
         "a whole group was signalled"},
        {"Subprocess detokenizer (pid=7) crashed with exit code 1. Triggering SIGQUIT", SERVER_LINE_CAUSE,
         "killed or crashed"},
        {"[2026] Capture target decode CPU graph begin. backend=disabled", SERVER_LINE_STAGE, "decode graphs"},
        {"\x1b[33m[2026] '--disable-cuda-graph' is deprecated\x1b[0m", SERVER_LINE_NOTHING, ""},
        {"\x1b[1;35mlaunch.py: \x1b[1;31merror\x1b[0m: unrecognized\x1b[m arguments: \x1b[1m--x\x1b[0m",
         SERVER_LINE_UNKNOWN_FLAG, "(another release spells it otherwise): --x"},
        {"\x1b[31mValueError\x1b[0m: bad \x1b[1mthing\x1b", SERVER_LINE_CAUSE, "ValueError: bad thing"},
        {"\x1b[", SERVER_LINE_NOTHING, ""},
        {"\x1b[38;5;1", SERVER_LINE_NOTHING, ""},
        {"[Errno 98] error while attempting to bind on address ('127.0.0.1', 1): address already in use",
         SERVER_LINE_CAUSE, "--port"},
        {"torch.OutOfMemoryError: CUDA out of memory. Tried to allocate", SERVER_LINE_CAUSE, "--mem-fraction-static"},
        {"RuntimeError: Not enough memory. Please try to increase", SERVER_LINE_CAUSE, "KV cache"},
        {"OSError: [Errno 28] No space left on device: '/x'", SERVER_LINE_CAUSE, "disk is full"},
        {"OSError: [Errno 122] Disk quota exceeded", SERVER_LINE_CAUSE, "quota"},
        {"OSError: [Errno 30] Read-only file system: '/x'", SERVER_LINE_CAUSE, "read-only"},
        {"/usr/bin/python3: Error while finding module specification for 'sglang.launch_server' (ModuleNotFoundError",
         SERVER_LINE_CAUSE, "has no sglang"},
        {"/usr/bin/python3: No module named sglang", SERVER_LINE_CAUSE, "has no sglang"},
        {"OSError: m is not a local folder and is not a valid model identifier", SERVER_LINE_CAUSE, "--model-path"},
        {"HFValidationError: Repo id must be in the form 'a/b'", SERVER_LINE_CAUSE, "--model-path"},
        {"m does not appear to have a file named config.json", SERVER_LINE_CAUSE, "not complete"},
        {"You are trying to access a gated repo.", SERVER_LINE_CAUSE, "licence"},
        {"RuntimeError: Found no NVIDIA driver on your system: no NVIDIA driver", SERVER_LINE_CAUSE, "driver"},
        {"torch._dynamo.exc.Unsupported: x", SERVER_LINE_CAUSE, "prefill graphs must be off"},
        {"IndexError: index out of range in self", SERVER_LINE_CAUSE, "vocabulary"},
        {"[Dumper] [ZmqRpc] server started at tcp://None:1", SERVER_LINE_CAUSE, "default route"},
        {"Can not get local ip by remote", SERVER_LINE_CAUSE, "default route"},
        {"WARNING: 'broadcast_object_list' has not completed after 60s.", SERVER_LINE_CAUSE, "wait for each other"},
        {"Scheduler watchdog timeout (self.watchdog_timeout=300", SERVER_LINE_CAUSE, "--watchdog-timeout"},
        {"Initialization failed. warmup error: x", SERVER_LINE_CAUSE, "warm-up"},
        {"Subprocess scheduler_0 (pid=7) crashed with exit code -9. Triggering SIGQUIT", SERVER_LINE_CAUSE,
         "when memory is out: Subprocess scheduler_0"},
        {"Rank 0 scheduler died during initialization (exit code: 1)", SERVER_LINE_CAUSE, "while loading"},
        {"[2026] Scheduler hit an exception: Traceback (most recent call last):", SERVER_LINE_CAUSE, "exception"},
        {"ValueError: Model architectures ['X'] are not supported", SERVER_LINE_CAUSE, "ValueError: Model arch"},
        {"some.module.LoadException: x", SERVER_LINE_CAUSE, "LoadException"},
        {"BrokenPipeError: [Errno 32] Broken pipe", SERVER_LINE_SYMPTOM, "broken pipe"},
        {"KeyboardInterrupt: ", SERVER_LINE_NOTHING, ""},
        {"    raise ValueError: x", SERVER_LINE_NOTHING, ""},
        {"Ignore import error when loading sglang.srt.models.inkling: No module named 'quack'", SERVER_LINE_NOTHING,
         ""},
        {"[2026] INFO:     127.0.0.1:1 - \"GET /health HTTP/1.1\" 200 OK", SERVER_LINE_NOTHING, ""},
        {"", SERVER_LINE_NOTHING, ""},
        {"Error: ", SERVER_LINE_NOTHING, ""},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct server_line line;
        lines_read(rows[i].line, strlen(rows[i].line), &line);
        if (line.kind != rows[i].kind || strstr(line.text, rows[i].text) == NULL)
            fail_msg("%s: kind %d, '%s'", rows[i].line, (int)line.kind, line.text);
    }
}

static void test_port(void **state)
{
    (void)state;
    static const struct {
        const char *line;
        unsigned port;
        bool https;
    } rows[] = {
        {"INFO:     Uvicorn running on http://127.0.0.1:30000 (Press CTRL+C to quit)", 30000, false},
        {"INFO:     Uvicorn running on https://[::1]:8443 (Press CTRL+C to quit)", 8443, true},
        {"Uvicorn running on http://h:1", 1, false},
        {"Uvicorn running on http://h:65536", 0, false},
        {"Uvicorn running on http://h:", 0, false},
        {"Uvicorn running on http://", 0, false},
        {"Uvicorn running on unix socket /x", 0, false},
        {"http://127.0.0.1:30000 is where nothing listens", 0, false},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct server_line line;
        lines_read(rows[i].line, strlen(rows[i].line), &line);
        if (line.port != rows[i].port || line.https != rows[i].https)
            fail_msg("%s: port %u", rows[i].line, (unsigned)line.port);
    }
}

static void test_no_secrets(void **state)
{
    (void)state;
    static const char *const lines[] = {
        "sglang serve: error: unrecognized arguments: --api-kye SECRET --x=SECRET SECRET",
        "[2026] server_args={'api_key': 'SECRET'}",
    };
    for (size_t i = 0; i < 2; i++) {
        struct server_line line;
        lines_read(lines[i], strlen(lines[i]), &line);
        assert_int_not_equal(line.kind, SERVER_LINE_NOTHING);
        assert_null(strstr(line.text, "SECRET"));
    }
}

/* Any bytes, any length; the text stays short, clean and ended. */
static void test_hostile(void **state)
{
    (void)state;
    static char big[200000];
    struct server_line line;
    memset(big, 'A', sizeof big);
    memcpy(big, "ValueError: \x1b[31m\xff\x00", 18);
    lines_read(big, sizeof big, &line);
    assert_int_equal(line.kind, SERVER_LINE_CAUSE);
    assert_true(strlen(line.text) < sizeof line.text);
    assert_null(strchr(line.text, '\x1b'));
    memcpy(big + sizeof big - 15, "skip the tensor", 15);
    lines_read(big, sizeof big, &line);
    assert_int_equal(line.kind, SERVER_LINE_SAVE_FAILED);
    lines_read("skip the tenso", 14, &line);
    assert_int_equal(line.kind, SERVER_LINE_NOTHING);
    memset(big, '-', sizeof big);
    memcpy(big, "unrecognized arguments: ", 24);
    lines_read(big, sizeof big, &line);
    assert_int_equal(line.kind, SERVER_LINE_UNKNOWN_FLAG);
}

static void test_endings(void **state)
{
    (void)state;
    static const struct {
        int exit_code, signal;
        const char *cause, *text;
    } rows[] = {
        {0, -1, "", "by itself with status 0"},
        {1, -1, "x", "status 1: its start failed, or its port was taken; likely cause: x"},
        {2, -1, "", "refused its arguments"},
        {3, -1, "", "status 3"},
        {126, -1, "", "could not be executed"},
        {127, -1, "", "not found"},
        {42, -1, "", "status 42"},
        {137, -1, "", "status 137: a shell says so when its program was killed by signal 9"},
        {143, -1, "x", "status 143: a shell says so when its program was ended by signal 15; likely cause: x"},
        {255, -1, "", "the server ended with status 255"},
        {-1, 1, "", "terminal"},
        {-1, 7, "", "/dev/shm"},
        {-1, 9, "", "killed by signal 9"},
        {-1, 15, "", "signal 15"},
        {-1, 3, "", "signal 3"},
        {-1, 2, "", "interrupted"},
        {-1, 11, "", "crashed"},
        {-1, 6, "", "crashed"},
        {-1, 33, "", "ended by signal 33"},
        {-1, -1, "", "how is not known"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        char text[300];
        lines_explain_exit(rows[i].exit_code, rows[i].signal, rows[i].cause, text, sizeof text);
        if (strstr(text, rows[i].text) == NULL || (rows[i].cause[0] == '\0' && strstr(text, "likely cause") != NULL))
            fail_msg("%d/%d: %s", rows[i].exit_code, rows[i].signal, text);
    }
    char small[8];
    lines_explain_exit(0, -1, "x", small, sizeof small);
    assert_int_equal(strlen(small), 7);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_lines),   cmocka_unit_test(test_port),    cmocka_unit_test(test_no_secrets),
        cmocka_unit_test(test_hostile), cmocka_unit_test(test_endings),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
