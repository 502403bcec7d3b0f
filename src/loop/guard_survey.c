/* What the run writes, from the survey thread, and what becomes of the guard's own writes on the same filesystem: two
 * sources about the disk besides its figures. A quota, or a filesystem that ran out of something that it does not
 * count, shows only to who writes. */
#include "loop/guard_private.h"
#include "base/number.h"
#include "base/size.h"
#include "base/text.h"
#include "loop/clock.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

static const uint64_t after_budget_ms = 10000; /* so long a dump is looked at that had to end and may yet grow */
static const uint64_t copy_ms = 10000;         /* between two copies of the record, while a dump is on */

/* ---- the survey ---- */

/* Who fills the disk goes first: while a dump is open that is this run, unless its own files say otherwise. */
static void stage(struct guard *guard, const struct survey_result *result)
{
    struct watcher_snapshot snapshot;
    if (guard->watcher == NULL || guard->surveyed[0] == '\0')
        return;
    guard_space_get(guard, &snapshot);
    uint64_t gone = number_subtract(guard->share_free_bytes, space_free(&snapshot.reading));
    watcher_stage(guard->watcher,
                  space_writes_most(number_subtract(result->written_bytes, guard->share_written_bytes), gone));
}

static void stage_opened(struct guard *guard)
{
    struct watcher_snapshot snapshot;
    struct survey_result result;
    guard_space_get(guard, &snapshot);
    survey_get(guard->survey, &result);
    guard->share_free_bytes = space_free(&snapshot.reading);
    guard->share_written_bytes = result.written_bytes;
    if (guard->watcher != NULL)
        watcher_stage(guard->watcher, guard->surveyed[0] != '\0');
}

static void news(void *user)
{
    struct guard *guard = user;
    struct survey_result result;
    survey_get(guard->survey, &result);
    text_copy(guard->space_lost, sizeof guard->space_lost, result.lost);
    stage(guard, &result);
    guard_space_level(guard);
    guard_feed(guard, &(struct run_event){
                          .kind = RUN_EVENT_SURVEY, .written_bytes = result.written_bytes, .busy = result.busy});
}

enum error_code guard_survey_start(struct guard *guard, struct error *err)
{
    const struct guard_plan *plan = &guard->plan;
    struct survey_options options = {
        .directory_fd = plan->directory_fd,
        .directory = plan->directory,
        .device = plan->directory_device,
        .inode = plan->directory_inode,
        .read_dump_name = guard->server->read_dump_name,
        .cgroup_fd = guard->keeper.cgroup.kind != CGROUP_NONE ? guard->keeper.cgroup.directory_fd : -1,
        .ancestor = guard->keeper.pid,
        .main = guard->main_pid,
        .news = news,
        .user = guard,
    };
    return survey_start(&guard->loop, &options, &guard->survey, err);
}

void guard_survey_follow(struct guard *guard)
{
    const struct run *run = &guard->run;
    if (guard->survey == NULL || strcmp(guard->surveyed, run->experiment) == 0)
        return;
    text_copy(guard->surveyed, sizeof guard->surveyed, run->experiment);
    guard->survey_until_ms = 0;
    stage_opened(guard);
    if (run->experiment[0] != '\0')
        survey_open(guard->survey, run->experiment);
    else if (run->settings.budget_bytes > 0 && run->written_bytes >= run->settings.budget_bytes)
        guard->survey_until_ms = clock_now_ms() + after_budget_ms;
    else
        survey_shut(guard->survey);
}

bool guard_survey_counts(struct guard *guard, uint64_t limit_ms)
{
    return guard->survey != NULL && !survey_wait(guard->survey, limit_ms);
}

void guard_survey_share(struct guard *guard, uint64_t free_bytes, char *ret_text, size_t size)
{
    struct survey_result result = {0};
    char wrote[SIZE_TEXT], gone[SIZE_TEXT];
    bool late = guard->survey != NULL && !survey_wait(guard->survey, 0);
    if (guard->survey != NULL)
        survey_get(guard->survey, &result);
    snprintf(ret_text, size, "this run wrote %s%s of the %s that went since its start", late ? "at least " : "",
             size_text(result.written_bytes, wrote),
             size_text(number_subtract(guard->plan.free_at_start_bytes, free_bytes), gone));
}

void guard_survey_close(struct guard *guard)
{
    if (guard->survey != NULL)
        survey_close(guard->survey, 1000, NULL, NULL);
    guard->survey = NULL;
}

/* ---- our own writes ---- */

static void own_write_is_floor(struct guard *guard, int system)
{
    struct watcher_snapshot snapshot;
    char line[768], free_text[SIZE_TEXT], share[160];
    guard_space_get(guard, &snapshot);
    uint64_t free_bytes = space_free(&snapshot.reading);
    guard_survey_share(guard, free_bytes, share, sizeof share);
    snprintf(line, sizeof line,
             "kldump's own record could not be written to %s: %s, although %s are free there: %s; %s",
             guard->plan.directory, strerror(system), size_text(free_bytes, free_text),
             system == EDQUOT ? "a quota that free space does not show"
                              : "a quota, or room of a kind that free space does not show",
             share);
    guard->floor_told = true;
    guard_feed(guard, &(struct run_event){.kind = RUN_EVENT_FLOOR, .text = line});
}

static void look_at_own_writes(struct guard *guard)
{
    struct sink_state state;
    sink_get(guard->dump_sink, &state);
    if (state.failures == guard->own_failures)
        return;
    guard->own_failures = state.failures;
    if (state.system == EROFS) {
        guard->space_read_only = true;
        guard_space_level(guard);
    } else if ((state.system == ENOSPC || state.system == EDQUOT) && !guard->floor_told) {
        own_write_is_floor(guard, state.system);
    }
}

void guard_survey_turn(struct guard *guard)
{
    uint64_t now_ms = clock_now_ms();
    if (guard->surveyed[0] != '\0' && now_ms - guard->own_copy_ms >= copy_ms) {
        guard->own_copy_ms = now_ms;
        guard_report_copy(guard);
    }
    look_at_own_writes(guard);
    if (guard->survey_until_ms != 0 && now_ms >= guard->survey_until_ms) {
        guard->survey_until_ms = 0;
        survey_shut(guard->survey);
    }
    if (guard->space_lost[0] != '\0' && guard->survey != NULL && survey_wait(guard->survey, 0))
        survey_ask(guard->survey); /* it may be there again */
}
