#include "core/run.h"
#include "core/run_internal.h"
#include "base/text.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static const struct {
    const char *name, *text;
} states[] = {
#define X(constant, name, text) {name, text},
#include "core/run_states.def"
#undef X
};

static const struct {
    const char *name;
    enum status status;
} outcomes[] = {
#define X(constant, name, status, text) {name, STATUS_##status},
#include "core/run_outcomes.def"
#undef X
};

static const char *const note_names[] = {
    [RUN_NOTE_STATE] = "state", [RUN_NOTE_STAGE] = "stage", [RUN_NOTE_NOTE] = "note",
    [RUN_NOTE_SPACE] = "space", [RUN_NOTE_DUMP] = "dump",   [RUN_NOTE_SEAL] = "seal",
    [RUN_NOTE_STOP] = "stop",   [RUN_NOTE_END] = "end",     [RUN_NOTE_SERVER] = "server",
};
static const char *const level_names[] = {[RUN_INFO] = "info", [RUN_WARN] = "warn", [RUN_ERROR] = "error"};
static const char *const sealed_by_names[] = {
    [RUN_SEALED_BY_PAUSE] = "pause", [RUN_SEALED_BY_STOP] = "stop", [RUN_SEALED_BY_DEATH] = "death",
    [RUN_SEALED_BY_LIMIT] = "limit", [RUN_SEALED_BY_SOFT] = "soft", [RUN_SEALED_BY_BUDGET] = "budget",
    [RUN_SEALED_BY_OTHER] = "other"};

/* ---- helpers of the handlers ---- */

struct run_effect *run_add(struct run_context *c, enum run_effect_kind kind)
{
    struct run_effects *effects = c->effects;
    if (effects->count == RUN_EFFECTS_MAX)
        effects->count--;
    struct run_effect *effect = &effects->effect[effects->count++];
    *effect = (struct run_effect){.kind = kind};
    return effect;
}

void run_note(struct run_context *c, enum run_level level, enum run_note note, const char *format, ...)
{
    struct run_effect *effect = run_add(c, RUN_DO_NOTE);
    effect->level = level;
    effect->note = note;
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(effect->text, sizeof effect->text, format, arguments);
    va_end(arguments);
}

void run_message(struct run_context *c, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(c->run->message, sizeof c->run->message, format, arguments);
    va_end(arguments);
}

void run_reply(struct run_context *c, uint64_t request, enum error_code code, const char *format, ...)
{
    struct run_effect *effect = run_add(c, RUN_DO_REPLY);
    effect->number = request;
    effect->code = code;
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(effect->text, sizeof effect->text, format, arguments);
    va_end(arguments);
}

void run_enter(struct run_context *c, enum run_state state, int step)
{
    struct run *run = c->run;
    if (run->state != state) {
        run->state = state;
        run_note(c, RUN_INFO, RUN_NOTE_STATE, "%s: %s", states[state].name, states[state].text);
    }
    run->step = step;
    run->waiting = false;
    run->retry_ns = UINT64_MAX;
    run->limit_ns = UINT64_MAX;
    if (state != RUN_SEALING) /* what was not answered in dumping is not answered yet */
        run->unanswered_ns = 0;
}

void run_ask(struct run_context *c, int step, enum server_question question, const char *name)
{
    struct run *run = c->run;
    run->step = step;
    run->number++;
    run->waiting = true;
    run->retry_ns = UINT64_MAX;
    run->question = question;
    if (name != run->question_name)
        text_copy(run->question_name, sizeof run->question_name, name);
    if ((run->state == RUN_DUMPING || run->state == RUN_SEALING) && run->unanswered_ns == 0)
        run->unanswered_ns = c->now_ns;
    struct run_effect *effect = run_add(c, RUN_DO_ASK);
    effect->number = run->number;
    effect->question = question;
    text_copy(effect->name, sizeof effect->name, name);
}

void run_check(struct run_context *c, int step, const char *experiment, bool probe)
{
    struct run *run = c->run;
    run->step = step;
    run->number++;
    run->waiting = true;
    struct run_effect *effect = run_add(c, RUN_DO_CHECK);
    effect->number = run->number;
    effect->probe = probe;
    text_copy(effect->name, sizeof effect->name, experiment);
}

void run_retry(struct run_context *c, uint64_t delay_ms)
{
    c->run->waiting = false;
    c->run->retry_ns = c->now_ns + delay_ms * RUN_MS;
}

/* The probe is not repeated: its passes are counted. */
static bool failed_by_suspension(const struct run_context *c)
{
    return c->run->number == c->run->resumed_number && !c->event->answer->ok && c->run->question != SERVER_PROBE;
}

bool run_answers(struct run_context *c)
{
    if (!c->run->waiting || c->event->number != c->run->number)
        return false;
    c->run->waiting = false;
    if (c->event->kind == RUN_EVENT_ANSWER && failed_by_suspension(c)) {
        run_ask(c, c->run->step, c->run->question, c->run->question_name);
        return false;
    }
    return true;
}

void run_counts_from(struct run_counts *counts, const struct server_answer *answer)
{
    counts->ranks = answer->rank_count;
    for (uint32_t i = 0; i < answer->rank_count && i < SERVER_RANKS_MAX; i++) {
        counts->rank[i].dump_index = answer->rank[i].dump_index;
        counts->rank[i].step = answer->rank[i].step;
    }
}

bool run_counts_equal(const struct run_counts *a, const struct run_counts *b)
{
    if (a->ranks != b->ranks)
        return false;
    for (uint32_t i = 0; i < a->ranks; i++)
        if (a->rank[i].dump_index != b->rank[i].dump_index || a->rank[i].step != b->rank[i].step)
            return false;
    return true;
}

/* ---- answers that are the same in several states ---- */

static void ignore(struct run_context *c)
{
    (void)c;
}

static void line(struct run_context *c)
{
    struct run *run = c->run;
    const struct server_line *said = c->event->line;
    switch (said->kind) {
    case SERVER_LINE_STAGE:
    case SERVER_LINE_READY:
        if (run->was_armed || strcmp(run->stage, said->text) == 0)
            break;
        text_copy(run->stage, sizeof run->stage, said->text);
        run_note(c, RUN_INFO, RUN_NOTE_STAGE, "%s", said->text);
        break;
    case SERVER_LINE_CAUSE:
    case SERVER_LINE_UNKNOWN_FLAG:
        text_copy(run->cause, sizeof run->cause, said->text);
        break;
    case SERVER_LINE_SYMPTOM:
        if (run->cause[0] == '\0')
            text_copy(run->cause, sizeof run->cause, said->text);
        break;
    case SERVER_LINE_SAVE_FAILED:
        if (run->failed_saves++ == run->failed_saves_base && run->experiment[0] != '\0')
            run_note(c, RUN_WARN, RUN_NOTE_DUMP, "the server could not save a tensor of %s: the dump is incomplete",
                     run->experiment);
        break;
    case SERVER_LINE_NOTHING:
        break;
    }
}

static void refuse_dump(struct run_context *c)
{
    const struct run *run = c->run;
    if (run->settings.plain)
        run_reply(c, c->event->number, ERROR_STATE,
                  "run %s is of the kind plain: its server was started without the settings that a dump needs; start it "
                  "with --kind dump, the default",
                  run->settings.name);
    else if (run->state == RUN_DUMPING || run->state == RUN_SEALING)
        run_reply(c, c->event->number, ERROR_BUSY, "run %s is %s %s; end it first with: kldumpctl pause %s",
                  run->settings.name, states[run->state].name, run->experiment, run->settings.name);
    else if (run->state < RUN_ARMED)
        run_reply(c, c->event->number, ERROR_STATE, "run %s is %s; wait for it with: kldumpctl wait %s --for armed",
                  run->settings.name, states[run->state].name, run->settings.name);
    else
        run_reply(c, c->event->number, ERROR_STATE, "run %s is %s; start a new one", run->settings.name,
                  states[run->state].name);
}

static void refuse_pause(struct run_context *c)
{
    run_reply(c, c->event->number, ERROR_STATE, "run %s is %s, not dumping: there is nothing to pause",
              c->run->settings.name, states[c->run->state].name);
}

/* ---- the machine: state x event ---- */

typedef void handler(struct run_context *c);

/* clang-format off */
/* One row per event, one column per state; `ignore` is a decision as well. */
static handler *const table[RUN_EVENTS][RUN_STATES] = {
#define ROW(event, ...) [RUN_EVENT_##event] = {__VA_ARGS__}
#define LIVING(handler) handler, handler, handler, handler, handler, handler, handler, handler, handler
/*      event        launching               loading                 warming                   verifying                   armed                   dumping                     sealing                     ready               stopping                  ended */
    ROW(STARTED,     run_start_started,      ignore,                 ignore,                   ignore,                     ignore,                 ignore,                     ignore,                     ignore,             ignore,                   ignore),
    ROW(EXEC_FAILED, run_start_exec_failed,  ignore,                 ignore,                   ignore,                     ignore,                 ignore,                     ignore,                     ignore,             ignore,                   ignore),
    ROW(LISTENER,    ignore,                 run_start_listener,     ignore,                   ignore,                     ignore,                 ignore,                     ignore,                     ignore,             ignore,                   ignore),
    ROW(ANSWER,      ignore,                 ignore,                 run_start_answer_warming, run_start_answer_verifying, run_dump_answer_armed,  run_dump_answer_dumping,    run_dump_answer_sealing,    run_plain_answer,   ignore,                   ignore),
    ROW(JUDGED,      ignore,                 ignore,                 ignore,                   run_start_judged,           ignore,                 ignore,                     ignore,                     ignore,             ignore,                   ignore),
    ROW(AUDITED,     ignore,                 ignore,                 ignore,                   ignore,                     ignore,                 ignore,                     run_dump_audited,           ignore,             run_end_audited,          ignore),
    ROW(TICK,        run_start_tick,         run_start_tick_loading, run_start_tick,           run_start_tick,             run_dump_tick,          run_dump_tick,              run_dump_tick,              run_plain_tick,     run_end_tick,             ignore),
    ROW(DUMP,        refuse_dump,            refuse_dump,            refuse_dump,              refuse_dump,                run_dump_asked,         refuse_dump,                refuse_dump,                refuse_dump,        refuse_dump,              refuse_dump),
    ROW(PAUSE,       refuse_pause,           refuse_pause,           refuse_pause,             refuse_pause,               refuse_pause,           run_dump_pause,             run_dump_pause_joined,      refuse_pause,       refuse_pause,             refuse_pause),
    ROW(HOLDER_GONE, ignore,                 ignore,                 ignore,                   ignore,                     run_dump_cancelled,     run_dump_holder_gone,       ignore,                     ignore,             ignore,                   ignore),
    ROW(EXITED,      run_start_exited,       run_start_exited,       run_end_exited,           run_end_exited,             run_end_exited,         run_end_exited,             run_end_exited,             run_end_exited,     run_end_exited_stopping,  ignore),
    ROW(GONE,        run_start_gone,         run_end_gone,           run_end_gone,             run_end_gone,               run_end_gone,           run_end_gone,               run_end_gone,               run_end_gone,       run_end_gone,             ignore),
    ROW(SPACE,       run_space_changed,      run_space_changed,      run_space_changed,        run_space_changed,          run_space_changed_armed, run_space_changed_dumping,  run_space_changed,          run_space_changed,  run_space_changed,        ignore),
    ROW(SURVEY,      run_space_survey,       run_space_survey,       run_space_survey,         run_space_survey,           run_space_survey_armed, run_space_survey_dumping,   run_space_survey_settling,  run_space_survey,   run_space_survey_settling, ignore),
    ROW(SUSPEND,     run_suspend_refused,    run_suspend_asked,      run_suspend_asked,        run_suspend_refused,        run_suspend_asked,      run_suspend_asked,          run_suspend_asked,          run_suspend_asked,  run_suspend_asked,        ignore),
    ROW(RESUMED,     LIVING(run_suspend_resumed), ignore),
    ROW(UNKILLABLE,  LIVING(run_end_unkillable),  ignore),
    ROW(KEEPER_LOST, LIVING(run_end_keeper_lost), ignore),
    ROW(LINE,        LIVING(line),                ignore),
    ROW(FLOOR,       LIVING(run_end_floor),       ignore),
    ROW(STOP,        LIVING(run_end_stop),        ignore),
    ROW(INTERRUPT,   LIVING(run_end_interrupt),   ignore),
#undef ROW
};
/* clang-format on */

void run_init(struct run *run, const struct run_settings *settings, uint64_t now_ns)
{
    *run = (struct run){.settings = *settings,
                        .state = RUN_LAUNCHING,
                        .launched_ns = now_ns,
                        .retry_ns = UINT64_MAX,
                        .limit_ns = UINT64_MAX,
                        .for_end_ns = UINT64_MAX,
                        .passes_end = UINT64_MAX,
                        .settled = true, /* nothing is dumped before the first dump */
                        .exit_code = -1,
                        .signal = -1};
    run->wake_ns = now_ns + settings->start_timeout_ms * RUN_MS;
}

static uint64_t least(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

/* When the next tick is due. A limit of a step is looked at where an answer or a retry brings the step round again; by
 * themselves wake: the start timeout, the limits of a dump, and what waits for an end. */
static uint64_t next_wake(const struct run *run)
{
    if (run->state == RUN_ENDED)
        return UINT64_MAX;
    if (run->state == RUN_STOPPING)
        return run->gone ? UINT64_MAX : run->limit_ns;
    if (run->state >= RUN_ARMED)
        return least(run->retry_ns, run_watch_limit(run));
    uint64_t start = run->launched_ns + run->settings.start_timeout_ms * RUN_MS;
    uint64_t next = least(start, run->retry_ns);
    return run->step == LAUNCH_CLEAN ? least(next, run->limit_ns) : next;
}

void run_step(struct run *run, const struct run_event *event, uint64_t now_ns, struct run_effects *ret_effects)
{
    ret_effects->count = 0;
    struct run_context context = {run, event, now_ns, ret_effects};
    table[event->kind][run->state](&context);
    run->wake_ns = next_wake(run);
}

int run_exit_status(const struct run *run)
{
    if (run->outcome == RUN_OUTCOME_STOPPED && run->interrupted)
        return STATUS_INTERRUPTED;
    if (run->outcome == RUN_OUTCOME_STOPPED && !run->was_armed)
        return STATUS_NOT_ARMED;
    if (run->outcome == RUN_OUTCOME_START_FAILED && run->pid == 0 &&
        (run->exit_code >= STATUS_CANNOT_EXECUTE || run->exit_code == STATUS_FORBIDDEN))
        return run->exit_code; /* CMD could not be executed or was not found, or may not run on so small a disk */
    if (run->outcome == RUN_OUTCOME_SERVER_EXITED && run->exit_code >= 0)
        return run->exit_code;
    if (run->outcome == RUN_OUTCOME_SERVER_EXITED && run->signal >= 0)
        return 128 + run->signal;
    return run_outcome_status(run->outcome);
}

const char *run_state_name(enum run_state state)
{
    return states[state].name;
}

enum run_state run_state_from_name(const char *name)
{
    int state = 0;
    while (state < RUN_STATES && strcmp(states[state].name, name) != 0)
        state++;
    return (enum run_state)state;
}

const char *run_outcome_name(enum run_outcome outcome)
{
    return outcomes[outcome].name;
}

enum run_outcome run_outcome_from_name(const char *name)
{
    for (int outcome = RUN_OUTCOME_NONE + 1; outcome < RUN_OUTCOMES; outcome++)
        if (strcmp(outcomes[outcome].name, name) == 0)
            return (enum run_outcome)outcome;
    return RUN_OUTCOME_NONE;
}

int run_outcome_status(enum run_outcome outcome)
{
    return outcomes[outcome].status;
}

const char *run_note_name(enum run_note note)
{
    return note_names[note];
}

const char *run_level_name(enum run_level level)
{
    return level_names[level];
}

const char *run_sealed_by_name(enum run_sealed_by by)
{
    return sealed_by_names[by];
}
