/* /server_info has the settings as resolved, /model_info what a reload of weights changes (0.5.23, http_server.py), the
 * model's config.json what neither tells: the size of the vocabulary above all. */
#include "base/hash.h"
#include "base/memory.h"
#include "base/text.h"
#include "json/json.h"
#include "sglang/generate.h"
#include "sglang/info.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

static const struct json_limits limits = {SIZE_MAX, JSON_DEPTH_LIMIT, JSON_ANY_VALUES};

/* A setting whose name begins or ends so bears on no number: addresses, names, logs, limits of time, what changes while
 * the server runs. The rest of the answer is what was resolved before the start (srt/server_args.py). */
static const char *const unimportant_beginnings[] = {"api_key",
                                                     "admin_api_key",
                                                     "bucket_",
                                                     "crash_dump",
                                                     "decode_log",
                                                     "dist_",
                                                     "enable_trace",
                                                     "engine_info",
                                                     "export_metrics",
                                                     "extra_metric",
                                                     "fastapi_",
                                                     "file_storage",
                                                     "frontend",
                                                     "gc_",
                                                     "generation_tokens",
                                                     "grpc_",
                                                     "host",
                                                     "http2_",
                                                     "internal_states",
                                                     "kv_events",
                                                     "launch_command",
                                                     "max_total_num_tokens",
                                                     "load_publish",
                                                     "load_snapshot",
                                                     "log_",
                                                     "nccl_port",
                                                     "numa_node",
                                                     "otlp_",
                                                     "port",
                                                     "prompt_tokens_",
                                                     "sidecar",
                                                     "smg_",
                                                     "ssl_",
                                                     "startup_time",
                                                     "status",
                                                     "stat_loggers",
                                                     "stream_",
                                                     "tokenizer_metrics",
                                                     "trace_",
                                                     "uvicorn_",
                                                     "watermark_",
                                                     "weight_cache_"};
static const char *const unimportant_endings[] = {"_port",     "_ports",   "_timeout", "_secs",       "_metrics",
                                                  "_logging",  "_handler", "_socket",  "_endpoint",   "_endpoints",
                                                  "_folder",   "_urls",    "_dir",     "_parser",     "_template",
                                                  "_password", "_key",     "_ip",      "_model_name", "_http2"};

static bool can_matter(const char *name)
{
    for (size_t i = 0; i < sizeof unimportant_beginnings / sizeof unimportant_beginnings[0]; i++)
        if (text_starts(name, unimportant_beginnings[i]))
            return false;
    for (size_t i = 0; i < sizeof unimportant_endings / sizeof unimportant_endings[0]; i++)
        if (text_ends(name, unimportant_endings[i]))
            return false;
    return true;
}

/* Null is the default of most, and left out. */
static struct json *choose_settings(const struct json *info)
{
    struct json *settings = json_object();
    for (const struct json *m = json_first(info); m != NULL; m = json_next(m))
        if (json_type(m) != JSON_NULL && can_matter(json_key(m)))
            json_set_child(settings, json_key(m), json_copy(m));
    return settings;
}

/* The seconds that each part of the start took (from 0.5.23 on); before, the seed, which is drawn at the start unless
 * it was given. */
static char *read_start(const struct json *info)
{
    const struct json *start = json_member(info, "startup_time"), *seed = json_member(info, "random_seed");
    if (start != NULL)
        return json_print_new(start);
    return seed != NULL ? json_print_new(seed) : NULL;
}

static char *text_of(const struct json *json, const char *path)
{
    const char *text = NULL;
    return json_get_string(json, path, &text, NULL) == ERROR_NONE ? memory_copy(text) : NULL;
}

static uint64_t number_of(const struct json *json, const char *path)
{
    uint64_t value = 0;
    return json_get_u64(json, path, &value, NULL) == ERROR_NONE ? value : 0;
}

static bool is_true(const struct json *json, const char *path)
{
    bool value = false;
    return json_get_bool(json, path, &value, NULL) == ERROR_NONE && value;
}

/* Models with experts say so in the name of their class ("Qwen3MoeForCausalLM", "MixtralForCausalLM"). */
static void read_architecture(const struct json *model, struct generate_server *server)
{
    const char *name = NULL;
    if (json_get_string(model, "architectures.0", &name, NULL) != ERROR_NONE)
        return;
    if (strcasestr(name, "moe") != NULL || text_starts(name, "Mixtral"))
        server->moe_known = server->mixture_of_experts = true;
}

static void read_settings(const struct json *info, const struct json *model, struct generate_server *server)
{
    server->model_path = text_of(model, "model_path");
    if (server->model_path == NULL)
        server->model_path = text_of(info, "model_path");
    server->weight_version = text_of(model, "weight_version");
    server->context_length = number_of(info, "context_length");
    server->input_limit = number_of(info, "max_req_input_len");
    server->page_size = number_of(info, "page_size");
    server->radix_cache = !is_true(info, "disable_radix_cache");
    server->deterministic = is_true(info, "enable_deterministic_inference");
    server->one_at_a_time = number_of(info, "max_running_requests") == 1;
    server->mixed_passes = is_true(info, "enable_mixed_chunk");
    if (is_true(info, "uses_mamba_radix_cache")) /* its interval has a value for every model */
        server->state_checkpoint_interval = number_of(info, "mamba_track_interval");
    server->start_text = read_start(info);
    server->settings = choose_settings(info);
    read_architecture(model, server);
}

enum error_code generate_server_read(const char *info, size_t info_length, const char *model, size_t model_length,
                                     struct generate_server *ret_server, struct error *err)
{
    struct json *info_json = NULL, *model_json = NULL;
    struct server_facts facts;
    enum error_code code = json_parse(info, info_length, limits, &info_json, err);
    if (code == ERROR_NONE)
        code = info_read(info_json, &facts, err);
    if (code != ERROR_NONE)
        error_prefix(err, "server_info");
    if (code == ERROR_NONE) {
        code = json_parse(model, model_length, limits, &model_json, err);
        if (code != ERROR_NONE)
            error_prefix(err, "model_info");
    }
    if (code == ERROR_NONE) {
        struct generate_server server = {.version = memory_copy(facts.version),
                                         .tp_size = facts.tensor_ranks,
                                         .graphs_known = facts.graphs_known,
                                         .graphs_off = facts.graphs_off};
        read_settings(info_json, model_json, &server);
        *ret_server = server;
    }
    json_free(info_json);
    json_free(model_json);
    return code;
}

/* Of models with several parts the text part counts. */
static uint64_t config_number(const struct json *config, const char *name)
{
    const struct json *text = json_member(config, "text_config");
    uint64_t value = number_of(config, name);
    return value != 0 ? value : number_of(text, name);
}

/* Names that models give the number of their experts. */
static bool has_experts(const struct json *config)
{
    static const char *const names[] = {"num_experts", "n_routed_experts", "num_local_experts", "moe_num_experts"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (config_number(config, names[i]) > 1)
            return true;
    return false;
}

enum error_code generate_server_read_model(const char *config, size_t length, struct generate_server *server,
                                           struct error *err)
{
    struct json *json = NULL;
    enum error_code code = json_parse(config, length, limits, &json, err);
    if (code == ERROR_NONE && json_type(json) != JSON_OBJECT)
        code = error_set(err, ERROR_FORMAT, "expected an object");
    if (code == ERROR_NONE) {
        server->vocabulary = config_number(json, "vocab_size");
        if (server->context_length == 0)
            server->context_length = config_number(json, "max_position_embeddings");
        bool unused = json_member(json, "use_sliding_window") != NULL && !is_true(json, "use_sliding_window");
        server->sliding_window = unused ? 0 : config_number(json, "sliding_window");
        server->mixture_of_experts = server->mixture_of_experts || has_experts(json);
        server->moe_known = true;
    }
    json_free(json);
    if (code != ERROR_NONE)
        error_prefix(err, "config.json of the model");
    return code;
}

static bool differ(const char *a, const char *b)
{
    return strcmp(a != NULL ? a : "", b != NULL ? b : "") != 0;
}

enum error_code generate_server_same(const struct generate_server *earlier, const struct generate_server *later,
                                     struct error *err)
{
    if (differ(earlier->start_text, later->start_text) || differ(earlier->version, later->version))
        return error_set(err, ERROR_STATE,
                         "the server was restarted meanwhile: what came before and after does not belong together; "
                         "measure again");
    if (differ(earlier->model_path, later->model_path) || differ(earlier->weight_version, later->weight_version))
        return error_set(err, ERROR_STATE,
                         "other weights were loaded meanwhile (%.100s, version %.40s; before %.100s, version %.40s); "
                         "measure again",
                         later->model_path, later->weight_version != NULL ? later->weight_version : "not said",
                         earlier->model_path, earlier->weight_version != NULL ? earlier->weight_version : "not said");
    return ERROR_NONE;
}

void generate_server_hash(const struct generate_server *server, char ret_hash[HASH_TEXT])
{
    uint64_t hash = hash_text(HASH_BEGIN, server->version != NULL ? server->version : "");
    for (const struct json *m = json_first(server->settings); m != NULL; m = json_next(m)) {
        if (strcmp(json_key(m), "random_seed") == 0)
            continue;
        char *value = json_print_new(m);
        hash = hash_text(hash_text(hash, json_key(m)), value);
        free(value);
    }
    hash_show(hash, ret_hash);
}

void generate_server_build(bool model, bool older, struct server_request *ret_request)
{
    ret_request->method = "GET";
    snprintf(ret_request->path, sizeof ret_request->path, "/%s%s_info", older ? "get_" : "",
             model ? "model" : "server");
    buffer_init(&ret_request->body);
}

void generate_server_fini(struct generate_server *server)
{
    free(server->version);
    free(server->model_path);
    free(server->weight_version);
    free(server->start_text);
    json_free(server->settings);
    *server = (struct generate_server){0};
}
