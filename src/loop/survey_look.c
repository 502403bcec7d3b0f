/* Files of a rank are written one after the other, so only its newest one can still grow: all others are counted once,
 * and a look costs one reading of the folder and a stat of each file that has come since. */
#include "loop/survey_look.h"
#include "base/number.h"
#include "base/text.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- bytes ---- */

static const uint64_t stat_block_bytes = 512; /* stat(2) */

static uint64_t newest_bytes(const struct survey_look *look)
{
    uint64_t sum = 0;
    for (size_t i = 0; i < SERVER_RANKS_MAX; i++)
        sum = number_add(sum, look->rank[i].bytes);
    return sum;
}

static void begin_dump(struct survey_look *look, const char *experiment)
{
    look->settled_bytes = number_add(look->settled_bytes, number_add(look->dump_bytes, newest_bytes(look)));
    look->dump_bytes = 0;
    memset(look->rank, 0, sizeof look->rank);
    text_copy(look->experiment, sizeof look->experiment, experiment);
}

/* A file that is as new as the newest one of its rank, or newer. */
static void count_file(struct survey_look *look, int folder, const char *name, uint64_t rank, uint64_t index)
{
    struct stat status;
    if (fstatat(folder, name, &status, AT_SYMLINK_NOFOLLOW) != 0 || !S_ISREG(status.st_mode))
        return;
    uint64_t bytes = number_multiply((uint64_t)status.st_blocks, stat_block_bytes);
    if (bytes < (uint64_t)status.st_size) /* not written out yet, or compressed */
        bytes = (uint64_t)status.st_size;
    bool newest = !look->rank[rank].any || index >= look->rank[rank].dump_index;
    look->dump_bytes = number_add(look->dump_bytes, newest ? look->rank[rank].bytes : bytes);
    if (!newest)
        return;
    look->rank[rank].any = true;
    look->rank[rank].dump_index = index;
    look->rank[rank].bytes = bytes;
}

static void count_folder(struct survey_look *look, const struct survey_options *options)
{
    int fd = openat(options->directory_fd, look->experiment, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    DIR *folder = fd >= 0 ? fdopendir(fd) : NULL;
    if (folder == NULL) {
        if (fd >= 0)
            close(fd);
        return; /* not made yet */
    }
    bool known[SERVER_RANKS_MAX];
    uint64_t newest[SERVER_RANKS_MAX]; /* before this look */
    for (size_t i = 0; i < SERVER_RANKS_MAX; i++) {
        known[i] = look->rank[i].any;
        newest[i] = look->rank[i].dump_index;
        look->rank[i].bytes = 0; /* that file is looked at again */
    }
    for (const struct dirent *entry; (entry = readdir(folder)) != NULL;) {
        uint64_t rank, index;
        if (options->read_dump_name(entry->d_name, &rank, &index) && rank < SERVER_RANKS_MAX &&
            (!known[rank] || index >= newest[rank]))
            count_file(look, fd, entry->d_name, rank, index);
    }
    closedir(folder);
}

/* ---- the folder ---- */

static void look_for_folder(const struct survey_options *options, char *ret_lost, size_t size)
{
    struct stat status;
    ret_lost[0] = '\0';
    if (stat(options->directory, &status) != 0)
        snprintf(ret_lost, size,
                 "the dump folder %.120s cannot be reached any more (%s): what is written now goes elsewhere",
                 options->directory, strerror(errno));
    else if (status.st_dev != options->device)
        snprintf(ret_lost, size,
                 "%.120s is on another filesystem now (unmounted, or mounted over): what is written now goes "
                 "elsewhere",
                 options->directory);
    else if (status.st_ino != options->inode)
        snprintf(ret_lost, size,
                 "%.120s is another folder now (removed and made anew): what is written now goes elsewhere",
                 options->directory);
}

/* ---- processor time ---- */

static uint64_t ticks_before(const struct survey_look *look, const struct process *process)
{
    for (size_t i = 0; i < look->process_count; i++)
        if (look->process[i].pid == process->pid && look->process[i].start_ticks == process->start_ticks)
            return look->process[i].cpu_ticks;
    return 0; /* it has come since: all of its time is new */
}

static size_t processes_of_cgroup(int cgroup_fd, struct process ret_processes[SURVEY_PROCESSES_MAX])
{
    int fd = openat(cgroup_fd, "cgroup.procs", O_RDONLY | O_CLOEXEC);
    FILE *list = fd >= 0 ? fdopen(fd, "r") : NULL;
    if (list == NULL) {
        if (fd >= 0)
            close(fd);
        return 0;
    }
    size_t count = 0;
    char line[32];
    while (count < SURVEY_PROCESSES_MAX && fgets(line, sizeof line, list) != NULL)
        if (process_read((pid_t)strtol(line, NULL, 10), &ret_processes[count]))
            count++;
    fclose(list);
    return count;
}

static size_t processes_of_tree(struct survey_look *look, const struct survey_options *options,
                                struct process ret_processes[SURVEY_PROCESSES_MAX])
{
    struct kill_tree_target target = {.ancestor = options->ancestor, .main = options->main, .guard = getpid()};
    if (!look->has_tree)
        kill_tree_init(&look->tree, &target);
    look->has_tree = true;
    size_t count = kill_tree_collect(&look->tree);
    if (count > SURVEY_PROCESSES_MAX)
        count = SURVEY_PROCESSES_MAX;
    memcpy(ret_processes, look->tree.members.items, count * sizeof *ret_processes);
    return count;
}

static bool look_for_work(struct survey_look *look, const struct survey_options *options)
{
    static const uint64_t ms_per_s = 1000;
    struct process processes[SURVEY_PROCESSES_MAX];
    size_t count = options->cgroup_fd >= 0 ? processes_of_cgroup(options->cgroup_fd, processes)
                                           : processes_of_tree(look, options, processes);
    uint64_t ticks = SURVEY_BUSY_MS * (uint64_t)sysconf(_SC_CLK_TCK) / ms_per_s;
    bool busy = false, first = look->process_count == 0;
    for (size_t i = 0; i < count; i++)
        busy |= !first && processes[i].pid != options->main &&
                number_subtract(processes[i].cpu_ticks, ticks_before(look, &processes[i])) >= ticks;
    for (size_t i = 0; i < count; i++) {
        look->process[i].pid = processes[i].pid;
        look->process[i].start_ticks = processes[i].start_ticks;
        look->process[i].cpu_ticks = processes[i].cpu_ticks;
    }
    look->process_count = count;
    return busy;
}

/* ---- all of it ---- */

void survey_look(struct survey_look *look, const struct survey_options *options, const char *experiment,
                 struct survey_result *ret_result)
{
    *ret_result = (struct survey_result){0};
    if (strcmp(look->experiment, experiment) != 0)
        begin_dump(look, experiment);
    look_for_folder(options, ret_result->lost, sizeof ret_result->lost);
    if (look->experiment[0] != '\0')
        count_folder(look, options);
    ret_result->busy = look_for_work(look, options);
    ret_result->written_bytes = number_add(look->settled_bytes, number_add(look->dump_bytes, newest_bytes(look)));
}

void survey_look_fini(struct survey_look *look)
{
    if (look->has_tree)
        kill_tree_fini(&look->tree);
}
