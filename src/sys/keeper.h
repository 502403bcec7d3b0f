/* The keeper: the small process between guard and server. It is the parent of the server, adopts its orphans, kills all
 * of the run when told to, or when the guard is gone or silent.
 *
 * Happy path: keeper_spawn -> STARTED -> a HEARTBEAT every KEEPER_HEARTBEAT_MS -> TERM -> EXITED -> KILL -> GONE ->
 * keeper_fini.
 *   CMD cannot be executed: EXEC_FAILED, then GONE.
 *   CMD ends by itself: EXITED; what it left behind lives on until KILL; GONE when nothing is left.
 *   processes that KILL does not end: after KEEPER_UNKILLABLE_MS one UNKILLABLE for each (the first
 *     KEEPER_UNKILLABLE_REPORTS), GONE if they go after all.
 *   guard closes the channel, dies, sends nothing for KEEPER_SILENCE_MS while it is stopped, or for
 *     KEEPER_STARVED_MS whatever it does: everything is killed, then the keeper ends and removes the cgroup. (A guard
 *     that gets no processor on a crowded machine, or waits in the kernel, is not gone, and its watcher thread may well
 *     be at work: it has the longer time.) A guard that was stopped finds EXITED and GONE in the channel, with the
 *     `reason` of each.
 *   guard that is to be stopped (Ctrl-Z): FREEZE -> FROZEN with value 0 -> it may stop itself and be silent for as long
 *     as it likes -> it runs again -> THAW. While frozen the keeper sees to it that everything stands still, once a
 *     second. FROZEN with another value: that many processes could not be stopped within KEEPER_FREEZE_MS (they are
 *     another user's); silence is not allowed then: the guard must THAW and say why. A process that the kernel holds
 *     (state D) is not counted: it stops before its own code goes on.
 *     Any order but HEARTBEAT and FREEZE lets them run first; KILL kills them as they stand.
 *     A guard that dies meanwhile is noticed as always.
 *   keeper dies: the kernel kills CMD; the channel ends, and the guard kills the rest with kill_tree_until_empty. */
#pragma once

#include "base/error.h"
#include "base/list.h"
#include "sys/cgroup.h"

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

enum {
    KEEPER_HEARTBEAT_MS = 500,
    KEEPER_SILENCE_MS = 2000,
    KEEPER_STARVED_MS = 10000,
    KEEPER_UNKILLABLE_MS = 10000,
    KEEPER_UNKILLABLE_REPORTS = 16,
    KEEPER_FREEZE_MS = 1000,
    KEEPER_ZOMBIES_MS = 10000,
};

enum keeper_kind {
    /* guard to keeper */
    KEEPER_HEARTBEAT = 1,
    KEEPER_USR1, /* that signal to the main process alone */
    KEEPER_USR2,
    KEEPER_TERM,       /* TERM and CONT to the main process alone */
    KEEPER_TERM_GROUP, /* TERM and CONT to its process group */
    KEEPER_KILL,       /* everything of the run, now */
    KEEPER_FREEZE,     /* stop every process of the run; answered by FROZEN, once, unless another order comes first */
    KEEPER_THAW,       /* let them run */
    /* keeper to guard */
    KEEPER_STARTED = 32, /* CMD was executed: pid, kill_ns, cgroup_error, text */
    KEEPER_EXEC_FAILED,  /* value: errno; text: what failed, "execute" or else */
    KEEPER_EXITED,       /* the main process: pid, value as from waitpid, reason */
    KEEPER_GONE,         /* no live process of the run remains: kill_ns since KILL (0: not killed), reason; value: how
                            many of its dead nobody waits for (a tracer holds them), for KEEPER_ZOMBIES_MS already */
    KEEPER_UNKILLABLE,   /* pid, state, comm, text: where it sleeps in the kernel */
    KEEPER_FROZEN,       /* value: how many processes do not stand still */
};

enum keeper_reason {
    KEEPER_REASON_NONE,       /* nobody had killed when this happened */
    KEEPER_REASON_ASKED,      /* KILL had come */
    KEEPER_REASON_SILENCE,    /* the guard had been silent */
    KEEPER_REASON_GUARD_GONE, /* the guard had ended or closed the channel */
};

/* One message of the channel (SOCK_SEQPACKET), always whole. Both ends are of the same build. */
struct keeper_message {
    uint32_t kind;
    uint32_t reason;
    int32_t pid;
    int32_t value;
    int32_t cgroup_error; /* STARTED: 0, or why the cgroup could not be used (errno): the keeper goes on without it */
    char state;
    char comm[16];
    char text[64];
    int64_t kill_ns; /* STARTED: a kill rehearsed just before, from decision to dead */
};

struct keeper_plan {
    const char *program;            /* NULL: kldump-keeper, where sibling_path finds it */
    const char *run_name;           /* for the name of the cgroup */
    const char *cookie;             /* text_is_name; at least 8 characters of chance */
    char *const *command;           /* CMD and its arguments; the program is looked for in PATH of `environment` */
    const struct list *environment; /* of CMD; the cookie and SPT_NOENV are added, and the service
                                       manager's variables removed */
    const char *directory;          /* where CMD runs; NULL: here */
    int out_fd, err_fd;             /* CMD's standard output and error; stay the caller's */
    bool no_cgroup;                 /* tests: leave cgroups alone */
};

struct keeper {
    pid_t pid;            /* -1: none */
    int pid_fd;           /* readable when it has ended; -1: none */
    int channel_fd;       /* the caller polls it; -1: none */
    struct cgroup cgroup; /* `kind` is CGROUP_NONE where the keeper works alone */
    char cookie[72];
    uint64_t since_ticks; /* for kill_tree_target */
};

/* Makes the cgroup and starts the keeper, which starts CMD. Descriptors of the caller do not reach CMD: it gets 0
 * (/dev/null), 1 and 2. Safe with other threads running. Not for threads that block signals for long: all signals are
 * blocked while it forks. On failure (ERROR_SYSTEM, ERROR_NOT_FOUND for the keeper's program or `directory`) nothing is
 * left. That CMD was executed is told by STARTED only. */
enum error_code keeper_spawn(const struct keeper_plan *plan, struct keeper *ret_keeper, struct error *err);

/* Any thread; never blocks. KILL also wakes a keeper that was stopped. ERROR_BUSY when the keeper does not read (it is
 * stopped), ERROR_STATE when it is gone: then the guard kills by itself (keeper_kill_without). */
enum error_code keeper_send(const struct keeper *keeper, enum keeper_kind kind, struct error *err);

/* Loop thread. 1: a message; 0: none now; -1: the channel has ended, the keeper is gone. A STARTED that says that the
 * cgroup cannot be used also removes it from `keeper`: take its descriptors and its guarantee from there afterwards. */
int keeper_receive(struct keeper *keeper, struct keeper_message *ret_message);

/* For a guard whose keeper is gone or does not answer: kills all of the run (`main_pid`: from STARTED; 0 before it and
 * from EXITED on), waits up to `limit_ms`, twice where the keeper dies meanwhile. Blocks. Orphans of a keeper that died
 * were adopted by the caller, as a subreaper: every child of the caller that is younger than the keeper is killed, also
 * one of its own. True: nothing is left. */
bool keeper_kill_without(const struct keeper *keeper, pid_t main_pid, uint64_t limit_ms);

/* Closes the channel, upon which a living keeper kills what is left and ends; waits up to `limit_ms` for that, reaps
 * it, removes the cgroup. False: it still runs (something cannot be killed), or the cgroup could not be removed. Also
 * of a failed keeper_spawn. */
bool keeper_fini(struct keeper *keeper, int limit_ms);
