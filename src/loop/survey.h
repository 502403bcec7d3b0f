/* The survey: what a run writes and whether it works, seen from outside while a dump is open. A thread of its own,
 * since a dead disk may hold it for ever; then nothing comes any more, and nothing else is held up.
 *
 * Once a second, and for at most a tenth of its time: the sizes of the dump files that have come since the last look
 * (names and sizes only, no file is opened), whether the path of the dump folder still leads to the folder whose
 * descriptor is held, and whether a process of the run other than its main one has used the processor.
 *
 * All functions: loop thread. While no dump is open the thread sleeps. */
#pragma once

#include "base/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include <uv.h>

enum { SURVEY_BUSY_MS = 100 }; /* of processor time between two looks */

struct survey;

struct survey_options {
    int directory_fd;      /* the dump folder; duplicated */
    const char *directory; /* its path; copied */
    dev_t device;          /* of the folder, when the run began */
    ino_t inode;
    bool (*read_dump_name)(const char *name, uint64_t *ret_rank, uint64_t *ret_dump_index);
    int cgroup_fd;            /* folder of the run's cgroup; duplicated; -1: the tree of `ancestor` is looked at */
    pid_t ancestor;           /* the keeper */
    pid_t main;               /* the run's main process: its work proves nothing */
    uint64_t step_ms;         /* between two looks; 0: a second */
    void (*news)(void *user); /* loop thread: a look is done. Several may come as one call */
    void *user;
};

struct survey_result {
    uint64_t looks;         /* finished ones; 0: nothing below is known */
    uint64_t written_bytes; /* of all dumps that were open so far: what their files take on the disk, or hold */
    bool busy;
    char lost[256]; /* why DIR is not the folder any more that is watched, so that the server writes elsewhere; "" */
};

/* ERROR_SYSTEM. */
enum error_code survey_start(uv_loop_t *loop, const struct survey_options *options, struct survey **ret_survey,
                             struct error *err);

/* A dump of this name, a folder in the dump folder, is open: looks begin at once. Also when another one was. */
void survey_open(struct survey *survey, const char *experiment);

/* It is sealed: one more look, then none. */
void survey_shut(struct survey *survey);

void survey_get(struct survey *survey, struct survey_result *ret_result);

/* One more look now, also of a dump that is sealed. Told by `news`, or waited for. */
void survey_ask(struct survey *survey);

/* Blocks until every look that was asked for is done: true; or for `limit_ms`. 0: does not block. */
bool survey_wait(struct survey *survey, uint64_t limit_ms);

/* Ends the thread. No `news` from now on; `closed` (may be NULL) once from the loop. `ended` false: a look did not
 * return within `limit_ms`, and the thread was left behind; it ends by itself after it. */
void survey_close(struct survey *survey, uint64_t limit_ms, void (*closed)(bool ended, void *user), void *user);
