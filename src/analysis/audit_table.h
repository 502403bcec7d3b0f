/* All dump files of one folder: what their names say, in 48 bytes each. The part of a name that repeats in every pass
 * (from "name=" on) is kept once; with the three numbers before it the whole name can be made again. One thread fills
 * and sorts; audit_probe may write `size`, `rows` and `state` of different files from several threads. */
#pragma once

#include "base/error.h"
#include "base/list.h"
#include "sglang/dump_name.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    AUDIT_TABLE_FILES_MAX = 16 * 1000 * 1000,
    AUDIT_TABLE_NAME = 512, /* bytes that hold any file name, and any text of audit_table_describe */
};

enum audit_table_state {
    AUDIT_TABLE_UNCHECKED,
    AUDIT_TABLE_FINE,
    AUDIT_TABLE_EMPTY,
    AUDIT_TABLE_TRUNCATED,
    AUDIT_TABLE_FOREIGN,   /* no torch.save archive */
    AUDIT_TABLE_DAMAGED,   /* an archive whose directory is wrong, or without data.pkl */
    AUDIT_TABLE_VALUELESS, /* whole, but without the tensor that its name promises */
    AUDIT_TABLE_ROWS,      /* input_ids or seq_lens of a size that is no multiple of 8 */
    AUDIT_TABLE_IRREGULAR, /* a link, folder, pipe or device */
    AUDIT_TABLE_UNREADABLE,
    AUDIT_TABLE_STATES
};

struct audit_table_file {
    uint64_t step, dump_index;
    uint64_t size; /* bytes */
    uint64_t rows; /* of input_ids and seq_lens, else 0 */
    uint32_t rank;
    uint32_t suffix;     /* number in `suffixes` */
    uint32_t modified_s; /* when it was written last, seconds since 1970 (until 2106); 0: not known */
    enum audit_table_state state;
};

struct audit_table_suffix {
    char *text;                      /* "name=...pt" */
    size_t name_offset, name_length; /* N, without non_intrusive__, in `text` */
    enum dump_name_core core;
    bool hook;
    bool word;      /* of a hook, and no tensor */
    bool has_layer; /* `layer` is set */
    bool has_layer_tag;
    uint32_t layer;
};

struct audit_table {
    struct audit_table_file *files;
    size_t file_count, file_capacity;
    struct audit_table_suffix *suffixes;
    size_t suffix_count, suffix_capacity;
    uint32_t *slots; /* hash of suffixes: number + 1 */
    size_t slot_count;
    uint64_t malformed;          /* names that end in .pt and are none of the dumper's */
    struct list malformed_names; /* the first three of them by their bytes */
    struct list folders;         /* likewise of folders within the folder */
};

void audit_table_init(struct audit_table *table);
void audit_table_fini(struct audit_table *table);

/* Takes the names of the folder behind `folder_fd`, which stays the caller's. Files that do not end in .pt are left
 * out. ERROR_SYSTEM, ERROR_TOO_LARGE, ERROR_MEMORY. */
enum error_code audit_table_read(struct audit_table *table, int folder_fd, struct error *err);

/* The order of the folder does not show in what follows: both orders are total. */
void audit_table_sort_by_index(struct audit_table *table); /* rank, dump_index, step, name */
void audit_table_sort_by_step(struct audit_table *table);  /* rank, step, dump_index, name */

/* The file's name; "step 3 rank 0 dump_index 17 model.norm.output" for people. Buffers of AUDIT_TABLE_NAME bytes. */
const char *audit_table_name(const struct audit_table *table, const struct audit_table_file *file, char *buffer);
const char *audit_table_describe(const struct audit_table *table, const struct audit_table_file *file, char *buffer);
