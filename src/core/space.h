/* The space policy: pure decisions over readings of one filesystem. No I/O, no clock; one owner (the watcher thread).
 *
 * The promise: free space never falls below `floor_bytes` through writers slower than `worst_rate_bytes_per_s`. A kill
 * is due at act_bytes = floor + worst_rate x (min_interval + kill_time): what such a writer can still write between the
 * last look that was fine, the next look, and everybody's death. Looks are timed so that the level cannot be reached
 * between two.
 *
 * Of several runs on one filesystem the one that writes should go first, and the others live where that is enough:
 * while a run has written the larger share of what goes (space_writes_most) its kill is due one margin earlier, at
 * floor + 2 x that. When everything of it is dead, free space is still above the level of the others. The promise is
 * the same.
 *
 * Free inodes have a floor of their own, by the same rule with SPACE_WORST_FILES_PER_S; of bytes and inodes the graver
 * level decides. On a filesystem whose figures lag behind memory, what is still to be written there (`pending_bytes`)
 * counts as written.
 *
 * A level that has been reached is left only when free space is a 32nd of it above it, so that a level does not come
 * and go with each file. The floor has no such margin. */
#pragma once

#include "base/size.h"

#include <stdbool.h>
#include <stdint.h>

struct space_reading {
    uint64_t at_ns;  /* monotonic */
    bool measurable; /* false: the filesystem gave no usable figures (0 blocks, an error); never "full", never "plenty"
                      */
    uint64_t total_bytes;
    uint64_t free_bytes;    /* what an ordinary user may still write, as the filesystem says */
    uint64_t pending_bytes; /* in memory and not yet counted there; 0 where the figures do not lag */
    bool inodes_counted;
    uint64_t total_inodes, free_inodes;
    bool read_only; /* nothing can be written any more */
};

enum { SPACE_WORST_FILES_PER_S = 200000 }; /* made by anybody; a tmpfs takes about half of it on one core */

struct space_limits {
    uint64_t floor_bytes;
    uint64_t floor_inodes; /* 0: not looked at */
    uint64_t soft_bytes;   /* dumping is to be switched off; 0: no such level */
    uint64_t warn_bytes;   /* somebody is to be told; 0: no such level */
    uint64_t soft_hold_ns; /* how long free space must have been at or below soft_bytes */
    uint64_t worst_rate_bytes_per_s;
    uint64_t kill_time_ns; /* measured by a rehearsal, with a margin */
    uint64_t min_interval_ns, max_interval_ns;
};

enum space_level {
    SPACE_FINE,
    SPACE_WARN,         /* at or below warn_bytes */
    SPACE_SOFT,         /* at or below soft_bytes for soft_hold_ns, or the filesystem went read-only */
    SPACE_FLOOR,        /* at or below act_bytes or act_inodes: kill (after reading once more) */
    SPACE_UNMEASURABLE, /* this reading says nothing */
};

/* "fine", "warn", "soft", "floor", "blind". */
const char *space_level_name(enum space_level level);

struct space_decision {
    enum space_level level;
    uint64_t interval_ns;      /* until the next look */
    uint64_t rate_bytes_per_s; /* net shrinking of free space over the last seconds; 0 when it grows or is not known */
    uint64_t ms_to_floor;      /* at that rate; UINT64_MAX when the rate is 0 */
    bool by_inodes;            /* the level is that of the inodes */
};

enum { SPACE_WINDOW = 8 };

struct space_policy {
    struct space_limits limits;
    uint64_t act_bytes;
    uint64_t act_inodes; /* floor_inodes + SPACE_WORST_FILES_PER_S x (min_interval + kill_time); 0: not looked at */
    uint64_t margin_bytes, margin_inodes; /* what lies between floor and level; in both, when `early`, twice */
    bool early;
    struct space_reading last; /* last measurable one, free_bytes less what is pending; at_ns 0: none yet */
    struct space_reading window[SPACE_WINDOW]; /* a reading each half second, for the shown rate */
    unsigned window_next, window_count;
    uint64_t peak_rate[2];       /* highest rate between successive readings in this half minute and the one before */
    uint64_t peak_files_rate[2]; /* the same for inodes */
    uint64_t peak_since_ns;
    bool warned, softened;  /* at or below that level, with the margin above */
    uint64_t soft_since_ns; /* while `softened` */
};

/* Requires: min_interval_ns > 0, max_interval_ns >= min_interval_ns. */
void space_policy_init(struct space_policy *policy, const struct space_limits *limits);

/* One margin earlier, or not. Not raised above what was free at the last reading, nor before the first: that would kill
 * a run for what others have written. */
void space_policy_stage(struct space_policy *policy, bool early);

/* Whether a run that wrote so much of what went counts as the one that fills the disk: half of it, or too little went
 * to tell. */
bool space_writes_most(uint64_t written_bytes, uint64_t gone_bytes);

/* Takes one reading (times must not go back) and decides. The interval is (free - act) / R between the limits, where R
 * is the larger of the worst rate and twice the peak rate; the same for inodes, and the smaller of both. */
void space_policy_look(struct space_policy *policy, const struct space_reading *reading,
                       struct space_decision *ret_decision);

/* What may still be written: free_bytes less pending_bytes. */
uint64_t space_free(const struct space_reading *reading);

/* 5 % of the filesystem, at least 20 GiB and at most 200 GiB, but never more than 10 % of it. */
uint64_t space_default_floor(uint64_t total_bytes);

/* Of the inodes: about 1 %, at least 1000, never above 10 %; where the floor was given as a percentage, that of them. 0
 * where there are none to count. */
uint64_t space_floor_inodes(const struct size *floor, uint64_t total_inodes);

/* Where dumping is switched off: twice the floor, or halfway between the floor and what is free where that is less;
 * never below the floor. */
uint64_t space_default_soft(uint64_t floor_bytes, uint64_t free_bytes);

/* The lowest level at which switching dumping off can still come before a kill: one margin above the highest kill
 * level, which is that of a run that writes the larger share (of one for which there is no such room: the other one);
 * but at most halfway from there to what is free. */
uint64_t space_least_soft(const struct space_limits *limits, uint64_t free_bytes);

/* Where somebody is told: as far above soft as half of the way from the floor to soft, but at most halfway from soft to
 * what is free at the start; never below soft. */
uint64_t space_warn_level(uint64_t floor_bytes, uint64_t soft_bytes, uint64_t free_bytes);

/* What must be free before a run may start: floor + floor / 4. */
uint64_t space_start_level(uint64_t floor_bytes);

/* How many more units of `unit_bytes` fit above the act level; UINT64_MAX when unit_bytes is 0. */
uint64_t space_units_left(uint64_t free_bytes, uint64_t act_bytes, uint64_t unit_bytes);
