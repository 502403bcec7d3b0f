/* Questions, and answers as a real 0.5.23 gave them (tests/data/answers), as older releases give them, and as nobody
 * should. */
#include "json/json.h"
#include "sglang/answers.h"
#include "sglang/questions.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static struct server_answer answer; /* large: one for all tests */

static void read_text(enum server_question question, int status, const char *body)
{
    memset(&answer, 0xaa, sizeof answer);
    answers_read(question, status, body, strlen(body), NULL, &answer);
    assert_int_equal(answer.question, question);
    assert_int_equal(answer.http_status, status);
    assert_int_equal(answer.ok, answer.problem[0] == '\0');
}

static void load_file(const char *name, struct buffer *ret_text)
{
    char path[512], block[4096];
    snprintf(path, sizeof path, "%s/answers/%s", TEST_DATA, name);
    FILE *file = fopen(path, "r");
    if (file == NULL)
        fail_msg("cannot open %s", path);
    buffer_init(ret_text);
    for (size_t n; (n = fread(block, 1, sizeof block, file)) > 0;)
        buffer_append(ret_text, block, n);
    fclose(file);
}

static void read_file(enum server_question question, int status, const char *name)
{
    struct buffer text;
    load_file(name, &text);
    read_text(question, status, text.data);
    buffer_fini(&text);
}

static void test_questions(void **state)
{
    (void)state;
    static const struct {
        enum server_question question;
        const char *method, *path, *body, *older;
    } rows[] = {
        {SERVER_HEALTH, "GET", "/health", "", NULL},
        {SERVER_STATE, "POST", "/dumper/get_state", "{}", NULL},
        {SERVER_INFO, "GET", "/server_info", "", "/get_server_info"},
        {SERVER_LOAD, "GET", "/v1/loads?include=core", "", "/get_load"},
        {SERVER_ENABLE, "POST", "/dumper/configure", "{\"enable\":true,\"exp_name\":\"dec\",\"filter\":null}", NULL},
        {SERVER_DISABLE, "POST", "/dumper/configure", "{\"enable\":false}", NULL},
        {SERVER_FLUSH, "POST", "/flush_cache?timeout=5", "", NULL},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct server_request request = {0};
        questions_build(rows[i].question, "dec", NULL, "rid", 1, false, &request);
        assert_string_equal(request.method, rows[i].method);
        assert_string_equal(request.path, rows[i].path);
        assert_string_equal(request.body.data, rows[i].body);
        server_request_fini(&request);
        assert_int_equal(questions_build_older(rows[i].question, &request), rows[i].older != NULL);
        if (rows[i].older != NULL) {
            assert_string_equal(request.path, rows[i].older);
            server_request_fini(&request);
        }
    }
}

static void test_filter(void **state)
{
    (void)state;
    struct server_request request = {0};
    char filter[] = "name == 'x'";
    struct server_command command = {.filter = filter};
    struct server_answer seen = {.ok = true, .directory = "/d"};
    questions_build(SERVER_ENABLE, "dec", filter, NULL, 1, false, &request);
    assert_string_equal(request.body.data, "{\"enable\":true,\"exp_name\":\"dec\",\"filter\":\"name == 'x'\"}");
    server_request_fini(&request);
    snprintf(seen.filter, sizeof seen.filter, "%s", filter);
    server_check_settings(&command, "/d", &seen);
    assert_string_equal(seen.wrong_setting, "");
    seen.filter[0] = '\0';
    server_check_settings(&command, "/d", &seen);
    assert_string_equal(seen.wrong_setting, "filter is null; expected name == 'x'");
    seen = (struct server_answer){.ok = true, .directory = "/d", .filter = "False"};
    server_check_settings(&(struct server_command){0}, "/d", &seen);
    assert_string_equal(seen.wrong_setting, "filter is False; expected null");
    server_check_settings(&command, "/d", &seen); /* the first one stays */
    assert_string_equal(seen.wrong_setting, "filter is False; expected null");
    assert_false(seen.elsewhere);
}

static void test_directory(void **state)
{
    (void)state;
    static struct server_answer seen;
    seen = (struct server_answer){.ok = true, .directory = "/else"};
    server_check_settings(&(struct server_command){0}, "/d", &seen);
    assert_true(seen.elsewhere);
    assert_string_equal(seen.wrong_setting, "dir is /else; expected /d");
    seen = (struct server_answer){.ok = false, .directory = "/else"}; /* says nothing */
    server_check_settings(&(struct server_command){0}, "/d", &seen);
    assert_false(seen.elsewhere);
}

static void test_probe_question(void **state)
{
    (void)state;
    struct buffer first;
    buffer_init(&first);
    for (uint64_t seed = 0; seed < 200; seed++) {
        struct server_request request = {0};
        struct json *json = NULL;
        const struct json *ids = NULL;
        const char *rid = NULL;
        uint64_t value = 0;
        bool yes = false;
        bool half = seed % 2 == 1;
        questions_build(SERVER_PROBE, NULL, NULL, "kldump-1", seed, half, &request);
        assert_string_equal(request.path, "/generate");
        assert_int_equal(json_parse(request.body.data, request.body.length,
                                    (struct json_limits){65536, 8, JSON_ANY_VALUES}, &json, NULL),
                         ERROR_NONE);
        assert_int_equal(json_get_string(json, "rid", &rid, NULL), ERROR_NONE);
        assert_string_equal(rid, "kldump-1");
        assert_int_equal(json_get_u64(json, "sampling_params.max_new_tokens", &value, NULL), ERROR_NONE);
        assert_int_equal(value, 3);
        assert_int_equal(json_get_bool(json, "sampling_params.ignore_eos", &yes, NULL), ERROR_NONE);
        assert_true(yes);
        assert_int_equal(json_get_u64(json, "bootstrap_room", &value, NULL) == ERROR_NONE, half);
        assert_int_equal(json_get_array(json, "input_ids", &ids, NULL), ERROR_NONE);
        assert_int_equal(json_count(ids), SERVER_PROBE_IDS);
        for (const struct json *id = json_first(ids); id != NULL; id = json_next(id)) {
            assert_int_equal(json_get_u64(id, "", &value, NULL), ERROR_NONE);
            assert_in_range(value, 16, 111);
        }
        if (seed == 0)
            buffer_text(&first, request.body.data);
        else
            assert_string_not_equal(request.body.data, first.data);
        json_free(json);
        server_request_fini(&request);
    }
    buffer_fini(&first);
}

static void test_real_state(void **state)
{
    (void)state;
    read_file(SERVER_STATE, 200, "state-before-200.body");
    assert_true(answer.ok);
    assert_int_equal(answer.rank_count, 1);
    assert_false(answer.rank[0].enabled);
    assert_int_equal(answer.rank[0].step, 0);
    assert_int_equal(answer.rank[0].dump_index, 0);
    assert_string_equal(answer.rank[0].experiment, "first");
    assert_string_equal(answer.wrong_setting, "");
    read_file(SERVER_STATE, 200, "state-during-200.body");
    assert_true(answer.rank[0].enabled);
    assert_string_equal(answer.rank[0].experiment, "probe");
    read_file(SERVER_STATE, 200, "state-after-200.body");
    assert_int_equal(answer.rank[0].step, 3);
    assert_int_equal(answer.rank[0].dump_index, 369);
    assert_string_equal(answer.wrong_setting, "");
}

static void test_real_answers(void **state)
{
    (void)state;
    read_file(SERVER_INFO, 200, "server-info-200.body");
    assert_true(answer.ok);
    assert_string_equal(answer.facts.version, "0.5.23");
    assert_string_equal(answer.facts.decode_graphs, "disabled");
    assert_string_equal(answer.facts.prefill_graphs, "disabled");
    assert_true(answer.facts.graphs_known && answer.facts.graphs_off);
    assert_int_equal(answer.facts.world_size, 1);
    assert_int_equal(answer.facts.token_capacity, 4096);
    assert_string_equal(answer.facts.limited, "");
    read_file(SERVER_LOAD, 200, "loads-200.body");
    assert_true(answer.ok && answer.load_known);
    assert_int_equal(answer.requests, 0);
    read_file(SERVER_PROBE, 200, "generate-200.body");
    assert_true(answer.ok);
    assert_int_equal(answer.prompt_tokens, 12);
    assert_int_equal(answer.cached_tokens, 3); /* the warm-up of 0.5.23 had sent the same first ids */
    assert_int_equal(answer.completion_tokens, 3);
    read_file(SERVER_ENABLE, 200, "enable-200.body");
    assert_true(answer.ok);
    read_file(SERVER_DISABLE, 200, "disable-200.body");
    assert_true(answer.ok);
    read_file(SERVER_FLUSH, 200, "flush-200.body");
    assert_true(answer.ok);
    read_text(SERVER_HEALTH, 200, "");
    assert_true(answer.ok);
}

static void test_real_refusals(void **state)
{
    (void)state;
    static const struct {
        enum server_question question;
        int status;
        const char *file, *problem;
    } rows[] = {
        {SERVER_ENABLE, 400, "unknown-key-400.body", "HTTP 400: RPC error on rank-0: DumperConfig.__init__() got"},
        {SERVER_ENABLE, 400, "wrong-type-400.body", "expected bool, got int"},
        {SERVER_STATE, 400, "unknown-method-400.body", "Unknown dumper control method"},
        {SERVER_STATE, 400, "body-list-400.body", "Request body must be a JSON object."},
        {SERVER_STATE, 500, "malformed-500.body", "HTTP 500: Internal Server Error"},
        {SERVER_STATE, 401, "unauthorized-401.body", "--admin-api-key"},
        {SERVER_INFO, 401, "unauthorized-401.body", "CMD's --api-key"},
        {SERVER_PROBE, 400, "too-long-400.body", "longer than the model's context length"},
        {SERVER_PROBE, 400, "generate-types-400.body", "3 validation errors"},
        {SERVER_STATE, 404, "notfound-404.body", "DUMPER_SERVER_PORT was not 'reuse'"},
        {SERVER_INFO, 404, "get-load-404.body", "HTTP 404: Not Found"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        read_file(rows[i].question, rows[i].status, rows[i].file);
        if (answer.ok || strstr(answer.problem, rows[i].problem) == NULL)
            fail_msg("%s: '%s'", rows[i].file, answer.problem);
    }
    read_file(SERVER_LOAD, 404, "get-load-404.body"); /* a release without the route: not known, and no failure */
    assert_true(answer.ok && !answer.load_known);
    read_text(SERVER_HEALTH, 503, "");
    assert_non_null(strstr(answer.problem, "not ready"));
    read_text(SERVER_FLUSH, 400, "Flush cache failed.\n");
    assert_non_null(strstr(answer.problem, "Flush cache failed."));
    read_text(SERVER_FLUSH, 204, "");
    assert_string_equal(answer.problem, "HTTP 204");
    answers_read(SERVER_STATE, 0, NULL, 0, "connection refused", &answer);
    assert_false(answer.ok);
    assert_string_equal(answer.problem, "no answer: connection refused");
    answers_read(SERVER_STATE, 0, NULL, 0, NULL, &answer);
    assert_false(answer.ok);
}

/* One rank's entry with one member of the config replaced. */
static void read_config(const char *changed)
{
    static const char *const members[] = {"\"non_intrusive_mode\":\"all\"",
                                          "\"server_port\":\"reuse\"",
                                          "\"enable_output_file\":true",
                                          "\"enable_value\":true",
                                          "\"enable_output_console\":false",
                                          "\"cleanup_previous\":false",
                                          "\"filter\":null",
                                          "\"dir\":\"/srv/dumps\"",
                                          "\"exp_name\":\"x\"",
                                          "\"include_parallel_rank_in_filename\":false"};
    struct buffer text;
    size_t name = strcspn(changed, ":");
    buffer_init(&text);
    buffer_text(&text, "[{\"config\":{\"enable\":false");
    for (size_t i = 0; i < sizeof members / sizeof members[0]; i++)
        if (strncmp(members[i], changed, name) != 0)
            buffer_format(&text, ",%s", members[i]);
    if (changed[name] != '\0' && changed[name + 1] != '\0')
        buffer_format(&text, ",%s", changed);
    buffer_text(&text, "},\"dump_index\":4,\"step\":2}]");
    read_text(SERVER_STATE, 200, text.data);
    buffer_fini(&text);
}

static void test_wrong_settings(void **state)
{
    (void)state;
    static const struct {
        const char *changed; /* "name": and the value; without one it is missing */
        const char *wrong;   /* NULL: fine */
    } rows[] = {
        {"\"none\":0", NULL},
        {"\"non_intrusive_mode\":\"core\"", "non_intrusive_mode is \"core\" on rank 0; expected all"},
        {"\"non_intrusive_mode\":", "non_intrusive_mode is missing"},
        {"\"server_port\":\"-1\"", "server_port is \"-1\""},
        {"\"enable_output_file\":false", "enable_output_file is false on rank 0; expected true"},
        {"\"enable_output_file\":1", "enable_output_file is 1"},
        {"\"enable_value\":null", "enable_value is null"},
        {"\"enable_output_console\":true", "enable_output_console is true"},
        {"\"cleanup_previous\":true", "cleanup_previous is true"},
        {"\"cleanup_previous\":", NULL},
        {"\"include_parallel_rank_in_filename\":true", "include_parallel_rank_in_filename is true"},
        {"\"include_parallel_rank_in_filename\":", NULL},
        {"\"filter\":\"layer_id in [0]\"", NULL},
        {"\"filter\":7", "filter is 7 on rank 0; expected a text or null"},
        {"\"filter\":", NULL},
        {"\"dir\":null", "dir is null"},
        {"\"dir\":\"dumps\"", "dir is \"dumps\" on rank 0; expected an absolute path"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        read_config(rows[i].changed);
        if (!answer.ok || strncmp(answer.wrong_setting, rows[i].wrong != NULL ? rows[i].wrong : "",
                                  rows[i].wrong != NULL ? strlen(rows[i].wrong) : 1) != 0)
            fail_msg("%s: '%s' '%s'", rows[i].changed, answer.problem, answer.wrong_setting);
        assert_true((answer.setting[0] != '\0') == (rows[i].wrong != NULL));
    }
    read_config("\"non_intrusive_mode\":\"core\"");
    assert_string_equal(answer.setting, "DUMPER_NON_INTRUSIVE_MODE");
    read_config("\"exp_name\":null");
    assert_true(answer.ok);
    assert_string_equal(answer.rank[0].experiment, "");
    read_text(SERVER_STATE, 200,
              "[{\"config\":{\"enable\":true,\"non_intrusive_mode\":\"all\",\"server_port\":\"reuse\",\"enable_output_"
              "file\":true,\"enable_value\":true,\"enable_output_console\":false,\"dir\":\"/a\"},\"dump_index\":1,"
              "\"step\":1},{\"config\":{\"enable\":true,\"non_intrusive_mode\":\"all\",\"server_port\":\"reuse\","
              "\"enable_output_file\":true,\"enable_value\":true,\"enable_output_console\":false,\"dir\":\"/b\"},"
              "\"dump_index\":7,\"step\":1}]");
    assert_true(answer.ok);
    assert_int_equal(answer.rank_count, 2);
    assert_int_equal(answer.rank[1].dump_index, 7);
    assert_string_equal(answer.wrong_setting, "dir is \"/b\" on rank 1; expected the folder of rank 0");
}

static void test_info(void **state)
{
    (void)state;
    static const struct {
        const char *body;
        bool known, off;
        uint32_t world;
        const char *limited; /* part; "" none */
    } rows[] = {
        {"{\"version\":\"0.5.12\",\"disable_cuda_graph\":true,\"disable_piecewise_cuda_graph\":true}", true, true, 1,
         ""},
        {"{\"version\":\"0.5.12\",\"disable_cuda_graph\":true,\"disable_piecewise_cuda_graph\":false}", true, false, 1,
         ""},
        {"{\"version\":\"0.5.13\",\"disable_cuda_graph\":true}", false, false, 1, ""},
        {"{\"version\":\"0.5.23\",\"cuda_graph_config\":{\"decode\":{\"backend\":\"disabled\"},\"prefill\":{"
         "\"backend\":"
         "\"breakable\"}},\"tp_size\":2,\"pp_size\":4}",
         true, false, 8, ""},
        {"{\"version\":\"0.5.23\",\"cuda_graph_config\":{\"decode\":{\"backend\":\"disabled\"},\"prefill\":{"
         "\"backend\":"
         "\"disabled\"}},\"enable_torch_compile\":true}",
         true, false, 1, ""},
        {"{\"version\":\"1\",\"tp_size\":4,\"dp_size\":4,\"enable_dp_attention\":true}", false, false, 4, "attention"},
        {"{\"version\":\"1\",\"dp_size\":2}", false, false, 2, ""},
        {"{\"version\":\"1\",\"disaggregation_mode\":\"prefill\"}", false, false, 1, "prefill server of a"},
        {"{\"version\":\"0.5.23\",\"tp_size\":4,\"attn_dp_size\":2,\"dp_size\":1}", false, false, 4, "attention"},
        {"{\"version\":\"1\",\"enable_two_batch_overlap\":true,\"enable_pdmux\":false}", false, false, 1,
         "two-batch overlap"},
        {"{\"version\":\"1\",\"enable_pdmux\":true}", false, false, 1, "multiplexed"},
        {"{\"version\":\"0.5.9\"}", false, false, 1, ""},
        {"{\"version\":\"1\",\"use_ray\":true}", false, false, 1, ""},
        {"{\"version\":\"1\",\"disaggregation_mode\":null}", false, false, 1, ""},
        {"{\"version\":\"1\",\"speculative_algorithm\":\"EAGLE\"}", false, false, 1, "speculative"},
        {"{\"version\":\"1\",\"nnodes\":2,\"tp_size\":2}", false, false, 2,
         "several nodes: files of the other nodes are "
         "not seen here"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        read_text(SERVER_INFO, 200, rows[i].body);
        const struct server_facts *facts = &answer.facts;
        if (!answer.ok || facts->graphs_known != rows[i].known || facts->graphs_off != rows[i].off ||
            facts->world_size != rows[i].world || strstr(facts->limited, rows[i].limited) == NULL ||
            (rows[i].limited[0] == '\0') != (facts->limited[0] == '\0'))
            fail_msg("%s: '%s' '%s'", rows[i].body, answer.problem, facts->limited);
        /* what is known to be wrong has words, and the setting to blame is in them */
        bool wrong = (facts->graphs_known && !facts->graphs_off) || strstr(rows[i].body, "\"dp_size\":2") != NULL ||
                     strstr(rows[i].body, "0.5.9") != NULL || strstr(rows[i].body, "use_ray") != NULL;
        if (wrong != (facts->unfit_setting[0] != '\0') || strstr(facts->unfit_problem, facts->unfit_setting) == NULL)
            fail_msg("%s: '%s' '%s'", rows[i].body, facts->unfit_setting, facts->unfit_problem);
        assert_string_not_equal(facts->limited + (strlen(facts->limited) > 2 ? strlen(facts->limited) - 2 : 0), "; ");
    }
}

static void test_load(void **state)
{
    (void)state;
    read_text(SERVER_LOAD, 200,
              "{\"loads\":[{\"num_running_reqs\":2,\"num_waiting_reqs\":3},{\"num_running_reqs\":1,"
              "\"num_waiting_reqs\":0}]}");
    assert_true(answer.ok);
    assert_int_equal(answer.requests, 6);
    assert_false(answer.prefilled_known);
    read_text(SERVER_LOAD, 200,
              "{\"loads\":[{\"num_running_reqs\":0,\"num_waiting_reqs\":0,\"total_prefill_uncached_tokens\":3},"
              "{\"num_running_reqs\":0,\"num_waiting_reqs\":0,\"total_prefill_uncached_tokens\":4}]}");
    assert_true(answer.prefilled_known);
    assert_int_equal(answer.prefilled, 7);
    read_text(SERVER_LOAD, 200, "[{\"dp_rank\":0,\"num_reqs\":4,\"num_waiting_reqs\":1,\"num_tokens\":9}]");
    assert_true(answer.ok && answer.load_known);
    assert_int_equal(answer.requests, 4);
}

/* 200 with a body of another form: a failure with words, and nothing else is filled in. */
static void test_hostile(void **state)
{
    (void)state;
    static const struct {
        enum server_question question;
        const char *body;
    } rows[] = {
        {SERVER_STATE, ""},
        {SERVER_STATE, "[null]"},
        {SERVER_STATE, "[]"},
        {SERVER_STATE, "{}"},
        {SERVER_STATE, "[{}]"},
        {SERVER_STATE, "[{\"config\":[],\"dump_index\":1,\"step\":1}]"},
        {SERVER_STATE, "[{\"config\":{\"enable\":1},\"dump_index\":1,\"step\":1}]"},
        {SERVER_STATE, "[{\"config\":{\"enable\":true},\"dump_index\":-1,\"step\":1}]"},
        {SERVER_STATE, "[{\"config\":{\"enable\":true},\"dump_index\":1.5,\"step\":1}]"},
        {SERVER_STATE, "[{\"config\":{\"enable\":true},\"dump_index\":1e300,\"step\":1}]"},
        {SERVER_STATE, "[{\"config\":{\"enable\":true,\"exp_name\":7},\"dump_index\":1,\"step\":1}]"},
        {SERVER_STATE, "[{\"config\":{\"enable\":true},\"dump_index\":1,\"dump_index\":2,\"step\":1}]"},
        {SERVER_STATE, "[{\"config\":{\"enable\":true},\"dump_index\":1,\"step\":1}"},
        {SERVER_STATE, "[{\"config\":{\"enable\":true},\"dump_index\":1,\"step\":1}] x"},
        {SERVER_STATE, "<html>502</html>"},
        {SERVER_STATE, "\"\xff\xfe\""},
        {SERVER_INFO, "[]"},
        {SERVER_INFO, "null"},
        {SERVER_INFO, "{\"version\":5}"},
        {SERVER_INFO, "{\"version\":\"1\",\"tp_size\":\"many\"}"},
        {SERVER_INFO, "{\"version\":\"1\",\"tp_size\":0}"},
        {SERVER_INFO, "{\"version\":\"1\",\"tp_size\":4000000000}"},
        {SERVER_INFO, "{\"version\":\"1\",\"cuda_graph_config\":7}"},
        {SERVER_INFO, "{\"version\":\"1\",\"cuda_graph_config\":{\"decode\":{\"backend\":null}}}"},
        {SERVER_INFO, "{\"version\":\"1\",\"enable_torch_compile\":\"no\"}"},
        {SERVER_LOAD, "{}"},
        {SERVER_LOAD, "[]"},
        {SERVER_LOAD, "[null]"},
        {SERVER_LOAD, "{\"loads\":[{\"num_running_reqs\":null}]}"},
        {SERVER_LOAD,
         "{\"loads\":[{\"num_running_reqs\":1,\"num_waiting_reqs\":0,\"total_prefill_uncached_tokens\":-1}]}"},
        {SERVER_LOAD, "{\"loads\":[{\"num_running_reqs\":-1,\"num_waiting_reqs\":0}]}"},
        {SERVER_ENABLE, "[null]"},
        {SERVER_ENABLE, "[]"},
        {SERVER_ENABLE, "{}"},
        {SERVER_ENABLE, "[{},null]"},
        {SERVER_DISABLE, "ok"},
        {SERVER_PROBE, "{}"},
        {SERVER_PROBE, "[{\"meta_info\":{}}]"},
        {SERVER_PROBE, "{\"meta_info\":{\"finish_reason\":null,\"prompt_tokens\":1,\"cached_tokens\":0,\"completion_"
                       "tokens\":1}}"},
        {SERVER_PROBE,
         "{\"meta_info\":{\"finish_reason\":{\"type\":\"abort\",\"message\":\"no room\"},\"prompt_tokens\":"
         "1,\"cached_tokens\":0,\"completion_tokens\":1}}"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        read_text(rows[i].question, 200, rows[i].body);
        if (answer.ok || answer.rank_count != 0 || answer.facts.version[0] != '\0' || answer.load_known)
            fail_msg("taken: %s", rows[i].body);
    }
    read_text(SERVER_PROBE, 200, rows[sizeof rows / sizeof rows[0] - 1].body);
    assert_non_null(strstr(answer.problem, "'abort' (no room)"));
    read_text(SERVER_ENABLE, 200, "[null]");
    assert_non_null(strstr(answer.problem, "got [null]"));
}

/* Every real answer, cut at every byte; then with every byte made a NUL: never a crash, never a success by half. */
static void test_cut_and_damaged(void **state)
{
    (void)state;
    static const struct {
        enum server_question question;
        const char *file;
    } rows[] = {
        {SERVER_STATE, "state-after-200.body"}, {SERVER_LOAD, "loads-200.body"},
        {SERVER_PROBE, "generate-200.body"},    {SERVER_ENABLE, "enable-200.body"},
        {SERVER_INFO, "server-info-200.body"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct buffer text;
        load_file(rows[i].file, &text);
        size_t step = text.length > 1000 ? 7 : 1;
        for (size_t length = 0; length < text.length; length += step) {
            answers_read(rows[i].question, 200, text.data, length, NULL, &answer);
            assert_false(answer.ok);
            char kept = text.data[length];
            text.data[length] = '\0';
            answers_read(rows[i].question, 200, text.data, text.length, NULL, &answer);
            assert_false(answer.ok);
            text.data[length] = kept;
        }
        buffer_fini(&text);
    }
}

static void test_huge(void **state)
{
    (void)state;
    struct buffer text;
    buffer_init(&text);
    for (int i = 0; i < 100000; i++)
        buffer_text(&text, "[");
    answers_read(SERVER_STATE, 200, text.data, text.length, NULL, &answer);
    assert_false(answer.ok);
    answers_read(SERVER_STATE, 500, text.data, text.length, NULL, &answer);
    assert_false(answer.ok);
    buffer_clear(&text);
    buffer_text(&text, "[");
    for (int i = 0; i <= SERVER_RANKS_MAX; i++)
        buffer_format(&text, "%s{\"config\":{\"enable\":false},\"dump_index\":0,\"step\":0}", i == 0 ? "" : ",");
    buffer_text(&text, "]");
    answers_read(SERVER_STATE, 200, text.data, text.length, NULL, &answer);
    assert_false(answer.ok);
    assert_non_null(strstr(answer.problem, "128"));
    buffer_clear(&text);
    buffer_text(&text, "\"");
    while (text.length < 9u << 20)
        buffer_text(&text, "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx");
    buffer_text(&text, "\"");
    answers_read(SERVER_INFO, 200, text.data, text.length, NULL, &answer);
    assert_false(answer.ok);
    assert_non_null(strstr(answer.problem, "at most"));
    buffer_fini(&text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_questions),     cmocka_unit_test(test_probe_question),
        cmocka_unit_test(test_filter),        cmocka_unit_test(test_directory),
        cmocka_unit_test(test_real_state),    cmocka_unit_test(test_real_answers),
        cmocka_unit_test(test_real_refusals), cmocka_unit_test(test_wrong_settings),
        cmocka_unit_test(test_info),          cmocka_unit_test(test_load),
        cmocka_unit_test(test_hostile),       cmocka_unit_test(test_cut_and_damaged),
        cmocka_unit_test(test_huge),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
