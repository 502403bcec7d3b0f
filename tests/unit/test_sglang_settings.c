/* What the server is launched with: every row of what is forced, refused and noted. */
#include "sglang/command.h"
#include "sglang/settings.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

struct world {
    struct list argv, environment, notes;
    struct error err;
};

static const struct server_launch launch = {"/srv/dumps", "kldump-boot", "/run/t", false},
                                  plain_launch = {"/srv/dumps", "kldump-boot", "/run/t", true};

static void add_words(struct list *list, const char *text)
{
    char *copy = strdup(text), *rest = copy;
    for (char *word; (word = strsep(&rest, " ")) != NULL;)
        if (word[0] != '\0')
            list_add(list, word);
    free(copy);
}

static enum error_code prepare_as(const struct server_launch *as, struct world *world, const char *command,
                                  const char *variable, const char *version)
{
    struct server_command read = {0};
    *world = (struct world){.err = ERROR_INIT};
    add_words(&world->argv, command);
    list_add(&world->environment, "HOME=/home/u");
    if (variable != NULL)
        list_add(&world->environment, variable);
    assert_int_equal(command_read(&world->argv, &world->environment, &read, NULL), ERROR_NONE);
    enum error_code code =
        settings_prepare(&read, version, as, &world->argv, &world->environment, &world->notes, &world->err);
    server_command_fini(&read);
    return code;
}

static enum error_code prepare(struct world *world, const char *command, const char *variable, const char *version)
{
    return prepare_as(&launch, world, command, variable, version);
}

static void finish(struct world *world)
{
    list_fini(&world->argv);
    list_fini(&world->environment);
    list_fini(&world->notes);
}

static bool has_note(const struct world *world, const char *part)
{
    for (size_t i = 0; i < world->notes.count; i++)
        if (strstr(world->notes.items[i], part) != NULL)
            return true;
    return false;
}

static void assert_tail(const struct list *argv, const char *expected)
{
    struct list tail = {NULL, 0};
    add_words(&tail, expected);
    assert_true(argv->count >= tail.count);
    for (size_t i = 0; i < tail.count; i++)
        assert_string_equal(argv->items[argv->count - tail.count + i], tail.items[i]);
    list_fini(&tail);
}

static const char plain[] = "python3 -m sglang.launch_server --model-path m";

static void test_forced(void **state)
{
    (void)state;
    static const char *const expected[][2] = {
        {"DUMPER_ENABLE", "0"},
        {"DUMPER_SERVER_PORT", "reuse"},
        {"DUMPER_NON_INTRUSIVE_MODE", "all"},
        {"DUMPER_DIR", "/srv/dumps"},
        {"DUMPER_EXP_NAME", "kldump-boot"},
        {"DUMPER_ENABLE_OUTPUT_CONSOLE", "0"},
        {"PYTHONUNBUFFERED", "1"},
        {"SGLANG_ENABLE_HEALTH_ENDPOINT_GENERATION", "0"},
        {"TMPDIR", "/run/t"},
        {"HOME", "/home/u"},
    };
    struct world world;
    assert_int_equal(prepare(&world, plain, "TMPDIR=/tmp", "0.5.23"), ERROR_NONE);
    for (size_t i = 0; i < sizeof expected / sizeof expected[0]; i++)
        assert_string_equal(list_environment_get(&world.environment, expected[i][0]), expected[i][1]);
    assert_null(list_environment_get(&world.environment, "DUMPER_FILTER"));
    assert_null(list_environment_get(&world.environment, SETTINGS_WRAPPER_VARIABLE));
    assert_tail(&world.argv, "m --disable-decode-cuda-graph --disable-prefill-cuda-graph --watchdog-timeout 86400");
    assert_true(has_note(&world, "set DUMPER_DIR=/srv/dumps"));
    assert_true(has_note(&world, "added --disable-decode-cuda-graph"));
    assert_false(has_note(&world, "not known"));
    finish(&world);
}

static void test_spelling_by_version(void **state)
{
    (void)state;
    struct world world;
    assert_int_equal(prepare(&world, plain, NULL, "0.5.12.post1"), ERROR_NONE);
    assert_tail(&world.argv, "m --disable-cuda-graph --disable-piecewise-cuda-graph --watchdog-timeout 86400");
    finish(&world);
    assert_int_equal(prepare(&world, plain, NULL, "0.5.13.post1"), ERROR_NONE);
    assert_tail(&world.argv, "m --disable-cuda-graph --disable-piecewise-cuda-graph --watchdog-timeout 86400");
    finish(&world);
    assert_int_equal(prepare(&world, plain, NULL, "0.5.18"), ERROR_NONE);
    assert_tail(&world.argv, "m --disable-decode-cuda-graph --disable-prefill-cuda-graph --watchdog-timeout 86400");
    finish(&world);
    assert_int_equal(prepare(&world, "sglang serve m", NULL, ""), ERROR_NONE);
    assert_tail(&world.argv, "m --disable-decode-cuda-graph --disable-prefill-cuda-graph --watchdog-timeout 86400");
    assert_true(has_note(&world, "the SGLang version is not known"));
    finish(&world);
    assert_int_equal(prepare(&world, plain, NULL, "0.5.9"), ERROR_VERSION);
    assert_non_null(strstr(world.err.message, "0.5.10 or newer"));
    assert_int_equal(world.notes.count, 0);
    finish(&world);
}

static void test_variables(void **state)
{
    (void)state;
    static const struct {
        const char *variable;
        const char *message; /* NULL: fine */
    } rows[] = {
        {"DUMPER_ENABLE=0", NULL},
        {"DUMPER_ENABLE=", NULL},
        {"DUMPER_ENABLE=yes", NULL}, /* the dumper reads it as false */
        {"DUMPER_ENABLE=1", "DUMPER_ENABLE=1 contradicts DUMPER_ENABLE=0"},
        {"DUMPER_ENABLE=TRUE", "DUMPER_ENABLE=TRUE"},
        {"DUMPER_SERVER_PORT=reuse", NULL},
        {"DUMPER_SERVER_PORT= ", NULL},
        {"DUMPER_SERVER_PORT=40000", "DUMPER_SERVER_PORT=40000 contradicts DUMPER_SERVER_PORT=reuse"},
        {"DUMPER_SERVER_PORT=Reuse", "DUMPER_SERVER_PORT=Reuse"},
        {"DUMPER_SERVER_PORT=-1", "DUMPER_SERVER_PORT=-1"},
        {"DUMPER_NON_INTRUSIVE_MODE=all", NULL},
        {"DUMPER_NON_INTRUSIVE_MODE=core", "DUMPER_NON_INTRUSIVE_MODE=core contradicts DUMPER_NON_INTRUSIVE_MODE=all"},
        {"DUMPER_NON_INTRUSIVE_MODE=ALL", "DUMPER_NON_INTRUSIVE_MODE=ALL"},
        {"DUMPER_DIR=/srv/dumps", NULL},
        {"DUMPER_DIR=/tmp/dumper", "DUMPER_DIR=/tmp/dumper contradicts DUMPER_DIR=/srv/dumps"},
        {"DUMPER_EXP_NAME=kldump-boot", NULL},
        {"DUMPER_EXP_NAME=mine", "DUMPER_EXP_NAME=mine contradicts DUMPER_EXP_NAME=kldump-boot"},
        {"DUMPER_ENABLE_OUTPUT_CONSOLE=false", NULL},
        {"DUMPER_ENABLE_OUTPUT_CONSOLE=1", "DUMPER_ENABLE_OUTPUT_CONSOLE=1"},
        {"DUMPER_ENABLE_OUTPUT_FILE=1", NULL},
        {"DUMPER_ENABLE_OUTPUT_FILE=yes", "DUMPER_ENABLE_OUTPUT_FILE=yes contradicts DUMPER_ENABLE_OUTPUT_FILE=1"},
        {"DUMPER_ENABLE_VALUE=true", NULL},
        {"DUMPER_ENABLE_VALUE=0", "DUMPER_ENABLE_VALUE=0 contradicts DUMPER_ENABLE_VALUE=1"},
        {"DUMPER_FILTER=", NULL},
        {"DUMPER_FILTER= ", NULL},
        {"DUMPER_FILTER=layer_id in [0]", NULL},
        {"DUMPER_FILTER=layer_id < 2", "DUMPER_FILTER=layer_id < 2 is refused at character 10"},
        {"DUMPER_COLLECTIVE_TIMEOUT= 60 ", NULL},
        {"DUMPER_COLLECTIVE_TIMEOUT=1.5", "DUMPER_COLLECTIVE_TIMEOUT=1.5 contradicts DUMPER_COLLECTIVE_TIMEOUT=60"},
        {"DUMPER_COLLECTIVE_TIMEOUT=abc", "ends the schedulers"},
        {"DUMPER_EXP_NAME=../up", "it leaves the folder"},
        {"DUMPER_EXP_NAME=..", "it leaves the folder"},
        {"DUMPER_SERVER_PORT=reuse ", "DUMPER_SERVER_PORT=reuse  contradicts DUMPER_SERVER_PORT=reuse"},
        {"DUMPER_NON_INTRUSIVE_MODE=everything", "is taken for core"},
        {"DUMPER_ENABLE= 1", NULL}, /* not trimmed: false */
        {"DUMPER_CLEANUP_PREVIOUS=0", NULL},
        {"DUMPER_CLEANUP_PREVIOUS=1", "DUMPER_CLEANUP_PREVIOUS=1 contradicts DUMPER_CLEANUP_PREVIOUS=0"},
        {"DUMPER_INCLUDE_PARALLEL_RANK_IN_FILENAME=1", "DUMPER_INCLUDE_PARALLEL_RANK_IN_FILENAME=1"},
        {"PYTHONUNBUFFERED=x", NULL},
        {"SGLANG_ENABLE_HEALTH_ENDPOINT_GENERATION=no", NULL},
        {"SGLANG_ENABLE_HEALTH_ENDPOINT_GENERATION=1", "SGLANG_ENABLE_HEALTH_ENDPOINT_GENERATION=1"},
        {"TMPDIR=/anywhere", NULL},
        {"DUMPER_ENABLE_GRAD=1", NULL},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct world world;
        enum error_code code = prepare(&world, plain, rows[i].variable, "0.5.23");
        if (code != (rows[i].message != NULL ? ERROR_SETTINGS : ERROR_NONE) ||
            (rows[i].message != NULL && strstr(world.err.message, rows[i].message) == NULL))
            fail_msg("%s: code %d, %s", rows[i].variable, (int)code, world.err.message);
        if (code != ERROR_NONE) { /* nothing is half done */
            assert_int_equal(world.environment.count, 2);
            assert_int_equal(world.argv.count, 5);
            assert_int_equal(world.notes.count, 0);
        }
        finish(&world);
    }
}

static void test_assignment_in_front(void **state)
{
    (void)state;
    struct world world;
    assert_int_equal(prepare(&world, "env DUMPER_NON_INTRUSIVE_MODE=core python3 -m sglang.launch_server", NULL, ""),
                     ERROR_SETTINGS);
    assert_non_null(strstr(world.err.message, "DUMPER_NON_INTRUSIVE_MODE=core"));
    finish(&world);
    assert_int_equal(prepare(&world, "env CUDA_VISIBLE_DEVICES=0 python3 -m sglang.launch_server", NULL, ""),
                     ERROR_NONE);
    finish(&world);
    static const char *const rows[][2] = {
        {"env DUMPER_ENABLE=1 ./serve.sh", "DUMPER_ENABLE=1 contradicts"},
        {"nice env DUMPER_FILTER=step==1 sglang serve", "DUMPER_FILTER=step==1"},
        {"env -i python3 -m sglang.launch_server", "takes DUMPER_ENABLE away"},
        {"nice -n 5 env -u DUMPER_DIR sglang serve", "takes DUMPER_DIR away"},
        {"env --unset=TMPDIR ./serve.sh", "takes TMPDIR away"},
        {"env -u HOME -i ./serve.sh", "leave -i and -u out"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        if (prepare(&world, rows[i][0], NULL, "") != ERROR_SETTINGS || strstr(world.err.message, rows[i][1]) == NULL)
            fail_msg("%s: %s", rows[i][0], world.err.message);
        finish(&world);
    }
    assert_int_equal(prepare(&world, "env -u http_proxy ./serve.sh -i", NULL, ""), ERROR_NONE);
    finish(&world);
}

static void test_filter_and_output(void **state)
{
    (void)state;
    struct world world;
    assert_int_equal(prepare(&world, plain, "DUMPER_FILTER=layer_id in [0]", "0.5.23"), ERROR_NONE);
    assert_true(has_note(&world, "kept DUMPER_FILTER=layer_id in [0]"));
    assert_string_equal(list_environment_get(&world.environment, "DUMPER_FILTER"), "layer_id in [0]");
    finish(&world);
    assert_int_equal(prepare(&world, "conda run -n x sglang serve m", NULL, "0.5.23"), ERROR_NONE);
    assert_true(has_note(&world, "--no-capture-output"));
    finish(&world);
    assert_int_equal(prepare(&world, "conda run --no-capture-output -n x sglang serve m", NULL, "0.5.23"), ERROR_NONE);
    assert_false(has_note(&world, "--no-capture-output"));
    finish(&world);
}

static void test_names(void **state)
{
    (void)state;
    static const char *const rows[][2] = {
        {"SGLANG_DUMPER_ENABLE=1", "SGLANG_DUMPER_ENABLE is ignored"},
        {"DUMPER_NON_INTRUSIV_MODE=all", "DUMPER_NON_INTRUSIV_MODE is not a name"},
    };
    struct world world;
    for (size_t i = 0; i < 2; i++) {
        assert_int_equal(prepare(&world, plain, rows[i][0], "0.5.23"), ERROR_NONE);
        assert_true(has_note(&world, rows[i][1]));
        finish(&world);
    }
    assert_int_equal(prepare(&world, plain, "DUMPER_GRAFTER_ROLE=x", "0.5.23"), ERROR_NONE);
    assert_false(has_note(&world, "is not a name"));
    finish(&world);
}

static void test_arguments(void **state)
{
    (void)state;
    static const struct {
        const char *arguments;
        const char *message; /* NULL: fine */
        const char *note;
    } rows[] = {
        {"--cuda-graph-backend-decode disabled", NULL, NULL},
        {"--cuda-graph-backend-decode full", "--cuda-graph-backend-decode full contradicts", NULL},
        {"--cuda-graph-backend-p=breakable", "--cuda-graph-backend-prefill breakable contradicts", NULL},
        {"--cuda-graph-backend-prefill=disabled", NULL, NULL},
        {"--cuda-graph-config {\"decode\":{\"backend\":\"full\"}}", "--cuda-graph-config {\"decode\"", NULL},
        {"--cuda-graph-config {\"decode\":{\"backend\":\"disabled\"},\"prefill\":{\"backend\":\"full\"}}",
         "contradicts backend \"disabled\"", NULL},
        {"--cuda-graph-config {\"decode\":{\"backend\":\"disabled\"},\"prefill\":{\"max_bs\":4}}", NULL, NULL},
        {"--cuda-graph-config {\"decode\":{\"backend\":7}}", "--cuda-graph-config", NULL},
        {"--cuda-graph-config garbage", NULL, NULL}, /* the server says what is wrong with it */
        {"--enforce-piecewise-cuda-graph", "--enforce-piecewise-cuda-graph contradicts", NULL},
        {"--enable-torch-compile", "--enable-torch-compile contradicts", NULL},
        {"--debug-tensor-dump-output-folder /x", "--debug-tensor-dump-output-folder /x", NULL},
        {"--debug-tensor-dump-layers 1", "--debug-tensor-dump-layers 1", NULL},
        {"--debug-tensor-dump-inp f", "--debug-tensor-dump-input-file f", NULL},
        {"--debug-tensor-dump-inject f", "--debug-tensor-dump-inject f", NULL},
        {"--cuda-graph-bs 1", "--cuda-graph-bs 1 contradicts", NULL},
        {"--cuda-graph-bs-decode 1 2 4", "--cuda-graph-bs-decode 1 contradicts", NULL},
        {"--cuda-graph-bs-p=8", "--cuda-graph-bs-prefill 8", NULL},
        {"--piecewise-cuda-graph-tokens 4", "--piecewise-cuda-graph-tokens 4", NULL},
        {"--enable-piecewise-cuda-graph", "--enable-piecewise-cuda-graph contradicts", NULL},
        {"--debug-cuda-graph", "--debug-cuda-graph contradicts", NULL},
        {"--cuda-graph-max-bs 8", NULL, "--cuda-graph-max-bs: has no effect"},
        {"--cuda-graph-max-bs-decode 8", NULL, "--cuda-graph-max-bs-decode: has no effect"},
        {"--use-ray", "children of Ray", NULL},
        {"--dp-size 01", NULL, NULL},
        {"--dp-size=", "--dp-size  contradicts", NULL},
        {"--attn-dp-size 2 --tp-size 2", NULL, NULL},
        {"--grpc-mode", "--grpc-mode", NULL},
        {"--smg-grpc-mode", "--smg-grpc-mode", NULL},
        {"--encoder-only", "--encoder-only", NULL},
        {"--node-rank 0", NULL, NULL},
        {"--nnodes 2 --node-rank 1", "--node-rank 1 contradicts --node-rank 0", NULL},
        {"--dp-size 1", NULL, NULL},
        {"--dp-size 2", "--dp-size 2 contradicts --dp-size 1", NULL},
        {"--dp 4", "--dp-size 4", NULL},
        {"--data-parallel-size=2", "--dp-size 2", NULL},
        {"--dp-size 2 --enable-dp-attention", NULL, NULL},
        {"--disable-cuda-graph", NULL, NULL},
        {"--disable-radix-cache --chunked-prefill-size -1", NULL, NULL},
        {"--watchdog-timeout 10", NULL, "--watchdog-timeout: kept as given"},
        {"--enable-two-batch-overlap", NULL, "--enable-two-batch-overlap: "},
        {"--enable-pdmux", NULL, "--enable-pdmux: "},
        {"--config f.yaml", NULL, "--config: "},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct world world;
        char command[300];
        snprintf(command, sizeof command, "%s %s", plain, rows[i].arguments);
        enum error_code code = prepare(&world, command, NULL, "0.5.23");
        if (code != (rows[i].message != NULL ? ERROR_SETTINGS : ERROR_NONE) ||
            (rows[i].message != NULL && strstr(world.err.message, rows[i].message) == NULL))
            fail_msg("%s: code %d, %s", rows[i].arguments, (int)code, world.err.message);
        if (rows[i].note != NULL)
            assert_true(has_note(&world, rows[i].note));
        finish(&world);
    }
    struct world world;
    assert_int_equal(prepare(&world, "sglang serve --watchdog-timeout 10", NULL, "0.5.23"), ERROR_NONE);
    assert_tail(&world.argv, "--watchdog-timeout 10 --disable-decode-cuda-graph --disable-prefill-cuda-graph");
    finish(&world);
}

static void test_wrapper(void **state)
{
    (void)state;
    struct world world;
    assert_int_equal(prepare(&world, "./serve.sh --enable-torch-compile", NULL, ""), ERROR_NONE);
    assert_int_equal(world.argv.count, 2);
    assert_string_equal(list_environment_get(&world.environment, SETTINGS_WRAPPER_VARIABLE),
                        "--disable-decode-cuda-graph --disable-prefill-cuda-graph --watchdog-timeout 86400");
    assert_string_equal(list_environment_get(&world.environment, "DUMPER_NON_INTRUSIVE_MODE"), "all");
    assert_true(has_note(&world, "verification decides"));
    finish(&world);
    assert_int_equal(prepare(&world, "./serve.sh", "DUMPER_ENABLE=1", ""), ERROR_SETTINGS);
    finish(&world);
}

/* What a dump would refuse is fine, in any release; nothing is appended, and no name of the dumper is set. */
static void test_plain(void **state)
{
    (void)state;
    static const char *const versions[] = {"0.5.23", "0.4.1", ""};
    static const char command[] =
        "python3 -m sglang.launch_server --model-path M --enable-torch-compile --cuda-graph-bs 1 --dp-size 2";
    for (size_t i = 0; i < sizeof versions / sizeof versions[0]; i++) {
        struct world world;
        assert_int_equal(prepare_as(&plain_launch, &world, command, "DUMPER_ENABLE=1", versions[i]), ERROR_NONE);
        struct list given = {0};
        add_words(&given, command);
        assert_int_equal(world.argv.count, given.count);
        list_fini(&given);
        assert_string_equal(list_environment_get(&world.environment, "DUMPER_ENABLE"), "1");
        assert_null(list_environment_get(&world.environment, "DUMPER_SERVER_PORT"));
        assert_null(list_environment_get(&world.environment, "DUMPER_DIR"));
        assert_string_equal(list_environment_get(&world.environment, "TMPDIR"), "/run/t");
        assert_string_equal(list_environment_get(&world.environment, "SGLANG_ENABLE_HEALTH_ENDPOINT_GENERATION"), "0");
        assert_true(has_note(&world, "DUMPER_ENABLE is left to the server"));
        finish(&world);
        assert_int_equal(prepare_as(&plain_launch, &world, "./serve.sh", NULL, versions[i]), ERROR_NONE);
        assert_null(list_environment_get(&world.environment, "KLDUMP_SGLANG_ARGS"));
        finish(&world);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_plain),
        cmocka_unit_test(test_forced),
        cmocka_unit_test(test_spelling_by_version),
        cmocka_unit_test(test_variables),
        cmocka_unit_test(test_assignment_in_front),
        cmocka_unit_test(test_filter_and_output),
        cmocka_unit_test(test_names),
        cmocka_unit_test(test_arguments),
        cmocka_unit_test(test_wrapper),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
