/* The machine: kldump's own programs and folders, cgroup, limits, shared memory, GPU. */
#include "base/memory.h"
#include "base/size.h"
#include "base/text.h"
#include "ctl/doctor.h"
#include "ctl/find.h"
#include "ctl/spawn.h"
#include "sglang/needs.h"
#include "sys/cgroup.h"
#include "sys/file.h"
#include "sys/runtime.h"
#include "sys/sibling.h"
#include "sys/space.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/un.h>
#include <unistd.h>

void doctor_machine_programs(struct doctor *doctor, struct doctor_finding *ret_finding)
{
    static const char *const names[] = {"kldump-run", "kldump-keeper"};
    (void)doctor;
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        char *path = sibling_path(names[i]);
        if (path == NULL) {
            doctor_say(ret_finding, DOCTOR_FAIL, "%s is neither beside kldumpctl nor in " KLDUMP_LIBEXECDIR, names[i]);
            doctor_advise(ret_finding, "install kldump again");
            return;
        }
        doctor_say(ret_finding, DOCTOR_PASS, "%s", path);
        free(path);
    }
}

void doctor_machine_name(struct doctor *doctor, struct doctor_finding *ret_finding)
{
    struct error err = ERROR_INIT;
    char *runtime = NULL;
    const char *name = doctor->settings.name;
    enum error_code code = runtime_directory(RUNTIME_LOOK, &runtime, &err);
    if (code != ERROR_NONE && code != ERROR_NOT_FOUND) {
        doctor_say_error(ret_finding, DOCTOR_FAIL, &err);
        doctor_advise(ret_finding, "repair it, or choose a folder of your own with KLDUMP_RUNTIME_DIR");
        return;
    }
    char *folder = runtime_run_folder(doctor->runtime, name);
    char *lock = memory_format("%s/lock", folder);
    if (file_is_locked(lock)) {
        doctor_say(ret_finding, DOCTOR_FAIL, "a run named %s is live", name);
        doctor_advise(ret_finding, "choose another --name, or end it: kldumpctl stop %s", name);
    } else {
        doctor_say(ret_finding, DOCTOR_PASS, "%s, in %s", name, doctor->runtime);
    }
    free(folder);
    free(lock);
    free(runtime);
}

void doctor_machine_cgroup(struct doctor *doctor, struct doctor_finding *ret_finding)
{
    static const char *const texts[] = {
        [CGROUP_DELEGATED] = "cgroup below the delegated %s: the kernel kills everything of a run at once",
        [CGROUP_SCOPE] = "cgroup in a scope of %s: the kernel kills everything of a run at once",
        [CGROUP_OWN] = "cgroup below %s: the kernel kills everything of a run at once",
    };
    char where[400];
    (void)doctor;
    enum cgroup_kind kind = cgroup_foresee(where, sizeof where);
    if (getenv("KLDUMP_NO_CGROUP") != NULL) {
        kind = CGROUP_NONE;
        text_copy(where, sizeof where, "KLDUMP_NO_CGROUP is set");
    }
    if (kind == CGROUP_NONE) {
        doctor_say(ret_finding, DOCTOR_WARN,
                   "keeper alone: no writable cgroup (%s); what hides from /proc survives a kill", where);
        doctor_advise(ret_finding, "log in through systemd (loginctl enable-linger), or have the container's cgroup "
                                   "mounted writable");
        return;
    }
    const char *blank = strstr(texts[kind], "%s");
    doctor_say(ret_finding, DOCTOR_PASS, "%.*s%s%s", (int)(blank - texts[kind]), texts[kind], where, blank + 2);
}

static const char *limit_text(rlim_t limit, bool bytes, char text[SIZE_TEXT])
{
    if (limit == RLIM_INFINITY)
        snprintf(text, SIZE_TEXT, "unlimited");
    else if (bytes)
        size_text(limit, text);
    else
        snprintf(text, SIZE_TEXT, "%" PRIu64, (uint64_t)limit);
    return text;
}

/* Core files go to the disk, not to a program that keeps them. */
static bool cores_go_to_files(void)
{
    char first = '\0';
    int fd = open("/proc/sys/kernel/core_pattern", O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return true;
    ssize_t n = read(fd, &first, 1);
    close(fd);
    return n != 1 || first != '|';
}

void doctor_machine_limits(struct doctor *doctor, struct doctor_finding *ret_finding)
{
    enum { LEAST_PROCESSES = 4096 }; /* threads count too, and each math library starts one for each core */
    struct rlimit files, processes, core, locked;
    char a[SIZE_TEXT], b[SIZE_TEXT], c[SIZE_TEXT], d[SIZE_TEXT];
    (void)doctor;
    if (getrlimit(RLIMIT_NOFILE, &files) != 0 || getrlimit(RLIMIT_NPROC, &processes) != 0 ||
        getrlimit(RLIMIT_CORE, &core) != 0 || getrlimit(RLIMIT_MEMLOCK, &locked) != 0) {
        doctor_say(ret_finding, DOCTOR_WARN, "cannot be read: %s", strerror(errno));
        return;
    }
    doctor_say(ret_finding, DOCTOR_PASS, "open files %s, processes %s, core %s, locked memory %s",
               limit_text(files.rlim_max, false, a), limit_text(processes.rlim_cur, false, b),
               limit_text(core.rlim_cur, true, c), limit_text(locked.rlim_cur, true, d));
    if (files.rlim_max < NEEDS_OPEN_FILES)
        doctor_advise(ret_finding, "SGLang wants %d open files: raise the hard limit (ulimit -Hn)", NEEDS_OPEN_FILES);
    else if (processes.rlim_cur < LEAST_PROCESSES)
        doctor_advise(ret_finding, "a server has hundreds of threads for each rank: raise the limit (ulimit -u)");
    else if (core.rlim_cur != 0 && cores_go_to_files())
        doctor_advise(ret_finding,
                      "a crash writes a core file as large as the server's memory beside CMD: ulimit -c 0");
    if (ret_finding->advice[0] != '\0')
        ret_finding->result = DOCTOR_WARN;
}

void doctor_machine_shared_memory(struct doctor *doctor, struct doctor_finding *ret_finding)
{
    struct space space;
    char a[SIZE_TEXT], b[SIZE_TEXT];
    (void)doctor;
    int fd = open("/dev/shm", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0 || faccessat(fd, ".", W_OK | X_OK, AT_EACCESS) != 0 || space_read(fd, &space, NULL) != ERROR_NONE) {
        doctor_say(ret_finding, DOCTOR_FAIL, "/dev/shm cannot be used: %s", strerror(errno));
        doctor_advise(ret_finding, "mount a tmpfs there: a server's processes share memory through it");
    } else if (space.free_bytes < (uint64_t)NEEDS_SHARED_MEMORY_MIB << 20) {
        doctor_say(ret_finding, DOCTOR_WARN, "/dev/shm has %s free of %s", size_text(space.free_bytes, a),
                   size_text(space.total_bytes, b));
        doctor_advise(ret_finding, "ranks talk through it: remove what is left there, or enlarge it (docker run "
                                   "--shm-size 16g)");
    } else {
        doctor_say(ret_finding, DOCTOR_PASS, "/dev/shm has %s free of %s", size_text(space.free_bytes, a),
                   size_text(space.total_bytes, b));
    }
    if (fd >= 0)
        close(fd);
}

void doctor_machine_temporary(struct doctor *doctor, struct doctor_finding *ret_finding)
{
    const size_t most = sizeof((struct sockaddr_un *)0)->sun_path - 1;
    size_t length = strlen(doctor->temporary);
    bool breaks = length + NEEDS_SOCKET_NAME > most, tight = length + NEEDS_LONGEST_SOCKET_NAME > most;
    doctor_say(ret_finding,
               breaks  ? DOCTOR_FAIL
               : tight ? DOCTOR_WARN
                       : DOCTOR_PASS,
               "the server's TMPDIR %s has %zu bytes; the path of a socket has room for %zu", doctor->temporary, length,
               most);
    if (breaks || tight)
        doctor_advise(ret_finding, "choose a shorter --name, or a shorter folder with KLDUMP_RUNTIME_DIR; at most %zu",
                      most - NEEDS_LONGEST_SOCKET_NAME);
}

void doctor_machine_gpu(struct doctor *doctor, struct doctor_finding *ret_finding)
{
    struct buffer text;
    char line[200], *program = NULL;
    (void)doctor;
    buffer_init(&text);
    bool has_driver = file_read("/proc/driver/nvidia/version", 65536, &text, NULL) == ERROR_NONE;
    bool has_tool = spawn_find("nvidia-smi", &program, NULL) == ERROR_NONE;
    if (has_driver && has_tool) {
        doctor_say(ret_finding, DOCTOR_PASS, "%s", text_clean(text.data, strcspn(text.data, "\n"), line, sizeof line));
    } else if (has_driver) {
        doctor_say(ret_finding, DOCTOR_WARN, "an NVIDIA driver, but no nvidia-smi: GPU memory cannot be asked for");
        doctor_advise(ret_finding, "install the tools of the driver");
    } else {
        doctor_say(ret_finding, DOCTOR_WARN, "no NVIDIA driver%s", has_tool ? ", although nvidia-smi is there" : "");
        doctor_advise(ret_finding, "on a machine without a GPU, CMD needs --device cpu");
    }
    free(program);
    buffer_fini(&text);
}

void doctor_machine_daemon(struct doctor *doctor, struct doctor_finding *ret_finding)
{
    struct client *client = NULL;
    struct error err = ERROR_INIT;
    (void)doctor;
    enum error_code code = find_daemon(&client, NULL, &err);
    if (code == ERROR_NONE)
        doctor_say(ret_finding, DOCTOR_PASS, "kldumpd answers");
    else if (code == ERROR_NO_DAEMON)
        doctor_say(ret_finding, DOCTOR_PASS, "kldumpd is not running: 'start' needs it, 'run' does not");
    else if (code == ERROR_FORBIDDEN) /* the admin's rules: kldumpd names rule and file, and what to ask for */
        doctor_say_error(ret_finding, DOCTOR_WARN, &err);
    else
        doctor_say(ret_finding, DOCTOR_WARN, "%s", err.message);
    if (ret_finding->result == DOCTOR_WARN && ret_finding->advice[0] == '\0')
        doctor_advise(ret_finding, "use 'run', which needs no daemon, or start kldumpd again");
    client_free(client);
}
