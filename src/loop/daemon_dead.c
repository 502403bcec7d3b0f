/* A run that has ended answers through its record, one that only the register knew through its last words: status,
 * wait, events and logs as its guard would have. What only a live one can do is refused. */
#include "base/buffer.h"
#include "json/json.h"
#include "loop/daemon_private.h"

#include <stdint.h>

enum { LOG_REPLY_MAX = 256 * 1024 };

static void answer_run(struct daemon *daemon, const struct daemon_found *run, const struct json *whole,
                       struct control_request *request)
{
    struct json *result = json_object();
    bool all = daemon_access_sees_all(daemon, request, run->uid);
    struct json *told = all ? json_copy(whole) : daemon_access_redact(whole);
    daemon_access_stamp(daemon, run->name, run->uid, told);
    json_set_child(result, "run", told);
    control_reply(request, result);
}

/* False after the request was refused. */
static bool number(struct control_request *request, const char *name, uint64_t *ret_value)
{
    struct error err = ERROR_INIT;
    if (json_optional_u64(request->parameters, name, 0, ret_value, &err) == ERROR_NONE)
        return true;
    err.code = ERROR_BAD_VALUE;
    control_fail(request, &err);
    return false;
}

static void answer_events(const struct json *record, struct control_request *request)
{
    uint64_t after, n, next;
    if (!number(request, "after", &after))
        return;
    struct json *result = json_object();
    struct json *events = json_set_array(result, "events");
    next = after;
    for (const struct json *e = json_first(json_member(record, "events")); e != NULL; e = json_next(e)) {
        if (json_get_u64(e, "n", &n, NULL) != ERROR_NONE || n <= after)
            continue;
        json_append(events, json_copy(e));
        next = n > next ? n : next;
    }
    json_set_u64(result, "next", next);
    json_set_bool(result, "ended", true);
    control_reply(request, result);
}

static void answer_logs(const struct daemon *daemon, const char *name, struct control_request *request)
{
    uint64_t offset;
    if (!number(request, "offset", &offset))
        return;
    struct buffer text;
    buffer_init(&text);
    bool all = daemon_runs_log(daemon, name, &offset, LOG_REPLY_MAX, &text);
    struct json *result = json_object();
    json_set_u64(result, "offset", offset);
    json_set_u64(result, "next_offset", offset + text.length);
    json_set_bytes(result, "text", text.data, text.length);
    json_set_bool(result, "ended", all);
    control_reply(request, result);
    buffer_fini(&text);
}

void daemon_dead_answer(struct daemon *daemon, const struct daemon_found *run, struct control_request *request)
{
    const char *name = run->name;
    struct error err = ERROR_INIT;
    struct json *record = NULL;
    if (request->method == CONTROL_DUMP || request->method == CONTROL_PAUSE || request->method == CONTROL_STOP) {
        control_refuse(request, ERROR_NO_RUN, "run %s has ended; 'kldumpctl status %s' shows how", name, name);
        return;
    }
    const struct json *last = run->registered ? daemon_last_find(daemon, name, run->uid) : NULL;
    if (last != NULL && (request->method == CONTROL_STATUS || request->method == CONTROL_WAIT)) {
        answer_run(daemon, run, last, request);
        return;
    }
    if (run->registered) {
        control_refuse(request, ERROR_NO_RUN, "run %s has ended; its record is beside its dump and with its owner",
                       name);
        return;
    }
    if (request->method == CONTROL_LOGS) {
        answer_logs(daemon, name, request);
        return;
    }
    enum error_code code = daemon_runs_record(daemon, name, &record, &err);
    if (code == ERROR_NOT_FOUND)
        control_refuse(request, ERROR_NO_RUN, "run %s is over and left no record: it was refused at its start", name);
    else if (code != ERROR_NONE)
        control_fail(request, &err);
    else if (request->method == CONTROL_EVENTS)
        answer_events(record, request);
    else
        answer_run(daemon, run, json_member(record, "run"), request);
    json_free(record);
}
