/* The dump folder: whether a run may use it, and what its filesystem has room for. */
#include "base/size.h"
#include "core/space.h"
#include "ctl/doctor.h"
#include "sys/dump_folder.h"
#include "sys/space.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static const uint64_t small_tmpfs_bytes = 4ull << 30;
/* The guard rehearses the kill and takes twice that, and never less than this. */
static const uint64_t kill_ns = 5000000, look_ns = 1000000;

void doctor_space_folder(struct doctor *doctor, struct doctor_finding *ret_finding)
{
    struct error err = ERROR_INIT;
    char foreign[80];
    bool is_there = doctor->folder_problem == 0;
    if (!is_there && doctor->folder_problem != ENOENT) {
        doctor_say(ret_finding, DOCTOR_FAIL, "%s: %s: %s", doctor->directory, doctor->nearest,
                   strerror(doctor->folder_problem));
        doctor_advise(ret_finding, "give a folder that you may write to with --dir");
    } else if (doctor->nearest_fd < 0 || faccessat(doctor->nearest_fd, ".", W_OK | X_OK, AT_EACCESS) != 0) {
        doctor_say(ret_finding, DOCTOR_FAIL, "%s: you may not write to %s: %s", doctor->directory, doctor->nearest,
                   strerror(errno));
        doctor_advise(ret_finding, "give another folder with --dir");
    } else if (!is_there) {
        doctor_say(ret_finding, DOCTOR_PASS, "%s, which the run will make", doctor->directory);
    } else if (dump_folder_foreign(doctor->nearest_fd, foreign, sizeof foreign, &err) != ERROR_NONE) {
        doctor_say(ret_finding, DOCTOR_FAIL, "%s: %s", doctor->directory, err.message);
    } else if (foreign[0] != '\0') {
        doctor_say(ret_finding, DOCTOR_FAIL, "%s holds '%s', which is no sealed dump of kldump", doctor->directory,
                   foreign);
        doctor_advise(ret_finding, "give an empty folder with --dir: a dump beside foreign files mixes runs");
    } else {
        doctor_say(ret_finding, DOCTOR_PASS, "%s", doctor->directory);
    }
}

/* False where it cannot be read; then *ret_finding says so. */
static bool read_space(const struct doctor *doctor, struct space *space, struct doctor_finding *ret_finding)
{
    struct error err = ERROR_INIT;
    if (doctor->nearest_fd < 0)
        return false;
    if (space_read(doctor->nearest_fd, space, &err) == ERROR_NONE)
        return true;
    doctor_say(ret_finding, DOCTOR_FAIL, "%s: %s", doctor->nearest, err.message);
    return false;
}

void doctor_space_filesystem(struct doctor *doctor, struct doctor_finding *ret_finding)
{
    char buffer[SPACE_TYPE_TEXT];
    struct space space;
    if (!read_space(doctor, &space, ret_finding))
        return;
    const char *type = space_type(doctor->nearest_fd, buffer);
    if (space.read_only) {
        doctor_say(ret_finding, DOCTOR_FAIL, "%s, mounted read-only", type);
        doctor_advise(ret_finding, "give a folder on another filesystem with --dir");
    } else if (strcmp(type, "tmpfs") == 0 || strcmp(type, "ramfs") == 0) {
        doctor_say(ret_finding, DOCTOR_WARN, "%s: dumps take memory here, and are gone after a reboot", type);
        doctor_advise(ret_finding, "give a folder on a disk with --dir");
    } else if (space_type_lags(type)) {
        doctor_say(ret_finding, DOCTOR_WARN,
                   "%s: its free space lags behind what is written but still in memory; the run counts that as written",
                   type);
        doctor_advise(ret_finding, "leave a wide --floor, or use a local ext4 or xfs for --dir");
    } else {
        doctor_say(ret_finding, DOCTOR_PASS, "%s", type);
    }
}

struct levels {
    uint64_t floor, act, soft, start;
    uint64_t floor_inodes, act_inodes;
};

static void work_out(const struct doctor *doctor, const struct space *space, struct levels *levels)
{
    const struct settings *settings = &doctor->settings;
    levels->floor = settings->floor.value > 0 ? size_bytes(&settings->floor, space->total_bytes)
                                              : space_default_floor(space->total_bytes);
    levels->start = space_start_level(levels->floor);
    levels->soft = settings->soft.value > 0 ? size_bytes(&settings->soft, space->total_bytes)
                                            : space_default_soft(levels->floor, space->free_bytes);
    levels->floor_inodes = space->inodes_counted ? space_floor_inodes(&settings->floor, space->total_inodes) : 0;
    struct space_limits limits = {.floor_bytes = levels->floor,
                                  .floor_inodes = levels->floor_inodes,
                                  .worst_rate_bytes_per_s = settings->worst_rate_bytes_per_s,
                                  .kill_time_ns = kill_ns,
                                  .min_interval_ns = look_ns,
                                  .max_interval_ns = look_ns};
    struct space_policy policy;
    space_policy_init(&policy, &limits);
    levels->act = policy.act_bytes;
    levels->act_inodes = policy.act_inodes;
}

/* The first thing that stands against a start, if any. */
static bool refuse_space(const struct doctor *doctor, const struct space *space, const struct levels *levels,
                         struct doctor_finding *ret_finding)
{
    char a[SIZE_TEXT], b[SIZE_TEXT], c[SIZE_TEXT], d[SIZE_TEXT], buffer[SPACE_TYPE_TEXT];
    size_text(space->free_bytes, a);
    size_text(space->total_bytes, b);
    size_text(levels->floor, c);
    if (!space->measurable) {
        doctor_say(ret_finding, DOCTOR_FAIL, "this filesystem does not tell its free space: it cannot be guarded");
        doctor_advise(ret_finding, "give a folder on another filesystem with --dir");
    } else if (doctor->settings.floor.value == 0 && space->total_bytes < small_tmpfs_bytes &&
               strcmp(space_type(doctor->nearest_fd, buffer), "tmpfs") == 0) {
        doctor_say(ret_finding, DOCTOR_FAIL, "a tmpfs of %s: a dump fills that in a second", b);
        doctor_advise(ret_finding, "give another --dir, or say what must stay free with --floor");
    } else if (levels->floor > space->total_bytes) {
        doctor_say(ret_finding, DOCTOR_FAIL, "the floor %s is larger than the whole filesystem (%s, %s of it free)", c,
                   b, a);
        doctor_advise(ret_finding, "give a lower --floor or another --dir");
    } else if (space->free_bytes < levels->start) {
        doctor_say(ret_finding, DOCTOR_FAIL, "%s free of %s; a run with floor %s starts from %s on (a quarter more)", a,
                   b, c, size_text(levels->start, d));
        doctor_advise(ret_finding, "make room, give another --dir or a lower --floor");
    } else if (levels->soft < levels->floor) {
        doctor_say(ret_finding, DOCTOR_FAIL, "--soft %s is below the floor %s", size_text(levels->soft, d), c);
        doctor_advise(ret_finding, "give a higher --soft or a lower --floor");
    } else if (levels->soft >= space->free_bytes) {
        doctor_say(ret_finding, DOCTOR_FAIL, "%s free, and --soft %s switches dumping off at that: no dump could begin",
                   a, size_text(levels->soft, d));
        doctor_advise(ret_finding, "make room, give another --dir or a lower --soft");
    } else if (space->free_bytes <= levels->act) {
        doctor_say(ret_finding, DOCTOR_FAIL,
                   "%s free, and a run is killed at %s: floor %s plus what may be written until all is dead", a,
                   size_text(levels->act, d), c);
        doctor_advise(ret_finding, "give a larger --dir, a lower --floor, or a lower worst_rate in --config");
    } else {
        return false;
    }
    return true;
}

void doctor_space_bytes(struct doctor *doctor, struct doctor_finding *ret_finding)
{
    struct space space;
    struct levels levels;
    char a[SIZE_TEXT], b[SIZE_TEXT], c[SIZE_TEXT], d[SIZE_TEXT], e[SIZE_TEXT];
    if (!read_space(doctor, &space, ret_finding))
        return;
    work_out(doctor, &space, &levels);
    if (refuse_space(doctor, &space, &levels, ret_finding))
        return;
    doctor_say(ret_finding, DOCTOR_PASS,
               "%s free of %s; dumping off at %s, killed at about %s, floor %s; how many tokens fit is known once a "
               "run is armed",
               size_text(space.free_bytes, a), size_text(space.total_bytes, b), size_text(levels.soft, c),
               size_text(levels.act, d), size_text(levels.floor, e));
}

void doctor_space_inodes(struct doctor *doctor, struct doctor_finding *ret_finding)
{
    struct space space;
    struct levels levels;
    if (!read_space(doctor, &space, ret_finding))
        return;
    work_out(doctor, &space, &levels);
    if (!space.inodes_counted) {
        doctor_say(ret_finding, DOCTOR_PASS, "not counted by this filesystem");
        return;
    }
    bool few = space.free_inodes <= levels.act_inodes;
    doctor_say(ret_finding, few ? DOCTOR_FAIL : DOCTOR_PASS,
               "%" PRIu64 " free of %" PRIu64 "; killed at %" PRIu64 ", floor %" PRIu64, space.free_inodes,
               space.total_inodes, levels.act_inodes, levels.floor_inodes);
    if (few)
        doctor_advise(ret_finding, "a dump is one file for each tensor: give a --dir on another filesystem");
}
