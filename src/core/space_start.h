/* Before a run: which levels hold on the filesystem of its dumps, and whether there is room enough to begin. Pure. */
#pragma once

#include "base/error.h"
#include "conf/settings.h"
#include "core/space.h"

#include <stdbool.h>
#include <stdint.h>

/* What the admin wants of that filesystem, whatever the settings say. */
struct space_rule {
    struct size floor;               /* value 0: nothing */
    const char *floor_place;         /* "[limits] of FILE", for messages; borrowed, as the next one */
    uint64_t worst_rate_bytes_per_s; /* 0: nothing */
    const char *rate_place;
};

struct space_start {
    /* given */
    const char *directory; /* of the dumps, for messages; borrowed, as the next one */
    const char *type;      /* "ext4" */
    bool measurable;
    uint64_t total_bytes, free_bytes;
    bool inodes_counted;
    uint64_t total_inodes, free_inodes;
    struct space_rule rules[2]; /* the stricter counts */
    /* worked out; without space_start_check, given */
    uint64_t worst_rate_bytes_per_s;
    uint64_t floor_bytes, soft_bytes, warn_bytes;
    uint64_t floor_inodes;   /* 0 where they are not counted */
    const char *floor_place; /* of the rule that made the floor what it is; NULL: no rule did */
    char raised[3][320];     /* what a rule has raised, and the soft level that was given, for people; "" nothing */
};

/* Works out the levels from the settings and the rules, and refuses what cannot begin: ERROR_SPACE, ERROR_SETTINGS, or
 * ERROR_FORBIDDEN where the user asked for a floor below that of a rule (a default is raised), with the numbers and,
 * after the last "; ", what to do. The levels are written in any case where the filesystem is measurable.
 */
enum error_code space_start_check(struct space_start *start, const struct settings *settings, struct error *err);

/* Raises the soft level (and with it the warning level) to space_least_soft, so that it acts before a kill. *ret_text:
 * "soft raised by 1.5 GiB to 22.0 GiB: ...", for people; "" where nothing was raised. Part of space_start_check, and
 * to be done again once the kill has been rehearsed. */
void space_start_raise_soft(struct space_start *start, const struct space_limits *limits, char ret_text[320]);

/* The limits of the watcher. `kill_ns`: as rehearsed on a child that holds nothing; 0: not yet. */
void space_start_limits(const struct space_start *start, uint64_t kill_ns, struct space_limits *ret_limits);

/* The kill level lies above the floor by what the worst writer could write meanwhile; on a small disk that can be more
 * than is free, and then the first look would kill a run that has written nothing: ERROR_SPACE. Part of
 * space_start_check, and to be asked again once the kill has been rehearsed. */
enum error_code space_start_refuse_small(const struct space_start *start, const struct space_limits *limits,
                                         struct error *err);
