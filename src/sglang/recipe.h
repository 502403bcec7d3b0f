/* How to dump a decode and a prefill of the same tokens so that every proof of `kldumpctl diff` is possible (facts/
 * dump-analysis.md 3.8): commands, and a remark behind each. kldumpctl run sets the mode of the dumper and switches
 * graphs off by itself; the prefix cache, the overlap of batches and speculative decoding are the user's to switch off.
 * Pure; any thread. */
#pragma once

struct recipe_step {
    const char *remark, *command;
};

/* In order; a command of NULL ends it. */
const struct recipe_step *recipe_steps(void);
