/* What a guard tells: notes on the terminal, the run object of status and record, events. The record is one JSON file
 * in the runtime folder, replaced atomically by the sink's thread after each change, and copied beside the dump at the
 * end. */
#include "loop/guard_private.h"
#include "base/duration.h"
#include "base/memory.h"
#include "base/size.h"
#include "base/text.h"
#include "json/json.h"
#include "loop/clock.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- notes ---- */

static void keep_event(struct guard *guard, enum run_level level, enum run_note note, const char *text)
{
    if (guard->event_count == GUARD_EVENTS_MAX) {
        free(guard->events[0].text);
        memmove(guard->events, guard->events + 1, (GUARD_EVENTS_MAX - 1) * sizeof *guard->events);
        guard->event_count--;
    }
    if (guard->event_count == guard->event_room) { /* most runs have few */
        guard->event_room = guard->event_room == 0 ? 64 : 2 * guard->event_room;
        guard->events = memory_resize(guard->events, guard->event_room, sizeof *guard->events);
    }
    guard->events[guard->event_count++] = (struct guard_event){.number = ++guard->event_number,
                                                               .wall_ms = clock_wall_ms(),
                                                               .uptime_ms = guard_uptime_ms(guard),
                                                               .level = level,
                                                               .note = note,
                                                               .text = memory_copy(text)};
}

void guard_report_note(struct guard *guard, enum run_level level, enum run_note note, const char *text)
{
    keep_event(guard, level, note, text);
    guard->record_due = true;
    if (guard->plan.from_daemon)
        return;
    char line[1024];
    static const char *const marks[] = {[RUN_INFO] = "", [RUN_WARN] = "warning: ", [RUN_ERROR] = "error: "};
    int length = snprintf(line, sizeof line, "kldump: [%7.1f s] %s%s\n", (double)guard_uptime_ms(guard) / 1000,
                          marks[level], text);
    size_t size = length < (int)sizeof line ? (size_t)length : sizeof line - 1;
    if (guard->sink != NULL)
        sink_append(guard->sink, guard->err_target, line, size);
    else if (write(STDERR_FILENO, line, size) < 0)
        return; /* nobody reads; the event is kept */
}

struct json *guard_report_events(struct guard *guard, uint64_t after)
{
    struct json *array = json_array();
    char at[CLOCK_TEXT];
    for (size_t i = 0; i < guard->event_count; i++) {
        const struct guard_event *event = &guard->events[i];
        if (event->number <= after)
            continue;
        struct json *object = json_append_object(array);
        json_set_u64(object, "n", event->number);
        json_set_string(object, "at", clock_text(event->wall_ms, at));
        json_set_u64(object, "uptime_ms", event->uptime_ms);
        json_set_string(object, "level", run_level_name(event->level));
        json_set_string(object, "kind", run_note_name(event->note));
        json_set_string(object, "text", event->text);
    }
    return array;
}

/* ---- the run object ---- */

static void set_known(struct json *object, const char *key, bool known, uint64_t value)
{
    if (known)
        json_set_u64(object, key, value);
    else
        json_set_null(object, key);
}

static void add_proofs(struct guard *guard, struct json *object)
{
    static const char *const verdicts[] = {
        [SERVER_PROVEN] = "proven", [SERVER_LIMITED] = "limited", [SERVER_FAILED] = "failed"};
    const struct run *run = &guard->run;
    bool judged = run->judgement.text[0] != '\0';
    struct json *proofs = json_set_object(object, "proofs");
    json_set_string(proofs, "verdict", judged ? verdicts[run->judgement.verdict] : NULL);
    json_set_string(proofs, "text", judged ? run->judgement.text : "");
    json_set_string(proofs, "decode_graphs", run->facts.graphs_known ? run->facts.decode_graphs : NULL);
    json_set_string(proofs, "prefill_graphs", run->facts.graphs_known ? run->facts.prefill_graphs : NULL);
    set_known(proofs, "ranks", run->last.ranks > 0, run->last.ranks);
    const struct server_costs *costs = &run->judgement.costs;
    struct json *cost = json_set_object(object, "costs");
    set_known(cost, "bytes_per_prefill_token", costs->bytes_per_prefill_token > 0, costs->bytes_per_prefill_token);
    set_known(cost, "bytes_per_decode_pass", costs->bytes_per_decode_pass > 0, costs->bytes_per_decode_pass);
    set_known(cost, "files_per_pass", costs->files_per_pass > 0, costs->files_per_pass);
}

static void add_inodes(const struct guard_plan *plan, const struct watcher_snapshot *snapshot, struct json *space)
{
    bool counted = plan->inodes_counted;
    set_known(space, "free_inodes", counted, snapshot->looks > 0 ? snapshot->reading.free_inodes : plan->free_inodes);
    set_known(space, "floor_inodes", counted, plan->floor_inodes);
    set_known(space, "act_inodes", counted, snapshot->act_inodes != 0 ? snapshot->act_inodes : plan->floor_inodes);
    set_known(space, "pending_bytes", plan->pending_fd >= 0, snapshot->reading.pending_bytes);
}

static void add_space(struct guard *guard, struct json *object)
{
    struct watcher_snapshot snapshot;
    guard_space_get(guard, &snapshot);
    const struct guard_plan *plan = &guard->plan;
    uint64_t free_bytes = snapshot.looks > 0 ? snapshot.reading.free_bytes : plan->free_at_start_bytes;
    uint64_t per_token = guard->run.judgement.costs.bytes_per_prefill_token;
    struct json *space = json_set_object(object, "space");
    json_set_string(space, "path", plan->directory);
    json_set_string(space, "level", space_level_name(snapshot.pulled ? SPACE_FLOOR : guard->space_told));
    json_set_u64(space, "total_bytes", snapshot.looks > 0 ? snapshot.reading.total_bytes : plan->total_bytes);
    json_set_u64(space, "free_bytes", free_bytes);
    json_set_u64(space, "floor_bytes", plan->floor_bytes);
    json_set_u64(space, "act_bytes", snapshot.act_bytes != 0 ? snapshot.act_bytes : plan->floor_bytes);
    json_set_u64(space, "soft_bytes", plan->soft_bytes);
    json_set_u64(space, "warn_bytes", plan->warn_bytes);
    set_known(space, "budget_bytes", plan->settings.budget_bytes > 0, plan->settings.budget_bytes);
    json_set_u64(space, "written_bytes", guard->run.written_bytes);
    json_set_bool(space, "blind", guard->run.space == SPACE_UNMEASURABLE);
    add_inodes(plan, &snapshot, space);
    json_set_u64(space, "rate_bytes_per_s", snapshot.latest.rate_bytes_per_s);
    bool shrinking = snapshot.looks > 0 && snapshot.latest.rate_bytes_per_s > 0;
    if (shrinking)
        json_set_double(space, "seconds_to_floor", (double)snapshot.latest.ms_to_floor / 1000);
    else
        json_set_null(space, "seconds_to_floor");
    set_known(space, "tokens_to_floor", per_token > 0, space_units_left(free_bytes, snapshot.act_bytes, per_token));
    json_set_u64(space, "reading_age_ms", snapshot.reading_age_ns / 1000000);
    json_set_u64(space, "interval_ms", snapshot.latest.interval_ns / 1000000);
}

static void add_seals(struct guard *guard, struct json *object)
{
    struct json *array = json_set_array(object, "seals");
    for (size_t i = 0; i < guard->seal_count; i++) {
        const struct guard_seal *seal = &guard->seals[i];
        struct json *one = json_append_object(array);
        json_set_string(one, "experiment", seal->experiment);
        json_set_bool(one, "complete", seal->complete);
        json_set_string(one, "sealed_by", run_sealed_by_name(seal->by));
        struct json *reasons = json_set_array(one, "reasons"); /* the first few: the seal's file has them all */
        for (size_t k = 0; k < seal->reasons.count && k < GUARD_SEAL_REASONS; k++)
            json_append_string(reasons, seal->reasons.items[k]);
        json_set_u64(one, "ranks", seal->ranks);
        json_set_u64(one, "steps", seal->steps);
        json_set_u64(one, "files", seal->files);
        json_set_u64(one, "bytes", seal->bytes);
    }
}

struct json *guard_report_run(struct guard *guard)
{
    const struct guard_plan *plan = &guard->plan;
    const struct run *run = &guard->run;
    bool ended = run->state == RUN_ENDED;
    char at[CLOCK_TEXT];
    struct json *object = json_object();
    json_set_string(object, "name", plan->settings.name);
    json_set_string(object, "owner", plan->owner);
    json_set_u64(object, "uid", getuid());
    json_set_string(object, "state", run_state_name(run->state));
    json_set_string(object, "kind", settings_kind_name(plan->settings.kind));
    json_set_string(object, "outcome", ended ? run_outcome_name(run->outcome) : NULL);
    set_known(object, "exit_status", ended, (uint64_t)run_exit_status(run));
    set_known(object, "pid", run->pid > 0, (uint64_t)run->pid);
    json_set_u64(object, "guard_pid", (uint64_t)getpid());
    set_known(object, "port", !plan->command.is_wrapper || plan->command.port_given, plan->command.port);
    json_set_string(object, "url", guard->url[0] != '\0' ? guard->url : NULL);
    json_set_string(object, "exp", run->experiment[0] != '\0' ? run->experiment : NULL);
    json_set_bool(object, "external", run->external && run->experiment[0] != '\0');
    json_set_bool(object, "revoked", run->revoked);
    json_set_string(object, "disturbance", run->disturbance[0] != '\0' ? run->disturbance : NULL);
    json_set_string(object, "dir", plan->directory);
    json_set_string(object, "guarantee", guard->guarantee);
    json_set_string(object, "started_at", clock_text(guard->started_wall_ms, at));
    json_set_u64(object, "uptime_ms", guard_uptime_ms(guard));
    json_set_string(object, "stage", run->stage);
    struct list shown = {0};
    guard->server->redact(&plan->argv, &shown);
    json_set_list(object, "command", &shown);
    list_fini(&shown);
    json_set_string(object, "sglang_version", plan->version[0] != '\0' ? plan->version : NULL);
    add_proofs(guard, object);
    add_space(guard, object);
    add_seals(guard, object);
    json_set_string(object, "message", run->message);
    return object;
}

/* ---- the record ---- */

/* A kill at the floor on the monotonic clock, for whoever wants to know how long it took. */
static void add_floor_kill(struct guard *guard, struct json *object)
{
    struct watcher_snapshot snapshot;
    guard_space_get(guard, &snapshot);
    if (!snapshot.pulled) {
        json_set_null(object, "floor_kill");
        return;
    }
    struct json *kill = json_set_object(object, "floor_kill");
    json_set_u64(kill, "decided_ns", snapshot.decided_at_ns);
    json_set_u64(kill, "ordered_ns", snapshot.pulled_at_ns);
    json_set_u64(kill, "gone_ns", guard->gone_ns);
    json_set_u64(kill, "looks_in_last_4_gib", snapshot.near_looks);
    json_set_u64(kill, "looks", snapshot.looks);
    json_set_u64(kill, "free_bytes", snapshot.pulled_by.free_bytes);
}

static struct json *record(struct guard *guard)
{
    struct json *object = json_object();
    json_set_string(object, "schema", "kldump.record/1");
    json_set_child(object, "run", guard_report_run(guard));
    struct json *settings = json_set_object(object, "settings");
    struct buffer value;
    buffer_init(&value);
    for (int id = 0; id < SETTINGS_COUNT; id++) {
        buffer_clear(&value);
        settings_value(&guard->plan.settings, (enum settings_id)id, &value);
        if (settings_key((enum settings_id)id)[0] != '\0')
            json_set_string(settings, settings_key((enum settings_id)id), value.data);
    }
    buffer_fini(&value);
    json_set_list(object, "notes", &guard->plan.notes);
    json_set_child(object, "events", guard_report_events(guard, 0));
    add_floor_kill(guard, object);
    struct json *history = json_set_array(object, "space_history");
    for (size_t i = 0; i < guard->history_count; i++) {
        struct json *point = json_append_object(history);
        json_set_u64(point, "uptime_ms", guard->history[i].uptime_ms);
        json_set_u64(point, "free_bytes", guard->history[i].free_bytes);
    }
    return object;
}

static void hand_over(struct guard *guard, struct sink *sink, const char *path)
{
    struct json *object = record(guard);
    struct buffer text;
    buffer_init(&text);
    json_print_pretty(object, &text);
    buffer_text(&text, "\n");
    sink_replace(sink, path, text.data, text.length);
    buffer_fini(&text);
    json_free(object);
}

void guard_report_record(struct guard *guard)
{
    guard->record_due = false;
    guard->record_ms = clock_now_ms();
    hand_over(guard, guard->sink, guard->plan.record_path);
}

void guard_report_copy(struct guard *guard)
{
    hand_over(guard, guard->dump_sink, guard->plan.copy_path);
}

/* Once when it begins; how much it was is told at the end. */
static bool tell_dropped(struct guard *guard, uint64_t bytes)
{
    if (bytes == 0 || guard->dropped_told)
        return false;
    guard->dropped_told = true;
    guard_report_note(guard, RUN_WARN, RUN_NOTE_SERVER,
                      "the server's output comes faster than the terminal or the log takes it: some of it is left out, "
                      "since the server must not wait");
    return true;
}

void guard_report_dropped(struct guard *guard)
{
    struct sink_state state;
    char line[128], size[SIZE_TEXT];
    sink_get(guard->sink, &state);
    if (state.dropped_bytes == 0)
        return;
    snprintf(line, sizeof line, "%s of output were left out", size_text(state.dropped_bytes, size));
    guard_report_note(guard, RUN_WARN, RUN_NOTE_SERVER, line);
}

bool guard_report_problems(struct guard *guard)
{
    struct sink *const sinks[] = {guard->sink, guard->dump_sink};
    bool news = false;
    for (size_t i = 0; i < sizeof sinks / sizeof sinks[0]; i++) {
        struct sink_state state;
        sink_get(sinks[i], &state);
        news = tell_dropped(guard, state.dropped_bytes) || news;
        if (state.problem[0] == '\0' || strcmp(state.problem, guard->problem_told[i]) == 0)
            continue;
        text_copy(guard->problem_told[i], sizeof guard->problem_told[i], state.problem);
        guard_report_note(guard, RUN_WARN, RUN_NOTE_NOTE, state.problem);
        news = true;
    }
    return news;
}

void guard_report_fini(struct guard *guard)
{
    for (size_t i = 0; i < guard->event_count; i++)
        free(guard->events[i].text);
    free(guard->events);
    for (size_t i = 0; i < guard->seal_count; i++)
        list_fini(&guard->seals[i].reasons);
}
