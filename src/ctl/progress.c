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

void progress_wait(struct progress *progress, const char *what)
{
    if (!progress->begun || progress->what == NULL || strcmp(progress->what, what) != 0)
        *progress = (struct progress){.begun = true, .begun_ms = now_ms(), .what = what, .drawn = progress->drawn};
    int64_t waited_ms = now_ms() - progress->begun_ms;
    int seconds = (int)(waited_ms / 1000);
    if (waited_ms < PROGRESS_PATIENCE_MS || (progress->drawn && progress->seconds == seconds && seconds > 0))
        return;
    progress->drawn = true;
    progress->seconds = seconds;
    fprintf(stderr, "\r\033[K%s: %d s", what, seconds);
    fflush(stderr);
}

void progress_show_to(void *progress, const char *what, uint64_t done, uint64_t total)
{
    progress_show(progress, what, done, total);
}

void progress_end(struct progress *progress)
{
    if (progress->drawn)
        fprintf(stderr, "\r\033[K");
    fflush(stderr);
    *progress = (struct progress){0};
}
