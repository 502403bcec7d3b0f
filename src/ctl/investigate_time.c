/* What is left, by what the steps so far took. Decoding is what takes long: its forward passes are the measure of kl,
 * invariance and capture, and a start of a server is as long as the last one. */
#include "ctl/investigate.h"

enum {
    BATCHED_DECODES = 4, /* of kl: match, prefill hit, the two turns of decode hit */
    INVARIANCE_TOKENS = 32,
    INVARIANCE_BATCHES = 8,
    CAPTURE_TOKENS = 16,
    CAPTURE_COST = 20, /* a pass that is dumped, in passes that are not */
};

/* In forward passes of a decode. */
static uint64_t weight(const struct investigate *work, enum investigation_step_id id)
{
    uint64_t alone = work->prompt_count, tokens = work->new_tokens;
    switch (id) {
    case INVESTIGATION_KL_OWN:
    case INVESTIGATION_KL_DUMP:
        return (BATCHED_DECODES + alone) * tokens;
    case INVESTIGATION_INVARIANCE:
        return (uint64_t)2 * INVARIANCE_BATCHES * (tokens < INVARIANCE_TOKENS ? tokens : INVARIANCE_TOKENS);
    case INVESTIGATION_CAPTURE:
        return (uint64_t)CAPTURE_COST * CAPTURE_TOKENS;
    default:
        return 0; /* files alone */
    }
}

static uint64_t measured_ms(const struct investigate *work, uint64_t *ret_passes)
{
    static const enum investigation_step_id best[] = {INVESTIGATION_KL_DUMP, INVESTIGATION_KL_OWN};
    for (size_t i = 0; i < sizeof best / sizeof best[0]; i++) {
        *ret_passes = weight(work, best[i]);
        if (work->found.steps[best[i]].took_ms > 0 && *ret_passes > 0)
            return work->found.steps[best[i]].took_ms;
    }
    return 0;
}

bool investigate_left(const struct investigate *work, enum investigation_step_id from, uint64_t *ret_left_ms)
{
    uint64_t passes = 0, left = 0, took = measured_ms(work, &passes);
    enum investigate_kind kind = work->kind;
    if (took == 0)
        return false;
    for (int id = (int)from; id < INVESTIGATION_STEPS; id++) {
        enum investigate_kind needs = investigate_steps[id].needs;
        if (work->found.steps[id].state == INVESTIGATION_DONE || investigate_steps[id].pointless(work) != NULL)
            continue;
        if (needs != INVESTIGATE_NO_RUN && needs != kind) {
            left += work->start_ms;
            kind = needs;
        }
        left += took * weight(work, (enum investigation_step_id)id) / passes;
    }
    *ret_left_ms = left;
    return true;
}
