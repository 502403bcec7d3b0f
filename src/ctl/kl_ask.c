#include "ctl/kl_ask.h"

#include "base/memory.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/random.h>

enum error_code kl_ask_begin(struct kl_ask *ask, struct error *err)
{
    uint64_t bits;
    if (getrandom(&bits, sizeof bits, 0) != (ssize_t)sizeof bits)
        return error_set_errno(err, ERROR_SYSTEM, errno, "getrandom");
    hash_show(bits, ask->mark);
    return ERROR_NONE;
}

enum error_code kl_ask(struct kl_ask *ask, const char *step, const struct kl_ask_sequence *sequences, size_t count,
                       const struct generate_request *like, struct generate_answers *ret_answers, struct error *err)
{
    struct generate_request request = *like;
    struct generate_prompt *prompts = memory_new((count + 1) * sizeof prompts[0]);
    char **rids = memory_new((count + 1) * sizeof rids[0]);
    for (size_t i = 0; i < count; i++) {
        rids[i] = memory_format("kl-%s-%s-%zu", ask->mark, step, sequences[i].number);
        prompts[i] = (struct generate_prompt){rids[i], sequences[i].ids, sequences[i].length};
    }
    request.prompts = prompts;
    request.count = count;
    request.has_temperature = request.ignore_eos = true;
    request.temperature = ask->temperature;
    if (ask->progress != NULL)
        ask->progress(ask->context, step, ask->done, ask->total);
    enum error_code code = endpoint_generate(ask->endpoint, &request, ret_answers, err);
    ask->done += count;
    for (size_t i = 0; i < count; i++)
        free(rids[i]);
    free(rids);
    free(prompts);
    return code;
}

enum error_code kl_ask_scores(struct kl_ask *ask, const char *step, const struct kl_ask_sequence *sequences,
                              size_t count, struct generate_answers *ret_answers, struct error *err)
{
    const struct generate_request like = {.logprobs = true, .logprob_start = 0};
    enum error_code code = endpoint_flush(ask->endpoint, err);
    return code != ERROR_NONE ? code : kl_ask(ask, step, sequences, count, &like, ret_answers, err);
}
