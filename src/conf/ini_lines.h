/* The lines of a config file, for the files of this folder alone: `[SECTION]`, `KEY = VALUE`, comments. Every line is
 * checked before inih sees it, and inih sees one line at a time, because as distributions build it it splits long
 * lines, cuts names of sections, takes an indented line for a second value of the key above, cuts a value at " ;" and
 * goes on after a bad line, all without a word. Pure. */
#pragma once

#include "base/list.h"

#include <stddef.h>

enum {
    INI_LINES_FILE_MAX = 64 * 1024, /* bytes of a file */
    INI_LINES_LINE_MAX = 180,       /* bytes of one of its lines */
    INI_LINES_FAULTS_MAX = 8,       /* that are told one by one */
};

struct ini_lines {
    const char *path;    /* for messages; borrowed, as all here */
    const char *section; /* what a file begins with, for a hint: "[run]" */
    struct list *faults; /* gets one sentence each */
    size_t fault_count;  /* all of them; begins with 0 */
    size_t number;       /* of the line under way, from 1 */
    size_t section_line; /* where the present section begins; 0: none has begun */
    void *user;
    /* `name`: what stands between the brackets; NULL: that was not understood, and is a fault already. */
    void (*take_section)(struct ini_lines *lines, const char *name);
    void (*take_value)(struct ini_lines *lines, const char *key, const char *value);
};

/* Hands over every line that is well formed, in the order of the file; all others are faults. Nothing is handed over of
 * a file that is too large. */
void ini_lines_read(struct ini_lines *lines, const char *bytes, size_t length);

/* Adds "PATH line NUMBER: ...", as long as there are few. */
void ini_lines_fault(struct ini_lines *lines, const char *format, ...) __attribute__((format(printf, 2, 3)));
