/* server_info.c: see server_info.h. */
#include "server_info.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "knobs.h"
#include "server.h"
#include "text.h"
#include "version.h"

/* Values that do not depend on anything that the stand-in knows (SGLang 0.5.23, live). */
static const char FIXED[] =
    "{\"tokenizer_mode\":\"auto\",\"load_format\":\"auto\",\"quantization\":null,\"kv_cache_dtype\":\"auto\","
    "\"max_prefill_tokens\":16384,\"schedule_policy\":\"fcfs\",\"num_continuous_decode_steps\":1,"
    "\"dist_init_addr\":null,\"nccl_port\":null,\"watchdog_timeout\":300,\"enable_pdmux\":false,"
    "\"speculative_draft_model_path\":null,\"lora_paths\":null,\"enable_lora\":null,\"weight_version\":\"default\","
    "\"disable_cuda_graph_padding\":false,\"ep_size\":1,\"moe_dp_size\":1,\"attn_cp_size\":1,"
    "\"log_level\":\"info\",\"served_model_name\":null,\"base_gpu_id\":0,\"kv_events\":null,\"frontend\":null}";

static const struct {
    const char *key, *flag;
} SWITCHES[] = {
    {"skip_tokenizer_init", "--skip-tokenizer-init"},
    {"skip_server_warmup", "--skip-server-warmup"},
    {"trust_remote_code", "--trust-remote-code"},
    {"disable_radix_cache", "--disable-radix-cache"},
    {"disable_cuda_graph", "--disable-cuda-graph"},
    {"disable_decode_cuda_graph", "--disable-decode-cuda-graph"},
    {"disable_prefill_cuda_graph", "--disable-prefill-cuda-graph"},
    {"enable_mixed_chunk", "--enable-mixed-chunk"},
    {"enable_dp_attention", "--enable-dp-attention"},
    {"enable_torch_compile", "--enable-torch-compile"},
    {"enable_two_batch_overlap", "--enable-two-batch-overlap"},
    {"enable_deterministic_inference", "--enable-deterministic-inference"},
    {"enable_metrics", "--enable-metrics"},
    {"allow_auto_truncate", "--allow-auto-truncate"},
};

static const struct {
    const char *key, *flag;
    int otherwise;
} NUMBERS[] = {{"pp_size", "--pp-size", 1},
               {"dp_size", "--dp-size", 1},
               {"nnodes", "--nnodes", 1},
               {"node_rank", "--node-rank", 0},
               {"random_seed", "--random-seed", 42},
               {"page_size", "--page-size", 1},
               {"mamba_track_interval", "--mamba-track-interval", 256}};

static char weights[64] = "default";

void server_info_set_weights(const char *version)
{
    snprintf(weights, sizeof weights, "%s", version);
}

static void add_text(cJSON *object, const char *key, const char *text)
{
    cJSON_AddItemToObject(object, key, text != NULL ? cJSON_CreateString(text) : cJSON_CreateNull());
}

static const char *value_of(const char *flag, const char *otherwise)
{
    const char *value = NULL;
    return arguments_given(flag, &value) ? value : otherwise;
}

static void add_phase(cJSON *config, const char *phase, const char *backend)
{
    cJSON *object = cJSON_AddObjectToObject(config, phase);
    cJSON_AddStringToObject(object, "backend", backend);
    /* Filled also when disabled: says nothing. */
    cJSON_AddNumberToObject(object, "max_bs", strcmp(phase, "decode") == 0 ? 32 : 4096);
    cJSON_AddItemToObject(object, "bs", cJSON_CreateIntArray((int[]){4, 8, 12, 16, 20, 24, 28, 32}, 8));
    cJSON_AddStringToObject(object, "tc_compiler", "eager");
}

static void add_graphs(cJSON *info)
{
    const struct arguments *arguments = server_arguments();
    if (!version_rules()->separate_graph_phases) {
        cJSON_ReplaceItemInObject(info, "disable_cuda_graph",
                                  cJSON_CreateBool(strcmp(arguments->decode_graph, "disabled") == 0));
        cJSON_AddBoolToObject(info, "disable_piecewise_cuda_graph", strcmp(arguments->prefill_graph, "disabled") == 0);
        return;
    }
    cJSON *config = cJSON_AddObjectToObject(info, "cuda_graph_config");
    add_phase(config, "decode", arguments->decode_graph);
    add_phase(config, "prefill", arguments->prefill_graph);
    add_text(info, "cuda_graph_backend_decode", value_of("--cuda-graph-backend-decode", NULL));
    add_text(info, "cuda_graph_backend_prefill", value_of("--cuda-graph-backend-prefill", NULL));
}

static cJSON *common(void)
{
    const struct arguments *arguments = server_arguments();
    cJSON *info = cJSON_Parse(FIXED);
    add_text(info, "model_path", arguments->model_path);
    add_text(info, "tokenizer_path", value_of("--tokenizer-path", arguments->model_path));
    add_text(info, "host", arguments->host);
    cJSON_AddNumberToObject(info, "port", arguments->port);
    add_text(info, "device", arguments->device);
    add_text(info, "dtype", arguments->dtype);
    add_text(info, "attention_backend", arguments->attention_backend);
    add_text(info, "speculative_algorithm", value_of("--speculative-algorithm", NULL));
    add_text(info, "disaggregation_mode", value_of("--disaggregation-mode", "null"));
    add_text(info, "debug_tensor_dump_output_folder", value_of("--debug-tensor-dump-output-folder", NULL));
    add_text(info, "api_key", arguments->api_key);
    add_text(info, "admin_api_key", arguments->admin_api_key);
    cJSON_AddNumberToObject(info, "tp_size", arguments->tensor);
    cJSON_AddNumberToObject(info, "chunked_prefill_size", (double)arguments->chunked_prefill_size);
    cJSON_AddNumberToObject(info, "attn_dp_size",
                            arguments->attention_replicas > 0 ? arguments->attention_replicas : 1);
    const char *total = value_of("--max-total-tokens", NULL);
    cJSON_AddItemToObject(info, "max_total_tokens",
                          total != NULL ? cJSON_CreateNumber(atof(total)) : cJSON_CreateNull());
    for (size_t i = 0; i < sizeof NUMBERS / sizeof NUMBERS[0]; i++) {
        const char *value = value_of(NUMBERS[i].flag, NULL);
        cJSON_AddNumberToObject(info, NUMBERS[i].key, value != NULL ? atof(value) : NUMBERS[i].otherwise);
    }
    for (size_t i = 0; i < sizeof SWITCHES / sizeof SWITCHES[0]; i++)
        cJSON_AddBoolToObject(info, SWITCHES[i].key, arguments_given(SWITCHES[i].flag, NULL));
    cJSON_AddBoolToObject(info, "disable_overlap_schedule", !arguments->overlap);
    cJSON_AddBoolToObject(info, "uses_mamba_radix_cache", arguments->radix_cache && model_recurs(server_model()));
    add_graphs(info);
    return info;
}

static void add_state(cJSON *info)
{
    cJSON *state = common();
    cJSON *memory = cJSON_AddObjectToObject(state, "memory_usage");
    cJSON_AddNumberToObject(memory, "weight", 0);
    cJSON_AddNumberToObject(memory, "kvcache", 0);
    cJSON_AddNumberToObject(memory, "token_capacity", (double)server_arguments()->max_total_tokens);
    if (version_rules()->separate_graph_phases) {
        static const char *const PHASES[] = {"prefill",       "decode",       "target_verify",
                                             "draft_prefill", "draft_decode", "draft_extend"};
        cJSON *graph = cJSON_AddObjectToObject(memory, "graph");
        for (size_t i = 0; i < sizeof PHASES / sizeof PHASES[0]; i++)
            /* Wrong when others use the GPU during the start (0.5.16 on an H200). */
            cJSON_AddNumberToObject(graph, PHASES[i],
                                    i == 1 && strcmp(server_arguments()->device, "cuda") == 0 ? -4.3 : 0);
    } else {
        cJSON_AddNumberToObject(memory, "graph", 0);
    }
    cJSON_AddNumberToObject(state, "world_size", server_arguments()->ranks);
    cJSON_AddArrayToObject(state, "decode_cuda_graph_bs");
    cJSON_AddItemToArray(cJSON_GetObjectItemCaseSensitive(info, "internal_states"), state);
}

/* Seconds that the parts of the start took: other ones for each process. */
static void add_startup(cJSON *info)
{
    static double seconds;
    if (seconds == 0)
        seconds = knobs_seconds() / 1000;
    cJSON *times = cJSON_AddObjectToObject(info, "startup_time");
    cJSON_AddNumberToObject(times, "load_weight", 0.02);
    cJSON_AddNumberToObject(times, "tokenizer_e2e", seconds);
}

cJSON *server_info_server(void)
{
    const struct arguments *arguments = server_arguments();
    const struct model *model = server_model();
    cJSON *info = common();
    struct text command;
    text_init(&command);
    for (int i = 0; i < arguments->count; i++)
        text_format(&command, "%s%s", i > 0 ? " " : "", arguments->given[i]);
    cJSON_AddStringToObject(info, "launch_command", command.data != NULL ? command.data : "");
    text_fini(&command);
    cJSON_AddStringToObject(info, "status", "ready");
    size_t limit =
        model->context - 1 < arguments->max_total_tokens - 1 ? model->context - 1 : arguments->max_total_tokens - 1;
    cJSON_AddNumberToObject(info, "max_total_num_tokens", (double)arguments->max_total_tokens);
    cJSON_AddNumberToObject(info, "max_req_input_len", (double)(limit - 5));
    cJSON_AddArrayToObject(info, "internal_states");
    int states = arguments->attention_replicas > 0 ? arguments->attention_replicas : arguments->replicas;
    for (int i = 0; i < states; i++) /* one for each data-parallel replica */
        add_state(info);
    cJSON_AddStringToObject(info, "version", version_text());
    if (version_number() >= 523)
        add_startup(info);
    return info;
}

cJSON *server_info_model(void)
{
    const struct model *model = server_model();
    cJSON *info = cJSON_CreateObject();
    add_text(info, "model_path", model->path);
    add_text(info, "served_model_name", value_of("--served-model-name", model->path));
    add_text(info, "tokenizer_path", value_of("--tokenizer-path", model->path));
    cJSON_AddTrueToObject(info, "is_generation");
    cJSON_AddNullToObject(info, "preferred_sampling_params");
    cJSON_AddStringToObject(info, "weight_version", weights);
    cJSON_AddStringToObject(info, "load_format", "auto");
    add_text(info, "disaggregation_mode", value_of("--disaggregation-mode", "null"));
    cJSON_AddFalseToObject(info, "has_image_understanding");
    cJSON_AddFalseToObject(info, "has_audio_understanding");
    add_text(info, "model_type", model->type);
    cJSON_AddItemToArray(cJSON_AddArrayToObject(info, "architectures"), cJSON_CreateString(model->architecture));
    return info;
}

cJSON *server_info_models(void)
{
    const struct model *model = server_model();
    cJSON *list = cJSON_CreateObject(), *one = cJSON_CreateObject();
    cJSON_AddStringToObject(list, "object", "list");
    cJSON_AddItemToArray(cJSON_AddArrayToObject(list, "data"), one);
    add_text(one, "id", value_of("--served-model-name", model->path));
    cJSON_AddStringToObject(one, "object", "model");
    cJSON_AddNumberToObject(one, "created", (double)time(NULL));
    cJSON_AddStringToObject(one, "owned_by", "sglang");
    add_text(one, "root", value_of("--served-model-name", model->path));
    cJSON_AddNullToObject(one, "parent");
    cJSON_AddNumberToObject(one, "max_model_len", (double)model->context);
    return list;
}

/* What runs is counted by the main process here: all of it is told of the first replica. */
static cJSON *load_of(int replica, time_t now)
{
    const struct arguments *arguments = server_arguments();
    cJSON *load = cJSON_CreateObject();
    cJSON_AddNumberToObject(load, "timestamp", (double)now);
    cJSON_AddNumberToObject(load, "dp_rank", replica);
    cJSON_AddNumberToObject(load, "num_running_reqs", replica == 0 ? server_open_requests() : 0);
    cJSON_AddNumberToObject(load, "num_waiting_reqs", 0);
    cJSON_AddNumberToObject(load, "num_used_tokens", 0);
    cJSON_AddNumberToObject(load, "num_total_tokens", 0);
    cJSON_AddNumberToObject(load, "max_total_num_tokens", (double)arguments->max_total_tokens);
    cJSON_AddNumberToObject(load, "max_running_requests", (double)arguments->max_running_requests);
    cJSON_AddNumberToObject(load, "token_usage", 0);
    cJSON_AddNumberToObject(load, "gen_throughput", 0);
    if (version_number() >= 520)
        cJSON_AddNumberToObject(load, "total_prefill_uncached_tokens", replica == 0 ? server_prefilled() : 0);
    return load;
}

cJSON *server_info_loads(void)
{
    const struct arguments *arguments = server_arguments();
    time_t now = time(NULL);
    struct tm parts;
    char date[64];
    gmtime_r(&now, &parts);
    strftime(date, sizeof date, "%Y-%m-%dT%H:%M:%S+00:00", &parts);
    cJSON *info = cJSON_CreateObject();
    cJSON_AddStringToObject(info, "timestamp", date);
    cJSON_AddStringToObject(info, "version", version_text());
    cJSON_AddNullToObject(info, "accelerator");
    cJSON_AddNumberToObject(info, "num_accelerators", arguments->ranks * arguments->replicas);
    cJSON *loads = cJSON_AddArrayToObject(info, "loads");
    for (int i = 0; i < arguments->replicas; i++)
        cJSON_AddItemToArray(loads, load_of(i, now));
    return info;
}
