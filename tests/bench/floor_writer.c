/* Fills a folder as fast as the machine can: floor_writer FOLDER CLOCK_FILE THREADS.
 * Each thread appends to a file of its own and keeps, in CLOCK_FILE (mapped, so it survives a KILL), when its last
 * write came back and how much it has written: one line of struct per thread. */
#include <fcntl.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

enum { BLOCK = 1 << 20, MOST = 16 };

struct mark {
    volatile uint64_t last_ns, first_ns, bytes, unused;
};

static const char *folder;
static struct mark *marks;

static uint64_t now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static void *writer(void *argument)
{
    struct mark *mark = argument;
    char path[512];
    snprintf(path, sizeof path, "%s/fill.%ld", folder, (long)(mark - marks));
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    char *block = malloc(BLOCK);
    if (fd < 0 || block == NULL)
        return NULL;
    memset(block, 7, BLOCK);
    mark->first_ns = now_ns();
    for (;;) {
        ssize_t done = write(fd, block, BLOCK);
        if (done <= 0) {
            pause(); /* the disk is full: stay, as a server does that skips the tensor */
            continue;
        }
        mark->last_ns = now_ns();
        mark->bytes += (uint64_t)done;
    }
}

int main(int argc, char **argv)
{
    if (argc != 4) {
        fputs("usage: floor_writer FOLDER CLOCK_FILE THREADS\n", stderr);
        return 2;
    }
    folder = argv[1];
    long threads = strtol(argv[3], NULL, 10);
    int fd = open(argv[2], O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (threads < 1 || threads > MOST || fd < 0 || ftruncate(fd, MOST * (off_t)sizeof *marks) != 0)
        return 1;
    marks = mmap(NULL, MOST * sizeof *marks, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (marks == MAP_FAILED)
        return 1;
    for (long i = 0; i < threads; i++) {
        pthread_t thread;
        if (pthread_create(&thread, NULL, writer, &marks[i]) != 0)
            return 1;
    }
    for (;;)
        pause();
}
