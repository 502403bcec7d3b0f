/* What the files of the run machine share; nobody else includes it. Handlers are named by file: run_start_* up to
 * armed, run_dump_* for armed, dumping and sealing, run_end_* for stopping and ended. */
#pragma once

#include "core/run.h"

/* Positions in the scripts of the states. A script is a fixed row of questions; the answer to one asks the next. */
enum run_script {
    STEP_NONE,
    /* launching */
    LAUNCH_CLEAN, /* what is left of the first try goes, then the server is launched again */
    /* warming */
    WARM_HEALTH,
    WARM_STATE,
    WARM_INFO, /* of a plain run */
    /* verifying */
    VERIFY_INFO,
    VERIFY_IDLE,
    VERIFY_CLEAR,
    VERIFY_BEFORE,
    VERIFY_ENABLE,
    VERIFY_CONFIRM,
    VERIFY_PROBE,
    VERIFY_DISABLE,
    VERIFY_AFTER,
    VERIFY_FLUSH,
    VERIFY_CHECK,
    VERIFY_SILENT, /* a question got no answer at all: the server's end may follow, and say why */
    /* armed: at rest; an unsafe dump of somebody else goes off */
    ARMED_WATCH,
    ARMED_DISABLE,
    /* armed, a dump being prepared */
    DUMP_IDLE,
    DUMP_WATCH, /* it may take long: somebody else may switch it on meanwhile */
    DUMP_BASE,
    /* dumping */
    DUMP_ENABLE,
    DUMP_CONFIRM,
    DUMP_ON,
    /* sealing */
    SEAL_DISABLE,
    SEAL_QUIET,
    SEAL_CHECK,
    /* ready */
    READY_WATCH,
    /* stopping */
    STOP_TERM,
    STOP_GROUP,
    STOP_KILL,
    STOP_CHECK,
};

struct run_context {
    struct run *run;
    const struct run_event *event;
    uint64_t now_ns;
    struct run_effects *effects;
};

/* run.c */
#define RUN_MS 1000000ull
enum { RUN_ARMED_WATCH_MS = 5000, RUN_DUMP_WATCH_MS = 1000 }; /* between two looks at the counters */
enum { RUN_DISABLE_TIMES = 10 }; /* control timeouts until a dump that is to end must be off on every rank */
struct run_effect *run_add(struct run_context *c, enum run_effect_kind kind);
void run_note(struct run_context *c, enum run_level level, enum run_note note, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
void run_message(struct run_context *c, const char *format, ...) __attribute__((format(printf, 2, 3)));
void run_reply(struct run_context *c, uint64_t request, enum error_code code, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
void run_enter(struct run_context *c, enum run_state state, int step);
void run_ask(struct run_context *c, int step, enum server_question question, const char *name);
void run_check(struct run_context *c, int step, const char *experiment, bool probe);
void run_retry(struct run_context *c, uint64_t delay_ms); /* the present step again after a while */
bool run_answers(struct run_context *c);                  /* the event answers what is waited for */
void run_counts_from(struct run_counts *counts, const struct server_answer *answer);
bool run_counts_equal(const struct run_counts *a, const struct run_counts *b);

/* run_start.c */
void run_start_started(struct run_context *c);
void run_start_exited(struct run_context *c);
void run_start_gone(struct run_context *c);
void run_start_exec_failed(struct run_context *c);
void run_start_listener(struct run_context *c);
void run_start_tick_loading(struct run_context *c);
void run_start_answer_warming(struct run_context *c);
void run_start_answer_verifying(struct run_context *c);
void run_start_judged(struct run_context *c);
void run_start_tick(struct run_context *c);
void run_start_discard(struct run_context *c); /* the probe's folder, if it may be there */

/* run_dump.c */
void run_dump_asked(struct run_context *c);
void run_dump_pause(struct run_context *c);
void run_dump_pause_joined(struct run_context *c);
void run_dump_holder_gone(struct run_context *c);
void run_dump_cancelled(struct run_context *c);
void run_dump_answer_armed(struct run_context *c);
void run_dump_answer_dumping(struct run_context *c);
void run_dump_answer_sealing(struct run_context *c);
void run_dump_audited(struct run_context *c);
void run_dump_tick(struct run_context *c);
void run_dump_rest(struct run_context *c, uint64_t look_ms); /* armed, with a look at the counters after so long */
void run_dump_open(struct run_context *c, const char *experiment, const struct run_counts *base);
void run_dump_prepare_failed(struct run_context *c, enum error_code code, const char *text);
/* Ends the open dump; one that was not confirmed yet is answered with this code and text. */
void run_dump_seal_begin(struct run_context *c, enum run_sealed_by by, enum error_code code, const char *text);
/* Ends the run: a dump that cannot be switched off must not go on. */
void run_dump_not_off(struct run_context *c, const char *experiment, const char *why);
void run_dump_sealed(struct run_context *c); /* writes the seal, answers who waits, closes the experiment */

/* run_watch.c: what somebody else does to the dumper, and whether it lives */
bool run_watch_went_back(const struct run_counts *seen, const struct server_answer *answer, char *ret_text,
                         size_t size);
bool run_watch_same(const struct run_counts *seen, const struct server_answer *answer);
bool run_watch_off(const struct server_answer *answer); /* on every rank */
/* An answer to any question from armed on. False: it was answered with nothing that can be used. */
bool run_watch_answered(struct run_context *c);
/* Counters from armed on: takes them in. False: the run was ended for what they say. */
bool run_watch_counters(struct run_context *c);
void run_watch_armed(struct run_context *c);   /* counters in armed: has somebody switched it on? */
void run_watch_dumping(struct run_context *c); /* counters of a dump that is on */
void run_watch_disturb(struct run_context *c, const char *format, ...) __attribute__((format(printf, 2, 3)));
uint64_t run_watch_limit(const struct run *run); /* when run_watch_due must be called */
bool run_watch_due(struct run_context *c);       /* a limit is reached: the dump or the run has been ended */

/* run_space.c */
void run_space_changed(struct run_context *c);
void run_space_changed_armed(struct run_context *c);
void run_space_changed_dumping(struct run_context *c);
void run_space_survey(struct run_context *c);
void run_space_survey_armed(struct run_context *c);
void run_space_survey_dumping(struct run_context *c);
void run_space_survey_settling(struct run_context *c); /* sealing, stopping */
/* Why no dump may begin or go on now; false: it may. */
bool run_space_refuses(const struct run *run, enum run_sealed_by *ret_by, char *ret_text, size_t size);
uint64_t run_space_blind_limit(const struct run *run); /* UINT64_MAX: not blind, or nothing is being dumped */
void run_space_blind(struct run_context *c);           /* that limit is reached */

/* run_suspend.c */
void run_suspend_asked(struct run_context *c);
void run_suspend_refused(struct run_context *c);
void run_suspend_resumed(struct run_context *c);

/* run_plain.c: a run that is never dumped */
void run_plain_healthy(struct run_context *c); /* warming: the server is up */
void run_plain_info(struct run_context *c);    /* warming: what it has resolved its settings to */
void run_plain_answer(struct run_context *c);
void run_plain_tick(struct run_context *c);

/* run_end.c */
void run_end_fail(struct run_context *c, enum run_outcome outcome); /* kill everything; run->message says why */
void run_end_orderly(struct run_context *c);                        /* TERM first */
void run_end_stop(struct run_context *c);
void run_end_interrupt(struct run_context *c);
void run_end_exited(struct run_context *c);
void run_end_exited_stopping(struct run_context *c);
void run_end_gone(struct run_context *c);
void run_end_audited(struct run_context *c);
void run_end_unkillable(struct run_context *c);
void run_end_keeper_lost(struct run_context *c);
void run_end_floor(struct run_context *c);
void run_end_tick(struct run_context *c);
