/* A text becomes ids before a measurement: /tokenize (openai/serving_tokenize.py) asks the tokenizer that /generate
 * uses, special tokens included. */
#include "base/memory.h"
#include "base/text.h"
#include "json/json.h"
#include "sglang/answers.h"
#include "sglang/generate.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

void generate_build_tokenize(const char *text, struct server_request *ret_request)
{
    struct json *body = json_object();
    json_set_string(body, "prompt", text);
    ret_request->method = "POST";
    text_copy(ret_request->path, sizeof ret_request->path, "/tokenize");
    buffer_init(&ret_request->body);
    json_print(body, &ret_request->body);
    json_free(body);
}

static enum error_code read_ids(const struct json *body, int64_t **ret_ids, size_t *ret_count, struct error *err)
{
    const struct json *tokens = NULL;
    enum error_code code = json_get_array(body, "tokens", &tokens, err);
    if (code != ERROR_NONE)
        return code;
    size_t count = json_count(tokens), k = 0;
    if (count == 0)
        return error_set(err, ERROR_FORMAT, "tokens is empty; expected one id at least");
    int64_t *ids = memory_resize(NULL, count, sizeof *ids);
    for (const struct json *id = json_first(tokens); id != NULL && code == ERROR_NONE; id = json_next(id), k++)
        code = json_get_i64(id, "", &ids[k], err);
    if (code != ERROR_NONE) {
        free(ids);
        error_prefix(err, "tokens.%zu", k - 1);
        return code;
    }
    *ret_ids = ids;
    *ret_count = count;
    return ERROR_NONE;
}

enum error_code generate_read_tokenize(int http_status, const char *body, size_t length, int64_t **ret_ids,
                                       size_t *ret_count, struct error *err)
{
    static const struct json_limits limits = {SIZE_MAX, JSON_DEPTH, JSON_ANY_VALUES};
    struct json *json = NULL;
    char shown[300];
    enum error_code code = json_parse(body, length, limits, &json, err);
    const char *text = code == ERROR_NONE ? answers_error_text(json) : NULL;
    if (http_status != 200 || text != NULL)
        code = error_set(err, ERROR_SERVER,
                         "tokenize: HTTP %d: %s; give the prompts as input_ids, or start the server with its tokenizer",
                         http_status,
                         text != NULL ? text_clean(text, strlen(text), shown, sizeof shown)
                                      : text_clean(body, length < 200 ? length : 200, shown, sizeof shown));
    else if (code == ERROR_NONE)
        code = read_ids(json, ret_ids, ret_count, err);
    json_free(json);
    if (code == ERROR_FORMAT)
        error_prefix(err, "tokenize");
    return code;
}
