#include "sglang/answers.h"

#include "base/text.h"
#include "json/json.h"
#include "sglang/info.h"

#include <ctype.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum { BODY_MAX = 8 << 20 }; /* server_info is 37 kB in 0.5.23 */

/* Always returns false, so that `return problem(...)` reads well. */
static bool problem(struct server_answer *answer, const char *format, ...) __attribute__((format(printf, 2, 3)));

static bool problem(struct server_answer *answer, const char *format, ...)
{
    char text[sizeof answer->problem * 2];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    text_clean(text, strlen(text), answer->problem, sizeof answer->problem);
    return false;
}

/* dumper.py and http_server.py have several forms of saying no. */
const char *answers_error_text(const struct json *json)
{
    static const char *const paths[] = {"error.0", "error", "error.message", "message", "detail"};
    const char *text = NULL;
    for (size_t i = 0; i < sizeof paths / sizeof paths[0]; i++)
        if (json_get_string(json, paths[i], &text, NULL) == ERROR_NONE)
            return text;
    return NULL;
}

static bool refused(enum server_question question, int status, const char *body, size_t length,
                    struct server_answer *answer)
{
    struct json *json = NULL;
    const char *text = NULL;
    bool control = question == SERVER_STATE || question == SERVER_ENABLE || question == SERVER_DISABLE;
    if (json_parse(body, length, (struct json_limits){BODY_MAX, JSON_DEPTH, JSON_ANY_VALUES}, &json, NULL) ==
        ERROR_NONE)
        text = answers_error_text(json);
    if (status == 401)
        problem(answer, "HTTP 401: the server wants another key than the one in CMD's %s",
                control ? "--admin-api-key or --api-key" : "--api-key");
    else if (status == 404 && control)
        problem(answer,
                "HTTP 404: the server has no dumper control: DUMPER_SERVER_PORT was not 'reuse' when it started");
    else if (status == 503 && question == SERVER_HEALTH)
        problem(answer, "HTTP 503: not ready yet, shutting down, or found unhealthy by the server itself");
    else if (status >= 300 && status < 400)
        problem(answer,
                "HTTP %d, a redirect: SGLang sends none, so another program answers; give CMD a --port of its own",
                status);
    else if (text != NULL)
        problem(answer, "HTTP %d: %s", status, text);
    else if (length != 0 && json == NULL)
        problem(answer, "HTTP %d: %.*s", status, (int)(length < 160 ? length : 160), body);
    else
        problem(answer, "HTTP %d", status);
    json_free(json);
    return false;
}

/* The dumper's settings that must hold on every rank; the answer has more and grows with each release. */
static const struct {
    const char *path;
    enum json_type type;
    const char *text; /* of a string; of a boolean: "true" or "false" */
    bool optional;    /* may be missing: it came later or goes some day */
} state_rows[] = {
    {"config.non_intrusive_mode", JSON_STRING, "all", false},
    {"config.server_port", JSON_STRING, "reuse", false},
    {"config.enable_output_file", JSON_BOOL, "true", false},
    {"config.enable_value", JSON_BOOL, "true", false},
    {"config.enable_output_console", JSON_BOOL, "false", false},
    {"config.cleanup_previous", JSON_BOOL, "false", true},
    {"config.include_parallel_rank_in_filename", JSON_BOOL, "false", true},
};

static void show_value(const struct json *value, char *out, size_t size)
{
    struct buffer text;
    buffer_init(&text);
    json_print(value, &text);
    text_clean(text.data, text.length, out, size);
    buffer_fini(&text);
}

static bool holds(const struct json *value, enum json_type type, const char *expected)
{
    const char *text = NULL;
    bool yes = false;
    if (json_type(value) != type)
        return false;
    if (type == JSON_STRING)
        return json_get_string(value, "", &text, NULL) == ERROR_NONE && strcmp(text, expected) == 0;
    if (type == JSON_BOOL)
        return json_get_bool(value, "", &yes, NULL) == ERROR_NONE && yes == (expected[0] == 't');
    return true;
}

void answers_name_variable(const char *said, char *ret_text, size_t size)
{
    snprintf(ret_text, size, "DUMPER_%s", said);
    for (char *p = ret_text; *p != '\0' && *p != ' '; p++)
        *p = (char)toupper((unsigned char)*p);
}

static void wrong_setting(struct server_answer *answer, uint32_t rank, const char *name, const struct json *value,
                          const char *expected)
{
    char shown[80];
    if (answer->wrong_setting[0] != '\0')
        return;
    show_value(value, shown, sizeof shown);
    answers_name_variable(name, answer->setting, sizeof answer->setting);
    snprintf(answer->wrong_setting, sizeof answer->wrong_setting, "%s is %s on rank %u; expected %s", name,
             value != NULL ? shown : "missing", (unsigned int)rank, expected);
}

static void check_settings(const struct json *entry, const struct json *first, uint32_t rank,
                           struct server_answer *answer)
{
    for (size_t i = 0; i < sizeof state_rows / sizeof state_rows[0]; i++) {
        const struct json *value = json_find(entry, state_rows[i].path);
        if (!(value == NULL && state_rows[i].optional) && !holds(value, state_rows[i].type, state_rows[i].text))
            wrong_setting(answer, rank, strrchr(state_rows[i].path, '.') + 1, value, state_rows[i].text);
    }
    const char *directory = NULL, *first_directory = NULL;
    const struct json *value = json_find(entry, "config.dir");
    if (json_get_string(value, "", &directory, NULL) != ERROR_NONE || directory[0] != '/')
        wrong_setting(answer, rank, "dir", value, "an absolute path");
    else if (rank == 0)
        text_clean(directory, strlen(directory), answer->directory, sizeof answer->directory);
    else if (json_get_string(first, "config.dir", &first_directory, NULL) == ERROR_NONE &&
             strcmp(directory, first_directory) != 0) {
        answer->elsewhere = true;
        wrong_setting(answer, rank, "dir", value, "the folder of rank 0");
    }
}

static void read_filter(const struct json *entry, uint32_t rank, struct server_answer *answer)
{
    const struct json *value = json_find(entry, "config.filter");
    const char *text = "";
    char shown[sizeof answer->filter];
    if (value != NULL && json_type(value) != JSON_NULL && json_get_string(value, "", &text, NULL) != ERROR_NONE)
        wrong_setting(answer, rank, "filter", value, "a text or null");
    text_clean(text, strlen(text), shown, sizeof shown);
    if (rank == 0)
        text_copy(answer->filter, sizeof answer->filter, shown);
    else if (strcmp(answer->filter, shown) != 0)
        wrong_setting(answer, rank, "filter", value, "the one of rank 0");
}

static bool read_state(const struct json *json, struct server_answer *answer)
{
    struct error err = ERROR_INIT;
    size_t count = json_count(json);
    if (json_type(json) != JSON_ARRAY || count == 0 || count > SERVER_RANKS_MAX)
        return problem(answer, "get_state: expected a list of 1 to %d ranks", SERVER_RANKS_MAX);
    uint32_t rank = 0;
    for (const struct json *entry = json_first(json); entry != NULL; entry = json_next(entry), rank++) {
        struct server_rank *found = &answer->rank[rank];
        const char *experiment = "";
        if (json_get_u64(entry, "dump_index", &found->dump_index, &err) != ERROR_NONE ||
            json_get_u64(entry, "step", &found->step, &err) != ERROR_NONE ||
            json_get_bool(entry, "config.enable", &found->enabled, &err) != ERROR_NONE ||
            json_optional_string(entry, "config.exp_name", "", &experiment, &err) != ERROR_NONE)
            return problem(answer, "get_state, rank %u: %s", (unsigned int)rank, err.message);
        text_clean(experiment, strlen(experiment), found->experiment, sizeof found->experiment);
        check_settings(entry, json_first(json), rank, answer);
        read_filter(entry, rank, answer);
    }
    answer->rank_count = (uint32_t)count;
    return true;
}

/* Success is one empty object for each rank; [null] is an error whose text was empty. */
static bool read_configured(const struct json *json, struct server_answer *answer)
{
    bool fine = json_type(json) == JSON_ARRAY && json_count(json) > 0;
    for (const struct json *entry = json_first(json); fine && entry != NULL; entry = json_next(entry))
        fine = json_type(entry) == JSON_OBJECT;
    if (fine)
        return true;
    char shown[80];
    show_value(json, shown, sizeof shown);
    return problem(answer, "configure: expected [{}] with one {} for each rank, got %s", shown);
}

/* /v1/loads has {"loads":[{"num_running_reqs","num_waiting_reqs"}]}; the older /get_load has a list of {"num_reqs",
 * "num_waiting_reqs"}, where num_reqs counts the waiting ones too. One entry for each replica. From 0.5.20 on an entry
 * has "total_prefill_uncached_tokens": each pass of a prefill adds its rows, but for those of health probes alone
 * (managers/scheduler.py). */
static bool read_load(const struct json *json, struct server_answer *answer)
{
    struct error err = ERROR_INIT;
    const struct json *loads = json_type(json) == JSON_OBJECT ? json_find(json, "loads") : json;
    uint64_t total = 0, prefilled = 0;
    bool counts = true;
    if (json_type(loads) != JSON_ARRAY || json_count(loads) == 0)
        return problem(answer, "load: expected a list with one entry for each replica");
    for (const struct json *entry = json_first(loads); entry != NULL; entry = json_next(entry)) {
        uint64_t running = 0, waiting = 0;
        enum error_code code;
        if (json_member(entry, "num_running_reqs") != NULL) {
            code = json_get_u64(entry, "num_running_reqs", &running, &err);
            if (code == ERROR_NONE)
                code = json_get_u64(entry, "num_waiting_reqs", &waiting, &err);
        } else {
            code = json_get_u64(entry, "num_reqs", &running, &err);
        }
        uint64_t tokens = 0;
        bool has_count = json_member(entry, "total_prefill_uncached_tokens") != NULL;
        if (code == ERROR_NONE && has_count)
            code = json_get_u64(entry, "total_prefill_uncached_tokens", &tokens, &err);
        if (code != ERROR_NONE)
            return problem(answer, "load: %s", err.message);
        counts = counts && has_count;
        total += running + waiting;
        prefilled += tokens;
    }
    answer->load_known = true;
    answer->requests = total;
    answer->prefilled_known = counts;
    answer->prefilled = counts ? prefilled : 0;
    return true;
}

static bool read_probe(const struct json *json, struct server_answer *answer)
{
    struct error err = ERROR_INIT;
    const char *type = NULL, *message = "";
    if (json_get_string(json, "meta_info.finish_reason.type", &type, &err) != ERROR_NONE ||
        json_get_u64(json, "meta_info.prompt_tokens", &answer->prompt_tokens, &err) != ERROR_NONE ||
        json_get_u64(json, "meta_info.cached_tokens", &answer->cached_tokens, &err) != ERROR_NONE ||
        json_get_u64(json, "meta_info.completion_tokens", &answer->completion_tokens, &err) != ERROR_NONE)
        return problem(answer, "generate: %s", err.message);
    if (strcmp(type, "length") == 0)
        return true;
    if (json_get_string(json, "meta_info.finish_reason.message", &message, NULL) != ERROR_NONE)
        message = "no reason given";
    return problem(answer, "generate: it ended by '%s' (%s); expected 'length'", type, message);
}

static bool read_info(const struct json *json, struct server_answer *answer)
{
    struct error err = ERROR_INIT;
    if (info_read(json, &answer->facts, &err) != ERROR_NONE)
        return problem(answer, "server_info: %s", err.message);
    return true;
}

/* Where the body counts; the others are answered by their status alone. */
static bool (*const readers[SERVER_QUESTIONS])(const struct json *json, struct server_answer *answer) = {
    [SERVER_STATE] = read_state,       [SERVER_INFO] = read_info,          [SERVER_LOAD] = read_load,
    [SERVER_ENABLE] = read_configured, [SERVER_DISABLE] = read_configured, [SERVER_PROBE] = read_probe,
};

void answers_read(enum server_question question, int http_status, const char *body, size_t length,
                  const char *transport_problem, struct server_answer *ret_answer)
{
    struct json *json = NULL;
    struct error err = ERROR_INIT;
    *ret_answer = (struct server_answer){.question = question, .http_status = http_status};
    if (http_status == 0)
        problem(ret_answer, "no answer: %s", transport_problem != NULL ? transport_problem : "unknown reason");
    else if (http_status == 404 && question == SERVER_LOAD)
        ret_answer->ok = true; /* this release has no such route: load_known stays false */
    else if (http_status != 200)
        refused(question, http_status, body, length, ret_answer);
    else if (readers[question] == NULL)
        ret_answer->ok = true;
    else if (json_parse(body, length, (struct json_limits){BODY_MAX, JSON_DEPTH_LIMIT, JSON_ANY_VALUES}, &json, &err) !=
             ERROR_NONE)
        problem(ret_answer, "HTTP 200, but the body cannot be read: %s", err.message);
    else
        ret_answer->ok = readers[question](json, ret_answer);
    json_free(json);
}
