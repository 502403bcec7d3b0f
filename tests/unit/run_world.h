/* A world for the run machine in tests: answers each question as a healthy server would, under a virtual clock. A test
 * may spoil any answer through `spoil`. The invariants of the machine are checked after every step. */
#pragma once

#include "core/run.h"

#include <stdbool.h>
#include <stdint.h>

struct run_world {
    struct run run;
    uint64_t now_ns;
    struct run_effects effects; /* of the last step */
    /* the server */
    bool enabled, enable_ignored, health_down;
    char experiment[SERVER_NAME_MAX];
    uint64_t step, dump_index, requests;
    char wrong_setting[64];
    bool graphs_on;
    enum server_verdict verdict;
    /* what was seen */
    unsigned asked[SERVER_QUESTIONS], done[RUN_EFFECT_KINDS], finishes;
    enum error_code reply_code;
    uint64_t reply_number;
    unsigned enables_before_armed_outside_probe;
    void (*spoil)(struct run_world *world, struct server_answer *answer);
};

void run_world_init(struct run_world *world);

/* One event; fills effects, checks invariants. */
void run_world_step(struct run_world *world, struct run_event event);

/* Answers what the last effects asked, again and again, passing time where the machine waits, until it waits for
 * something that does not come by itself or `limit` steps are made. */
void run_world_settle(struct run_world *world, unsigned limit);

/* Brings a new world into `state` by the happy path. */
void run_world_reach(struct run_world *world, enum run_state state);

/* One event of this kind with plausible contents. */
struct run_event run_world_event(struct run_world *world, enum run_event_kind kind);
