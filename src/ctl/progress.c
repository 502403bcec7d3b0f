#include "ctl/progress.h"
#include "ctl/now.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

void progress_show(struct progress *progress, const char *what, uint64_t done, uint64_t total)
{
    if (!progress->begun)
        *progress = (struct progress){.begun = true, .begun_ms = now_ms()};
    if (total == 0 || now_ms() - progress->begun_ms < PROGRESS_PATIENCE_MS)
        return;
    int percent = (int)(done * 100 / total);
    if (progress->drawn && percent == progress->percent && strcmp(progress->what, what) == 0)
        return;
    progress->drawn = true;
    progress->what = what;
    progress->percent = percent;
    fprintf(stderr, "\r\033[K%s: %" PRIu64 " of %" PRIu64 ", %d %%", what, done, total, percent);
    fflush(stderr);
}

void progress_end(struct progress *progress)
{
    if (progress->drawn)
        fprintf(stderr, "\r\033[K");
    fflush(stderr);
    *progress = (struct progress){0};
}
