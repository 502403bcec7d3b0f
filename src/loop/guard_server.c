/* The guard's dealings with the server: its output, who listens on its port, and the questions over HTTP. Happy path:
 * output lines -> the listener is ours -> one question at a time. Failures: no answer, a late or malformed one: an
 * answer that is not ok, with words. */
#include "loop/guard_private.h"
#include "base/memory.h"
#include "base/text.h"
#include "loop/clock.h"
#include "loop/guard_log.h"
#include "sys/kill_tree.h"
#include "sys/listener.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { ANSWER_MAX = 2 * 1024 * 1024 };
static const uint64_t connect_ms = 2000;

/* How long an answer may take. Control calls wait for the pass that is running, and a dump makes passes long. */
static const uint64_t limit_ms[SERVER_QUESTIONS] = {
    [SERVER_HEALTH] = 5000,  [SERVER_STATE] = 60000,    [SERVER_INFO] = 30000,   [SERVER_LOAD] = 10000,
    [SERVER_ENABLE] = 60000, [SERVER_DISABLE] = 120000, [SERVER_PROBE] = 300000, [SERVER_FLUSH] = 60000,
};

/* ---- output ---- */

static void keep_bytes(struct guard *guard, int target, const char *data, size_t length)
{
    guard_log_append(guard, data, length);
    if (!guard->plan.from_daemon)
        sink_append(guard->sink, target, data, length);
}

static void keep_out(const char *data, size_t length, void *user)
{
    struct guard *guard = user;
    keep_bytes(guard, guard->out_target, data, length);
}

static void keep_err(const char *data, size_t length, void *user)
{
    struct guard *guard = user;
    keep_bytes(guard, guard->err_target, data, length);
}

/* A server prints its arguments, with every key in them. */
static void (*const keepers[OUTPUT_STREAMS])(const char *, size_t,
                                             void *) = {[OUTPUT_STDOUT] = keep_out, [OUTPUT_STDERR] = keep_err};

static void on_bytes(enum output_stream stream, const char *data, size_t length, void *user)
{
    struct guard *guard = user;
    mask_feed(&guard->masks[stream], data, length, keepers[stream], guard);
}

void guard_server_flush_output(struct guard *guard)
{
    for (int stream = 0; stream < OUTPUT_STREAMS; stream++)
        if (guard->masks[stream].bytes.length > 0)
            mask_flush(&guard->masks[stream], keepers[stream], guard);
}

void guard_server_end_output(struct guard *guard)
{
    guard_server_flush_output(guard);
    for (int stream = 0; stream < OUTPUT_STREAMS; stream++)
        mask_fini(&guard->masks[stream]);
}

/* The server's own line decides: a wrapper script may not say the port, or may not hand on the one that it was given,
 * and nobody would ever listen on that one. */
static void take_port(struct guard *guard, const struct server_line *line)
{
    struct server_command *command = &guard->plan.command;
    char text[160];
    bool same = command->port_given && line->port == command->port;
    if (line->port == 0 || same || guard->run.state > RUN_LOADING)
        return;
    if (command->port_given) {
        snprintf(text, sizeof text, "the server says that it listens on port %u, not on the %u of CMD's arguments",
                 (unsigned)line->port, (unsigned)command->port);
        guard_report_note(guard, RUN_WARN, RUN_NOTE_SERVER, text);
    }
    command->port = line->port;
    command->port_given = true;
    command->https = line->https;
}

static void keep_line(struct guard *guard, const char *text, size_t length)
{
    struct guard_line *kept = &guard->last_lines[guard->line_count++ % GUARD_LAST_LINES];
    kept->length = length < sizeof kept->text ? length : sizeof kept->text;
    memcpy(kept->text, text, kept->length);
}

/* A server may print gigabytes: no more is done with a line than what somebody may want of it. */
static void on_line(enum output_stream stream, const char *said, size_t length, void *user)
{
    (void)stream;
    struct guard *guard = user;
    const struct server_command *command = &guard->plan.command;
    char *copy = NULL;
    if (command->secrets.count > 0) {
        copy = memory_copy_n(said, length);
        mask_text(&command->secrets, copy, length);
        said = copy;
    }
    if (!guard->run.was_armed)
        keep_line(guard, said, length);
    struct server_line line;
    guard->server->read_line(said, length, &line);
    take_port(guard, &line);
    if (line.kind == SERVER_LINE_UNKNOWN_FLAG)
        text_copy(guard->unknown_flag, sizeof guard->unknown_flag, line.text);
    if (line.kind != SERVER_LINE_NOTHING)
        guard_feed(guard, &(struct run_event){.kind = RUN_EVENT_LINE, .line = &line});
    free(copy);
}

enum error_code guard_server_read_output(struct guard *guard, int out_fd, int err_fd, struct error *err)
{
    guard_server_end_output(guard); /* of a first try */
    for (int stream = 0; stream < OUTPUT_STREAMS; stream++)
        mask_init(&guard->masks[stream], &guard->plan.command.secrets);
    struct output_options options = {
        .descriptors = {out_fd, err_fd}, .bytes = on_bytes, .line = on_line, .user = guard};
    return output_start(&guard->loop, &options, &guard->output, err);
}

/* ---- who listens ---- */

/* Seen once, it may be a process of ours that ends or was born in this moment; seen twice in a row, it is foreign. */
static void seen_foreign(struct guard *guard, const struct listener *found)
{
    if (++guard->foreign_looks > 1)
        guard->listener = RUN_LISTENER_FOREIGN;
    if (found->pid > 0)
        snprintf(guard->listener_text, sizeof guard->listener_text, "pid %d (%.40s), which is not of this run",
                 (int)found->pid, found->comm);
    else
        snprintf(guard->listener_text, sizeof guard->listener_text, "a process that cannot be seen from here");
}

void guard_server_find_listener(struct guard *guard)
{
    uint16_t port = guard->plan.command.port;
    struct kill_tree_target target = {guard->keeper.pid, guard->main_pid, getpid(), guard->plan.cookie,
                                      guard->keeper.since_ticks};
    struct kill_tree tree;
    struct listener found = {.owner = LISTENER_NONE};
    struct error err = ERROR_INIT;
    kill_tree_init(&tree, &target);
    kill_tree_collect(&tree);
    guard_after_remember(guard, &tree.members);
    guard->listener_due = true;
    guard->listener = RUN_LISTENER_NONE;
    if (listener_find(0, port, &tree.members, &found, &err) != ERROR_NONE) {
        guard_report_note(guard, RUN_WARN, RUN_NOTE_SERVER, err.message);
    } else if (found.owner == LISTENER_FOREIGN && (!guard->plan.command.is_wrapper || guard->plan.command.port_given)) {
        seen_foreign(guard, &found);
    } else if (found.owner == LISTENER_OWN) {
        bool any = strcmp(found.address, "0.0.0.0") == 0 || strcmp(found.address, "::") == 0;
        const char *address = !any ? found.address : found.ipv6 ? "::1" : "127.0.0.1";
        guard->listener = RUN_LISTENER_OWN;
        snprintf(guard->url, sizeof guard->url, found.ipv6 ? "%s://[%s]:%u" : "%s://%s:%u",
                 guard->plan.command.https ? "https" : "http", address, (unsigned)port);
    }
    if (found.owner != LISTENER_FOREIGN)
        guard->foreign_looks = 0;
    kill_tree_fini(&tree);
}

/* ---- questions ---- */

static enum error_code submit(struct guard *guard, struct server_request *request);

/* Whoever reads the problem should know what was asked. */
static void name_route(const struct guard *guard, struct server_answer *answer)
{
    struct buffer text;
    buffer_init(&text);
    buffer_format(&text, "%s: %s", guard->question_route, answer->problem);
    text_copy(answer->problem, sizeof answer->problem, text.data);
    buffer_fini(&text);
}

static void answered(void *argument, const struct transfer_result *result)
{
    struct guard *guard = argument;
    struct server_request older;
    if (result->status == 404 && !guard->question_older && guard->server->build_older(guard->question, &older)) {
        guard->question_older = true;
        enum error_code code = submit(guard, &older);
        server_request_fini(&older);
        if (code == ERROR_NONE)
            return;
    }
    static struct server_answer answer; /* large */
    guard->server->read(guard->question, result->status, result->body, result->length, result->problem, &answer);
    if (guard->question == SERVER_STATE)
        server_check_settings(&guard->plan.command, guard->plan.directory, &answer);
    if (!answer.ok)
        name_route(guard, &answer);
    guard_feed(guard,
               &(struct run_event){.kind = RUN_EVENT_ANSWER, .number = guard->question_number, .answer = &answer});
}

/* While dumping the counters are the pulse of the run: several must be missed within the control timeout. */
static uint64_t time_limit_ms(const struct guard *guard)
{
    uint64_t pulse_ms = guard->plan.settings.control_timeout_ms / 4;
    uint64_t limit = limit_ms[guard->question];
    return guard->question == SERVER_STATE && guard->run.state >= RUN_ARMED && pulse_ms < limit ? pulse_ms : limit;
}

static enum error_code submit(struct guard *guard, struct server_request *request)
{
    const struct server_command *command = &guard->plan.command;
    bool generate = guard->question == SERVER_PROBE || guard->question == SERVER_INFO || guard->question == SERVER_LOAD;
    uint64_t limit = time_limit_ms(guard);
    char url[256];
    snprintf(guard->question_route, sizeof guard->question_route, "%s %.*s", request->method,
             (int)strcspn(request->path, "?"), request->path);
    snprintf(url, sizeof url, "%s%s", guard->url, request->path);
    struct transfer_request transfer = {.method = request->method,
                                        .url = url,
                                        .body = request->body.length > 0 ? request->body.data : NULL,
                                        .body_length = request->body.length,
                                        .key = generate ? command->generate_key : command->api_key,
                                        .connect_timeout_ms = connect_ms < limit ? connect_ms : limit,
                                        .total_timeout_ms = limit,
                                        .body_max_bytes = ANSWER_MAX};
    struct error err = ERROR_INIT;
    enum error_code code = multi_submit(transfers_multi(guard->transfers), &transfer, answered, guard, &err);
    if (code != ERROR_NONE)
        guard_report_note(guard, RUN_ERROR, RUN_NOTE_SERVER, err.message);
    return code;
}

void guard_server_ask(struct guard *guard, const struct run_effect *effect)
{
    multi_cancel_all(transfers_multi(guard->transfers)); /* an older question is not waited for any more */
    guard->question = effect->question;
    guard->question_number = effect->number;
    guard->question_older = false;
    struct server_request request;
    guard->server->build(effect->question, effect->name, guard->plan.command.filter, effect->name, guard->probe_seed,
                         guard->run.facts.half, &request);
    if (submit(guard, &request) != ERROR_NONE)
        guard->question_broken = true; /* told from the loop: the machine is in the middle of a step */
    server_request_fini(&request);
}

/* What could not be told while the machine was in a step. */
void guard_server_turn(struct guard *guard)
{
    if (guard->listener_due) {
        guard->listener_due = false;
        guard_feed(guard, &(struct run_event){
                              .kind = RUN_EVENT_LISTENER, .listener = guard->listener, .text = guard->listener_text});
    }
    if (guard->question_broken) {
        guard->question_broken = false;
        static struct server_answer answer;
        answer = (struct server_answer){.question = guard->question};
        text_copy(answer.problem, sizeof answer.problem, "the request could not be sent");
        guard_feed(guard,
                   &(struct run_event){.kind = RUN_EVENT_ANSWER, .number = guard->question_number, .answer = &answer});
    }
}
