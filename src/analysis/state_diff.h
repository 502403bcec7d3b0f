/* The states of recurrent layers that two runs restored, slot by slot, from the lines that a probe in the server
 * printed (examples/state_probe.py; the format is in kldumpctl(1), state-diff). Plain data in, plain data out. Pure;
 * one thread.
 *
 * A line, anywhere in a log, with any text before it:
 *
 *   kldump-state rank=0 slot=3 length=128 layer=2 name=temporal absmax=1.25 ;
 *
 * slot, length and absmax must be there; rank and layer are 0, and name is "state", where they are not; words that are
 * not known are passed over. A line without its last word ";" was cut or written into by another: it is damaged. */
#pragma once

#include "analysis/text_map.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct state_diff_hit {
    uint64_t rank, slot, length, layer;
    uint32_t name; /* of the names that both sides share */
    size_t order;  /* in the log, from 0 */
    double absmax; /* may be NaN or infinite */
};

struct state_diff_side {
    struct state_diff_hit *hits; /* in the order of the log; once compared, visit by visit, by layer and name */
    size_t count, capacity;
    size_t damaged;      /* lines that begin as one of the probe and are none */
    char *first_damaged; /* NULL: none */
    uint64_t lost;       /* hits that the probe says it could not print: "kldump-state lost=N ;" */
    struct state_diff_visit *visits;
    size_t visit_count;
};

/* One slot that was restored once: hits of a slot that follow each other with one length and no layer and name twice.
 */
struct state_diff_visit {
    uint64_t rank, slot, length;
    size_t first, count; /* hits of the side */
    size_t order;        /* of its first line */
    bool paired;
};

enum state_diff_word { STATE_DIFF_EQUAL, STATE_DIFF_DIFFERS, STATE_DIFF_ONLY_A, STATE_DIFF_ONLY_B, STATE_DIFF_WORDS };
const char *state_diff_word(enum state_diff_word word); /* "equal", "differs", "only in A", "only in B" */

/* A visit of A beside the one of B that claims the same length on the same rank: bit-equal ones first, then those of
 * the same slot, then in the order of the logs. */
struct state_diff_row {
    enum state_diff_word word;
    const struct state_diff_visit *a, *b; /* NULL where it is only in the other */
    size_t compared, different;           /* hits of both; hits of other values, and those that one side alone has */
    const struct state_diff_hit *hit_a,
        *hit_b;   /* the first that differs, by layer and name; else the largest; or NULL */
    bool several; /* more visits of this length are in a run: which belongs to which is known where they are equal only
                   */
};

struct state_diff {
    struct state_diff_side a, b;
    struct text_map names;
    struct state_diff_row *rows; /* by rank, length, slot */
    size_t row_count;
    size_t count[STATE_DIFF_WORDS]; /* of rows */
    size_t nan;                     /* hits that are NaN or infinite, on both sides together */
};

/* Takes the lines of one log. `side` is that of `diff`. */
void state_diff_read(struct state_diff *diff, struct state_diff_side *side, const char *text, size_t length);

/* Fills the rest; once. */
void state_diff_compare(struct state_diff *diff);
void state_diff_fini(struct state_diff *diff); /* also of a zeroed one */

/* Whether a row is anything but equal. */
bool state_diff_row_dirty(const struct state_diff_row *row);
/* The length that the slot of the row claims. */
uint64_t state_diff_row_length(const struct state_diff_row *row);

/* A request of a KL measurement that restored a prefix of `cached` tokens; failing: some token is beyond stray. */
struct state_diff_request {
    const char *path, *rid; /* the caller's */
    uint64_t cached;        /* 0: it restored nothing */
    bool failing;
};
/* The rows whose slots claim the length of a request's prefix, and who else of its path restored as much. */
struct state_diff_join {
    size_t rows, dirty;               /* 0 rows: no slot claims it */
    const struct state_diff_row *row; /* the first, one that is not equal where there is one; NULL: none */
    size_t failing, clean;            /* other requests of the path with the same length: it may be theirs */
};
void state_diff_find(const struct state_diff *diff, const struct state_diff_request *requests, size_t count,
                     size_t index, struct state_diff_join *ret_join);
