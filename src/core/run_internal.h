/* What the files of the run machine share; nobody else includes it. Handlers are named by file: run_start_* up to
 * armed, run_dump_* for armed, dumping and sealing, run_end_* for stopping and ended. */
#pragma once

#include "core/run.h"

/* Positions in the scripts of the states. A script is a fixed row of questions; the answer to one asks the next. */
enum run_script {
    STEP_NONE,
    /* warming */
    WARM_HEALTH,
    WARM_STATE,
    /* verifying */
    VERIFY_INFO,
    VERIFY_IDLE,
    VERIFY_BEFORE,
    VERIFY_ENABLE,
    VERIFY_CONFIRM,
    VERIFY_PROBE,
    VERIFY_DISABLE,
    VERIFY_AFTER,
    VERIFY_FLUSH,
    VERIFY_CHECK,
    /* armed, a dump being prepared */
    DUMP_IDLE,
    DUMP_BASE,
    /* dumping */
    DUMP_ENABLE,
    DUMP_CONFIRM,
    DUMP_ON,
    /* sealing */
    SEAL_DISABLE,
    SEAL_QUIET,
    SEAL_CHECK,
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
void run_dump_seal_begin(struct run_context *c, enum run_sealed_by by);
void run_dump_sealed(struct run_context *c); /* writes the seal, answers who waits, closes the experiment */

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
