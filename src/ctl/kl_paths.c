#include "ctl/kl_paths.h"

#include "base/memory.h"
#include "ctl/kl_ask.h"
#include "sglang/kl_helper.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Sequences of ids, one for each prompt. */
struct batch {
    struct kl_ask_sequence *items; /* numbered by the prompt */
    size_t count;
};

struct walk {
    struct endpoint *endpoint;
    const struct kl_paths_plan *plan;
    struct kl_ask ask;
    struct batch whole; /* prompt + output of match, once they are known */
};

/* ---- batches ---- */

static void batch_add(struct batch *batch, size_t number, const int64_t *ids, size_t length)
{
    batch->items = memory_resize(batch->items, batch->count + 1, sizeof batch->items[0]);
    int64_t *copy = memory_new((length + 1) * sizeof copy[0]);
    memcpy(copy, ids, length * sizeof copy[0]);
    batch->items[batch->count++] = (struct kl_ask_sequence){copy, length, number};
}

static void batch_extend(struct kl_ask_sequence *sequence, const int64_t *ids, size_t length)
{
    sequence->ids = memory_resize(sequence->ids, sequence->length + length + 1, sizeof sequence->ids[0]);
    memcpy(sequence->ids + sequence->length, ids, length * sizeof ids[0]);
    sequence->length += length;
}

static void batch_fini(struct batch *batch)
{
    for (size_t i = 0; i < batch->count; i++)
        free(batch->items[i].ids);
    free(batch->items);
    *batch = (struct batch){0};
}

static struct batch prompts_of(const struct walk *walk, size_t from, size_t count)
{
    struct batch batch = {0};
    const struct prompts *prompts = walk->plan->prompts;
    for (size_t i = from; i < from + count; i++)
        batch_add(&batch, i, prompts->items[i].ids, prompts->items[i].length);
    return batch;
}

/* Each sequence with its answer behind it. */
static struct batch with_answers(const struct batch *batch, const struct generate_answers *answers)
{
    struct batch whole = {0};
    for (size_t i = 0; i < batch->count; i++) {
        const struct generate_answer *answer = &answers->items[i];
        batch_add(&whole, batch->items[i].number, batch->items[i].ids, batch->items[i].length);
        batch_extend(&whole.items[i], answer->output_ids, answer->output_count);
    }
    return whole;
}

/* ---- requests ---- */

static enum error_code ask(struct walk *walk, const char *step, const struct batch *batch,
                           const struct generate_request *like, struct generate_answers *ret_answers, struct error *err)
{
    return kl_ask(&walk->ask, step, batch->items, batch->count, like, ret_answers, err);
}

static enum error_code decode(struct walk *walk, const char *step, const struct batch *batch,
                              struct generate_answers *ret_answers, struct error *err)
{
    const struct generate_request like = {.new_tokens = walk->plan->new_tokens, .logprobs = true, .logprob_start = -1};
    return ask(walk, step, batch, &like, ret_answers, err);
}

static enum error_code score_fresh(struct walk *walk, const char *step, const struct batch *batch,
                                   struct generate_answers *ret_answers, struct error *err)
{
    return kl_ask_scores(&walk->ask, step, batch->items, batch->count, ret_answers, err);
}

/* ---- a path's requests ---- */

static void keep_context(struct kl_request *request, const int64_t *ids)
{
    request->context = memory_new((request->first + 1) * sizeof ids[0]);
    memcpy(request->context, ids, request->first * sizeof ids[0]);
}

static struct kl_request *add_request(struct kl_path *path, const struct kl_ask_sequence *sequence,
                                      const struct generate_answer *answer)
{
    path->requests = memory_resize(path->requests, path->request_count + 1, sizeof path->requests[0]);
    struct kl_request *request = &path->requests[path->request_count++];
    *request = (struct kl_request){.rid = memory_copy(answer->rid),
                                   .prompt_length = sequence->length,
                                   .cached_tokens = answer->cached_tokens,
                                   .first = sequence->length};
    keep_context(request, sequence->ids);
    return request;
}

static void fill(struct kl_request *request, const int64_t *ids, const double *a, const double *b, size_t count)
{
    request->count = count;
    request->ids = memory_new((count + 1) * sizeof request->ids[0]);
    request->a = memory_new((count + 1) * sizeof request->a[0]);
    request->b = memory_new((count + 1) * sizeof request->b[0]);
    memcpy(request->ids, ids, count * sizeof ids[0]);
    memcpy(request->a, a, count * sizeof a[0]);
    memcpy(request->b, b, count * sizeof b[0]);
}

static void drop(struct kl_request *request, const char *why)
{
    if (why != NULL && request->dropped == NULL)
        request->dropped = memory_copy(why);
}

/* Whether enough of the requests have hit the cache; else the path says so. */
static bool enough_hits(struct kl_path *path)
{
    size_t kept = 0;
    for (size_t i = 0; i < path->request_count; i++)
        kept += path->requests[i].dropped == NULL;
    path->measured = kl_helper_enough(kept, path->request_count);
    if (!path->measured)
        path->why_not =
            memory_format("%zu of %zu requests hit the cache; more than half are needed", kept, path->request_count);
    return path->measured;
}

/* Scores what was kept of a decode and fills the requests, the last batch->count of the path. */
static enum error_code score_kept(struct walk *walk, const char *step, const struct batch *batch,
                                  const struct generate_answers *decoded, struct kl_path *path, struct error *err)
{
    struct kl_request *requests = path->requests + path->request_count - batch->count;
    struct batch whole = with_answers(batch, decoded), kept = {0};
    struct generate_answers scores = {0};
    for (size_t i = 0; i < batch->count; i++)
        if (requests[i].dropped == NULL)
            batch_add(&kept, whole.items[i].number, whole.items[i].ids, whole.items[i].length);
    enum error_code code = score_fresh(walk, step, &kept, &scores, err);
    for (size_t i = 0, k = 0; code == ERROR_NONE && i < batch->count; i++) {
        const struct generate_answer *answer = &decoded->items[i];
        if (requests[i].dropped != NULL)
            continue;
        const struct generate_answer *score = &scores.items[k++];
        fill(&requests[i], answer->output_ids, score->input_logprobs + requests[i].first, answer->output_logprobs,
             answer->output_count);
        if (score->cached_tokens > 0)
            drop(&requests[i], "its score was taken from the cache");
    }
    generate_answers_fini(&scores);
    batch_fini(&kept);
    batch_fini(&whole);
    return code;
}

/* ---- the paths ---- */

/* Prompts `from` to `from + count`: on an empty cache, decode and score. */
static enum error_code match(struct walk *walk, const char *const steps[2], size_t from, size_t count,
                             struct kl_path *path, struct batch *ret_whole, struct error *err)
{
    struct batch prompts = prompts_of(walk, from, count);
    struct generate_answers decoded = {0};
    enum error_code code = endpoint_flush(walk->endpoint, err);
    if (code == ERROR_NONE)
        code = decode(walk, steps[0], &prompts, &decoded, err);
    for (size_t i = 0; code == ERROR_NONE && i < count; i++)
        add_request(path, &prompts.items[i], &decoded.items[i]);
    if (code == ERROR_NONE)
        code = score_kept(walk, steps[1], &prompts, &decoded, path, err);
    if (code == ERROR_NONE && ret_whole != NULL)
        *ret_whole = with_answers(&prompts, &decoded);
    generate_answers_fini(&decoded);
    batch_fini(&prompts);
    path->measured = code == ERROR_NONE;
    return code;
}

static enum error_code take_match(struct walk *walk, struct kl_path *path, struct error *err)
{
    static const char *const steps[] = {"match-decode", "match-score"};
    return match(walk, steps, 0, walk->plan->prompts->count, path, &walk->whole, err);
}

static enum error_code take_match_alone(struct walk *walk, struct kl_path *path, struct error *err)
{
    static const char *const steps[] = {"alone-decode", "alone-score"};
    enum error_code code = ERROR_NONE;
    for (size_t i = 0; code == ERROR_NONE && i < walk->plan->prompts->count; i++)
        code = match(walk, steps, i, 1, path, NULL, err);
    return code;
}

static enum error_code take_prefill_cache_hit(struct walk *walk, struct kl_path *path, struct error *err)
{
    struct batch prompts = prompts_of(walk, 0, walk->plan->prompts->count);
    struct generate_answers filled = {0}, decoded = {0};
    enum error_code code = endpoint_flush(walk->endpoint, err);
    if (code == ERROR_NONE)
        code = ask(walk, "prefill-hit-fill", &prompts, &(struct generate_request){0}, &filled, err);
    if (code == ERROR_NONE)
        code = decode(walk, "prefill-hit-decode", &prompts, &decoded, err);
    for (size_t i = 0; code == ERROR_NONE && i < prompts.count; i++)
        drop(add_request(path, &prompts.items[i], &decoded.items[i]),
             kl_helper_prefill_miss(decoded.items[i].cached_tokens));
    if (code == ERROR_NONE && enough_hits(path))
        code = score_kept(walk, "prefill-hit-score", &prompts, &decoded, path, err);
    generate_answers_fini(&filled);
    generate_answers_fini(&decoded);
    batch_fini(&prompts);
    return code;
}

static enum error_code second_turn(struct walk *walk, const struct batch *turn, struct kl_path *path, struct error *err)
{
    struct generate_answers decoded = {0};
    const struct prompts *prompts = walk->plan->prompts;
    enum error_code code = decode(walk, "decode-hit-second", turn, &decoded, err);
    for (size_t i = 0; code == ERROR_NONE && i < turn->count; i++)
        drop(add_request(path, &turn->items[i], &decoded.items[i]),
             kl_helper_decode_miss(decoded.items[i].cached_tokens, prompts->items[i].length));
    if (code == ERROR_NONE && enough_hits(path))
        code = score_kept(walk, "decode-hit-score", turn, &decoded, path, err);
    generate_answers_fini(&decoded);
    return code;
}

static enum error_code take_decode_cache_hit(struct walk *walk, struct kl_path *path, struct error *err)
{
    struct batch prompts = prompts_of(walk, 0, walk->plan->prompts->count), turn = {0};
    struct generate_answers decoded = {0};
    enum error_code code = endpoint_flush(walk->endpoint, err);
    if (code == ERROR_NONE)
        code = decode(walk, "decode-hit-first", &prompts, &decoded, err);
    if (code == ERROR_NONE) {
        turn = with_answers(&prompts, &decoded);
        for (size_t i = 0; i < turn.count; i++)
            batch_extend(&turn.items[i], walk->plan->comma, walk->plan->comma_count);
        code = second_turn(walk, &turn, path, err);
    }
    generate_answers_fini(&decoded);
    batch_fini(&turn);
    batch_fini(&prompts);
    return code;
}

/* Sequences of prompt and output; where match was not taken, they are decoded for this alone. */
static enum error_code need_whole(struct walk *walk, struct error *err)
{
    if (walk->whole.count > 0)
        return ERROR_NONE;
    struct batch prompts = prompts_of(walk, 0, walk->plan->prompts->count);
    struct generate_answers decoded = {0};
    enum error_code code = endpoint_flush(walk->endpoint, err);
    if (code == ERROR_NONE)
        code = decode(walk, "restore-decode", &prompts, &decoded, err);
    if (code == ERROR_NONE)
        walk->whole = with_answers(&prompts, &decoded);
    generate_answers_fini(&decoded);
    batch_fini(&prompts);
    return code;
}

static void fill_restored(const struct walk *walk, const struct generate_answers *fresh,
                          const struct generate_answers *again, struct kl_path *path)
{
    for (size_t i = 0; i < walk->whole.count; i++) {
        const struct kl_ask_sequence *sequence = &walk->whole.items[i];
        size_t first = walk->plan->prompts->items[i].length;
        struct kl_request *request = add_request(path, sequence, &again->items[i]);
        request->prompt_length = request->first = first;
        drop(request, kl_helper_prefill_miss(again->items[i].cached_tokens));
        drop(request, fresh->items[i].cached_tokens > 0 ? "its fresh score was taken from the cache" : NULL);
        fill(request, sequence->ids + first, again->items[i].input_logprobs + first,
             fresh->items[i].input_logprobs + first, sequence->length - first);
    }
}

/* The server restores at most as many tokens as lie before the first logprob that is wanted, and that first one is
 * none: so from one before the end of the prompt on. */
static enum error_code take_restore(struct walk *walk, struct kl_path *path, struct error *err)
{
    struct generate_answers fresh = {0}, again = {0};
    enum error_code code = need_whole(walk, err);
    if (code == ERROR_NONE)
        code = score_fresh(walk, "restore-fresh", &walk->whole, &fresh, err);
    int64_t *starts = memory_new((walk->whole.count + 1) * sizeof starts[0]);
    for (size_t i = 0; i < walk->whole.count; i++)
        starts[i] = (int64_t)walk->plan->prompts->items[i].length - 1;
    const struct generate_request like = {.logprobs = true, .logprob_starts = starts};
    if (code == ERROR_NONE)
        code = ask(walk, "restore-again", &walk->whole, &like, &again, err);
    if (code == ERROR_NONE) {
        fill_restored(walk, &fresh, &again, path);
        enough_hits(path);
    }
    free(starts);
    generate_answers_fini(&fresh);
    generate_answers_fini(&again);
    return code;
}

/* ---- all of them ---- */

static const struct {
    enum error_code (*take)(struct walk *walk, struct kl_path *path, struct error *err);
    bool needs_cache;
    unsigned steps; /* requests for each prompt */
} ways[KL_PATHS] = {
    [KL_PATH_MATCH] = {take_match, false, 2},
    [KL_PATH_MATCH_ALONE] = {take_match_alone, false, 2},
    [KL_PATH_PREFILL_CACHE_HIT] = {take_prefill_cache_hit, true, 3},
    [KL_PATH_DECODE_CACHE_HIT] = {take_decode_cache_hit, true, 3},
    [KL_PATH_RESTORE] = {take_restore, true, 2},
};

static enum error_code take(struct walk *walk, enum kl_path_id id, struct kl_path *path, struct error *err)
{
    if (!walk->plan->wanted[id]) {
        path->why_not = memory_copy("not asked for");
        return ERROR_NONE;
    }
    if (ways[id].needs_cache && !walk->endpoint->server.radix_cache) {
        path->why_not = memory_copy("the radix cache is off");
        return ERROR_NONE;
    }
    enum error_code code = ways[id].take(walk, path, err);
    if (code == ERROR_NONE)
        code = endpoint_check(walk->endpoint, err);
    return code == ERROR_NONE ? code : error_prefix(err, "%s", kl_path_word(id));
}

/* Whether all that the paths send fits: a refusal in the middle would cost what was measured before. */
static enum error_code check_lengths(const struct walk *walk, struct error *err)
{
    const struct kl_paths_plan *plan = walk->plan;
    bool turns = plan->wanted[KL_PATH_DECODE_CACHE_HIT] && walk->endpoint->server.radix_cache;
    for (size_t i = 0; i < plan->prompts->count; i++) {
        size_t length = plan->prompts->items[i].length, first = length + plan->new_tokens,
               second = first + plan->comma_count;
        enum error_code code =
            endpoint_takes(walk->endpoint, plan->prompts->items[i].ids, length, plan->new_tokens, err);
        if (code == ERROR_NONE)
            code = endpoint_takes(walk->endpoint, NULL, first, 0, err);
        if (code == ERROR_NONE && turns)
            code = endpoint_takes(walk->endpoint, NULL, second, plan->new_tokens, err);
        if (code == ERROR_NONE && turns)
            code = endpoint_takes(walk->endpoint, NULL, second + plan->new_tokens, 0, err);
        if (code != ERROR_NONE)
            return error_prefix(err, "prompt %zu of %zu ids, with what is decoded after it", i, length);
    }
    return ERROR_NONE;
}

enum error_code kl_paths_take(struct endpoint *endpoint, const struct kl_paths_plan *plan,
                              struct kl_path ret_paths[KL_PATHS], struct error *err)
{
    struct walk walk = {.endpoint = endpoint,
                        .plan = plan,
                        .ask = {.endpoint = endpoint,
                                .temperature = plan->temperature,
                                .progress = plan->progress,
                                .context = plan->context}};
    struct kl_path paths[KL_PATHS] = {0};
    enum error_code code = check_lengths(&walk, err);
    if (code == ERROR_NONE)
        code = kl_ask_begin(&walk.ask, err);
    for (int id = 0; id < KL_PATHS; id++)
        if (plan->wanted[id] && (!ways[id].needs_cache || endpoint->server.radix_cache))
            walk.ask.total += ways[id].steps * plan->prompts->count;
    for (int id = 0; code == ERROR_NONE && id < KL_PATHS; id++)
        code = take(&walk, (enum kl_path_id)id, &paths[id], err);
    batch_fini(&walk.whole);
    for (int id = 0; id < KL_PATHS; id++) {
        if (code == ERROR_NONE)
            kl_measure(&paths[id]);
        else
            kl_path_fini(&paths[id]);
    }
    if (code == ERROR_NONE)
        memcpy(ret_paths, paths, sizeof paths);
    return code;
}
