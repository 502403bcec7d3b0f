/* The guard's side of the watcher: what it reads, what it pulls, and the one line that says with numbers why a run was
 * killed. The watcher pulls the trigger by itself; what is done here is telling. */
#include "loop/guard_private.h"
#include "base/number.h"
#include "base/size.h"
#include "base/text.h"
#include "loop/clock.h"
#include "sys/space.h"

#include <stdio.h>

/* A reading is due at least each second. */
static const uint64_t blind_after_ns = 3000000000;
static const uint64_t blocked_after_ns = 1000000000; /* a reading takes microseconds */
static const uint64_t count_limit_ms = 300;          /* for the last count of what the run wrote */

static void read_space(void *context, struct space_reading *ret_reading)
{
    const struct guard *guard = context;
    struct space space;
    ret_reading->measurable = space_read(guard->plan.directory_fd, &space, NULL) == ERROR_NONE && space.measurable;
    if (ret_reading->measurable) {
        ret_reading->total_bytes = space.total_bytes;
        ret_reading->free_bytes = space.free_bytes;
        ret_reading->pending_bytes = space_read_pending(guard->plan.pending_fd);
        ret_reading->inodes_counted = space.inodes_counted;
        ret_reading->total_inodes = space.total_inodes;
        ret_reading->free_inodes = space.free_inodes;
        ret_reading->read_only = space.read_only;
    }
}

static bool pull_keeper(void *context)
{
    return keeper_send(context, KEEPER_KILL, NULL) == ERROR_NONE;
}

static void tell_floor(struct guard *guard, const struct watcher_snapshot *snapshot)
{
    const struct guard_plan *plan = &guard->plan;
    const struct space_reading *reading = &snapshot->pulled_by;
    char free_text[SIZE_TEXT], act[SIZE_TEXT], floor[SIZE_TEXT], rate[SIZE_TEXT], share[160], line[768];
    uint64_t now = space_free(reading);
    guard->floor_told = true;
    guard_survey_share(guard, now, share, sizeof share);
    if (now > snapshot->act_bytes)
        snprintf(line, sizeof line,
                 "%llu inodes free on %s, kill level %llu (floor %llu); %llu went since the start of the run; %s",
                 (unsigned long long)reading->free_inodes, plan->directory, (unsigned long long)snapshot->act_inodes,
                 (unsigned long long)plan->floor_inodes,
                 (unsigned long long)number_subtract(plan->free_inodes, reading->free_inodes), share);
    else
        snprintf(line, sizeof line, "%s free on %s, kill level %s (floor %s), shrinking by %s/s; %s",
                 size_text(now, free_text), plan->directory, size_text(snapshot->act_bytes, act),
                 size_text(plan->floor_bytes, floor), size_text(snapshot->latest.rate_bytes_per_s, rate), share);
    guard_feed(guard, &(struct run_event){.kind = RUN_EVENT_FLOOR, .text = line});
}

/* Once the order is given there is time to count who wrote how much; never before it. The loop waits for the count, so
 * that nothing that the kill causes (a connection that breaks) is told before the kill is. */
static void tell_order(struct guard *guard, const struct watcher_snapshot *snapshot)
{
    if ((!snapshot->pulled && !snapshot->pull_failed) || guard->floor_told)
        return;
    if (guard->survey != NULL)
        survey_ask(guard->survey);
    if (snapshot->pulled)
        guard_survey_counts(guard, count_limit_ms);
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

/* ---- levels above the floor ---- */

static void describe_blind(const struct guard *guard, const struct watcher_snapshot *snapshot, char *ret_text,
                           size_t size)
{
    double seconds = (double)snapshot->reading_age_ns / 1e9;
    if (guard->space_lost[0] != '\0')
        text_copy(ret_text, size, guard->space_lost);
    else if (snapshot->blocked_ns > blocked_after_ns)
        snprintf(ret_text, size, "the filesystem of %s does not answer: no reading of its free space for %.1f s",
                 guard->plan.directory, seconds);
    else
        snprintf(ret_text, size, "the filesystem of %s has told no free space for %.1f s", guard->plan.directory,
                 seconds);
}

static void describe_level(const struct guard *guard, const struct watcher_snapshot *snapshot, enum space_level level,
                           char *ret_text, size_t size)
{
    const struct guard_plan *plan = &guard->plan;
    const struct space_reading *reading = &snapshot->reading;
    char free_text[SIZE_TEXT], warn[SIZE_TEXT], soft[SIZE_TEXT], floor[SIZE_TEXT], rate[SIZE_TEXT];
    size_text(space_free(reading), free_text);
    size_text(plan->warn_bytes, warn);
    size_text(plan->soft_bytes, soft);
    size_text(plan->floor_bytes, floor);
    size_text(snapshot->latest.rate_bytes_per_s, rate);
    if (level == SPACE_SOFT && (reading->read_only || guard->space_read_only))
        snprintf(ret_text, size, "the filesystem of %s has become read-only", plan->directory);
    else if (level == SPACE_SOFT)
        snprintf(ret_text, size, "%s free on %s, at or below the soft level %s (floor %s), shrinking by %s/s",
                 free_text, plan->directory, soft, floor, rate);
    else if (level == SPACE_WARN)
        snprintf(ret_text, size,
                 "%s free on %s, at or below the warning level %s; dumping off at %s, floor %s, shrinking by %s/s",
                 free_text, plan->directory, warn, soft, floor, rate);
    else
        snprintf(ret_text, size, "%s free on %s, above the warning level %s", free_text, plan->directory, warn);
}

/* A level that holds now; what was told before while nothing better is known. */
static enum space_level level_now(const struct guard *guard, const struct watcher_snapshot *snapshot)
{
    enum space_level level = snapshot->latest.level;
    if (guard->space_lost[0] != '\0' || snapshot->reading_age_ns > blind_after_ns)
        return SPACE_UNMEASURABLE;
    if (guard->space_read_only)
        return SPACE_SOFT;
    if (snapshot->looks == 0 || level == SPACE_UNMEASURABLE || level == SPACE_FLOOR)
        return guard->space_told;
    return level;
}

void guard_space_level(struct guard *guard)
{
    struct watcher_snapshot now;
    const struct watcher_snapshot *snapshot = &now;
    char text[512];
    if (guard->watcher == NULL)
        return;
    watcher_get(guard->watcher, &now);
    /* A mount that has said so can also say that it is over; an own write that failed cannot. */
    if (!snapshot->reading.read_only && guard->space_mount_read_only)
        guard->space_read_only = false;
    guard->space_mount_read_only = snapshot->reading.read_only;
    enum space_level level = level_now(guard, snapshot);
    if (level == guard->space_told)
        return;
    guard->space_told = level;
    if (level == SPACE_UNMEASURABLE)
        describe_blind(guard, snapshot, text, sizeof text);
    else
        describe_level(guard, snapshot, level, text, sizeof text);
    bool read_only = level == SPACE_SOFT && (snapshot->reading.read_only || guard->space_read_only);
    guard_feed(guard,
               &(struct run_event){.kind = RUN_EVENT_SPACE, .space = level, .read_only = read_only, .text = text});
}

static void changed(void *user)
{
    struct guard *guard = user;
    struct watcher_snapshot snapshot;
    watcher_get(guard->watcher, &snapshot);
    tell_order(guard, &snapshot);
    guard_space_level(guard);
}

/* ---- the start ---- */

enum error_code guard_space_start(struct guard *guard, uint64_t kill_ns, struct error *err)
{
    struct watcher_options options = {
        .read = read_space,
        .read_context = guard,
        .changed = changed,
        .user = guard,
    };
    unsigned count = 0;
    guard_space_limits(&guard->plan, kill_ns, &options.limits);
    if (guard->keeper.cgroup.kind != CGROUP_NONE)
        options.triggers[count++] = (struct watcher_trigger){watcher_pull_cgroup, &guard->keeper.cgroup.kill_fd};
    options.triggers[count] = (struct watcher_trigger){pull_keeper, &guard->keeper};
    enum error_code code = guard_space_refuse_small(&guard->plan, &options.limits, err);
    if (code == ERROR_NONE)
        guard_space_raise_soft(guard, &options.limits);
    if (code == ERROR_NONE)
        code = guard_survey_start(guard, err);
    return code == ERROR_NONE ? watcher_start(&guard->loop, &options, &guard->watcher, err) : code;
}

void guard_space_stop(struct guard *guard)
{
    if (guard->watcher != NULL)
        watcher_close(guard->watcher, 1000, NULL, NULL);
    guard->watcher = NULL;
    guard_survey_close(guard);
}

void guard_space_get(struct guard *guard, struct watcher_snapshot *ret_snapshot)
{
    *ret_snapshot = (struct watcher_snapshot){0};
    if (guard->watcher != NULL)
        watcher_get(guard->watcher, ret_snapshot);
}

/* A point each second at first; when the table is full every second point goes and points come half as often. */
static void keep_history(struct guard *guard, const struct watcher_snapshot *snapshot)
{
    uint64_t now = guard_uptime_ms(guard);
    if (snapshot->looks == 0 || now < guard->history_next_ms)
        return;
    if (guard->history_count == GUARD_HISTORY_MAX) {
        for (size_t i = 0; i < GUARD_HISTORY_MAX / 2; i++)
            guard->history[i] = guard->history[2 * i];
        guard->history_count = GUARD_HISTORY_MAX / 2;
        guard->history_every_ms *= 2;
    }
    guard->history[guard->history_count++] = (struct guard_space_point){now, snapshot->reading.free_bytes};
    guard->history_next_ms = now + guard->history_every_ms;
}

void guard_space_turn(struct guard *guard)
{
    struct watcher_snapshot snapshot;
    if (guard->watcher == NULL)
        return;
    watcher_get(guard->watcher, &snapshot);
    keep_history(guard, &snapshot);
    tell_order(guard, &snapshot);
    guard_space_level(guard);
    guard_survey_turn(guard);
}
