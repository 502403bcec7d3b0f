/* Requests to /generate, and answers as a real 0.5.23 gave them (tests/data/answers), and as nobody should. */
#include "json/json.h"
#include "sglang/generate.h"
#include "sglang/kl_helper.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static const int64_t first_ids[] = {334, 146, 395, 199, 423, 369, 306, 193, 110, 422};
static const int64_t second_ids[] = {498, 446, 394, 349, 488, 287, 30, 446, 254, 97, 70, 87, 490};

static struct buffer load(const char *name)
{
    char path[512], block[4096];
    struct buffer text;
    snprintf(path, sizeof path, "%s/answers/%s", TEST_DATA, name);
    FILE *file = fopen(path, "r");
    if (file == NULL)
        fail_msg("cannot open %s", path);
    buffer_init(&text);
    for (size_t n; (n = fread(block, 1, sizeof block, file)) > 0;)
        buffer_append(&text, block, n);
    fclose(file);
    return text;
}

static void expect_body(const struct generate_request *request, const char *body)
{
    struct server_request built;
    generate_build(request, &built);
    assert_string_equal(built.method, "POST");
    assert_string_equal(built.path, "/generate");
    assert_string_equal(built.body.data, body);
    server_request_fini(&built);
}

/* What test/kl_test_utils.py of 0.5.23 sends, with the request ids that make a pass ours. */
static void test_requests(void **state)
{
    (void)state;
    const struct generate_prompt prompts[] = {{"a", first_ids, 3}, {"b", second_ids, 1}};
    expect_body(&(struct generate_request){.prompts = prompts,
                                           .count = 2,
                                           .new_tokens = 512,
                                           .has_temperature = true,
                                           .ignore_eos = true,
                                           .logprobs = true,
                                           .logprob_start = -1,
                                           .vocabulary = 512},
                "{\"input_ids\":[[334,146,395],[498]],\"rid\":[\"a\",\"b\"],\"sampling_params\":{\"temperature\":0,"
                "\"max_new_tokens\":512,\"ignore_eos\":true},\"return_logprob\":true,\"return_text_in_logprobs\":false,"
                "\"logprob_start_len\":-1}");
    expect_body(&(struct generate_request){.prompts = prompts, .count = 1, .ignore_eos = true},
                "{\"input_ids\":[[334,146,395]],\"rid\":[\"a\"],\"sampling_params\":{\"max_new_tokens\":0,"
                "\"ignore_eos\":true}}");
    expect_body(&(struct generate_request){.prompts = &(struct generate_prompt){NULL, second_ids, 1},
                                           .count = 1,
                                           .has_temperature = true,
                                           .temperature = 1,
                                           .logprobs = true},
                "{\"input_ids\":[[498]],\"sampling_params\":{\"temperature\":1,\"max_new_tokens\":0,\"ignore_eos\":"
                "false},\"return_logprob\":true,\"return_text_in_logprobs\":false,\"logprob_start_len\":0}");
}

static const char two_scores[] =
    "[{\"output_ids\":[],\"meta_info\":{\"id\":\"a\",\"finish_reason\":{\"type\":\"length\",\"length\":0},"
    "\"prompt_tokens\":3,\"cached_tokens\":1,\"input_token_logprobs\":[[null,146,null],[-2.5,395,null]]}},"
    "{\"output_ids\":[],\"meta_info\":{\"id\":\"b\",\"finish_reason\":{\"type\":\"length\",\"length\":0},"
    "\"prompt_tokens\":2,\"cached_tokens\":0,\"input_token_logprobs\":[[null,498,null],[-1.5,446,null]]}}]";

/* A batch in which each prompt is scored from a position of its own. */
static void test_starts_of_their_own(void **state)
{
    (void)state;
    const struct generate_prompt prompts[] = {{"a", first_ids, 3}, {"b", second_ids, 2}};
    const int64_t starts[] = {1, 0};
    const struct generate_request request = {
        .prompts = prompts, .count = 2, .logprobs = true, .logprob_start = 9, .logprob_starts = starts};
    struct generate_answers answers;
    struct error err = ERROR_INIT;
    expect_body(&request, "{\"input_ids\":[[334,146,395],[498,446]],\"rid\":[\"a\",\"b\"],\"sampling_params\":{"
                          "\"max_new_tokens\":0,\"ignore_eos\":false},\"return_logprob\":true,"
                          "\"return_text_in_logprobs\":false,\"logprob_start_len\":[1,0]}");
    if (generate_read(&request, 200, two_scores, sizeof two_scores - 1, &answers, &err) != ERROR_NONE)
        fail_msg("%s", err.message);
    assert_true(isnan(answers.items[0].input_logprobs[0]) && isnan(answers.items[0].input_logprobs[1]));
    assert_true(answers.items[0].input_logprobs[2] == -2.5);
    assert_true(isnan(answers.items[1].input_logprobs[0]) && answers.items[1].input_logprobs[1] == -1.5);
    generate_answers_fini(&answers);
}

static void test_rules_of_the_helpers(void **state)
{
    (void)state;
    static const struct {
        const char *version;
        double temperature;
    } cases[] = {{"0.5.9", 1}, {"0.5.12.post1", 1}, {"0.5.16", 0}, {"0.5.23", 0}, {"0.6.0.dev1", 0}, {"main", 0}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        assert_true(kl_helper_temperature(cases[i].version) == cases[i].temperature);
    assert_true(kl_helper_temperature(NULL) == 0);
    assert_non_null(kl_helper_prefill_miss(0));
    assert_null(kl_helper_prefill_miss(1));
    assert_non_null(kl_helper_decode_miss(11, 10));
    assert_null(kl_helper_decode_miss(12, 10));
    assert_false(kl_helper_enough(16, 32));
    assert_true(kl_helper_enough(17, 32));
    assert_false(kl_helper_enough(0, 0));
}

static void test_flush(void **state)
{
    (void)state;
    struct server_request built;
    struct error err = ERROR_INIT;
    generate_build_flush(30, &built);
    assert_string_equal(built.method, "POST");
    assert_string_equal(built.path, "/flush_cache?timeout=30");
    assert_int_equal(built.body.length, 0);
    server_request_fini(&built);
    assert_true(generate_flushed(200, "Cache flushed.", 14, &err));
    assert_false(generate_flushed(400, "Cache flushed.", 14, &err)); /* older releases say so in a refusal */
    assert_int_equal(err.code, ERROR_SERVER);
    assert_non_null(strstr(err.message, "HTTP 400: Cache flushed.; expected 200"));
}

static void read_file(const struct generate_request *request, const char *name, struct generate_answers *ret_answers)
{
    struct error err = ERROR_INIT;
    struct buffer text = load(name);
    if (generate_read(request, 200, text.data, text.length, ret_answers, &err) != ERROR_NONE)
        fail_msg("%s: %s", name, err.message);
    buffer_fini(&text);
}

static void test_real_decode(void **state)
{
    (void)state;
    struct generate_answers answers;
    const struct generate_prompt prompts[] = {{"kldump-d0", first_ids, 6}, {"kldump-d1", second_ids, 9}};
    read_file(&(struct generate_request){.prompts = prompts,
                                         .count = 2,
                                         .new_tokens = 4,
                                         .ignore_eos = true,
                                         .logprobs = true,
                                         .logprob_start = -1,
                                         .vocabulary = 512},
              "generate-decode-200.body", &answers);
    assert_int_equal(answers.count, 2);
    assert_string_equal(answers.items[1].rid, "kldump-d1");
    assert_string_equal(answers.items[1].finish, "length");
    assert_string_equal(answers.items[1].weight_version, "default");
    assert_int_equal(answers.items[1].prompt_tokens, 9);
    assert_int_equal(answers.items[1].cached_tokens, 0);
    assert_int_equal(answers.items[1].output_count, 4);
    assert_int_equal(answers.items[1].output_ids[3], 490);
    assert_true(answers.items[1].output_logprobs[3] == -1.3569896221160889);
    assert_null(answers.items[1].input_logprobs);
    generate_answers_fini(&answers);
}

/* Output k of the decode stands at position plen + k of what is scored. */
static void test_real_scores(void **state)
{
    (void)state;
    struct generate_answers answers;
    const struct generate_prompt prompts[] = {{"kldump-s0", first_ids, 10}, {"kldump-s1", second_ids, 13}};
    read_file(
        &(struct generate_request){
            .prompts = prompts, .count = 2, .ignore_eos = true, .logprobs = true, .vocabulary = 512},
        "generate-score-200.body", &answers);
    assert_int_equal(answers.items[0].output_count, 0);
    assert_true(isnan(answers.items[0].input_logprobs[0]));
    assert_true(answers.items[0].input_logprobs[1] == -12.847696304321289);
    assert_true(answers.items[0].input_logprobs[6] == -0.5478764772415161);
    assert_true(answers.items[1].input_logprobs[12] == -1.356988549232483);
    generate_answers_fini(&answers);
}

/* On a cached prefix of 8 ids: entry 0 is that of position 8, and has no logprob; the rest has the right place. */
static void test_real_start(void **state)
{
    (void)state;
    struct generate_answers answers;
    const struct generate_prompt prompt = {"kldump-r0", first_ids, 10};
    read_file(&(struct generate_request){.prompts = &prompt,
                                         .count = 1,
                                         .ignore_eos = true,
                                         .logprobs = true,
                                         .logprob_start = 8,
                                         .vocabulary = 512},
              "generate-restore-200.body", &answers);
    assert_int_equal(answers.items[0].cached_tokens, 8);
    for (size_t p = 0; p < 9; p++)
        assert_true(isnan(answers.items[0].input_logprobs[p]));
    assert_true(answers.items[0].input_logprobs[9] == -1.5264534950256348);
    generate_answers_fini(&answers);
}

/* The last id of the vocabulary comes back as 0; of any other id that is a fault. */
static void test_real_last_id(void **state)
{
    (void)state;
    static const int64_t ids[] = {5, 511, 7};
    struct generate_answers answers;
    struct error err = ERROR_INIT;
    const struct generate_prompt prompt = {"kldump-v0", ids, 3};
    struct generate_request request = {
        .prompts = &prompt, .count = 1, .new_tokens = 1, .ignore_eos = true, .logprobs = true, .vocabulary = 512};
    read_file(&request, "generate-vocab-200.body", &answers);
    assert_true(answers.items[0].input_logprobs[1] == -11.770442962646484);
    generate_answers_fini(&answers);
    struct buffer text = load("generate-vocab-200.body");
    request.vocabulary = 600;
    assert_int_equal(generate_read(&request, 200, text.data, text.length, &answers, &err), ERROR_FORMAT);
    assert_string_equal(err.message, "generate: request 0, kldump-v0: input_token_logprobs.1 is of id 0; expected 511, "
                                     "the one sent there");
    buffer_fini(&text);
}

/* A server whose logprobs are their positions: whatever is read lies where it belongs, for every start. */
static void test_every_start(void **state)
{
    (void)state;
    enum { LENGTH = 12 };
    int64_t ids[LENGTH];
    for (int i = 0; i < LENGTH; i++)
        ids[i] = 100 + i;
    const struct generate_prompt prompt = {"r", ids, LENGTH};
    for (int start = 0; start < LENGTH; start++) {
        struct buffer body;
        struct generate_answers answers;
        struct error err = ERROR_INIT;
        buffer_init(&body);
        buffer_format(&body,
                      "[{\"output_ids\":[],\"meta_info\":{\"id\":\"r\",\"finish_reason\":{\"type\":\"length\","
                      "\"length\":0},\"prompt_tokens\":%d,\"completion_tokens\":0,\"cached_tokens\":%d,"
                      "\"input_token_logprobs\":[",
                      LENGTH, start);
        for (int p = start; p < LENGTH; p++)
            if (p == start)
                buffer_format(&body, "[null,%d,null]", 100 + p);
            else
                buffer_format(&body, ",[-%d.5,%d,null]", p, 100 + p);
        buffer_text(&body, "],\"output_token_logprobs\":[[-9,9,null]]}}]"); /* mixed with others: one entry */
        if (generate_read(
                &(struct generate_request){
                    .prompts = &prompt, .count = 1, .ignore_eos = true, .logprobs = true, .logprob_start = start},
                200, body.data, body.length, &answers, &err) != ERROR_NONE)
            fail_msg("start %d: %s\n%s", start, err.message, body.data);
        for (int p = 0; p < LENGTH; p++) {
            double got = answers.items[0].input_logprobs[p];
            assert_true(p <= start ? isnan(got) : got == -p - 0.5);
        }
        generate_answers_fini(&answers);
        buffer_fini(&body);
    }
}

/* One good answer of two new tokens after [7,8], with a text of it replaced. */
static const char good[] =
    "[{\"output_ids\":[9,10],\"meta_info\":{\"id\":\"r\",\"finish_reason\":{\"type\":\"length\",\"length\":2},"
    "\"prompt_tokens\":2,\"completion_tokens\":2,\"cached_tokens\":0,\"input_token_logprobs\":[[null,7,null],"
    "[-1.5,8,null]],\"output_token_logprobs\":[[-2.5,9,null],[-3.5,10,null]]}}]";

static char *changed(const char *from, const char *to)
{
    struct buffer text;
    const char *at = strstr(good, from);
    assert_non_null(at);
    buffer_init(&text);
    buffer_append(&text, good, (size_t)(at - good));
    buffer_text(&text, to);
    buffer_text(&text, at + strlen(from));
    return text.data; /* the only thing of it that is owned */
}

static enum error_code read_text(const char *body, int status, bool ignore_eos, struct error *err)
{
    static const int64_t ids[] = {7, 8};
    const struct generate_prompt prompt = {"r", ids, 2};
    struct generate_answers answers = {.count = 77};
    enum error_code code = generate_read(&(struct generate_request){.prompts = &prompt,
                                                                    .count = 1,
                                                                    .new_tokens = 2,
                                                                    .ignore_eos = ignore_eos,
                                                                    .logprobs = true,
                                                                    .vocabulary = 50},
                                         status, body, strlen(body), &answers, err);
    if (code == ERROR_NONE)
        generate_answers_fini(&answers);
    else
        assert_int_equal(answers.count, 77);
    return code;
}

static void test_wrong_answers(void **state)
{
    (void)state;
    static const struct {
        const char *from, *to;
        enum error_code code;
        const char *said;
    } rows[] = {
        {"\"length\",\"length\":2", "\"abort\",\"message\":\"no memory\",\"status_code\":500", ERROR_SERVER,
         "the server has aborted it: no memory"},
        {"\"type\":\"length\"", "\"type\":\"stop\"", ERROR_FORMAT, "ended by 'stop'; expected 'length', since ignore"},
        {"\"prompt_tokens\":2", "\"prompt_tokens\":1", ERROR_FORMAT,
         "prompt_tokens is 1; expected 2: the server has cut"},
        {"\"prompt_tokens\":2", "\"prompt_tokens\":3", ERROR_FORMAT, "the server has added to the prompt"},
        {"\"cached_tokens\":0", "\"cached_tokens\":3", ERROR_FORMAT, "cached_tokens is 3; expected at most"},
        {"\"cached_tokens\":0,", "", ERROR_FORMAT, "cached_tokens"},
        {"\"cached_tokens\":0,", "\"cached_tokens\":0,\"num_retractions\":-1,", ERROR_FORMAT, "num_retractions"},
        {"\"input_token_logprobs\"", "\"other\"", ERROR_FORMAT, "nothing can be measured without logprobs"},
        {"[9,10]", "[9]", ERROR_FORMAT, "output_ids has 1 ids; expected 2: the answer was cut"},
        {"[9,10]", "[9,10,11]", ERROR_FORMAT, "output_ids has 3 ids; expected 2"},
        {"[9,10]", "[9,50]", ERROR_FORMAT, "output_ids.1 is 50; expected an id below 50"},
        {"\"id\":\"r\"", "\"id\":\"q\"", ERROR_FORMAT, "the answer is that of request q"},
        {"[-1.5,8,null]", "[null,8,null]", ERROR_FORMAT, "input_token_logprobs.1 has no logprob (null)"},
        {"[null,7,null]", "[-1,7,null]", ERROR_FORMAT, "input_token_logprobs.0 has a logprob; expected null"},
        {"[null,7,null],", "", ERROR_FORMAT, "input_token_logprobs has 1 entries; expected 2"},
        {"[-1.5,8,null]", "[-1.5,9,null]", ERROR_FORMAT, "input_token_logprobs.1 is of id 9; expected 8"},
        {"[-1.5,8,null]", "[-1.5]", ERROR_FORMAT, "input_token_logprobs.1: expected [logprob, id, text]"},
        {"[-3.5,10,null]", "[null,10,null]", ERROR_FORMAT, "output_token_logprobs.1 has no logprob"},
        {"[-2.5,9,null],", "", ERROR_FORMAT, "output_token_logprobs has 1 entries; expected 2"},
        {"[{\"output_ids\"", "[{\"error\":{\"message\":\"out of tokens\"}},{\"output_ids\"", ERROR_FORMAT,
         "2 answers; expected 1"},
        {"\"output_ids\":[9,10],", "\"error\":{\"message\":\"out of tokens\"},", ERROR_SERVER,
         "request 0, r: out of tokens"},
        {"\"output_token_logprobs\"", "\"other\"", ERROR_FORMAT, "output_token_logprobs"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct error err = ERROR_INIT;
        char *body = changed(rows[i].from, rows[i].to);
        assert_int_equal(read_text(body, 200, true, &err), rows[i].code);
        if (strstr(err.message, rows[i].said) == NULL)
            fail_msg("row %zu: %s", i, err.message);
        free(body);
    }
    assert_int_equal(read_text(good, 200, true, NULL), ERROR_NONE);
}

/* Without ignore_eos an answer may end early. */
static void test_stop(void **state)
{
    (void)state;
    static const char body[] =
        "[{\"output_ids\":[9],\"meta_info\":{\"id\":\"r\",\"finish_reason\":{\"type\":\"stop\",\"matched\":9},"
        "\"prompt_tokens\":2,\"completion_tokens\":1,\"cached_tokens\":0,\"input_token_logprobs\":[[null,7,null],"
        "[-1.5,8,null]],\"output_token_logprobs\":[[-2.5,9,null]]}}]";
    assert_int_equal(read_text(body, 200, false, NULL), ERROR_NONE);
    assert_int_equal(read_text(body, 200, true, NULL), ERROR_FORMAT);
}

static void test_error_bodies(void **state)
{
    (void)state;
    struct error err = ERROR_INIT;
    static const char *const under_200[] = {"{\"error\":{\"message\":\"boom\"}}",
                                            "{\"object\":\"error\",\"message\":\"boom\",\"code\":503}"};
    for (size_t i = 0; i < 2; i++) {
        assert_int_equal(read_text(under_200[i], 200, true, &err), ERROR_SERVER);
        assert_string_equal(err.message, "generate: HTTP 200: boom");
    }
    struct buffer text = load("generate-toolong-400.body");
    assert_int_equal(read_text(text.data, 400, true, &err), ERROR_SERVER);
    assert_string_equal(err.message, "generate: HTTP 400: The input (2304 tokens) is longer than the model's context "
                                     "length (2048 tokens).");
    buffer_fini(&text);
    assert_int_equal(read_text("no JSON", 502, true, &err), ERROR_SERVER);
    assert_string_equal(err.message, "generate: HTTP 502: no JSON");
    assert_int_equal(read_text("[", 200, true, &err), ERROR_FORMAT);
    assert_int_equal(read_text("{}", 200, true, &err), ERROR_FORMAT);
    assert_non_null(strstr(err.message, "is no list"));
}

static void test_tokenize(void **state)
{
    (void)state;
    struct server_request built;
    struct error err = ERROR_INIT;
    int64_t *ids = NULL;
    size_t count = 0;
    generate_build_tokenize("hi \"you\"", &built);
    assert_string_equal(built.path, "/tokenize");
    assert_string_equal(built.body.data, "{\"prompt\":\"hi \\\"you\\\"\"}");
    server_request_fini(&built);
    static const char body[] = "{\"tokens\":[1,22,333],\"count\":3,\"max_model_len\":2048}";
    assert_int_equal(generate_read_tokenize(200, body, strlen(body), &ids, &count, &err), ERROR_NONE);
    assert_int_equal(count, 3);
    assert_int_equal(ids[2], 333);
    free(ids);
    static const char refused[] = "{\"object\":\"error\",\"message\":\"no tokenizer\"}";
    assert_int_equal(generate_read_tokenize(500, refused, strlen(refused), &ids, &count, &err), ERROR_SERVER);
    assert_non_null(strstr(err.message, "no tokenizer; give the prompts as input_ids"));
    assert_int_equal(generate_read_tokenize(200, "{\"tokens\":[\"a\"]}", 16, &ids, &count, &err), ERROR_FORMAT);
}

static void read_server(const char *model_text, struct generate_server *ret_server)
{
    struct error err = ERROR_INIT;
    struct buffer info = load("server-info-whole-200.body"), model = load("model-info-200.body"),
                  config = load("model-config.json");
    if (model_text == NULL)
        model_text = model.data;
    assert_int_equal(generate_server_read(info.data, info.length, model_text, strlen(model_text), ret_server, &err),
                     ERROR_NONE);
    assert_int_equal(ret_server->vocabulary, 0);
    assert_int_equal(generate_server_read_model(config.data, config.length, ret_server, &err), ERROR_NONE);
    buffer_fini(&info);
    buffer_fini(&model);
    buffer_fini(&config);
}

static void test_server(void **state)
{
    (void)state;
    struct generate_server server, other;
    struct error err = ERROR_INIT;
    char hash[17], again[17];
    read_server(NULL, &server);
    assert_string_equal(server.version, "0.5.23");
    assert_string_equal(server.model_path, "/srv/model");
    assert_string_equal(server.weight_version, "default");
    assert_int_equal(server.vocabulary, 512);
    assert_int_equal(server.context_length, 2048);
    assert_int_equal(server.input_limit, 2042);
    assert_int_equal(server.page_size, 1);
    assert_int_equal(server.state_checkpoint_interval, 0);
    assert_int_equal(server.tp_size, 1);
    assert_true(server.radix_cache && !server.deterministic && server.graphs_known && server.graphs_off);
    assert_true(server.moe_known && !server.mixture_of_experts);
    assert_non_null(strstr(server.start_text, "tokenizer_e2e"));
    static const char *const kept[] = {
        "dtype",      "chunked_prefill_size",          "attention_backend", "page_size", "random_seed",
        "model_path", "enable_deterministic_inference"};
    for (size_t i = 0; i < sizeof kept / sizeof kept[0]; i++)
        assert_non_null(json_member(server.settings, kept[i]));
    static const char *const left_out[] = {"host",      "port",    "internal_states", "startup_time",
                                           "log_level", "api_key", "launch_command",  "watermark_key"};
    for (size_t i = 0; i < sizeof left_out / sizeof left_out[0]; i++)
        assert_null(json_member(server.settings, left_out[i]));
    generate_server_hash(&server, hash);
    read_server("{\"model_path\":\"/srv/model\",\"weight_version\":\"step-7\"}", &other);
    generate_server_hash(&other, again);
    assert_string_equal(hash, again);
    assert_int_equal(generate_server_same(&server, &server, &err), ERROR_NONE);
    assert_int_equal(generate_server_same(&server, &other, &err), ERROR_STATE);
    assert_non_null(strstr(err.message, "other weights were loaded"));
    other.start_text[0] = '[';
    assert_int_equal(generate_server_same(&server, &other, &err), ERROR_STATE);
    assert_non_null(strstr(err.message, "was restarted"));
    generate_server_fini(&server);
    generate_server_fini(&other);
}

static void test_models(void **state)
{
    (void)state;
    struct generate_server server = {0};
    struct error err = ERROR_INIT;
    static const char mixture[] = "{\"text_config\":{\"vocab_size\":99,\"num_experts\":8,\"sliding_window\":64}}";
    assert_int_equal(generate_server_read_model(mixture, strlen(mixture), &server, &err), ERROR_NONE);
    assert_true(server.vocabulary == 99 && server.mixture_of_experts && server.sliding_window == 64);
    static const char unused[] = "{\"vocab_size\":99,\"sliding_window\":64,\"use_sliding_window\":false}";
    assert_int_equal(generate_server_read_model(unused, strlen(unused), &server, &err), ERROR_NONE);
    assert_int_equal(server.sliding_window, 0);
    assert_int_equal(generate_server_read_model("[]", 2, &server, &err), ERROR_FORMAT);
    assert_int_equal(generate_server_read("{}", 2, "{}", 2, &server, &err), ERROR_FORMAT);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_requests),
        cmocka_unit_test(test_flush),
        cmocka_unit_test(test_real_decode),
        cmocka_unit_test(test_real_scores),
        cmocka_unit_test(test_real_start),
        cmocka_unit_test(test_real_last_id),
        cmocka_unit_test(test_every_start),
        cmocka_unit_test(test_wrong_answers),
        cmocka_unit_test(test_stop),
        cmocka_unit_test(test_error_bodies),
        cmocka_unit_test(test_tokenize),
        cmocka_unit_test(test_server),
        cmocka_unit_test(test_models),
        cmocka_unit_test(test_starts_of_their_own),
        cmocka_unit_test(test_rules_of_the_helpers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
