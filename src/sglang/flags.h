/* The server's command-line flags that matter here, found the way argparse finds them: "--flag value", "--flag=value",
 * and any prefix that is unique in one of the
 * releases 0.5.12.post1, 0.5.13, 0.5.14 and 0.5.23 (where another release finds it ambiguous, it refuses it itself).
 * Pure; any thread. */
#pragma once

#include "base/list.h"

#include <stdbool.h>
#include <stddef.h>

enum flags_id {
    FLAGS_HOST,
    FLAGS_PORT,
    FLAGS_API_KEY,
    FLAGS_ADMIN_API_KEY,
    FLAGS_SSL_KEYFILE,
    FLAGS_SSL_KEYFILE_PASSWORD,
    FLAGS_SSL_CERTFILE,
    FLAGS_DP_SIZE,
    FLAGS_ENABLE_DP_ATTENTION,
    FLAGS_NODE_RANK,
    FLAGS_CUDA_GRAPH_CONFIG,
    FLAGS_CUDA_GRAPH_BACKEND_DECODE,
    FLAGS_CUDA_GRAPH_BACKEND_PREFILL,
    FLAGS_CUDA_GRAPH_BS,
    FLAGS_CUDA_GRAPH_BS_DECODE,
    FLAGS_CUDA_GRAPH_BS_PREFILL,
    FLAGS_CUDA_GRAPH_MAX_BS,
    FLAGS_CUDA_GRAPH_MAX_BS_DECODE,
    FLAGS_PIECEWISE_TOKENS,
    FLAGS_ENFORCE_PIECEWISE,
    FLAGS_ENABLE_PIECEWISE,
    FLAGS_DEBUG_CUDA_GRAPH,
    FLAGS_ENABLE_TORCH_COMPILE,
    FLAGS_TENSOR_DUMP_FOLDER,
    FLAGS_TENSOR_DUMP_LAYERS,
    FLAGS_TENSOR_DUMP_INPUT,
    FLAGS_TENSOR_DUMP_INJECT,
    FLAGS_USE_RAY,
    FLAGS_GRPC_MODE,
    FLAGS_SMG_GRPC_MODE,
    FLAGS_ENCODER_ONLY,
    FLAGS_WATCHDOG_TIMEOUT,
    FLAGS_TWO_BATCH_OVERLAP,
    FLAGS_PDMUX,
    FLAGS_CONFIG,
    FLAGS_COUNT
};

struct flags_found {
    size_t position;   /* of the word in the list */
    const char *value; /* NULL: a switch, or the value is missing; points into the list */
    bool inlined;      /* "--flag=value" */
};

const char *flags_name(enum flags_id id);

/* The last use at or after `from` (argparse lets the last one win). */
bool flags_find(const struct list *words, size_t from, enum flags_id id, struct flags_found *ret_found);

/* Whether `word` is this flag, shortened or not, with or without "=value". */
bool flags_is(const char *word, enum flags_id id);
