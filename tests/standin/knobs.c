/* knobs.c: see knobs.h. */
#include "knobs.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

enum { LOOK_MS = 2 };

static struct knobs knobs;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static long from_environment(const char *name, long otherwise)
{
    const char *text = getenv(name);
    return text != NULL && text[0] != '\0' ? strtol(text, NULL, 10) : otherwise;
}

static void read_all(void)
{
    knobs.load_ms = from_environment("KLDUMP_STANDIN_LOAD_MS", 300);
    knobs.start_ms = from_environment("KLDUMP_STANDIN_START_MS", 50);
    knobs.step_ms = from_environment("KLDUMP_STANDIN_STEP_MS", 0);
    knobs.term_ms = from_environment("KLDUMP_STANDIN_TERM_MS", 200);
    knobs.crash_ms = from_environment("KLDUMP_STANDIN_CRASH_MS", 300);
    knobs.coredump_ms = from_environment("KLDUMP_STANDIN_COREDUMP_MS", 600);
    knobs.seed = from_environment("KLDUMP_STANDIN_SEED", 1);
    knobs.state_probe = from_environment("KLDUMP_STANDIN_STATE_PROBE", 0);
    knobs.hold = getenv("KLDUMP_STANDIN_HOLD");
}

const struct knobs *knobs_get(void)
{
    pthread_once(&once, read_all);
    return &knobs;
}

void knobs_sleep_ms(long duration_ms)
{
    if (duration_ms <= 0)
        return;
    struct timespec rest = {.tv_sec = duration_ms / 1000, .tv_nsec = duration_ms % 1000 * 1000000};
    while (nanosleep(&rest, &rest) != 0 && errno == EINTR)
        ;
}

void knobs_hold(const char *experiment)
{
    const char *path = knobs_get()->hold;
    char of_dump[1200], held[1200];
    if (path == NULL || path[0] == '\0')
        return;
    snprintf(of_dump, sizeof of_dump, "%s-%s", path, experiment != NULL ? experiment : "");
    snprintf(held, sizeof held, "%s.held", path);
    while (access(path, F_OK) == 0 || (experiment != NULL && access(of_dump, F_OK) == 0)) {
        int made = open(held, O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
        if (made >= 0)
            close(made);
        knobs_sleep_ms(LOOK_MS);
    }
}

double knobs_seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}
