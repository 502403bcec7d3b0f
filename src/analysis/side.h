/* One side of a diff: the folder (or, of a prefill and a decode node, the folders) of one experiment, its passes with
 * the core tensors read and cut into segments, and the sequences of tokens that its requests consumed.
 *
 * Happy path: side_read lists the folder (audit_table), reads the core tensors of every pass (a few small files), cuts
 * each pass (segment.h), and follows each request over the passes (facts/dump-analysis.md 3.3): by rid, else by pool
 * slot and continuity. A pass that cannot be cut is kept with its message: whether it matters is the caller's question.
 * No tensor of a module is opened here, and the
 * audit looks into core files only. Reads only; any thread, one at a time. */
#pragma once

#include "analysis/audit_table.h"
#include "analysis/segment.h"
#include "base/error.h"
#include "core/audit.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct side_folder {
    char *path;
    int fd;                   /* open; closed by side_fini */
    struct audit_table table; /* sorted by rank, step, dump_index */
    struct audit audit;       /* proof A9: what is missing, and why */
};

struct side_pass {
    uint32_t folder; /* index in `folders` */
    uint32_t rank;
    uint64_t step;
    size_t first_file, file_count; /* in the folder's table, in the order of dump_index */
    uint64_t first_index;          /* dump_index of the first file */
    bool hooks;                    /* there are tensors of modules in it */
    bool replayed;                 /* a graph ran in its place: no layer, no request ids (audit_signatures.c) */
    bool draft;                    /* of another model (the draft of speculative decoding): in no sequence */
    size_t tokens, requests;       /* T, B; 0: no core tensors, or an idle pass */
    struct segment *segments;      /* the core tensors themselves are not kept: sequences have the tokens */
    size_t segment_count;
    bool unreadable; /* of `problem`: a file of the core tensors could not be opened or is damaged */
    bool refused;    /* of those: it is whole, and nothing that the dumper writes */
    char *problem;   /* NULL: cut without contradiction; else why not: "step 12 rank 0: positions[40] is 0, but ..." */
};

/* Where the token at a position of a sequence was computed. */
struct side_token {
    int64_t id;    /* SIDE_UNKNOWN: cached, and no pass says which token it was */
    uint32_t pass; /* index in `passes`; SIDE_NOWHERE: served from a cache, or computed in no pass of the folders */
    uint32_t row;
};
#define SIDE_NOWHERE UINT32_MAX
#define SIDE_UNKNOWN INT64_C(-1)

struct side_sequence {
    char *rid;            /* "slot 7" where there are no rids */
    unsigned incarnation; /* 0; grows when a request was retracted and began again, or its rid was used again */
    uint32_t earlier;     /* the sequence of the same request before this one; SIDE_NOWHERE: there is none */
    uint32_t rank;
    bool linked_by_slot; /* weaker: no rids */
    bool reused;         /* of those: an earlier sequence had the slot, or the batch's order was all there was */
    uint64_t first_step;
    size_t prompt_length;   /* plen: end of the first run of FRESH and EXTEND segments. The first segment counts as one
                               of them whatever its rows: a prefill behind a cache may have one row */
    size_t length;          /* positions 0 .. length-1 */
    size_t cached_length;   /* leading positions that have no row here (prefix cache, or decoded elsewhere) */
    size_t known_length;    /* the ids of positions 0 .. known_length-1 are known. A cached prefix is known where all
                               sequences of the side that are as long begin with the same tokens: a cache is filled by
                               them; else where the same request was computed before (`earlier`) with the same tokens
                               behind the prefix. 0: it is not known */
    uint32_t prefix_source; /* of a known cached prefix: the first sequence that has these tokens, whose rows (if it has
                               any there) filled the cache; else SIDE_NOWHERE */
    uint32_t hole_pass;     /* SIDE_NOWHERE: none; else the pass before which positions are missing: */
    size_t hole_first, hole_last;
    uint32_t broken_pass;      /* SIDE_NOWHERE: none; else a pass of this request that could not be cut */
    struct side_token *tokens; /* [length] */
    size_t capacity;           /* of tokens */
    size_t draft_first;        /* while passes are read: its last segment holds drafts from here on; 0: none */
};

struct side {
    struct side_folder *folders;
    size_t folder_count;
    struct side_pass *passes; /* by rank, then folder, then step */
    size_t pass_count;
    struct side_sequence *sequences; /* by rank, then first row */
    size_t sequence_count;
    uint32_t ranks;             /* number of different ranks */
    unsigned tp_size;           /* from meta; 1 where it is not said */
    bool replicas;              /* data-parallel attention: ranks hold different requests */
    bool draft_passes;          /* passes of another model (speculative draft) were left out: told by their modules */
    uint32_t broken_pass;       /* a pass that could not be cut and does not say whose it is; SIDE_NOWHERE: none */
    uint64_t draft_pass_count;  /* how many */
    uint64_t broken_pass_count; /* passes that could not be cut */
};

typedef void side_progress(void *context, uint64_t done, uint64_t total);

/* `paths` NULL-terminated, at least one; the last is the folder named by the user, those before hold only history.
 * ERROR_NOT_FOUND, ERROR_FORBIDDEN, ERROR_SYSTEM, ERROR_INCOMPLETE (not one dump file), ERROR_TOO_LARGE, ERROR_MEMORY.
 */
enum error_code side_read(const char *const *paths, unsigned threads, side_progress *progress, void *context,
                          struct side *ret_side, struct error *err);
void side_fini(struct side *side); /* also of a zeroed one */

/* The hash of a run of tokens that is one longer; of none it is 0. Equal runs have equal hashes, on any machine. */
uint64_t side_hash_token(uint64_t hash, int64_t id);
