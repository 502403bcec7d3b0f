/* What the three reports of a diff share: the five lines of a verdict, what is counted, how a pair of rows is shown in
 * one character. Reads a finished struct diff; owns nothing of it. Any thread. */
#pragma once

#include "analysis/diff.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum report_line { REPORT_WHAT, REPORT_WHERE, REPORT_EVIDENCE, REPORT_CLASS, REPORT_NEXT, REPORT_LINE_COUNT };

/* "verdict", "where", "evidence", "class", "next" */
const char *report_line_label(enum report_line line);

/* The text of that line, the caller's; NULL where there is nothing to say, and always where diff_status is neither
 * STATUS_DONE nor STATUS_NO: without a proven alignment there is no verdict. Names in it are as the dump has them. */
char *report_line_text(const struct diff *diff, enum report_line line);

/* What a proof says to people: the claim; where it fails, the contrary; else that it is not sure, or not known. The
 * caller's. */
char *report_proof_text(const struct diff *diff, enum diff_proof_id id);

/* True where a verdict may be shown. */
bool report_has_verdict(const struct diff *diff);

/* Why there is no verdict, in a sentence without its ends; NULL where there is one. */
const char *report_summary(const struct diff *diff);

/* Why there is none, or what the whole says, in a few words: "DIFFERENT", "EQUAL", "NOT PROVEN", "UNUSABLE",
 * "REFUSED". */
const char *report_headline(const struct diff *diff);

/* True where a message is best answered by dumping anew, as sglang/recipe.h says. */
bool report_wants_recipe(const struct diff *diff);

/* What a verdict does not know. */
struct report_coverage {
    size_t culprits;     /* leaf calls with equal inputs and another output in at least one row */
    size_t exonerated;   /* leaf calls with at least one such row, and none of them unequal */
    size_t untested;     /* leaf calls without one: their inputs differ everywhere, or could not be compared */
    size_t least_tested; /* of the exonerated: the fewest rows; 0 without any */
    size_t compared;     /* observations that are on both sides and compared row by row or whole */
    size_t one_sided, unreadable, other_shape; /* by presence */
    size_t no_rows;                            /* DIFF_ROWS_NONE and _UNCLEAR */
};
void report_count(const struct diff *diff, struct report_coverage *ret_coverage);

/* True of a row of the evidence table. */
bool report_is_culprit(const struct diff_call *call);

/* True where an observation cannot be compared at all: a blind spot. */
bool report_is_blind(const struct diff_observation *observation);
/* "only in DEC", "shape", ...; "" for one that is compared. */
const char *report_blind_word(const struct diff_observation *observation);

/* '.' equal, '1' to '9': less than 2^1 .. 2^8 ULP, 9 for all beyond; '!' NaN or infinite on one side, '#' unequal and
 * not measured in ULP, ' ' not compared. Of several marks the greatest number is the worst. */
char report_mark_character(uint8_t mark);

/* A name or a line as it is, a very long one without its middle: "model.layers...attn.output". What it returns is
 * `text` or `buffer`. */
enum { REPORT_SHORT = 240 };
const char *report_short(const char *text, char *buffer);

/* "37", "2^17", "> 2^62": ULP for people. */
enum { REPORT_ULP_TEXT = 24 };
const char *report_ulp_text(uint64_t ulp, char *buffer);

/* Root mean square of the difference over that of the reference; 0 where nothing differs. */
double report_relative_rms(const struct numbers *numbers);

/* The request, position and token of a pair: "position 12 of request dec-0 (decode pass 0)"; the caller's. */
char *report_place_text(const struct diff *diff, size_t pair);
