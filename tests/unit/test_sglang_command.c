/* Releases and their spellings, flags as argparse finds them, and what a command is. */
#include "sglang/command.h"
#include "sglang/flags.h"
#include "sglang/versions.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* Words parted by blanks. */
static struct list words(const char *text)
{
    struct list list = {NULL, 0};
    char *copy = strdup(text), *rest = copy;
    for (char *word; (word = strsep(&rest, " ")) != NULL;)
        if (word[0] != '\0')
            list_add(&list, word);
    free(copy);
    return list;
}

static void assert_words(const struct list *list, const char *expected)
{
    struct buffer joined;
    buffer_init(&joined);
    for (size_t i = 0; i < list->count; i++)
        buffer_format(&joined, "%s%s", i == 0 ? "" : " ", list->items[i]);
    assert_string_equal(joined.data, expected);
    buffer_fini(&joined);
}

static void test_versions(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        bool found;
        struct versions_number number;
    } rows[] = {
        {"0.5.12.post1", true, {0, 5, 12}},
        {"0.5.23", true, {0, 5, 23}},
        {"0.6.0.dev3+g1a2b3c4", true, {0, 6, 0}},
        {"0.5.10rc0", true, {0, 5, 10}},
        {"sglang version: 0.5.20\ngit revision: N/A", true, {0, 5, 20}},
        {"python 3 has 1.2.3", true, {1, 2, 3}},
        {"1.10", false, {0, 0, 0}},
        {"0.5.", false, {0, 0, 0}},
        {"99999999999.1.1", false, {0, 0, 0}},
        {"", false, {0, 0, 0}},
        {"N/A", false, {0, 0, 0}},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct versions_number number = {0, 0, 0};
        bool found = versions_parse(rows[i].text, &number);
        assert_int_equal(found, rows[i].found);
        assert_int_equal(versions_compare(&number, &rows[i].number), 0);
    }
}

static void test_spellings(void **state)
{
    (void)state;
    static const struct {
        const char *version;
        const char *decode, *prefill; /* NULL: refused */
        bool guessed;
    } rows[] = {
        {"0.4.9", NULL, NULL, false},
        {"0.5.9", NULL, NULL, false},
        {"0.5.10.post1", "--disable-cuda-graph", "--disable-piecewise-cuda-graph", false},
        {"0.5.11", "--disable-cuda-graph", "--disable-piecewise-cuda-graph", false},
        {"0.5.12.post1", "--disable-cuda-graph", "--disable-piecewise-cuda-graph", false},
        {"0.5.13", "--disable-cuda-graph", "--disable-piecewise-cuda-graph", false},
        {"0.5.13.post1", "--disable-cuda-graph", "--disable-piecewise-cuda-graph", false},
        {"0.5.18", "--disable-decode-cuda-graph", "--disable-prefill-cuda-graph", false},
        {"0.5.20", "--disable-decode-cuda-graph", "--disable-prefill-cuda-graph", false},
        {"0.5.14", "--disable-decode-cuda-graph", "--disable-prefill-cuda-graph", false},
        {"0.5.16", "--disable-decode-cuda-graph", "--disable-prefill-cuda-graph", false},
        {"0.5.23", "--disable-decode-cuda-graph", "--disable-prefill-cuda-graph", false},
        {"0.6.0.dev3", "--disable-decode-cuda-graph", "--disable-prefill-cuda-graph", false},
        {"1.0.0", "--disable-decode-cuda-graph", "--disable-prefill-cuda-graph", false},
        {"", "--disable-decode-cuda-graph", "--disable-prefill-cuda-graph", true},
        {"main", "--disable-decode-cuda-graph", "--disable-prefill-cuda-graph", true},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        const struct versions_spelling *spelling = NULL;
        struct error err = ERROR_INIT;
        bool guessed = false;
        enum error_code code = versions_find(rows[i].version, &spelling, &guessed, &err);
        assert_int_equal(code, rows[i].decode != NULL ? ERROR_NONE : ERROR_VERSION);
        if (code != ERROR_NONE) {
            assert_non_null(strstr(err.message, rows[i].version));
            assert_non_null(strstr(err.message, "0.5.10 or newer"));
            assert_null(spelling);
            continue;
        }
        assert_string_equal(spelling->decode_graphs_off, rows[i].decode);
        assert_string_equal(spelling->prefill_graphs_off, rows[i].prefill);
        assert_int_equal(guessed, rows[i].guessed);
    }
}

static void test_flags(void **state)
{
    (void)state;
    static const struct {
        const char *line;
        enum flags_id id;
        bool found;
        const char *value;
    } rows[] = {
        {"--port 1", FLAGS_PORT, true, "1"},
        {"--cuda-graph-bs-decode 1", FLAGS_CUDA_GRAPH_BS, false, NULL},
        {"--cuda-graph-backend-decode full", FLAGS_CUDA_GRAPH_BS, false, NULL},
        {"--cuda-graph-max-bs-decode 1", FLAGS_CUDA_GRAPH_MAX_BS, false, NULL},
        {"--port=2", FLAGS_PORT, true, "2"},
        {"--po 3", FLAGS_PORT, true, "3"},
        {"--p 3", FLAGS_PORT, false, NULL},
        {"--port 1 --port=4", FLAGS_PORT, true, "4"},
        {"--port", FLAGS_PORT, true, NULL},
        {"--port=", FLAGS_PORT, true, ""},
        {"--ports 3", FLAGS_PORT, false, NULL},
        {"--dp 2", FLAGS_DP_SIZE, true, "2"},
        {"--data-parallel-size 2", FLAGS_DP_SIZE, true, "2"},
        {"--data 2", FLAGS_DP_SIZE, true, "2"},
        {"--api k", FLAGS_API_KEY, true, "k"},
        {"--admin-api-key k", FLAGS_API_KEY, false, NULL},
        {"--ad=k", FLAGS_ADMIN_API_KEY, true, "k"},
        {"--enable-torch-compile x", FLAGS_ENABLE_TORCH_COMPILE, true, NULL},
        {"--enable-torch-compile-debug-mode", FLAGS_ENABLE_TORCH_COMPILE, false, NULL},
        {"--ssl-keyfile-password p", FLAGS_SSL_KEYFILE, false, NULL},
        {"--enable-dp-attention-local-control-broadcast", FLAGS_ENABLE_DP_ATTENTION, false, NULL},
        {"--disable-cuda-graph-padding", FLAGS_CUDA_GRAPH_CONFIG, false, NULL},
        {"port 1", FLAGS_PORT, false, NULL},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct list list = words(rows[i].line);
        struct flags_found found = {0, NULL, false};
        if (flags_find(&list, 0, rows[i].id, &found) != rows[i].found)
            fail_msg("%s", rows[i].line);
        if (rows[i].value == NULL)
            assert_null(found.value);
        else
            assert_string_equal(found.value, rows[i].value);
        list_fini(&list);
    }
    for (int id = 0; id < FLAGS_COUNT; id++)
        assert_true(flags_is(flags_name((enum flags_id)id), (enum flags_id)id));
}

static void test_forms(void **state)
{
    (void)state;
    static const struct {
        const char *line;
        enum command_form form;
        size_t program, arguments;
    } rows[] = {
        {"python3 -m sglang.launch_server --port 1", COMMAND_MODULE, 0, 3},
        {"/opt/x/bin/python3.11 -u -X dev -W ignore -m sglang.launch_server", COMMAND_MODULE, 0, 8},
        {"python -um sglang.launch_server --x", COMMAND_MODULE, 0, 3},
        {"python -msglang.launch_server --x", COMMAND_MODULE, 0, 2},
        {"env A=b numactl -N 0 python3 -m sglang.launch_server --x", COMMAND_MODULE, 5, 8},
        {"sglang serve --model-path m", COMMAND_SCRIPT, 0, 2},
        {"/opt/x/bin/sglang serve", COMMAND_SCRIPT, 0, 2},
        {"nice sglang serve m", COMMAND_SCRIPT, 1, 3},
        {"python3 /opt/x/bin/sglang serve m", COMMAND_MODULE, 0, 3},
        {"python3 /src/python/sglang/launch_server.py --x", COMMAND_MODULE, 0, 2},
        {"python3 launch_server.py --x", COMMAND_MODULE, 0, 2},
        {"python3 -m sglang.cli.main serve m", COMMAND_MODULE, 0, 4},
        {"python3 -m sglang.cli.main version", COMMAND_WRAPPER, 0, 1},
        {"uv run --frozen python -m sglang.launch_server", COMMAND_MODULE, 3, 6},
        {"uv run sglang serve m", COMMAND_SCRIPT, 2, 4},
        {"conda run -n x python -m sglang.launch_server", COMMAND_MODULE, 4, 7},
        {"taskset -c 0-3 timeout 9h stdbuf -oL python3 -m sglang.launch_server", COMMAND_MODULE, 7, 10},
        {"nsys profile -o r python3 -m sglang.launch_server", COMMAND_MODULE, 4, 7},
        {"torchrun --nproc-per-node 2 -m sglang.launch_server", COMMAND_WRAPPER, 0, 1},
        {"python3 - -m sglang.launch_server", COMMAND_WRAPPER, 0, 1},
        {"python3 my_launch_server.py", COMMAND_WRAPPER, 0, 1},
        {"bash -c python3", COMMAND_WRAPPER, 0, 1},
        {"sglang version", COMMAND_WRAPPER, 0, 1},
        {"sglang", COMMAND_WRAPPER, 0, 1},
        {"python3 -m sglang.bench_serving", COMMAND_WRAPPER, 0, 1},
        {"python3 -c import sglang.launch_server", COMMAND_WRAPPER, 0, 1},
        {"python3 -m", COMMAND_WRAPPER, 0, 1},
        {"python3", COMMAND_WRAPPER, 0, 1},
        {"./serve.sh --port 1", COMMAND_WRAPPER, 0, 1},
        {"python3 serve.py -m sglang.launch_server", COMMAND_WRAPPER, 0, 1},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct list list = words(rows[i].line);
        struct command_parts parts;
        command_split(&list, &parts);
        if (parts.form != rows[i].form || parts.program != rows[i].program || parts.arguments != rows[i].arguments)
            fail_msg("%s: form %d, program %zu, arguments %zu", rows[i].line, (int)parts.form, parts.program,
                     parts.arguments);
        list_fini(&list);
    }
}

static void test_read(void **state)
{
    (void)state;
    static const struct {
        const char *line;
        enum error_code code;
        const char *message;
        bool wrapper;
        uint16_t port;
        bool https;
        const char *host, *key, *generate_key;
    } rows[] = {
        {"", ERROR_USAGE, "after --", false, 0, false, NULL, NULL, NULL},
        {"python3 -m sglang.launch_server", ERROR_NONE, NULL, false, 30000, false, NULL, NULL, NULL},
        {"python3 -m sglang.launch_server --port 31000 --host ::1", ERROR_NONE, NULL, false, 31000, false, "::1", NULL,
         NULL},
        {"python3 -m sglang.launch_server --api-key a", ERROR_NONE, NULL, false, 30000, false, NULL, "a", "a"},
        {"python3 -m sglang.launch_server --admin-api-key=b", ERROR_NONE, NULL, false, 30000, false, NULL, "b", NULL},
        {"sglang serve --ap a --admin b", ERROR_NONE, NULL, false, 30000, false, NULL, "b", "a"},
        {"sglang serve --ssl-keyfile k --ssl-certfile=c", ERROR_NONE, NULL, false, 30000, true, NULL, NULL, NULL},
        {"./serve.sh --port 7 --api-key a", ERROR_NONE, NULL, true, 7, false, NULL, "a", "a"},
        {"sglang serve --port x", ERROR_SETTINGS, "--port x", false, 0, false, NULL, NULL, NULL},
        {"sglang serve --port 0", ERROR_SETTINGS, "1 to 65535", false, 0, false, NULL, NULL, NULL},
        {"sglang serve --port 65536", ERROR_SETTINGS, "--port 65536", false, 0, false, NULL, NULL, NULL},
        {"sglang serve --port", ERROR_SETTINGS, "--port", false, 0, false, NULL, NULL, NULL},
        {"docker run img python3 -m sglang.launch_server", ERROR_SETTINGS, "kldumpctl inside", false, 0, false, NULL,
         NULL, NULL},
        {"/usr/bin/podman exec x serve", ERROR_SETTINGS, "podman", false, 0, false, NULL, NULL, NULL},
        {"kubectl exec x", ERROR_SETTINGS, "kubectl", false, 0, false, NULL, NULL, NULL},
        {"ssh host sglang serve", ERROR_SETTINGS, "ssh", false, 0, false, NULL, NULL, NULL},
        {"sudo -E python3 -m sglang.launch_server", ERROR_SETTINGS, "sudo", false, 0, false, NULL, NULL, NULL},
        {"nice srun python3 -m sglang.launch_server", ERROR_SETTINGS, "srun", false, 0, false, NULL, NULL, NULL},
        {"nerdctl run x", ERROR_SETTINGS, "nerdctl", false, 0, false, NULL, NULL, NULL},
        {"doas sglang serve", ERROR_SETTINGS, "doas", false, 0, false, NULL, NULL, NULL},
        {"env A=b nice -n 3 ssh host x", ERROR_SETTINGS, "CMD runs ssh", false, 0, false, NULL, NULL, NULL},
        {"timeout -s INT 9 /usr/bin/sudo x", ERROR_SETTINGS, "CMD runs sudo", false, 0, false, NULL, NULL, NULL},
        {"./x.sh docker python3 -m sglang.launch_server", ERROR_SETTINGS, "docker", false, 0, false, NULL, NULL, NULL},
        {"systemd-run --user sglang serve", ERROR_SETTINGS, "systemd-run", false, 0, false, NULL, NULL, NULL},
        {"systemd-run --user --scope sglang serve", ERROR_NONE, NULL, false, 30000, false, NULL, NULL, NULL},
        {"tmux new -d x", ERROR_SETTINGS, "tmux", false, 0, false, NULL, NULL, NULL},
        {"DUMPER_DIR=/x python3 -m sglang.launch_server", ERROR_SETTINGS, "write env DUMPER_DIR=...", false, 0, false,
         NULL, NULL, NULL},
        {"./a=b/serve.sh docker", ERROR_NONE, NULL, true, 30000, false, NULL, NULL, NULL},
        {"env A=b ./serve.sh --port 7", ERROR_NONE, NULL, true, 7, false, NULL, NULL, NULL},
        {"sglang serve --host 0.0.0.0 --ssl-certfile c --ssl-ca-certs a", ERROR_NONE, NULL, false, 30000, true,
         "0.0.0.0", NULL, NULL},
        {"sglang serve --model-path docker", ERROR_NONE, NULL, false, 30000, false, NULL, NULL, NULL},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct list list = words(rows[i].line), environment = {NULL, 0};
        struct server_command command = {0};
        struct error err = ERROR_INIT;
        enum error_code code = command_read(&list, &environment, &command, &err);
        if (code != rows[i].code || (rows[i].message != NULL && strstr(err.message, rows[i].message) == NULL))
            fail_msg("%s: code %d, %s", rows[i].line, (int)code, err.message);
        assert_int_equal(command.is_wrapper, rows[i].wrapper);
        assert_int_equal(command.port, rows[i].port);
        assert_int_equal(command.https, rows[i].https);
        const char *const got[] = {command.host, command.api_key, command.generate_key};
        const char *const expected[] = {rows[i].host, rows[i].key, rows[i].generate_key};
        for (size_t k = 0; k < 3; k++) {
            assert_int_equal(got[k] == NULL, expected[k] == NULL);
            if (expected[k] != NULL)
                assert_string_equal(got[k], expected[k]);
        }
        server_command_fini(&command);
        list_fini(&list);
    }
}

static void test_shell_lines(void **state)
{
    (void)state;
    static const struct {
        const char *shell, *option, *line, *outside; /* NULL: taken */
    } rows[] = {
        {"bash", "-c", "ssh host python3 -m sglang.launch_server", "ssh"},
        {"/bin/sh", "-c", "cd /x && exec docker run img 'python3 -m sglang.launch_server'", "docker"},
        {"bash", "-lc", "A=b nice -n 3 sudo -E sglang serve", "sudo"},
        {"zsh", "-c", "(srun sglang serve)", "srun"},
        {"bash", "-c", "if true; then ssh host sglang serve; fi", "ssh"},
        {"bash", "-c", "docker ps; python3 -m sglang.launch_server --host ssh", NULL},
        {"bash", "-c", "ssh host hostname | cat; exec sglang serve", NULL},
        {"bash", "-c", "python3 -m sglang.launch_server", NULL},
        {"bash", "-c", "", NULL},
        {"bash", "-x", "ssh host sglang serve", NULL}, /* a script of that name */
        {"bash", "--norc", "-c", NULL},
        {"fish", "-c", "ssh host sglang serve", NULL}, /* not known to be a shell */
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct list list = {NULL, 0}, environment = {NULL, 0};
        struct server_command command = {0};
        struct error err = ERROR_INIT;
        list_add(&list, rows[i].shell);
        list_add(&list, rows[i].option);
        list_add(&list, rows[i].line);
        enum error_code code = command_read(&list, &environment, &command, &err);
        if (code != (rows[i].outside != NULL ? ERROR_SETTINGS : ERROR_NONE) ||
            (rows[i].outside != NULL && strstr(err.message, rows[i].outside) == NULL))
            fail_msg("%s: code %d, %s", rows[i].line, (int)code, err.message);
        server_command_fini(&command);
        list_fini(&list);
    }
}

static void test_filter(void **state)
{
    (void)state;
    static const char *const rows[][3] = {
        {"sglang serve", "DUMPER_FILTER=True", "True"},
        {"sglang serve", "DUMPER_FILTER= ", NULL},
        {"sglang serve", "A=b", NULL},
        {"env DUMPER_FILTER=False sglang serve", "DUMPER_FILTER=True", "False"},
        {"env DUMPER_FILTER= sglang serve", "DUMPER_FILTER=True", NULL},
        {"nice env DUMPER_FILTER=False ./serve.sh", "A=b", "False"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct list list = words(rows[i][0]), environment = {NULL, 0};
        struct server_command command = {0};
        list_add(&environment, rows[i][1]);
        assert_int_equal(command_read(&list, &environment, &command, NULL), ERROR_NONE);
        if (rows[i][2] == NULL)
            assert_null(command.filter);
        else
            assert_string_equal(command.filter, rows[i][2]);
        server_command_fini(&command);
        list_fini(&environment);
        list_fini(&list);
    }
}

static void test_version_query(void **state)
{
    (void)state;
    static const struct {
        const char *line, *program; /* how it begins */
        size_t count;
    } rows[] = {
        {"/x/python3 -m sglang.launch_server", "/x/python3 -c", 3},
        {"nice -n 3 /x/python3 -m sglang.launch_server", "/x/python3 -c", 3},
        {"env A=b /x/python3 -m sglang.launch_server", "env A=b /x/python3 -c", 5},
        {"nice conda run -n x numactl -N 0 python -m sglang.launch_server", "conda run -n x python -c", 7},
        {"uv run --with a sglang serve", "uv run --with a python3 -c", 9},
        {"uv run --what a python -m sglang.launch_server", "uv run --what a python -c", 7},
        {"nsys profile -o r python3 -m sglang.launch_server", "python3 -c", 3},
        {"env A=b nsys profile python3 -m sglang.launch_server", "env A=b nsys profile python3 -c", 7},
        {"sglang serve", "python3 -c", 5},
        {"./serve.sh", NULL, 0},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct list list = words(rows[i].line), environment = {NULL, 0}, query = {NULL, 0};
        struct server_command command = {0};
        assert_int_equal(command_read(&list, &environment, &command, NULL), ERROR_NONE);
        command_version_query(&command, &query);
        assert_int_equal(query.count, rows[i].count);
        if (rows[i].program != NULL) {
            struct list begin = words(rows[i].program);
            for (size_t k = 0; k < begin.count; k++)
                assert_string_equal(query.items[k], begin.items[k]);
            list_fini(&begin);
        }
        server_command_fini(&command);
        list_fini(&query);
        list_fini(&list);
    }
}

static void test_redact(void **state)
{
    (void)state;
    static const char *const rows[][2] = {
        {"sglang serve --api-key K --port 1", "sglang serve --api-key *** --port 1"},
        {"sglang serve --api-key=K", "sglang serve --api-key=***"},
        {"sglang serve --ap K --admin-api=K", "sglang serve --ap *** --admin-api=***"},
        {"sglang serve --admin-api-key K", "sglang serve --admin-api-key ***"},
        {"sglang serve --ssl-keyfile f --ssl-keyfile-password K",
         "sglang serve --ssl-keyfile f --ssl-keyfile-password ***"},
        {"sglang serve --api-key --api-key", "sglang serve --api-key ***"},
        {"sglang serve --api-key --api-key tail", "sglang serve --api-key *** tail"},
        {"sglang serve --api-key", "sglang serve --api-key"},
        {"env HF_TOKEN=K WANDB_API_KEY=K A=b sglang serve", "env HF_TOKEN=*** WANDB_API_KEY=*** A=b sglang serve"},
        {"systemd-run --scope --setenv=HF_TOKEN=K -EA_SECRET=K sglang serve",
         "systemd-run --scope --setenv=HF_TOKEN=*** -EA_SECRET=*** sglang serve"},
        {"launch.sh --engine-api-key=K --max-total-tokens=9", "launch.sh --engine-api-key=*** --max-total-tokens=9"},
        {"python3 -m sglang.launch_server --ssl-keyfile-p=K", "python3 -m sglang.launch_server --ssl-keyfile-p=***"},
        {"sglang serve --port 1", "sglang serve --port 1"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct list list = words(rows[i][0]), redacted = {NULL, 0};
        command_redact(&list, &redacted);
        assert_words(&redacted, rows[i][1]);
        assert_int_equal(redacted.count, list.count);
        list_fini(&redacted);
        list_fini(&list);
    }
    struct list list = {NULL, 0}, redacted = {NULL, 0};
    list_add(&list, "bash");
    list_add(
        &list,
        "HF_TOKEN='K 0' exec sglang serve --api-key K1 --admin-api-key=K2 --ssl-keyfile-password \"K 3\" --port 1");
    command_redact(&list, &redacted);
    assert_words(&redacted,
                 "bash HF_TOKEN=*** exec sglang serve --api-key *** --admin-api-key=*** --ssl-keyfile-password *** "
                 "--port 1");
    list_fini(&redacted);
    list_fini(&list);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_versions), cmocka_unit_test(test_spellings),   cmocka_unit_test(test_flags),
        cmocka_unit_test(test_forms),    cmocka_unit_test(test_read),        cmocka_unit_test(test_version_query),
        cmocka_unit_test(test_redact),   cmocka_unit_test(test_shell_lines), cmocka_unit_test(test_filter),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
