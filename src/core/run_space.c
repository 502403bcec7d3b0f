/* What bounds a dump: free space and the byte budget. Happy path: FINE, bytes below the budget, nothing is said.
 *   WARN: said. SOFT: a dump is switched off and sealed, none may begin. UNMEASURABLE: none may begin; one that is on
 * goes on for the blind limit at most, then everything is killed: nobody could tell the floor any more. Budget used up:
 * switched off and sealed, none may begin; when bytes still come after every rank has said that it is off, everything
 * is killed. (The floor itself is the watcher's: it kills first and tells afterwards, run_end.c.) */
#include "core/run_internal.h"
#include "base/duration.h"
#include "base/size.h"
#include "base/text.h"

#include <stdio.h>

/* A survey may have been under way when dumping ended, and one more may show what it missed. */
enum { SETTLING_SURVEYS = 2 };

/* ---- what refuses a dump ---- */

static bool used_up(const struct run *run)
{
    return run->settings.budget_bytes > 0 && run->written_bytes >= run->settings.budget_bytes;
}

bool run_space_refuses(const struct run *run, enum run_sealed_by *ret_by, char *ret_text, size_t size)
{
    char written[SIZE_TEXT], budget[SIZE_TEXT];
    const char *space = run->space_text;
    *ret_by = RUN_SEALED_BY_SOFT;
    if (run->space == SPACE_SOFT && run->space_read_only) {
        snprintf(ret_text, size, "%s; nothing can be dumped until it takes writes again", space);
        return true;
    }
    if (run->space == SPACE_SOFT) {
        snprintf(ret_text, size, "free space is at the soft level%s%s; free some, or start a run with a lower --soft",
                 space[0] != '\0' ? ": " : "", space);
        return true;
    }
    if (run->space == SPACE_UNMEASURABLE) {
        snprintf(ret_text, size,
                 "free space cannot be read%s%s; nothing may be dumped while the floor cannot be guarded: look at the "
                 "filesystem, then ask again",
                 space[0] != '\0' ? ": " : "", space);
        return true;
    }
    *ret_by = RUN_SEALED_BY_BUDGET;
    if (!used_up(run))
        return false;
    snprintf(ret_text, size, "the byte budget is used up: %s written, --budget %s; start a new run with a larger one",
             size_text(run->written_bytes, written), size_text(run->settings.budget_bytes, budget));
    return true;
}

/* A dump that is being prepared is refused, one that is on is ended. */
static void refuse_prepared(struct run_context *c)
{
    struct run *run = c->run;
    enum run_sealed_by by;
    char text[512];
    if (run->dump_request != 0 && run_space_refuses(run, &by, text, sizeof text))
        run_dump_prepare_failed(c, ERROR_SPACE, text);
}

static void end_dump(struct run_context *c)
{
    struct run *run = c->run;
    enum run_sealed_by by;
    char text[512];
    if (run->space == SPACE_UNMEASURABLE || !run_space_refuses(run, &by, text, sizeof text))
        return;
    run_note(c, RUN_WARN, RUN_NOTE_SPACE, "dump %s is switched off: %s", run->experiment, text);
    run_dump_seal_begin(c, by, ERROR_SPACE, text);
}

/* ---- free space ---- */

void run_space_changed(struct run_context *c)
{
    static const struct {
        enum run_level level;
        const char *text;
    } words[] = {
        [SPACE_FINE] = {RUN_INFO, "there is enough free space again"},
        [SPACE_WARN] = {RUN_WARN, "free space is getting low"},
        [SPACE_SOFT] = {RUN_WARN, "free space is at the soft level"},
        [SPACE_UNMEASURABLE] = {RUN_WARN, "free space cannot be read"},
    };
    struct run *run = c->run;
    enum space_level level = c->event->space, before = run->space;
    const char *text = c->event->text != NULL ? c->event->text : "";
    if (level == SPACE_FLOOR)
        return; /* comes as an event of its own, after the kill */
    run->space = level;
    run->space_read_only = c->event->read_only;
    text_copy(run->space_text, sizeof run->space_text, text);
    if (level == before)
        return;
    if (level == SPACE_UNMEASURABLE)
        run->blind_since_ns = c->now_ns;
    else if (before == SPACE_UNMEASURABLE)
        run_note(c, RUN_INFO, RUN_NOTE_SPACE, "free space can be read again");
    if (level != SPACE_FINE || before != SPACE_UNMEASURABLE)
        run_note(c, words[level].level, RUN_NOTE_SPACE, "%s%s%s",
                 c->event->read_only ? "nothing can be written" : words[level].text, text[0] != '\0' ? ": " : "", text);
}

void run_space_changed_armed(struct run_context *c)
{
    run_space_changed(c);
    refuse_prepared(c);
}

void run_space_changed_dumping(struct run_context *c)
{
    run_space_changed(c);
    end_dump(c);
}

uint64_t run_space_blind_limit(const struct run *run)
{
    if (run->space != SPACE_UNMEASURABLE)
        return UINT64_MAX;
    uint64_t since = run->blind_since_ns > run->on_since_ns ? run->blind_since_ns : run->on_since_ns;
    return since + run->settings.blind_limit_ms * RUN_MS;
}

void run_space_blind(struct run_context *c)
{
    struct run *run = c->run;
    char limit[DURATION_TEXT];
    run_message(c, "free space could not be read for %s while %s was being dumped%s%s",
                duration_text(run->settings.blind_limit_ms, limit),
                run->experiment[0] != '\0' ? run->experiment : run->unsafe_told, run->space_text[0] != '\0' ? ": " : "",
                run->space_text);
    run_note(c, RUN_ERROR, RUN_NOTE_SPACE, "killed: %s", run->message);
    run_end_fail(c, RUN_OUTCOME_FLOOR);
}

/* ---- bytes ---- */

void run_space_survey(struct run_context *c)
{
    struct run *run = c->run;
    if (c->event->written_bytes > run->written_bytes)
        run->progress_ns = c->now_ns;
    if (c->event->busy)
        run->busy_ns = c->now_ns;
    run->written_bytes = c->event->written_bytes;
}

void run_space_survey_dumping(struct run_context *c)
{
    run_space_survey(c);
    end_dump(c);
}

/* More came although the budget is used up and every rank has said that dumping is off. */
static void kill_for_budget(struct run_context *c)
{
    struct run *run = c->run;
    char written[SIZE_TEXT], budget[SIZE_TEXT];
    run_message(c, "bytes still came after dumping was off: %s written, --budget %s",
                size_text(run->written_bytes, written), size_text(run->settings.budget_bytes, budget));
    run_note(c, RUN_ERROR, RUN_NOTE_SPACE, "killed: %s", run->message);
    run_end_fail(c, RUN_OUTCOME_BUDGET);
}

/* True: bytes have come since the last pass that could have been under way. */
static bool grows(struct run_context *c)
{
    struct run *run = c->run;
    if (!run->settled || !used_up(run))
        return false;
    if (run->settled_surveys < SETTLING_SURVEYS) {
        run->settled_surveys++;
        run->settled_bytes = run->written_bytes;
        return false;
    }
    bool more = run->written_bytes > run->settled_bytes;
    run->settled_bytes = run->written_bytes;
    return more;
}

void run_space_survey_settling(struct run_context *c)
{
    struct run *run = c->run;
    run_space_survey(c);
    if (grows(c) && !run->gone && !run->kill_sent)
        kill_for_budget(c);
}

/* In armed somebody else may have switched it on, which is switched off like any other dump: the counters are looked at
 * first. */
void run_space_survey_armed(struct run_context *c)
{
    struct run *run = c->run;
    run_space_survey(c);
    refuse_prepared(c);
    if (!grows(c))
        return;
    bool long_ago = run->grown_ns != 0 && c->now_ns >= run->grown_ns + run->settings.control_timeout_ms * RUN_MS;
    if (run->grown_ns != 0 && (run->grown_off || long_ago)) {
        kill_for_budget(c);
        return;
    }
    if (run->grown_ns == 0)
        run->grown_ns = c->now_ns;
    if (!run->waiting)
        run->retry_ns = c->now_ns;
}
