/* Helper children: results, limits, and that libuv leaves other children of the process alone. */
#include "loop_helper.h"

#include "base/memory.h"
#include "loop/child.h"
#include "sys/process.h"

#include <errno.h>
#include <sys/wait.h>

struct fixture {
    uv_loop_t loop;
    struct child *child;
    struct child_result result;
    char *output;
    char *error_text;
    int calls;
    bool done;
};

static int setup(void **state)
{
    struct fixture *f = calloc(1, sizeof *f);
    uv_loop_init(&f->loop);
    *state = f;
    return 0;
}

static int teardown(void **state)
{
    struct fixture *f = *state;
    loop_end(&f->loop);
    free(f->output);
    free(f->error_text);
    free(f);
    errno = 0;
    assert_int_equal(waitpid(-1, NULL, WNOHANG), -1); /* no child and no zombie is left */
    assert_int_equal(errno, ECHILD);
    return 0;
}

static void on_done(const struct child_result *result, void *user)
{
    struct fixture *f = user;
    f->result = *result;
    f->output = memory_copy_n(result->output, result->output_length);
    f->error_text = memory_copy(result->error_text);
    f->calls++;
    f->done = true;
}

static struct child_request shell(char *script)
{
    static char *argv[] = {"sh", "-c", NULL, NULL};
    argv[2] = script;
    return (struct child_request){.argv = argv, .output_max_bytes = 1 << 20, .deadline_ms = 10000};
}

static void start(struct fixture *f, const struct child_request *request)
{
    struct error err = ERROR_INIT;
    if (child_start(&f->loop, request, on_done, f, &f->child, &err) != ERROR_NONE)
        fail_msg("%s", err.message);
    assert_false(f->done); /* never from inside */
}

static void run(struct fixture *f, const struct child_request *request)
{
    start(f, request);
    loop_until(&f->loop, &f->done);
}

static void test_status_and_output(void **state)
{
    struct fixture *f = *state;
    struct child_request request = shell("echo out; echo first >&2; echo 'second line' >&2; exit 3");
    run(f, &request);
    assert_int_equal(f->result.exit_code, 3);
    assert_int_equal(f->result.signal, 0);
    assert_string_equal(f->output, "out\n");
    assert_string_equal(f->error_text, "first\nsecond line\n");
    char text[256];
    f->result.error_text = f->error_text;
    child_describe(&f->result, text, sizeof text);
    assert_string_equal(text, "exit status 3: second line");
}

static void test_input_environment_directory(void **state)
{
    struct fixture *f = *state;
    struct child_request request = shell("cat; echo \"$WORD\"; pwd");
    char *environment[] = {"WORD=hello", "PATH=/usr/bin:/bin", NULL};
    size_t length = 300000; /* more than a pipe holds */
    char *input = malloc(length);
    memset(input, 'i', length);
    request.input = input;
    request.input_length = length;
    request.environment = environment;
    request.directory = "/";
    start(f, &request);
    memset(input, 'j', length); /* it was copied */
    free(input);
    loop_until(&f->loop, &f->done);
    assert_int_equal(f->result.output_length, length + strlen("hello\n/\n"));
    assert_string_equal(f->output + length, "hello\n/\n");
    assert_int_equal(f->output[length - 1], 'i');
}

static void test_input_nobody_reads(void **state)
{
    struct fixture *f = *state;
    struct child_request request = shell("exit 0");
    static char input[1 << 20];
    request.input = input;
    request.input_length = sizeof input;
    run(f, &request);
    assert_int_equal(f->result.exit_code, 0);
}

static void test_fast_exit_loses_nothing(void **state)
{
    struct fixture *f = *state;
    for (int i = 0; i < 20; i++) {
        struct child_request request = shell("head -c 500000 /dev/zero | tr '\\0' z");
        f->done = false;
        run(f, &request);
        assert_int_equal(f->result.output_length, 500000);
        assert_false(f->result.output_cut);
        free(f->output);
        free(f->error_text);
        f->output = f->error_text = NULL;
    }
}

static void test_output_after_the_exit(void **state)
{
    struct fixture *f = *state;
    struct child_request request = shell("(while kill -0 $$; do :; done 2>&-; echo late) & exit 0");
    run(f, &request);
    assert_string_equal(f->output, "late\n");
}

static void test_too_much_output(void **state)
{
    struct fixture *f = *state;
    struct child_request request = shell("while :; do echo yyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyy; done");
    request.output_max_bytes = 100000;
    run(f, &request);
    assert_true(f->result.output_cut);
    assert_false(f->result.timed_out);
    assert_int_equal(f->result.output_length, 100000);
    assert_int_equal(f->result.signal, SIGKILL);
}

static void test_deadline_ends_the_group(void **state)
{
    struct fixture *f = *state;
    struct child_request request = shell("trap '' TERM; sleep 600 & echo $!; sleep 600; sleep 600");
    request.deadline_ms = 200;
    uint64_t start_ms = loop_now_ms();
    run(f, &request);
    assert_true(f->result.timed_out);
    assert_int_equal(f->result.exit_code, -1);
    assert_int_equal(f->result.signal, SIGKILL);
    assert_in_range(loop_now_ms() - start_ms, 150, 5000);
    char text[256];
    f->result.error_text = f->error_text;
    child_describe(&f->result, text, sizeof text);
    assert_string_equal(text, "time limit, signal 9");
    /* Both pipes ended although the second `sleep` had them too: it is dead or dying. */
    assert_in_range(loop_now_ms() - start_ms, 150, 650);
    /* What it had started, if it came so far, is of its group, too. */
    pid_t second = (pid_t)strtol(f->output, NULL, 10);
    struct process process;
    while (second > 0 && process_read(second, &process) && process_is_alive(&process) &&
           loop_now_ms() - start_ms < LOOP_PATIENCE_MS)
        poll(NULL, 0, 1);
    assert_false(second > 0 && process_read(second, &process) && process_is_alive(&process));
}

static void test_grandchild_holds_the_pipe(void **state)
{
    struct fixture *f = *state;
    struct child_request request = shell("setsid sleep 3 & echo $!; exit 4");
    uint64_t start_ms = loop_now_ms();
    run(f, &request);
    assert_int_equal(f->result.exit_code, 4);
    assert_in_range(loop_now_ms() - start_ms, 0, 2500);
    long pid = strtol(f->output, NULL, 10);
    assert_true(pid > 1);
    kill((pid_t)pid, SIGKILL);
}

static void test_only_the_last_error_lines(void **state)
{
    struct fixture *f = *state;
    struct child_request request = shell("i=0; while [ $i -lt 2000 ]; do echo \"line $i\" >&2; i=$((i+1)); done");
    run(f, &request);
    assert_in_range(strlen(f->error_text), CHILD_ERROR_TEXT / 2, CHILD_ERROR_TEXT);
    assert_memory_equal(f->error_text, "line ", 5);
    assert_string_equal(f->error_text + strlen(f->error_text) - 10, "line 1999\n");
}

static void test_spawn_fails(void **state)
{
    struct fixture *f = *state;
    char *missing[] = {"/nonexistent/program", NULL}, *folder[] = {"/", NULL};
    struct child_request request = {.argv = missing, .output_max_bytes = 10};
    struct error err = ERROR_INIT;
    assert_int_equal(child_start(&f->loop, &request, on_done, f, &f->child, &err), ERROR_COMMAND_NOT_FOUND);
    assert_non_null(strstr(err.message, "/nonexistent/program"));
    request.argv = folder;
    assert_int_equal(child_start(&f->loop, &request, on_done, f, &f->child, &err), ERROR_CANNOT_EXECUTE);
    assert_null(f->child);
    uv_run(&f->loop, UV_RUN_DEFAULT);
    assert_int_equal(f->calls, 0);
}

static void test_cancel(void **state)
{
    struct fixture *f = *state;
    struct child_request request = shell("sleep 600");
    for (int i = 0; i < 20; i++) { /* at every age from newborn on */
        start(f, &request);
        for (int j = 0; j < i; j++)
            uv_run(&f->loop, UV_RUN_NOWAIT);
        child_cancel(f->child);
    }
    uv_run(&f->loop, UV_RUN_DEFAULT);
    assert_int_equal(f->calls, 0);
}

/* The keeper is a child that libuv did not start: its end must stay for its pidfd's owner to collect. */
static void test_other_children_are_left_alone(void **state)
{
    struct fixture *f = *state;
    pid_t other = fork();
    if (other == 0)
        _exit(42);
    siginfo_t info = {0};
    assert_int_equal(waitid(P_PID, (id_t)other, &info, WEXITED | WNOWAIT), 0); /* a zombie by now */
    for (int i = 0; i < 5; i++) {
        struct child_request request = shell("exit 0");
        f->done = false;
        run(f, &request);
        free(f->output);
        free(f->error_text);
        f->output = f->error_text = NULL;
    }
    int status = 0;
    assert_int_equal(waitpid(other, &status, 0), other);
    assert_int_equal(WEXITSTATUS(status), 42);
}

static void test_child_starts_with_default_signals(void **state)
{
    struct fixture *f = *state;
    struct child_request request = shell("grep -E '^Sig(Blk|Ign):' /proc/self/status");
    sigset_t blocked, old;
    sigemptyset(&blocked);
    sigaddset(&blocked, SIGTERM);
    sigprocmask(SIG_BLOCK, &blocked, &old);
    run(f, &request);
    sigprocmask(SIG_SETMASK, &old, NULL);
    unsigned long long ignored = 1, masked = 1;
    assert_int_equal(sscanf(f->output, "SigBlk: %llx SigIgn: %llx", &masked, &ignored), 2);
    assert_int_equal(masked, 0);
    assert_int_equal(ignored & 0x7fffffff, 0); /* 32 and 33 are the C library's, out of anybody's reach */
}

int main(void)
{
    signal(SIGPIPE, SIG_IGN);
#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        T(test_status_and_output),
        T(test_input_environment_directory),
        T(test_input_nobody_reads),
        T(test_fast_exit_loses_nothing),
        T(test_output_after_the_exit),
        T(test_too_much_output),
        T(test_deadline_ends_the_group),
        T(test_grandchild_holds_the_pipe),
        T(test_only_the_last_error_lines),
        T(test_spawn_fails),
        T(test_cancel),
        T(test_other_children_are_left_alone),
        T(test_child_starts_with_default_signals),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
