/* Happy path: the run is found by name (or as the only live one), its guard asked on the client's behalf over a
 * connection of its own, and the answer passed on as it is, errors too.
 *
 * The run has ended: daemon_dead.c answers.
 * The guard is not there yet, or just going: its lock is held, its socket does not answer. Tried again until the lock
 * is free (then: has ended) or the patience is over.
 * The guard goes after it was asked: what it was asked may be done, so it is not asked a second time unless that only
 * reads; the end of the run is waited for instead.
 * A `wait` for the end is answered when the guard is gone, so that the name is free; at the latest GOING_MS later.
 * It is silent: error timeout. Only the wait that the client asked for is granted on top.
 *
 * A dump with `hold` must end with the client: the connection to the guard is kept until the client's is gone, also
 * after the answer. A client that goes earlier takes along what only it waited for; a pause or stop goes on. */
#include "base/memory.h"
#include "core/run.h"
#include "json/json.h"
#include "loop/clock.h"
#include "loop/daemon_peer.h"
#include "loop/daemon_private.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    AGAIN_MS = 50,
    GOING_MS = 2000,
    LAST_WORD_BYTES = 64 * 1024,
    NAME_MS = 50,
    IDLE_WAIT_MS = 30000,
    PER_UID = 128,
    PER_RUN = 512,
    PER_RUN_OTHERS = 256 /* of these, of users who may only look */
};
static const uint64_t longest_wait_ms = 24 * 3600000ull;

struct daemon_relay {
    struct daemon_relay *next, **link;
    struct daemon *daemon;
    struct daemon_peer *peer;          /* NULL: none now */
    uv_timer_t timer;                  /* to try again */
    struct control_request *request;   /* NULL once it is answered */
    struct control_connection *client; /* NULL once it is gone */
    bool holds, reads_only, asked;
    uint64_t wait_ms;  /* that the client asked for */
    uint64_t since_ms; /* when the guard did not answer for the first time; 0: it did */
    uint64_t end_ms;   /* until when the client wants to wait */
    struct daemon_found run;
    uid_t uid;              /* who asks */
    bool sees_all;          /* else: only what others may see */
    bool named;             /* his name was waited for */
    struct json *last_word; /* of a guard that is going: kept until it is gone */
};

static const struct {
    const char *name;
    bool reads_only;
    const char *wait;   /* the parameter that grants time, or NULL */
    uint64_t wait_ms;   /* without it */
    bool without_limit; /* takes as long as the disk and the server take */
} methods[CONTROL_METHODS] = {
    [CONTROL_STATUS] = {"status", true, NULL, 0, false},
    [CONTROL_DUMP] = {"dump", false, "wait_idle_ms", IDLE_WAIT_MS, true},
    [CONTROL_PAUSE] = {"pause", false, NULL, 0, true},
    [CONTROL_STOP] = {"stop", false, NULL, 0, false},
    [CONTROL_WAIT] = {"wait", true, "timeout_ms", 0, false},
    [CONTROL_EVENTS] = {"events", true, "wait_ms", 0, false},
    [CONTROL_LOGS] = {"logs", true, "wait_ms", 0, false},
};

/* ---- the end of a relay ---- */

static void on_closed(uv_handle_t *handle)
{
    free(handle->data);
}

static void finish(struct daemon_relay *relay)
{
    *relay->link = relay->next;
    if (relay->next != NULL)
        relay->next->link = relay->link;
    if (relay->peer != NULL)
        daemon_peer_close(relay->peer);
    json_free(relay->last_word);
    uv_close((uv_handle_t *)&relay->timer, on_closed);
}

static void fail(struct daemon_relay *relay, const struct error *err)
{
    control_fail(relay->request, err);
    finish(relay);
}

/* ---- the run has ended, or its guard does not answer ---- */

static void answer_dead(struct daemon_relay *relay)
{
    struct control_request *request = relay->request;
    if (relay->asked && request->method == CONTROL_STOP) {
        struct json *result = json_object();
        json_set_string(result, "state", "ended");
        control_reply(request, result);
    } else if (relay->asked && !relay->reads_only) {
        control_refuse(request, ERROR_STATE, "run %s ended before it could answer", relay->run.name);
    } else {
        daemon_dead_answer(relay->daemon, &relay->run, request);
    }
    finish(relay);
}

/* What the guard said last, although it is still there. */
static void answer_last_word(struct daemon_relay *relay)
{
    control_reply(relay->request, relay->last_word);
    relay->last_word = NULL;
    finish(relay);
}

static void attempt(struct daemon_relay *relay);

static void on_timer(uv_timer_t *timer)
{
    attempt(timer->data);
}

/* No answer; `why` it was. */
static void again(struct daemon_relay *relay, const struct error *why)
{
    struct error err = *why;
    uint64_t now_ms = clock_now_ms();
    if (!daemon_find_is_live(relay->daemon, &relay->run)) {
        answer_dead(relay);
        return;
    }
    if (relay->since_ms == 0)
        relay->since_ms = now_ms;
    bool passing = why->code == ERROR_UNREACHABLE;
    if (relay->last_word != NULL && now_ms - relay->since_ms >= GOING_MS) {
        answer_last_word(relay);
        return;
    }
    if (passing && now_ms - relay->since_ms < DAEMON_PATIENCE_MS) {
        uv_timer_start(&relay->timer, on_timer, AGAIN_MS, 0);
        return;
    }
    error_prefix(&err, "the guard of run %s", relay->run.name);
    if (passing)
        err.code = ERROR_TIMEOUT;
    fail(relay, &err);
}

/* ---- the guard's news ---- */

/* The answer as this client may see it. A run object is all that others get; whose it is says the kernel, not the
 * guard. */
static struct json *answer_for(const struct daemon_relay *relay, const struct json *answer)
{
    const struct json *run = json_member(answer, "run");
    struct json *seen = relay->sees_all ? json_copy(answer) : json_object();
    if (relay->sees_all && json_type(run) != JSON_OBJECT)
        return seen;
    struct json *told = relay->sees_all ? json_copy(run) : daemon_access_redact(run);
    daemon_access_stamp(relay->daemon, relay->run.name, relay->run.uid, told);
    json_set_child(seen, "run", told);
    return seen;
}

static void on_going(uv_timer_t *timer)
{
    answer_last_word(timer->data);
}

/* Who waits for an end is told it when the guard is gone and the run's name free: it closes the connection then. */
static bool waits_for_the_guard(struct daemon_relay *relay, const struct json *answer)
{
    const char *state = "";
    json_optional_string(answer, "run.state", "", &state, NULL);
    if (relay->request->method != CONTROL_WAIT || strcmp(state, run_state_name(RUN_ENDED)) != 0 ||
        !daemon_find_is_live(relay->daemon, &relay->run))
        return false;
    struct json *word = answer_for(relay, answer);
    if (json_memory(word) > LAST_WORD_BYTES) { /* is not kept: it is told now */
        json_free(word);
        return false;
    }
    relay->last_word = word;
    uv_timer_start(&relay->timer, on_going, GOING_MS, 0);
    return true;
}

static void on_news(const struct daemon_peer_news *news, void *user)
{
    struct daemon_relay *relay = user;
    if (news->ended) {
        relay->peer = NULL;
        relay->asked |= news->asked;
        if (relay->request == NULL) /* a held dump whose guard is gone */
            finish(relay);
        else
            again(relay, news->error);
        return;
    }
    if (news->error != NULL) {
        fail(relay, news->error);
        return;
    }
    if (waits_for_the_guard(relay, news->answer))
        return;
    struct control_request *request = relay->request;
    relay->request = NULL;
    control_reply(request, answer_for(relay, news->answer));
    if (!relay->holds || relay->client == NULL)
        finish(relay);
}

/* The request without what is for us, and with the time that is left. */
static struct json *parameters_left(const struct daemon_relay *relay)
{
    const char *wait = methods[relay->request->method].wait;
    struct json *left = json_object();
    for (const struct json *m = json_first(relay->request->parameters); m != NULL; m = json_next(m))
        if (strcmp(json_key(m), "run") != 0 && strcmp(json_key(m), "uid") != 0)
            json_set_child(left, json_key(m), json_copy(m));
    if (wait != NULL && json_member(left, wait) != NULL) {
        uint64_t now_ms = clock_now_ms();
        json_set_u64(left, wait, relay->end_ms > now_ms ? relay->end_ms - now_ms : 0);
    }
    return left;
}

static void attempt(struct daemon_relay *relay)
{
    if (!daemon_find_is_live(relay->daemon, &relay->run)) {
        answer_dead(relay);
        return;
    }
    if (relay->asked && !relay->reads_only) { /* not a second time: only its end is waited for */
        struct error err = ERROR_INIT;
        error_set(&err, ERROR_UNREACHABLE, "it closed the connection before it answered");
        again(relay, &err);
        return;
    }
    char by[CONTROL_BY_MAX];
    if (!daemon_access_by(relay->daemon, relay->request, by, sizeof by) && !relay->named && !relay->reads_only) {
        relay->named = true; /* the first time that he asks for anything */
        uv_timer_start(&relay->timer, on_timer, NAME_MS, 0);
        return;
    }
    enum control_method method = relay->request->method;
    struct daemon_peer_target target = {.uid = relay->run.uid, .by = by, .foreign = relay->run.registered};
    struct error err = ERROR_INIT;
    enum error_code code = daemon_find_socket(relay->daemon, &relay->run, &target.socket_fd, &target.pid, &err);
    if (code != ERROR_NONE) {
        err.code = code == ERROR_NOT_FOUND ? ERROR_UNREACHABLE : code; /* not there yet */
        again(relay, &err);
        return;
    }
    uint64_t answer_ms = methods[method].without_limit ? UINT64_MAX : relay->wait_ms + DAEMON_PATIENCE_MS;
    relay->peer = daemon_peer_new(&relay->daemon->loop, &target, methods[method].name, parameters_left(relay),
                                  DAEMON_PATIENCE_MS, answer_ms, on_news, relay);
    close(target.socket_fd);
}

/* ---- the request ---- */

/* Each relay is a connection to a guard, which has not many: one user shall not take them all, and those who may only
 * look shall leave room for those whose run it is. */
static enum error_code check_count(const struct daemon *daemon, const struct control_request *request,
                                   const struct daemon_found *run, struct error *err)
{
    size_t of_user = 0, of_run = 0, of_others = 0;
    bool sees_all = daemon_access_sees_all(daemon, request, run->uid);
    for (const struct daemon_relay *relay = daemon->relays; relay != NULL; relay = relay->next) {
        of_user += relay->uid == request->uid;
        bool same = relay->run.uid == run->uid && strcmp(relay->run.name, run->name) == 0;
        of_run += same;
        of_others += same && !relay->sees_all;
    }
    if (of_user >= PER_UID && request->uid != 0)
        return error_set(err, ERROR_BUSY, "%d requests of user %u wait for guards already", PER_UID,
                         (unsigned)request->uid);
    if (of_run >= PER_RUN)
        return error_set(err, ERROR_BUSY, "%d requests wait for the guard of run %s already", PER_RUN, run->name);
    if (of_others >= PER_RUN_OTHERS && !sees_all)
        return error_set(err, ERROR_BUSY,
                         "%d requests of users whose run it is not wait for the guard of run %s already",
                         PER_RUN_OTHERS, run->name);
    return ERROR_NONE;
}

static enum error_code read_request(struct daemon *daemon, const struct control_request *request,
                                    struct daemon_relay *relay, struct error *err)
{
    const char *name, *wait = methods[request->method].wait;
    enum error_code code = json_optional_string(request->parameters, "run", NULL, &name, err);
    if (code == ERROR_NONE && request->method == CONTROL_DUMP)
        code = json_optional_bool(request->parameters, "hold", false, &relay->holds, err);
    if (code == ERROR_NONE && wait != NULL)
        code = json_optional_u64(request->parameters, wait, methods[request->method].wait_ms, &relay->wait_ms, err);
    if (code == ERROR_FORMAT)
        code = err->code = ERROR_BAD_VALUE;
    if (code != ERROR_NONE)
        return code;
    if (relay->wait_ms > longest_wait_ms)
        relay->wait_ms = longest_wait_ms;
    code = daemon_find_run(daemon, request, name, &relay->run, err);
    if (code == ERROR_NONE)
        code = daemon_access_check(daemon, request, relay->run.name, relay->run.uid, err);
    return code == ERROR_NONE ? check_count(daemon, request, &relay->run, err) : code;
}

void daemon_relay_request(struct control_request *request, void *user)
{
    struct daemon *daemon = user;
    struct error err = ERROR_INIT;
    struct daemon_relay *relay = memory_new(sizeof *relay);
    if (read_request(daemon, request, relay, &err) != ERROR_NONE) {
        control_fail(request, &err);
        free(relay);
        return;
    }
    relay->daemon = daemon;
    relay->request = request;
    relay->uid = request->uid;
    relay->sees_all = daemon_access_sees_all(daemon, request, relay->run.uid);
    relay->client = request->connection;
    relay->reads_only = methods[request->method].reads_only;
    relay->end_ms = clock_now_ms() + relay->wait_ms;
    relay->next = daemon->relays;
    relay->link = &daemon->relays;
    if (relay->next != NULL)
        relay->next->link = &relay->next;
    daemon->relays = relay;
    uv_timer_init(&daemon->loop, &relay->timer);
    relay->timer.data = relay;
    attempt(relay);
}

void daemon_relay_gone(struct control_connection *connection, void *user)
{
    struct daemon *daemon = user;
    struct error err = ERROR_INIT;
    error_set(&err, ERROR_INTERRUPTED, "the client is gone");
    for (struct daemon_relay *relay = daemon->relays, *next; relay != NULL; relay = next) {
        next = relay->next;
        if (relay->client != connection)
            continue;
        relay->client = NULL;
        if (relay->request == NULL)
            finish(relay); /* a held dump */
        else if (relay->holds || relay->reads_only)
            fail(relay, &err);
    }
}

void daemon_relay_end(struct daemon *daemon)
{
    struct error err = ERROR_INIT;
    error_set(&err, ERROR_INTERRUPTED, "kldumpd is ending; the run goes on");
    for (struct daemon_relay *relay = daemon->relays, *next; relay != NULL; relay = next) {
        next = relay->next;
        if (relay->request != NULL)
            fail(relay, &err);
        else
            finish(relay);
    }
}
