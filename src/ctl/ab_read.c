#include "ctl/ab_read.h"

#include "base/memory.h"
#include "base/text.h"
#include "ctl/find.h"
#include "ctl/foreign.h"
#include "ctl/result_file.h"
#include "ctl/show.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static const struct {
    const char *word, *schema;
} kinds[AB_READ_KINDS] = {{"kl", "kldump.kl/1"}, {"capture", "kldump.capture/1"}};

const char *ab_read_kind_word(enum ab_read_kind kind)
{
    return kinds[kind].word;
}

/* ---- where it lies ---- */

static enum error_code find_capture(const char *run, const char *exp, char **ret_file, struct error *err)
{
    struct find find = {0};
    struct json *status = NULL;
    enum error_code code = find_run(run, &find, err);
    if (code == ERROR_NONE)
        code = find_status(&find, &status, err);
    if (code == ERROR_NONE) {
        char *file = memory_format("%s/%s.capture.json", show_member(status, "dir"), exp);
        if (result_file_is(file)) {
            *ret_file = file;
        } else {
            code =
                error_set(err, ERROR_NOT_FOUND,
                          "run %s has no capture '%s' (%.300s): kldumpctl capture %s makes one, --name names another",
                          run, exp, file, run);
            free(file);
        }
    }
    json_free(status);
    find_fini(&find);
    return code;
}

/* ---- requests ---- */

static enum error_code read_numbers(const struct json *object, const char *key, size_t from, size_t count,
                                    double **ret_values, struct error *err)
{
    const struct json *array = NULL;
    if (json_type(json_member(object, key)) == JSON_NULL)
        return ERROR_NONE;
    enum error_code code = json_get_array(object, key, &array, err);
    if (code == ERROR_NONE && (json_count(array) < count || json_count(array) - count < from))
        code = error_set(err, ERROR_FORMAT, "%s has %zu elements; expected %zu from %zu on", key, json_count(array),
                         count, from);
    if (code != ERROR_NONE)
        return code;
    double *values = memory_new((count + 1) * sizeof values[0]);
    const struct json *item = json_first(array);
    for (size_t i = 0; i < from; i++)
        item = json_next(item);
    for (size_t i = 0; i < count && code == ERROR_NONE; i++, item = json_next(item)) {
        values[i] = NAN;
        if (json_type(item) != JSON_NULL)
            code = json_get_double(item, "", &values[i], err);
    }
    if (code == ERROR_NONE) {
        *ret_values = values;
        return ERROR_NONE;
    }
    free(values);
    return error_prefix(err, "%s", key);
}

static enum error_code read_ids(const struct json *object, const char *key, struct ab_request *request,
                                struct error *err)
{
    const struct json *array = NULL;
    enum error_code code = json_get_array(object, key, &array, err);
    if (code != ERROR_NONE)
        return code;
    request->ids = memory_new((json_count(array) + 1) * sizeof request->ids[0]);
    for (const struct json *item = json_first(array); item != NULL && code == ERROR_NONE; item = json_next(item)) {
        code = json_get_i64(item, "", &request->ids[request->count], err);
        if (code != ERROR_NONE)
            error_prefix(err, "%s, element %zu", key, request->count);
        request->count++;
    }
    return code;
}

static enum error_code read_kl_request(const struct json *json, struct ab_request *request, struct error *err)
{
    enum error_code code = json_get_string(json, "rid", &request->rid, err);
    if (code == ERROR_NONE)
        code = json_get_u64(json, "cached_tokens", &request->cached, err);
    if (code == ERROR_NONE)
        code = json_get_u64(json, "first", &request->first, err);
    if (code == ERROR_NONE)
        code = read_ids(json, "ids", request, err);
    if (code == ERROR_NONE)
        code = read_numbers(json, "a", 0, request->count, &request->values[0], err);
    if (code == ERROR_NONE)
        code = read_numbers(json, "b", 0, request->count, &request->values[1], err);
    request->dropped = json_type(json_member(json, "dropped")) == JSON_STRING;
    return code;
}

static enum error_code read_capture_prompt(const struct json *json, struct ab_request *request, struct error *err)
{
    enum error_code code = json_get_string(json, "score.rid", &request->rid, err);
    if (code == ERROR_NONE)
        code = json_get_u64(json, "score.cached_tokens", &request->cached, err);
    if (code == ERROR_NONE)
        code = read_ids(json, "input_ids", request, err);
    if (code == ERROR_NONE)
        code = read_numbers(json, "scored_logprobs", 0, request->count, &request->values[0], err);
    return code;
}

static enum error_code read_capture_output(const struct json *json, struct ab_request *request, struct error *err)
{
    enum error_code code = json_get_string(json, "decode.rid", &request->rid, err);
    if (code == ERROR_NONE)
        code = json_get_u64(json, "decode.cached_tokens", &request->cached, err);
    if (code == ERROR_NONE)
        code = json_get_u64(json, "prompt_tokens", &request->first, err);
    if (code == ERROR_NONE)
        code = read_ids(json, "output_ids", request, err);
    if (code == ERROR_NONE)
        code = read_numbers(json, "scored_logprobs", request->first, request->count, &request->values[0], err);
    if (code == ERROR_NONE)
        code = read_numbers(json, "decoded_logprobs", 0, request->count, &request->values[1], err);
    return code;
}

static enum error_code read_capture_restored(const struct json *json, struct ab_request *request, struct error *err)
{
    enum error_code code = json_get_string(json, "restored.rid", &request->rid, err);
    if (code == ERROR_NONE)
        code = json_get_u64(json, "restored.cached_tokens", &request->cached, err);
    if (code == ERROR_NONE)
        code = json_get_u64(json, "prompt_tokens", &request->first, err);
    if (code == ERROR_NONE)
        code = read_ids(json, "output_ids", request, err);
    if (code == ERROR_NONE)
        code = read_numbers(json, "restored_logprobs", request->first, request->count, &request->values[0], err);
    return code;
}

typedef enum error_code read_request(const struct json *json, struct ab_request *request, struct error *err);

static enum error_code add_path(struct ab_read *read, const char *name, const char *grade, const struct json *requests,
                                read_request *read_one, struct error *err)
{
    enum error_code code = ERROR_NONE;
    struct ab_path *path = &read->paths[read->path_count++];
    *path = (struct ab_path){.name = name, .grade = grade};
    path->requests = memory_new((json_count(requests) + 1) * sizeof path->requests[0]);
    for (const struct json *r = json_first(requests); r != NULL && code == ERROR_NONE; r = json_next(r)) {
        code = read_one(r, &path->requests[path->count], err);
        if (code != ERROR_NONE)
            error_prefix(err, "%s, request %zu", name, path->count);
        path->count++;
    }
    return code;
}

static enum error_code read_kl(struct ab_read *read, struct error *err)
{
    const struct json *helpers = NULL;
    enum error_code code = foreign_check_result(read->json, err);
    if (code == ERROR_NONE)
        code = json_get_object(read->json, "helpers", &helpers, err);
    read->paths = memory_new((json_count(helpers) + 1) * sizeof read->paths[0]);
    for (const struct json *p = json_first(helpers); p != NULL && code == ERROR_NONE; p = json_next(p)) {
        const struct json *requests = NULL;
        const char *grade = NULL;
        code = json_get_string(p, "grade", &grade, err);
        if (code == ERROR_NONE)
            code = json_get_array(p, "requests", &requests, err);
        if (code == ERROR_NONE && json_count(requests) > 0)
            code = add_path(read, json_key(p), grade, requests, read_kl_request, err);
    }
    return code;
}

static enum error_code read_capture(struct ab_read *read, struct error *err)
{
    const struct json *requests = NULL;
    bool complete = false, restore = false;
    uint64_t new_tokens = 1;
    const char *reason = "no reason is given";
    enum error_code code = json_get_bool(read->json, "complete", &complete, err);
    if (code == ERROR_NONE && !complete) {
        json_optional_string(read->json, "reasons.0", reason, &reason, NULL);
        return error_set(err, ERROR_INCOMPLETE, "the capture is not complete: %.400s", reason);
    }
    if (code == ERROR_NONE)
        code = json_get_array(read->json, "requests", &requests, err);
    (void)json_get_u64(read->json, "new_tokens", &new_tokens, NULL);
    (void)json_get_bool(read->json, "restore", &restore, NULL);
    read->paths = memory_new(3 * sizeof read->paths[0]);
    if (code == ERROR_NONE)
        code = add_path(read, "prompt", NULL, requests, read_capture_prompt, err);
    if (code == ERROR_NONE && new_tokens > 0)
        code = add_path(read, "output", NULL, requests, read_capture_output, err);
    if (code == ERROR_NONE && new_tokens > 0 && restore)
        code = add_path(read, "restored", NULL, requests, read_capture_restored, err);
    return code;
}

static enum error_code find_kind(const struct ab_read *read, enum ab_read_kind *ret_kind, struct error *err)
{
    const char *schema = "";
    json_optional_string(read->json, "schema", "", &schema, NULL);
    for (int kind = 0; kind < AB_READ_KINDS; kind++)
        if (strcmp(schema, kinds[kind].schema) == 0) {
            *ret_kind = (enum ab_read_kind)kind;
            return ERROR_NONE;
        }
    return error_set(err, ERROR_USAGE, "'%s' has the schema '%.60s'; expected %s or %s", read->file, schema,
                     kinds[AB_READ_KL].schema, kinds[AB_READ_CAPTURE].schema);
}

/* Fills what borrows from the JSON. */
static enum error_code read_result(struct ab_read *read, struct error *err)
{
    const struct json *settings = json_find(read->json, "server.settings");
    enum error_code code = find_kind(read, &read->kind, err);
    if (code != ERROR_NONE)
        return code;
    read->settings = json_type(settings) == JSON_OBJECT ? settings : NULL;
    code = read->kind == AB_READ_KL ? read_kl(read, err) : read_capture(read, err);
    return code != ERROR_NONE ? error_prefix(err, "'%s'", read->file) : code;
}

enum error_code ab_read_open(const char *name, const char *exp, struct ab_read *ret_read, struct error *err)
{
    struct ab_read read = {.name = name};
    enum error_code code = ERROR_NONE;
    if (result_file_is(name))
        read.file = memory_copy(name);
    else
        code = find_capture(name, exp, &read.file, err);
    if (code == ERROR_NONE)
        code = result_file_read(read.file, "kldump.", &read.json, err);
    if (code == ERROR_NONE)
        code = read_result(&read, err);
    if (code == ERROR_NONE)
        *ret_read = read;
    else
        ab_read_fini(&read);
    return code;
}

enum error_code ab_read_take(const char *name, struct json *json, struct ab_read *ret_read, struct error *err)
{
    struct ab_read read = {.name = name, .file = memory_copy(name), .json = json};
    enum error_code code = read_result(&read, err);
    if (code == ERROR_NONE)
        *ret_read = read;
    else
        ab_read_fini(&read);
    return code;
}

void ab_read_fini(struct ab_read *read)
{
    for (size_t p = 0; p < read->path_count; p++) {
        for (size_t i = 0; i < read->paths[p].count; i++) {
            struct ab_request *request = &read->paths[p].requests[i];
            free(request->ids);
            free(request->values[0]);
            free(request->values[1]);
        }
        free(read->paths[p].requests);
    }
    free(read->paths);
    free(read->file);
    json_free(read->json);
    *read = (struct ab_read){0};
}

const struct ab_path *ab_read_path(const struct ab_read *read, const char *name)
{
    for (size_t p = 0; p < read->path_count; p++)
        if (strcmp(read->paths[p].name, name) == 0)
            return &read->paths[p];
    return NULL;
}
