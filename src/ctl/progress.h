/* How far a command is, in one line on standard error that is drawn again in place, and taken away when it is done. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

enum { PROGRESS_PATIENCE_MS = 500 }; /* what is done by then shows nothing */

struct progress {
    bool begun, drawn;
    int64_t begun_ms;
    const char *what;
    int percent, seconds;
};

/* "comparing: 300 of 4000, 7 %". Drawn when `what` or the percentage changes, PROGRESS_PATIENCE_MS after the first call
 * at the earliest. Only for a standard error that is a terminal: the caller looks. `what` lives until progress_end. */
void progress_show(struct progress *progress, const char *what, uint64_t done, uint64_t total);

/* "decoding: 12 s", for what cannot be counted: drawn when `what` or the second changes, after the same patience. */
void progress_wait(struct progress *progress, const char *what);

/* progress_show for those who call back; `progress` is a struct progress. */
void progress_show_to(void *progress, const char *what, uint64_t done, uint64_t total);

/* Takes the line away. */
void progress_end(struct progress *progress);
