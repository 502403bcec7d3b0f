/* Waiting for a run while its events are shown. One thread. */
#pragma once

#include "ctl/find.h"

#include <stdbool.h>

struct follow {
    struct find *find;
    /* What is waited for: true for a state (by name) that ends the waiting. "ended" always does. */
    bool (*is_reached)(const char *state);
    /* Asked about once a second; false ends the waiting with ERROR_INTERRUPTED, and the run goes on. NULL: always. */
    bool (*wanted)(void *user);
    void *user;
    bool show;      /* events on standard error, each with its seconds since the start */
    uint64_t after; /* events up to this number are known already */
};

/* Returns when the state is reached or the run has ended, however; the caller owns *ret_run, the run object of then.
 * *follow->find may have become a dead run. Fails when the run can no longer be asked. */
enum error_code follow_run(struct follow *follow, struct json **ret_run, struct error *err);

/* For is_reached: its start is over, and it can be worked with. */
bool follow_is_up(const char *state);

/* True when standard error is a terminal: progress is shown only there. */
bool follow_may_show(void);
