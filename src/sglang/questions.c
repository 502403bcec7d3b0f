#include "sglang/questions.h"

#include "base/random.h"
#include "base/text.h"
#include "json/json.h"

#include <stddef.h>

/* Routes, newest first; `older` NULL: there never was another. None of them causes a forward pass except the probe.
 * flush_cache waits for an idle server up to its timeout (releases before March 2026 ignore the parameter). */
static const struct {
    const char *method, *path, *older;
} routes[SERVER_QUESTIONS] = {
    [SERVER_HEALTH] = {"GET", "/health", NULL},
    [SERVER_STATE] = {"POST", "/dumper/get_state", NULL},
    [SERVER_INFO] = {"GET", "/server_info", "/get_server_info"},
    [SERVER_LOAD] = {"GET", "/v1/loads?include=core", "/get_load"},
    [SERVER_ENABLE] = {"POST", "/dumper/configure", NULL},
    [SERVER_DISABLE] = {"POST", "/dumper/configure", NULL},
    [SERVER_PROBE] = {"POST", "/generate", NULL},
    [SERVER_FLUSH] = {"POST", "/flush_cache?timeout=5", NULL},
};

/* Token ids of the probe: below the vocabulary of any model (an id beyond it ends the server), and none of 0 and 10 to
 * 12, with which health probes and warm-ups begin: the cache may still hold those. */
enum { TOKEN_FIRST = 16, TOKEN_COUNT = 96 };

/* A half of a pair serves a request alone when its other half is said to be this address, as the warm-up of such a
 * server does it (0.5.23, srt/entrypoints/http_server.py); without, it is refused. */
static void fill_half(struct json *body)
{
    json_set_string(body, "bootstrap_host", "2.2.2.2");
    json_set_u64(body, "bootstrap_room", 0);
}

static void fill_probe(struct json *body, const char *request_id, uint64_t seed)
{
    struct json *ids = json_set_array(body, "input_ids");
    for (int i = 0; i < SERVER_PROBE_IDS; i++)
        json_append_u64(ids, TOKEN_FIRST + random_next(&seed) % TOKEN_COUNT);
    json_set_string(body, "rid", request_id);
    struct json *sampling = json_set_object(body, "sampling_params");
    json_set_u64(sampling, "max_new_tokens", SERVER_PROBE_NEW);
    json_set_u64(sampling, "temperature", 0);
    json_set_bool(sampling, "ignore_eos", true);
    json_set_bool(body, "stream", false);
}

void questions_build(enum server_question question, const char *experiment, const char *filter, const char *request_id,
                     uint64_t seed, bool half, struct server_request *ret_request)
{
    struct json *body = json_object();
    ret_request->method = routes[question].method;
    text_copy(ret_request->path, sizeof ret_request->path, routes[question].path);
    buffer_init(&ret_request->body);
    switch (question) {
    case SERVER_ENABLE: /* one call sets all, so that no pass can fall between; null means no filter */
        json_set_bool(body, "enable", true);
        json_set_string(body, "exp_name", experiment);
        if (filter != NULL)
            json_set_string(body, "filter", filter);
        else
            json_set_null(body, "filter");
        break;
    case SERVER_DISABLE:
        json_set_bool(body, "enable", false);
        break;
    case SERVER_PROBE:
        fill_probe(body, request_id, seed);
        if (half)
            fill_half(body);
        break;
    default:
        break;
    }
    if (question != SERVER_FLUSH && ret_request->method[0] == 'P')
        json_print(body, &ret_request->body);
    json_free(body);
}

bool questions_build_older(enum server_question question, struct server_request *ret_request)
{
    if (routes[question].older == NULL)
        return false;
    ret_request->method = routes[question].method;
    text_copy(ret_request->path, sizeof ret_request->path, routes[question].older);
    buffer_init(&ret_request->body);
    return true;
}
