#include "sglang/flags.h"

#include <string.h>

/* `shortest` is the length of the shortest prefix that is this flag and no other. */
static const struct {
    const char *name;
    size_t shortest;
    const char *alias;
    size_t alias_shortest;
    bool takes_value;
} flags[FLAGS_COUNT] = {
    [FLAGS_HOST] = {"--host", 4, NULL, 0, true},
    [FLAGS_PORT] = {"--port", 4, NULL, 0, true},
    [FLAGS_API_KEY] = {"--api-key", 4, NULL, 0, true},
    [FLAGS_ADMIN_API_KEY] = {"--admin-api-key", 4, NULL, 0, true},
    [FLAGS_SSL_KEYFILE] = {"--ssl-keyfile", 13, NULL, 0, true},
    [FLAGS_SSL_KEYFILE_PASSWORD] = {"--ssl-keyfile-password", 14, NULL, 0, true},
    [FLAGS_SSL_CERTFILE] = {"--ssl-certfile", 8, NULL, 0, true},
    [FLAGS_DP_SIZE] = {"--dp-size", 4, "--data-parallel-size", 4, true},
    [FLAGS_ENABLE_DP_ATTENTION] = {"--enable-dp-attention", 21, NULL, 0, false},
    [FLAGS_NODE_RANK] = {"--node-rank", 4, NULL, 0, true},
    [FLAGS_CUDA_GRAPH_CONFIG] = {"--cuda-graph-config", 14, NULL, 0, true},
    [FLAGS_CUDA_GRAPH_BACKEND_DECODE] = {"--cuda-graph-backend-decode", 22, NULL, 0, true},
    [FLAGS_CUDA_GRAPH_BACKEND_PREFILL] = {"--cuda-graph-backend-prefill", 22, NULL, 0, true},
    [FLAGS_CUDA_GRAPH_BS] = {"--cuda-graph-bs", 15, NULL, 0, true},
    [FLAGS_CUDA_GRAPH_BS_DECODE] = {"--cuda-graph-bs-decode", 17, NULL, 0, true},
    [FLAGS_CUDA_GRAPH_BS_PREFILL] = {"--cuda-graph-bs-prefill", 17, NULL, 0, true},
    [FLAGS_CUDA_GRAPH_MAX_BS] = {"--cuda-graph-max-bs", 14, NULL, 0, true},
    [FLAGS_CUDA_GRAPH_MAX_BS_DECODE] = {"--cuda-graph-max-bs-decode", 21, NULL, 0, true},
    [FLAGS_PIECEWISE_TOKENS] = {"--piecewise-cuda-graph-tokens", 24, NULL, 0, true},
    [FLAGS_ENABLE_PIECEWISE] = {"--enable-piecewise-cuda-graph", 11, NULL, 0, false},
    [FLAGS_DEBUG_CUDA_GRAPH] = {"--debug-cuda-graph", 9, NULL, 0, false},
    [FLAGS_ENFORCE_PIECEWISE] = {"--enforce-piecewise-cuda-graph", 11, NULL, 0, false},
    [FLAGS_ENABLE_TORCH_COMPILE] = {"--enable-torch-compile", 22, NULL, 0, false},
    [FLAGS_TENSOR_DUMP_FOLDER] = {"--debug-tensor-dump-output-folder", 21, NULL, 0, true},
    [FLAGS_TENSOR_DUMP_LAYERS] = {"--debug-tensor-dump-layers", 21, NULL, 0, true},
    [FLAGS_TENSOR_DUMP_INPUT] = {"--debug-tensor-dump-input-file", 21, NULL, 0, true},
    [FLAGS_TENSOR_DUMP_INJECT] = {"--debug-tensor-dump-inject", 23, NULL, 0, true},
    [FLAGS_USE_RAY] = {"--use-ray", 4, NULL, 0, false},
    [FLAGS_GRPC_MODE] = {"--grpc-mode", 8, NULL, 0, false},
    [FLAGS_SMG_GRPC_MODE] = {"--smg-grpc-mode", 7, NULL, 0, false},
    [FLAGS_ENCODER_ONLY] = {"--encoder-only", 11, NULL, 0, false},
    [FLAGS_WATCHDOG_TIMEOUT] = {"--watchdog-timeout", 5, NULL, 0, true},
    [FLAGS_TWO_BATCH_OVERLAP] = {"--enable-two-batch-overlap", 11, NULL, 0, false},
    [FLAGS_PDMUX] = {"--enable-pdmux", 11, NULL, 0, false},
    [FLAGS_CONFIG] = {"--config", 6, NULL, 0, true},
};

const char *flags_name(enum flags_id id)
{
    return flags[id].name;
}

static bool is_prefix(const char *word, size_t length, const char *name, size_t shortest)
{
    return name != NULL && length >= shortest && length <= strlen(name) && strncmp(word, name, length) == 0;
}

bool flags_is(const char *word, enum flags_id id)
{
    size_t length = strcspn(word, "=");
    return is_prefix(word, length, flags[id].name, flags[id].shortest) ||
           is_prefix(word, length, flags[id].alias, flags[id].alias_shortest);
}

bool flags_find(const struct list *words, size_t from, enum flags_id id, struct flags_found *ret_found)
{
    bool found = false;
    for (size_t i = from; i < words->count; i++) {
        const char *word = words->items[i];
        if (!flags_is(word, id))
            continue;
        const char *equals = strchr(word, '=');
        const char *next = i + 1 < words->count ? words->items[i + 1] : NULL;
        found = true;
        ret_found->position = i;
        ret_found->inlined = equals != NULL;
        if (equals != NULL)
            ret_found->value = equals + 1;
        else
            ret_found->value = flags[id].takes_value ? next : NULL;
    }
    return found;
}
