#include "sglang/operator_script.h"

#include "base/memory.h"

#include <inttypes.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

/* The name stands in a comment of a program: nothing but what modules are called by. */
static char *plain(const char *module)
{
    char *copy = memory_copy(module);
    for (char *c = copy; *c != '\0'; c++)
        if (strchr("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-", *c) == NULL)
            *c = '?';
    return copy;
}

static bool is_drawn(const char *dtype)
{
    static const char *const types[] = {"float32", "float64", "bfloat16", "float16"};
    for (size_t i = 0; i < sizeof types / sizeof types[0]; i++)
        if (strcmp(types[i], dtype) == 0)
            return true;
    return false;
}

enum error_code operator_script_build(const struct operator_script *script, struct buffer *out, struct error *err)
{
    if (strcmp(script->kind, "matrix product") != 0)
        return error_set(
            err, ERROR_BAD_VALUE,
            "%.200s (%.60s): a script of its own can be made of a matrix product alone; this one needs the "
            "server's cache or its own kernels",
            script->module, script->kind);
    if (!is_drawn(script->dtype))
        return error_set(err, ERROR_BAD_VALUE,
                         "%.200s: its rows are %.40s; expected float32, float64, bfloat16 or float16", script->module,
                         script->dtype);
    char *module = plain(script->module);
    buffer_format(out,
                  "# %s (%s): each row alone, and the same rows together. Random numbers, not quantised.\n"
                  "import torch\n"
                  "M, K, N, DTYPE = %" PRIu64 ", %" PRIu64 ", %" PRIu64 ", torch.%s\n"
                  "DEVICE = \"cuda\" if torch.cuda.is_available() else \"cpu\"\n"
                  "torch.manual_seed(1)\n"
                  "x, w = torch.randn(M, K).to(DEVICE, DTYPE), torch.randn(N, K).to(DEVICE, DTYPE)\n"
                  "many = torch.nn.functional.linear(x, w)\n"
                  "alone = torch.cat([torch.nn.functional.linear(x[i:i + 1], w) for i in range(M)])\n"
                  "print(f\"torch {torch.__version__}, {DEVICE}: {(many != alone).sum()} of {many.numel()} elements "
                  "differ between M=1 and M={M}\")\n"
                  "raise SystemExit(int((many != alone).any()))\n",
                  module, script->kind, script->rows, script->inputs, script->outputs, script->dtype);
    free(module);
    return ERROR_NONE;
}
