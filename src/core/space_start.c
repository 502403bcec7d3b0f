#include "core/space_start.h"

#include "base/number.h"
#include "base/size.h"
#include "base/text.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static const uint64_t small_tmpfs_bytes = 4ull << 30;

/* A server has gigabytes to unmap, so a kill never counts as faster than this. (Dying processes write nothing: SIGKILL
 * ends a write between two pages.) */
static const uint64_t least_kill_ns = 5000000;
static const uint64_t soft_hold_ns = 2000000000;

void space_start_limits(const struct space_start *start, uint64_t kill_ns, struct space_limits *ret_limits)
{
    *ret_limits = (struct space_limits){.floor_bytes = start->floor_bytes,
                                        .floor_inodes = start->floor_inodes,
                                        .soft_bytes = start->soft_bytes,
                                        .warn_bytes = start->warn_bytes,
                                        .soft_hold_ns = soft_hold_ns,
                                        .worst_rate_bytes_per_s = start->worst_rate_bytes_per_s,
                                        .kill_time_ns = 2 * kill_ns > least_kill_ns ? 2 * kill_ns : least_kill_ns,
                                        .min_interval_ns = 1000000,
                                        .max_interval_ns = 1000000000};
}

enum error_code space_start_refuse_small(const struct space_start *start, const struct space_limits *limits,
                                         struct error *err)
{
    char act[SIZE_TEXT], free_text[SIZE_TEXT], rate[SIZE_TEXT];
    struct space_policy policy;
    space_policy_init(&policy, limits);
    if (policy.act_bytes >= start->free_bytes)
        return error_set(err, ERROR_SPACE,
                         "the kill level %s is above the %s that are free: it is the floor plus what a writer of %s/s "
                         "writes until everything is dead; give a larger --dir, a lower --floor, or a lower worst_rate "
                         "in --config",
                         size_text(policy.act_bytes, act), size_text(start->free_bytes, free_text),
                         size_text(limits->worst_rate_bytes_per_s, rate));
    if (policy.act_inodes > 0 && policy.act_inodes >= start->free_inodes)
        return error_set(err, ERROR_SPACE,
                         "%s has %" PRIu64 " free inodes, and a run is killed at %" PRIu64 " of them (floor %" PRIu64
                         ", and what can be made until everything is dead): a dump is one file for each tensor; give a "
                         "--dir on another filesystem",
                         start->directory, start->free_inodes, policy.act_inodes, start->floor_inodes);
    return ERROR_NONE;
}

static enum error_code refuse_floor(const struct space_start *start, bool has_floor, struct error *err)
{
    char free_text[SIZE_TEXT], needed[SIZE_TEXT], floor[SIZE_TEXT], total[SIZE_TEXT], of[240] = "";
    const char *advice = start->floor_place == NULL ? "give a lower --floor or another --dir"
                                                    : "give another --dir, or ask the admin for another rule";
    if (start->floor_place != NULL)
        snprintf(of, sizeof of, " (%.220s)", start->floor_place);
    if (!has_floor && start->floor_place == NULL && strcmp(start->type, "tmpfs") == 0 &&
        start->total_bytes < small_tmpfs_bytes)
        return error_set(
            err, ERROR_SPACE,
            "%s is a tmpfs of %s: a dump fills that in a second; give another --dir, or say what must stay "
            "free with --floor",
            start->directory, size_text(start->total_bytes, total));
    if (start->floor_bytes > start->total_bytes)
        return error_set(err, ERROR_SPACE,
                         "the floor %s%s is larger than the whole filesystem of %s (%s, %s of it free); %s",
                         size_text(start->floor_bytes, floor), of, start->directory,
                         size_text(start->total_bytes, total), size_text(start->free_bytes, free_text), advice);
    if (start->free_bytes < space_start_level(start->floor_bytes))
        return error_set(err, ERROR_SPACE,
                         "%s has %s free, and a run with floor %s%s starts from %s on (floor + a quarter); make room, "
                         "%s",
                         start->directory, size_text(start->free_bytes, free_text),
                         size_text(start->floor_bytes, floor), of,
                         size_text(space_start_level(start->floor_bytes), needed), advice);
    return ERROR_NONE;
}

/* ---- the admin's rules ---- */

static enum error_code refuse_lower(const struct space_start *start, const struct space_rule *rule, uint64_t least,
                                    struct error *err)
{
    char floor[SIZE_TEXT], needed[SIZE_TEXT];
    return error_set(
        err, ERROR_FORBIDDEN,
        "floor %s was asked for, and %s wants %s to stay free on the filesystem of %s; leave --floor out, or give more",
        size_text(start->floor_bytes, floor), rule->floor_place, size_text(least, needed), start->directory);
}

static enum error_code raise_floor(struct space_start *start, bool asked, struct error *err)
{
    char floor[SIZE_TEXT], before[SIZE_TEXT];
    uint64_t chosen = start->floor_bytes;
    enum error_code code = ERROR_NONE;
    for (size_t i = 0; i < sizeof start->rules / sizeof start->rules[0]; i++) {
        const struct space_rule *rule = &start->rules[i];
        uint64_t least = rule->floor.value > 0 ? size_bytes(&rule->floor, start->total_bytes) : 0;
        if (asked && least > chosen && code == ERROR_NONE)
            code = refuse_lower(start, rule, least, err);
        if (least > start->floor_bytes) {
            start->floor_bytes = least;
            start->floor_place = rule->floor_place;
        }
        if (rule->floor.value > 0 && start->inodes_counted) {
            uint64_t inodes = space_floor_inodes(&rule->floor, start->total_inodes);
            start->floor_inodes = inodes > start->floor_inodes ? inodes : start->floor_inodes;
        }
    }
    if (start->floor_place != NULL)
        snprintf(start->raised[0], sizeof start->raised[0], "floor %s: %.220s; without it %s",
                 size_text(start->floor_bytes, floor), start->floor_place, size_text(chosen, before));
    return code;
}

static void raise_rate(struct space_start *start)
{
    char rate[SIZE_TEXT], before[SIZE_TEXT];
    uint64_t chosen = start->worst_rate_bytes_per_s;
    const char *place = NULL;
    for (size_t i = 0; i < sizeof start->rules / sizeof start->rules[0]; i++)
        if (start->rules[i].worst_rate_bytes_per_s > start->worst_rate_bytes_per_s) {
            start->worst_rate_bytes_per_s = start->rules[i].worst_rate_bytes_per_s;
            place = start->rules[i].rate_place;
        }
    if (place != NULL)
        snprintf(start->raised[1], sizeof start->raised[1], "worst rate %s/s: %.220s; without it %s/s",
                 size_text(start->worst_rate_bytes_per_s, rate), place, size_text(chosen, before));
}

void space_start_raise_soft(struct space_start *start, const struct space_limits *limits, char ret_text[320])
{
    char soft[SIZE_TEXT], more[SIZE_TEXT], act[SIZE_TEXT];
    struct space_policy policy;
    uint64_t least = space_least_soft(limits, start->free_bytes);
    ret_text[0] = '\0';
    if (start->soft_bytes >= least)
        return;
    space_policy_init(&policy, limits);
    /* levels above a floor of many gigabytes differ by less than what is shown of them */
    snprintf(
        ret_text, 320,
        "soft raised by %s to %s: a run that writes most may be killed %s above the floor, and dumping is switched "
        "off before",
        size_text(least - start->soft_bytes, more), size_text(least, soft),
        size_text(number_multiply(policy.margin_bytes, 2), act));
    start->soft_bytes = least;
    start->warn_bytes = space_warn_level(start->floor_bytes, least, start->free_bytes);
}

static enum error_code refuse_soft(const struct space_start *start, bool has_soft, struct error *err)
{
    char soft[SIZE_TEXT], floor[SIZE_TEXT], free_text[SIZE_TEXT];
    if (start->soft_bytes < start->floor_bytes)
        return error_set(err, ERROR_SETTINGS,
                         "--soft %s is below the floor %s: dumping would be switched off after the run was killed; "
                         "give a higher --soft%s",
                         size_text(start->soft_bytes, soft), size_text(start->floor_bytes, floor),
                         start->floor_place == NULL ? " or a lower --floor" : "");
    if (has_soft && start->soft_bytes >= start->free_bytes)
        return error_set(err, ERROR_SPACE,
                         "%s has %s free, and --soft %s switches dumping off at that: no dump could begin; make room, "
                         "give another --dir or a lower --soft",
                         start->directory, size_text(start->free_bytes, free_text), size_text(start->soft_bytes, soft));
    return ERROR_NONE;
}

enum error_code space_start_check(struct space_start *start, const struct settings *settings, struct error *err)
{
    const struct size *floor = &settings->floor, *soft = &settings->soft;
    if (!start->measurable)
        return error_set(
            err, ERROR_SPACE,
            "the filesystem of %s (%s) does not tell its free space: it cannot be guarded; give a --dir on "
            "another one",
            start->directory, start->type);
    start->worst_rate_bytes_per_s = settings->worst_rate_bytes_per_s;
    start->floor_bytes =
        floor->value > 0 ? size_bytes(floor, start->total_bytes) : space_default_floor(start->total_bytes);
    start->floor_inodes = start->inodes_counted ? space_floor_inodes(floor, start->total_inodes) : 0;
    enum error_code forbidden = raise_floor(start, settings->given[SETTINGS_FLOOR], err);
    raise_rate(start);
    start->soft_bytes = soft->value > 0 ? size_bytes(soft, start->total_bytes)
                                        : space_default_soft(start->floor_bytes, start->free_bytes);
    start->warn_bytes = space_warn_level(start->floor_bytes, start->soft_bytes, start->free_bytes);
    enum error_code code = forbidden != ERROR_NONE ? forbidden : refuse_floor(start, floor->value > 0, err);
    if (code == ERROR_NONE)
        code = refuse_soft(start, soft->value > 0, err);
    if (code != ERROR_NONE)
        return code;
    struct space_limits limits;
    space_start_limits(start, 0, &limits);
    code = space_start_refuse_small(start, &limits, err);
    char raised[320] = "";
    if (code == ERROR_NONE)
        space_start_raise_soft(start, &limits, raised);
    if (soft->value > 0)
        text_copy(start->raised[2], sizeof start->raised[2], raised);
    return code;
}
