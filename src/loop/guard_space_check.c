/* Before the server is launched: is there a filesystem that can be guarded, which levels hold on it, and is there room
 * enough to begin? Each refusal names the numbers and what to change. */
#include "loop/guard_private.h"
#include "base/size.h"
#include "base/text.h"
#include "sys/space.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

static const uint64_t small_tmpfs_bytes = 4ull << 30;

/* A server has gigabytes to unmap, so a kill never counts as faster than this. (Dying processes write nothing: SIGKILL
 * ends a write between two pages.) */
static const uint64_t least_kill_ns = 5000000;
static const uint64_t soft_hold_ns = 2000000000;

void guard_space_limits(const struct guard_plan *plan, uint64_t kill_ns, struct space_limits *ret_limits)
{
    *ret_limits = (struct space_limits){.floor_bytes = plan->floor_bytes,
                                        .floor_inodes = plan->floor_inodes,
                                        .soft_bytes = plan->soft_bytes,
                                        .warn_bytes = plan->warn_bytes,
                                        .soft_hold_ns = soft_hold_ns,
                                        .worst_rate_bytes_per_s = plan->settings.worst_rate_bytes_per_s,
                                        .kill_time_ns = 2 * kill_ns > least_kill_ns ? 2 * kill_ns : least_kill_ns,
                                        .min_interval_ns = 1000000,
                                        .max_interval_ns = 1000000000};
}

/* The kill level lies above the floor by what the worst writer could write meanwhile; on a small disk that can be more
 * than is free, and then the first look would kill a run that has written nothing. */
enum error_code guard_space_refuse_small(const struct guard_plan *plan, const struct space_limits *limits,
                                         struct error *err)
{
    char act[SIZE_TEXT], free_text[SIZE_TEXT], rate[SIZE_TEXT];
    struct space_policy policy;
    space_policy_init(&policy, limits);
    if (policy.act_bytes >= plan->free_at_start_bytes)
        return error_set(
            err, ERROR_SPACE,
            "the kill level %s is above the %s that are free: it is the floor plus what a writer of %s/s writes until "
            "everything is dead; give a larger --dir, a lower --floor, or a lower worst_rate in --config",
            size_text(policy.act_bytes, act), size_text(plan->free_at_start_bytes, free_text),
            size_text(limits->worst_rate_bytes_per_s, rate));
    if (policy.act_inodes > 0 && policy.act_inodes >= plan->free_inodes)
        return error_set(err, ERROR_SPACE,
                         "%s has %llu free inodes; a run is killed at %llu of them (floor %llu, and what can be made "
                         "until everything "
                         "is dead), and a dump is one file for each tensor: give a --dir on another filesystem",
                         plan->directory, (unsigned long long)plan->free_inodes, (unsigned long long)policy.act_inodes,
                         (unsigned long long)plan->floor_inodes);
    return ERROR_NONE;
}

static enum error_code refuse_floor(const struct guard_plan *plan, const char *type, struct error *err)
{
    char free_text[SIZE_TEXT], needed[SIZE_TEXT], floor[SIZE_TEXT], total[SIZE_TEXT];
    if (plan->settings.floor.value == 0 && strcmp(type, "tmpfs") == 0 && plan->total_bytes < small_tmpfs_bytes)
        return error_set(
            err, ERROR_SPACE,
            "%s is a tmpfs of %s; a dump fills that in a second: give another --dir, or say what must stay "
            "free with --floor",
            plan->directory, size_text(plan->total_bytes, total));
    if (plan->floor_bytes > plan->total_bytes)
        return error_set(err, ERROR_SPACE,
                         "the floor %s is larger than the whole filesystem of %s (%s, %s of it free): give a lower "
                         "--floor or another --dir",
                         size_text(plan->floor_bytes, floor), plan->directory, size_text(plan->total_bytes, total),
                         size_text(plan->free_at_start_bytes, free_text));
    if (plan->free_at_start_bytes < space_start_level(plan->floor_bytes))
        return error_set(
            err, ERROR_SPACE,
            "%s has %s free; a run with floor %s starts from %s on (floor + a quarter): make room, give another "
            "--dir or a lower --floor",
            plan->directory, size_text(plan->free_at_start_bytes, free_text), size_text(plan->floor_bytes, floor),
            size_text(space_start_level(plan->floor_bytes), needed));
    return ERROR_NONE;
}

static enum error_code take_soft(struct guard_plan *plan, struct error *err)
{
    const struct size *given = &plan->settings.soft;
    char soft[SIZE_TEXT], floor[SIZE_TEXT], free_text[SIZE_TEXT];
    plan->soft_bytes = given->value > 0 ? size_bytes(given, plan->total_bytes)
                                        : space_default_soft(plan->floor_bytes, plan->free_at_start_bytes);
    if (plan->soft_bytes < plan->floor_bytes)
        return error_set(
            err, ERROR_SETTINGS,
            "--soft %s is below the floor %s: dumping would be switched off after the run was killed; give "
            "a higher --soft or a lower --floor",
            size_text(plan->soft_bytes, soft), size_text(plan->floor_bytes, floor));
    if (given->value > 0 && plan->soft_bytes >= plan->free_at_start_bytes)
        return error_set(err, ERROR_SPACE,
                         "%s has %s free, and --soft %s switches dumping off at that: no dump could begin; make room, "
                         "give another --dir or a lower --soft",
                         plan->directory, size_text(plan->free_at_start_bytes, free_text),
                         size_text(plan->soft_bytes, soft));
    plan->warn_bytes = space_warn_level(plan->floor_bytes, plan->soft_bytes, plan->free_at_start_bytes);
    return ERROR_NONE;
}

/* Which filesystem it is: the path must go on meaning this one. */
static enum error_code identify(struct guard_plan *plan, struct error *err)
{
    struct stat status;
    char type[SPACE_TYPE_TEXT];
    if (fstat(plan->directory_fd, &status) != 0)
        return error_set_errno(err, ERROR_SYSTEM, errno, "dump folder %s", plan->directory);
    plan->directory_device = status.st_dev;
    plan->directory_inode = status.st_ino;
    text_copy(plan->filesystem, sizeof plan->filesystem, space_type(plan->directory_fd, type));
    plan->pending_fd = space_type_lags(plan->filesystem) ? space_open_pending() : -1;
    return ERROR_NONE;
}

enum error_code guard_space_check(struct guard_plan *plan, struct error *err)
{
    struct space space;
    struct space_limits limits;
    enum error_code code = identify(plan, err);
    if (code == ERROR_NONE)
        code = space_read(plan->directory_fd, &space, err);
    if (code != ERROR_NONE)
        return error_prefix(err, "free space of %s", plan->directory);
    if (!space.measurable)
        return error_set(err, ERROR_SPACE,
                         "the filesystem of %s (%s) does not tell its free space: it cannot be guarded",
                         plan->directory, plan->filesystem);
    plan->total_bytes = space.total_bytes;
    plan->free_at_start_bytes = space.free_bytes;
    plan->floor_bytes = plan->settings.floor.value > 0 ? size_bytes(&plan->settings.floor, space.total_bytes)
                                                       : space_default_floor(space.total_bytes);
    plan->inodes_counted = space.inodes_counted;
    plan->total_inodes = space.total_inodes;
    plan->free_inodes = space.free_inodes;
    plan->floor_inodes = space.inodes_counted ? space_floor_inodes(&plan->settings.floor, space.total_inodes) : 0;
    code = refuse_floor(plan, plan->filesystem, err);
    if (code == ERROR_NONE)
        code = take_soft(plan, err);
    guard_space_limits(plan, 0, &limits);
    return code == ERROR_NONE ? guard_space_refuse_small(plan, &limits, err) : code;
}

void guard_space_describe(const struct guard_plan *plan, char *ret_text, size_t size)
{
    char free_text[SIZE_TEXT], floor[SIZE_TEXT], soft[SIZE_TEXT], warn[SIZE_TEXT], budget[SIZE_TEXT];
    char inodes[96] = "", most[64] = "";
    if (plan->inodes_counted)
        snprintf(inodes, sizeof inodes, "; %llu inodes free, floor %llu", (unsigned long long)plan->free_inodes,
                 (unsigned long long)plan->floor_inodes);
    if (plan->settings.budget_bytes > 0)
        snprintf(most, sizeof most, "; budget %s", size_text(plan->settings.budget_bytes, budget));
    snprintf(ret_text, size, "%s free on %s, floor %s, dumping off at %s, warning at %s%s%s%s",
             size_text(plan->free_at_start_bytes, free_text), plan->filesystem, size_text(plan->floor_bytes, floor),
             size_text(plan->soft_bytes, soft), size_text(plan->warn_bytes, warn), inodes, most,
             plan->pending_fd >= 0 ? "; its figures lag behind memory: what is still to be written counts as written"
                                   : "");
}
