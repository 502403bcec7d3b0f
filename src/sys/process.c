#include "sys/process.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

/* Reads a file of /proc as far as `size` goes; -1 when it cannot be. */
static ssize_t process_read_file(pid_t pid, const char *name, char *buffer, size_t size)
{
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/%s", (int)pid, name);
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY);
    if (fd < 0)
        return -1;
    size_t length = 0;
    ssize_t got = 0;
    while (length < size) {
        got = read(fd, buffer + length, size - length);
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            break;
        length += (size_t)got;
    }
    close(fd);
    return got < 0 && length == 0 ? -1 : (ssize_t)length;
}

/* The next blank-separated decimal number, which may be negative. */
static bool process_next_number(const char **cursor, const char *end, int64_t *ret_value)
{
    const char *p = *cursor;
    while (p < end && *p == ' ')
        p++;
    bool negative = p < end && *p == '-';
    if (negative)
        p++;
    uint64_t value = 0;
    const char *first = p;
    for (; p < end && *p >= '0' && *p <= '9'; p++)
        if (__builtin_mul_overflow(value, 10U, &value) || __builtin_add_overflow(value, (uint64_t)(*p - '0'), &value))
            value = UINT64_MAX / 10; /* some fields use all 64 bits; none that matters here does */
    if (p == first || (p < end && *p != ' ' && *p != '\n'))
        return false;
    *cursor = p;
    *ret_value = negative ? -(int64_t)(value & INT64_MAX) : (int64_t)(value & INT64_MAX);
    return true;
}

bool process_parse_stat(const char *text, size_t length, struct process *ret_process)
{
    const char *end = text + length;
    const char *open = memchr(text, '(', length);
    const char *close = memrchr(text, ')', length);
    if (!open || !close || close < open || end - close < 4 || close[1] != ' ')
        return false;
    struct process process = {.state = close[2]};
    const char *cursor = text;
    int64_t field[23] = {0}; /* numbered as in proc(5) */
    if (!process_next_number(&cursor, open, &field[1]) || field[1] <= 0 || field[1] > INT32_MAX)
        return false;
    cursor = close + 3;
    for (size_t i = 4; i <= 22; i++)
        if (!process_next_number(&cursor, end, &field[i]))
            return false;
    size_t name = (size_t)(close - open - 1);
    if (name >= sizeof process.comm)
        name = sizeof process.comm - 1;
    memcpy(process.comm, open + 1, name);
    process.pid = (pid_t)field[1];
    process.parent = (pid_t)field[4];
    process.group = (pid_t)field[5];
    process.session = (pid_t)field[6];
    process.cpu_ticks = (uint64_t)field[14] + (uint64_t)field[15];
    process.threads = (uint32_t)field[20];
    process.start_ticks = (uint64_t)field[22];
    *ret_process = process;
    return true;
}

bool process_read(pid_t pid, struct process *ret_process)
{
    char text[1024];
    ssize_t length = process_read_file(pid, "stat", text, sizeof text);
    return length > 0 && process_parse_stat(text, (size_t)length, ret_process);
}

bool process_is_alive(const struct process *process)
{
    return (process->state != 'Z' && process->state != 'X') || process->threads > 1;
}

static bool process_list_grow(struct process_list *list)
{
    size_t capacity = list->capacity ? list->capacity * 2 : 1024;
    struct process *items = realloc(list->items, capacity * sizeof *items);
    if (!items)
        return false;
    list->items = items;
    list->capacity = capacity;
    return true;
}

bool process_list_add(struct process_list *list, const struct process *process)
{
    if (list->count == list->capacity && !process_list_grow(list))
        return false;
    list->items[list->count++] = *process;
    return true;
}

static bool process_list_read(struct process_list *list, pid_t pid)
{
    if (list->count == list->capacity && !process_list_grow(list))
        return false;
    if (process_read(pid, &list->items[list->count]))
        list->count++;
    return true;
}

/* What comes before the processes in /proc fits into the first; one process, and no second one, into the other. */
enum { PROCESS_FIRST_BYTES = 4096, PROCESS_ENTRY_BYTES = 32 };

bool process_snapshot(struct process_list *list)
{
    _Alignas(struct dirent64) char bytes[PROCESS_FIRST_BYTES];
    size_t size = sizeof bytes;
    off_t at = 0;
    ssize_t got = -1;
    list->count = 0;
    int fd = open("/proc", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    bool whole = fd >= 0;
    while (whole && (got = getdents64(fd, bytes, size)) > 0) {
        for (ssize_t i = 0; whole && i < got;) {
            const struct dirent64 *entry = (const void *)(bytes + i);
            pid_t pid = (pid_t)strtol(entry->d_name, NULL, 10);
            if (pid > 0 && size == sizeof bytes) { /* the first one: from here on one by one */
                size = PROCESS_ENTRY_BYTES;
                whole = lseek(fd, at, SEEK_SET) == at;
                break;
            }
            if (pid > 0)
                whole = process_list_read(list, pid);
            at = entry->d_off;
            i += entry->d_reclen;
        }
    }
    if (fd >= 0)
        close(fd);
    return whole && got == 0;
}

void process_list_fini(struct process_list *list)
{
    free(list->items);
    *list = (struct process_list){0};
}

bool process_has_environment(pid_t pid, const char *name, const char *value)
{
    /* Read in pieces so that an environment of any size costs no memory: `matched` is how much of NAME=VALUE the entry
     * under the cursor has matched so far. */
    char wanted[512], path[64], piece[4096];
    int wanted_length = snprintf(wanted, sizeof wanted, "%s=%s", name, value);
    if (wanted_length < 0 || (size_t)wanted_length >= sizeof wanted)
        return false;
    snprintf(path, sizeof path, "/proc/%d/environ", (int)pid);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return false;
    bool found = false, differs = false;
    int matched = 0;
    ssize_t got;
    while (!found && ((got = read(fd, piece, sizeof piece)) > 0 || (got < 0 && errno == EINTR))) {
        for (ssize_t i = 0; i < got && !found; i++) {
            if (piece[i] == '\0') {
                found = !differs && matched == wanted_length;
                differs = false;
                matched = 0;
            } else if (!differs && matched < wanted_length && piece[i] == wanted[matched]) {
                matched++;
            } else {
                differs = true;
            }
        }
    }
    close(fd);
    return found;
}

bool process_read_cgroup(pid_t pid, char *ret_path, size_t size)
{
    char text[4096];
    ssize_t length = process_read_file(pid, "cgroup", text, sizeof text - 1);
    if (length <= 0)
        return false;
    text[length] = '\0';
    const char *line = strncmp(text, "0::", 3) == 0 ? text : strstr(text, "\n0::");
    if (!line)
        return false;
    const char *path = strstr(line, "0::") + 3;
    size_t path_length = strcspn(path, "\n");
    if (path_length >= size)
        return false;
    memcpy(ret_path, path, path_length);
    ret_path[path_length] = '\0';
    return true;
}

bool process_is_in_cgroup(pid_t pid, const char *name)
{
    char path[4096];
    if (!process_read_cgroup(pid, path, sizeof path))
        return false;
    size_t size = strlen(name);
    for (const char *at = path; (at = strstr(at, name)) != NULL; at += size)
        if (at > path && at[-1] == '/' && (at[size] == '/' || at[size] == '\0'))
            return true;
    return false;
}

bool process_has_ancestor(pid_t pid, const char *comm)
{
    enum { DEPTH_MOST = 256 };
    struct process process;
    for (int depth = 0; depth < DEPTH_MOST && process_read(pid, &process) && process.parent > 1; depth++) {
        pid = process.parent;
        if (process_read(pid, &process) && strcmp(process.comm, comm) == 0)
            return true;
    }
    return false;
}

bool process_read_users(pid_t pid, uid_t *ret_real, uid_t *ret_effective)
{
    char text[4096];
    ssize_t length = process_read_file(pid, "status", text, sizeof text - 1);
    text[length > 0 ? length : 0] = '\0';
    const char *line = strstr(text, "\nUid:"); /* a line end in its name is shown as \n */
    unsigned real, effective;
    if (line == NULL || sscanf(line, "\nUid: %u %u", &real, &effective) != 2)
        return false;
    *ret_real = real;
    *ret_effective = effective;
    return true;
}

void process_read_wchan(pid_t pid, char ret_wchan[PROCESS_WCHAN])
{
    ssize_t length = process_read_file(pid, "wchan", ret_wchan, PROCESS_WCHAN - 1);
    ret_wchan[length > 0 ? length : 0] = '\0';
    if (strcmp(ret_wchan, "0") == 0)
        ret_wchan[0] = '\0';
}

int process_open(pid_t pid)
{
    return (int)syscall(SYS_pidfd_open, pid, 0);
}

int process_exit_status(int wait_status)
{
    return WIFEXITED(wait_status) ? WEXITSTATUS(wait_status) : PROCESS_SIGNALED + WTERMSIG(wait_status);
}

void process_forget_handlers(void)
{
    for (int number = 1; number < NSIG; number++) {
        struct sigaction action;
        if (sigaction(number, NULL, &action) == 0 && action.sa_handler != SIG_IGN && action.sa_handler != SIG_DFL)
            signal(number, SIG_DFL);
    }
}

int process_signal_open(int pidfd, int signal)
{
    return syscall(SYS_pidfd_send_signal, pidfd, signal, NULL, 0) == 0 ? 0 : errno;
}

int process_signal(const struct process *process, int signal)
{
    int fd = process_open(process->pid);
    if (fd < 0)
        return errno;
    struct process now;
    int result = ESRCH;
    if (process_read(process->pid, &now) && now.start_ticks == process->start_ticks)
        result = process_signal_open(fd, signal);
    close(fd);
    return result;
}

void process_hurry(void)
{
    struct sched_param priority = {.sched_priority = 1};
    /* Refused to most users, and where real time is shared out by cgroup; then it is as early as the others. */
    (void)sched_setscheduler(0, SCHED_RR | SCHED_RESET_ON_FORK, &priority);
}
