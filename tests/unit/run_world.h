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
    struct run_effects due;     /* to be answered */
    /* the server */
    bool enabled, enable_ignored, health_down;
    bool mute;      /* questions are not answered at all */
    uint32_t ranks; /* that answer; 1 at first */
    char experiment[SERVER_NAME_MAX];
    uint64_t step, dump_index, requests;
    char wrong_setting[64];
    bool graphs_on;
    enum server_verdict verdict;
    /* what was seen */
    unsigned asked[SERVER_QUESTIONS], done[RUN_EFFECT_KINDS], finishes;
    enum error_code reply_code;
    uint64_t reply_number;
    char reply_text[768];
    char notes[4096]; /* all of them, one a line; the newest last */
    unsigned enables_before_armed_outside_probe;
    void (*spoil)(struct run_world *world, struct server_answer *answer);
};

void run_world_init(struct run_world *world);

/* One event; fills effects, checks invariants. */
void run_world_step(struct run_world *world, struct run_event event);

/* Answers what the last effects asked, again and again, passing time where the machine waits, until it waits for
 * something that does not come by itself or `limit` steps are made. */
void run_world_settle(struct run_world *world, unsigned limit);

/* Lets `ms` pass: answers and ticks come as they are due. */
void run_world_live(struct run_world *world, uint64_t ms);

/* Brings a new world into `state` by the happy path, into ready by that of a plain run; `_with` with so many ranks. */
void run_world_reach(struct run_world *world, enum run_state state);
void run_world_reach_with(struct run_world *world, enum run_state state, uint32_t ranks);

/* Space and bytes, told to the machine. */
void run_world_space(struct run_world *world, enum space_level level);
void run_world_survey(struct run_world *world, uint64_t written_bytes, bool busy);

/* How many of the notes so far have this text in them. */
unsigned run_world_noted(const struct run_world *world, const char *text);

/* Within `ms` the run has ended so, with `message` in what it says. */
void run_world_ends(struct run_world *world, uint64_t ms, enum run_outcome outcome, const char *message);

/* Within `ms` the dump is switched off and sealed once, and the run is armed again. `disturbance` is in what disturbed
 * it; "": nothing did, and it is complete; NULL: not looked at. */
void run_world_is_sealed(struct run_world *world, uint64_t ms, enum run_sealed_by by, const char *disturbance);

/* One event of this kind with plausible contents. */
struct run_event run_world_event(struct run_world *world, enum run_event_kind kind);
