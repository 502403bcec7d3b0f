/* A stand-alone Python script that calls one of SGLang's operators on one row and on several. Pure; any thread. */
#pragma once

#include "base/buffer.h"
#include "base/error.h"

#include <stddef.h>
#include <stdint.h>

struct operator_script {
    const char *module;       /* "model.layers.0.self_attn.qkv_proj" */
    const char *kind;         /* of module_class.h */
    const char *dtype;        /* as torch calls it: "bfloat16" */
    uint64_t inputs, outputs; /* elements of one row */
    uint64_t rows;            /* at least 2 */
};

/* Appends ten lines of Python that need torch alone; the script's exit status is 1 where a row's bits depend on the
 * number of rows. A matrix product is F.linear, as the unquantised layers call it (srt/layers/quantization/unquant.py
 * of 0.5.23). ERROR_BAD_VALUE, and `out` is as before: there is no such script for operators of this kind, or of
 * a type that torch cannot draw random numbers of. */
enum error_code operator_script_build(const struct operator_script *script, struct buffer *out, struct error *err);
