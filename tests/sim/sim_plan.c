/* Plans from seeds, and what they say in words. */
#include "sim.h"

#include <stdio.h>
#include <stdlib.h>

static const struct {
    unsigned one_in;
    const char *words;
} traits[] = {
#define X(constant, one_in, words) {one_in, words},
    SIM_TRAITS
#undef X
};

static const struct {
    unsigned weight;
    const char *words;
} kinds[] = {
#define X(constant, weight, words) {weight, words},
    SIM_KINDS
#undef X
};

uint64_t sim_plan_roll(uint64_t *random, uint64_t below)
{
    *random += 0x9e3779b97f4a7c15ull; /* splitmix64 */
    uint64_t z = *random;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
    return below == 0 ? 0 : (z ^ (z >> 31)) % below;
}

static enum sim_kind pick_kind(uint64_t *random)
{
    static unsigned total;
    if (total == 0)
        for (int i = 0; i < SIM_KIND_COUNT; i++)
            total += kinds[i].weight;
    unsigned at = (unsigned)sim_plan_roll(random, total);
    int kind = 0;
    while (at >= kinds[kind].weight)
        at -= kinds[kind++].weight;
    return (enum sim_kind)kind;
}

static uint64_t pick_number(enum sim_kind kind, uint64_t *random)
{
    switch (kind) {
    case SIM_DUMP_PASSES:
        return 1 + sim_plan_roll(random, 40);
    case SIM_FILL:
    case SIM_FREE:
        return 1 + sim_plan_roll(random, 150);
    case SIM_SUSPEND:
        return 1 + sim_plan_roll(random, 100000);
    default: /* a time: often short, sometimes longer than every limit */
        return 1 + sim_plan_roll(random, sim_plan_roll(random, 4) == 0 ? 80000 : 6000);
    }
}

static int by_time(const void *a, const void *b)
{
    const struct sim_happening *first = a, *second = b;
    return first->at_ms < second->at_ms ? -1 : first->at_ms > second->at_ms;
}

void sim_plan_make(struct sim_plan *plan, uint64_t seed)
{
    uint64_t random = seed * 0x9e3779b97f4a7c15ull + 1;
    *plan = (struct sim_plan){.seed = seed};
    for (int i = 0; i < SIM_TRAIT_COUNT; i++)
        plan->trait[i] = sim_plan_roll(&random, traits[i].one_in) == 0;
    plan->open_ms = (uint32_t)sim_plan_roll(&random, 8000);
    plan->healthy_ms = plan->open_ms + (uint32_t)sim_plan_roll(&random, 3000);
    plan->pass_ms = 20 + (uint32_t)sim_plan_roll(&random, 400);
    plan->dump_rate = sim_plan_roll(&random, plan->trait[SIM_TRAIT_FAST_WRITER] ? 6 * SIM_GIB : SIM_GIB);
    plan->foreign_rate = plan->trait[SIM_TRAIT_FOREIGN_WRITER] ? sim_plan_roll(&random, SIM_GIB) : 0;
    plan->budget_bytes = plan->trait[SIM_TRAIT_BUDGET] ? 1 + sim_plan_roll(&random, 20 * SIM_GIB) : 0;
    plan->free_bytes = sim_plan_roll(&random, 300 * SIM_GIB);
    plan->count = (unsigned)sim_plan_roll(&random, sim_plan_roll(&random, 3) == 0 ? SIM_HAPPENINGS : 20);
    for (unsigned i = 0; i < plan->count; i++) {
        struct sim_happening *happening = &plan->happening[i];
        happening->kind = pick_kind(&random);
        happening->number = pick_number(happening->kind, &random);
        happening->at_ms = (uint32_t)sim_plan_roll(&random, SIM_STOP_MS);
    }
    qsort(plan->happening, plan->count, sizeof plan->happening[0], by_time);
}

void sim_plan_happening_text(const struct sim_happening *happening, char *ret_text, unsigned size)
{
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
    snprintf(ret_text, size, kinds[happening->kind].words, (unsigned long long)happening->number);
#pragma GCC diagnostic pop
}

const char *sim_plan_trait_text(enum sim_trait trait)
{
    return traits[trait].words;
}
