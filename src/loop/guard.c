/* The guard's life: setup, services, the loop, the end. guard.h has the story. The order of the end: who waits is
 * answered with the ended run, the record is written and copied, the watcher and the keeper are let go, what was queued
 * for log and disk is flushed (bounded), every handle is closed and the loop must be empty. */
#include "loop/guard_private.h"
#include "base/duration.h"
#include "base/memory.h"
#include "base/size.h"
#include "base/text.h"
#include "json/json.h"
#include "loop/clock.h"
#include "loop/guard_log.h"
#include "sys/file.h"

#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const uint64_t heartbeat_ms = KEEPER_HEARTBEAT_MS;
static const uint64_t flush_ms = 5000, close_ms = 5000;
static const uint64_t let_go_ms = 12000; /* for a keeper that still kills */

uint64_t guard_uptime_ms(const struct guard *guard)
{
    return guard->started_ms == 0 ? 0 : clock_now_ms() - guard->started_ms;
}

/* ---- the machine ---- */

static void arm_tick(struct guard *guard);

static void on_tick(uv_timer_t *timer)
{
    guard_feed(timer->data, &(struct run_event){.kind = RUN_EVENT_TICK});
}

static void arm_tick(struct guard *guard)
{
    uint64_t wake = guard->run.wake_ns, now = clock_now_ns();
    if (wake == UINT64_MAX) {
        uv_timer_stop(&guard->tick);
        return;
    }
    /* rounded up: a tick that comes early would find nothing due */
    uint64_t delay = wake > now ? (wake - now + 999999) / 1000000 : 0;
    uv_timer_start(&guard->tick, on_tick, delay, 0);
}

void guard_feed(struct guard *guard, const struct run_event *event)
{
    struct run_effects effects;
    enum run_state before = guard->run.state;
    if (guard->finished)
        return;
    guard->depth++;
    run_step(&guard->run, event, clock_now_ns(), &effects);
    for (unsigned i = 0; i < effects.count; i++)
        guard_effects_do(guard, &effects.effect[i]);
    guard->depth--;
    if (guard->depth > 0)
        return;
    guard_server_turn(guard);
    guard_check_turn(guard);
    guard_launch_turn(guard);
    guard_survey_follow(guard);
    if (guard->run.state != before) {
        guard_report_record(guard);
        guard_register_changed(guard);
    }
    if (guard->run.state != before && guard->run.state == RUN_ARMED)
        guard->trim_due = true;
    if (guard->run.state != before || effects.count > 0)
        guard_control_changed(guard);
    if (guard->finished)
        uv_stop(&guard->loop);
    else
        arm_tick(guard);
}

/* ---- timers ---- */

/* What changes by itself is free space; the record says it to whoever finds the guard dead. */
static uint64_t record_age_ms(const struct guard *guard)
{
    return guard->run.state == RUN_ARMED || guard->run.state == RUN_READY ? 60000 : 2000;
}

/* An audit is large, and what follows may be days of rest. */
static void trim(struct guard *guard)
{
    if (guard->trim_due)
        malloc_trim(0);
    guard->trim_due = false;
}

static void on_heartbeat(uv_timer_t *timer)
{
    struct guard *guard = timer->data;
    if (guard->has_keeper && !guard->keeper_gone)
        keeper_send(&guard->keeper, KEEPER_HEARTBEAT, NULL);
    guard_server_flush_output(guard);
    guard_suspend_look(guard);
    guard_space_turn(guard);
    guard_control_changed(guard); /* log readers */
    guard_control_look(guard);
    guard_register_turn(guard);
    guard_report_problems(guard);
    if (guard->record_due || clock_now_ms() - guard->record_ms >= record_age_ms(guard))
        guard_report_record(guard);
    trim(guard);
}

void guard_init_timers(struct guard *guard)
{
    uv_timer_init(&guard->loop, &guard->tick);
    uv_timer_init(&guard->loop, &guard->heartbeat);
    uv_timer_init(&guard->loop, &guard->waiting);
    guard->tick.data = guard->heartbeat.data = guard->waiting.data = guard;
    guard_signals_watch(guard);
    guard->handles_open = true;
}

/* ---- services ---- */

static enum error_code start_sinks(struct guard *guard, struct error *err)
{
    enum error_code code = sink_new(0, 0600, &guard->sink, err);
    if (code == ERROR_NONE)
        code = sink_new(0, 0666, &guard->dump_sink, err);
    if (code == ERROR_NONE)
        code = guard_log_start(guard, err);
    if (code != ERROR_NONE || guard->plan.from_daemon)
        return code;
    code = sink_add_descriptor(guard->sink, STDOUT_FILENO, &guard->out_target, err);
    if (code == ERROR_NONE)
        code = sink_add_descriptor(guard->sink, STDERR_FILENO, &guard->err_target, err);
    return code;
}

/* What was set and added, in short: the record keeps each note with its reason. */
static void tell_notes(struct guard *guard)
{
    struct buffer line;
    buffer_init(&line);
    for (size_t i = 0; i < guard->plan.notes.count; i++) {
        const char *text = guard->plan.notes.items[i], *reason = strstr(text, ": ");
        bool more = i > 0 && text_starts(text, "set ") && text_starts(guard->plan.notes.items[i - 1], "set ");
        buffer_text(&line, i == 0 ? "launch: " : more ? " " : ", ");
        size_t skipped = more ? strlen("set ") : 0;
        buffer_append(&line, text + skipped, (reason != NULL ? (size_t)(reason - text) : strlen(text)) - skipped);
    }
    if (line.length > 0)
        guard_report_note(guard, RUN_INFO, RUN_NOTE_NOTE, line.data);
    buffer_fini(&line);
}

static void tell_plan(struct guard *guard)
{
    const struct guard_plan *plan = &guard->plan;
    char line[1024], levels[512];
    guard_space_describe(plan, levels, sizeof levels);
    snprintf(line, sizeof line, "run %s, dumps in %s: %s", plan->settings.name, plan->directory, levels);
    guard_report_note(guard, RUN_INFO, RUN_NOTE_NOTE, line);
    for (size_t i = 0; i < plan->raised.count; i++)
        guard_report_note(guard, RUN_INFO, RUN_NOTE_SPACE, plan->raised.items[i]);
    tell_notes(guard);
}

void guard_started(struct guard *guard, const struct keeper_message *message)
{
    struct error err = ERROR_INIT;
    char line[512], act[SIZE_TEXT];
    if (message->cgroup_error != 0)
        cgroup_set_none(&guard->keeper.cgroup, strerror(message->cgroup_error));
    text_copy(guard->guarantee, sizeof guard->guarantee, guard->keeper.cgroup.guarantee);
    if (guard_space_start(guard, (uint64_t)message->kill_ns, &err) != ERROR_NONE) {
        /* without a watcher there is no run */
        guard_feed(guard, &(struct run_event){.kind = RUN_EVENT_EXEC_FAILED,
                                              .exit_code = (int)error_status(err.code),
                                              .text = err.message});
        return;
    }
    struct watcher_snapshot snapshot;
    guard_space_get(guard, &snapshot);
    snprintf(line, sizeof line, "guarded by %s; a rehearsed kill took %.1f ms; kill level %s", guard->guarantee,
             (double)message->kill_ns / 1e6, size_text(snapshot.act_bytes, act));
    guard_report_note(guard, RUN_INFO, RUN_NOTE_SPACE, line);
    guard_feed(guard, &(struct run_event){.kind = RUN_EVENT_STARTED, .pid = message->pid});
}

static enum error_code start_services(struct guard *guard, struct error *err)
{
    enum error_code code = start_sinks(guard, err);
    guard->transfers = transfers_new(&guard->loop);
    return code == ERROR_NONE ? guard_control_start(guard, err) : code;
}

static void init_run(struct guard *guard)
{
    struct run_settings settings = {.plain = guard->plan.settings.kind == SETTINGS_KIND_PLAIN,
                                    .start_timeout_ms = guard->plan.settings.start_timeout_ms,
                                    .stop_timeout_ms = guard->plan.settings.stop_timeout_ms,
                                    .control_timeout_ms = guard->plan.settings.control_timeout_ms,
                                    .blind_limit_ms = guard->plan.settings.blind_limit_ms,
                                    .budget_bytes = guard->plan.settings.budget_bytes};
    text_copy(settings.name, sizeof settings.name, guard->plan.settings.name);
    snprintf(settings.probe_experiment, sizeof settings.probe_experiment, "kldump-probe-%.8s", guard->plan.cookie);
    snprintf(settings.probe_request, sizeof settings.probe_request, "kldump-probe-%.8s", guard->plan.cookie);
    guard->probe_seed = strtoull(guard->plan.cookie + 16, NULL, 16);
    guard->started_ms = clock_now_ms();
    guard->started_wall_ms = clock_wall_ms();
    guard->history_every_ms = 1000;
    run_init(&guard->run, &settings, clock_now_ns());
}

/* ---- the end ---- */

/* The last lines of a server that did not get to armed, once more, since the lines of its end lie between. */
static void show_last_lines(struct guard *guard)
{
    uint64_t count = guard->line_count;
    if (guard->run.was_armed || guard->run.outcome == RUN_OUTCOME_STOPPED || count == 0)
        return;
    guard_report_note(guard, RUN_INFO, RUN_NOTE_SERVER, "the server's last lines:");
    for (uint64_t i = count > GUARD_LAST_LINES ? count - GUARD_LAST_LINES : 0; i < count; i++) {
        const struct guard_line *kept = &guard->last_lines[i % GUARD_LAST_LINES];
        char line[sizeof kept->text + 8] = "  | ";
        text_clean(kept->text, kept->length, line + strlen(line), sizeof line - strlen(line));
        guard_report_note(guard, RUN_INFO, RUN_NOTE_SERVER, line);
    }
}

static void close_handle(uv_handle_t *handle)
{
    if (!uv_is_closing(handle))
        uv_close(handle, NULL);
}

static void close_handles(struct guard *guard)
{
    if (!guard->handles_open)
        return;
    close_handle((uv_handle_t *)&guard->tick);
    close_handle((uv_handle_t *)&guard->heartbeat);
    close_handle((uv_handle_t *)&guard->waiting);
    guard_signals_close(guard);
}

static void on_limit(uv_timer_t *timer)
{
    uv_stop(timer->loop);
}

static void close_services(struct guard *guard)
{
    guard_space_stop(guard);
    guard_check_fini(guard);
    guard_after_fini(guard);
    if (guard->transfers != NULL)
        transfers_close(guard->transfers, NULL, NULL);
    if (guard->output != NULL)
        output_close(guard->output, NULL, NULL);
    guard_server_end_output(guard);
    if (guard->control != NULL)
        control_close(guard->control, 1000, NULL, NULL);
    close_handles(guard);
    /* Work on libuv's pool may hang on a dead dump disk, and would be waited for at exit() too. */
    uv_timer_init(&guard->loop, &guard->limit);
    uv_timer_start(&guard->limit, on_limit, close_ms, 0);
    uv_unref((uv_handle_t *)&guard->limit);
    uv_run(&guard->loop, UV_RUN_DEFAULT);
    guard->stuck = uv_loop_alive(&guard->loop) != 0;
}

static void end(struct guard *guard)
{
    if (guard->watcher != NULL)
        watcher_disarm(guard->watcher); /* its triggers are descriptors that are closed now */
    guard_launch_unwatch(guard);
    bool let_go = !guard->has_keeper || keeper_fini(&guard->keeper, (int)let_go_ms);
    if (!let_go && guard->run.outcome != RUN_OUTCOME_UNKILLABLE)
        guard_report_note(guard, RUN_WARN, RUN_NOTE_END, "the keeper or the run's cgroup could not be removed");
    show_last_lines(guard);
    guard_report_dropped(guard);
    file_remove_all(guard->plan.temporary);
    guard_report_record(guard);
    guard_report_copy(guard);
    guard_register_end(guard);
    guard_control_end(guard);
    sink_flush(guard->dump_sink, flush_ms);
    if (guard_report_problems(guard))
        guard_report_record(guard); /* while there is a watcher to be asked */
    close_services(guard);
    sink_free(guard->sink, flush_ms);
    sink_free(guard->dump_sink, 0);
}

/* ---- main ---- */

static int refuse(struct guard *guard, const struct error *err)
{
    sink_free(guard->sink, flush_ms); /* what was said so far comes before the reason */
    sink_free(guard->dump_sink, flush_ms);
    int status = error_status(err->code) == STATUS_USAGE ? STATUS_INTERNAL : (int)error_status(err->code);
    if (guard->plan.from_daemon) {
        struct json *object = json_object();
        struct buffer text;
        buffer_init(&text);
        json_set_string(object, "error", error_name(err->code));
        json_set_i64(object, "status", status);
        json_set_string(object, "message", err->message);
        json_print(object, &text);
        printf("%s\n", text.data);
        buffer_fini(&text);
        json_free(object);
    } else {
        char clean[sizeof err->message];
        fprintf(stderr, "kldump: %s\n", text_clean(err->message, strlen(err->message), clean, sizeof clean));
    }
    fflush(NULL);
    return status;
}

/* kldumpd may go away now: nothing of it is needed any more. */
static void tell_daemon(const struct guard *guard)
{
    if (!guard->plan.from_daemon)
        return;
    printf("{\"run\":\"%s\"}\n", guard->plan.settings.name);
    fflush(stdout);
    if (freopen("/dev/null", "w", stdout) == NULL)
        return; /* it will get SIGPIPE ignored */
}

int guard_main(char **arguments, const struct server_operations *server)
{
    static struct guard guard; /* large */
    struct error err = ERROR_INIT;
    int status;
    guard.server = server;
    mallopt(M_ARENA_MAX, 1); /* the threads allocate little: an arena for each would be most of the guard's memory */
    file_open_standard();
    guard_signals_init();
    uv_loop_init(&guard.loop);
    if (guard_setup(&guard, arguments, &err) != ERROR_NONE || (init_run(&guard), false) ||
        start_services(&guard, &err) != ERROR_NONE || (tell_plan(&guard), guard_launch(&guard, &err)) != ERROR_NONE) {
        status = refuse(&guard, &err);
        if (guard.plan.temporary != NULL)
            file_remove_all(guard.plan.temporary);
        if (guard.control != NULL)
            unlink(guard.plan.control_path);
    } else {
        tell_daemon(&guard);
        guard.set_up = true;
        guard_register_begin(&guard);
        uv_timer_start(&guard.heartbeat, on_heartbeat, heartbeat_ms, heartbeat_ms);
        arm_tick(&guard);
        unlink(guard.plan.record_path); /* of an older run of this name: ours may not fit */
        guard_report_record(&guard);
        uv_run(&guard.loop, UV_RUN_DEFAULT);
        end(&guard);
        status = run_exit_status(&guard.run);
        if (guard.stuck)
            _exit(status);
    }
    guard_report_fini(&guard);
    guard_plan_fini(&guard.plan);
    return status;
}
