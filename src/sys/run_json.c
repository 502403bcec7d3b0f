#include "sys/run_json.h"

#include "base/number.h"
#include "json/json.h"

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
