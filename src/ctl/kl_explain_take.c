#include "ctl/kl_explain_take.h"

#include "base/memory.h"
#include "base/number.h"
#include "ctl/kl_ask.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* ---- which request ---- */

enum error_code kl_explain_take_read_wish(const char *text, struct kl_explain_take_wish *ret_wish, struct error *err)
{
    struct kl_explain_take_wish wish = {.worst = strcmp(text, "worst") == 0};
    const char *colon = strchr(text, ':');
    int id = 0;
    while (colon != NULL && id < KL_PATHS) {
        const char *member = kl_path_member((enum kl_path_id)id);
        if (strlen(member) == (size_t)(colon - text) && strncmp(member, text, strlen(member)) == 0)
            break;
        id++;
    }
    if (!wish.worst && (colon == NULL || id == KL_PATHS))
        return error_set(err, ERROR_BAD_VALUE,
                         "--explain: '%.60s' is neither worst nor a path and a number as restore:3; paths are match, "
                         "match_alone, prefill_cache_hit, decode_cache_hit, restore",
                         text);
    wish.path = (enum kl_path_id)id;
    if (!wish.worst && number_parse("--explain", colon + 1, SIZE_MAX, &wish.request, err) != ERROR_NONE)
        return err->code;
    *ret_wish = wish;
    return ERROR_NONE;
}

/* Why a request that was named cannot be explained; NULL: it can. */
static char *why_nothing(const struct kl_path *path, const struct kl_explain_take_wish *wish)
{
    const char *member = kl_path_member(wish->path);
    if (!path->measured)
        return memory_format("%s was not measured: %s", member, path->why_not != NULL ? path->why_not : "no request");
    if (wish->request >= path->request_count)
        return memory_format("%s has no request %" PRIu64 ": its requests are %s:0 to %s:%zu", member, wish->request,
                             member, member, path->request_count - 1);
    const struct kl_request *request = &path->requests[wish->request];
    if (request->dropped != NULL)
        return memory_format("%s:%" PRIu64 " does not count: %s", member, wish->request, request->dropped);
    if (path->numbers[wish->request].beyond == 0)
        return memory_format("%s:%" PRIu64 " is clean", member, wish->request);
    return NULL;
}

/* Fills path and request, or `nothing`. */
static void choose(const struct kl_report *report, const struct kl_explain_take_wish *wish,
                   struct kl_explanation *explanation)
{
    explanation->asked = true;
    explanation->path = wish->path;
    explanation->request = (size_t)wish->request;
    if (report->reading.condition == KL_CONDITION_REFUSED)
        explanation->nothing = memory_copy("the reading refuses these numbers");
    else if (!wish->worst)
        explanation->nothing = why_nothing(&report->paths[wish->path], wish);
    else if (!kl_explain_worst(report->paths, &report->reading, &explanation->path, &explanation->request))
        explanation->nothing = memory_copy("no request is dirty");
}

/* ---- the case ---- */

static struct kl_explain_sequence whole_of(const struct kl_path *path, size_t number)
{
    const struct kl_request *request = &path->requests[number];
    size_t count = request->first + request->count;
    int64_t *ids = memory_new((count + 1) * sizeof ids[0]);
    memcpy(ids, request->context, request->first * sizeof ids[0]);
    if (request->count > 0)
        memcpy(ids + request->first, request->ids, request->count * sizeof ids[0]);
    return (struct kl_explain_sequence){ids, count, number};
}

/* What the cache gave; of match, whose decode has no other: what the prefill left to it. */
static size_t prefix_of(enum kl_path_id id, const struct kl_request *request)
{
    bool handed = id == KL_PATH_MATCH || id == KL_PATH_MATCH_ALONE || request->cached_tokens == 0;
    return handed ? request->first : request->cached_tokens;
}

/* The case and its arrays, freed by case_fini. */
static struct kl_explain_case case_of(const struct kl_report *report, struct kl_explanation *explanation)
{
    const struct kl_path *path = &report->paths[explanation->path];
    const struct kl_request *request = &path->requests[explanation->request];
    struct kl_explain_case about = {.own = whole_of(path, explanation->request),
                                    .prefix = prefix_of(explanation->path, request),
                                    .dirty = path->numbers[explanation->request].first_beyond,
                                    .server = kl_report_server(report)};
    struct kl_explain_sequence *others = memory_new((path->request_count + 1) * sizeof others[0]);
    for (size_t i = 0; i < path->request_count; i++)
        if (i != explanation->request)
            others[about.other_count++] = whole_of(path, i);
    about.others = others;
    explanation->wrong_is_a = explanation->path == KL_PATH_RESTORE;
    about.wrong = (explanation->wrong_is_a ? request->a : request->b) + (about.dirty - request->first);
    explanation->rid = memory_copy(request->rid);
    explanation->prefix = about.prefix;
    explanation->dirty = about.dirty;
    explanation->tokens = about.own.count - about.dirty;
    explanation->others = about.other_count;
    return about;
}

static void case_fini(struct kl_explain_case *about)
{
    for (size_t i = 0; i < about->other_count; i++)
        free((int64_t *)about->others[i].ids);
    free((struct kl_explain_sequence *)about->others);
    free((int64_t *)about->own.ids);
}

/* ---- the alterations ---- */

static enum error_code score(struct kl_ask *ask, const struct kl_explain_case *about, size_t alteration,
                             const struct kl_explain_prefill *prefills, size_t count, struct kl_explain_row *ret_row,
                             struct error *err)
{
    struct kl_ask_sequence *sequences = memory_new(count * sizeof sequences[0]);
    const double **logprobs = memory_new(count * sizeof logprobs[0]);
    struct generate_answers answers = {0};
    for (size_t i = 0; i < count; i++)
        sequences[i] = (struct kl_ask_sequence){prefills[i].ids, prefills[i].count, i};
    enum error_code code = kl_ask_scores(ask, kl_explain_name(alteration), sequences, count, &answers, err);
    for (size_t i = 0; code == ERROR_NONE && i < count; i++) {
        logprobs[i] = answers.items[i].input_logprobs;
        if (answers.items[i].cached_tokens > 0)
            code = error_set(err, ERROR_SERVER,
                             "%zu tokens of a fresh score came from the cache: somebody else uses "
                             "the server, or it takes prefixes where it never did",
                             answers.items[i].cached_tokens);
    }
    if (code == ERROR_NONE)
        kl_explain_measure(about, alteration, prefills, count, logprobs, ret_row);
    generate_answers_fini(&answers);
    free(logprobs);
    free(sequences);
    return code == ERROR_NONE ? code : error_prefix(err, "%s", kl_explain_name(alteration));
}

static enum error_code take_rows(struct kl_ask *ask, const struct kl_explain_case *about,
                                 struct kl_explanation *explanation, struct error *err)
{
    enum error_code code = ERROR_NONE;
    ask->total = kl_explain_alterations();
    explanation->rows = memory_new(ask->total * sizeof explanation->rows[0]);
    for (size_t i = 0; code == ERROR_NONE && i < kl_explain_alterations(); i++) {
        struct kl_explain_prefill *prefills;
        struct kl_explain_row *row = &explanation->rows[explanation->row_count++];
        size_t count;
        char *why_not;
        ask->done = i;
        *row = (struct kl_explain_row){.alteration = i, .other = SIZE_MAX};
        kl_explain_prefills(about, i, &prefills, &count, &why_not);
        if (why_not == NULL)
            code = score(ask, about, i, prefills, count, row, err);
        row->why_not = why_not;
        kl_explain_prefills_fini(prefills, count);
    }
    return code;
}

enum error_code kl_explain_take(struct endpoint *endpoint, const struct kl_report *report,
                                const struct kl_explain_take_wish *wish, struct kl_explanation *ret_explanation,
                                struct error *err)
{
    struct kl_explanation explanation = {0};
    struct kl_ask ask = {.endpoint = endpoint,
                         .temperature = report->plan->temperature,
                         .progress = report->plan->progress,
                         .context = report->plan->context};
    choose(report, wish, &explanation);
    if (explanation.nothing != NULL) {
        *ret_explanation = explanation;
        return ERROR_NONE;
    }
    struct kl_explain_case about = case_of(report, &explanation);
    enum error_code code = kl_ask_begin(&ask, err);
    if (code == ERROR_NONE)
        code = take_rows(&ask, &about, &explanation, err);
    if (code == ERROR_NONE)
        code = endpoint_check(ask.endpoint, err);
    case_fini(&about);
    if (code != ERROR_NONE) {
        kl_explanation_fini(&explanation);
        return error_prefix(err, "--explain");
    }
    kl_explain_conclude(&explanation, report->reading.condition == KL_CONDITION_1);
    *ret_explanation = explanation;
    return ERROR_NONE;
}
