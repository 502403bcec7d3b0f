#include "sglang/kl_helper.h"

#include "sglang/versions.h"

double kl_helper_temperature(const char *version)
{
    static const struct versions_number last_that_sampled = {0, 5, 12};
    struct versions_number number;
    bool known = version != NULL && versions_parse(version, &number);
    return known && versions_compare(&number, &last_that_sampled) <= 0 ? 1 : 0;
}

const char *kl_helper_prefill_miss(size_t cached_tokens)
{
    return cached_tokens == 0 ? "no cached token" : NULL;
}

const char *kl_helper_decode_miss(size_t cached_tokens, size_t prompt_length)
{
    return cached_tokens <= prompt_length + 1 ? "nothing of the first answer was cached" : NULL;
}

bool kl_helper_enough(size_t kept, size_t count)
{
    return 2 * kept > count;
}
