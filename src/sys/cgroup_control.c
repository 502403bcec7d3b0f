#include "sys/cgroup_control.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static int64_t cgroup_control_now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

static int cgroup_control_write(int directory_fd, const char *name, const char *text)
{
    int fd = openat(directory_fd, name, O_WRONLY | O_CLOEXEC);
    if (fd < 0)
        return errno;
    ssize_t done = write(fd, text, strlen(text));
    int result = done < 0 ? errno : 0;
    close(fd);
    return result;
}

int cgroup_control_enter(int directory_fd)
{
    return cgroup_control_write(directory_fd, "cgroup.procs", "0");
}

int cgroup_control_open_kill(int directory_fd)
{
    return openat(directory_fd, "cgroup.kill", O_WRONLY | O_CLOEXEC);
}

int cgroup_control_kill(int kill_fd)
{
    return pwrite(kill_fd, "1", 1, 0) == 1 ? 0 : errno;
}

int cgroup_control_freeze(int directory_fd)
{
    return cgroup_control_write(directory_fd, "cgroup.freeze", "1");
}

int cgroup_control_thaw(int directory_fd)
{
    return cgroup_control_write(directory_fd, "cgroup.freeze", "0");
}

int cgroup_control_open_events(int directory_fd)
{
    return openat(directory_fd, "cgroup.events", O_RDONLY | O_CLOEXEC);
}

/* One value of cgroup.events; -1: cannot be told; ENODEV, since it was removed meanwhile: `removed`. */
static int cgroup_control_event(int events_fd, const char *name, int removed)
{
    char text[256];
    ssize_t length = pread(events_fd, text, sizeof text - 1, 0);
    if (length < 0)
        return errno == ENODEV ? removed : -1;
    text[length] = '\0';
    const char *line = strstr(text, name);
    return line ? line[strlen(name)] == '1' : -1;
}

int cgroup_control_populated(int events_fd)
{
    return cgroup_control_event(events_fd, "populated ", 0);
}

int cgroup_control_frozen(int events_fd)
{
    return cgroup_control_event(events_fd, "frozen ", 1);
}

/* The kernel sends at most one event in 10 ms for each file (cgroup_file_notify): a cgroup that was entered just before
 * tells of its end that much too late. So it is also looked at without an event, often at first. */
static bool cgroup_control_wait(int events_fd, int read_value(int events_fd), int wanted, int timeout_ms)
{
    int64_t end_ns = cgroup_control_now_ns() + (int64_t)timeout_ms * 1000000, pause_ns = 50000;
    for (;;) {
        /* Read before waiting: reading also takes the pending event away, so none is missed in between. */
        if (read_value(events_fd) == wanted)
            return true;
        int64_t left_ns = end_ns - cgroup_control_now_ns();
        if (left_ns <= 0)
            return false;
        int64_t wait_ns = left_ns < pause_ns ? left_ns : pause_ns;
        struct pollfd wait = {.fd = events_fd, .events = POLLPRI};
        ppoll(&wait, 1, &(struct timespec){wait_ns / 1000000000, wait_ns % 1000000000}, NULL);
        pause_ns += pause_ns < 50000000 ? pause_ns / 4 : 0;
    }
}

bool cgroup_control_wait_empty(int events_fd, int timeout_ms)
{
    return cgroup_control_wait(events_fd, cgroup_control_populated, 0, timeout_ms);
}

bool cgroup_control_wait_frozen(int events_fd, int timeout_ms)
{
    return cgroup_control_wait(events_fd, cgroup_control_frozen, 1, timeout_ms);
}

/* A cgroup can be removed only when those below are gone; the depth is bounded because somebody else's process may have
 * made them. */
static void cgroup_control_remove_below(int directory_fd, int depth)
{
    int fd = openat(directory_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *directory = fd < 0 ? NULL : fdopendir(fd);
    if (!directory) {
        if (fd >= 0)
            close(fd);
        return;
    }
    const struct dirent *entry;
    while ((entry = readdir(directory)) != NULL) {
        if (entry->d_type != DT_DIR || entry->d_name[0] == '.')
            continue;
        int below = openat(directory_fd, entry->d_name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        if (below >= 0) {
            if (depth > 0)
                cgroup_control_remove_below(below, depth - 1);
            close(below);
        }
        unlinkat(directory_fd, entry->d_name, AT_REMOVEDIR);
    }
    closedir(directory);
}

int cgroup_control_remove(int directory_fd)
{
    char link[64], path[4096];
    snprintf(link, sizeof link, "/proc/self/fd/%d", directory_fd);
    ssize_t length = readlink(link, path, sizeof path - 1);
    if (length <= 0)
        return errno ? errno : ENOENT;
    path[length] = '\0';
    cgroup_control_remove_below(directory_fd, 16);
    const char *name = strrchr(path, '/');
    int parent = openat(directory_fd, "..", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (parent < 0) /* ENOENT or ENODEV: it is gone already */
        return errno == ENOENT || errno == ENODEV ? 0 : errno;
    int result = unlinkat(parent, name ? name + 1 : path, AT_REMOVEDIR) == 0 || errno == ENOENT ? 0 : errno;
    close(parent);
    return result;
}

/* The body of the rehearsal's child: says by one byte how entering went, then waits to be killed. */
/* It holds all that its parent holds, so it must not outlive it: whoever waits for the end of a channel would wait for
 * ever. */
static void cgroup_control_dummy(int directory_fd, int report_fd, pid_t parent)
{
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    unsigned char result = (unsigned char)cgroup_control_enter(directory_fd);
    if (write(report_fd, &result, 1) == 1 && result == 0)
        while (getppid() == parent)
            pause();
    _exit(1);
}

static int cgroup_control_time_kill(int directory_fd, int64_t *ret_nanoseconds)
{
    int kill_fd = cgroup_control_open_kill(directory_fd);
    int events_fd = kill_fd < 0 ? -1 : cgroup_control_open_events(directory_fd);
    int result = events_fd < 0 ? errno : 0;
    int64_t start_ns = cgroup_control_now_ns();
    if (result == 0)
        result = cgroup_control_kill(kill_fd);
    if (result == 0 && !cgroup_control_wait_empty(events_fd, 2000))
        result = ETIMEDOUT;
    if (result == 0)
        *ret_nanoseconds = cgroup_control_now_ns() - start_ns;
    if (kill_fd >= 0)
        close(kill_fd);
    if (events_fd >= 0)
        close(events_fd);
    return result;
}

int cgroup_control_rehearse(int directory_fd, int64_t *ret_nanoseconds)
{
    int report[2];
    if (pipe2(report, O_CLOEXEC) < 0)
        return errno;
    pid_t parent = getpid(), child = fork();
    if (child == 0) {
        close(report[0]);
        cgroup_control_dummy(directory_fd, report[1], parent);
    }
    int result = child < 0 ? errno : 0;
    close(report[1]);
    unsigned char entered = EPROTO;
    if (result == 0) {
        ssize_t got;
        while ((got = read(report[0], &entered, 1)) < 0 && errno == EINTR)
            ;
        result = got == 1 ? entered : EPROTO;
        if (result == 0)
            result = cgroup_control_time_kill(directory_fd, ret_nanoseconds);
        kill(child, SIGKILL);
        while (waitpid(child, NULL, 0) < 0 && errno == EINTR)
            ;
    }
    close(report[0]);
    return result;
}
