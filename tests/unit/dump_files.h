/* Test support: writes dump files as torch and SGLang lay them out, in temporary folders. Failures end the test. */
#pragma once

#include "base/buffer.h"

#include <stddef.h>
#include <stdint.h>

/* One member of an archive. */
struct dump_files_member {
    const char *name; /* behind the prefix */
    const void *data;
    size_t size;
};

/* Appends an archive as torch writes it: payloads at multiples of 64, sizes only in the directory, zip64 records. */
void dump_files_archive(struct buffer *out, const char *prefix, const struct dump_files_member *members, size_t count);

/* A pickle as of a rids file, with the list's items appended as pickle does it. */
void dump_files_pickle(struct buffer *out, const char *const *ids, size_t count);

/* A new folder below $TMPDIR, else /dev/shm where there is room, else /tmp; the caller frees the path after
 * dump_files_remove. */
char *dump_files_folder(void);
void dump_files_remove(const char *folder); /* and all that is in it */

/* Writes bytes to FOLDER/NAME. */
void dump_files_write(const char *folder, const char *name, const void *bytes, size_t length);

/* The path of a dump file; `name` is N, "non_intrusive__model.norm.output"; layer -1: no layer_id. The caller frees. */
char *dump_files_name(uint64_t step, uint32_t rank, uint64_t dump_index, const char *name, int layer);

/* Writes a dump file with a tensor of `bytes` bytes, or with request ids (NULL-terminated). */
void dump_files_tensor(const char *folder, uint64_t step, uint32_t rank, uint64_t dump_index, const char *name,
                       int layer, size_t bytes);
void dump_files_ids(const char *folder, uint64_t step, uint32_t rank, uint64_t dump_index, const char *const *ids);

/* One whole pass of a model with `layers` layers: 7 files of the root, 2 for each layer, 2 at the end; `tokens` rows
 * and one row for each id. *dump_index is that of the file before, and is moved on. */
struct dump_files_pass {
    uint64_t step;
    uint32_t rank;
    unsigned first_layer, layers;
    unsigned tokens;
    const char *const *ids; /* NULL-terminated */
};
void dump_files_pass(const char *folder, const struct dump_files_pass *pass, uint64_t *dump_index);

enum { DUMP_FILES_ROOT = 9, DUMP_FILES_LAYER = 2 }; /* files of a pass: DUMP_FILES_ROOT + layers * DUMP_FILES_LAYER */
