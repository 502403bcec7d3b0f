/* helpers.c: see helpers.h.
 *
 * Stray processes end by themselves after a while (alarm), so that a failed test leaves nothing for long; a stopped one
 * takes its alarm once it is continued.
 */
#include "helpers.h"

#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "dump_write.h"
#include "dumper.h"
#include "faults.h"
#include "knobs.h"
#include "log.h"
#include "text.h"
#include "title.h"

enum { LIFE_S = 180, STORM_S = 60, BLOCK_BYTES = 8 << 20, TICK_MS = 5 };

/* ------------------------------------------------------------------ writers */

static bool folder_for_writing(char *folder, size_t size)
{
    return dumper_folder(folder, size) && dump_write_folders(folder);
}

/* As much as the rate allows since `started`, in plain writes of at most a block. False: the disk is full. */
static bool write_due(int fd, const char *block, double rate, double started, double *written)
{
    double due = rate * (knobs_seconds() - started);
    while (*written < due) {
        double rest = due - *written;
        size_t bytes = rest < BLOCK_BYTES ? (size_t)rest + 1 : BLOCK_BYTES;
        ssize_t got = write(fd, block, bytes);
        if (got <= 0)
            return false;
        *written += (double)got;
    }
    return true;
}

static void *fill(void *unused)
{
    (void)unused;
    char folder[1200], path[1300];
    char *block = text_allocate(BLOCK_BYTES);
    memset(block, 'x', BLOCK_BYTES);
    for (;;) {
        knobs_sleep_ms(TICK_MS);
        if (!folder_for_writing(folder, sizeof folder))
            continue;
        snprintf(path, sizeof path, "%s/standin-fill.bin", folder);
        int fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
        double started = knobs_seconds(), written = 0;
        while (fd >= 0 && dumper_enabled() &&
               write_due(fd, block, (double)faults_number(FAULTS_FILL), started, &written))
            knobs_sleep_ms(1);
        if (fd >= 0)
            close(fd);
    }
    return NULL;
}

static void *fill_files(void *unused)
{
    (void)unused;
    char folder[1200], path[1300];
    unsigned long serial = 0;
    double started = knobs_seconds();
    for (;; knobs_sleep_ms(TICK_MS)) {
        if (!folder_for_writing(folder, sizeof folder)) {
            started = knobs_seconds();
            continue;
        }
        double due = (double)faults_number(FAULTS_FILL_FILES) * (knobs_seconds() - started);
        started = knobs_seconds();
        for (; due >= 1; due -= 1) {
            snprintf(path, sizeof path, "%s/standin-fill-%lu", folder, serial++);
            int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0666);
            ssize_t got = fd >= 0 ? write(fd, "x", 1) : 0;
            (void)got;
            if (fd >= 0)
                close(fd);
        }
        started -= due / (double)(faults_number(FAULTS_FILL_FILES) > 0 ? faults_number(FAULTS_FILL_FILES) : 1);
    }
    return NULL;
}

/* ------------------------------------------------------------------ processes */

static void close_all(void)
{
    for (int fd = 0; fd < 256; fd++)
        close(fd);
}

_Noreturn static void live_on(void)
{
    alarm(LIFE_S);
    for (;;)
        pause();
}

static void setsid_child(void)
{
    if (fork() != 0)
        return;
    setsid();
    title_set("standin-helper");
    close_all();
    live_on();
}

static void double_fork(void)
{
    pid_t child = fork();
    if (child > 0)
        waitpid(child, NULL, 0);
    if (child != 0)
        return;
    setsid();
    if (fork() != 0)
        _exit(0);
    title_set("[kworker/u4:7]");
    close_all();
    live_on();
}

static void stopped_child(void)
{
    if (fork() != 0)
        return;
    title_set("standin-stopped");
    close_all();
    alarm(LIFE_S);
    raise(SIGSTOP);
    live_on();
}

/* Its child makes a grandchild and ends: the orphan comes to the helper, not to whoever guards the server. */
static void subreaper(void)
{
    if (fork() != 0)
        return;
    setsid();
    prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0);
    signal(SIGTERM, SIG_IGN);
    title_set("standin-subreaper");
    close_all();
    pid_t child = fork();
    if (child == 0) {
        if (fork() != 0)
            _exit(0);
        setsid();
        title_set("standin-adopted");
        live_on();
    }
    waitpid(child, NULL, 0);
    live_on();
}

/* Each process lives a millisecond: whoever kills from a list of pids comes too late. */
static void fork_storm(void)
{
    if (fork() != 0)
        return;
    signal(SIGCHLD, SIG_IGN);
    title_set("standin-storm");
    close_all();
    double end = knobs_seconds() + STORM_S;
    while (knobs_seconds() < end) {
        struct timespec millisecond = {.tv_nsec = 1000000};
        nanosleep(&millisecond, NULL);
        pid_t child = fork();
        if (child > 0)
            _exit(0);
    }
    _exit(0);
}

/* ------------------------------------------------------------------ output */

static void *flood(void *unused)
{
    (void)unused;
    enum { LINE = 120, BLOCK = LINE * 1024 };
    char *block = text_allocate(BLOCK);
    memset(block, 'x', BLOCK);
    for (size_t i = LINE; i <= BLOCK; i += LINE)
        block[i - 1] = '\n';
    long long rest = faults_number(FAULTS_LOG_FLOOD);
    while (rest > 0) {
        ssize_t got = write(STDOUT_FILENO, block, rest < BLOCK ? (size_t)rest : BLOCK);
        if (got <= 0)
            break;
        rest -= got;
    }
    free(block);
    log_line("kldump-standin: the flood has ended");
    return NULL;
}

static void print_binary(void)
{
    enum { LONG_LINE = 1 << 20 };
    struct text bytes;
    text_init(&bytes);
    for (int i = 0; i < 1024; i++)
        text_byte(&bytes, (unsigned char)i);
    text_string(&bytes, "\n\033]0;title\007\033[2J\033[31mred\033[0m\r\n\xff\xfe\xc3\x28\xf0\x9f\n");
    text_repeat(&bytes, 'l', LONG_LINE);
    text_string(&bytes, "\n");
    for (size_t done = 0; done < bytes.length;) {
        ssize_t got = write(STDERR_FILENO, bytes.data + done, bytes.length - done);
        if (got <= 0)
            break;
        done += (size_t)got;
    }
    text_fini(&bytes);
}

void helpers_print(void)
{
    pthread_t thread;
    if (faults_on(FAULTS_BINARY_OUTPUT))
        print_binary();
    if (faults_on(FAULTS_LOG_FLOOD) && pthread_create(&thread, NULL, flood, NULL) != 0)
        log_line("kldump-standin: no thread for the fault 'log-flood'");
}

void helpers_start(void)
{
    static const struct {
        enum faults_name fault;
        void (*start)(void);
    } PROCESSES[] = {{FAULTS_SETSID_CHILD, setsid_child},
                     {FAULTS_DOUBLE_FORK, double_fork},
                     {FAULTS_STOPPED_CHILD, stopped_child},
                     {FAULTS_SUBREAPER, subreaper},
                     {FAULTS_FORK_STORM, fork_storm}};
    for (size_t i = 0; i < sizeof PROCESSES / sizeof PROCESSES[0]; i++)
        if (faults_on(PROCESSES[i].fault))
            PROCESSES[i].start();
    pthread_t thread;
    if (faults_on(FAULTS_FILL) && pthread_create(&thread, NULL, fill, NULL) != 0)
        log_line("kldump-standin: no thread for the fault 'fill'");
    if (faults_on(FAULTS_FILL_FILES) && pthread_create(&thread, NULL, fill_files, NULL) != 0)
        log_line("kldump-standin: no thread for the fault 'fill-files'");
}
