/* Ctrl-Z. Happy path: RUN_DO_SUSPEND -> the keeper is asked to freeze -> it says that everything stands still -> this
 * process stops as the terminal would stop it -> somebody continues it (fg, bg, kill -CONT) -> free space is looked at
 * -> the machine learns how long nobody was there -> the keeper lets the run go on, unless the machine has killed it.
 *
 * Some process does not stand still, or the keeper does not answer: the run goes on, and a note says so; a guard that
 * sleeps while its server writes guards nothing.
 *
 * Another order to the keeper (Ctrl-C, the floor) while it freezes: it lets everything run by itself; the suspension is
 * over. A signal that comes while this process is stopped is delivered when it is continued, after the thaw.
 *
 * The guard is killed while it is stopped: the keeper sees its end and kills, frozen or not. */
#include "loop/guard_private.h"
#include "loop/clock.h"

#include <stdio.h>
#include <time.h>
#include <unistd.h>

static const uint64_t answer_ms = KEEPER_FREEZE_MS + 2000;
static const uint64_t record_ms = 300; /* for the terminal and the record to be written before we stop */
static const uint64_t look_ms = 1000;  /* for one reading of free space; a disk that is slower is a blind run */

static void end_suspension(struct guard *guard)
{
    uint64_t began_ns = guard->suspend_ns;
    guard->suspend_ns = 0;
    if (began_ns != 0)
        guard_feed(guard, &(struct run_event){.kind = RUN_EVENT_RESUMED, .number = clock_now_ns() - began_ns});
}

static void give_up(struct guard *guard, const char *why)
{
    guard_report_note(guard, RUN_WARN, RUN_NOTE_NOTE, why);
    keeper_send(&guard->keeper, KEEPER_THAW, NULL);
    end_suspension(guard);
}

void guard_suspend(struct guard *guard)
{
    guard->suspend_ns = clock_now_ns();
    /* not heard: given up at the next look, outside of the machine's step */
    guard->suspend_unheard = keeper_send(&guard->keeper, KEEPER_FREEZE, NULL) != ERROR_NONE;
}

void guard_suspend_look(struct guard *guard)
{
    bool late = clock_now_ns() - guard->suspend_ns > answer_ms * 1000000;
    if (guard->suspend_ns != 0 && (guard->suspend_unheard || late))
        give_up(guard, "not suspended: the keeper does not say that the run stands still");
}

void guard_suspend_over(struct guard *guard)
{
    guard->suspend_ns = 0;
}

/* One look of the watcher that began after `since_ns`; it pulls the trigger by itself. */
static void look_at_space(struct guard *guard, uint64_t since_ns)
{
    struct watcher_snapshot snapshot;
    const struct timespec pause = {.tv_nsec = 500000};
    uint64_t limit_ns = since_ns + look_ms * 1000000;
    if (guard->watcher == NULL)
        return;
    watcher_look_now(guard->watcher);
    do {
        nanosleep(&pause, NULL);
        watcher_get(guard->watcher, &snapshot);
    } while (snapshot.reading.at_ns < since_ns && clock_now_ns() < limit_ns);
    guard_space_settle(guard);
}

void guard_suspend_frozen(struct guard *guard, int running)
{
    char line[160];
    if (guard->suspend_ns == 0)
        return;
    if (running != 0) {
        snprintf(line, sizeof line, "not suspended: %d processes of the run cannot be made to stand still", running);
        give_up(guard, line);
        return;
    }
    snprintf(line, sizeof line, "suspended, with every process of the run; fg, bg or kill -CONT %d continues it",
             (int)getpid());
    guard_report_note(guard, RUN_INFO, RUN_NOTE_NOTE, line);
    guard_report_record(guard);
    sink_flush(guard->sink, record_ms);
    guard_signals_stop_here(guard);
    look_at_space(guard, clock_now_ns());
    end_suspension(guard);
    if (!guard->run.kill_sent)
        keeper_send(&guard->keeper, KEEPER_THAW, NULL);
}
