/* Simulation: the real run machine and the real space policy in random worlds under a virtual clock.
 *
 *   sim_run [RUNS [SEED]]
 *
 * A world boots slowly or never, loses requests, hangs, dies, loses its hooks to a reset, is handled by somebody else,
 * fills its disk at any rate up to the worst, cannot read it, is suspended, is asked for dumps, pauses and stops at any
 * time. The rules of sim_rules.c are checked at every step. A world that breaks one is made as small as it can be and
 * printed: what it is like, what happens, and what the machine says. It ends with status 1. */
#include "sim.h"
#include "base/size.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

static void show(struct sim_world *world, struct sim_plan *plan, const char *rule)
{
    unsigned before = plan->count;
    printf("seed %" PRIu64 ": broken rule: %s\n", plan->seed, rule);
    sim_shrink(world, plan, rule);
    printf("shrunk from %u happenings to %u:\n", before, plan->count);
    for (int i = 0; i < SIM_TRAIT_COUNT; i++)
        if (plan->trait[i])
            printf("             %s\n", sim_plan_trait_text((enum sim_trait)i));
    char free_text[SIZE_TEXT], dump[SIZE_TEXT], others[SIZE_TEXT], budget[SIZE_TEXT];
    printf("             %s free above the kill level; dumps %s/s, others %s/s, budget %s\n",
           size_text(plan->free_bytes, free_text), size_text(plan->dump_rate, dump),
           size_text(plan->foreign_rate, others), size_text(plan->budget_bytes, budget));
    sim_world_run(world, plan, true);
    printf("%9.3f s  broken rule: %s\nagain: sim_run 1 %" PRIu64 "\n", (double)(world->now_ns - world->begin_ns) / 1e9,
           rule, plan->seed);
}

int main(int argc, char **argv)
{
    static struct sim_world world;
    static struct sim_plan plan;
    uint64_t runs = argc > 1 ? strtoull(argv[1], NULL, 10) : 100000;
    uint64_t seed = argc > 2 ? strtoull(argv[2], NULL, 10) : 1;
    unsigned outcomes[RUN_OUTCOMES] = {0};
    uint64_t steps = 0;
    for (uint64_t i = 0; i < runs; i++) {
        sim_plan_make(&plan, seed + i);
        const char *broken = sim_world_run(&world, &plan, false);
        if (broken != NULL) {
            show(&world, &plan, broken);
            return 1;
        }
        steps += world.steps;
        outcomes[world.run.outcome]++;
    }
    printf("%" PRIu64 " runs from seed %" PRIu64 ", %" PRIu64 " steps:", runs, seed, steps);
    for (int outcome = 0; outcome < RUN_OUTCOMES; outcome++)
        if (outcomes[outcome] > 0)
            printf(" %s %u", run_outcome_name((enum run_outcome)outcome), outcomes[outcome]);
    printf("\n");
    return 0;
}
