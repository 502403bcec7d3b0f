/* The simulation: the real run machine and the real space policy in a world that a plan describes. A plan is a few
 * numbers, a set of traits and a list of happenings, all of them made from a seed; the world adds nothing but delays,
 * so a plan with a happening less is again a plan. One thread. */
#pragma once

#include "core/run.h"
#include "core/space.h"

#include <stdbool.h>
#include <stdint.h>

#define SIM_MS  1000000ull
#define SIM_GIB (1ull << 30)

enum { SIM_HAPPENINGS = 48, SIM_REQUESTS = 64, SIM_PENDING = 32 };

/* Limits of the simulated run: short, so that a world is over soon. */
enum {
    SIM_START_TIMEOUT_MS = 40000,
    SIM_STOP_TIMEOUT_MS = 4000,
    SIM_CONTROL_TIMEOUT_MS = 2500,
    SIM_BLIND_LIMIT_MS = 3000,
    SIM_KILL_MS = 6,
    SIM_STOP_MS = 75000, /* when every world is asked to stop */
};

/* X(CONSTANT, one in so many worlds, words) */
#define SIM_TRAITS                                                        \
    X(NEVER_OPENS, 40, "the port never opens")                            \
    X(NEVER_HEALTHY, 40, "the server never gets healthy")                 \
    X(OTHER_SPELLING, 8, "the first launch ends over its arguments")      \
    X(EXEC_FAILS, 60, "CMD cannot be executed")                           \
    X(FOREIGN_LISTENER, 60, "the port is somebody else's")                \
    X(GRAPHS, 60, "graphs are on")                                        \
    X(UNPROVEN, 40, "the probe proves nothing")                           \
    X(RESET_IN_PROBE, 60, "reset is called while the probe is looked at") \
    X(IGNORES_TERM, 5, "TERM is ignored")                                 \
    X(UNKILLABLE, 30, "KILL does not help")                               \
    X(TWO_RANKS, 2, "two ranks")                                          \
    X(BAD_AUDITS, 10, "audits fail")                                      \
    X(BUDGET, 3, "a byte budget")                                         \
    X(FOREIGN_WRITER, 3, "somebody else writes to the disk")              \
    X(FAST_WRITER, 5, "dumps are fast")                                   \
    X(PLAIN, 12, "a plain run")

/* X(CONSTANT, weight, words; %llu are its two numbers) */
#define SIM_KINDS                                                                   \
    X(DUMP, 42, "dump asked for")                                                   \
    X(DUMP_HELD, 12, "dump asked for, held by its client")                          \
    X(DUMP_FOR, 12, "dump asked for, for %llu ms")                                  \
    X(DUMP_PASSES, 12, "dump asked for, for %llu passes")                           \
    X(DUMP_FORCED, 6, "dump asked for with --force")                                \
    X(PAUSE, 21, "pause asked for")                                                 \
    X(HOLDER_GONE, 12, "the client that holds the dump goes")                       \
    X(STOP, 1, "stop asked for")                                                    \
    X(STOP_NOW, 1, "stop --now asked for")                                          \
    X(INTERRUPT, 2, "Ctrl-C")                                                       \
    X(SUSPEND, 9, "Ctrl-Z, and fg after %llu ms")                                   \
    X(TRAFFIC, 42, "requests for %llu ms")                                          \
    X(OTHER_ON, 12, "somebody else switches dumping on")                            \
    X(OTHER_UNSAFE, 6, "somebody else switches dumping on under ../x")              \
    X(OTHER_OFF, 9, "somebody else switches dumping off")                           \
    X(OTHER_NAME, 6, "somebody else changes the experiment")                        \
    X(OTHER_SETTING, 6, "somebody else changes a setting")                          \
    X(SETTING_BACK, 6, "the setting is put back")                                   \
    X(RESET, 6, "somebody else calls reset")                                        \
    X(RANK_LOST, 3, "a rank does not answer for %llu ms")                           \
    X(HANG, 12, "questions hang for %llu ms")                                       \
    X(STUCK, 9, "the server computes nothing and answers nothing for %llu ms")      \
    X(LONG_PASS, 9, "the server computes one pass for %llu ms and answers nothing") \
    X(CLOSED, 9, "connections are closed for %llu ms")                              \
    X(FAULT, 12, "questions are answered with 500 for %llu ms")                     \
    X(BLIND, 12, "free space cannot be read for %llu ms")                           \
    X(FILL, 12, "somebody else takes %llu GiB")                                     \
    X(FREE, 12, "somebody else frees %llu GiB")                                     \
    X(GROW_ON, 6, "bytes go on growing whatever is switched off")                   \
    X(EXIT, 1, "the server ends")                                                   \
    X(KEEPER_LOST, 1, "the keeper is lost")

enum sim_trait {
#define X(constant, one_in, words) SIM_TRAIT_##constant,
    SIM_TRAITS
#undef X
        SIM_TRAIT_COUNT
};

enum sim_kind {
#define X(constant, weight, words) SIM_##constant,
    SIM_KINDS
#undef X
        SIM_KIND_COUNT
};

struct sim_happening {
    uint32_t at_ms; /* since the begin of the world */
    enum sim_kind kind;
    uint64_t number;
};

struct sim_plan {
    uint64_t seed;
    bool trait[SIM_TRAIT_COUNT];
    uint32_t open_ms, healthy_ms, pass_ms;
    uint64_t dump_rate, foreign_rate, budget_bytes, free_bytes;
    struct sim_happening happening[SIM_HAPPENINGS]; /* in the order of time */
    unsigned count;
};

enum sim_pending_kind {
    SIM_ANSWER,
    SIM_AUDIT,
    SIM_LISTENER,
    SIM_STARTED,
    SIM_EXITED,
    SIM_GONE,
    SIM_UNKILLABLE_TOLD,
};

struct sim_pending {
    uint64_t at_ns, asked_ns, number;
    enum sim_pending_kind kind;
    enum server_question question;
    bool probe, again;
    char name[SERVER_NAME_MAX];
};

/* What the rules have to remember. Times in ns; 0: not so. */
struct sim_watch {
    const char *broken; /* the first rule that was broken; NULL: none */
    unsigned finishes, launches;
    struct {
        bool open, dump;
        uint64_t for_ms, passes;
    } request[SIM_REQUESTS];
    enum run_outcome outcome;
    bool floor_told, gone_told, must_tell, reset_told, hold_before, gone_before, kill_in_step, off_in_step;
    bool audit_pending;
    uint64_t number_before;
    uint64_t state_since_ns, seal_since_ns, confirmed_ns, passes_done_ns;
    uint64_t for_ms, passes;                 /* of the open dump */
    uint64_t answered_ns, grown_ns, busy_ns; /* last signs of life that were told */
    uint64_t blind_since_ns, used_up_since_ns, on_since_ns, trouble_ns, grows_since_ns;
    unsigned quiet_answers, short_answers;
    uint64_t told_step, told_index; /* of rank 0 */
};

struct sim_world {
    const struct sim_plan *plan;
    bool verbose;
    uint64_t begin_ns, now_ns, look_ns, survey_ns, noise;
    struct run run;
    struct run_effects effects;
    struct space_policy policy;
    struct sim_pending pending[SIM_PENDING];
    unsigned pending_count, happened, steps;
    uint64_t suspended_ns; /* in all: the machine's clock has gone on, the world has not */
    /* the disk */
    uint64_t free_bytes, written_bytes, surveyed_bytes, blind_until_ns, blind_from_ns, fill_until_ns;
    enum space_level told;
    bool excused, pulled; /* no promise while nothing can be read */
    /* the server */
    bool alive, enabled, hooks, wrong, grows_on;
    uint64_t open_ns, healthy_ns, dead_ns, traffic_until_ns, hang_until_ns, stuck_until_ns, long_until_ns,
        closed_until_ns, fault_until_ns, rank_until_ns, pass_rest_ns;
    char experiment[SERVER_NAME_MAX];
    uint64_t step, dump_index;
    uint64_t request_number;
    bool stop_asked;
    struct sim_watch watch;
};

/* sim_plan.c */
void sim_plan_make(struct sim_plan *plan, uint64_t seed);
void sim_plan_happening_text(const struct sim_happening *happening, char *ret_text, unsigned size);
const char *sim_plan_trait_text(enum sim_trait trait);
uint64_t sim_plan_roll(uint64_t *random, uint64_t below);

/* sim_world.c: lives through the plan; the broken rule, or NULL. */
const char *sim_world_run(struct sim_world *world, const struct sim_plan *plan, bool verbose);
void sim_world_feed(struct sim_world *world, const struct run_event *event);
struct sim_pending *sim_world_later(struct sim_world *world, enum sim_pending_kind kind, uint64_t delay_ns);
uint64_t sim_world_noise(struct sim_world *world, uint64_t below);
void sim_world_launch(struct sim_world *world);
void sim_world_die(struct sim_world *world, uint64_t delay_ns);

/* sim_server.c: the server and its disk */
void sim_server_answer(struct sim_world *world, const struct sim_pending *pending);
void sim_server_pass_time(struct sim_world *world, uint64_t until_ns);
void sim_server_look(struct sim_world *world);
void sim_server_survey(struct sim_world *world);
bool sim_server_lives(const struct sim_world *world);    /* and can write */
bool sim_server_computes(const struct sim_world *world); /* requests */
bool sim_server_troubled(const struct sim_world *world); /* questions are not answered as they should be */

/* sim_happen.c */
void sim_happen(struct sim_world *world, const struct sim_happening *happening);

/* sim_rules.c: each rule is a text; the first that is broken is kept in world->watch.broken. */
void sim_rules_require(struct sim_world *world, bool fine, const char *rule);
void sim_rules_before(struct sim_world *world, const struct run_event *event);
void sim_rules_effect(struct sim_world *world, const struct run_effect *effect);
void sim_rules_after(struct sim_world *world, const struct run_event *event, enum run_state before);
void sim_rules_time(struct sim_world *world); /* whenever time has passed */
void sim_rules_end(struct sim_world *world);

/* sim_shrink.c: the smallest plan that it finds which breaks the same rule. */
void sim_shrink(struct sim_world *world, struct sim_plan *plan, const char *rule);
