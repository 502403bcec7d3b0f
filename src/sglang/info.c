#include "sglang/info.h"

#include "base/text.h"
#include "json/json.h"
#include "sglang/versions.h"

#include <stdio.h>
#include <string.h>

/* From 0.5.14 on the resolved backend of each phase is named; the disable_* members only echo the flags. Before, two
 * booleans are resolved values. */
static enum error_code read_graphs(const struct json *info, struct server_facts *facts, struct error *err)
{
    const char *decode = NULL, *prefill = NULL;
    bool decode_off = false, prefill_off = false, compile = false;
    if (json_find(info, "cuda_graph_config") != NULL) {
        enum error_code code = json_get_string(info, "cuda_graph_config.decode.backend", &decode, err);
        if (code == ERROR_NONE)
            code = json_get_string(info, "cuda_graph_config.prefill.backend", &prefill, err);
        if (code != ERROR_NONE)
            return code;
    } else if (json_get_bool(info, "disable_cuda_graph", &decode_off, NULL) == ERROR_NONE &&
               json_get_bool(info, "disable_piecewise_cuda_graph", &prefill_off, NULL) == ERROR_NONE) {
        decode = decode_off ? "disabled" : "full";
        prefill = prefill_off ? "disabled" : "piecewise";
    }
    enum error_code code = json_optional_bool(info, "enable_torch_compile", false, &compile, err);
    if (code != ERROR_NONE)
        return code;
    facts->graphs_known = decode != NULL;
    if (decode == NULL)
        return ERROR_NONE;
    text_clean(decode, strlen(decode), facts->decode_graphs, sizeof facts->decode_graphs);
    text_clean(prefill, strlen(prefill), facts->prefill_graphs, sizeof facts->prefill_graphs);
    facts->graphs_off = strcmp(decode, "disabled") == 0 && strcmp(prefill, "disabled") == 0 && !compile;
    return ERROR_NONE;
}

/* Graphs that are known to be on: which, and the setting of this release that switches them off. */
static void blame_graphs(const struct versions_spelling *spelling, struct server_facts *facts)
{
    bool decode = strcmp(facts->decode_graphs, "disabled") != 0,
         prefill = strcmp(facts->prefill_graphs, "disabled") != 0;
    if (!facts->graphs_known || facts->graphs_off)
        return;
    if (!decode && !prefill) {
        text_copy(facts->unfit_setting, sizeof facts->unfit_setting, "--enable-torch-compile");
        text_copy(facts->unfit_problem, sizeof facts->unfit_problem,
                  "the server compiles the model, and compiled code calls no hook. Setting to blame: "
                  "--enable-torch-compile; leave it out");
        return;
    }
    text_copy(facts->unfit_setting, sizeof facts->unfit_setting,
              decode ? spelling->decode_graphs_off : spelling->prefill_graphs_off);
    snprintf(
        facts->unfit_problem, sizeof facts->unfit_problem,
        "a replayed graph calls no hook: decode graphs are %.20s, prefill graphs %.20s; expected disabled. Setting "
        "to blame: %.40s; it did not reach the server (a wrapper must hand $KLDUMP_SGLANG_ARGS to it), or another "
        "graph setting wins over it",
        facts->decode_graphs, facts->prefill_graphs, facts->unfit_setting);
}

/* What makes dumping impossible, whoever has set it: a wrapper or a configuration file can bring all of this. */
static void find_unfit(const struct json *info, uint64_t replicas, bool attention, struct server_facts *facts)
{
    const struct versions_spelling *spelling = NULL;
    bool guessed, ray = false;
    if (versions_find(facts->version, &spelling, &guessed, NULL) != ERROR_NONE) {
        text_copy(facts->unfit_setting, sizeof facts->unfit_setting, "SGLang");
        snprintf(facts->unfit_problem, sizeof facts->unfit_problem,
                 "SGLang %s has no forward hooks, so it cannot dump. Setting to blame: SGLang; %u.%u.%u or newer is "
                 "needed",
                 facts->version, versions_oldest.major, versions_oldest.minor, versions_oldest.patch);
    } else if (replicas > 1 && !attention) {
        text_copy(facts->unfit_setting, sizeof facts->unfit_setting, "--dp-size");
        snprintf(facts->unfit_problem, sizeof facts->unfit_problem,
                 "dp_size is %llu; expected 1: replicas write files of the same names over each other. Setting to "
                 "blame: --dp-size; dump one replica, or use attention data parallelism",
                 (unsigned long long)replicas);
    } else if (json_get_bool(info, "use_ray", &ray, NULL) == ERROR_NONE && ray) {
        text_copy(facts->unfit_setting, sizeof facts->unfit_setting, "--use-ray");
        text_copy(facts->unfit_problem, sizeof facts->unfit_problem,
                  "the schedulers are children of Ray, not of kldump: they can be neither watched nor killed. Setting "
                  "to blame: --use-ray; leave it out");
    } else {
        blame_graphs(spelling, facts);
    }
}

/* Shapes of servers in which one probe cannot show everything, in words. */
static void read_limits(const struct json *info, uint64_t nodes, bool attention, struct server_facts *facts)
{
    const char *role = NULL, *speculative = NULL;
    bool split = json_get_string(info, "disaggregation_mode", &role, NULL) == ERROR_NONE && strcmp(role, "null") != 0;
    bool draft = json_get_string(info, "speculative_algorithm", &speculative, NULL) == ERROR_NONE;
    bool batches = false, multiplexed = false;
    char shown[32] = "", limited[500];
    (void)json_get_bool(info, "enable_two_batch_overlap", &batches, NULL);
    (void)json_get_bool(info, "enable_pdmux", &multiplexed, NULL);
    facts->half = split;
    if (split)
        text_clean(role, strlen(role), shown, sizeof shown);
    snprintf(limited, sizeof limited, "%s%s%s%s%s%s%s", split ? shown : "",
             split ? " server of a disaggregated pair: the other phase is not seen here; " : "",
             draft ? "speculative decoding: passes of draft and target share one count; " : "",
             attention ? "attention data parallelism: idle ranks run empty passes; " : "",
             batches ? "two-batch overlap: overlapped layers run without their hooks; " : "",
             multiplexed ? "multiplexed prefill: a split prefill runs without the root's hooks; " : "",
             nodes > 1 ? "several nodes: files of the other nodes are not seen here; " : "");
    size_t length = strlen(limited);
    if (length >= 2)
        limited[length - 2] = '\0'; /* the last "; " */
    text_copy(facts->limited, sizeof facts->limited, limited);
}

enum error_code info_read(const struct json *info, struct server_facts *ret_facts, struct error *err)
{
    struct server_facts facts = {0};
    const char *version = NULL;
    uint64_t tensor = 1, pipeline = 1, replicas = 1, nodes = 1, groups = 1;
    bool attention = false;
    enum error_code code = json_get_string(info, "version", &version, err);
    if (code == ERROR_NONE)
        code = read_graphs(info, &facts, err);
    if (code == ERROR_NONE)
        code = json_optional_u64(info, "tp_size", 1, &tensor, err);
    if (code == ERROR_NONE)
        code = json_optional_u64(info, "pp_size", 1, &pipeline, err);
    if (code == ERROR_NONE)
        code = json_optional_u64(info, "dp_size", 1, &replicas, err);
    if (code == ERROR_NONE)
        code = json_optional_u64(info, "nnodes", 1, &nodes, err);
    if (code == ERROR_NONE)
        code = json_optional_bool(info, "enable_dp_attention", false, &attention, err);
    if (code == ERROR_NONE)
        code = json_optional_u64(info, "attn_dp_size", 1, &groups, err); /* 0.5.23; older ones only have the boolean */
    if (code != ERROR_NONE)
        return code;
    if (json_get_u64(info, "max_total_num_tokens", &facts.token_capacity, NULL) != ERROR_NONE)
        (void)json_get_u64(info, "internal_states.0.max_total_num_tokens", &facts.token_capacity, NULL);
    text_clean(version, strlen(version), facts.version, sizeof facts.version);
    /* one torch world has tensor x pipeline ranks; data parallelism of attention alone divides the same world */
    if (tensor - 1 >= SERVER_RANKS_MAX || pipeline - 1 >= SERVER_RANKS_MAX || replicas - 1 >= SERVER_RANKS_MAX)
        return error_set(err, ERROR_FORMAT, "tp_size, pp_size and dp_size must be 1 to %d", SERVER_RANKS_MAX);
    attention = attention || groups > 1;
    facts.tensor_ranks = (uint32_t)tensor;
    facts.pipeline_stages = (uint32_t)pipeline;
    facts.world_size = (uint32_t)(tensor * pipeline * (attention ? 1 : replicas));
    find_unfit(info, replicas, attention, &facts);
    read_limits(info, nodes, attention, &facts);
    *ret_facts = facts;
    return ERROR_NONE;
}
