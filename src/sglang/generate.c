#include "sglang/generate.h"

#include "base/text.h"
#include "json/json.h"
#include "sglang/answers.h"

#include <stdio.h>
#include <stdlib.h>

static void set_ids(struct json *body, const struct generate_request *request)
{
    struct json *all = json_set_array(body, "input_ids");
    for (size_t i = 0; i < request->count; i++) {
        struct json *ids = json_array();
        for (size_t k = 0; k < request->prompts[i].length; k++)
            json_append_u64(ids, (uint64_t)request->prompts[i].ids[k]);
        json_append(all, ids);
    }
}

/* Of all or of none: a list with a gap is refused by the server. */
static void set_rids(struct json *body, const struct generate_request *request)
{
    if (request->count == 0 || request->prompts[0].rid == NULL)
        return;
    struct json *rids = json_set_array(body, "rid");
    for (size_t i = 0; i < request->count; i++)
        json_append_string(rids, request->prompts[i].rid);
}

static void set_starts(struct json *body, const struct generate_request *request)
{
    if (request->logprob_starts == NULL) {
        json_set_i64(body, "logprob_start_len", request->logprob_start);
        return;
    }
    struct json *starts = json_set_array(body, "logprob_start_len");
    for (size_t i = 0; i < request->count; i++)
        json_append_double(starts, (double)request->logprob_starts[i]);
}

void generate_build(const struct generate_request *request, struct server_request *ret_request)
{
    struct json *body = json_object();
    set_ids(body, request);
    set_rids(body, request);
    struct json *sampling = json_set_object(body, "sampling_params");
    if (request->has_temperature)
        json_set_double(sampling, "temperature", request->temperature);
    json_set_u64(sampling, "max_new_tokens", request->new_tokens);
    json_set_bool(sampling, "ignore_eos", request->ignore_eos);
    if (request->logprobs) {
        json_set_bool(body, "return_logprob", true);
        json_set_bool(body, "return_text_in_logprobs", false);
        set_starts(body, request);
    }
    ret_request->method = "POST";
    text_copy(ret_request->path, sizeof ret_request->path, "/generate");
    buffer_init(&ret_request->body);
    json_print(body, &ret_request->body);
    json_free(body);
}

void generate_build_flush(unsigned wait_s, struct server_request *ret_request)
{
    ret_request->method = "POST";
    snprintf(ret_request->path, sizeof ret_request->path, "/flush_cache?timeout=%u", wait_s);
    buffer_init(&ret_request->body);
}

bool generate_flushed(int http_status, const char *body, size_t length, struct error *err)
{
    char shown[160];
    if (http_status == 200)
        return true;
    error_set(err, ERROR_SERVER,
              "flush_cache: HTTP %d: %s; expected 200: it succeeds on an idle server only, so keep other clients away",
              http_status, text_clean(body, length, shown, sizeof shown));
    return false;
}

void generate_answers_fini(struct generate_answers *answers)
{
    for (size_t i = 0; i < answers->count; i++) {
        struct generate_answer *answer = &answers->items[i];
        free(answer->rid);
        free(answer->output_ids);
        free(answer->output_logprobs);
        free(answer->input_logprobs);
        free(answer->weight_version);
        free(answer->finish);
    }
    free(answers->items);
    *answers = (struct generate_answers){0};
}
