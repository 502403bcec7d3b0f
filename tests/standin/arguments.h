/* arguments.h: the command line of the server, read as SGLang's argparse does, and what follows from it. */
#ifndef KLDUMP_STANDIN_ARGUMENTS_H
#define KLDUMP_STANDIN_ARGUMENTS_H

#include <stdbool.h>
#include <stddef.h>

struct arguments {
    int count; /* as given, for the children and for launch_command */
    char **given;

    const char *model_path;
    const char *host;
    int port;
    int tensor;             /* --tp-size */
    int stages;             /* --pp-size */
    int ranks;              /* of one torch world: the product of both */
    int replicas;           /* --dp-size: torch worlds beside each other; 1 with data parallelism of attention alone */
    int attention_replicas; /* --dp-size with --enable-dp-attention, else 0 */
    const char *role;       /* --disaggregation-mode: null, prefill or decode */
    bool draft;             /* --speculative-algorithm: a draft model runs before each decode pass of the target */
    const char *device;
    const char *attention_backend;
    const char *dtype;
    const char *api_key;       /* NULL: none */
    const char *admin_api_key; /* NULL: none */
    size_t max_total_tokens;
    size_t max_running_requests;
    size_t context; /* 0: the model's */
    long chunked_prefill_size;
    size_t page_size; /* a prefix is restored in whole pages */
    const char *decode_graph; /* resolved: full, breakable, tc_piecewise or disabled */
    const char *prefill_graph;
    bool radix_cache;
    bool overlap;
};

/*
 * Takes what stands behind `-m sglang.launch_server`. An argument that this release does not know, a value that is
 * missing: argparse's text on standard error and exit 2. --help: the list of flags and exit 0.
 */
void arguments_parse(struct arguments *arguments, int count, char **given);

/* True when the flag was given; its value through ret_value (NULL for a flag without one) unless that is NULL. */
bool arguments_given(const char *flag, const char **ret_value);

#endif
