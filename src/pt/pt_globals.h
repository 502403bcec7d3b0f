/* What the globals of a pickle mean: pt_globals.def and pt_dtype.def with words around them. Pure; any thread. */
#pragma once

#include "pt/pt_pickle.h"

#include <stddef.h>

/* Also sets *ret_detail (an enum pt_dtype for STORAGE and DTYPE). PT_PICKLE_MEANS_NOTHING: not in the tables. */
enum pt_pickle_meaning pt_globals_find(const char *module, size_t module_length, const char *name, size_t name_length,
                                       uint8_t *ret_detail);
