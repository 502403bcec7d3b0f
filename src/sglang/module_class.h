/* What kind of operator a module is, judged by the last parts of its name, as SGLang's models name them (facts/
 * dump-analysis.md 3.6, 4.4; models/llama.py, qwen3.py, deepseek_v2.py, mamba of SGLang 0.5.10 to 0.5.23). One table in
 * module_class.c. A name that no row knows is MODULE_CLASS_UNKNOWN: a legal answer, said as such. Pure; any thread. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

enum module_class {
    MODULE_CLASS_UNKNOWN,
    MODULE_CLASS_TOKEN_WISE, /* each row alone, no sum over other tokens or ranks: norm, activation, linear layer,
                                router */
    MODULE_CLASS_REDUCES, /* over tokens, experts or ranks: MoE combine, o_proj and down_proj with TP > 1 (all-reduce)
                           */
    MODULE_CLASS_STATE,   /* reads what earlier passes left: attention (KV cache), mamba, linear attention, conv1d,
                             indexer */
};

struct module_class_fact {
    enum module_class class;
    const char *kind;  /* "matrix product", "normalisation", "attention", "embedding", ...; never NULL */
    const char *needs; /* what this kind needs to be batch-invariant: one sentence for people; never NULL */
    bool embedding;    /* fed by token ids */
    bool router;       /* its output picks experts: compare first */
    bool experts;      /* its rows may not be tokens (EP dispatch) */
    bool all_reduce;   /* ends in a collective when TP > 1 */
};

/* `module` is the path ("model.layers.0.self_attn.attn"), not ended by a NUL; `tp_size` 1 where there is none. The
 * longest matching tail of path parts wins. */
const struct module_class_fact *module_class_find(const char *module, size_t length, unsigned tp_size);

/* "token-wise", "reduces", "carries state", "unknown": the words of `kldumpctl diff --json`. */
const char *module_class_name(enum module_class class);

/* Which input of an attention module is what was written to the KV cache in this pass (RadixAttention takes q, k, v by
 * position; SGLang 0.5.10 to 0.5.23): true for key or value rows. `argument` as in dump_name. */
bool module_class_is_cache_row(const char *module, size_t length, const char *argument, size_t argument_length);

/* True for an argument that says where something lies and not what it is: slots of the cache, page tables, the place of
 * a request in the pool (SGLang 0.5.10 to 0.5.23: out_cache_loc, req_pool_indices, ...). Two runs may differ in it. */
bool module_class_is_place(const char *argument, size_t length);
