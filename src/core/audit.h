/* What a child `kldumpctl check --json` found in one experiment folder: plain data, filled by src/analysis (in the
 * child) and again by src/json readers (in the guard). Owned by whoever called audit_init; any thread, no sharing. */
#pragma once

#include "base/list.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum audit_phase {
    AUDIT_UNKNOWN, /* no input_ids or no request ids in the pass: it cannot be told */
    AUDIT_EXTEND,  /* prefill: more rows than requests, or a request id seen for the first time */
    AUDIT_DECODE,  /* one row per request, each seen in an earlier pass */
};

/* One forward pass of one rank: all files with this (rank, step). */
struct audit_pass {
    uint32_t rank;
    uint64_t step;
    enum audit_phase phase;
    uint64_t files;
    uint64_t bytes;
    uint64_t tokens;      /* rows of input_ids, from the size of data/0; 0: no such file */
    uint64_t requests;    /* rows of seq_lens; 0: no such file */
    uint32_t layers;      /* distinct layer numbers in module names of this pass; 0: none */
    uint64_t layer_files; /* files whose module lies below a layer */
    bool has_request_ids; /* a rids file that can be read */
    uint32_t foreign;     /* request ids in it that are not in the expected list (0 when no list was given) */
};

/* Steps first..last. */
struct audit_steps {
    uint64_t first, last;
};

/* All modules of one kind: their path with the layer's number as '*'. What belongs to no module is "(core)". */
struct audit_module {
    char *name; /* "model.layers.*.mlp", "model.norm", "(root)", "(core)" */
    uint64_t files, bytes;
    /* Layers in which an extend and a decode pass have a tensor of it; outside of layers 1, or 0 where none has. */
    uint32_t extend_layers, decode_layers;
};

/* What the writer is known to have done between enable and disable, rank by rank; the audit is held against it. */
struct audit_expected_rank {
    uint64_t index_from, index_to; /* dump_index of the first file - 1 and of the last file: exactly from+1 .. to */
    uint64_t step_from, step_to;   /* steps from .. to-1 */
};

struct audit_expected {
    bool known; /* false: nothing is known (a folder found on disk); only what the files say is audited */
    bool exact; /* false: the run was killed; `to` values are the last that were read, more may have been written */
    size_t rank_count;
    struct audit_expected_rank *ranks;
    struct list own_request_ids; /* empty: not checked */
    uint64_t failed_saves;       /* lines of the log that said a tensor was not saved */
};

struct audit {
    bool complete;
    struct list reasons; /* why not, each one sentence with its remedy; empty when complete */
    struct list notes;   /* what a reader should know and that makes no dump incomplete */
    uint64_t ranks, steps, files, bytes;
    uint32_t layers; /* distinct layer numbers over all ranks: more than any pass has with pipeline parallelism */
    struct audit_pass *passes; /* by rank, then step */
    size_t pass_count;
    struct audit_steps *usable; /* steps that are whole on every rank, in order; no two of them touch */
    size_t usable_count;
    struct audit_module *modules; /* largest first, then by name */
    size_t module_count;
    struct list request_ids;         /* in the order of first sight; at most 1024 are listed */
    struct list foreign_request_ids; /* at most 16 are listed */
};

void audit_init(struct audit *audit);
void audit_fini(struct audit *audit);
void audit_expected_fini(struct audit_expected *expected);

/* Room for one more pass, zeroed. */
struct audit_pass *audit_add_pass(struct audit *audit);

/* Room for one more module, zeroed; its name belongs to the audit (malloc). */
struct audit_module *audit_add_module(struct audit *audit);

/* Adds a step behind the usable ones. */
void audit_add_usable(struct audit *audit, uint64_t step);

/* "steps 4-7, 9", "step 4" or "none"; a text that does not fit ends in "...". */
const char *audit_usable_text(const struct audit *audit, char *buffer, size_t size);

/* "extend", "decode", "unknown", and back (AUDIT_UNKNOWN for any other word). */
const char *audit_phase_name(enum audit_phase phase);
enum audit_phase audit_phase_from_name(const char *name);
