#include "sys/run_json.h"

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
