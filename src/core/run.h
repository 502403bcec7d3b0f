/* The run machine: one guarded run from launch to its end, as a pure function run_step(run, event, now) -> effects.
 *
 * Happy path: launching -> loading -> warming -> verifying -> armed <-> dumping -> sealing -> armed -> stopping ->
 * ended; of a plain run: launching -> loading -> warming -> ready -> stopping -> ended. Total over state x event: every cell of the table in run.c is written out, "ignore" being a written answer. No
 * I/O, no clock: time comes in as monotonic ns, what is to be done goes out as effects. One owner (the loop thread).
 *
 * Questions to the server and audits carry a number; an answer with another number is late and ignored. The caller
 * promises exactly one RUN_EVENT_ANSWER for each RUN_DO_ASK and one RUN_EVENT_AUDITED or _JUDGED for each RUN_DO_CHECK,
 * in bounded time, ok or not; and a RUN_EVENT_TICK when run->wake_ns has come. */
#pragma once

#include "base/error.h"
#include "core/server.h"
#include "core/space.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum run_state {
#define X(constant, name, text) RUN_##constant,
#include "core/run_states.def"
#undef X
    RUN_STATES
};

enum run_outcome {
#define X(constant, name, status, text) RUN_OUTCOME_##constant,
#include "core/run_outcomes.def"
#undef X
    RUN_OUTCOMES
};

enum run_event_kind {
    RUN_EVENT_STARTED,     /* CMD runs: pid */
    RUN_EVENT_EXEC_FAILED, /* CMD could not be executed: number = errno (0: it was, but the guard
                               cannot guard it: exit_code is the status, STATUS_FORBIDDEN for too
                               small a disk); text says what */
    RUN_EVENT_EXITED,      /* the server's main process ended: exit_code, signal (-1 where not; both -1: unknown) */
    RUN_EVENT_GONE,        /* no live process of the run remains: number = ns since a kill at the floor was decided, as
                               measured; 0: there was none */
    RUN_EVENT_UNKILLABLE,  /* some remain after every means: text names them */
    RUN_EVENT_KEEPER_LOST, /* the keeper died or broke off */
    RUN_EVENT_LISTENER,    /* answer to RUN_DO_FIND_LISTENER: listener, text = holder when foreign */
    RUN_EVENT_LINE,        /* a log line that means something: line */
    RUN_EVENT_ANSWER,      /* answer to RUN_DO_ASK: number, answer */
    RUN_EVENT_JUDGED,      /* answer to RUN_DO_CHECK of the probe: number, judgement */
    RUN_EVENT_AUDITED,     /* answer to RUN_DO_CHECK of an experiment: number, ok, complete, text = first reason */
    RUN_EVENT_TICK,        /* wake_ns has come */
    RUN_EVENT_FLOOR,       /* the trigger was pulled, or an own write found the disk full: text has the numbers */
    RUN_EVENT_SPACE,       /* the level has changed: space (never FLOOR), text has the numbers or the reason;
                              UNMEASURABLE: no reading has told anything for a while */
    RUN_EVENT_SURVEY,      /* at most once a second: written_bytes, busy */
    RUN_EVENT_SUSPEND,     /* Ctrl-Z: answered by RUN_DO_SUSPEND, or by a note that says why not */
    RUN_EVENT_RESUMED,     /* we run again: number = ns for which we did not; free space has been read just before */
    RUN_EVENT_DUMP,        /* asked: number = request, text = experiment, force, hold, wait_idle_ms, for_ms, passes */
    RUN_EVENT_PAUSE,       /* asked: number = request */
    RUN_EVENT_STOP,        /* asked: now; text = who */
    RUN_EVENT_INTERRUPT,   /* Ctrl-C, TERM or hang-up: the first stops in order, the second kills; with `now` (QUIT)
                              the first does */
    RUN_EVENT_HOLDER_GONE, /* the connection that holds the dump has closed */
    RUN_EVENTS
};

enum run_listener { RUN_LISTENER_NONE, RUN_LISTENER_OWN, RUN_LISTENER_FOREIGN };

struct run_event {
    enum run_event_kind kind;
    uint64_t number;
    const char *text; /* may be NULL; only read during run_step */
    int pid, exit_code, signal;
    enum run_listener listener;
    bool ok, complete, now, force, hold;
    bool again;             /* EXITED, in launching and loading: the guard has another spelling of its flags to launch
                               with; text says which. Once nothing lives any more it is asked to: RUN_DO_LAUNCH */
    bool busy;              /* SURVEY: a process of the run other than its main one has used the processor */
    enum space_level space; /* SPACE */
    bool read_only;         /* SPACE with SPACE_SOFT: not for the bytes, nothing can be written any more */
    uint64_t written_bytes; /* SURVEY: of all dumps of this run so far */
    uint64_t wait_idle_ms;
    uint64_t for_ms, passes; /* DUMP: ends by itself after so long, after so many passes on each rank; 0: it does not.
                                The counters are read ten times a second: more passes than were asked for may be in it,
                                never fewer */
    const struct server_line *line;
    const struct server_answer *answer;
    const struct server_judgement *judgement;
};

enum run_effect_kind {
    RUN_DO_LAUNCH,        /* the server again, with the other spelling; nothing of the first try lives any more */
    RUN_DO_SUSPEND,       /* freeze every process of the run, then stop ourselves; after SIGCONT: read free space,
                             RUN_EVENT_RESUMED, then thaw (unless the machine has killed) */
    RUN_DO_FIND_LISTENER, /* who listens on the server's port? */
    RUN_DO_ASK,           /* number, question, name = experiment or request id */
    RUN_DO_CHECK,         /* number, name = experiment, probe: audit its folder against base and last */
    RUN_DO_DISCARD,       /* name: remove the probe's folder (recognised files only) */
    RUN_DO_SEAL,          /* write the seal of run->seal_experiment from the last audit */
    RUN_DO_TERM,          /* TERM and CONT to the main process alone */
    RUN_DO_TERM_GROUP,    /* the same to the group */
    RUN_DO_KILL,          /* everything, now */
    RUN_DO_REPLY,         /* number = request, code, text: answer a dump or pause request */
    RUN_DO_NOTE,          /* level, note, text: an event for people */
    RUN_DO_FINISH,        /* ended: exactly once, the last effect */
    RUN_EFFECT_KINDS
};

enum run_level { RUN_INFO, RUN_WARN, RUN_ERROR };
enum run_note {
    RUN_NOTE_STATE,
    RUN_NOTE_STAGE,
    RUN_NOTE_NOTE,
    RUN_NOTE_SPACE,
    RUN_NOTE_DUMP,
    RUN_NOTE_SEAL,
    RUN_NOTE_STOP,
    RUN_NOTE_END,
    RUN_NOTE_SERVER
};

struct run_effect {
    enum run_effect_kind kind;
    uint64_t number;
    enum server_question question;
    bool probe;
    enum error_code code;
    enum run_level level;
    enum run_note note;
    char name[SERVER_NAME_MAX];
    char text[768];
};

enum { RUN_EFFECTS_MAX = 16, RUN_PAUSERS_MAX = 8 };

struct run_effects {
    struct run_effect effect[RUN_EFFECTS_MAX];
    unsigned count; /* overflow is a fault of the machine: checked in every test, the last note is lost then */
};

/* dump_index and step per rank, from one SERVER_STATE answer. */
struct run_counts {
    uint32_t ranks;
    struct {
        uint64_t dump_index, step;
    } rank[SERVER_RANKS_MAX];
};

struct run_settings {
    char name[SERVER_NAME_MAX];
    bool plain;                             /* guarded as it is: ready in place of verified and armed, never a dump */
    char probe_experiment[SERVER_NAME_MAX]; /* throw-away name of the probe */
    char probe_request[SERVER_NAME_MAX];    /* its request id */
    uint64_t start_timeout_ms, stop_timeout_ms;
    uint64_t control_timeout_ms; /* counters unanswered for so long while nothing grows: control-lost */
    uint64_t blind_limit_ms;     /* dumping on while free space cannot be read: killed after so long */
    uint64_t budget_bytes;       /* of all dumps of the run; 0: none */
};

enum run_sealed_by {
    RUN_SEALED_BY_PAUSE,
    RUN_SEALED_BY_STOP,
    RUN_SEALED_BY_DEATH,
    RUN_SEALED_BY_LIMIT,  /* --for, --passes */
    RUN_SEALED_BY_SOFT,   /* free space at the soft level */
    RUN_SEALED_BY_BUDGET, /* the byte budget is used up */
    RUN_SEALED_BY_OTHER,  /* somebody else switched it off or changed it */
};

struct run {
    struct run_settings settings;
    enum run_state state;
    enum run_outcome outcome;
    int step;                      /* position in the script of the state: run_internal.h */
    uint64_t launched_ns;          /* when the run began */
    uint64_t wake_ns;              /* when a RUN_EVENT_TICK is due; UINT64_MAX: never */
    uint64_t retry_ns, limit_ns;   /* next try and limit of the present step; UINT64_MAX: none */
    uint64_t number;               /* of the last question or audit */
    bool waiting;                  /* for the answer with that number */
    enum server_question question; /* the last one */
    char question_name[SERVER_NAME_MAX];
    uint64_t resumed_number; /* the question that was under way when we ran again: its failure tells nothing */
    /* the server */
    int pid; /* 0: none yet */
    bool exited, gone;
    int exit_code, signal; /* -1: not known or not so */
    char cause[256];       /* last line that may explain an end */
    char stage[256];       /* how far the start has come, for people */
    char problem[256];     /* of the last answer if that was no success, from armed on a refusal; "" none */
    struct server_facts facts;
    struct run_counts last; /* newest counters that were read; of a dump that a reset has cut: the last before it */
    struct run_counts seen; /* newest ones in any case, to compare the next with */
    struct server_judgement judgement;
    bool was_armed; /* or ready */
    struct server_answer before, after, probe; /* evidence of the probe */
    bool probe_open;                           /* its folder may be there */
    /* the experiment that is open or was sealed last */
    char experiment[SERVER_NAME_MAX]; /* "" while none is open */
    char seal_experiment[SERVER_NAME_MAX];
    struct run_counts base; /* counters before it was enabled */
    bool quiet_once, counts_exact;
    uint64_t failed_saves_base, failed_saves;
    bool external;           /* the open or last dump was switched on by somebody else: all limits hold for it */
    bool revoked;            /* a reset has removed the hooks: the proofs are void, no dump can be had any more */
    bool counts_reset;       /* in the open dump */
    char disturbance[256];   /* what somebody did to the open or last dump; such a dump is never complete; "" nothing */
    uint64_t for_ms, passes; /* as asked for by the dump that is being prepared; 0: not limited */
    uint64_t watch_ns;       /* while it waits for an idle server: when the counters are looked at next */
    uint64_t for_end_ns;     /* when the open dump ends by itself; UINT64_MAX: it does not */
    uint64_t passes_end;     /* and after how many passes on each rank; UINT64_MAX: it does not */
    uint64_t on_since_ns;    /* when the open dump was switched on, or was found to be on */
    bool switched_off;       /* the server has said so, since sealing began */
    /* what somebody else does */
    char wrong_told[200];              /* the setting that does not hold, as it was told last; "" all hold */
    char unsafe_told[SERVER_NAME_MAX]; /* an experiment that is no name and is switched off; "" none */
    unsigned short_answers;            /* running, with fewer ranks than were proven */
    bool outage_told;                  /* the server gives no answer at all; cleared by one */
    /* what bounds it */
    enum space_level space;
    char space_text[256];
    bool space_read_only;                /* `space` is SOFT for that, not for the bytes */
    uint64_t blind_since_ns;             /* while `space` is UNMEASURABLE */
    uint64_t written_bytes, progress_ns; /* of the last survey; when bytes, steps or files grew last */
    uint64_t busy_ns;                    /* when the run's processes used the processor last */
    uint64_t unanswered_ns;              /* since when the dumper has not answered; 0: it does */
    bool settled;                        /* dumping is off and the last pass is over */
    unsigned settled_surveys;            /* that came since */
    uint64_t settled_bytes, grown_ns;    /* then, and when more came all the same; 0: it did not */
    bool grown_off;                      /* since then every rank has said that dumping is off */
    enum run_sealed_by sealed_by;
    uint64_t dump_request; /* 0: none */
    uint64_t pause_request[RUN_PAUSERS_MAX];
    unsigned pausers;
    bool hold, force;
    /* the end */
    bool stop_wanted, interrupted, kill_sent;
    char message[768]; /* one line: why it ended, or the last problem */
};

void run_init(struct run *run, const struct run_settings *settings, uint64_t now_ns);

/* Takes one event; `ret_effects` is overwritten. */
void run_step(struct run *run, const struct run_event *event, uint64_t now_ns, struct run_effects *ret_effects);

/* The exit status of `kldumpctl run` (DESIGN 10): of an ended run. */
int run_exit_status(const struct run *run);

const char *run_state_name(enum run_state state);
enum run_state run_state_from_name(const char *name); /* RUN_STATES when there is none */
const char *run_outcome_name(enum run_outcome outcome);
enum run_outcome run_outcome_from_name(const char *name); /* RUN_OUTCOME_NONE when there is none */
int run_outcome_status(enum run_outcome outcome);         /* as the table has it, whatever else is known of the run */
const char *run_note_name(enum run_note note);
const char *run_level_name(enum run_level level);
const char *run_sealed_by_name(enum run_sealed_by by);
