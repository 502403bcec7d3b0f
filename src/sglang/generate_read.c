/* An answer of /generate held against its request. One entry of a list of logprobs is [logprob, id, text]; entry k of
 * input_token_logprobs belongs to prompt id logprob_start + k (facts/sglang.md 6.3). */
#include "base/memory.h"
#include "base/text.h"
#include "json/json.h"
#include "sglang/answers.h"
#include "sglang/generate.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* A list of objects of lists of lists. More levels are no answer of a server. */
static const struct json_limits limits = {SIZE_MAX, JSON_DEPTH, JSON_ANY_VALUES};

static enum error_code read_finish(const struct generate_request *request, const struct json *item,
                                   struct generate_answer *answer, struct error *err)
{
    const char *type = NULL, *message = "no reason given";
    char shown[400];
    enum error_code code = json_get_string(item, "meta_info.finish_reason.type", &type, err);
    if (code != ERROR_NONE)
        return code;
    (void)json_get_string(item, "meta_info.finish_reason.message", &message, NULL);
    if (strcmp(type, "abort") == 0)
        return error_set(err, ERROR_SERVER, "the server has aborted it: %s",
                         text_clean(message, strlen(message), shown, sizeof shown));
    bool is_fine = strcmp(type, "length") == 0 || (strcmp(type, "stop") == 0 && !request->ignore_eos);
    if (!is_fine)
        return error_set(err, ERROR_FORMAT, "it ended by '%s'; expected 'length'%s",
                         text_clean(type, strlen(type), shown, sizeof shown),
                         request->ignore_eos ? ", since ignore_eos was sent" : " or 'stop'");
    answer->finish = memory_copy(type);
    return ERROR_NONE;
}

static enum error_code read_counts(const struct generate_prompt *prompt, const struct json *item,
                                   struct generate_answer *answer, struct error *err)
{
    uint64_t prompt_tokens = 0, cached = 0, retractions = 0, older = 0;
    enum error_code code = json_get_u64(item, "meta_info.prompt_tokens", &prompt_tokens, err);
    if (code == ERROR_NONE)
        code = json_get_u64(item, "meta_info.cached_tokens", &cached, err);
    if (code == ERROR_NONE)
        code = json_optional_u64(item, "meta_info.num_retractions", 0, &retractions, err);
    if (code == ERROR_NONE) /* before 0.5.14 */
        code = json_optional_u64(item, "meta_info.total_retractions", 0, &older, err);
    if (code != ERROR_NONE)
        return code;
    if (prompt_tokens != prompt->length)
        return error_set(err, ERROR_FORMAT,
                         "prompt_tokens is %" PRIu64 "; expected %zu: the server has %s the prompt%s", prompt_tokens,
                         prompt->length, prompt_tokens < prompt->length ? "cut" : "added to",
                         prompt_tokens < prompt->length ? " (--allow-auto-truncate)" : "");
    if (cached > prompt_tokens)
        return error_set(err, ERROR_FORMAT, "cached_tokens is %" PRIu64 "; expected at most prompt_tokens, %" PRIu64,
                         cached, prompt_tokens);
    answer->prompt_tokens = (size_t)prompt_tokens;
    answer->cached_tokens = (size_t)cached;
    answer->retractions = (size_t)(retractions + older);
    return ERROR_NONE;
}

static enum error_code read_output(const struct generate_request *request, const struct json *item,
                                   struct generate_answer *answer, struct error *err)
{
    const struct json *ids = NULL;
    enum error_code code = json_get_array(item, "output_ids", &ids, err);
    if (code != ERROR_NONE)
        return code;
    size_t count = json_count(ids), k = 0;
    bool may_be_fewer = strcmp(answer->finish, "stop") == 0;
    if (count != request->new_tokens && !(may_be_fewer && count > 0 && count < request->new_tokens))
        return error_set(err, ERROR_FORMAT, "output_ids has %zu ids; expected %u%s", count, request->new_tokens,
                         count < request->new_tokens ? ": the answer was cut" : "");
    answer->output_ids = memory_resize(NULL, count + 1, sizeof *answer->output_ids);
    for (const struct json *id = json_first(ids); id != NULL; id = json_next(id), k++) {
        code = json_get_i64(id, "", &answer->output_ids[k], err);
        if (code != ERROR_NONE) {
            error_prefix(err, "output_ids.%zu", k);
            return code;
        }
        if (answer->output_ids[k] < 0 ||
            (request->vocabulary != 0 && (uint64_t)answer->output_ids[k] >= request->vocabulary))
            return error_set(err, ERROR_FORMAT, "output_ids.%zu is %" PRId64 "; expected an id below %" PRIu64, k,
                             answer->output_ids[k], request->vocabulary);
    }
    answer->output_count = count;
    return ERROR_NONE;
}

/* One [logprob, id, text]; null becomes NaN. */
static enum error_code read_entry(const struct json *entry, double *logprob, int64_t *id, struct error *err)
{
    const struct json *first = json_first(entry);
    if (json_type(entry) != JSON_ARRAY || json_count(entry) < 2)
        return error_set(err, ERROR_FORMAT, "expected [logprob, id, text]");
    *logprob = NAN;
    if (json_type(first) != JSON_NULL) {
        enum error_code code = json_get_double(first, "", logprob, err);
        if (code != ERROR_NONE)
            return code;
    }
    return json_get_i64(json_next(first), "", id, err);
}

/* What was asked for of one list: the ids that it must name, and whether its first logprob is null. */
struct scored {
    const char *name;
    const int64_t *ids;
    size_t count;
    bool first_is_null;
    uint64_t vocabulary;
};

/* The last id of the vocabulary comes back as 0. */
static bool is_echo(const struct scored *scored, size_t k, int64_t id)
{
    int64_t sent = scored->ids[k];
    bool may_be_last = scored->vocabulary == 0 || (uint64_t)sent + 1 == scored->vocabulary;
    return id == sent || (id == 0 && may_be_last);
}

static enum error_code read_scores(const struct json *item, const struct scored *scored, double *logprobs,
                                   struct error *err)
{
    const struct json *list = NULL;
    char path[64] = "meta_info.";
    text_copy(path + strlen(path), sizeof path - strlen(path), scored->name);
    if (json_find(item, path) == NULL)
        return error_set(err, ERROR_FORMAT,
                         "no %s, although return_logprob was sent; nothing can be measured without logprobs: ask the "
                         "server itself, without a layer in between that drops them",
                         path);
    enum error_code code = json_get_array(item, path, &list, err);
    if (code != ERROR_NONE)
        return code;
    if (json_count(list) != scored->count)
        return error_set(err, ERROR_FORMAT, "%s has %zu entries; expected %zu", scored->name, json_count(list),
                         scored->count);
    size_t k = 0;
    for (const struct json *entry = json_first(list); entry != NULL; entry = json_next(entry), k++) {
        int64_t id = 0;
        code = read_entry(entry, &logprobs[k], &id, err);
        if (code != ERROR_NONE) {
            error_prefix(err, "%s.%zu", scored->name, k);
            return code;
        }
        if (!is_echo(scored, k, id))
            return error_set(err, ERROR_FORMAT, "%s.%zu is of id %" PRId64 "; expected %" PRId64 ", the one sent there",
                             scored->name, k, id, scored->ids[k]);
        bool null_here = scored->first_is_null && k == 0;
        if (isnan(logprobs[k]) != null_here)
            return error_set(err, ERROR_FORMAT, "%s.%zu has %s", scored->name, k,
                             null_here ? "a logprob; expected null, since nothing stands before it"
                                       : "no logprob (null): the server has computed a NaN or an infinity there");
    }
    return ERROR_NONE;
}

static enum error_code read_logprobs(const struct generate_request *request, const struct generate_prompt *prompt,
                                     const struct json *item, struct generate_answer *answer, struct error *err)
{
    enum error_code code = ERROR_NONE;
    answer->output_logprobs = memory_resize(NULL, answer->output_count + 1, sizeof *answer->output_logprobs);
    if (request->new_tokens > 0) { /* of a scoring request it may hold one entry, or none */
        const struct scored output = {.name = "output_token_logprobs",
                                      .ids = answer->output_ids,
                                      .count = answer->output_count,
                                      .vocabulary = request->vocabulary};
        code = read_scores(item, &output, answer->output_logprobs, err);
    }
    int64_t wanted =
        request->logprob_starts != NULL ? request->logprob_starts[prompt - request->prompts] : request->logprob_start;
    if (code != ERROR_NONE || wanted < 0)
        return code;
    size_t start = (size_t)wanted;
    if (start >= prompt->length)
        return error_set(err, ERROR_BAD_VALUE, "logprob_start is %zu; expected less than the prompt's %zu ids", start,
                         prompt->length);
    answer->input_logprobs = memory_resize(NULL, prompt->length, sizeof *answer->input_logprobs);
    for (size_t p = 0; p < start; p++)
        answer->input_logprobs[p] = NAN;
    const struct scored input = {.name = "input_token_logprobs",
                                 .ids = prompt->ids + start,
                                 .count = prompt->length - start,
                                 .first_is_null = true,
                                 .vocabulary = request->vocabulary};
    return read_scores(item, &input, answer->input_logprobs + start, err);
}

static enum error_code read_item(const struct generate_request *request, const struct generate_prompt *prompt,
                                 const struct json *item, struct generate_answer *answer, struct error *err)
{
    const char *rid = NULL, *weights = NULL, *text = answers_error_text(item);
    char shown[400];
    if (text != NULL)
        return error_set(err, ERROR_SERVER, "%s", text_clean(text, strlen(text), shown, sizeof shown));
    enum error_code code = json_get_string(item, "meta_info.id", &rid, err);
    if (code != ERROR_NONE)
        return code;
    answer->rid = memory_copy(rid);
    if (prompt->rid != NULL && strcmp(rid, prompt->rid) != 0)
        return error_set(err, ERROR_FORMAT, "the answer is that of request %s",
                         text_clean(rid, strlen(rid), shown, sizeof shown));
    code = read_finish(request, item, answer, err);
    if (code == ERROR_NONE)
        code = read_counts(prompt, item, answer, err);
    if (code == ERROR_NONE)
        code = read_output(request, item, answer, err);
    if (code == ERROR_NONE)
        code = json_optional_string(item, "meta_info.weight_version", NULL, &weights, err);
    if (code == ERROR_NONE && weights != NULL)
        answer->weight_version = memory_copy(weights);
    if (code == ERROR_NONE && request->logprobs)
        code = read_logprobs(request, prompt, item, answer, err);
    return code;
}

static enum error_code read_all(const struct generate_request *request, const struct json *body,
                                struct generate_answers *answers, struct error *err)
{
    size_t i = 0;
    answers->count = request->count;
    answers->items = memory_new((request->count + 1) * sizeof *answers->items);
    for (const struct json *item = json_first(body); item != NULL; item = json_next(item), i++) {
        enum error_code code = read_item(request, &request->prompts[i], item, &answers->items[i], err);
        if (code != ERROR_NONE) {
            error_prefix(err, "generate: request %zu%s%s", i, request->prompts[i].rid != NULL ? ", " : "",
                         request->prompts[i].rid != NULL ? request->prompts[i].rid : "");
            return code;
        }
    }
    return ERROR_NONE;
}

enum error_code generate_read(const struct generate_request *request, int http_status, const char *body, size_t length,
                              struct generate_answers *ret_answers, struct error *err)
{
    struct json *json = NULL;
    struct generate_answers answers = {0};
    char shown[400];
    enum error_code code = json_parse(body, length, limits, &json, err);
    const char *text = code == ERROR_NONE ? answers_error_text(json) : NULL;
    if (text != NULL)
        code = error_set(err, ERROR_SERVER, "generate: HTTP %d: %s", http_status,
                         text_clean(text, strlen(text), shown, sizeof shown));
    else if (http_status != 200)
        code = error_set(err, ERROR_SERVER, "generate: HTTP %d: %s", http_status,
                         text_clean(body, length < 300 ? length : 300, shown, sizeof shown));
    else if (code != ERROR_NONE)
        error_prefix(err, "generate: HTTP 200, but the body cannot be read");
    else if (json_type(json) != JSON_ARRAY)
        code = error_set(err, ERROR_FORMAT, "generate: the answer is no list; expected one entry for each prompt");
    else if (json_count(json) != request->count)
        code = error_set(err, ERROR_FORMAT, "generate: %zu answers; expected %zu, one for each prompt",
                         json_count(json), request->count);
    else
        code = read_all(request, json, &answers, err);
    json_free(json);
    if (code == ERROR_NONE)
        *ret_answers = answers;
    else
        generate_answers_fini(&answers);
    return code;
}
