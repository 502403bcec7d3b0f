/* What kl_reading.c looks at before it chooses a signature, and how it says what decided. Private to analysis. */
#pragma once

#include "analysis/kl.h"
#include "base/list.h"

/* Of all tokens of a path: what the scores look like when they are moved by one token. */
struct kl_shift {
    size_t tokens;                 /* that have a neighbour */
    size_t equal, moved;           /* bit-equal or stray: as they are, and moved */
    size_t only_equal, only_moved; /* ... and not in the other way */
    double mean, moved_mean;
    int by; /* -1: the score of position p-1 belongs to p; +1: that of p+1 */
};

struct kl_facts {
    const struct kl_path *paths;
    const struct kl_server *server;
    bool shifted;
    struct kl_shift shift; /* where shifted */
    enum kl_path_id shift_path;
    /* match or match_alone, a dirty one, without `one_position` if one is; where decode cache hit alone is dirty, that;
     * KL_PATHS: none */
    enum kl_path_id probe;
    bool one_position; /* every dirty request of the probe begins at `position`, after clean tokens ... */
    size_t position, position_requests, position_clean_tokens;
    size_t long_requests;  /* dirty ones whose prompt reaches the position */
    size_t short_requests; /* clean ones that end before it */
    bool late_clean;       /* a clean one goes beyond it */
    bool same_lengths;     /* ... but all of its prompts have one length, so it may be an index */
    bool from_index_1;     /* no dirty request of the probe is dirty at its first token, which comes from a prefill */
    double dominance;      /* share of the largest token in the sum of k3 of the probe */
    bool loud_restore;     /* restore is dirty far beyond what match is */
    bool prefix_dirty;     /* prefill cache hit or restore, whose prefixes a prefill has computed */
    bool faint;            /* no path is dirtier than noise */
    bool same_alone;       /* match has the same bits in a batch and one request at a time, and the batch was one */
    bool measured;         /* any path */
};

void kl_reading_facts(const struct kl_path paths[KL_PATHS], const struct kl_server *server, struct kl_facts *ret_facts);
bool kl_reading_dirty(const struct kl_path *path);

enum {
    KL_EVIDENCE_PATHS = 1,
    KL_EVIDENCE_SHIFT = 2,
    KL_EVIDENCE_POSITION = 4,
    KL_EVIDENCE_INDEX = 8,
    KL_EVIDENCE_FEW = 16, /* of the paths behind `where` */
    KL_EVIDENCE_RESTORE = 32,
    KL_EVIDENCE_ALONE = 64,
    KL_EVIDENCE_FOREIGN = 128,
    KL_EVIDENCE_LENGTHS = 256, /* how far match reaches, and the second turn */
};

/* Adds what decided, with numbers; `which` as above. */
void kl_reading_evidence(const struct kl_facts *facts, unsigned which, struct list *list);
/* Whether some requests are clean where condition 2 is broken. */
bool kl_reading_few(const struct kl_facts *facts, enum kl_where where);
