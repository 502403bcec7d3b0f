/* A diff for people at a terminal: the verdict in five lines, then what it rests on. */
#pragma once

#include "analysis/diff.h"
#include "ctl/output.h"

#include <stdbool.h>
#include <stddef.h>

enum {
    REPORT_TEXT_LEAST = 40, /* columns */
    REPORT_TEXT_MOST = 200,
    REPORT_TEXT_PLAIN = 100, /* where the reader is no terminal */
};

/* `columns`: of the terminal, 0 where there is none; taken into the bounds above. `all`: every operator that differs,
 * every position, every blind spot; else as much of it as one screen or two. Text from the dump is made safe. */
void report_text(const struct diff *diff, size_t columns, bool all, struct output *out);

/* The token strips alone: one character for each position (report_mark_character) of the observation, a block for each
 * request, wrapped, with positions at the left; lines of one character in a row are told as one. */
void report_text_strip(const struct diff *diff, const struct diff_observation *observation, size_t columns, bool all,
                       struct output *out);
