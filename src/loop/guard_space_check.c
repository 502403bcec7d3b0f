/* Before the server is launched: is there a filesystem that can be guarded, which levels hold on it, and is there room
 * enough to begin? core/space_start.h decides; here is what it is told. */
#include "loop/guard_private.h"
#include "base/size.h"
#include "base/text.h"
#include "core/space_start.h"
#include "sys/space.h"

#include <errno.h>
#include <stdio.h>
#include <sys/stat.h>

static struct space_start start_of(const struct guard_plan *plan)
{
    return (struct space_start){.directory = plan->directory,
                                .type = plan->filesystem,
                                .measurable = true,
                                .total_bytes = plan->total_bytes,
                                .free_bytes = plan->free_at_start_bytes,
                                .inodes_counted = plan->inodes_counted,
                                .total_inodes = plan->total_inodes,
                                .free_inodes = plan->free_inodes,
                                .worst_rate_bytes_per_s = plan->settings.worst_rate_bytes_per_s,
                                .floor_bytes = plan->floor_bytes,
                                .soft_bytes = plan->soft_bytes,
                                .warn_bytes = plan->warn_bytes,
                                .floor_inodes = plan->floor_inodes};
}

void guard_space_limits(const struct guard_plan *plan, uint64_t kill_ns, struct space_limits *ret_limits)
{
    struct space_start start = start_of(plan);
    space_start_limits(&start, kill_ns, ret_limits);
}

void guard_space_raise_soft(struct guard *guard, struct space_limits *limits)
{
    struct guard_plan *plan = &guard->plan;
    struct space_start start = start_of(plan);
    char text[320];
    space_start_raise_soft(&start, limits, text);
    plan->soft_bytes = limits->soft_bytes = start.soft_bytes;
    plan->warn_bytes = limits->warn_bytes = start.warn_bytes;
    if (text[0] != '\0' && plan->settings.soft.value > 0)
        guard_report_note(guard, RUN_INFO, RUN_NOTE_SPACE, text);
}

enum error_code guard_space_refuse_small(const struct guard_plan *plan, const struct space_limits *limits,
                                         struct error *err)
{
    struct space_start start = start_of(plan);
    return space_start_refuse_small(&start, limits, err);
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
    enum error_code code = identify(plan, err);
    if (code == ERROR_NONE)
        code = space_read(plan->directory_fd, &space, err);
    if (code != ERROR_NONE)
        return error_prefix(err, "free space of %s", plan->directory);
    plan->total_bytes = space.total_bytes;
    plan->free_at_start_bytes = space.free_bytes;
    plan->inodes_counted = space.inodes_counted;
    plan->total_inodes = space.total_inodes;
    plan->free_inodes = space.free_inodes;
    struct space_start start = start_of(plan);
    start.measurable = space.measurable;
    admin_set_space_rules(&plan->rules, plan->directory_device, space.total_bytes, start.rules);
    code = space_start_check(&start, &plan->settings, err);
    if (space.measurable) /* the watcher's, and what the record says */
        plan->settings.worst_rate_bytes_per_s = start.worst_rate_bytes_per_s;
    for (size_t i = 0; i < sizeof start.raised / sizeof start.raised[0]; i++)
        if (start.raised[i][0] != '\0')
            list_add(&plan->raised, start.raised[i]);
    plan->floor_bytes = start.floor_bytes;
    plan->soft_bytes = start.soft_bytes;
    plan->warn_bytes = start.warn_bytes;
    plan->floor_inodes = start.floor_inodes;
    return code;
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
