/* Fills a folder: floor_writer FOLDER CLOCK_FILE PROCESSES BYTES_PER_S FILES_PER_S
 *
 * Each process appends to a file of its own, all together at BYTES_PER_S (0: as fast as the machine can); or, with
 * FILES_PER_S above 0, they make small files instead. In CLOCK_FILE (mapped, so it survives a KILL) each keeps who it
 * is, when its last write came back and how much it has written. */
#include <fcntl.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

enum { BLOCK = 1 << 20, SMALL = 4096, MOST = 16 };

struct mark {
    volatile uint64_t last_ns, first_ns, bytes, pid;
};

static const char *folder;
static char block[BLOCK];

static uint64_t now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* Until `units` of them may have been made at `per_s`. */
static void pace(uint64_t first_ns, uint64_t units, double per_s)
{
    uint64_t due_ns = first_ns + (uint64_t)((double)units / per_s * 1e9);
    struct timespec due = {.tv_sec = (time_t)(due_ns / 1000000000u), .tv_nsec = (long)(due_ns % 1000000000u)};
    clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &due, NULL);
}

static void note(struct mark *mark, ssize_t written)
{
    if (written <= 0) {
        pause(); /* the disk is full: stay, as a server does that skips the tensor */
        return;
    }
    mark->last_ns = now_ns();
    mark->bytes += (uint64_t)written;
}

static void write_blocks(struct mark *mark, int number, double bytes_per_s)
{
    char path[512];
    snprintf(path, sizeof path, "%s/fill.%d", folder, number);
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    while (fd >= 0) {
        note(mark, write(fd, block, BLOCK));
        if (bytes_per_s > 0)
            pace(mark->first_ns, mark->bytes, bytes_per_s);
    }
}

static void write_files(struct mark *mark, int number, double files_per_s)
{
    for (uint64_t made = 1;; made++) {
        char path[512];
        snprintf(path, sizeof path, "%s/small.%d.%llu", folder, number, (unsigned long long)made);
        int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
        note(mark, fd >= 0 ? write(fd, block, SMALL) : -1);
        if (fd >= 0)
            close(fd);
        pace(mark->first_ns, made, files_per_s);
    }
}

int main(int argc, char **argv)
{
    if (argc != 6) {
        fputs("usage: floor_writer FOLDER CLOCK_FILE PROCESSES BYTES_PER_S FILES_PER_S\n", stderr);
        return 2;
    }
    folder = argv[1];
    int processes = atoi(argv[3]);
    double bytes_per_s = strtod(argv[4], NULL), files_per_s = strtod(argv[5], NULL);
    int fd = open(argv[2], O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (processes < 1 || processes > MOST || fd < 0 || ftruncate(fd, MOST * (off_t)sizeof(struct mark)) != 0)
        return 1;
    struct mark *marks = mmap(NULL, MOST * sizeof *marks, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (marks == MAP_FAILED)
        return 1;
    memset(block, 7, BLOCK);
    for (int i = 0; i < processes; i++) {
        pid_t pid = fork();
        if (pid < 0)
            return 1;
        if (pid > 0)
            continue;
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        marks[i].first_ns = now_ns();
        marks[i].pid = (uint64_t)getpid();
        if (files_per_s > 0)
            write_files(&marks[i], i, files_per_s / processes);
        write_blocks(&marks[i], i, bytes_per_s / processes);
        return 1;
    }
    for (;;)
        pause();
}
