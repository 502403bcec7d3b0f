/* One side of a diff: the folder (or, of a prefill and a decode node, the folders) of one experiment, its passes with
 * the core tensors read and cut into segments, and the sequences of tokens that its requests consumed.
 *
 * Happy path: side_read lists the folder (audit_table), reads the core tensors of every pass (a few small files), cuts
 * each pass (segment.h), and follows each request over the passes (facts/dump-analysis.md 3.3): by rid, else by pool
 * slot and continuity. A pass that cannot be cut is kept with its message: whether it matters is the caller's question.
 * No tensor of a module is opened here. Reads only; any thread, one at a time. */
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
    size_t first_file, file_count;              /* in the folder's table, in the order of dump_index */
    uint64_t first_index;                       /* dump_index of the first file */
    bool hooks;                                 /* there are tensors of modules in it */
    size_t tokens, requests;                    /* T, B; 0: no core tensors */
    int64_t *ids, *positions, *lengths, *slots; /* NULL where the file is not there or cannot be read */
    struct list rids;                           /* empty: none */
    struct segment *segments;
    size_t segment_count; /* 0: `problem` says why */
    char *problem;        /* NULL: cut without contradiction */
};

/* Where the token at a position of a sequence was computed. */
struct side_token {
    int64_t id;
    uint32_t pass; /* index in `passes`; SIDE_NOWHERE: served from a cache, never a row here */
    uint32_t row;
};
enum { SIDE_NOWHERE = UINT32_MAX };

struct side_sequence {
    char *rid;            /* "slot 7" where there are no rids */
    unsigned incarnation; /* 0; grows when a request was retracted and began again */
    uint32_t rank;
    bool linked_by_slot;       /* weaker: no rids */
    size_t prompt_length;      /* plen: end of the first run of FRESH and EXTEND segments */
    size_t length;             /* positions 0 .. length-1 */
    size_t cached_length;      /* leading positions that have no row here (prefix cache, or decoded elsewhere) */
    struct side_token *tokens; /* [length] */
};

struct side {
    struct side_folder *folders;
    size_t folder_count;
    struct side_pass *passes; /* by rank, then folder, then step */
    size_t pass_count;
    struct side_sequence *sequences; /* by rank, then first row */
    size_t sequence_count;
    uint32_t ranks;    /* number of different ranks */
    unsigned tp_size;  /* from meta; 1 where it is not said */
    bool draft_passes; /* passes of another model (speculative draft) were left out: told by their set of modules */
};

typedef void side_progress(void *context, uint64_t done, uint64_t total);

/* `paths` NULL-terminated, at least one; the last is the folder named by the user, those before hold only history.
 * ERROR_NOT_FOUND, ERROR_FORBIDDEN, ERROR_SYSTEM, ERROR_FORMAT (not one dump file), ERROR_TOO_LARGE, ERROR_MEMORY. */
enum error_code side_read(const char *const *paths, unsigned threads, side_progress *progress, void *context,
                          struct side *ret_side, struct error *err);
void side_fini(struct side *side); /* also of a zeroed one */
