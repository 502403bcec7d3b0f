/* What `invariance` takes from the results of other commands. One thread. */
#pragma once

#include "analysis/invariance.h"
#include "base/error.h"
#include "json/json.h"

/* What match says in the result of `kldumpctl kl --json` (schema kldump.kl/1). ERROR_BAD_VALUE, with both sides, where
 * it is over other prompts or under other settings; ERROR_INCOMPLETE where somebody else has used the server meanwhile;
 * else as result_file_read. */
enum error_code invariance_inputs_match(const char *path, const char *prompts_hash, const char *settings_hash,
                                        struct invariance_match *ret_match, struct error *err);

/* The operator that a result of `kldumpctl diff --json` (schema kldump.diff/1) names, with what its rows are. */
struct invariance_module {
    char *module, *kind, *dtype;         /* dtype NULL: its rows are not in the result */
    uint64_t inputs, outputs;            /* elements of one row */
    bool residual;                       /* it has a second input of rows */
    char *verdict, *confidence, *advice; /* "op", "proven", and what to look at */
    bool has_layer;
    uint64_t layer;
    uint64_t rows, reference_rows; /* of the two passes in which it shows first; 0: not in the result */
};

/* ERROR_BAD_VALUE where the result names none; else as result_file_read. */
enum error_code invariance_inputs_module(const char *path, struct invariance_module *ret_module, struct error *err);
/* The same of the object. */
enum error_code invariance_inputs_module_of(const struct json *diff, struct invariance_module *ret_module,
                                            struct error *err);
void invariance_inputs_module_fini(struct invariance_module *module); /* also of a zeroed one */
