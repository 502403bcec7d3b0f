/* How SGLang's own KL helpers measure, so that the same is measured here: test/kl_test_utils.py and
 * test/kits/kl_divergence_kit.py of 0.5.23, those of older releases where they differ (facts/sglang.md 7). Pure; any
 * thread. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

enum {
    KL_HELPER_SAMPLES = 32,     /* KLDivergenceMixin.kl_div_max_samples */
    KL_HELPER_NEW_TOKENS = 512, /* KLDivergenceMixin.kl_div_*_max_new_tokens */
};
#define KL_HELPER_COMMA "," /* what a second turn adds to the first answer, as the tokenizer encodes it */

/* Of decode and score alike: 0 (greedy); up to 0.5.12 the helpers sampled at 1. At any other the two do
 * not compare: logprobs of the output are taken after the temperature, those of the prompt before. `version` NULL: not
 * known, as now. */
double kl_helper_temperature(const char *version);

/* Whether a request has taken the way of its path, by the tokens that it found in the cache; NULL, or why it is
 * dropped. `prompt_length`: of the first turn. */
const char *kl_helper_prefill_miss(size_t cached_tokens);
const char *kl_helper_decode_miss(size_t cached_tokens, size_t prompt_length);

/* Whether so many of all requests hit the cache that the path counts as taken. */
bool kl_helper_enough(size_t kept, size_t count);
