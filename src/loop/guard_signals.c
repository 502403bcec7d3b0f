/* What each signal does: one table. The keeper and the server live in sessions of their own, so what a terminal sends
 * reaches the guard alone; the keeper blocks all signals, and CMD begins with none blocked and none ignored.
 *
 * Not in the table: KILL and STOP cannot be caught (the keeper kills a run whose guard is gone or silent); WINCH means
 * nothing to a program that draws nothing; PIPE, TTIN and TTOU are ignored: a reader that has gone, or a terminal that
 * belongs to somebody else now, must not stop a guard. */
#include "loop/guard_private.h"
#include "sys/process.h"

#include <signal.h>
#include <stdio.h>
#include <unistd.h>

typedef void act(struct guard *guard, int number);

static void interrupt(struct guard *guard, int number)
{
    (void)number;
    if (guard->set_up)
        guard_feed(guard, &(struct run_event){.kind = RUN_EVENT_INTERRUPT});
    else
        guard->interrupted = true;
}

/* Ctrl-\ : somebody wants to get out. */
static void quit(struct guard *guard, int number)
{
    (void)number;
    if (guard->set_up)
        guard_feed(guard, &(struct run_event){.kind = RUN_EVENT_INTERRUPT, .now = true});
    else
        guard->interrupted = true;
}

/* Means whatever the server makes of it; what does not know it dies of it, as it would without a guard. */
static void forward(struct guard *guard, int number)
{
    char line[96];
    if (guard->main_pid == 0 || guard->run.exited)
        return;
    snprintf(line, sizeof line, "signal USR%d is passed on to the server (pid %d)", number == SIGUSR1 ? 1 : 2,
             (int)guard->main_pid);
    guard_report_note(guard, RUN_INFO, RUN_NOTE_SERVER, line);
    guard_launch_signal(guard, number == SIGUSR1 ? KEEPER_USR1 : KEEPER_USR2);
}

/* The kernel does not stop a process group that nobody in its session could continue; asked of the kernel this can only
 * be by trying, when everything has been frozen already. */
static bool can_be_continued(void)
{
    struct process process;
    pid_t group = getpgrp(), session = getsid(0), parent = getppid();
    while (parent > 0 && getpgid(parent) == group && process_read(parent, &process))
        parent = process.parent;
    return parent > 0 && getpgid(parent) != group && getsid(parent) == session;
}

static void suspend(struct guard *guard, int number)
{
    (void)number;
    if (!guard->set_up)
        guard_signals_stop_here(guard);
    else if (!can_be_continued())
        guard_report_note(guard, RUN_WARN, RUN_NOTE_NOTE,
                          "not suspended: no shell waits here that could continue the run");
    else if (guard->suspend_ns == 0)
        guard_feed(guard, &(struct run_event){.kind = RUN_EVENT_SUSPEND});
}

static const struct {
    int number;
    act *act;
    bool stays_ignored; /* switched off by the caller (nohup, a shell without jobs), it stays off */
} watched[GUARD_SIGNALS] = {
    {SIGINT, interrupt, false},  /* Ctrl-C: stop in order; once more: kill */
    {SIGTERM, interrupt, false}, /* the same */
    {SIGHUP, interrupt, true},   /* the terminal is gone: the same */
    {SIGQUIT, quit, false},      /* Ctrl-\: kill at once */
    {SIGTSTP, suspend, true},    /* Ctrl-Z */
    {SIGUSR1, forward, false},   {SIGUSR2, forward, false},
};

static void on_signal(uv_signal_t *handle, int number)
{
    struct guard *guard = handle->data;
    watched[handle - guard->signals].act(guard, number);
}

static bool is_ignored(int number)
{
    struct sigaction inherited;
    return sigaction(number, NULL, &inherited) == 0 && inherited.sa_handler == SIG_IGN;
}

void guard_signals_init(void)
{
    sigset_t none;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL); /* a caller that blocks TERM must not make a run that cannot be ended */
    signal(SIGPIPE, SIG_IGN);
    signal(SIGTTIN, SIG_IGN);
    signal(SIGTTOU, SIG_IGN);
}

void guard_signals_watch(struct guard *guard)
{
    for (size_t i = 0; i < GUARD_SIGNALS; i++) {
        uv_signal_init(&guard->loop, &guard->signals[i]);
        guard->signals[i].data = guard;
        if (!watched[i].stays_ignored || !is_ignored(watched[i].number))
            uv_signal_start(&guard->signals[i], on_signal, watched[i].number);
    }
}

void guard_signals_close(struct guard *guard)
{
    for (size_t i = 0; i < GUARD_SIGNALS; i++)
        if (!uv_is_closing((uv_handle_t *)&guard->signals[i]))
            uv_close((uv_handle_t *)&guard->signals[i], NULL);
}

void guard_signals_stop_here(struct guard *guard)
{
    size_t i = 0;
    while (watched[i].number != SIGTSTP)
        i++;
    uv_signal_stop(&guard->signals[i]); /* the default action is there again: the shell sees an ordinary stop */
    raise(SIGTSTP);
    uv_signal_start(&guard->signals[i], on_signal, SIGTSTP);
    uv_update_time(&guard->loop);
}
