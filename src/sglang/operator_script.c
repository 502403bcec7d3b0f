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

/* Both compute `few` and `many`; the lines around are the same. */
static void add_product(const struct operator_script *script, struct buffer *out)
{
    buffer_format(out,
                  "FEW, M, K, N, DTYPE = %" PRIu64 ", %" PRIu64 ", %" PRIu64 ", %" PRIu64 ", torch.%s\n"
                  "DEVICE = \"cuda\" if torch.cuda.is_available() else \"cpu\"\n"
                  "torch.manual_seed(1)\n"
                  "x, w = torch.randn(M, K).to(DEVICE, DTYPE), torch.randn(N, K).to(DEVICE, DTYPE)\n"
                  "few = torch.cat([torch.nn.functional.linear(x[i:i + FEW], w) for i in range(0, M - FEW + 1, FEW)])\n"
                  "many = torch.nn.functional.linear(x, w)[:len(few)]\n",
                  script->few, script->rows, script->inputs, script->outputs, script->dtype);
}

static void add_norm(const struct operator_script *script, struct buffer *out)
{
    buffer_format(out,
                  "from sglang.srt.layers.layernorm import RMSNorm\n"
                  "FEW, M, N, DTYPE = %" PRIu64 ", %" PRIu64 ", %" PRIu64 ", torch.%s\n"
                  "DEVICE = \"cuda\" if torch.cuda.is_available() else \"cpu\"\n"
                  "norm, x = RMSNorm(N).to(DEVICE, DTYPE), torch.randn(M, N).to(DEVICE, DTYPE)\n",
                  script->few, script->rows, script->inputs, script->dtype);
    if (script->residual)
        buffer_text(out,
                    "few = torch.cat([norm(x[i:i + FEW].clone(), x[i:i + FEW].clone())[0] for i in range(0, M - FEW "
                    "+ 1, FEW)])\n"
                    "many = norm(x.clone(), x.clone())[0][:len(few)]\n");
    else
        buffer_text(out, "few = torch.cat([norm(x[i:i + FEW].clone()) for i in range(0, M - FEW + 1, FEW)])\n"
                         "many = norm(x.clone())[:len(few)]\n");
}

static const struct kind {
    const char *name, *remark;
    void (*add)(const struct operator_script *script, struct buffer *out);
} kinds[] = {{"matrix product", "not quantised", add_product},
             {"normalisation", "an RMSNorm with weights of 1", add_norm}};

static const struct kind *find_kind(const char *name)
{
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++)
        if (strcmp(kinds[i].name, name) == 0)
            return &kinds[i];
    return NULL;
}

enum error_code operator_script_build(const struct operator_script *script, struct buffer *out, struct error *err)
{
    const struct kind *kind = find_kind(script->kind);
    if (kind == NULL)
        return error_set(
            err, ERROR_BAD_VALUE,
            "%.200s (%.60s): a script of its own can be made of a matrix product or a normalisation alone; "
            "this one needs the server's cache or its own kernels",
            script->module, script->kind);
    if (!is_drawn(script->dtype))
        return error_set(err, ERROR_BAD_VALUE,
                         "%.200s: its rows are %.40s; expected float32, float64, bfloat16 or float16", script->module,
                         script->dtype);
    char *module = plain(script->module);
    buffer_format(out,
                  "# %s (%s): M rows together, and the same rows FEW at a time. Random numbers, %s.\nimport torch\n",
                  module, script->kind, kind->remark);
    kind->add(script, out);
    buffer_text(out, "print(f\"torch {torch.__version__}, {DEVICE}: {(many != few).sum()} of {many.numel()} elements "
                     "differ between M={FEW} and M={M}\")\n"
                     "raise SystemExit(int((many != few).any()))\n");
    free(module);
    return ERROR_NONE;
}
