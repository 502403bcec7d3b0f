#include "sglang/recipe.h"

#include <stddef.h>

static const struct recipe_step steps[] = {
    {"the server, without prefix cache, overlap and speculative decoding",
     "kldumpctl run --name t --dir dumps -- python3 -m sglang.launch_server --model-path M --disable-radix-cache "
     "--disable-overlap-schedule"},
    {"temperature 0, N new tokens; keep the prompt's ids and the output's ids", "kldumpctl dump t dec -- ./generate"},
    {"score exactly prompt ids + output ids, 0 new tokens (1 if the server insists)",
     "kldumpctl dump t pre -- ./score"},
    {"the same once more, as a control of run against run", "kldumpctl dump t pre2 -- ./score"},
    {"and the question itself", "kldumpctl diff dumps/dec dumps/pre"},
    {NULL, NULL},
};

const struct recipe_step *recipe_steps(void)
{
    return steps;
}
