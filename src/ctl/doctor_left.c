/* What earlier runs have left: records without an end, processes without a guard, empty cgroups, shared memory, folders
 * of probes. Nothing is removed: the advice says how. */
#include "base/memory.h"
#include "base/text.h"
#include "ctl/doctor.h"
#include "json/json.h"
#include "sglang/needs.h"
#include "sys/cgroup.h"
#include "sys/dump_folder.h"
#include "sys/file.h"
#include "sys/kill_tree.h"
#include "sys/process.h"
#include "sys/runtime.h"
#include "sys/shared_memory.h"
#include "sys/run_json.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { RECORD_MAX = 32 * 1024 * 1024, SHOWN = 6, PROC_FILE_MAX = 1024 * 1024 };
static const char shared_memory[] = "/dev/shm";

/* "a, b, c and 4 more" */
static const char *join(const struct list *names, char *text, size_t size)
{
    size_t used = 0;
    text[0] = '\0';
    for (size_t i = 0; i < names->count && i < SHOWN && used < size - 1; i++) {
        snprintf(text + used, size - used, "%s%s", i > 0 ? ", " : "", names->items[i]);
        used = strlen(text);
    }
    if (names->count > SHOWN && used < size - 1)
        snprintf(text + used, size - used, " and %zu more", names->count - SHOWN);
    return text;
}

/* Names in the folder `path` that `wanted` takes. */
static void find_names(const char *path, bool (*wanted)(const char *name), struct list *names)
{
    DIR *folder = opendir(path);
    if (folder == NULL)
        return;
    const struct dirent *entry;
    while ((entry = readdir(folder)) != NULL) {
        char shown[300];
        if (wanted(entry->d_name))
            list_add(names, text_clean(entry->d_name, strlen(entry->d_name), shown, sizeof shown));
    }
    closedir(folder);
}

/* ---- records ---- */

static bool record_has_end(const char *folder)
{
    struct buffer text;
    struct json *record = NULL;
    const char *state = "";
    char *path = memory_format("%s/record.json", folder);
    buffer_init(&text);
    /* a guard that was refused before its start leaves none, and that is fine */
    enum error_code code = file_read(path, RECORD_MAX, &text, NULL);
    bool ended = code == ERROR_NOT_FOUND;
    if (code == ERROR_NONE &&
        json_parse(text.data, text.length, (struct json_limits){RECORD_MAX, JSON_DEPTH, RUN_JSON_RECORD_VALUES},
                   &record, NULL) == ERROR_NONE)
        ended = json_get_string(record, "run.state", &state, NULL) == ERROR_NONE && strcmp(state, "ended") == 0;
    json_free(record);
    buffer_fini(&text);
    free(path);
    return ended;
}

void doctor_left_runs(struct doctor *doctor, struct doctor_finding *ret_finding)
{
    struct list names = {0}, lost = {0};
    char text[500];
    size_t live = 0;
    char *runs = memory_format("%s/runs", doctor->runtime);
    find_names(runs, text_is_name, &names);
    for (size_t i = 0; i < names.count; i++) {
        char *folder = runtime_run_folder(doctor->runtime, names.items[i]);
        char *lock = memory_format("%s/lock", folder);
        if (file_is_locked(lock))
            live++;
        else if (!record_has_end(folder))
            list_add(&lost, names.items[i]);
        free(lock);
        free(folder);
    }
    if (lost.count > 0) {
        doctor_say(ret_finding, DOCTOR_WARN, "the guard of %s was killed: its record has no end",
                   join(&lost, text, sizeof text));
        doctor_advise(ret_finding,
                      "kldumpctl status %s shows its last state; its dump may be incomplete: kldumpctl "
                      "check DIR",
                      lost.items[0]);
    } else {
        doctor_say(ret_finding, DOCTOR_PASS, "%zu live, %zu ended in %s", live, names.count - live, runs);
    }
    list_fini(&names);
    list_fini(&lost);
    free(runs);
}

/* ---- processes ---- */

/* True when a variable `name` is in the environment that /proc shows. */
static bool has_variable(pid_t pid, const char *name)
{
    struct buffer text;
    char path[64];
    size_t length = strlen(name);
    bool found = false;
    snprintf(path, sizeof path, "/proc/%d/environ", (int)pid);
    buffer_init(&text);
    if (file_read(path, PROC_FILE_MAX, &text, NULL) == ERROR_NONE)
        for (size_t i = 0; !found && i + length < text.length; i += strlen(text.data + i) + 1)
            found = strncmp(text.data + i, name, length) == 0 && text.data[i + length] == '=';
    buffer_fini(&text);
    return found;
}

static const struct process *find_process(const struct process_list *all, pid_t pid)
{
    for (size_t i = 0; i < all->count; i++)
        if (all->items[i].pid == pid)
            return &all->items[i];
    return NULL;
}

/* A keeper adopts every orphan of its run, and dies with the last of them. */
static bool has_keeper(const struct process_list *all, const struct process *process)
{
    for (int depth = 0; process != NULL && depth < 64; depth++) {
        if (strcmp(process->comm, "kldump-keeper") == 0)
            return true;
        process = process->parent > 1 ? find_process(all, process->parent) : NULL;
    }
    return false;
}

void doctor_left_processes(struct doctor *doctor, struct doctor_finding *ret_finding)
{
    struct process_list all = {0};
    struct list orphans = {0};
    char text[500], comm[PROCESS_COMM];
    (void)doctor;
    process_snapshot(&all);
    for (size_t i = 0; i < all.count; i++) {
        const struct process *process = &all.items[i];
        if (process_is_alive(process) && has_variable(process->pid, KILL_TREE_COOKIE) && !has_keeper(&all, process))
            list_add_format(&orphans, "%d (%s)", (int)process->pid,
                            text_clean(process->comm, strlen(process->comm), comm, sizeof comm));
    }
    if (orphans.count > 0) {
        doctor_say(ret_finding, DOCTOR_WARN, "processes of a run whose guard is gone: %s",
                   join(&orphans, text, sizeof text));
        doctor_advise(ret_finding, "they may hold a GPU and a port: kill them");
    } else {
        doctor_say(ret_finding, DOCTOR_PASS, "none without a guard");
    }
    process_list_fini(&all);
    list_fini(&orphans);
}

/* ---- cgroups ---- */

void doctor_left_cgroups(struct doctor *doctor, struct doctor_finding *ret_finding)
{
    struct list empty = {0};
    char text[700];
    (void)doctor;
    cgroup_find_empty(&empty);
    if (empty.count > 0) {
        doctor_say(ret_finding, DOCTOR_WARN, "empty: %s", join(&empty, text, sizeof text));
        doctor_advise(ret_finding, "rmdir %s", empty.items[0]);
    } else {
        doctor_say(ret_finding, DOCTOR_PASS, "none empty");
    }
    list_fini(&empty);
}

/* ---- shared memory ---- */

void doctor_left_shared_memory(struct doctor *doctor, struct doctor_finding *ret_finding)
{
    struct list names = {0};
    char text[500];
    (void)doctor;
    shared_memory_find(needs_is_shared_memory, &names);
    shared_memory_drop_used(&names);
    if (names.count > 0) {
        doctor_say(ret_finding, DOCTOR_WARN, "left in %s by what was killed, a server most likely: %s", shared_memory,
                   join(&names, text, sizeof text));
        doctor_advise(ret_finding, "rm %s/%s", shared_memory, names.items[0]);
    } else {
        doctor_say(ret_finding, DOCTOR_PASS, "nothing of a killed server in %s", shared_memory);
    }
    list_fini(&names);
}

/* ---- folders of probes ---- */

void doctor_left_probes(struct doctor *doctor, struct doctor_finding *ret_finding)
{
    struct list names = {0};
    char text[500];
    if (doctor->folder_problem != 0)
        return;
    find_names(doctor->directory, dump_folder_is_probe, &names);
    if (names.count > 0) {
        doctor_say(ret_finding, DOCTOR_WARN, "folder of a probe in %s: %s", doctor->directory,
                   join(&names, text, sizeof text));
        doctor_advise(ret_finding, "unless a run is verifying now, remove it: rm -r %s/%s", doctor->directory,
                      names.items[0]);
    } else {
        doctor_say(ret_finding, DOCTOR_PASS, "none in %s", doctor->directory);
    }
    list_fini(&names);
}
