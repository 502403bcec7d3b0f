/* The guard's control socket: what each method does. Requests that can be answered only later are kept: a dump until it
 * is on, a pause until the seal, and waiters (wait, events, logs) until what they wait for has come, their time is
 * over, or the run ends. A client that goes away takes its held dump with it (DESIGN 3.5: a forgotten switch has filled
 * a disk). */
#include "config.h"
#include "loop/guard_private.h"
#include "base/memory.h"
#include "base/text.h"
#include "json/json.h"
#include "loop/clock.h"
#include "loop/guard_log.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { LOG_REPLY_MAX = 256 * 1024 };
static const uint64_t seal_file_ms = 3000; /* a disk that is slower than that keeps nobody waiting */
static const uint64_t longest_wait_ms = 24 * 3600000ull;
static const uint64_t longest_dump_ms = 30 * 24 * 3600000ull;

struct guard_waiter {
    struct guard_waiter *next;
    struct control_request *request;
    uint64_t until_ms;    /* on the uptime clock */
    enum run_state state; /* wait: for this state (RUN_STATES: any) */
    uint64_t after;       /* events: number; logs: offset */
};

/* ---- who waits ---- */

static void arm_timer(struct guard *guard);

static void reply_run(struct guard *guard, struct control_request *request)
{
    struct json *result = json_object();
    json_set_child(result, "run", guard_report_run(guard));
    control_reply(request, result);
}

static void reply_events(struct guard *guard, struct control_request *request, uint64_t after)
{
    struct json *result = json_object();
    json_set_child(result, "events", guard_report_events(guard, after));
    json_set_u64(result, "next", guard->event_number > after ? guard->event_number : after);
    json_set_bool(result, "ended", guard->run.state == RUN_ENDED);
    control_reply(request, result);
}

static void reply_logs(struct guard *guard, struct control_request *request, uint64_t offset)
{
    struct buffer text;
    buffer_init(&text);
    uint64_t from = offset;
    guard_log_read(guard, &from, LOG_REPLY_MAX, &text);
    struct json *result = json_object();
    json_set_u64(result, "offset", from);
    json_set_u64(result, "next_offset", from + text.length);
    json_set_bytes(result, "text", text.data, text.length);
    json_set_bool(result, "ended", guard->run.state == RUN_ENDED);
    control_reply(request, result);
    buffer_fini(&text);
}

/* Answers the waiter if what it waits for is there, its time is over or its client has gone; true when answered. */
static bool try_answer(struct guard *guard, struct guard_waiter *waiter)
{
    bool late = guard_uptime_ms(guard) >= waiter->until_ms || waiter->request->connection == NULL;
    bool ended = guard->run.state == RUN_ENDED;
    switch (waiter->request->method) {
    case CONTROL_WAIT:
        if (ended || guard->run.state == waiter->state)
            reply_run(guard, waiter->request);
        else if (late)
            control_refuse(waiter->request, ERROR_TIMEOUT, "run %s is still %s", guard->plan.settings.name,
                           run_state_name(guard->run.state));
        else
            return false;
        return true;
    case CONTROL_EVENTS:
        if (!ended && !late && guard->event_number <= waiter->after)
            return false;
        reply_events(guard, waiter->request, waiter->after);
        return true;
    default: /* logs */
        if (!ended && !late && guard_log_end(guard) <= waiter->after)
            return false;
        reply_logs(guard, waiter->request, waiter->after);
        return true;
    }
}

void guard_control_changed(struct guard *guard)
{
    struct guard_waiter **link = &guard->waiters;
    while (*link != NULL) {
        struct guard_waiter *waiter = *link;
        if (try_answer(guard, waiter)) {
            *link = waiter->next;
            free(waiter);
        } else {
            link = &waiter->next;
        }
    }
    arm_timer(guard);
}

static void on_timer(uv_timer_t *timer)
{
    guard_control_changed(timer->data);
}

static void arm_timer(struct guard *guard)
{
    uint64_t next = UINT64_MAX;
    for (struct guard_waiter *waiter = guard->waiters; waiter != NULL; waiter = waiter->next)
        next = waiter->until_ms < next ? waiter->until_ms : next;
    if (uv_is_closing((uv_handle_t *)&guard->waiting))
        return;
    if (next == UINT64_MAX) {
        uv_timer_stop(&guard->waiting);
        return;
    }
    uint64_t now = guard_uptime_ms(guard);
    guard->waiting.data = guard;
    uv_timer_start(&guard->waiting, on_timer, next > now ? next - now : 0, 0);
}

static void add_waiter(struct guard *guard, struct control_request *request, uint64_t wait_ms, enum run_state state,
                       uint64_t after)
{
    struct guard_waiter *waiter = memory_new(sizeof *waiter);
    *waiter = (struct guard_waiter){guard->waiters, request, guard_uptime_ms(guard) + wait_ms, state, after};
    guard->waiters = waiter;
    guard_control_changed(guard);
}

/* ---- the methods ---- */

/* By kldumpd for somebody, or by somebody himself. */
static void tell_who(const struct control_request *request, char *text, size_t size)
{
    if (request->by != NULL)
        text_copy(text, size, request->by);
    else
        snprintf(text, size, "uid %u (pid %d)", (unsigned)request->uid, (int)request->pid);
}

/* What is asked on somebody's behalf, or by another user, leaves no other trace of who it was. */
static bool is_noted(const struct control_request *request)
{
    return request->by != NULL || request->uid != getuid();
}

/* "dump EXPERIMENT" or "pause". */
static void tell_what(const struct control_request *request, char *text, size_t size)
{
    const char *experiment = NULL;
    if (request->method == CONTROL_DUMP &&
        json_get_string(request->parameters, "experiment", &experiment, NULL) == ERROR_NONE)
        snprintf(text, size, "dump %s", experiment);
    else
        text_copy(text, size, "pause");
}

static void note_who(struct guard *guard, const struct control_request *request)
{
    char what[SERVER_NAME_MAX + 8], who[CONTROL_BY_MAX + 1], line[256];
    if (!is_noted(request))
        return;
    tell_what(request, what, sizeof what);
    tell_who(request, who, sizeof who);
    snprintf(line, sizeof line, "%s asked for by %s", what, who);
    guard_report_note(guard, RUN_INFO, RUN_NOTE_DUMP, line);
}

/* After note_who: whoever reads that it was asked for reads what became of it, too. */
static void refuse_noted(struct guard *guard, struct control_request *request, enum error_code code, const char *why)
{
    char what[SERVER_NAME_MAX + 8], line[sizeof((struct error *)NULL)->message];
    if (is_noted(request)) {
        tell_what(request, what, sizeof what);
        snprintf(line, sizeof line, "%s refused: %s", what, why);
        guard_report_note(guard, RUN_INFO, RUN_NOTE_DUMP, line);
    }
    control_refuse(request, code, "%s", why);
}

/* False after the request was refused. */
static bool number(struct control_request *request, const char *name, uint64_t fallback, uint64_t most,
                   uint64_t *ret_value)
{
    struct error err = ERROR_INIT;
    if (json_optional_u64(request->parameters, name, fallback, ret_value, &err) != ERROR_NONE) {
        err.code = ERROR_BAD_VALUE;
        control_fail(request, &err);
        return false;
    }
    if (*ret_value > most)
        *ret_value = most;
    return true;
}

static bool flag(struct control_request *request, const char *name, bool *ret_value)
{
    struct error err = ERROR_INIT;
    if (json_optional_bool(request->parameters, name, false, ret_value, &err) == ERROR_NONE)
        return true;
    err.code = ERROR_BAD_VALUE;
    control_fail(request, &err);
    return false;
}

static bool text(struct control_request *request, const char *name, const char **ret_text)
{
    struct error err = ERROR_INIT;
    if (json_get_string(request->parameters, name, ret_text, &err) == ERROR_NONE)
        return true;
    err.code = ERROR_BAD_VALUE;
    control_fail(request, &err);
    return false;
}

static void on_status(struct control_request *request, void *user)
{
    reply_run(user, request);
}

static void on_wait(struct control_request *request, void *user)
{
    struct guard *guard = user;
    const char *name;
    uint64_t timeout_ms;
    if (!text(request, "for", &name) || !number(request, "timeout_ms", 0, longest_wait_ms, &timeout_ms))
        return;
    enum run_state state = run_state_from_name(name);
    if (state == RUN_STATES) {
        control_refuse(request, ERROR_BAD_VALUE,
                       "'%.40s' is no state; there are launching, loading, warming, verifying, "
                       "armed, dumping, sealing, ready, stopping, ended",
                       name);
        return;
    }
    bool plain = guard->run.settings.plain;
    bool never = plain ? state >= RUN_VERIFYING && state <= RUN_SEALING : state == RUN_READY;
    if (never && guard->run.state != RUN_ENDED) {
        control_refuse(request, ERROR_STATE, "run %s is of the kind %s and never %s; wait for %s",
                       guard->plan.settings.name, settings_kind_name(guard->plan.settings.kind), name,
                       plain ? "ready" : "armed");
        return;
    }
    add_waiter(guard, request, timeout_ms, state, 0);
}

static void on_events(struct control_request *request, void *user)
{
    uint64_t after, wait_ms;
    if (number(request, "after", 0, UINT64_MAX, &after) && number(request, "wait_ms", 0, longest_wait_ms, &wait_ms))
        add_waiter(user, request, wait_ms, RUN_STATES, after);
}

static void on_logs(struct control_request *request, void *user)
{
    uint64_t offset, wait_ms;
    if (number(request, "offset", 0, UINT64_MAX, &offset) && number(request, "wait_ms", 0, longest_wait_ms, &wait_ms))
        add_waiter(user, request, wait_ms, RUN_STATES, offset);
}

static void on_stop(struct control_request *request, void *user)
{
    struct guard *guard = user;
    bool now;
    if (!flag(request, "now", &now))
        return;
    char who[CONTROL_BY_MAX + 1];
    tell_who(request, who, sizeof who);
    guard_feed(guard, &(struct run_event){.kind = RUN_EVENT_STOP, .now = now, .text = who});
    struct json *result = json_object();
    json_set_string(result, "state", run_state_name(guard->run.state));
    control_reply(request, result);
}

/* ---- pause ---- */

static struct json *seal_result(const struct guard *guard, const struct guard_seal *seal)
{
    struct json *result = json_object();
    json_set_string(result, "experiment", seal->experiment);
    json_set_string(result, "dir", guard->plan.directory);
    json_set_bool(result, "complete", seal->complete);
    json_set_string(result, "sealed_by", run_sealed_by_name(seal->by));
    json_set_list(result, "reasons", &seal->reasons);
    json_set_u64(result, "ranks", seal->ranks);
    json_set_u64(result, "steps", seal->steps);
    json_set_u64(result, "files", seal->files);
    json_set_u64(result, "bytes", seal->bytes);
    return result;
}

/* Who waits for a seal is answered when its file is there: written by the sink's thread, waited for on libuv's pool. */
struct seal_reply {
    uv_work_t work;
    struct guard *guard;
    struct sink *sink;
    struct control_request *request;
    struct json *result;
};

static void wait_for_file(uv_work_t *work)
{
    const struct seal_reply *reply = work->data;
    sink_flush(reply->sink, seal_file_ms);
}

static void file_written(uv_work_t *work, int status)
{
    (void)status;
    struct seal_reply *reply = work->data;
    control_reply(reply->request, reply->result);
    reply->guard->seal_replies--;
    free(reply);
}

static void reply_seal(struct guard *guard, const struct guard_seal *seal, struct control_request *request)
{
    struct seal_reply *reply = memory_new(sizeof *reply);
    *reply = (struct seal_reply){
        .guard = guard, .sink = guard->dump_sink, .request = request, .result = seal_result(guard, seal)};
    reply->work.data = reply;
    guard->seal_replies++;
    if (uv_queue_work(&guard->loop, &reply->work, wait_for_file, file_written) != 0)
        file_written(&reply->work, 0);
}

/* Of a dump that is not the present one. Its seal is there, or it is no dump of ours. */
static void pause_other(struct guard *guard, struct control_request *request, const char *experiment)
{
    for (size_t i = guard->seal_count; i > 0; i--) {
        if (strcmp(guard->seals[i - 1].experiment, experiment) == 0) {
            reply_seal(guard, &guard->seals[i - 1], request);
            return;
        }
    }
    control_refuse(request, ERROR_STATE, "run %s does not dump into %.64s, and knows of no seal of it",
                   guard->plan.settings.name, experiment);
}

static void on_pause(struct control_request *request, void *user)
{
    struct guard *guard = user;
    struct error err = ERROR_INIT;
    const char *experiment;
    unsigned slot = 0;
    if (json_optional_string(request->parameters, "experiment", guard->run.experiment, &experiment, &err) !=
        ERROR_NONE) {
        err.code = ERROR_BAD_VALUE;
        control_fail(request, &err);
        return;
    }
    if (strcmp(experiment, guard->run.experiment) != 0 && guard->run.state != RUN_ENDED) {
        pause_other(guard, request, experiment);
        return;
    }
    while (slot < RUN_PAUSERS_MAX && guard->pause_requests[slot] != NULL)
        slot++;
    if (slot == RUN_PAUSERS_MAX) {
        control_refuse(request, ERROR_BUSY, "too many wait for this seal");
        return;
    }
    guard->pause_requests[slot] = request;
    guard->pause_numbers[slot] = ++guard->request_number;
    note_who(guard, request);
    guard_feed(guard, &(struct run_event){.kind = RUN_EVENT_PAUSE, .number = guard->pause_numbers[slot]});
}

/* ---- dump: the folder of the experiment must not be there; asked on libuv's pool, since the disk may be slow ---- */

struct dump_look {
    uv_fs_t look;
    struct guard *guard;
    struct control_request *request;
    char experiment[SERVER_NAME_MAX];
    struct list own_request_ids;
    bool hold, force;
    uint64_t wait_idle_ms, for_ms, passes;
};

/* Only the dump that the machine will take has a holder and request ids: those of an open one must not be lost to a
 * second client that is about to be refused. */
static void take_dump(struct guard *guard, struct dump_look *dump)
{
    if (guard->run.state == RUN_ARMED) {
        guard->holder = dump->hold ? dump->request->connection : NULL;
        list_fini(&guard->own_request_ids);
        guard->own_request_ids = dump->own_request_ids;
        dump->own_request_ids = (struct list){0};
    }
    note_who(guard, dump->request);
    guard->dump_request = dump->request;
    guard->dump_number = ++guard->request_number;
    guard_feed(guard, &(struct run_event){.kind = RUN_EVENT_DUMP,
                                          .number = guard->dump_number,
                                          .text = dump->experiment,
                                          .hold = dump->hold,
                                          .force = dump->force,
                                          .wait_idle_ms = dump->wait_idle_ms,
                                          .for_ms = dump->for_ms,
                                          .passes = dump->passes});
}

static void dump_looked(uv_fs_t *look)
{
    struct dump_look *dump = look->data;
    struct guard *guard = dump->guard;
    struct control_request *request = dump->request;
    ssize_t result = look->result;
    uv_fs_req_cleanup(look);
    if (guard->finished) {
        control_refuse(request, ERROR_STATE, "run %s has ended", guard->plan.settings.name);
    } else if (result == 0) {
        control_refuse(request, ERROR_EXISTS, "%s/%s is there already; choose another experiment name, or move it away",
                       guard->plan.directory, dump->experiment);
    } else if (result != UV_ENOENT) {
        control_refuse(request, ERROR_SYSTEM, "%s/%s: %s", guard->plan.directory, dump->experiment,
                       uv_strerror((int)result));
    } else if (dump->hold && request->connection == NULL) {
        control_refuse(request, ERROR_INTERRUPTED, "the client is gone");
    } else if (guard->dump_request != NULL) {
        control_refuse(request, ERROR_BUSY, "another dump is being prepared");
    } else {
        take_dump(guard, dump);
    }
    list_fini(&dump->own_request_ids);
    free(dump);
}

static void on_dump(struct control_request *request, void *user)
{
    struct guard *guard = user;
    const char *experiment;
    bool hold, force;
    uint64_t wait_idle_ms, for_ms, passes;
    if (!text(request, "experiment", &experiment) || !flag(request, "hold", &hold) || !flag(request, "force", &force) ||
        !number(request, "wait_idle_ms", 30000, longest_wait_ms, &wait_idle_ms) ||
        !number(request, "for_ms", 0, longest_dump_ms, &for_ms) || !number(request, "passes", 0, UINT64_MAX, &passes))
        return;
    if (!text_is_name(experiment)) {
        control_refuse(request, ERROR_BAD_VALUE, "'%.80s' is no experiment name; expected 1 to 64 of A-Z a-z 0-9 . _ -",
                       experiment);
        return;
    }
    if (text_starts(experiment, "kldump-")) {
        control_refuse(request, ERROR_BAD_VALUE,
                       "%s: names that begin with kldump- are for kldump itself; choose another", experiment);
        return;
    }
    if (guard->space_told == SPACE_UNMEASURABLE) { /* and the look below might never come back */
        control_refuse(
            request, ERROR_SPACE,
            "free space cannot be read: %s; nothing may be dumped while the floor cannot be guarded: look at "
            "the filesystem, then ask again",
            guard->run.space_text);
        return;
    }
    struct error err = ERROR_INIT;
    struct list own = {0};
    if (json_optional_list(request->parameters, "own_request_ids", &own, &err) != ERROR_NONE) {
        err.code = ERROR_BAD_VALUE;
        control_fail(request, &err);
        return;
    }
    struct dump_look *dump = memory_new(sizeof *dump);
    *dump = (struct dump_look){.guard = guard,
                               .request = request,
                               .own_request_ids = own,
                               .hold = hold,
                               .force = force,
                               .wait_idle_ms = wait_idle_ms,
                               .for_ms = for_ms,
                               .passes = passes};
    dump->look.data = dump;
    text_copy(dump->experiment, sizeof dump->experiment, experiment);
    char *path = memory_format("%s/%s", guard->plan.directory, experiment);
    uv_fs_lstat(&guard->loop, &dump->look, path, dump_looked);
    free(path);
}

static void gone(struct control_connection *connection, void *user)
{
    struct guard *guard = user;
    if (connection != guard->holder)
        return;
    guard->holder = NULL;
    guard_feed(guard, &(struct run_event){.kind = RUN_EVENT_HOLDER_GONE});
}

/* ---- answers of the machine ---- */

void guard_control_reply(struct guard *guard, const struct run_effect *effect)
{
    struct control_request *request = NULL;
    bool is_dump = guard->dump_request != NULL && effect->number == guard->dump_number;
    if (is_dump) {
        request = guard->dump_request;
        guard->dump_request = NULL;
    }
    for (unsigned i = 0; i < RUN_PAUSERS_MAX && request == NULL; i++) {
        if (guard->pause_requests[i] != NULL && guard->pause_numbers[i] == effect->number) {
            request = guard->pause_requests[i];
            guard->pause_requests[i] = NULL;
        }
    }
    if (request == NULL)
        return;
    if (effect->code != ERROR_NONE) {
        refuse_noted(guard, request, effect->code, effect->text);
    } else if (is_dump) {
        struct json *result = json_object();
        json_set_string(result, "experiment", guard->run.experiment);
        json_set_string(result, "dir", guard->plan.directory);
        json_set_string(result, "url", guard->url);
        json_set_u64(result, "ranks", guard->run.base.ranks);
        control_reply(request, result);
    } else {
        reply_seal(guard, &guard->seals[guard->seal_count - 1], request);
    }
}

enum error_code guard_control_start(struct guard *guard, struct error *err)
{
    struct control_options options = {
        .path = guard->plan.control_path,
        .program = "kldump-run " PACKAGE_VERSION,
        .run = guard->plan.settings.name,
        .owner = getuid(),
        .handlers = {[CONTROL_STATUS] = on_status,
                     [CONTROL_DUMP] = on_dump,
                     [CONTROL_PAUSE] = on_pause,
                     [CONTROL_STOP] = on_stop,
                     [CONTROL_WAIT] = on_wait,
                     [CONTROL_EVENTS] = on_events,
                     [CONTROL_LOGS] = on_logs},
        .gone = gone,
        .user = guard,
    };
    return control_listen(&guard->loop, &options, &guard->control, err);
}

void guard_control_look(struct guard *guard)
{
    bool again;
    if (control_look(guard->control, &again, NULL) != ERROR_NONE || !again)
        return;
    guard_report_note(guard, RUN_WARN, RUN_NOTE_NOTE,
                      "the control socket was removed from the runtime folder; it was made again");
    guard_register_again(guard);
}

void guard_control_end(struct guard *guard)
{
    uint64_t limit_ms = clock_now_ms() + 2 * seal_file_ms;
    while (guard->seal_replies > 0 && clock_now_ms() < limit_ms) /* the heartbeat's timer turns it */
        uv_run(&guard->loop, UV_RUN_ONCE);
    guard_control_changed(guard);
    /* The machine has answered dumps and pauses; whatever came in between is told the same. */
    if (guard->dump_request != NULL)
        control_refuse(guard->dump_request, ERROR_STATE, "run %s has ended", guard->plan.settings.name);
    guard->dump_request = NULL;
    for (unsigned i = 0; i < RUN_PAUSERS_MAX; i++) {
        if (guard->pause_requests[i] != NULL)
            control_refuse(guard->pause_requests[i], ERROR_STATE, "run %s has ended", guard->plan.settings.name);
        guard->pause_requests[i] = NULL;
    }
    list_fini(&guard->own_request_ids);
}
