/* One look of the survey: survey thread only. Private to survey*.c and its test. */
#pragma once

#include "core/server.h"
#include "loop/survey.h"
#include "sys/kill_tree.h"

enum { SURVEY_NAME_MAX = SERVER_NAME_MAX, SURVEY_PROCESSES_MAX = 512 };

/* What is known from the looks before. Zeroed at first. */
struct survey_look {
    char experiment[SURVEY_NAME_MAX];
    uint64_t settled_bytes; /* of the dumps before this one */
    uint64_t dump_bytes;    /* of this one, without the newest file of each rank */
    struct {
        bool any;
        uint64_t dump_index, bytes; /* of the newest file: it may still grow */
    } rank[SERVER_RANKS_MAX];
    struct {
        pid_t pid;
        uint64_t start_ticks, cpu_ticks;
    } process[SURVEY_PROCESSES_MAX]; /* of the look before */
    size_t process_count;
    bool has_tree;
    struct kill_tree tree; /* without a cgroup */
};

void survey_look(struct survey_look *look, const struct survey_options *options, const char *experiment,
                 struct survey_result *ret_result);
void survey_look_fini(struct survey_look *look);
