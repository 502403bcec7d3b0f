/* The dump folder: whether a run may use it, and what its filesystem has room for. */
#include "base/buffer.h"
#include "base/memory.h"
#include "base/size.h"
#include "core/space_start.h"
#include "ctl/doctor.h"
#include "sys/dump_folder.h"
#include "sys/runtime.h"
#include "sys/space.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* What holds of one file: "floor 100.0 GiB on its filesystem, folders /data". */
static void add_rules(const struct doctor *doctor, const struct admin *admin, struct buffer *text)
{
    struct space space = {0};
    struct space_rule rule = {0};
    struct stat status;
    char size[SIZE_TEXT];
    if (doctor->nearest_fd >= 0 && fstat(doctor->nearest_fd, &status) == 0 &&
        space_read(doctor->nearest_fd, &space, NULL) == ERROR_NONE)
        admin_space_rule(admin, status.st_dev, space.total_bytes, &rule);
    buffer_format(text, "%s%s:", text->length > 0 ? "; " : "", admin->path);
    size_t before = text->length;
    if (rule.floor.value > 0)
        buffer_format(text, " floor %s here,", size_text(size_bytes(&rule.floor, space.total_bytes), size));
    if (rule.worst_rate_bytes_per_s > 0)
        buffer_format(text, " worst rate %s/s here,", size_text(rule.worst_rate_bytes_per_s, size));
    for (size_t i = 0; i < admin->rules.folders.count; i++)
        buffer_format(text, "%s %s", i == 0 ? " folders" : "", admin->rules.folders.items[i]);
    if (admin->rules.folders.count > 0)
        buffer_text(text, ",");
    for (int id = 0; id < SETTINGS_COUNT; id++)
        if (admin->rules.defaults.text[id] != NULL)
            buffer_format(text, " default %s %s,", settings_key((enum settings_id)id), admin->rules.defaults.text[id]);
    if (text->length == before)
        buffer_text(text, " nothing about this run,");
    text->data[--text->length] = '\0';
}

void doctor_space_rules(struct doctor *doctor, struct doctor_finding *ret_finding)
{
    struct error err = ERROR_INIT;
    const struct admin_set *set = &doctor->rules->set;
    if (doctor->rules->problem.code != ERROR_NONE) {
        doctor_say(ret_finding, DOCTOR_FAIL, "%s", doctor->rules->problem.message);
        doctor_advise(ret_finding, "no run is guarded with rules that cannot be read: have the admin repair the file");
        return;
    }
    if (admin_set_allow_folder(set, doctor->directory, &err) != ERROR_NONE) {
        doctor_say_error(ret_finding, DOCTOR_FAIL, &err);
        return;
    }
    struct buffer text;
    buffer_init(&text);
    for (size_t i = 0; i < set->count; i++)
        if (set->admin[i].path != NULL)
            add_rules(doctor, &set->admin[i], &text);
    if (text.length > 0)
        doctor_say(ret_finding, DOCTOR_PASS, "%s", text.data);
    else
        doctor_say(ret_finding, DOCTOR_PASS, "none: there is no %s", admin_path());
    buffer_fini(&text);
}

/* As the guard would, for a moment. */
static bool is_in_use(const struct doctor *doctor, struct error *err)
{
    char *runtime = runtime_path(), *runs = memory_format("%s/runs", runtime);
    int fd = openat(doctor->nearest_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    bool in_use = fd >= 0 && dump_folder_take(fd, doctor->directory, runs, err) != ERROR_NONE;
    if (fd >= 0)
        close(fd);
    free(runtime);
    free(runs);
    return in_use;
}

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
    } else if (is_in_use(doctor, &err)) {
        doctor_say(ret_finding, DOCTOR_FAIL, "%s", err.message);
        doctor_advise(ret_finding, "give another folder with --dir, or end that run");
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

/* What the guard would say to this filesystem; false where it cannot be read. */
static bool check_start(const struct doctor *doctor, struct space_start *start, char *type, enum error_code *ret_code,
                        struct error *err, struct doctor_finding *ret_finding)
{
    struct space space;
    if (!read_space(doctor, &space, ret_finding))
        return false;
    *start = (struct space_start){.directory = doctor->directory,
                                  .type = space_type(doctor->nearest_fd, type),
                                  .measurable = space.measurable,
                                  .total_bytes = space.total_bytes,
                                  .free_bytes = space.free_bytes,
                                  .inodes_counted = space.inodes_counted,
                                  .total_inodes = space.total_inodes,
                                  .free_inodes = space.free_inodes};
    struct stat status;
    if (fstat(doctor->nearest_fd, &status) == 0)
        admin_set_space_rules(&doctor->rules->set, status.st_dev, space.total_bytes, start->rules);
    *ret_code = space_start_check(start, &doctor->settings, err);
    return true;
}

static void act_levels(const struct space_start *start, uint64_t *ret_bytes, uint64_t *ret_inodes)
{
    struct space_limits limits;
    struct space_policy policy;
    space_start_limits(start, 0, &limits);
    space_policy_init(&policy, &limits);
    *ret_bytes = policy.act_bytes;
    *ret_inodes = policy.act_inodes;
}

void doctor_space_bytes(struct doctor *doctor, struct doctor_finding *ret_finding)
{
    struct space_start start;
    struct error err = ERROR_INIT;
    enum error_code code;
    char type[SPACE_TYPE_TEXT], a[SIZE_TEXT], b[SIZE_TEXT], c[SIZE_TEXT], d[SIZE_TEXT], e[SIZE_TEXT];
    uint64_t act_bytes, act_inodes;
    if (!check_start(doctor, &start, type, &code, &err, ret_finding))
        return;
    if (code != ERROR_NONE) {
        doctor_say_error(ret_finding, DOCTOR_FAIL, &err);
        return;
    }
    act_levels(&start, &act_bytes, &act_inodes);
    doctor_say(ret_finding, DOCTOR_PASS,
               "%s free of %s; dumping off at %s, killed at about %s, floor %s; how many tokens fit is known once a "
               "run is armed%s%s",
               size_text(start.free_bytes, a), size_text(start.total_bytes, b), size_text(start.soft_bytes, c),
               size_text(act_bytes, d), size_text(start.floor_bytes, e), start.raised[2][0] != '\0' ? "; " : "",
               start.raised[2]);
}

void doctor_space_inodes(struct doctor *doctor, struct doctor_finding *ret_finding)
{
    struct space_start start;
    enum error_code code;
    char type[SPACE_TYPE_TEXT];
    uint64_t act_bytes, act_inodes;
    if (!check_start(doctor, &start, type, &code, NULL, ret_finding))
        return;
    if (!start.inodes_counted) {
        doctor_say(ret_finding, DOCTOR_PASS, "not counted by this filesystem");
        return;
    }
    act_levels(&start, &act_bytes, &act_inodes);
    bool few = start.free_inodes <= act_inodes;
    doctor_say(ret_finding, few ? DOCTOR_FAIL : DOCTOR_PASS,
               "%" PRIu64 " free of %" PRIu64 "; killed at %" PRIu64 ", floor %" PRIu64, start.free_inodes,
               start.total_inodes, act_inodes, start.floor_inodes);
    if (few)
        doctor_advise(ret_finding, "a dump is one file for each tensor: give a --dir on another filesystem");
}
