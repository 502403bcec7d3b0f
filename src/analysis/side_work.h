/* Private to side.c: what its parts share while one side is read. One thread. */
#pragma once

#include "analysis/side.h"
#include "pt/pt_file.h"

enum {
    SIDE_REQUESTS_MAX = 64 * 1024,        /* of one pass */
    SIDE_POSITION_MAX = 16 * 1024 * 1024, /* above the context of any model */
    SIDE_TOKENS_MAX = 128 * 1024 * 1024,  /* of all sequences, cached ones too */
};

/* The core tensors of one pass, until it is linked. */
struct side_core {
    int64_t *ids, *positions; /* [tokens] */
    int64_t *lengths, *slots; /* [requests]; slots NULL: not known */
    size_t tokens, requests;
    bool has_rids;
    struct list rids;
    bool unreadable, refused; /* side.h */
};

struct side_key { /* a request that was met: the sequence that goes on */
    char *rid;    /* NULL: by slot */
    int64_t slot;
    uint32_t rank;
    uint32_t sequence;
};

struct side_work {
    struct side *side;
    struct pt_file *file;
    struct side_key *keys;
    size_t key_count, key_capacity;
    uint32_t *slots; /* hash of keys: number + 1 */
    size_t slot_count;
    size_t sequence_capacity;
    size_t token_count; /* of all sequences; beyond SIDE_TOKENS_MAX nothing is linked any more */
};

/* side_passes.c: groups the files of a folder into passes, with hooks, replayed and draft; appends them. */
void side_passes_add(struct side *side, uint32_t folder);

/* side_core.c: reads the core tensors of a pass: ERROR_FORMAT and the like with what is missing or wrong. ret_core is
 * to be freed also then: what could be read is in it. */
enum error_code side_core_read(struct side_work *work, const struct side_pass *pass, struct side_core *ret_core,
                               struct error *err);
void side_core_free(struct side_core *core);

/* side_sequences.c: follows the requests of a pass that was cut (or, with `problem`, marks them as broken). */
void side_sequences_link(struct side_work *work, uint32_t pass, const struct side_core *core);
/* After the last pass: drafts that nothing followed are dropped. */
void side_sequences_finish(struct side *side);

/* side_prefix.c: fills in the ids of cached prefixes. */
void side_prefix_fill(struct side *side);
