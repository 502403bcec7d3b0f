/* What `kldumpctl diff` found: plain data, filled by diff_run and read by the reports (text, JSON, HTML). All strings
 * belong to the diff. The order of everything in here depends on the folders' content alone: never on threads, the
 * order of the folder, or its path. */
#pragma once

#include "analysis/numbers.h"
#include "base/error.h"
#include "sglang/module_class.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum diff_kind {
#define X(constant, word, sentence) DIFF_KIND_##constant,
#include "analysis/diff_kinds.def"
#undef X
    DIFF_KIND_COUNT
};

enum diff_proof_id {
#define X(id, fatal, claim, contrary) DIFF_PROOF_##id,
#include "analysis/diff_proofs.def"
#undef X
    DIFF_PROOF_COUNT
};

enum diff_message_id {
#define X(id, fatal, cause, remedy) DIFF_MESSAGE_##id,
#include "analysis/diff_messages.def"
#undef X
    DIFF_MESSAGE_COUNT
};

enum diff_proof_state {
    DIFF_PROOF_UNKNOWN, /* could not be asked: the evidence says why */
    DIFF_PROOF_HOLDS,
    DIFF_PROOF_WEAK,
    DIFF_PROOF_FAILS,
};

struct diff_proof {
    enum diff_proof_state state;
    char *evidence; /* "14 of 14 pairs"; NULL while unknown and not asked */
};

struct diff_message {
    enum diff_message_id id;
    char *evidence; /* "request a1f: best candidate differs at position 87 (id 315, reference 264)" */
};

struct diff_request {
    char *a_rid, *b_rid;
    size_t prompt_length;          /* plen of the decode side */
    size_t a_length, b_length;     /* positions with a known id */
    size_t a_cached_length;        /* leading positions that were not computed, but taken from a cache */
    size_t b_cached_length;        /* likewise of the reference */
    size_t first_pair, pair_count; /* in the order of alignment pairs */
    size_t target_count;
};

/* One pair of rows, as the reports see it. */
struct diff_pair {
    uint32_t request;
    uint32_t rank;
    int64_t position;
    int64_t id;  /* token */
    bool target; /* a decode row against a prefill row; false: a row of the prompt, prefilled on both sides */
    uint64_t a_step, b_step;
    uint32_t a_row, b_row;
};

enum diff_rows {
    DIFF_ROWS_TOKEN,   /* one or `factor` rows a token */
    DIFF_ROWS_REQUEST, /* one row a request: logits */
    DIFF_ROWS_SHARED,  /* the same shape in every pass: compared whole */
    DIFF_ROWS_NONE,    /* not rows of tokens (experts' buffers, ...): a blind spot */
    DIFF_ROWS_UNCLEAR, /* two readings fit: not guessed */
};

enum diff_presence {
    DIFF_PRESENCE_BOTH,
    DIFF_PRESENCE_A_ONLY,
    DIFF_PRESENCE_B_ONLY,
    DIFF_PRESENCE_UNREADABLE, /* on either side, in some pass: `note` names the first file */
    DIFF_PRESENCE_SHAPE,      /* on both sides with shapes or dtypes that cannot be compared: `note` has both */
};

/* A tensor that the dumper saw at one place of the program: a slot of a module, the k-th time in a pass. In the order
 * of the program (dump_index of the reference). */
struct diff_observation {
    char *name;    /* "model.layers.1.mlp.output"; with " (layer 2)" or " (call 2)" where the name alone is shared */
    uint32_t call; /* index in `calls`; UINT32_MAX: a core tensor */
    bool input;    /* inputs.* */
    bool has_layer;
    uint32_t layer;
    enum diff_presence presence;
    enum diff_rows rows;
    uint32_t factor;
    char *note;                             /* NULL: nothing to say */
    enum pt_dtype dtype;                    /* of the reference */
    uint64_t row_elements;                  /* elements of one token's part */
    size_t tested, unequal;                 /* target pairs */
    size_t control_tested, control_unequal; /* the others */
    size_t first_unequal_pair;              /* SIZE_MAX: none; among targets */
    struct numbers numbers;                 /* over the unequal target rows */
    double growth; /* RMS of the difference over RMS of the value, by that of the previous layer's output; 0: unknown */
    uint8_t *marks; /* [pair_count]: see below; NULL where nothing was compared. May be the diff's equal_marks */
};

/* Of one observation at one pair. 2 + n: the largest difference lies in 2^n .. 2^(n+1)-1 ULP. */
enum { DIFF_MARK_NONE = 0, DIFF_MARK_EQUAL = 1, DIFF_MARK_ULP = 2, DIFF_MARK_OTHER = 254, DIFF_MARK_NAN = 255 };

/* One call of a module: the observations of its inputs and outputs. The evidence table has one row for each leaf. */
struct diff_call {
    char *module;    /* "model.layers.1.mlp"; "(root)" */
    char *name;      /* the same, with " (layer 2)" or " (call 2)" where shared */
    uint32_t number; /* the k-th call under this name in a pass, from 0 */
    uint32_t parent; /* index of the call around it; UINT32_MAX: none */
    bool leaf;
    bool has_layer;
    uint32_t layer;
    const struct module_class_fact *class;
    size_t tested;     /* target pairs whose inputs were all compared and are all bit-identical */
    size_t unequal;    /* of those: an output differs */
    size_t first_pair; /* of those; SIZE_MAX */
    uint64_t max_ulp;
    size_t history_equal; /* of `unequal`, where it carries state: all earlier key and value rows are bit-identical */
};

enum diff_confidence {
    DIFF_CONFIDENCE_UNPROVEN,
    DIFF_CONFIDENCE_LIKELY, /* something is not seen, but not inside the bracket */
    DIFF_CONFIDENCE_PROVEN, /* A1 to A5, A7 and A9 hold; of NONE A6, too */
};

struct diff_verdict {
    enum diff_kind kind;
    enum diff_confidence confidence;
    uint32_t call;          /* index in `calls`: the module; of a GAP, the one whose input differs */
    uint32_t last_equal;    /* index in `observations`: before the bracket; UINT32_MAX */
    uint32_t first_unequal; /* behind it; UINT32_MAX for NONE */
    uint32_t after;         /* GLUE: the child call behind which the difference begins; GAP: the producer; UINT32_MAX */
    size_t first_pair;      /* the first target pair (by request, position) where it shows */
    size_t a_rows, b_rows;  /* of the tensor in the passes of that pair; 0 of NONE */
    size_t tested, unequal; /* target pairs at this place */
    bool one_request;       /* it shows in one of several requests */
    bool one_position;      /* all requests begin to differ at one absolute position > 0 */
    bool ranks_agree;       /* several ranks, and all have the same wrong bits */
    char *reading;          /* of the numbers, a guess: "sparse, +-1 ULP, no bias: reduction order" */
    char *what;             /* one sentence: what to look at */
    char **blind;           /* NULL-terminated: what is not seen inside the bracket, and why */
};

struct diff_options {
    const char *const *a_paths; /* NULL-terminated; the last is DEC */
    const char *const *b_paths; /* the last is PRE; the same folder as DEC is allowed */
    unsigned threads;           /* 0: as many as there are processors, up to 8 */
    bool first;                 /* stop at the verdict: evidence of what comes later is not taken */
    bool trust_slots;
    bool strict_zero;            /* +0 against -0 is a difference */
    const char *const *stateful; /* further name parts of modules that carry state; NULL-terminated or NULL */
    void (*progress)(void *context, const char *what, uint64_t done, uint64_t total); /* NULL: none; caller's thread */
    void *context;
};

/* What the rows of the pairs are. All but the first say nothing about decode against prefill. */
enum diff_pairing {
    DIFF_PAIRING_PHASES,   /* rows that decode with rows of a prefill */
    DIFF_PAIRING_RUNS,     /* rows that decode on both sides: two runs, none of which scored the other */
    DIFF_PAIRING_WHOLE,    /* no side decodes: two prefills */
    DIFF_PAIRING_RESTORED, /* rows behind a restored prefix with the same rows of a whole prefill */
    DIFF_PAIRING_ITSELF,   /* each request with itself: nothing else in the folder belongs together */
};

struct diff {
    char *a_path, *b_path;
    bool swapped;
    enum diff_pairing pairing;
    bool proven; /* all fatal proofs hold: only then there is a verdict */
    bool usable; /* false: a side is no usable dump (status 4); the messages say why */
    struct diff_proof proofs[DIFF_PROOF_COUNT];
    struct diff_message *messages;
    size_t message_count;
    struct diff_request *requests;
    size_t request_count;
    struct diff_pair *pairs;
    size_t pair_count, target_count;
    struct diff_observation *observations;
    size_t observation_count;
    uint8_t
        *equal_marks; /* [pair_count], all DIFF_MARK_EQUAL: the marks of every observation that is equal everywhere */
    struct diff_call *calls;
    size_t call_count;
    struct diff_verdict verdict;
    char **refused; /* NULL-terminated: files that were refused, each with its reason; on the needed path: status 5 */
    bool refused_needed;
    uint64_t files_opened, bytes_read;
    uint64_t control_elements, control_unequal; /* of A8 */
    unsigned tp_size;
    uint32_t ranks;
};

/* ERROR_NONE also where the alignment fails or a side is unusable: the diff says so. On failure nothing is filled. */
enum error_code diff_run(const struct diff_options *options, struct diff *ret_diff, struct error *err);
void diff_fini(struct diff *diff); /* also of a zeroed one */

/* STATUS_DONE, STATUS_NO (a difference), 3 not proven, 4 unusable, 5 refused: the exit status of `kldumpctl diff`. */
enum status diff_status(const struct diff *diff);

const char *diff_kind_word(enum diff_kind kind);
const char *diff_kind_sentence(enum diff_kind kind);
const char *diff_pairing_word(enum diff_pairing pairing);     /* "phases", "runs", "whole", "restored", "itself" */
const char *diff_pairing_sentence(enum diff_pairing pairing); /* NULL: as it is meant to be */
const char *diff_proof_claim(enum diff_proof_id id);
const char *diff_proof_contrary(enum diff_proof_id id); /* what is true where it fails */
bool diff_proof_fatal(enum diff_proof_id id);
const char *diff_proof_name(enum diff_proof_id id);             /* "A1" */
const char *diff_proof_state_word(enum diff_proof_state state); /* "holds", "weak", "fails", "unknown" */
const char *diff_message_name(enum diff_message_id id);         /* "M1" */
const char *diff_message_cause(enum diff_message_id id);
const char *diff_message_remedy(enum diff_message_id id);
bool diff_message_fatal(enum diff_message_id id);
const char *diff_confidence_word(enum diff_confidence confidence); /* "proven", "likely", "unproven" */

/* For those who fill it. Both copy the text. */
void diff_prove(struct diff *diff, enum diff_proof_id id, enum diff_proof_state state, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
void diff_tell(struct diff *diff, enum diff_message_id id, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
