#include "ctl/endpoint.h"

#include "base/memory.h"
#include "base/text.h"
#include "ctl/endpoint_model.h"
#include "ctl/now.h"
#include "ctl/show.h"
#include "http/blocking.h"
#include "sglang/answers.h"
#include "sglang/questions.h"

#include <inttypes.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum {
    CONNECT_MS = 5000,
    INFO_MS = 30000,
    FLUSH_S = 30,
    FLUSH_AGAIN_MS = 250,       /* releases before March 2026 do not wait for an idle server */
    GENERATE_MS = 7 * 86400000, /* as long as it takes; Ctrl-C ends it */
    INFO_MAX = 16 << 20,
    LOAD_MS = 5000,
    LOOK_MS = 1000,
    SETTLE_MS = 2000,
    SETTLE_AGAIN_MS = 20
};

static const char key_name[] = "KLDUMP_API_KEY", admin_key_name[] = "KLDUMP_ADMIN_API_KEY";

static bool still_wanted(const struct endpoint *endpoint)
{
    return endpoint->wanted == NULL || endpoint->wanted(endpoint->user);
}

/* ---- one request ---- */

/* With an admin key set, a server takes nothing else on such a route; without one, the other key. */
static bool is_for_admin(const struct server_request *request)
{
    return text_starts(request->path, "/flush_cache");
}

static enum error_code carry_asking(const struct endpoint *endpoint, const struct server_request *request,
                                    uint64_t limit_ms, size_t most, bool (*wanted)(void *user), void *user,
                                    struct buffer *body, struct transfer_result *ret_result, struct error *err)
{
    char *url = memory_format("%s%s", endpoint->url, request->path);
    bool admin = is_for_admin(request);
    const char *key = admin && endpoint->admin_key != NULL ? endpoint->admin_key : endpoint->key;
    struct transfer_request transfer = {.method = request->method,
                                        .url = url,
                                        .body = request->body.length > 0 ? request->body.data : NULL,
                                        .body_length = request->body.length,
                                        .key = key,
                                        .connect_timeout_ms = CONNECT_MS,
                                        .total_timeout_ms = limit_ms,
                                        .body_max_bytes = most,
                                        .wanted = wanted,
                                        .user = user};
    enum error_code code = blocking_request(&transfer, body, ret_result, err);
    free(url);
    if (code == ERROR_NONE && ret_result->status == 401)
        code = error_set(err, ERROR_FORBIDDEN, "HTTP 401: the server wants %s; set %s to its --api-key%s%s",
                         key != NULL ? "another key" : "a key", key_name,
                         admin ? ", and where it has an --admin-api-key, to that " : "", admin ? admin_key_name : "");
    if (code == ERROR_INTERRUPTED)
        error_set(err, code, "interrupted");
    if (code != ERROR_NONE)
        error_prefix(err, "%.80s at %.100s: %s %.*s", endpoint->name, endpoint->url, request->method,
                     (int)strcspn(request->path, "?"), request->path);
    return code;
}

static enum error_code carry(const struct endpoint *endpoint, const struct server_request *request, uint64_t limit_ms,
                             size_t most, struct buffer *body, struct transfer_result *ret_result, struct error *err)
{
    return carry_asking(endpoint, request, limit_ms, most, endpoint->wanted, endpoint->user, body, ret_result, err);
}

/* What is in no state to answer, or answers what cannot be read, is the server's failure: neither kldump's own nor the
 * answer "no". */
static enum error_code as_failure(enum error_code code, struct error *err)
{
    if (code != ERROR_FORMAT && code != ERROR_STATE && code != ERROR_BUSY)
        return code;
    if (err != NULL)
        err->code = ERROR_SERVER;
    return ERROR_SERVER;
}

/* What cannot be read or was refused gets the same name in front. */
static enum error_code name_answer(const struct endpoint *endpoint, enum error_code code, struct error *err)
{
    code = as_failure(code, err);
    if (code != ERROR_NONE)
        error_prefix(err, "%.80s at %.100s", endpoint->name, endpoint->url);
    return code;
}

/* ---- what it says of itself ---- */

static enum error_code ask_info(const struct endpoint *endpoint, bool model, struct buffer *body, struct error *err)
{
    struct transfer_result result = {0};
    enum error_code code = ERROR_NONE;
    for (int older = 0; older < 2 && code == ERROR_NONE; older++) {
        struct server_request request;
        generate_server_build(model, older == 1, &request);
        code = carry(endpoint, &request, INFO_MS, INFO_MAX, body, &result, err);
        server_request_fini(&request);
        if (code == ERROR_NONE && result.status == 200)
            return ERROR_NONE;
        if (code == ERROR_NONE && result.status != 404)
            break;
    }
    if (code == ERROR_NONE)
        code =
            name_answer(endpoint,
                        error_set(err, ERROR_SERVER, "%s_info: HTTP %d; expected 200: no SGLang server answers there",
                                  model ? "model" : "server", result.status),
                        err);
    return code;
}

static enum error_code ask_server(const struct endpoint *endpoint, struct generate_server *ret_server, char **ret_note,
                                  struct error *err)
{
    struct buffer info, model;
    buffer_init(&info);
    buffer_init(&model);
    enum error_code code = ask_info(endpoint, false, &info, err);
    if (code == ERROR_NONE)
        code = ask_info(endpoint, true, &model, err);
    if (code == ERROR_NONE)
        code = name_answer(
            endpoint, generate_server_read(info.data, info.length, model.data, model.length, ret_server, err), err);
    buffer_fini(&info);
    buffer_fini(&model);
    if (code == ERROR_NONE)
        *ret_note = endpoint_model_read(ret_server);
    return code;
}

/* ---- opening ---- */

static char *read_key(const char *name)
{
    const char *key = getenv(name);
    return key != NULL && key[0] != '\0' ? memory_copy(key) : NULL;
}

/* It does not stay in freed memory. */
static void forget(char *key)
{
    if (key != NULL)
        explicit_bzero(key, strlen(key));
    free(key);
}

static bool is_url(const char *target)
{
    return target != NULL && (text_starts(target, "http://") || text_starts(target, "https://"));
}

/* Without slashes at the end; only numeric addresses are carried, and localhost is one that everybody types. */
static char *make_url(const char *target)
{
    static const char name[] = "localhost";
    const char *host = strstr(target, "//") + 2;
    size_t length = strlen(host), skipped = 0;
    while (length > 0 && host[length - 1] == '/')
        length--;
    bool is_local = text_starts(host, name) && strchr(":/", host[strlen(name)]) != NULL;
    if (is_local)
        skipped = strlen(name);
    return memory_format("%.*s%s%.*s", (int)(host - target), target, is_local ? "127.0.0.1" : "",
                         (int)(length > skipped ? length - skipped : 0), host + skipped);
}

static enum error_code open_run(const char *target, struct endpoint *endpoint, struct error *err)
{
    struct json *run = NULL;
    enum error_code code = find_run(target, &endpoint->find, err);
    if (code != ERROR_NONE)
        return code;
    endpoint->is_run = true;
    endpoint->name = memory_copy(endpoint->find.name);
    code = find_status(&endpoint->find, &run, err);
    if (code != ERROR_NONE)
        return code;
    const char *state = show_member(run, "state"), *url = show_member(run, "url");
    bool up = strcmp(state, "armed") == 0 || strcmp(state, "ready") == 0;
    if (!up || url[0] == '\0')
        code =
            error_set(err, ERROR_STATE, "run %s is %s; expected armed, of a plain run ready%s", endpoint->name, state,
                      strcmp(state, "dumping") == 0 ? ": end the dump first, with kldumpctl pause"
                                                    : ": kldumpctl wait RUN --for armed");
    else
        endpoint->url = memory_copy(url);
    json_free(run);
    return code;
}

enum error_code endpoint_open(const char *target, struct endpoint *ret_endpoint, struct error *err)
{
    struct endpoint endpoint = {.key = read_key(key_name), .admin_key = read_key(admin_key_name)};
    enum error_code code = ERROR_NONE;
    if (is_url(target)) {
        endpoint.url = make_url(target);
        endpoint.name = memory_copy("server");
    } else {
        code = as_failure(open_run(target, &endpoint, err), err);
    }
    if (code == ERROR_NONE)
        code = ask_server(&endpoint, &endpoint.server, &endpoint.model_note, err);
    if (code == ERROR_NONE)
        *ret_endpoint = endpoint;
    else
        endpoint_fini(&endpoint);
    return code;
}

void endpoint_fini(struct endpoint *endpoint)
{
    forget(endpoint->key);
    forget(endpoint->admin_key);
    free(endpoint->name);
    free(endpoint->url);
    free(endpoint->model_note);
    find_fini(&endpoint->find);
    generate_server_fini(&endpoint->server);
    *endpoint = (struct endpoint){0};
}

/* ---- who else is there ---- */

/* A server that does not say, or not now, leaves load_known false. */
static void ask_load(struct endpoint *endpoint, struct server_answer *ret_load)
{
    for (bool is_second = false;; is_second = true) {
        struct server_request request;
        struct transfer_result result = {0};
        struct error unsaid = ERROR_INIT;
        struct buffer body;
        if (endpoint->older_load)
            questions_build_older(SERVER_LOAD, &request);
        else
            questions_build(SERVER_LOAD, NULL, NULL, NULL, 0, false, &request);
        buffer_init(&body);
        enum error_code code = carry(endpoint, &request, LOAD_MS, INFO_MAX, &body, &result, &unsaid);
        answers_read(SERVER_LOAD, code == ERROR_NONE ? result.status : 0, body.data, body.length, NULL, ret_load);
        server_request_fini(&request);
        buffer_fini(&body);
        endpoint->looked_ms = now_ms();
        if (result.status != 404 || is_second)
            return;
        endpoint->older_load = !endpoint->older_load;
    }
}

static int64_t wall_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

/* While nothing of ours runs. What the server says of itself may be behind by a moment. */
static void settle(struct endpoint *endpoint)
{
    int64_t end_ms = now_ms() + SETTLE_MS;
    for (;;) {
        struct server_answer load;
        ask_load(endpoint, &load);
        bool last = now_ms() >= end_ms || !still_wanted(endpoint);
        if (!endpoint->foreign.begun && (load.requests == 0 || last)) {
            foreign_begin(&endpoint->foreign, &load);
            return;
        }
        if (endpoint->foreign.begun && foreign_settle(&endpoint->foreign, &load, last, wall_ms()))
            return;
        (void)poll(NULL, 0, SETTLE_AGAIN_MS);
    }
}

/* Asked while a batch runs or a flush waits. */
static bool look_and_ask(void *user)
{
    struct endpoint *endpoint = user;
    if (now_ms() - endpoint->looked_ms >= LOOK_MS) {
        struct server_answer load;
        ask_load(endpoint, &load);
        foreign_look(&endpoint->foreign, &load, wall_ms());
    }
    return still_wanted(endpoint);
}

/* Tokens that their prefills have computed: a request that was taken back is prefilled with its answer so far, and a
 * mixed pass counts the rows that decode. */
static void receive(struct endpoint *endpoint, const struct generate_answers *answers)
{
    uint64_t least = 0, most = 0;
    for (size_t i = 0; i < answers->count; i++) {
        const struct generate_answer *answer = &answers->items[i];
        uint64_t again = answer->retractions * (answer->prompt_tokens + answer->output_count);
        least += answer->prompt_tokens - answer->cached_tokens;
        most += answer->prompt_tokens - answer->cached_tokens + again;
        most += endpoint->server.mixed_passes ? answer->output_count : 0;
    }
    foreign_receive(&endpoint->foreign, least, most);
}

/* ---- requests ---- */

static enum error_code flush_once(struct endpoint *endpoint, struct error *err)
{
    struct server_request request;
    struct transfer_result result;
    struct buffer body;
    buffer_init(&body);
    generate_build_flush(FLUSH_S, &request);
    enum error_code code =
        carry_asking(endpoint, &request, (FLUSH_S + 15) * 1000, INFO_MAX, look_and_ask, endpoint, &body, &result, err);
    if (code == ERROR_NONE && !generate_flushed(result.status, result.body, result.length, err))
        code = name_answer(endpoint, ERROR_SERVER, err);
    server_request_fini(&request);
    buffer_fini(&body);
    return code;
}

/* A flush was refused for as long as is waited. */
static enum error_code name_busy(struct endpoint *endpoint, struct error *err)
{
    struct server_answer load;
    ask_load(endpoint, &load);
    if (load.requests == 0)
        return ERROR_SERVER;
    error_set(err, ERROR_INCOMPLETE,
              "somebody else uses the server: %" PRIu64 " requests run or wait while none of ours does, and so its "
              "cache cannot be flushed; measure again while nobody else uses it",
              load.requests);
    return name_answer(endpoint, ERROR_INCOMPLETE, err);
}

enum error_code endpoint_flush(struct endpoint *endpoint, struct error *err)
{
    int64_t end_ms = now_ms() + FLUSH_S * 1000;
    for (;;) {
        enum error_code code = flush_once(endpoint, err);
        if (code == ERROR_NONE)
            settle(endpoint);
        if (code != ERROR_SERVER || !look_and_ask(endpoint))
            return code;
        if (now_ms() >= end_ms)
            return name_busy(endpoint, err);
        (void)poll(NULL, 0, FLUSH_AGAIN_MS);
    }
}

enum error_code endpoint_takes(const struct endpoint *endpoint, const int64_t *ids, size_t length, unsigned new_tokens,
                               struct error *err)
{
    const struct generate_server *server = &endpoint->server;
    if (length == 0)
        return error_set(err, ERROR_BAD_VALUE, "it is empty");
    for (size_t k = 0; ids != NULL && server->vocabulary != 0 && k < length; k++)
        if (ids[k] < 0 || (uint64_t)ids[k] >= server->vocabulary)
            return error_set(err, ERROR_BAD_VALUE,
                             "id %" PRId64 " at position %zu; expected one below %" PRIu64
                             ", the size of the vocabulary: the server would die of it",
                             ids[k], k, server->vocabulary);
    if (server->context_length != 0 && length + new_tokens > server->context_length)
        return error_set(err, ERROR_BAD_VALUE, "%zu ids and %u new tokens do not fit the context of %" PRIu64 " tokens",
                         length, new_tokens, server->context_length);
    if (server->input_limit != 0 && length >= server->input_limit)
        return error_set(err, ERROR_BAD_VALUE,
                         "%zu ids; the server takes less than %" PRIu64 " (max_req_input_len: its context and KV pool)",
                         length, server->input_limit);
    return ERROR_NONE;
}

enum error_code endpoint_generate(struct endpoint *endpoint, const struct generate_request *request,
                                  struct generate_answers *ret_answers, struct error *err)
{
    struct generate_request known = *request;
    struct server_request built;
    struct transfer_result result;
    struct buffer body;
    known.vocabulary = endpoint->server.vocabulary;
    for (size_t i = 0; i < request->count; i++) {
        enum error_code code =
            endpoint_takes(endpoint, request->prompts[i].ids, request->prompts[i].length, request->new_tokens, err);
        if (code != ERROR_NONE) {
            error_prefix(err, "prompt %zu", i);
            return code;
        }
    }
    buffer_init(&body);
    generate_build(&known, &built);
    endpoint->looked_ms = now_ms();
    foreign_send(&endpoint->foreign, request->count);
    enum error_code code =
        carry_asking(endpoint, &built, GENERATE_MS, TRANSFER_BODY_MAX, look_and_ask, endpoint, &body, &result, err);
    server_request_fini(&built);
    if (code == ERROR_NONE)
        code = name_answer(endpoint, generate_read(&known, result.status, result.body, result.length, ret_answers, err),
                           err);
    if (code == ERROR_NONE)
        receive(endpoint, ret_answers);
    buffer_fini(&body);
    return code;
}

static enum error_code tokenize(const struct endpoint *endpoint, const char *text, int64_t **ret_ids, size_t *ret_count,
                                struct error *err)
{
    struct server_request request;
    struct transfer_result result;
    struct buffer body;
    buffer_init(&body);
    generate_build_tokenize(text, &request);
    enum error_code code = carry(endpoint, &request, INFO_MS, TRANSFER_BODY_MAX, &body, &result, err);
    server_request_fini(&request);
    if (code == ERROR_NONE) {
        code = generate_read_tokenize(result.status, result.body, result.length, ret_ids, ret_count, err);
        if (code != ERROR_NONE) /* of any code: ERROR_SERVER is a server without a tokenizer */
            error_prefix(err, "%.80s at %.100s", endpoint->name, endpoint->url);
    }
    buffer_fini(&body);
    return code;
}

enum error_code endpoint_tokenize(struct endpoint *endpoint, struct prompts *prompts, struct error *err)
{
    for (size_t i = 0; i < prompts->count; i++) {
        if (prompts->items[i].ids != NULL)
            continue;
        enum error_code code =
            tokenize(endpoint, prompts->items[i].text, &prompts->items[i].ids, &prompts->items[i].length, err);
        if (code != ERROR_NONE) {
            error_prefix(err, "prompt %zu", i);
            return code;
        }
    }
    prompts_hash(prompts);
    return ERROR_NONE;
}

enum error_code endpoint_check(struct endpoint *endpoint, struct error *err)
{
    struct generate_server later = {0};
    char *note = NULL;
    enum error_code code = ask_server(endpoint, &later, &note, err);
    if (code == ERROR_NONE)
        code = name_answer(endpoint, generate_server_same(&endpoint->server, &later, err), err);
    if (code == ERROR_NONE)
        settle(endpoint);
    generate_server_fini(&later);
    free(note);
    return code;
}
