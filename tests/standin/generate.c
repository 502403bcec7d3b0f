/* generate.c: see generate.h. Messages and answers: SGLang 0.5.23, live. */
#include "generate.h"

#include <cjson/cJSON.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/random.h>
#include <time.h>

#include "faults.h"
#include "knobs.h"
#include "log.h"
#include "routes.h"
#include "server.h"
#include "text.h"
#include "version.h"

struct job {
    cJSON *body;
    bool single;     /* one object as answer, not an array */
    cJSON *requests; /* for the scheduler */
    double begun;
    int client_fd;
    struct text refusal; /* not empty: 400 with this text */
};

/* ------------------------------------------------------------------ errors */

static void refuse(struct http_response *response, const char *message)
{
    log_line("[http_server] Error: %s", message);
    cJSON *json = cJSON_CreateObject();
    cJSON *error = cJSON_AddObjectToObject(json, "error");
    cJSON_AddStringToObject(error, "message", message);
    routes_json(response, 400, json);
}

/* The form that a failed validation of the body has. */
static void refuse_body(struct http_response *response, const char *detail)
{
    struct text message;
    text_init(&message);
    text_format(&message, "1 validation error:\n  %s", detail);
    cJSON *json = cJSON_CreateObject();
    cJSON_AddStringToObject(json, "object", "error");
    cJSON_AddStringToObject(json, "message", message.data);
    cJSON_AddStringToObject(json, "type", "Bad Request");
    cJSON_AddNullToObject(json, "param");
    cJSON_AddNumberToObject(json, "code", 400);
    text_fini(&message);
    routes_json(response, 400, json);
}

/* ------------------------------------------------------------------ checks */

static void random_rid(char rid[33])
{
    unsigned char bytes[16];
    if (getrandom(bytes, sizeof bytes, 0) != (ssize_t)sizeof bytes)
        memset(bytes, 7, sizeof bytes);
    for (size_t i = 0; i < sizeof bytes; i++)
        snprintf(rid + 2 * i, 3, "%02x", bytes[i]);
}

/* The stand-in has no tokenizer: one token a byte. */
static cJSON *tokens_of_text(const char *text)
{
    cJSON *ids = cJSON_CreateArray();
    size_t room = server_model()->vocabulary - 3;
    for (const unsigned char *c = (const unsigned char *)text; *c != '\0'; c++)
        cJSON_AddItemToArray(ids, cJSON_CreateNumber((double)(3 + *c % room)));
    return ids;
}

static bool is_id_list(const cJSON *item)
{
    const cJSON *id;
    if (!cJSON_IsArray(item))
        return false;
    cJSON_ArrayForEach(id, item)
    {
        if (!cJSON_IsNumber(id))
            return false;
    }
    return true;
}

/* The prompts as a list of lists, owned by the caller; NULL after a refusal. */
static cJSON *prompts_of(struct job *job)
{
    const cJSON *ids = cJSON_GetObjectItemCaseSensitive(job->body, "input_ids"), *item;
    const cJSON *text = cJSON_GetObjectItemCaseSensitive(job->body, "text");
    cJSON *prompts = cJSON_CreateArray();
    job->single = true;
    if (cJSON_IsArray(ids)) {
        job->single = !cJSON_IsArray(ids->child);
        if (cJSON_GetArraySize(ids) == 0)
            text_string(&job->refusal, "input_ids cannot be empty.");
        else if (job->single)
            cJSON_AddItemToArray(prompts, cJSON_Duplicate(ids, true));
        else
            cJSON_ArrayForEach(item, ids) cJSON_AddItemToArray(prompts, cJSON_Duplicate(item, true));
    } else if (text == NULL || cJSON_IsNull(text)) {
        text_string(&job->refusal, "Either text, input_ids or input_embeds should be provided.");
    } else if (arguments_given("--skip-tokenizer-init", NULL)) {
        text_string(&job->refusal, "The engine initialized with skip_tokenizer_init=True cannot accept text prompts. "
                                   "Please provide input_ids or re-initialize the engine with "
                                   "skip_tokenizer_init=False.");
    } else if (cJSON_IsArray(text)) {
        job->single = false;
        cJSON_ArrayForEach(item, text)
            cJSON_AddItemToArray(prompts, tokens_of_text(cJSON_IsString(item) ? item->valuestring : ""));
    } else {
        cJSON_AddItemToArray(prompts, tokens_of_text(cJSON_IsString(text) ? text->valuestring : ""));
    }
    return prompts;
}

static double number_in(const cJSON *object, const char *key, double otherwise)
{
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(object, key);
    return cJSON_IsNumber(item) ? item->valuedouble : otherwise;
}

/* A value that is given once for all prompts, or as a list with one for each. */
static const cJSON *for_prompt(const cJSON *body, const char *key, int number)
{
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(body, key);
    return cJSON_IsArray(item) ? cJSON_GetArrayItem(item, number) : item;
}

static void add_rid(const struct job *job, cJSON *request, int number)
{
    const cJSON *given = cJSON_GetObjectItemCaseSensitive(job->body, "rid");
    char rid[512];
    if (cJSON_IsArray(given))
        given = cJSON_GetArrayItem(given, number);
    else if (cJSON_IsString(given) && !job->single) {
        snprintf(rid, sizeof rid, "%.490s_%d", given->valuestring, number);
        cJSON_AddStringToObject(request, "rid", rid);
        return;
    }
    if (!cJSON_IsString(given)) {
        random_rid(rid);
        cJSON_AddStringToObject(request, "rid", rid);
        return;
    }
    cJSON_AddStringToObject(request, "rid", given->valuestring);
}

/* Rejected before the scheduler: no pass. Rejected by the scheduler (`rejection`): a pass over one token. */
static void check_lengths(struct job *job, cJSON *request, size_t tokens, double wanted)
{
    size_t context = server_model()->context, limit = context - 1;
    if (server_arguments()->max_total_tokens - 1 < limit)
        limit = server_arguments()->max_total_tokens - 1;
    limit -= 5;
    double start = number_in(request, "logprob_start_len", -1);
    char rejection[256];
    const char *backend = "";
    arguments_given("--disaggregation-transfer-backend", &backend);
    if (strcmp(server_arguments()->role, "null") != 0 && strcmp(backend, "fake") != 0 &&
        !cJSON_IsNumber(cJSON_GetObjectItemCaseSensitive(job->body, "bootstrap_room"))) {
        text_format(&job->refusal,
                    "Invalid request: Disaggregated request received without bootstrap room id. req.rid='%s'",
                    cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(request, "rid")));
    } else if (tokens > context) {
        text_format(&job->refusal, "The input (%zu tokens) is longer than the model's context length (%zu tokens).",
                    tokens, context);
    } else if ((double)tokens + wanted > (double)context &&
               cJSON_HasObjectItem(cJSON_GetObjectItemCaseSensitive(job->body, "sampling_params"), "max_new_tokens")) {
        text_format(&job->refusal,
                    "Requested token count exceeds the model's maximum context length of %zu tokens. You requested a "
                    "total of %.0f tokens: %zu tokens from the input messages and %.0f tokens for the completion. "
                    "Please reduce the number of tokens in the input messages or the completion to fit within the "
                    "limit.",
                    context, (double)tokens + wanted, tokens, wanted);
    } else if (tokens > limit) {
        snprintf(rejection, sizeof rejection,
                 "Input length (%zu tokens) exceeds the maximum allowed length (%zu tokens). Use a shorter input or "
                 "enable --allow-auto-truncate.",
                 tokens, limit);
        cJSON_AddStringToObject(request, "rejection", rejection);
    } else if (start > (double)tokens && cJSON_IsTrue(cJSON_GetObjectItemCaseSensitive(request, "return_logprob"))) {
        snprintf(rejection, sizeof rejection,
                 "req.logprob_start_len=%.0f is higher than the number of input tokens len(req.origin_input_ids)=%zu. "
                 "Please use a smaller logprob_start_len.",
                 start, tokens);
        cJSON_AddStringToObject(request, "rejection", rejection);
    }
}

static void add_request(struct job *job, const cJSON *ids, int number)
{
    const cJSON *sampling = for_prompt(job->body, "sampling_params", number);
    double temperature = number_in(sampling, "temperature", 1.0), wanted = number_in(sampling, "max_new_tokens", 128);
    if (temperature < 0 || !isfinite(temperature)) {
        text_format(&job->refusal, "temperature must be a non-negative finite number, got %g.", temperature);
        return;
    }
    cJSON *request = cJSON_CreateObject();
    cJSON_AddItemToArray(job->requests, request);
    cJSON_AddItemToObject(request, "ids", cJSON_Duplicate(ids, true));
    add_rid(job, request, number);
    size_t tokens = (size_t)cJSON_GetArraySize(ids), context = server_model()->context;
    if ((double)tokens + wanted > (double)context && !cJSON_HasObjectItem(sampling, "max_new_tokens"))
        wanted = (double)(context - tokens);
    cJSON_AddNumberToObject(request, "max_new_tokens", wanted);
    cJSON_AddBoolToObject(request, "ignore_eos",
                          cJSON_IsTrue(cJSON_GetObjectItemCaseSensitive(sampling, "ignore_eos")));
    const cJSON *stops = cJSON_GetObjectItemCaseSensitive(sampling, "stop_token_ids");
    if (cJSON_IsArray(stops))
        cJSON_AddItemToObject(request, "stop_token_ids", cJSON_Duplicate(stops, true));
    cJSON_AddBoolToObject(request, "return_logprob", cJSON_IsTrue(for_prompt(job->body, "return_logprob", number)));
    const cJSON *start = for_prompt(job->body, "logprob_start_len", number);
    cJSON_AddNumberToObject(request, "logprob_start_len", cJSON_IsNumber(start) ? start->valuedouble : -1);
    check_lengths(job, request, tokens, wanted);
}

static const char *rid_of(const cJSON *request)
{
    return cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(request, "rid"));
}

static void check_rids(struct job *job)
{
    const cJSON *first, *second;
    cJSON_ArrayForEach(first, job->requests)
    {
        for (second = first->next; second != NULL; second = second->next)
            if (strcmp(rid_of(first), rid_of(second)) == 0 && job->refusal.length == 0)
                text_format(&job->refusal, "Duplicate request IDs detected within the request: ['%s']", rid_of(first));
    }
}

static void prepare(struct job *job)
{
    cJSON *prompts = prompts_of(job), *prompt;
    int number = 0;
    cJSON_ArrayForEach(prompt, prompts)
    {
        if (job->refusal.length > 0)
            break;
        if (!is_id_list(prompt) || cJSON_GetArraySize(prompt) == 0)
            text_string(&job->refusal, "input_ids cannot be empty.");
        else
            add_request(job, prompt, number++);
    }
    check_rids(job);
    cJSON_Delete(prompts);
}

/* ------------------------------------------------------------------ answer */

static void move(cJSON *from, const char *key, cJSON *to)
{
    cJSON *item = cJSON_DetachItemFromObjectCaseSensitive(from, key);
    if (item != NULL)
        cJSON_AddItemToObject(to, key, item);
}

static void add_cached_details(cJSON *meta, double cached)
{
    if (cached <= 0) {
        cJSON_AddNullToObject(meta, "cached_tokens_details");
        return;
    }
    cJSON *details = cJSON_AddObjectToObject(meta, "cached_tokens_details");
    cJSON_AddNumberToObject(details, "device", cached);
    cJSON_AddNumberToObject(details, "host", 0);
}

static void add_versions(cJSON *meta, double end)
{
    if (version_number() < 523)
        return;
    cJSON *versions = cJSON_AddArrayToObject(meta, "weight_versions");
    cJSON *version = cJSON_CreateObject();
    cJSON_AddStringToObject(version, "version", "default");
    cJSON_AddNumberToObject(version, "start", 0);
    cJSON_AddNumberToObject(version, "end", end);
    cJSON_AddItemToArray(versions, version);
}

/* The faults: what a client must not take for an answer. */
static void spoil(cJSON *answer, cJSON *meta)
{
    cJSON *ids = cJSON_GetObjectItemCaseSensitive(answer, "output_ids");
    if (faults_on(FAULTS_CUT_ANSWER) && cJSON_GetArraySize(ids) > 0)
        cJSON_DeleteItemFromArray(ids, cJSON_GetArraySize(ids) - 1);
    if (!faults_on(FAULTS_ABORTED_ANSWER))
        return;
    cJSON_DeleteItemFromObjectCaseSensitive(meta, "finish_reason");
    cJSON *reason = cJSON_AddObjectToObject(meta, "finish_reason");
    cJSON_AddStringToObject(reason, "type", "abort");
    cJSON_AddStringToObject(reason, "message", "Abort in waiting queue");
    cJSON_AddNumberToObject(reason, "status_code", 503);
}

static cJSON *one_answer(cJSON *raw, const char *rid, double begun)
{
    cJSON *answer = cJSON_CreateObject();
    if (!arguments_given("--skip-tokenizer-init", NULL))
        cJSON_AddStringToObject(answer, "text", "");
    double completion = number_in(raw, "completion_tokens", 0), cached = number_in(raw, "cached_tokens", 0);
    move(raw, "output_ids", answer);
    cJSON *meta = cJSON_AddObjectToObject(answer, "meta_info");
    cJSON_AddStringToObject(meta, "id", rid);
    move(raw, "finish_reason", meta);
    move(raw, "prompt_tokens", meta);
    cJSON_AddStringToObject(meta, "weight_version", "default");
    cJSON_AddNumberToObject(meta, version_number() >= 514 ? "num_retractions" : "total_retractions",
                            number_in(raw, "retractions", 0));
    bool logprobs = cJSON_HasObjectItem(raw, "output_token_logprobs") && !faults_on(FAULTS_NO_LOGPROBS);
    if (logprobs)
        spoil(answer, meta);
    if (logprobs) {
        move(raw, "input_token_logprobs", meta);
        move(raw, "output_token_logprobs", meta);
        cJSON_AddNumberToObject(meta, "output_token_logprobs_length", completion);
    }
    cJSON_AddNumberToObject(meta, "reasoning_tokens", 0);
    cJSON_AddNumberToObject(meta, "completion_tokens", completion);
    cJSON_AddNumberToObject(meta, "cached_tokens", cached);
    add_versions(meta, completion);
    add_cached_details(meta, cached);
    cJSON_AddNullToObject(meta, "dp_rank");
    cJSON_AddNumberToObject(meta, "e2e_latency", knobs_seconds() - begun);
    cJSON_AddNumberToObject(meta, "response_sent_to_client_ts", (double)time(NULL));
    return answer;
}

/* The scheduler's answers come in the order in which the requests ended. */
static cJSON *find_number(cJSON *answers, int number)
{
    cJSON *item;
    cJSON_ArrayForEach(item, answers)
    {
        if ((int)number_in(item, "number", -1) == number)
            return item;
    }
    return NULL;
}

static void run(struct job *job, struct http_response *response)
{
    const cJSON *request;
    cJSON_ArrayForEach(request, job->requests) server_request_begin(rid_of(request));
    cJSON *message = cJSON_CreateObject();
    cJSON_AddStringToObject(message, "op", "generate");
    cJSON_AddItemToObject(message, "requests", cJSON_Duplicate(job->requests, true));
    cJSON *reply = server_ask_for(message, job->client_fd);
    if (reply == NULL) {
        log_line("[http_server] Error: Request is disconnected from the client side (type 1). Abort request");
        cJSON_ArrayForEach(request, job->requests) server_request_end(rid_of(request));
        response->status = 400;
        return;
    }
    cJSON *answers = cJSON_GetObjectItemCaseSensitive(reply, "answers");
    cJSON *list = cJSON_CreateArray();
    const char *rejection = NULL;
    int number = 0;
    cJSON_ArrayForEach(request, job->requests)
    {
        cJSON *raw = find_number(answers, number++);
        const char *text = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(raw, "rejection"));
        if (text != NULL)
            rejection = text;
        cJSON_AddItemToArray(list, one_answer(raw, rid_of(request), job->begun));
        server_request_end(rid_of(request));
    }
    if (rejection != NULL)
        refuse(response, rejection);
    else if (job->single)
        routes_json(response, 200, cJSON_DetachItemFromArray(list, 0));
    else
        routes_json(response, 200, cJSON_Duplicate(list, true));
    cJSON_Delete(list);
    cJSON_Delete(reply);
}

void generate_handle(const struct http_request *request, struct http_response *response)
{
    struct job job = {.begun = knobs_seconds(), .client_fd = request->client_fd};
    text_init(&job.refusal);
    if (strncasecmp(request->content_type, "application/json", 16) != 0) {
        refuse_body(response, "{'type': 'dataclass_type', 'loc': ('body',), 'msg': 'Input should be a dictionary or an "
                              "instance of GenerateReqInput', 'ctx': {'class_name': 'GenerateReqInput'}}");
        return;
    }
    job.body = request->body.length > 0 ? cJSON_Parse(request->body.data) : NULL;
    const cJSON *ids = cJSON_GetObjectItemCaseSensitive(job.body, "input_ids");
    if (!cJSON_IsObject(job.body)) {
        refuse_body(response, "{'type': 'json_invalid', 'loc': ('body', 1), 'msg': 'JSON decode error', 'input': {}, "
                              "'ctx': {'error': 'unexpected character, expected a string key'}}");
    } else if (ids != NULL && !cJSON_IsNull(ids) && !cJSON_IsArray(ids)) {
        refuse_body(response, "{'type': 'value_error', 'loc': ('body', 'input_ids'), 'msg': 'Value error, must be list "
                              "or null; got str'}");
    } else {
        job.requests = cJSON_CreateArray();
        prepare(&job);
        if (job.refusal.length > 0) {
            server_request_refused("refused");
            refuse(response, job.refusal.data);
        } else {
            run(&job, response);
        }
        cJSON_Delete(job.requests);
    }
    cJSON_Delete(job.body);
    text_fini(&job.refusal);
}

void generate_probe(void)
{
    char rid[64] = "HEALTH_CHECK_";
    random_rid(rid + 13);
    cJSON *message = cJSON_CreateObject();
    cJSON_AddStringToObject(message, "op", "generate");
    cJSON_AddBoolToObject(message, "health", true);
    cJSON *request = cJSON_CreateObject();
    cJSON_AddStringToObject(request, "rid", rid);
    cJSON_AddItemToObject(request, "ids", cJSON_CreateIntArray((int[]){0}, 1));
    cJSON_AddNumberToObject(request, "max_new_tokens", 1);
    cJSON_AddItemToArray(cJSON_AddArrayToObject(message, "requests"), request);
    server_probe(message);
}
