/* The objects that a pickle describes, as a tree of plain nodes. Nothing is imported, called or built.
 *
 * Happy path: pt_pickle_read of a data.pkl of a dump gives nodes in an arena that is used again for the next file:
 * no allocation after the first pickles of that size. Texts stay where they are in the pickle. Failure: whatever
 * torch.save does not write is refused with its byte position; limits below bound memory (about 40 bytes for each byte
 * of the pickle, at most 20 MiB) and depth. Relied upon: the pickle protocols 2 to 5 as Python documents them, the
 * opcodes that torch.save's pickler uses (torch 1.13 to 2.14).
 *
 * A list may contain itself: who walks a tree bounds the depth. One pt_pickle belongs to one thread. */
#pragma once

#include "base/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    PT_PICKLE_BYTES_MAX = 8 * 1024 * 1024,
    PT_PICKLE_NODES_MAX = 512 * 1024, /* nodes, and items of all containers together */
    PT_PICKLE_DEPTH_MAX = 256,
    PT_PICKLE_NONE = 0, /* no node */
};

enum pt_pickle_kind {
    PT_PICKLE_NOTHING, /* None */
    PT_PICKLE_BOOL,
    PT_PICKLE_INTEGER,
    PT_PICKLE_BIG, /* an integer of more than 64 bits; text: its bytes, little endian */
    PT_PICKLE_REAL,
    PT_PICKLE_TEXT, /* bytes as they stand: UTF-8, perhaps with surrogates */
    PT_PICKLE_BYTES,
    PT_PICKLE_TUPLE,
    PT_PICKLE_LIST,
    PT_PICKLE_DICT, /* items: key, value, key, value, ... */
    PT_PICKLE_SET,
    PT_PICKLE_GLOBAL,  /* one of pt_globals.def, or a dtype */
    PT_PICKLE_CALL,    /* a global of pt_globals.def with arguments (a tuple), not called */
    PT_PICKLE_OPAQUE,  /* a global that is not in the table, or what was made with it */
    PT_PICKLE_STORAGE, /* a persistent id; call.arguments: its tuple, whose first item is "storage" */
};

enum pt_pickle_meaning {
    PT_PICKLE_MEANS_TENSOR_V2,
    PT_PICKLE_MEANS_TENSOR_V3,
    PT_PICKLE_MEANS_PARAMETER,
    PT_PICKLE_MEANS_FROM_TYPE,
    PT_PICKLE_MEANS_STORAGE, /* detail: enum pt_dtype */
    PT_PICKLE_MEANS_STORAGE_UNTYPED,
    PT_PICKLE_MEANS_DTYPE, /* detail: enum pt_dtype */
    PT_PICKLE_MEANS_DICT,
    PT_PICKLE_MEANS_SET,
    PT_PICKLE_MEANS_SIZE,
    PT_PICKLE_MEANS_LABEL, /* a scalar of no interest */
    PT_PICKLE_MEANS_UNSUPPORTED,
    PT_PICKLE_MEANS_SUSPICIOUS, /* never in a tree: such a pickle is refused */
    PT_PICKLE_MEANS_NOTHING,    /* not in the table */
};

/* A node is named by its number, 1 and up. */
struct pt_pickle_node {
    uint8_t kind;    /* enum pt_pickle_kind */
    uint8_t meaning; /* GLOBAL, CALL: enum pt_pickle_meaning */
    uint8_t detail;
    uint8_t seen;      /* for walks of pt_pickle.c */
    uint32_t position; /* in the pickle, of the opcode that made it */
    union {
        bool boolean;
        int64_t integer;
        double real;
        struct {
            uint32_t start, length; /* in the pickle */
        } text;
        struct {
            uint32_t first, last; /* cells, 0: none */
            uint32_t count;       /* items; of a dict twice its pairs */
            uint32_t depth;
        } items;
        struct {
            uint32_t module, name; /* where they start in the pickle */
            uint16_t module_length, name_length;
            uint32_t arguments; /* CALL, STORAGE */
        } call;
    };
};

struct pt_pickle_cell {
    uint32_t node, next; /* next 0: the last */
};

struct pt_pickle {
    const uint8_t *bytes;
    size_t length;
    uint64_t file_position; /* of the pickle in its file: positions in errors count from the file's beginning */
    uint32_t root;
    uint32_t opaque; /* the first OPAQUE node, or PT_PICKLE_NONE */
    bool suspicious; /* the failure is a global that runs code */

    /* private */
    struct pt_pickle_node *nodes;
    struct pt_pickle_cell *cells;
    uint32_t *stack, *memo;
    uint32_t node_count, cell_count, memo_used;
    size_t capacity; /* of each of the four */
};

void pt_pickle_init(struct pt_pickle *pickle);
void pt_pickle_fini(struct pt_pickle *pickle); /* also of a zeroed one */

/* Reads one pickle that is all of `bytes`, which must outlive the tree. What was read before is dropped.
 * `file_position`: where the bytes stand in their file. ERROR_FORMAT, ERROR_TOO_LARGE, ERROR_MEMORY; then there is no
 * root. */
enum error_code pt_pickle_read(struct pt_pickle *pickle, const void *bytes, size_t length, uint64_t file_position,
                               struct error *err);

/* The node with that number, which must be one. */
const struct pt_pickle_node *pt_pickle_node(const struct pt_pickle *pickle, uint32_t number);

/* Item `index` of a tuple, list, set or dict (key 0, value 1, ...); PT_PICKLE_NONE behind the last. Walks from the
 * first one: for all items use the cells. */
uint32_t pt_pickle_item(const struct pt_pickle *pickle, const struct pt_pickle_node *container, uint32_t index);

/* The value of the last member of a dict with this key, as Python would have it; PT_PICKLE_NONE where there is none or
 * `dict` is no dict. */
uint32_t pt_pickle_member(const struct pt_pickle *pickle, uint32_t dict, const char *key, size_t key_length);

bool pt_pickle_text_is(const struct pt_pickle *pickle, const struct pt_pickle_node *node, const char *text);

/* The first node below `number` (or it itself) that is opaque or unsupported; PT_PICKLE_NONE: there is none. Below
 * PT_PICKLE_DEPTH_MAX levels nothing is looked at: only a tree that contains itself is so deep. */
uint32_t pt_pickle_unusable(struct pt_pickle *pickle, uint32_t number);

/* "module.name" of a global, call or opaque node, made safe to show, cut to `size`. Returns `out`. */
const char *pt_pickle_global_name(const struct pt_pickle *pickle, const struct pt_pickle_node *node, char *out,
                                  size_t size);
