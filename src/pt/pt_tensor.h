/* What a tensor's node in a pickle says: element type, sizes, strides, and which storage it looks into. Pure.
 *
 * Understood: torch._utils._rebuild_tensor_v2 and _v3, bare or within Parameter and _rebuild_from_type_v2 (torch 1.13
 * to 2.14); the lazy bits "conj" and "neg". */
#pragma once

#include "pt/pt_file.h"
#include "pt/pt_pickle.h"

struct pt_tensor_storage {
    const char *key, *location; /* in the pickle; not ended by a NUL, which they do not contain */
    size_t key_length, location_length;
    uint64_t bytes; /* that the pickle says it has */
};

/* True where the node is a tensor, understood or not. */
bool pt_tensor_is(const struct pt_pickle_node *node);

/* Fills in all of *ret_tensor but location, storage_key, storage_position and storage_bytes. On failure *ret_problem is
 * PT_FILE_PICKLE, PT_FILE_UNSUPPORTED or PT_FILE_GEOMETRY and the code ERROR_FORMAT, with the byte position. */
enum error_code pt_tensor_read(const struct pt_pickle *pickle, uint32_t number, struct pt_file_tensor *ret_tensor,
                               struct pt_tensor_storage *ret_storage, enum pt_file_problem *ret_problem,
                               struct error *err);
