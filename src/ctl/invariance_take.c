#include "ctl/invariance_take.h"

#include "base/list.h"
#include "base/memory.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { OUTPUT_ONLY = -1, SHORTEST_EXTEND = 2 };

struct take {
    struct endpoint *endpoint;
    const struct invariance_take_plan *plan;
    struct invariance_axis *axes;
    struct generate_answer *scored; /* [most]: each prompt whole, alone: the reference of two axes */
    const char *what;
    size_t sent; /* requests so far: their names are made from it */
    uint64_t done, total;
};

/* How the requests of an axis are sent, and where their logprobs are. */
struct form {
    unsigned new_tokens;
    int64_t logprob_start;
};

/* ---- one batch ---- */

enum error_code invariance_take_send(struct endpoint *endpoint, const struct prompts *prompts,
                                     const struct invariance_take_batch *batch, struct generate_answers *ret_answers,
                                     struct error *err)
{
    struct generate_prompt *sent = memory_new(batch->count * sizeof sent[0]);
    for (size_t i = 0; i < batch->count; i++)
        sent[i] = (struct generate_prompt){.rid = batch->rids->items[i],
                                           .ids = prompts->items[batch->first + i].ids,
                                           .length = batch->length > 0 ? batch->length
                                                                       : prompts->items[batch->first + i].length};
    const struct generate_request request = {.prompts = sent,
                                             .count = batch->count,
                                             .new_tokens = batch->new_tokens,
                                             .has_temperature = true, /* 0: the likeliest token, always */
                                             .ignore_eos = true,
                                             .logprobs = true,
                                             .logprob_start = batch->logprob_start};
    enum error_code code = endpoint->wanted != NULL && !endpoint->wanted(endpoint->user)
                               ? error_set(err, ERROR_INTERRUPTED, "interrupted")
                               : endpoint_generate(endpoint, &request, ret_answers, err);
    free(sent);
    return code;
}

static enum error_code send(struct take *take, size_t first, size_t count, size_t length, const struct form *form,
                            struct generate_answers *ret_answers, struct error *err)
{
    struct list rids = {0};
    for (size_t i = 0; i < count; i++)
        list_add_format(&rids, "kldump-invariance-%d-%zu", (int)getpid(), take->sent++);
    const struct invariance_take_batch batch = {.rids = &rids,
                                                .first = first,
                                                .count = count,
                                                .length = length,
                                                .new_tokens = form->new_tokens,
                                                .logprob_start = form->logprob_start};
    if (take->plan->progress != NULL)
        take->plan->progress(take->plan->context, take->what, take->done, take->total);
    enum error_code code = invariance_take_send(take->endpoint, take->plan->prompts, &batch, ret_answers, err);
    take->done += take->done < take->total;
    list_fini(&rids);
    return code;
}

/* On an empty cache. `length` ids of each prompt; 0: all. */
static enum error_code send_fresh(struct take *take, size_t first, size_t count, size_t length, const struct form *form,
                                  struct generate_answers *ret_answers, struct error *err)
{
    enum error_code code = endpoint_flush(take->endpoint, err);
    if (code == ERROR_NONE)
        code = send(take, first, count, length, form, ret_answers, err);
    for (size_t i = 0; code == ERROR_NONE && i < count; i++) {
        if (ret_answers->items[i].cached_tokens == 0)
            continue;
        code =
            error_set(err, ERROR_INCOMPLETE,
                      "%.80s: prompt %zu: %zu tokens were found in the cache right after it was flushed; expected 0: "
                      "keep other clients away",
                      take->endpoint->name, first + i, ret_answers->items[i].cached_tokens);
        generate_answers_fini(ret_answers);
    }
    return code;
}

static struct invariance_tokens tokens_of(const struct take *take, size_t request, const struct form *form,
                                          const struct generate_answer *answer)
{
    if (form->logprob_start == OUTPUT_ONLY)
        return (struct invariance_tokens){.first = answer->prompt_tokens,
                                          .count = answer->output_count,
                                          .ids = answer->output_ids,
                                          .logprobs = answer->output_logprobs};
    return (struct invariance_tokens){.count = answer->prompt_tokens,
                                      .ids = take->plan->prompts->items[request].ids,
                                      .logprobs = answer->input_logprobs};
}

static struct invariance_case *case_of(struct take *take, enum invariance_axis_id id, size_t size)
{
    return size == 1 ? &take->axes[id].again : invariance_case_at(&take->axes[id], size, false);
}

/* What a batch of `size` gave one request, 1: the request alone, once more. The first new token comes from the last row
 * of the prompt, so it belongs to the prefill. */
static void compare(struct take *take, enum invariance_axis_id id, size_t size, size_t request, const struct form *form,
                    const struct generate_answer *reference, const struct generate_answer *found)
{
    struct invariance_tokens a = tokens_of(take, request, form, reference), b = tokens_of(take, request, form, found);
    if (form->logprob_start == OUTPUT_ONLY) {
        struct invariance_tokens first = a;
        first.count = 1;
        invariance_compare(case_of(take, INVARIANCE_PREFILL, size), request, &first, &b);
        if (a.ids[0] != b.ids[0])
            return;
        a = (struct invariance_tokens){
            .first = a.first + 1, .count = a.count - 1, .ids = a.ids + 1, .logprobs = a.logprobs + 1};
    }
    invariance_compare(case_of(take, id, size), request, &a, &b);
}

/* Moves the only answer out of `answers`. */
static struct generate_answer single(struct generate_answers *answers)
{
    struct generate_answer answer = answers->items[0];
    free(answers->items);
    *answers = (struct generate_answers){0};
    return answer;
}

static void answers_free(struct generate_answer *answers, size_t count)
{
    struct generate_answers all = {.items = answers, .count = answers != NULL ? count : 0};
    generate_answers_fini(&all);
}

/* ---- alone, and in batches ---- */

/* Each request alone, twice; the first answers become ret_alone (also on failure: to be freed). */
static enum error_code take_alone(struct take *take, enum invariance_axis_id id, const struct form *form,
                                  struct generate_answer *ret_alone, struct error *err)
{
    for (size_t i = 0; i < take->plan->most; i++) {
        struct generate_answers first = {0}, again = {0};
        enum error_code code = send_fresh(take, i, 1, 0, form, &first, err);
        if (code == ERROR_NONE)
            ret_alone[i] = single(&first);
        if (code == ERROR_NONE)
            code = send_fresh(take, i, 1, 0, form, &again, err);
        if (code != ERROR_NONE)
            return code;
        compare(take, id, 1, i, form, &ret_alone[i], &again.items[0]);
        generate_answers_fini(&again);
    }
    take->axes[id].again.size = 1;
    return ERROR_NONE;
}

static enum error_code take_batch(struct take *take, enum invariance_axis_id id, const struct form *form,
                                  const struct generate_answer *alone, size_t size, struct error *err)
{
    struct generate_answers answers = {0};
    enum error_code code = send_fresh(take, 0, size, 0, form, &answers, err);
    for (size_t i = 0; code == ERROR_NONE && i < size; i++)
        compare(take, id, size, i, form, &alone[i], &answers.items[i]);
    generate_answers_fini(&answers);
    return code;
}

/* The size halfway between the first that changes a result and the last before it; 0: there is none between. */
static size_t size_between(const struct invariance_axis *axis)
{
    const struct invariance_case *before, *first = invariance_first(axis, &before);
    size_t low = before != NULL ? before->size : 1;
    return first != NULL && first->size - low > 1 ? (low + first->size) / 2 : 0;
}

/* 2, 4, 8, ... most; then by halves down to the first size that changes a result. */
static enum error_code take_batches(struct take *take, enum invariance_axis_id id, const struct form *form,
                                    const struct generate_answer *alone, struct error *err)
{
    enum error_code code = ERROR_NONE;
    for (size_t size = 2; code == ERROR_NONE; size *= 2) {
        bool is_last = size >= take->plan->most;
        code = take_batch(take, id, form, alone, is_last ? take->plan->most : size, err);
        if (is_last)
            break;
    }
    while (code == ERROR_NONE) {
        size_t size = size_between(&take->axes[id]);
        if (size == 0) /* a decode has told of its prefill, too */
            size = size_between(&take->axes[INVARIANCE_PREFILL]);
        if (size == 0)
            break;
        code = take_batch(take, id, form, alone, size, err);
    }
    take->axes[id].measured = code == ERROR_NONE;
    return code;
}

static enum error_code take_prefill(struct take *take, struct error *err)
{
    static const struct form scoring = {.new_tokens = 0, .logprob_start = 0};
    enum error_code code = take_alone(take, INVARIANCE_PREFILL, &scoring, take->scored, err);
    return code == ERROR_NONE ? take_batches(take, INVARIANCE_PREFILL, &scoring, take->scored, err) : code;
}

static enum error_code take_decode(struct take *take, struct error *err)
{
    const struct form decoding = {.new_tokens = take->plan->new_tokens, .logprob_start = OUTPUT_ONLY};
    struct generate_answer *alone = memory_new(take->plan->most * sizeof alone[0]);
    enum error_code code = take_alone(take, INVARIANCE_DECODE, &decoding, alone, err);
    if (code == ERROR_NONE)
        code = take_batches(take, INVARIANCE_DECODE, &decoding, alone, err);
    answers_free(alone, take->plan->most);
    return code;
}

/* ---- long, short, one row ---- */

/* The same positions as rows of an extend of `rows` rows. Prompts that are not longer are left out. */
static enum error_code take_short(struct take *take, size_t rows, struct error *err)
{
    static const struct form scoring = {.new_tokens = 0, .logprob_start = 0};
    for (size_t i = 0; i < take->plan->most; i++) {
        struct generate_answers answers = {0};
        if (take->plan->prompts->items[i].length <= rows)
            continue;
        enum error_code code = send_fresh(take, i, 1, rows, &scoring, &answers, err);
        if (code != ERROR_NONE)
            return code;
        compare(take, INVARIANCE_EXTEND, rows, i, &scoring, &take->scored[i], &answers.items[0]);
        generate_answers_fini(&answers);
    }
    return ERROR_NONE;
}

static size_t longest(const struct invariance_take_plan *plan)
{
    size_t length = 0;
    for (size_t i = 0; i < plan->most; i++)
        if (plan->prompts->items[i].length > length)
            length = plan->prompts->items[i].length;
    return length;
}

/* The last row of `prefix` + 1 ids, fresh (twice) and behind the cached prefix; one new token has its logprob. Whether
 * the prefix was found is *ret_found. */
static enum error_code take_one_row(struct take *take, size_t request, size_t prefix, size_t *ret_found,
                                    struct error *err)
{
    static const struct form next = {.new_tokens = 1, .logprob_start = OUTPUT_ONLY};
    struct generate_answers fresh = {0}, again = {0}, cached = {0};
    enum error_code code = send_fresh(take, request, 1, prefix + 1, &next, &fresh, err);
    if (code == ERROR_NONE)
        code = send_fresh(take, request, 1, prefix + 1, &next, &again, err);
    if (code == ERROR_NONE)
        code = send(take, request, 1, prefix + 1, &next, &cached, err);
    if (code == ERROR_NONE) {
        struct invariance_axis *axis = &take->axes[INVARIANCE_EXTEND];
        const struct invariance_tokens reference = tokens_of(take, request, &next, &fresh.items[0]),
                                       same = tokens_of(take, request, &next, &again.items[0]),
                                       found = tokens_of(take, request, &next, &cached.items[0]);
        *ret_found = cached.items[0].cached_tokens;
        invariance_compare(&axis->again, request, &reference, &same);
        if (*ret_found == prefix)
            invariance_compare(invariance_case_at(axis, 1, true), request, &reference, &found);
    }
    generate_answers_fini(&fresh);
    generate_answers_fini(&again);
    generate_answers_fini(&cached);
    return code;
}

/* One row can stand alone behind whole pages only. */
static enum error_code take_cached(struct take *take, struct error *err)
{
    struct invariance_axis *axis = &take->axes[INVARIANCE_EXTEND];
    size_t page = take->endpoint->server.page_size > 0 ? (size_t)take->endpoint->server.page_size : 1, taken = 0;
    if (!take->endpoint->server.radix_cache) {
        axis->why_not = memory_copy("the prefix cache is off: no request extends a cached prefix");
        return ERROR_NONE;
    }
    for (size_t i = 0; i < take->plan->most; i++) {
        size_t prefix = (take->plan->prompts->items[i].length - 1) / page * page, found = 0;
        if (prefix == 0)
            continue;
        enum error_code code = take_one_row(take, i, prefix, &found, err);
        if (code != ERROR_NONE)
            return code;
        taken += found == prefix;
        if (found != prefix && axis->why_not == NULL)
            axis->why_not =
                memory_format("request %zu found %zu of its %zu tokens in the cache; expected all", i, found, prefix);
    }
    if (taken == 0 && axis->why_not == NULL)
        axis->why_not = memory_format("no prompt is longer than a page of the cache, %zu tokens", page);
    axis->partial = taken == 0;
    return ERROR_NONE;
}

static enum error_code take_extend(struct take *take, struct error *err)
{
    struct invariance_axis *axis = &take->axes[INVARIANCE_EXTEND];
    size_t length = longest(take->plan);
    axis->again = take->axes[INVARIANCE_PREFILL].again; /* of the same requests */
    enum error_code code = ERROR_NONE;
    for (size_t rows = SHORTEST_EXTEND; code == ERROR_NONE && rows < length; rows *= 2)
        code = take_short(take, rows, err);
    if (code == ERROR_NONE)
        code = take_cached(take, err);
    axis->measured = code == ERROR_NONE;
    if (code == ERROR_NONE && axis->case_count == 0 && axis->why_not == NULL)
        axis->why_not = memory_copy("no prompt is longer than two tokens");
    return code;
}

/* ---- all ---- */

/* Requests to come, without those of the search for the first size. */
static uint64_t count_requests(const struct invariance_take_plan *plan)
{
    uint64_t batches = 0, total = 0;
    for (size_t size = 2; size / 2 < plan->most; size *= 2)
        batches++;
    for (size_t rows = SHORTEST_EXTEND, length = longest(plan); rows < length; rows *= 2)
        for (size_t i = 0; i < plan->most; i++)
            total += plan->prompts->items[i].length > rows;
    return total + 2 * batches + plan->most * 7;
}

/* A refusal in the middle would cost what was measured before. */
static enum error_code check_lengths(const struct endpoint *endpoint, const struct invariance_take_plan *plan,
                                     struct error *err)
{
    for (size_t i = 0; i < plan->most; i++) {
        enum error_code code = endpoint_takes(endpoint, plan->prompts->items[i].ids, plan->prompts->items[i].length,
                                              plan->new_tokens, err);
        if (code != ERROR_NONE)
            return error_prefix(err, "prompt %zu", i);
    }
    return ERROR_NONE;
}

enum error_code invariance_take(struct endpoint *endpoint, const struct invariance_take_plan *plan,
                                struct invariance_axis ret_axes[INVARIANCE_AXES], struct error *err)
{
    static enum error_code (*const steps[INVARIANCE_AXES])(struct take *, struct error *) = {
        [INVARIANCE_PREFILL] = take_prefill, [INVARIANCE_EXTEND] = take_extend, [INVARIANCE_DECODE] = take_decode};
    struct invariance_axis axes[INVARIANCE_AXES] = {0};
    struct take take = {.endpoint = endpoint, .plan = plan, .axes = axes, .total = count_requests(plan)};
    take.scored = memory_new(plan->most * sizeof take.scored[0]);
    enum error_code code = check_lengths(endpoint, plan, err);
    for (size_t id = 0; code == ERROR_NONE && id < INVARIANCE_AXES; id++) {
        take.what = invariance_axis_word((enum invariance_axis_id)id);
        code = steps[id](&take, err);
        if (code == ERROR_NONE)
            code = endpoint_check(endpoint, err);
        if (code != ERROR_NONE)
            error_prefix(err, "%s", take.what);
    }
    answers_free(take.scored, plan->most);
    for (size_t id = 0; id < INVARIANCE_AXES; id++) {
        if (code == ERROR_NONE)
            ret_axes[id] = axes[id];
        else
            invariance_axis_fini(&axes[id]);
    }
    return code;
}
