/* Runs under the real keeper, for its tests: started, listened to, ended, and looked for in /proc afterwards. */
#pragma once

#include "sys/keeper.h"

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

extern char *keeper_world_program;     /* kldump-keeper in the build folder's root, where tests run */
extern char *keeper_world_own_program; /* the test itself */
extern bool keeper_world_cgroups;      /* a cgroup can be made here */

struct keeper_world_run {
    struct keeper keeper;
    char cookie[20];
    int out; /* reading end of CMD's standard output */
    pid_t main_pid;
    int64_t rehearsed_ns; /* as STARTED said */
    char cgroup_path[PATH_MAX];
};

/* False when kldump-keeper is not there. */
bool keeper_world_init(void);

int64_t keeper_world_now_ns(void);

/* Live processes with this cookie, without the keeper. */
size_t keeper_world_survivors(const char *cookie);

enum error_code keeper_world_spawn(struct keeper_world_run *run, bool cgroup, char *const *command, struct error *err);

/* The next message of that kind within `limit_ms`, with heartbeats meanwhile; others are skipped. */
bool keeper_world_expect(struct keeper_world_run *run, enum keeper_kind kind, int limit_ms,
                         struct keeper_message *message);

/* Spawns, checks STARTED, and waits until the tree has written `ready` lines. */
void keeper_world_start(struct keeper_world_run *run, bool cgroup, char *const *command, int ready);
void keeper_world_start_shell(struct keeper_world_run *run, bool cgroup, const char *script, int ready);

/* Ends the keeper; nothing may be left: no process, no open end of the output, no cgroup. */
void keeper_world_finish(struct keeper_world_run *run);

/* Each test(bool cgroup) becomes two tests, in a cgroup and without. */
#define KEEPER_WORLD_BOTH(name)                             \
    static void name##_cgroup(void **state)                 \
    {                                                       \
        (void)state;                                        \
        if (!keeper_world_cgroups) {                        \
            print_message("no writable cgroup: not run\n"); \
            skip();                                         \
        }                                                   \
        name(true);                                         \
    }                                                       \
    static void name##_alone(void **state)                  \
    {                                                       \
        (void)state;                                        \
        name(false);                                        \
    }
#define KEEPER_WORLD_TEST(name) cmocka_unit_test(name##_cgroup), cmocka_unit_test(name##_alone)
