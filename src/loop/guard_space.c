/* The guard's side of the watcher: what it reads, what it pulls, and the one line that says with numbers why a run was
 * killed. The watcher pulls the trigger by itself; what is done here is telling. */
#include "loop/guard_private.h"
#include "base/duration.h"
#include "base/size.h"
#include "loop/clock.h"
#include "sys/space.h"

#include <stdio.h>

/* Rehearsed on a child that holds nothing; a server has gigabytes to unmap, so twice that, and never less than 5 ms.
 * (Dying processes write nothing: SIGKILL ends a write between two pages.) */
static const uint64_t least_kill_ns = 5000000;

static void read_space(void *context, struct space_reading *ret_reading)
{
    const struct guard *guard = context;
    struct space space;
    ret_reading->measurable = space_read(guard->plan.directory_fd, &space, NULL) == ERROR_NONE && space.measurable;
    if (ret_reading->measurable) {
        ret_reading->total_bytes = space.total_bytes;
        ret_reading->free_bytes = space.free_bytes;
    }
}

static bool pull_keeper(void *context)
{
    return keeper_send(context, KEEPER_KILL, NULL) == ERROR_NONE;
}

static void tell_floor(struct guard *guard, const struct watcher_snapshot *snapshot)
{
    char free_text[SIZE_TEXT], act[SIZE_TEXT], floor[SIZE_TEXT], rate[SIZE_TEXT], gone[SIZE_TEXT], line[512];
    uint64_t start = guard->plan.free_at_start_bytes, now = snapshot->pulled_by.free_bytes;
    snprintf(line, sizeof line,
             "%s free on %s, kill level %s (floor %s), shrinking by %s/s; %s went since the start "
             "of the run",
             size_text(now, free_text), guard->plan.directory, size_text(snapshot->act_bytes, act),
             size_text(guard->plan.floor_bytes, floor), size_text(snapshot->latest.rate_bytes_per_s, rate),
             size_text(start > now ? start - now : 0, gone));
    guard_feed(guard, &(struct run_event){.kind = RUN_EVENT_FLOOR, .text = line});
}

static void tell_order(struct guard *guard, const struct watcher_snapshot *snapshot)
{
    if ((!snapshot->pulled && !snapshot->pull_failed) || guard->floor_told)
        return;
    guard->floor_told = true;
    tell_floor(guard, snapshot);
}

void guard_space_settle(struct guard *guard)
{
    struct watcher_snapshot snapshot;
    if (guard->watcher == NULL || guard->floor_told)
        return;
    watcher_settled(guard->watcher, &snapshot);
    tell_order(guard, &snapshot);
}

static void changed(void *user)
{
    struct guard *guard = user;
    struct watcher_snapshot snapshot;
    watcher_get(guard->watcher, &snapshot);
    tell_order(guard, &snapshot);
    bool blind = snapshot.looks > 0 && snapshot.latest.level == SPACE_UNMEASURABLE;
    if (blind != guard->blind_told) {
        guard->blind_told = blind;
        guard_report_note(guard, blind ? RUN_WARN : RUN_INFO, RUN_NOTE_SPACE,
                          blind ? "free space cannot be measured now" : "free space can be measured again");
    }
}

/* The kill level lies above the floor by what the worst writer could write meanwhile; on a small disk that can be more
 * than is free, and then the first look would kill a run that has written nothing. */
static enum error_code refuse_small_disk(const struct guard *guard, const struct space_limits *limits,
                                         struct error *err)
{
    char act[SIZE_TEXT], free_text[SIZE_TEXT], rate[SIZE_TEXT];
    struct space_policy policy;
    space_policy_init(&policy, limits);
    if (policy.act_bytes < guard->plan.free_at_start_bytes)
        return ERROR_NONE;
    return error_set(
        err, ERROR_SPACE,
        "the kill level %s is above the %s that are free: it is the floor plus what a writer of %s/s writes until "
        "everything is dead; give a larger --dir, a lower --floor, or a lower worst_rate in --config",
        size_text(policy.act_bytes, act), size_text(guard->plan.free_at_start_bytes, free_text),
        size_text(limits->worst_rate_bytes_per_s, rate));
}

enum error_code guard_space_start(struct guard *guard, uint64_t kill_ns, struct error *err)
{
    uint64_t margin_ns = 2 * kill_ns > least_kill_ns ? 2 * kill_ns : least_kill_ns;
    struct watcher_options options = {
        .limits = {.floor_bytes = guard->plan.floor_bytes,
                   .worst_rate_bytes_per_s = guard->plan.settings.worst_rate_bytes_per_s,
                   .kill_time_ns = margin_ns,
                   .min_interval_ns = 1000000,
                   .max_interval_ns = 1000000000},
        .read = read_space,
        .read_context = guard,
        .changed = changed,
        .user = guard,
    };
    unsigned count = 0;
    if (guard->keeper.cgroup.kind != CGROUP_NONE)
        options.triggers[count++] = (struct watcher_trigger){watcher_pull_cgroup, &guard->keeper.cgroup.kill_fd};
    options.triggers[count] = (struct watcher_trigger){pull_keeper, &guard->keeper};
    enum error_code code = refuse_small_disk(guard, &options.limits, err);
    return code == ERROR_NONE ? watcher_start(&guard->loop, &options, &guard->watcher, err) : code;
}

void guard_space_get(struct guard *guard, struct watcher_snapshot *ret_snapshot)
{
    *ret_snapshot = (struct watcher_snapshot){0};
    if (guard->watcher != NULL)
        watcher_get(guard->watcher, ret_snapshot);
}

/* A point each second at first; when the table is full every second point goes and points come half as often. */
void guard_space_history(struct guard *guard)
{
    struct watcher_snapshot snapshot;
    guard_space_get(guard, &snapshot);
    uint64_t now = guard_uptime_ms(guard);
    if (snapshot.looks == 0 || now < guard->history_next_ms)
        return;
    if (guard->history_count == GUARD_HISTORY_MAX) {
        for (size_t i = 0; i < GUARD_HISTORY_MAX / 2; i++)
            guard->history[i] = guard->history[2 * i];
        guard->history_count = GUARD_HISTORY_MAX / 2;
        guard->history_every_ms *= 2;
    }
    guard->history[guard->history_count++] = (struct guard_space_point){now, snapshot.reading.free_bytes};
    guard->history_next_ms = now + guard->history_every_ms;
}
