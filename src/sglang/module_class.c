/* The table of tails with its kinds. */
#include "sglang/module_class.h"

#include <string.h>

/* Words and needs of a kind: what keeps its result from depending on the other rows of the batch. */
#define EMBEDDING_KIND  "embedding"
#define EMBEDDING_NEEDS "Rows are looked up: a difference means other weights or other ids."
#define POSITION_KIND   "position"
#define POSITION_NEEDS  "Each row is computed alone: a difference means another kernel or another position."
#define NORM_KIND       "normalisation"
#define NORM_NEEDS      "A row must be summed in one order, however many rows the batch has."
#define MATRIX_KIND     "matrix product"
#define MATRIX_NEEDS                                                                                              \
    "One tile size and one split of the inner dimension must be used for every number of rows (and, with tensor " \
    "parallelism, one algorithm of the all-reduce for every message size)."
#define HEAD_KIND        "logits"
#define HEAD_NEEDS       "The product with the vocabulary must be computed in one order for every number of rows."
#define ACTIVATION_KIND  "activation"
#define ACTIVATION_NEEDS "Each element is computed alone: a difference means another kernel."
#define ROUTER_KIND      "router"
#define ROUTER_NEEDS                                                                                               \
    "Scores must be summed in one order for every number of rows, and ties broken in one way: a small difference " \
    "here "                                                                                                        \
    "sends a token to other experts."
#define EXPERTS_KIND "mixture of experts"
#define EXPERTS_NEEDS                                                                                                 \
    "One kernel configuration must be used for every number of rows of an expert, and the experts' outputs added in " \
    "a "                                                                                                              \
    "fixed order."
#define ATTENTION_KIND "attention"
#define ATTENTION_NEEDS                                                                                              \
    "The keys must be split in one way for every number of queries, and summed in one order whether they come from " \
    "the "                                                                                                           \
    "cache or from this pass."
#define RECURRENT_KIND "recurrent state"
#define RECURRENT_NEEDS                                                                                               \
    "The chunked scan of prefill and the single step of decode must give the same state, and padding must not enter " \
    "it."
#define OTHER_KIND  "unknown"
#define OTHER_NEEDS "This name is not known: look at the module's code for sums over tokens, ranks or a cache."

enum {
    EMBEDDING = 1,
    ROUTER = 2,
    EXPERTS = 4,
    ALL_REDUCE = 8,
};

#define FACT(class_word, kind_word, flags)                                                                         \
    {                                                                                                              \
        .class = MODULE_CLASS_##class_word, .kind = kind_word##_KIND, .needs = kind_word##_NEEDS,                  \
        .embedding = ((flags)&EMBEDDING) != 0, .router = ((flags)&ROUTER) != 0, .experts = ((flags)&EXPERTS) != 0, \
        .all_reduce = ((flags)&ALL_REDUCE) != 0                                                                    \
    }

static const struct row {
    const char *tail;
    struct module_class_fact alone, parallel;
} rows[] = {
#define X(tail, alone, parallel, kind, flags) {tail, FACT(alone, kind, flags), FACT(parallel, kind, flags)},
#include "sglang/module_class.def"
#undef X
};

static const struct module_class_fact unknown = FACT(UNKNOWN, OTHER, 0);

/* One part of a name against one part of a tail. */
static bool part_matches(const char *part, size_t length, const char *pattern, size_t pattern_length)
{
    if (pattern_length > 0 && pattern[0] == '*')
        return length >= pattern_length - 1 &&
               memcmp(part + length - (pattern_length - 1), pattern + 1, pattern_length - 1) == 0;
    if (pattern_length > 0 && pattern[pattern_length - 1] == '*')
        return length >= pattern_length - 1 && memcmp(part, pattern, pattern_length - 1) == 0;
    return length == pattern_length && memcmp(part, pattern, length) == 0;
}

static size_t last_part(const char *text, size_t length)
{
    size_t first = length;
    while (first > 0 && text[first - 1] != '.')
        first--;
    return first;
}

/* How many parts of the tail match; 0: not all of them. */
static unsigned tail_matches(const char *module, size_t length, const char *tail)
{
    size_t tail_length = strlen(tail);
    for (unsigned parts = 1;; parts++) {
        size_t part = last_part(module, length), pattern = last_part(tail, tail_length);
        if (length == 0 || !part_matches(module + part, length - part, tail + pattern, tail_length - pattern))
            return 0;
        if (pattern == 0)
            return parts;
        length = part == 0 ? 0 : part - 1;
        tail_length = pattern - 1;
    }
}

const struct module_class_fact *module_class_find(const char *module, size_t length, unsigned tp_size)
{
    const struct row *best = NULL;
    unsigned most = 0;
    bool best_is_plain = false;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        unsigned parts = tail_matches(module, length, rows[i].tail);
        bool plain = strchr(rows[i].tail, '*') == NULL;
        if (parts > most || (parts == most && parts > 0 && plain && !best_is_plain)) {
            best = &rows[i];
            most = parts;
            best_is_plain = plain;
        }
    }
    return best == NULL ? &unknown : tp_size > 1 ? &best->parallel : &best->alone;
}

const char *module_class_name(enum module_class class)
{
    static const char *const names[] = {"unknown", "token-wise", "reduces", "carries state"};
    return names[class];
}

static bool is_one_of(const char *const *words, const char *text, size_t length)
{
    for (; *words != NULL; words++)
        if (strlen(*words) == length && memcmp(*words, text, length) == 0)
            return true;
    return false;
}

bool module_class_is_cache_row(const char *module, size_t length, const char *argument, size_t argument_length)
{
    static const char *const rows_of_cache[] = {"1", "2", "k", "v", "k_rope", NULL};
    const struct module_class_fact *fact = module_class_find(module, length, 1);
    return fact->class == MODULE_CLASS_STATE && strcmp(fact->kind, ATTENTION_KIND) == 0 &&
           is_one_of(rows_of_cache, argument, argument_length);
}

bool module_class_is_place(const char *argument, size_t length)
{
    static const char *const places[] = {"out_cache_loc",    "cache_loc",  "kv_indices",   "kv_indptr",
                                         "req_pool_indices", "page_table", "block_tables", "block_table",
                                         "slot_mapping",     NULL};
    return is_one_of(places, argument, length);
}
