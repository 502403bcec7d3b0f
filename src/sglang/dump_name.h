/* Names of the files that SGLang's dumper writes (SGLang 0.5.10 to 0.5.23, dumper.py):
 *
 *   step=S___rank=R___dump_index=I___name=N___recompute_status=disabled[___layer_id=L][___TAG=TEXT...].pt
 *
 * N is a core name (input_ids, positions, ...) or "non_intrusive__[MODULE.]SLOT", SLOT one of inputs.N, inputs.KEYWORD,
 * output, each with ".K" or ".KEY" behind it where the module took or gave several tensors. A name that other code gave
 * to dumper.dump() is kept as it stands. Pure; any thread. */
#pragma once

#include "base/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { DUMP_NAME_LAYER_MAX = 65535 }; /* a larger number behind "layers." is no layer */

enum dump_name_core {
    DUMP_NAME_NOT_CORE,
    DUMP_NAME_INPUT_IDS,
    DUMP_NAME_POSITIONS,
    DUMP_NAME_SEQ_LENS,
    DUMP_NAME_REQ_POOL_INDICES,
    DUMP_NAME_RIDS,
    DUMP_NAME_OTHER_CORE, /* position_ids, cu_seqlens_q, cu_seqlens_kv, qkv_format */
};

enum dump_name_slot {
    DUMP_NAME_NO_SLOT,       /* a core name or somebody's own */
    DUMP_NAME_INPUT,         /* inputs.N */
    DUMP_NAME_INPUT_KEYWORD, /* inputs.KEYWORD */
    DUMP_NAME_OUTPUT,        /* output */
};

struct dump_name_text { /* part of the parsed text; not ended by a NUL */
    const char *at;
    size_t length;
};

struct dump_name {
    uint32_t rank;
    uint64_t step;
    uint64_t dump_index;
    struct dump_name_text suffix; /* from "name=" to the end: the same in every pass */
    struct dump_name_text name;   /* N */
    enum dump_name_core core;
    bool hook; /* N begins with non_intrusive__: a tensor that a hook saw */
    bool word; /* with `hook`: what was seen is a word (what pipeline stages hand on is marked with one), no tensor */
    enum dump_name_slot slot;
    struct dump_name_text module;   /* "model.layers.0.mlp"; empty for the root, and without a slot */
    struct dump_name_text argument; /* "0" or "hidden_states" of inputs.*; empty for output */
    struct dump_name_text item;     /* "1" or "next_token_logits" behind that; empty: the only one */
    bool has_layer;                 /* `layer` is set: "layers.L" in the module path */
    uint32_t layer;
    bool has_layer_tag; /* `layer_tag` is set: layer_id=L */
    uint32_t layer_tag;
    struct dump_name_text recompute; /* "disabled" */
    struct dump_name_text more;      /* further tags as they stand: "pp_rank=0___tp_rank=1"; empty: none */
};

/* True for a name that ends like a dump file; nothing else of the folder is looked at. */
bool dump_name_is_candidate(const char *file_name);

/* Parses; the result points into `file_name`. ERROR_FORMAT with what is wrong: a tag that is missing or out of order, a
 * number with a sign or leading zeros or beyond 2^63 - 1 (rank: 2^32 - 1), an empty name. */
enum error_code dump_name_parse(const char *file_name, struct dump_name *ret_name, struct error *err);

/* As `read_dump_name` of struct server_operations. */
bool dump_name_read(const char *file_name, uint64_t *ret_rank, uint64_t *ret_dump_index);
