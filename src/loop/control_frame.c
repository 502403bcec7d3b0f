/* Requests and answers of the control protocol: strict reading, the method table, the error object. */
#include "base/memory.h"
#include "base/text.h"
#include "json/json.h"
#include "loop/control_private.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ID_TEXT_MAX = 64, PARSE_ERROR = -32700, INVALID_REQUEST = -32600, NO_METHOD = -32601, BAD_PARAMETERS = -32602 };
enum { OWN_ERROR = -32000 };

static const struct {
    const char *name;
    const char *parameters; /* "[run], experiment, [hold]": those without brackets must be there */
} methods[] = {
#define X(constant, name, answers, access, parameters, text) {name, parameters},
#include "core/methods.def"
#undef X
};

/* -- answers -- */

static struct json *make_answer(struct json *id)
{
    struct json *answer = json_object();
    json_set_string(answer, "jsonrpc", "2.0");
    if (id != NULL)
        json_set_child(answer, "id", id);
    else
        json_set_null(answer, "id");
    return answer;
}

/* Takes `id` (NULL: null) over. */
static void send_error(struct control_connection *connection, struct json *id, int code, const struct error *problem)
{
    struct json *answer = make_answer(id);
    struct json *error = json_set_object(answer, "error");
    json_set_i64(error, "code", code);
    json_set_string(error, "message", problem->message);
    struct json *data = json_set_object(error, "data");
    json_set_string(data, "error", error_name(problem->code));
    json_set_i64(data, "status", error_status(problem->code));
    struct buffer line;
    buffer_init(&line);
    json_print(answer, &line);
    json_free(answer);
    control_send(connection, &line);
    buffer_fini(&line);
}

/* Takes `id` and `result` over. */
static void send_result(struct control_connection *connection, struct json *id, struct json *result)
{
    struct json *answer = make_answer(id);
    json_set_child(answer, "result", result);
    struct buffer line;
    buffer_init(&line);
    json_print(answer, &line);
    if (line.length <= CONTROL_FRAME_MAX) {
        control_send(connection, &line);
    } else {
        struct error problem;
        error_set(&problem, ERROR_TOO_LARGE, "the answer would have %zu bytes, more than the limit of %d; ask for less",
                  line.length, CONTROL_FRAME_MAX);
        send_error(connection, json_copy(json_member(answer, "id")), OWN_ERROR, &problem);
    }
    json_free(answer);
    buffer_fini(&line);
}

void control_send_problem(struct control_connection *connection, int code, enum error_code error, const char *message)
{
    struct error problem;
    error_set(&problem, error, "%s", message);
    send_error(connection, NULL, code, &problem);
}

/* -- requests that wait for their answer -- */

void control_orphan_pending(struct control_connection *connection)
{
    struct control_pending *pending = connection->pending;
    connection->pending = NULL;
    while (pending != NULL) {
        struct control_pending *next = pending->next;
        pending->request.connection = NULL;
        pending->next = NULL;
        pending = next;
    }
}

/* Ends the request; returns its id where somebody waits for the answer, else NULL. */
static struct json *finish(struct control_request *request, struct control_connection **ret_connection)
{
    struct control_pending *pending = (struct control_pending *)request;
    struct control_connection *connection = request->connection;
    struct json *id = pending->id;
    if (connection != NULL) {
        struct control_pending **link = &connection->pending;
        while (*link != pending)
            link = &(*link)->next;
        *link = pending->next;
        connection->outstanding--;
    }
    json_free(pending->message);
    control_account_change(pending->peer->account, pending->bytes, 0);
    control_peer_drop(pending->peer);
    free(pending);
    if (connection == NULL || connection->closing) {
        json_free(id);
        return NULL;
    }
    *ret_connection = connection;
    return id;
}

void control_reply(struct control_request *request, struct json *result)
{
    struct control_connection *connection = NULL;
    struct json *id = finish(request, &connection);
    if (id != NULL)
        send_result(connection, id, result);
    else
        json_free(result);
}

void control_fail(struct control_request *request, const struct error *problem)
{
    struct control_connection *connection = NULL;
    struct json *id = finish(request, &connection);
    if (id != NULL)
        send_error(connection, id, OWN_ERROR, problem);
}

void control_refuse(struct control_request *request, enum error_code code, const char *format, ...)
{
    struct error problem = ERROR_INIT;
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(problem.message, sizeof problem.message, format, arguments);
    va_end(arguments);
    problem.code = code;
    control_fail(request, &problem);
}

/* -- reading a request -- */

struct parameter {
    const char *name;
    size_t length;
    bool required;
};

/* Steps through a list such as "[run], experiment, [hold]"; false at its end. */
static bool next_parameter(const char **list, struct parameter *ret_parameter)
{
    const char *at = *list + strspn(*list, ", ");
    if (*at == '\0')
        return false;
    bool required = *at != '[';
    at += !required;
    size_t length = strcspn(at, ",] ");
    *ret_parameter = (struct parameter){at, length, required};
    *list = at + length + !required;
    return true;
}

static bool is_parameter(const char *list, const char *name)
{
    struct parameter parameter;
    while (next_parameter(&list, &parameter))
        if (strlen(name) == parameter.length && memcmp(name, parameter.name, parameter.length) == 0)
            return true;
    return false;
}

static enum error_code check_parameters(enum control_method method, const struct json *parameters, struct error *err)
{
    if (json_type(parameters) != JSON_OBJECT)
        return error_set(err, ERROR_PROTOCOL, "%s: params must be an object", methods[method].name);
    for (const struct json *member = json_first(parameters); member != NULL; member = json_next(member))
        if (!is_parameter(methods[method].parameters, json_key(member)))
            return error_set(err, ERROR_PROTOCOL, "%s has no parameter \"%.64s\"; it takes: %s", methods[method].name,
                             json_key(member), methods[method].parameters);
    const char *list = methods[method].parameters;
    struct parameter parameter;
    while (next_parameter(&list, &parameter)) {
        char name[64];
        snprintf(name, sizeof name, "%.*s", (int)parameter.length, parameter.name);
        if (parameter.required && json_type(json_member(parameters, name)) == JSON_NULL)
            return error_set(err, ERROR_PROTOCOL, "%s needs the parameter \"%s\"", methods[method].name, name);
    }
    return ERROR_NONE;
}

static bool id_is_right(const struct json *id)
{
    int64_t number;
    const char *text;
    if (json_type(id) == JSON_NUMBER)
        return json_get_i64(id, "", &number, NULL) == ERROR_NONE;
    return json_get_string(id, "", &text, NULL) == ERROR_NONE && strlen(text) <= ID_TEXT_MAX;
}

static bool has_only_known_members(const struct json *message)
{
    static const char *const known[] = {"jsonrpc", "id", "method", "params"};
    for (const struct json *member = json_first(message); member != NULL; member = json_next(member)) {
        bool found = false;
        for (size_t i = 0; i < sizeof known / sizeof known[0]; i++)
            found |= strcmp(json_key(member), known[i]) == 0;
        if (!found)
            return false;
    }
    return true;
}

static enum error_code check_envelope(const struct json *message, struct error *err)
{
    const char *text;
    if (json_type(message) != JSON_OBJECT || !has_only_known_members(message))
        return error_set(err, ERROR_PROTOCOL, "a request is an object with jsonrpc, id, method and params");
    if (json_type(json_member(message, "jsonrpc")) != JSON_STRING ||
        json_get_string(message, "jsonrpc", &text, NULL) != ERROR_NONE || strcmp(text, "2.0") != 0)
        return error_set(err, ERROR_PROTOCOL, "jsonrpc must be \"2.0\"");
    if (!id_is_right(json_member(message, "id")))
        return error_set(err, ERROR_PROTOCOL, "id must be an integer or a text of at most %d bytes", ID_TEXT_MAX);
    if (json_type(json_member(message, "method")) != JSON_STRING)
        return error_set(err, ERROR_PROTOCOL, "method must be a text");
    return ERROR_NONE;
}

static enum control_method find_method(const struct json *message)
{
    const char *name = "";
    json_get_string(message, "method", &name, NULL);
    for (int i = 0; i < CONTROL_METHODS; i++)
        if (strcmp(methods[i].name, name) == 0)
            return (enum control_method)i;
    return CONTROL_METHODS;
}

/* On whose behalf: believed only of those who may do everything here anyway. */
static enum error_code read_by(struct control_connection *connection, const struct json *message, struct error *err)
{
    const char *by;
    struct control_peer *peer = connection->peer;
    enum error_code code = json_optional_string(message, "params.by", NULL, &by, err);
    if (code != ERROR_NONE || by == NULL)
        return code;
    if (peer->uid != 0 && peer->uid != connection->server->options.owner)
        return error_set(err, ERROR_FORBIDDEN, "hello's \"by\" is taken from root and from user %u alone",
                         (unsigned)connection->server->options.owner);
    char clean[CONTROL_BY_MAX + 1];
    if (strlen(by) > CONTROL_BY_MAX || strcmp(text_clean(by, strlen(by), clean, sizeof clean), by) != 0)
        return error_set(err, ERROR_BAD_VALUE, "hello's \"by\" must be at most %d bytes without control characters",
                         CONTROL_BY_MAX);
    peer->by = memory_copy(by);
    return ERROR_NONE;
}

static enum error_code read_hello(struct control_connection *connection, const struct json *message, struct error *err)
{
    uint64_t version = 0;
    const char *program = connection->server->options.program;
    enum error_code code = json_get_u64(message, "params.version", &version, err);
    if (code == ERROR_NONE && version != CONTROL_VERSION)
        return error_set(err, ERROR_PROTOCOL,
                         "version %llu of the control protocol was asked for and %s speaks version %d; use kldumpctl "
                         "and %s of the same kldump release",
                         (unsigned long long)version, program, CONTROL_VERSION, program);
    return code == ERROR_NONE ? read_by(connection, message, err) : code;
}

static void answer_hello(struct control_connection *connection, const struct json *message)
{
    struct error problem = ERROR_INIT;
    struct json *id = json_copy(json_member(message, "id"));
    if (read_hello(connection, message, &problem) != ERROR_NONE) {
        send_error(connection, id, OWN_ERROR, &problem);
        control_end(connection);
        return;
    }
    connection->accepted = true;
    struct json *result = json_object();
    json_set_u64(result, "version", CONTROL_VERSION);
    json_set_string(result, "program", connection->server->options.program);
    if (connection->server->options.run != NULL)
        json_set_string(result, "run", connection->server->options.run);
    send_result(connection, id, result);
}

/* Takes `message` over. */
static void hand_over(struct control_connection *connection, enum control_method method, struct json *message)
{
    struct control_pending *pending = memory_new(sizeof *pending);
    pending->message = message;
    pending->id = json_copy(json_member(message, "id"));
    pending->request.method = method;
    pending->request.parameters = json_member(message, "params");
    struct control_peer *peer = connection->peer;
    peer->references++;
    pending->peer = peer;
    pending->bytes = sizeof *pending + json_memory(message);
    control_account_change(peer->account, 0, pending->bytes);
    pending->request.uid = peer->uid;
    pending->request.pid = peer->pid;
    pending->request.gid = peer->gid;
    pending->request.groups = peer->groups;
    pending->request.group_count = peer->group_count;
    pending->request.by = peer->by;
    pending->request.connection = connection;
    pending->next = connection->pending;
    connection->pending = pending;
    connection->outstanding++;
    const struct control_options *options = &connection->server->options;
    options->handlers[method](&pending->request, options->user);
}

/* What is wrong with the request, in the order in which one would look: 0, or the code of JSON-RPC. */
static int check(struct control_connection *connection, struct json *message, enum control_method *ret_method,
                 struct error *err)
{
    if (check_envelope(message, err) != ERROR_NONE)
        return INVALID_REQUEST;
    const char *name = "";
    json_get_string(message, "method", &name, NULL);
    enum control_method method = find_method(message);
    if (!connection->accepted && method != CONTROL_HELLO) {
        error_set(err, ERROR_PROTOCOL, "the first request must be hello with {\"version\":%d}", CONTROL_VERSION);
        return INVALID_REQUEST;
    }
    if (connection->accepted && method == CONTROL_HELLO) {
        error_set(err, ERROR_PROTOCOL, "hello was said already");
        return INVALID_REQUEST;
    }
    const struct control_options *options = &connection->server->options;
    if (method == CONTROL_METHODS || (method != CONTROL_HELLO && options->handlers[method] == NULL)) {
        error_set(err, ERROR_PROTOCOL, "%s does not answer the method \"%.64s\"", options->program, name);
        return NO_METHOD;
    }
    if (json_member(message, "params") == NULL)
        json_set_object(message, "params");
    if (check_parameters(method, json_member(message, "params"), err) != ERROR_NONE)
        return BAD_PARAMETERS;
    if (connection->outstanding >= CONTROL_OUTSTANDING) {
        error_set(err, ERROR_BUSY, "%d requests of this connection wait for their answer already", CONTROL_OUTSTANDING);
        return OWN_ERROR;
    }
    size_t bytes = json_memory(message);
    if (control_account_check(connection->peer->account, bytes, bytes, err) != ERROR_NONE)
        return OWN_ERROR;
    *ret_method = method;
    return 0;
}

void control_take_frame(struct control_connection *connection, const char *line, size_t length)
{
    struct error problem = ERROR_INIT;
    struct json *message = NULL;
    static const struct json_limits limits = {CONTROL_FRAME_MAX, JSON_DEPTH, CONTROL_REQUEST_VALUES};
    if (json_parse(line, length, limits, &message, &problem) != ERROR_NONE) {
        error_prefix(&problem, "a request is one line of JSON");
        if (problem.code != ERROR_TOO_LARGE)
            problem.code = ERROR_PROTOCOL;
        send_error(connection, NULL, PARSE_ERROR, &problem);
        if (!connection->accepted)
            control_end(connection);
        return;
    }
    enum control_method method;
    int code = check(connection, message, &method, &problem);
    if (code == 0 && method != CONTROL_HELLO) {
        hand_over(connection, method, message);
        return;
    }
    if (code == 0) {
        answer_hello(connection, message);
    } else {
        const struct json *id = json_member(message, "id");
        send_error(connection, id_is_right(id) ? json_copy(id) : NULL, code, &problem);
        if (!connection->accepted)
            control_end(connection);
    }
    json_free(message);
}
