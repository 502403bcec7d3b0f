/* routes.c: see routes.h. Answers: SGLang 0.5.23, live. */
#include "routes.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "bad_answer.h"
#include "faults.h"
#include "generate.h"
#include "knobs.h"
#include "log.h"
#include "server.h"
#include "server_info.h"
#include "text.h"
#include "version.h"

static bool health_runs_a_pass = true;
static bool has_dumper_route;

bool routes_init(void)
{
    static const char *const YES[] = {"true", "1", "yes", "y"}, *const NO[] = {"false", "0", "no", "n"};
    const char *port = getenv("DUMPER_SERVER_PORT");
    has_dumper_route = version_rules()->has_hooks && port != NULL && strcmp(port, "reuse") == 0;
    const char *value = getenv("SGLANG_ENABLE_HEALTH_ENDPOINT_GENERATION");
    if (value == NULL || value[0] == '\0')
        return true;
    for (size_t i = 0; i < 4; i++) {
        if (strcasecmp(value, YES[i]) == 0)
            return true;
        if (strcasecmp(value, NO[i]) == 0) {
            health_runs_a_pass = false;
            return true;
        }
    }
    fprintf(stderr, "ValueError: \"%s\" is not a valid boolean value\n", value);
    return false;
}

void routes_json(struct http_response *response, int status, cJSON *json)
{
    char *printed = cJSON_PrintUnformatted(json);
    response->status = status;
    response->content_type = "application/json";
    text_string(&response->body, printed != NULL ? printed : "null");
    free(printed);
    cJSON_Delete(json);
}

static void plain(struct http_response *response, int status, const char *json)
{
    response->status = status;
    response->content_type = json[0] != '\0' ? "application/json" : NULL;
    text_string(&response->body, json);
}

/* ------------------------------------------------------------------ handlers */

static void ping(const struct http_request *request, struct http_response *response)
{
    (void)request;
    bool waits = version_rules()->ping_waits;
    enum server_status status = server_status();
    plain(response, status == SERVER_UP || (!waits && status == SERVER_STARTING) ? 200 : 503, "");
}

static void ready(const struct http_request *request, struct http_response *response)
{
    (void)request;
    plain(response, server_status() == SERVER_UP ? 200 : 503, "");
}

static void health(const struct http_request *request, struct http_response *response)
{
    bool pass = health_runs_a_pass || strcmp(request->path, "/health_generate") == 0;
    if (server_status() == SERVER_UP && pass) {
        double begun = knobs_seconds();
        generate_probe();
        /* The real one looks once a second whether something came back. */
        knobs_sleep_ms(1000 - (long)((knobs_seconds() - begun) * 1000));
    }
    plain(response, server_status() == SERVER_UP ? 200 : 503, "");
}

static void deprecated(const struct http_request *request, const char *now)
{
    if (strncmp(request->path, "/get_", 5) == 0)
        log_line("Endpoint '%s' is deprecated and will be removed in a future version. Please use '%s' instead.",
                 request->path, now);
}

static void model_info(const struct http_request *request, struct http_response *response)
{
    deprecated(request, "/model_info");
    routes_json(response, 200, server_info_model());
}

static void server_info(const struct http_request *request, struct http_response *response)
{
    deprecated(request, "/server_info");
    routes_json(response, 200, server_info_server());
}

/* What loads other weights tells their name here; nothing else changes by it. */
static void update_weight_version(const struct http_request *request, struct http_response *response)
{
    cJSON *body = cJSON_Parse(request->body.data != NULL ? request->body.data : "");
    const char *version = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(body, "new_version"));
    cJSON *answer = cJSON_CreateObject();
    cJSON_AddBoolToObject(answer, "success", version != NULL);
    if (version != NULL)
        server_info_set_weights(version);
    routes_json(response, version != NULL ? 200 : 400, answer);
    cJSON_Delete(body);
}

static void models(const struct http_request *request, struct http_response *response)
{
    (void)request;
    routes_json(response, 200, server_info_models());
}

static void loads(const struct http_request *request, struct http_response *response)
{
    (void)request;
    static _Atomic long answered;
    cJSON *found = server_info_loads();
    if (faults_on(FAULTS_LATE_LOADS) && answered++ < faults_number(FAULTS_LATE_LOADS))
        cJSON_ReplaceItemInObject(found, "loads", cJSON_CreateArray());
    routes_json(response, 200, found);
}

static void root(const struct http_request *request, struct http_response *response)
{
    (void)request;
    plain(response, 200, "\"SGLang is running\"");
}

static void freeze_gc(const struct http_request *request, struct http_response *response)
{
    (void)request;
    plain(response, 200, "\"Garbage collection frozen.\"");
}

static bool flush_once(void)
{
    cJSON *message = cJSON_CreateObject();
    cJSON_AddStringToObject(message, "op", "flush");
    cJSON *reply = server_ask_all(message);
    bool done = cJSON_IsTrue(cJSON_GetObjectItemCaseSensitive(reply, "ok"));
    cJSON_Delete(reply);
    return done;
}

static void flush_cache(const struct http_request *request, struct http_response *response)
{
    double timeout = 0, begun = knobs_seconds();
    const char *given = strstr(request->query, "timeout=");
    if (given != NULL)
        timeout = strtod(given + 8, NULL);
    bool done = flush_once();
    while (!done && knobs_seconds() - begun < timeout) {
        knobs_sleep_ms(10);
        done = flush_once();
    }
    response->status = done ? 200 : 400;
    text_string(&response->body, done          ? "Cache flushed."
                                 : timeout > 0 ? "Timed out waiting for idle state."
                                               : "Flush cache failed.");
    text_string(&response->body, "\nPlease check backend logs for more details. (When there are running or waiting "
                                 "requests, the operation will not be performed.)\n");
}

/* ------------------------------------------------------------------ the dumper */

static void dumper_malformed(struct http_response *response)
{
    log_line("ERROR:    Exception in ASGI application\nTraceback (most recent call last):\n"
             "orjson.JSONDecodeError: unexpected character, expected a string key: line 1 column 2 (char 1)");
    response->status = 500;
    response->content_type = "text/plain; charset=utf-8";
    text_string(&response->body, "Internal Server Error");
}

static void dumper_answer(struct http_response *response, cJSON *reply)
{
    cJSON *errors = cJSON_DetachItemFromObjectCaseSensitive(reply, "errors");
    if (errors != NULL) {
        cJSON *json = cJSON_CreateObject();
        cJSON_AddItemToObject(json, "error", errors); /* one text per data-parallel replica */
        routes_json(response, 400, json);
    } else {
        routes_json(response, 200, cJSON_DetachItemFromObjectCaseSensitive(reply, "answer"));
    }
    cJSON_Delete(reply);
}

static void dumper(const struct http_request *request, struct http_response *response)
{
    cJSON *body = request->body.length > 0 ? cJSON_Parse(request->body.data) : cJSON_CreateObject();
    if (body == NULL) {
        dumper_malformed(response);
        return;
    }
    if (!cJSON_IsObject(body)) {
        cJSON_Delete(body);
        if (version_rules()->body_must_be_object)
            plain(response, 400, "{\"error\":\"Request body must be a JSON object.\"}");
        else
            plain(response, 400, "{\"error\":[\"argument after ** must be a mapping\"]}");
        return;
    }
    cJSON *message = cJSON_CreateObject();
    if (cJSON_HasObjectItem(body, "enable"))
        bad_answer_dumping(cJSON_IsTrue(cJSON_GetObjectItemCaseSensitive(body, "enable")));
    cJSON_AddStringToObject(message, "op", "control");
    cJSON_AddStringToObject(message, "method", request->path + strlen("/dumper/"));
    cJSON_AddItemToObject(message, "body", body);
    dumper_answer(response, server_ask_all(message));
}

/* ------------------------------------------------------------------ the table */

enum level { LEVEL_OPEN, LEVEL_USER, LEVEL_ADMIN };

struct route {
    const char *path; /* one that ends in / stands for one more part of any name */
    const char *methods;
    enum level level;
    http_handler *handler;
    bool (*exists)(void); /* NULL: always */
};

static bool ready_exists(void)
{
    return version_rules()->has_ready;
}

static bool dumper_exists(void)
{
    return has_dumper_route;
}

static const struct route ROUTES[] = {
    {"/", "GET", LEVEL_USER, root, NULL},
    {"/ping", "GET", LEVEL_USER, ping, NULL},
    {"/ready", "GET", LEVEL_USER, ready, ready_exists},
    {"/health", "GET", LEVEL_OPEN, health, NULL},
    {"/health_generate", "GET", LEVEL_OPEN, health, NULL},
    {"/model_info", "GET", LEVEL_USER, model_info, NULL},
    {"/get_model_info", "GET", LEVEL_USER, model_info, NULL},
    {"/server_info", "GET", LEVEL_USER, server_info, NULL},
    {"/get_server_info", "GET", LEVEL_USER, server_info, NULL},
    {"/v1/models", "GET", LEVEL_USER, models, NULL},
    {"/v1/loads", "GET", LEVEL_USER, loads, NULL},
    {"/update_weight_version", "POST", LEVEL_ADMIN, update_weight_version, NULL},
    {"/generate", "PUT, POST", LEVEL_USER, generate_handle, NULL},
    {"/flush_cache", "GET, POST", LEVEL_ADMIN, flush_cache, NULL},
    {"/freeze_gc", "GET, POST", LEVEL_USER, freeze_gc, NULL},
    {"/dumper/", "POST", LEVEL_ADMIN, dumper, dumper_exists},
};
enum { ROUTE_COUNT = sizeof ROUTES / sizeof ROUTES[0] };

static const struct route *find_route(const char *path)
{
    for (size_t i = 0; i < ROUTE_COUNT; i++) {
        const char *pattern = ROUTES[i].path;
        size_t length = strlen(pattern);
        bool open_ended = length > 1 && pattern[length - 1] == '/';
        bool found = open_ended ? strncmp(path, pattern, length) == 0 && path[length] != '\0' &&
                                      strchr(path + length, '/') == NULL
                                : strcmp(path, pattern) == 0;
        if (found && (ROUTES[i].exists == NULL || ROUTES[i].exists()))
            return &ROUTES[i];
    }
    return NULL;
}

static bool has_method(const char *methods, const char *method)
{
    const char *at = strstr(methods, method);
    size_t length = strlen(method);
    return at != NULL && (at == methods || at[-1] == ' ') && (at[length] == '\0' || at[length] == ',');
}

static bool has_key(const struct http_request *request, const char *key)
{
    return strncasecmp(request->authorization, "Bearer ", 7) == 0 && strcmp(request->authorization + 7, key) == 0;
}

/* With an admin key its routes take that one alone. Unknown paths are asked for the key too. */
static bool allowed(const struct http_request *request, const struct route *route)
{
    const struct arguments *arguments = server_arguments();
    if (strncmp(request->path, "/health", 7) == 0 || strncmp(request->path, "/metrics", 8) == 0)
        return true;
    bool admin = (route != NULL && route->level == LEVEL_ADMIN) || strncmp(request->path, "/dumper/", 8) == 0;
    if (admin && arguments->admin_api_key != NULL)
        return has_key(request, arguments->admin_api_key);
    return arguments->api_key == NULL || has_key(request, arguments->api_key);
}

static bool redirect(const struct http_request *request, struct http_response *response)
{
    char path[2048];
    size_t length = strlen(request->path);
    if (length < 2 || request->path[length - 1] != '/')
        return false;
    snprintf(path, sizeof path, "%.*s", (int)length - 1, request->path);
    if (find_route(path) == NULL)
        return false;
    snprintf(response->header, sizeof response->header, "location: http://%.200s%.200s", request->host, path);
    response->status = 307;
    return true;
}

void routes_handle(const struct http_request *request, struct http_response *response)
{
    const struct route *route = find_route(request->path);
    if (!allowed(request, route)) {
        plain(response, 401, "{\"error\":\"Unauthorized\"}");
    } else if (route == NULL) {
        if (!redirect(request, response))
            plain(response, 404, "{\"detail\":\"Not Found\"}");
    } else if (!has_method(route->methods, request->method)) {
        snprintf(response->header, sizeof response->header, "allow: %s", route->methods);
        plain(response, 405, "{\"detail\":\"Method Not Allowed\"}");
    } else if (!bad_answer_give(request, server_status() == SERVER_UP, response)) {
        route->handler(request, response);
    }
}
