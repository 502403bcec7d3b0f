/* The space policy: pure decisions over readings of one filesystem. No I/O, no clock; one owner (the watcher thread).
 *
 * The promise: free space never falls below `floor_bytes` through writers slower than `worst_rate_bytes_per_s`. A kill
 * is due at act_bytes = floor + worst_rate x (min_interval + kill_time): what such a writer can still write between the
 * last look that was fine, the next look, and everybody's death. Looks are timed so that the level cannot be reached
 * between two. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

struct space_reading {
    uint64_t at_ns;  /* monotonic */
    bool measurable; /* false: the filesystem gave no usable figures (0 blocks, an error); never "full", never "plenty"
                      */
    uint64_t total_bytes;
    uint64_t free_bytes; /* what an ordinary user may still write */
};

struct space_limits {
    uint64_t floor_bytes;
    uint64_t worst_rate_bytes_per_s;
    uint64_t kill_time_ns; /* measured by a rehearsal, with a margin */
    uint64_t min_interval_ns, max_interval_ns;
};

enum space_level {
    SPACE_FINE,
    SPACE_FLOOR,        /* at or below act_bytes: kill (after reading once more) */
    SPACE_UNMEASURABLE, /* this reading says nothing */
};

struct space_decision {
    enum space_level level;
    uint64_t interval_ns;      /* until the next look */
    uint64_t rate_bytes_per_s; /* net shrinking of free space over the last seconds; 0 when it grows or is not known */
    uint64_t ms_to_floor;      /* at that rate; UINT64_MAX when the rate is 0 */
};

enum { SPACE_WINDOW = 8 };

struct space_policy {
    struct space_limits limits;
    uint64_t act_bytes;
    struct space_reading last;                 /* last measurable one; at_ns 0: none yet */
    struct space_reading window[SPACE_WINDOW]; /* a reading each half second, for the shown rate */
    unsigned window_next, window_count;
    uint64_t peak_rate[2]; /* highest rate between successive readings in this half minute and the one before */
    uint64_t peak_since_ns;
};

/* Requires: min_interval_ns > 0, max_interval_ns >= min_interval_ns. */
void space_policy_init(struct space_policy *policy, const struct space_limits *limits);

/* Takes one reading (times must not go back) and decides. The interval is (free - act) / R between the limits, where R
 * is the larger of the worst rate and twice the peak rate. */
void space_policy_look(struct space_policy *policy, const struct space_reading *reading,
                       struct space_decision *ret_decision);

/* 5 % of the filesystem, at least 20 GiB and at most 200 GiB, but never more than 10 % of it. */
uint64_t space_default_floor(uint64_t total_bytes);

/* What must be free before a run may start: floor + floor / 4. */
uint64_t space_start_level(uint64_t floor_bytes);

/* How many more units of `unit_bytes` fit above the act level; UINT64_MAX when unit_bytes is 0. */
uint64_t space_units_left(uint64_t free_bytes, uint64_t act_bytes, uint64_t unit_bytes);
