#include "ctl/capture_result.h"

#include "base/memory.h"
#include "ctl/result_file.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const char *const phase_members[CAPTURE_PHASES] = {"decode", "score", "restored"};

/* ---- numbers ---- */

static bool same_bits(double a, double b)
{
    return memcmp(&a, &b, sizeof a) == 0;
}

static void add_token(struct capture_tally *tally, double scored, double other)
{
    tally->tokens++;
    tally->bit_equal += same_bits(scored, other);
    tally->largest = fmax(tally->largest, fabs(scored - other));
}

void capture_result_tally(const struct capture_result *result, struct capture_tally *ret_tally)
{
    struct capture_tally tally = {0};
    size_t decoded = 0, own = 0, at_next = 0;
    for (size_t i = 0; i < result->count; i++) {
        const struct capture_request *request = &result->requests[i];
        const double *scored = request->scored, *restored = request->restored;
        const double *output = restored != NULL ? restored + request->prompt_length : NULL;
        for (size_t k = 0; scored != NULL && request->decoded != NULL && k < request->output_count; k++) {
            size_t p = request->prompt_length + k;
            decoded++;
            own += same_bits(scored[p], request->decoded[k]);
            at_next += same_bits(scored[p - 1], request->decoded[k]);
        }
        output = result->restore ? output : request->decoded;
        for (size_t k = 0; scored != NULL && output != NULL && k < request->output_count; k++)
            add_token(&tally, scored[request->prompt_length + k], output[k]);
    }
    tally.shifted = decoded > 1 && at_next == decoded && own < decoded;
    *ret_tally = tally;
}

/* ---- the object ---- */

static void set_ids(struct json *object, const char *key, const int64_t *ids, size_t count)
{
    struct json *list = json_set_array(object, key);
    for (size_t k = 0; k < count; k++)
        json_append_u64(list, (uint64_t)ids[k]);
}

/* NaN is null, as the server sends it. */
static void set_logprobs(struct json *object, const char *key, const double *values, size_t count)
{
    struct json *list = json_set_array(object, key);
    for (size_t k = 0; values != NULL && k < count; k++)
        json_append_double(list, values[k]);
    if (values == NULL)
        json_set_null(object, key);
}

static void add_request(struct json *list, const struct capture_request *request)
{
    struct json *object = json_append_object(list);
    for (int phase = 0; phase < CAPTURE_PHASES; phase++) {
        json_set_null(object, phase_members[phase]);
        if (request->rid[phase] == NULL)
            continue;
        struct json *one = json_set_object(object, phase_members[phase]);
        json_set_string(one, "rid", request->rid[phase]);
        json_set_u64(one, "cached_tokens", request->cached[phase]);
    }
    json_set_u64(object, "prompt_tokens", request->prompt_length);
    set_ids(object, "input_ids", request->ids, request->prompt_length);
    set_ids(object, "output_ids", request->ids + request->prompt_length, request->output_count);
    set_logprobs(object, "decoded_logprobs", request->decoded, request->output_count);
    set_logprobs(object, "scored_logprobs", request->scored, request->prompt_length + request->output_count);
    set_logprobs(object, "restored_logprobs", request->restored, request->prompt_length + request->output_count);
}

static void add_server(struct json *object, const struct generate_server *server)
{
    char hash[HASH_TEXT];
    struct json *one = json_set_object(object, "server");
    generate_server_hash(server, hash);
    json_set_string(one, "version", server->version);
    json_set_string(one, "model_path", server->model_path);
    json_set_string(one, "weight_version", server->weight_version);
    json_set_u64(one, "tp_size", server->tp_size);
    json_set_bool(one, "deterministic", server->deterministic);
    json_set_known_u64(one, "vocabulary", server->vocabulary != 0, server->vocabulary);
    json_set_known_u64(one, "context_length", server->context_length != 0, server->context_length);
    json_set_known_u64(one, "page_size", server->page_size != 0, server->page_size);
    json_set_known_u64(one, "sliding_window", server->sliding_window != 0, server->sliding_window);
    json_set_string(one, "settings_hash", hash);
    json_set_child(one, "settings", json_copy(server->settings));
}

static void add_tally(struct json *object, const struct capture_result *result)
{
    struct capture_tally tally;
    struct json *one = json_set_object(object, "logprobs");
    capture_result_tally(result, &tally);
    json_set_u64(one, "tokens", tally.tokens);
    json_set_u64(one, "bit_equal", tally.bit_equal);
    json_set_bool(one, "shifted", tally.shifted);
    json_set_double(one, "largest_difference", tally.largest);
}

struct json *capture_result_json(const struct capture_result *result)
{
    struct json *object = json_object();
    json_set_string(object, "schema", "kldump.capture/1");
    json_set_string(object, "run", result->run);
    json_set_string(object, "name", result->name);
    json_set_string(object, "dir", result->directory);
    json_set_bool(object, "complete", result->reasons.count == 0);
    json_set_list(object, "reasons", &result->reasons);
    for (int phase = 0; phase < CAPTURE_PHASES; phase++) {
        json_set_null(object, phase_members[phase]);
        if (result->experiment[phase] == NULL)
            continue;
        struct json *one = json_set_object(object, phase_members[phase]);
        json_set_string(one, "experiment", result->experiment[phase]);
        if (result->seal[phase] != NULL)
            json_set_child(one, "seal", json_copy(result->seal[phase]));
        else
            json_set_null(one, "seal");
    }
    foreign_json(result->foreign, object);
    struct json *prompts = json_set_object(object, "prompts");
    json_set_string(prompts, "source", result->prompts->source);
    json_set_u64(prompts, "count", result->prompts->count);
    json_set_string(prompts, "hash", result->prompts->hash);
    json_set_u64(object, "new_tokens", result->new_tokens);
    json_set_u64(object, "temperature", 0);
    json_set_bool(object, "alone", result->alone);
    json_set_bool(object, "restore", result->restore);
    add_server(object, result->server);
    add_tally(object, result);
    struct json *requests = json_set_array(object, "requests");
    for (size_t i = 0; i < result->count; i++)
        add_request(requests, &result->requests[i]);
    return object;
}

enum error_code capture_result_write(const struct json *object, const struct capture_result *result, char **ret_path,
                                     struct error *err)
{
    char *path = memory_format("%s/%s.capture.json", result->directory, result->name);
    enum error_code code = result_file_write(path, object, 0600, err);
    if (code == ERROR_NONE)
        *ret_path = path;
    else
        free(path);
    return code;
}

void capture_result_fini(struct capture_result *result)
{
    for (size_t i = 0; i < result->count; i++) {
        free(result->requests[i].ids);
        free(result->requests[i].decoded);
        free(result->requests[i].scored);
        free(result->requests[i].restored);
    }
    free(result->requests);
    for (int phase = 0; phase < CAPTURE_PHASES; phase++)
        json_free(result->seal[phase]);
    list_fini(&result->reasons);
    *result = (struct capture_result){0};
}
