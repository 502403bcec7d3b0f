/* One cgroup (version 2) through a descriptor of its folder: enter, kill, watch, remove, rehearse. libc only:
 * kldump-keeper links this; src/sys/cgroup.h decides which folder. Any thread.
 * Linux cgroup-v2.rst: cgroup.kill (5.14 and later) kills the whole subtree and is safe against forks; a zombie does
 * not count as populated. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

/* The calling process (all of its threads) moves into it. 0 or an errno value; EACCES when it may not leave the cgroup
 * where it is. Async-signal-safe. */
int cgroup_control_enter(int directory_fd);

/* A descriptor to hold open for cgroup_control_kill; -1 with errno (ENOENT: the kernel has no cgroup.kill). */
int cgroup_control_open_kill(int directory_fd);

/* Kills every process in it and below, frozen ones too. 0 or an errno value. Async-signal-safe. */
int cgroup_control_kill(int kill_fd);

/* Orders every process in it and below to stand still; cgroup_control_frozen tells when they do. A process that is in
 * the kernel stops when it comes out. What enters later stops too. 0 or an errno value. */
int cgroup_control_freeze(int directory_fd);

/* Undoes that. After the kill: a cgroup left frozen would hold whatever enters it next. 0 or an errno value. */
int cgroup_control_thaw(int directory_fd);

/* 1: a live process is in it or below; 0: none; -1: cannot be told. `events_fd`: cgroup.events, which polls as POLLPRI
 * when this changes. */
int cgroup_control_open_events(int directory_fd);
int cgroup_control_populated(int events_fd);

/* 1: all in it and below stand still (also when nobody is in it); 0: not; -1: cannot be told. */
int cgroup_control_frozen(int events_fd);

/* Blocks until they do: true; false after `timeout_ms`. */
bool cgroup_control_wait_frozen(int events_fd, int timeout_ms);

/* Blocks until it is empty: true; false after `timeout_ms`. */
bool cgroup_control_wait_empty(int events_fd, int timeout_ms);

/* Removes it with all cgroups below. 0 or an errno value; EBUSY while processes live in it. */
int cgroup_control_remove(int directory_fd);

/* Starts a child in it, kills it through the cgroup and waits until it is empty. The cgroup must have no processes and
 * no other thread may fork into it. `ret_nanoseconds`: from the kill to empty. 0 or an errno value: then the cgroup
 * cannot be relied on. */
int cgroup_control_rehearse(int directory_fd, int64_t *ret_nanoseconds);
