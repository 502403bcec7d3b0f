/* A stand-alone Python script that calls one of SGLang's operators on one row and on several. Pure; any thread. */
#pragma once

#include "base/buffer.h"
#include "base/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct operator_script {
    const char *module;       /* "model.layers.0.self_attn.qkv_proj" */
    const char *kind;         /* of module_class.h */
    const char *dtype;        /* as torch calls it: "bfloat16" */
    uint64_t inputs, outputs; /* elements of one row */
    bool residual;            /* it is called with a second tensor of rows, which a normalisation adds first */
    uint64_t few, rows;       /* of the smaller and of the larger pass: at least 1, and more than `few` */
};

/* Appends ten lines of Python that compute rows once together, and once `few` at a time; the script's exit status is 1
 * where a row's bits depend on the number of rows. A matrix product is F.linear, as the unquantised layers call it
 * (srt/layers/quantization/unquant.py of 0.5.23), and needs torch alone. A normalisation is SGLang's own RMSNorm, which
 * picks the kernel of the machine (srt/layers/layernorm.py of 0.5.23), with weights of 1: it needs the server's Python.
 * ERROR_BAD_VALUE, and `out` is as before: there is no such script for operators of this kind, or of a type that torch
 * cannot draw random numbers of. */
enum error_code operator_script_build(const struct operator_script *script, struct buffer *out, struct error *err);
