/* Delta debugging: happenings are taken away in ever smaller pieces, then traits and numbers, as long as the same rule
 * is broken. What is left is again a plan. */
#include "sim.h"

#include <string.h>

static bool still_breaks(struct sim_world *world, const struct sim_plan *plan, const char *rule)
{
    const char *broken = sim_world_run(world, plan, false);
    return broken != NULL && strcmp(broken, rule) == 0;
}

static bool without(struct sim_world *world, struct sim_plan *plan, const char *rule, unsigned from, unsigned count)
{
    struct sim_plan less = *plan;
    memmove(&less.happening[from], &less.happening[from + count],
            (less.count - from - count) * sizeof less.happening[0]);
    less.count -= count;
    if (!still_breaks(world, &less, rule))
        return false;
    *plan = less;
    return true;
}

static bool fewer_happenings(struct sim_world *world, struct sim_plan *plan, const char *rule)
{
    bool any = false;
    for (unsigned piece = plan->count; piece > 0; piece /= 2)
        for (unsigned from = 0; from < plan->count;) {
            unsigned count = piece < plan->count - from ? piece : plan->count - from;
            if (without(world, plan, rule, from, count))
                any = true;
            else
                from += count;
        }
    return any;
}

static bool fewer_traits(struct sim_world *world, struct sim_plan *plan, const char *rule)
{
    bool any = false;
    for (int i = 0; i < SIM_TRAIT_COUNT; i++) {
        if (!plan->trait[i])
            continue;
        plan->trait[i] = false;
        if (still_breaks(world, plan, rule))
            any = true;
        else
            plan->trait[i] = true;
    }
    return any;
}

static bool simpler_numbers(struct sim_world *world, struct sim_plan *plan, const char *rule)
{
    bool any = false;
    uint64_t *const numbers[] = {&plan->foreign_rate, &plan->budget_bytes, &plan->dump_rate};
    for (unsigned i = 0; i < sizeof numbers / sizeof numbers[0]; i++) {
        uint64_t before = *numbers[i];
        *numbers[i] = 0;
        if (before != 0 && still_breaks(world, plan, rule))
            any = true;
        else
            *numbers[i] = before;
    }
    return any;
}

void sim_shrink(struct sim_world *world, struct sim_plan *plan, const char *rule)
{
    bool any = true;
    while (any) {
        any = fewer_happenings(world, plan, rule);
        any = fewer_traits(world, plan, rule) || any;
        any = simpler_numbers(world, plan, rule) || any;
    }
}
