/* knobs.c: see knobs.h. */
#include "knobs.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
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

/* Behind so many files as it says; an empty one says none. */
static bool holds(const char *path, long files)
{
    long from = 0;
    FILE *file = fopen(path, "re");
    if (file == NULL)
        return false;
    if (fscanf(file, "%ld", &from) != 1)
        from = 0;
    fclose(file);
    return files >= from;
}

/* So many files this experiment has had. */
static long count_files(const char *experiment)
{
    static char last[256];
    static long files;
    if (strcmp(last, experiment) != 0) {
        snprintf(last, sizeof last, "%s", experiment);
        files = 0;
    }
    return ++files;
}

void knobs_hold(const char *experiment)
{
    const char *path = knobs_get()->hold;
    char of_dump[1200], held[1200];
    if (path == NULL || path[0] == '\0')
        return;
    long files = experiment != NULL ? count_files(experiment) : 0;
    snprintf(of_dump, sizeof of_dump, "%s-%s", path, experiment != NULL ? experiment : "");
    snprintf(held, sizeof held, "%s.held", path);
    while (holds(path, 0) || (experiment != NULL && holds(of_dump, files))) {
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
