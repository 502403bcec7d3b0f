/* What /proc tells about processes, and signals that cannot hit the wrong one. libc only: kldump-keeper links this.
 * Any thread; no shared state. Nothing here allocates but process_snapshot and process_list_add. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

enum { PROCESS_COMM = 64, PROCESS_WCHAN = 64 };

/* One line of /proc/PID/stat (proc(5)). */
struct process {
    pid_t pid, parent, group, session;
    char state;              /* R S D T t Z X I */
    uint32_t threads;        /* that are alive, or 1 */
    uint64_t cpu_ticks;      /* user and system time, in clock ticks */
    uint64_t start_ticks;    /* after boot, in clock ticks: with the pid the identity of a process */
    char comm[PROCESS_COMM]; /* the name is chosen by the process: any bytes but NUL */
};

/* Reads one line of /proc/PID/stat; the name may hold blanks and parentheses. False: not such a line. */
bool process_parse_stat(const char *text, size_t length, struct process *ret_process);

/* False: there is no such process (any more). */
bool process_read(pid_t pid, struct process *ret_process);

/* True unless it is dead: a zombie whose other threads still run is alive, a stopped or frozen process is alive. */
bool process_is_alive(const struct process *process);

/* All processes, zombies too, in the order of their numbers. `list` is zeroed before the first call and keeps its memory
 * for the next one. False: /proc cannot be read, or memory ran out (then the list holds what fitted).
 * Each is read in the moment in which it is listed. So a process that replaces itself by a child all the time does not
 * slip through: the child is there before the parent ends, has a higher number and comes later. Only where the numbers
 * begin again it may be missed: by one snapshot, not by two. */
struct process_list {
    struct process *items;
    size_t count, capacity;
};
bool process_snapshot(struct process_list *list);
bool process_list_add(struct process_list *list, const struct process *process); /* false: memory ran out */
void process_list_fini(struct process_list *list);

/* True when NAME=VALUE is in the environment that the process was started with. False also when it may not be read. A
 * process that overwrites that memory to change its title loses it (setproctitle without SPT_NOENV does). */
bool process_has_environment(pid_t pid, const char *name, const char *value);

/* The path of its cgroup (version 2) below the mount, "/..." . False: it has none, or one that is too long. */
bool process_read_cgroup(pid_t pid, char *ret_path, size_t size);

/* True when its cgroup (version 2) is NAME or below a cgroup of that name, whatever lies above: for names that no other
 * cgroup has. */
bool process_is_in_cgroup(pid_t pid, const char *name);

/* True when its parent, or a parent of that and so on, has this name. */
bool process_has_ancestor(pid_t pid, const char *comm);

/* Its real and effective user. False: there is no such process, or it cannot be seen. */
bool process_read_users(pid_t pid, uid_t *ret_real, uid_t *ret_effective);

/* The kernel function in which it sleeps, "" when it does not sleep or this is hidden. */
void process_read_wchan(pid_t pid, char ret_wchan[PROCESS_WCHAN]);

/* The calling thread gets the processor before ordinary ones where this user may have that (root, RLIMIT_RTPRIO); what
 * it forks does not. Else nothing changes. For threads that sleep nearly always and must not be late. */
void process_hurry(void);

/* pidfd_open(2): the descriptor is close-on-exec; -1 with errno. */
int process_open(pid_t pid);

/* Of what waitpid(2) told about an end, the exit status as a shell tells it: PROCESS_SIGNALED + N of a death by signal
 * N. */
enum { PROCESS_SIGNALED = 128 };
int process_exit_status(int wait_status);

/* In a child, before it takes signals again: what exec makes of our handlers, the default action. A signal that comes
 * between fork and exec would else be handled as the parent's, and be lost. Signals that are ignored stay so. */
void process_forget_handlers(void);

/* Sends to the process that a pidfd holds; signal 0 only asks whether it is there. 0, or an errno value. */
int process_signal_open(int pidfd, int signal);

/* Sends by pidfd, so only to the very process (pid and start time) that was seen. 0, or an errno value; ESRCH when that
 * one is gone. */
int process_signal(const struct process *process, int signal);
