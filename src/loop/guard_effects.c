/* One effect of the machine, carried out. */
#include "loop/guard_private.h"
#include "loop/clock.h"

typedef void carry_out(struct guard *guard, const struct run_effect *effect);

static void launch(struct guard *guard, const struct run_effect *effect)
{
    (void)effect;
    guard_launch_again(guard);
}

static void suspend(struct guard *guard, const struct run_effect *effect)
{
    (void)effect;
    guard_suspend(guard);
}

static void find_listener(struct guard *guard, const struct run_effect *effect)
{
    (void)effect;
    guard_server_find_listener(guard);
}

static void check(struct guard *guard, const struct run_effect *effect)
{
    guard_check_start(guard, effect->number, effect->name, effect->probe);
}

static void discard(struct guard *guard, const struct run_effect *effect)
{
    guard_check_discard(guard, effect->name);
}

static void seal(struct guard *guard, const struct run_effect *effect)
{
    (void)effect;
    guard_check_seal(guard);
}

static void to_keeper(struct guard *guard, const struct run_effect *effect)
{
    static const enum keeper_kind kinds[] = {
        [RUN_DO_TERM] = KEEPER_TERM, [RUN_DO_TERM_GROUP] = KEEPER_TERM_GROUP, [RUN_DO_KILL] = KEEPER_KILL};
    guard_launch_signal(guard, kinds[effect->kind]);
}

static void note(struct guard *guard, const struct run_effect *effect)
{
    guard_report_note(guard, effect->level, effect->note, effect->text);
}

static void finish(struct guard *guard, const struct run_effect *effect)
{
    (void)effect;
    guard->finished = true;
}

void guard_effects_do(struct guard *guard, const struct run_effect *effect)
{
    static carry_out *const table[RUN_EFFECT_KINDS] = {
        [RUN_DO_LAUNCH] = launch,
        [RUN_DO_SUSPEND] = suspend,
        [RUN_DO_FIND_LISTENER] = find_listener,
        [RUN_DO_ASK] = guard_server_ask,
        [RUN_DO_CHECK] = check,
        [RUN_DO_DISCARD] = discard,
        [RUN_DO_SEAL] = seal,
        [RUN_DO_TERM] = to_keeper,
        [RUN_DO_TERM_GROUP] = to_keeper,
        [RUN_DO_KILL] = to_keeper,
        [RUN_DO_REPLY] = guard_control_reply,
        [RUN_DO_NOTE] = note,
        [RUN_DO_FINISH] = finish,
    };
    table[effect->kind](guard, effect);
}
