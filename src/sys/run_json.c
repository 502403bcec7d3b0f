#include "sys/run_json.h"

#include "base/number.h"
#include "base/text.h"
#include "json/json.h"

#include <string.h>

enum { MESSAGE_MAX = 512, TIME_MAX = 40, EXIT_STATUS_MAX = 255 };

void run_json_end(struct json *run, enum run_outcome outcome, const char *message)
{
    json_set_string(run, "state", run_state_name(RUN_ENDED));
    json_set_string(run, "outcome", run_outcome_name(outcome));
    json_set_u64(run, "exit_status", (uint64_t)run_outcome_status(outcome));
    json_set_null(run, "exp");
    json_set_string(run, "message", message);
}

void run_json_end_backstop(struct json *run)
{
    run_json_end(run, RUN_OUTCOME_FLOOR, "killed by kldumpd at the floor: its guard had not acted");
}

static void add(struct json *object, const char *key, uint64_t more)
{
    uint64_t value = 0;
    if (json_member(object, key) != NULL && json_get_u64(object, key, &value, NULL) == ERROR_NONE)
        json_set_u64(object, key, number_add(value, more));
}

void run_json_age(struct json *run, uint64_t age_ms)
{
    json_set_u64(run, "told_age_ms", age_ms);
    add(run, "uptime_ms", age_ms);
    if (json_type(json_member(run, "space")) != JSON_OBJECT)
        return;
    struct json *space = json_copy(json_member(run, "space"));
    add(space, "reading_age_ms", age_ms);
    json_set_child(run, "space", space);
}

struct json *run_json_end_of(const struct json *run)
{
    const char *state = "", *outcome = "", *message = "", *started = "";
    uint64_t status = UINT64_MAX;
    char text[MESSAGE_MAX], time[TIME_MAX];
    if (json_get_string(run, "state", &state, NULL) != ERROR_NONE || run_state_from_name(state) != RUN_ENDED)
        return NULL;
    json_get_string(run, "outcome", &outcome, NULL);
    json_get_u64(run, "exit_status", &status, NULL);
    json_get_string(run, "message", &message, NULL);
    json_get_string(run, "started_at", &started, NULL);
    struct json *end = json_object(), *tried = json_object();
    json_set_string(end, "outcome", outcome);
    json_set_u64(end, "exit_status", status);
    json_set_string(end, "message", text_clean(message, strlen(message), text, sizeof text));
    json_set_string(end, "started_at", text_clean(started, strlen(started), time, sizeof time));
    bool sensible = run_json_end_as(tried, end, NULL) == ERROR_NONE;
    json_free(tried);
    if (sensible)
        return end;
    json_free(end);
    return NULL;
}

enum error_code run_json_end_as(struct json *run, const struct json *end, struct error *err)
{
    const char *name, *message;
    uint64_t status;
    enum error_code code = json_get_string(end, "outcome", &name, err);
    enum run_outcome outcome = code == ERROR_NONE ? run_outcome_from_name(name) : RUN_OUTCOME_NONE;
    if (code == ERROR_NONE && outcome == RUN_OUTCOME_NONE)
        code = error_set(err, ERROR_FORMAT, "outcome \"%.40s\" is none", name);
    if (code == ERROR_NONE)
        code = json_get_u64(end, "exit_status", &status, err);
    if (code == ERROR_NONE && status > EXIT_STATUS_MAX)
        code = error_set(err, ERROR_FORMAT, "exit_status %llu is none", (unsigned long long)status);
    if (code == ERROR_NONE)
        code = json_get_string(end, "message", &message, err);
    if (code != ERROR_NONE)
        return code;
    run_json_end(run, outcome, message);
    json_set_u64(run, "exit_status", status);
    json_set_null(run, "pid");
    return ERROR_NONE;
}
