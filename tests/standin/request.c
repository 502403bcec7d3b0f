/* request.c: see request.h. */
#include "request.h"

#include <stdlib.h>
#include <string.h>

#include "faults.h"
#include "locations.h"
#include "text.h"

enum { CACHE_SEQUENCES = 256, EXTRA_TOKEN = 1 };

/* ------------------------------------------------------------------ life */

static double number_or(const cJSON *message, const char *key, double otherwise)
{
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(message, key);
    return cJSON_IsNumber(item) ? item->valuedouble : otherwise;
}

struct request *request_new_internal(const char *rid, const int64_t *ids, size_t count, size_t wanted)
{
    struct request *request = text_allocate(sizeof *request);
    request->call = -1;
    request->rid = text_duplicate(rid);
    size_t room = count + wanted + 2;
    request->ids = text_allocate(room * sizeof ids[0]);
    request->locations = text_allocate(room * sizeof request->locations[0]);
    request->logprobs = text_allocate(room * sizeof request->logprobs[0]);
    if (count > 0)
        memcpy(request->ids, ids, count * sizeof ids[0]);
    request->prompt = request->length = count;
    request->wanted = wanted;
    request->matched = -1;
    request->slot = -1;
    request->ignore_eos = true;
    return request;
}

/* The fault: a tokenizer that puts its first token before what is scored. */
static bool has_extra_token(const cJSON *message)
{
    return faults_on(FAULTS_EXTRA_TOKEN) && number_or(message, "logprob_start_len", -1) >= 0 &&
           cJSON_IsTrue(cJSON_GetObjectItemCaseSensitive(message, "return_logprob"));
}

struct request *request_new(const cJSON *message, long call, int number)
{
    const cJSON *list = cJSON_GetObjectItemCaseSensitive(message, "ids"), *item;
    size_t count = (size_t)cJSON_GetArraySize(list);
    int64_t *ids = text_allocate((count + 2) * sizeof ids[0]);
    size_t i = 0;
    if (has_extra_token(message))
        ids[i++] = EXTRA_TOKEN;
    cJSON_ArrayForEach(item, list) ids[i++] = (int64_t)item->valuedouble;
    count = i;
    const char *rid = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(message, "rid"));
    struct request *request =
        request_new_internal(rid != NULL ? rid : "", ids, count, (size_t)number_or(message, "max_new_tokens", 128));
    free(ids);
    request->call = call;
    request->number = number;
    request->ignore_eos = cJSON_IsTrue(cJSON_GetObjectItemCaseSensitive(message, "ignore_eos"));
    request->return_logprob = cJSON_IsTrue(cJSON_GetObjectItemCaseSensitive(message, "return_logprob"));
    request->logprob_start = (long)number_or(message, "logprob_start_len", -1);
    cJSON_ArrayForEach(item, cJSON_GetObjectItemCaseSensitive(message, "stop_token_ids"))
    {
        if (request->stop_count < REQUEST_STOPS_MAX && cJSON_IsNumber(item))
            request->stops[request->stop_count++] = (int64_t)item->valuedouble;
    }
    const char *rejection = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(message, "rejection"));
    if (rejection != NULL) {
        /* It runs as a prompt of one token, id 0 (SGLang 0.5.23, live). */
        request->rejection = text_duplicate(rejection);
        request->ids[0] = 0;
        request->prompt = request->length = 1;
        request->wanted = 0;
        request->return_logprob = false;
    }
    return request;
}

void request_free(struct request *request)
{
    request_forget(request);
    free(request->rid);
    free(request->ids);
    free(request->locations);
    free(request->logprobs);
    free(request->rejection);
    free(request);
}

/* ------------------------------------------------------------------ slots */

static int64_t *slots;
static size_t slot_count;

void request_pool_init(size_t count)
{
    slots = text_allocate(count * sizeof slots[0]);
    slot_count = count;
    for (size_t i = 0; i < count; i++)
        slots[i] = (int64_t)i + 1;
}

void request_take_slots(struct request *const *requests, size_t count)
{
    size_t needed = 0, taken = 0;
    for (size_t i = 0; i < count; i++)
        needed += requests[i]->slot < 0;
    if (needed > slot_count)
        needed = slot_count;
    slot_count -= needed;
    for (size_t i = 0; i < count; i++)
        if (requests[i]->slot < 0 && taken < needed)
            requests[i]->slot = slots[slot_count + taken++];
}

void request_give_slot(struct request *request)
{
    if (request->slot >= 0)
        slots[slot_count++] = request->slot;
    request->slot = -1;
}

/* ------------------------------------------------------------------ radix cache */

static struct sequence {
    int64_t *ids;
    int64_t *locations;
    size_t length;
} cache[CACHE_SEQUENCES];
static size_t cache_next; /* the oldest */

static void drop_sequence(struct sequence *sequence)
{
    locations_give(sequence->locations, sequence->length);
    free(sequence->ids);
    free(sequence->locations);
    *sequence = (struct sequence){.length = 0};
}

void request_locate(struct request *request, size_t count, size_t limit)
{
    for (size_t i = 0; i < CACHE_SEQUENCES && locations_used() + count - request->located > limit; i++)
        drop_sequence(&cache[(cache_next + i) % CACHE_SEQUENCES]);
    while (request->located < count)
        request->locations[request->located++] = locations_take();
}

void request_forget(struct request *request)
{
    locations_give(request->locations, request->located);
    request->located = request->computed = 0;
}

/* Where a prefix of that length is wrong; beyond it where it is right. */
static size_t wrong_position(const struct request *request)
{
    size_t length = request->located;
    if (faults_on(FAULTS_STALE_PREFIX))
        return (size_t)faults_number(FAULTS_STALE_PREFIX);
    bool at_end = (faults_on(FAULTS_STALE_PAGE) && length % (size_t)faults_number(FAULTS_STALE_PAGE) == 0) ||
                  (faults_on(FAULTS_STALE_LAST) && length + 1 == request->prompt);
    return at_end ? length - 1 : SIZE_MAX;
}

static void put_location(struct request *request, size_t position, int64_t location)
{
    locations_share(&location, 1);
    locations_give(&request->locations[position], 1);
    request->locations[position] = location;
}

/* The fault: the whole prefix is that of a sequence that begins with another id. */
static void put_foreign(struct request *request, const struct sequence *right)
{
    const struct sequence *other = NULL;
    for (size_t i = 0; i < CACHE_SEQUENCES && other == NULL; i++)
        if (cache[i].length >= request->located && cache[i].ids[0] != right->ids[0])
            other = &cache[i];
    for (size_t i = 0; other != NULL && i < request->located; i++)
        put_location(request, i, other->locations[i]);
}

/* The fault: the tokens behind the last checkpoint before the end are not in the state; location 0 is an empty one. */
static void put_checkpoint(struct request *request)
{
    size_t interval = (size_t)faults_number(FAULTS_STALE_CHECKPOINT), length = request->located,
           missing = length - (length - 1) / interval * interval;
    for (size_t i = length; i-- > 0;)
        put_location(request, i, i >= missing ? request->locations[i - missing] : 0);
}

/* The fault: at one position the prefix is that of some other sequence, or nobody's. */
static void spoil_prefix(struct request *request, const struct sequence *right)
{
    size_t position = wrong_position(request);
    if (position >= request->located)
        return;
    int64_t wrong = locations_take();
    for (size_t i = 0; i < CACHE_SEQUENCES; i++) {
        if (&cache[i] == right || cache[i].length <= position || cache[i].ids[position] == right->ids[position])
            continue;
        locations_give(&wrong, 1);
        wrong = cache[i].locations[position];
        locations_share(&wrong, 1);
        break;
    }
    put_location(request, position, wrong);
    locations_give(&wrong, 1);
}

size_t request_cache_restore(struct request *request, size_t limit, size_t page)
{
    size_t longest = 0;
    const struct sequence *found = NULL;
    for (size_t i = 0; i < CACHE_SEQUENCES; i++) {
        size_t same = 0;
        while (same < cache[i].length && same < limit && cache[i].ids[same] == request->ids[same])
            same++;
        if (same > longest) {
            longest = same;
            found = &cache[i];
        }
    }
    longest -= longest % page;
    if (longest == 0)
        return 0;
    memcpy(request->locations, found->locations, longest * sizeof found->locations[0]);
    locations_share(request->locations, longest);
    request->located = longest;
    if (faults_on(FAULTS_FOREIGN_PREFIX))
        put_foreign(request, found);
    if (faults_on(FAULTS_STALE_CHECKPOINT))
        put_checkpoint(request);
    spoil_prefix(request, found);
    return longest;
}

static int64_t *copy_numbers(const int64_t *numbers, size_t count)
{
    return memcpy(text_allocate(count * sizeof numbers[0]), numbers, count * sizeof numbers[0]);
}

void request_cache_insert(const struct request *request)
{
    struct sequence *sequence = &cache[cache_next];
    drop_sequence(sequence);
    *sequence = (struct sequence){.ids = copy_numbers(request->ids, request->computed),
                                  .locations = copy_numbers(request->locations, request->computed),
                                  .length = request->computed};
    locations_share(sequence->locations, sequence->length);
    cache_next = (cache_next + 1) % CACHE_SEQUENCES;
}

void request_cache_clear(void)
{
    for (size_t i = 0; i < CACHE_SEQUENCES; i++)
        drop_sequence(&cache[i]);
}

/* ------------------------------------------------------------------ answer */

/* The first entry of the input has none, wherever it starts (SGLang 0.5.23, live). */
static void add_logprob(cJSON *list, const struct request *request, size_t at, bool none)
{
    size_t shown = faults_on(FAULTS_SHIFTED_LOGPROBS) && at + 1 < request->prompt ? at + 1 : at;
    cJSON *entry = cJSON_CreateArray();
    cJSON_AddItemToArray(entry, none ? cJSON_CreateNull() : cJSON_CreateNumber(request->logprobs[shown]));
    cJSON_AddItemToArray(entry, cJSON_CreateNumber((double)request->ids[at]));
    cJSON_AddItemToArray(entry, cJSON_CreateNull());
    cJSON_AddItemToArray(list, entry);
}

static bool is_null_by_fault(const struct request *request, size_t at)
{
    return faults_on(FAULTS_NULL_LOGPROB) && at == request->prompt / 2;
}

cJSON *request_answer(const struct request *request)
{
    cJSON *answer = cJSON_CreateObject();
    if (request->rejection != NULL) {
        cJSON_AddStringToObject(answer, "rejection", request->rejection);
        return answer;
    }
    cJSON *output = cJSON_AddArrayToObject(answer, "output_ids");
    for (size_t i = 0; i < request->produced; i++)
        cJSON_AddItemToArray(output, cJSON_CreateNumber((double)request->ids[request->prompt + i]));
    cJSON *reason = cJSON_AddObjectToObject(answer, "finish_reason");
    cJSON_AddStringToObject(reason, "type", request->matched >= 0 ? "stop" : "length");
    if (request->matched >= 0)
        cJSON_AddNumberToObject(reason, "matched", (double)request->matched);
    else
        cJSON_AddNumberToObject(reason, "length", (double)request->produced);
    cJSON_AddNumberToObject(answer, "prompt_tokens", (double)request->prompt);
    cJSON_AddNumberToObject(answer, "completion_tokens", (double)request->produced);
    cJSON_AddNumberToObject(answer, "cached_tokens", (double)request->cached);
    cJSON_AddNumberToObject(answer, "retractions", (double)request->retractions);
    if (request->return_logprob) {
        cJSON *input = cJSON_AddArrayToObject(answer, "input_token_logprobs");
        cJSON *generated = cJSON_AddArrayToObject(answer, "output_token_logprobs");
        for (size_t i = (size_t)request->logprob_start; request->logprob_start >= 0 && i < request->prompt; i++)
            add_logprob(input, request, i, i == (size_t)request->logprob_start || is_null_by_fault(request, i));
        for (size_t i = 0; i < request->produced; i++)
            add_logprob(generated, request, request->prompt + i, false);
    }
    return answer;
}
