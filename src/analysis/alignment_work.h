/* Private to alignment.c: which sequence of one side belongs to which of the other. One thread. */
#pragma once

#include "analysis/alignment.h"

enum alignment_mode {
    ALIGNMENT_PHASES,   /* decode rows of a with prefill rows of b */
    ALIGNMENT_RUNS,     /* decode rows of a with any rows of b */
    ALIGNMENT_WHOLE,    /* no side decodes: all rows */
    ALIGNMENT_RESTORED, /* likewise, and one side has restored prefixes: the rows behind them with the same rows of a
                           whole prefill; those that filled the cache are controls */
};

struct alignment_match { /* of one sequence of a */
    uint32_t sequence;   /* of b; SIDE_NOWHERE: none */
    size_t common;       /* positions 0 .. common-1 have equal ids */
    size_t targets;
    uint64_t compared; /* likeness of the sequence that was compared last: another one like it need not be */
};

struct alignment_view { /* what is matched with what */
    const struct side *a, *b;
    enum alignment_mode mode;
    bool same;        /* one folder: a sequence is not matched with itself */
    bool self;        /* but only with itself */
    bool any_rank;    /* data-parallel attention */
    bool only_rank_0; /* the layouts differ */
};

/* Fills matches[a->sequence_count]; returns the number of target pairs. */
size_t alignment_match_all(const struct alignment_view *view, struct alignment_match *matches);

/* Whether and as what the position of both sequences is a pair. */
bool alignment_match_is_pair(enum alignment_mode mode, const struct side_sequence *a, const struct side_sequence *b,
                             size_t position, bool *ret_target);
bool alignment_match_is_prefill(enum alignment_mode mode); /* no side decodes */
/* One is behind a restored prefix, and the other has computed all of it. */
bool alignment_match_is_restored(const struct side_sequence *a, const struct side_sequence *b);
bool alignment_match_decodes(const struct side_sequence *sequence);

/* Nothing could be paired: proofs and messages that say why. */
void alignment_tell_failure(const struct alignment_view *view, struct diff *diff);
/* A pass that is needed could not be cut: A1 fails, with M1 or, where a file is to blame, M14. */
void alignment_tell_pass(const struct side_pass *pass, struct diff *diff);
/* "'a1f'", or "'a1f' (begun again, 1)" of a later incarnation; the caller frees. */
char *alignment_tell_request(const struct side_sequence *sequence);
