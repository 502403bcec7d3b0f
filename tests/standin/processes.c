/* processes.c: see processes.h. */
#include "processes.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "faults.h"
#include "knobs.h"
#include "log.h"
#include "scheduler.h"
#include "text.h"
#include "title.h"

enum { RANKS_MAX = 16, CHILDREN_MAX = RANKS_MAX + 2 };

static const char SPAWN[] = "from multiprocessing.spawn import spawn_main; spawn_main(tracker_fd=%d, pipe_handle=%d)";
static const char TRACKER[] = "from multiprocessing.resource_tracker import main;main(%d)";

struct child {
    char name[32];
    pid_t pid;
    int rank; /* -1: no scheduler */
    bool ready;
    _Atomic bool reaped; /* by the main thread, read by any that kills */
    struct channel channel;
};

static struct child children[CHILDREN_MAX];
static int child_count;

/* ------------------------------------------------------------------ start */

static void keep_in_exec(int fd)
{
    fcntl(fd, F_SETFD, 0);
}

static void base_name(const char *program, char *target, size_t size)
{
    const char *slash = strrchr(program, '/');
    snprintf(target, size, "%s", slash != NULL ? slash + 1 : program);
}

/* `fds` survive into the child. */
static pid_t spawn(const char *program, const char *code, const int *fds, int fd_count)
{
    pid_t pid = fork();
    if (pid != 0)
        return pid;
    for (int i = 0; i < fd_count; i++)
        keep_in_exec(fds[i]);
    char *argv[] = {text_copy(program), text_copy("-c"), text_copy(code),
                    strstr(code, "spawn_main") != NULL ? text_copy("--multiprocessing-fork") : NULL, NULL};
    execv("/proc/self/exe", argv);
    perror("kldump-standin: exec of /proc/self/exe");
    _exit(127);
}

static void make_pair(int pair[2])
{
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) != 0) {
        perror("kldump-standin: socketpair");
        exit(1);
    }
}

static void add_arguments(cJSON *start, const struct arguments *arguments)
{
    cJSON *list = cJSON_AddArrayToObject(start, "argv");
    for (int i = 0; i < arguments->count; i++)
        cJSON_AddItemToArray(list, cJSON_CreateString(arguments->given[i]));
}

static void start_child(const char *program, const struct arguments *arguments, const char *name, int rank,
                        int tracker_fd, cJSON *start, const int *extra_fds, int extra_count)
{
    int pair[2], fds[RANKS_MAX + 4], count = 0;
    make_pair(pair);
    fds[count++] = pair[1];
    fds[count++] = tracker_fd;
    for (int i = 0; i < extra_count; i++)
        fds[count++] = extra_fds[i];
    char code[160];
    snprintf(code, sizeof code, SPAWN, tracker_fd, pair[1]);
    struct child *child = &children[child_count++];
    snprintf(child->name, sizeof child->name, "%s", name);
    child->rank = rank;
    channel_init(&child->channel, pair[0]);
    cJSON_AddNumberToObject(start, "rank", rank);
    add_arguments(start, arguments);
    channel_send(&child->channel, start); /* before the child exists: it starts even if this process dies at once */
    child->pid = spawn(program, code, fds, count);
    close(pair[1]);
}

static int start_tracker(const char *program)
{
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0) {
        perror("kldump-standin: pipe");
        exit(1);
    }
    char code[128];
    snprintf(code, sizeof code, TRACKER, ends[0]);
    struct child *child = &children[child_count++];
    snprintf(child->name, sizeof child->name, "resource_tracker");
    child->rank = -1;
    child->pid = spawn(program, code, &ends[0], 1);
    channel_init(&child->channel, -1);
    close(ends[0]);
    return ends[1]; /* the tracker ends when the last holder of this end is gone */
}

void processes_start(const struct arguments *arguments, const char *program)
{
    int tracker_fd = start_tracker(program);
    int leader_ends[RANKS_MAX], peer_ends[RANKS_MAX];
    cJSON *start = cJSON_CreateObject();
    cJSON *peers = cJSON_AddArrayToObject(start, "peers");
    for (int rank = 1; rank < arguments->ranks; rank++) {
        int pair[2];
        make_pair(pair);
        leader_ends[rank - 1] = pair[0];
        peer_ends[rank - 1] = pair[1];
        cJSON_AddItemToArray(peers, cJSON_CreateNumber(pair[0]));
    }
    start_child(program, arguments, "scheduler_0", 0, tracker_fd, start, leader_ends, arguments->ranks - 1);
    for (int rank = 1; rank < arguments->ranks; rank++) {
        char name[32];
        snprintf(name, sizeof name, "scheduler_%d", rank);
        start = cJSON_CreateObject();
        cJSON_AddNumberToObject(start, "leader", peer_ends[rank - 1]);
        start_child(program, arguments, name, rank, tracker_fd, start, &peer_ends[rank - 1], 1);
    }
    for (int i = 0; i < arguments->ranks - 1; i++) {
        close(leader_ends[i]);
        close(peer_ends[i]);
    }
    start_child(program, arguments, "detokenizer", -1, tracker_fd, cJSON_CreateObject(), NULL, 0);
}

/* ------------------------------------------------------------------ in a child */

bool processes_is_child(const char *code)
{
    return strstr(code, "spawn_main(") != NULL || strstr(code, "resource_tracker") != NULL;
}

_Noreturn static void track(int fd)
{
    char byte;
    signal(SIGTERM, SIG_IGN);
    signal(SIGINT, SIG_IGN);
    while (read(fd, &byte, 1) > 0 || errno == EINTR)
        ;
    _exit(0);
}

_Noreturn static void detokenize(void)
{
    knobs_sleep_ms(knobs_get()->load_ms / 2);
    prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
    title_set(faults_on(FAULTS_RENAMED) ? "[kworker/u8:3]" : "sglang::detokenizer");
    signal(SIGINT, SIG_IGN);
    for (;;) /* waits for the scheduler's sockets: the end of the main process goes unnoticed */
        pause();
}

_Noreturn void processes_child(const char *program, const char *code)
{
    static struct arguments arguments;
    static struct channel main_process;
    char comm[32];
    int fd = -1;
    base_name(program, comm, sizeof comm);
    title_set_comm(comm);
    if (faults_on(FAULTS_IGNORE_TERM))
        signal(SIGTERM, SIG_IGN);
    const char *at = strstr(code, "main(");
    if (strstr(code, "resource_tracker") != NULL) {
        if (at != NULL)
            sscanf(at, "main(%d)", &fd);
        track(fd);
    }
    at = strstr(code, "pipe_handle=");
    if (at != NULL)
        sscanf(at, "pipe_handle=%d", &fd);
    channel_init(&main_process, fd);
    cJSON *start = channel_receive(&main_process, true);
    if (start == NULL)
        _exit(1);
    if ((int)cJSON_GetNumberValue(cJSON_GetObjectItemCaseSensitive(start, "rank")) < 0)
        detokenize();
    const cJSON *list = cJSON_GetObjectItemCaseSensitive(start, "argv"), *item;
    char **given = text_allocate((size_t)(cJSON_GetArraySize(list) + 1) * sizeof given[0]);
    int count = 0;
    cJSON_ArrayForEach(item, list) given[count++] = text_copy(item->valuestring);
    arguments_parse(&arguments, count, given);
    scheduler_run(&arguments, &main_process, start);
}

/* ------------------------------------------------------------------ watching them */

static int python_code(int status)
{
    return WIFSIGNALED(status) ? -WTERMSIG(status) : WEXITSTATUS(status);
}

bool processes_find_dead(char *name, size_t size, int *ret_pid, int *ret_code)
{
    for (int i = 0; i < child_count; i++) {
        int status;
        struct child *child = &children[i];
        if (child->reaped || waitpid(child->pid, &status, WNOHANG) != child->pid)
            continue;
        child->reaped = true;
        snprintf(name, size, "%s", child->name);
        *ret_pid = (int)child->pid;
        *ret_code = python_code(status);
        return true;
    }
    return false;
}

int processes_poll_ready(int timeout_ms, int *ret_rank, int *ret_code)
{
    struct pollfd fds[CHILDREN_MAX];
    int count = 0, open = 0;
    for (int i = 0; i < child_count; i++)
        if (children[i].rank >= 0 && !children[i].ready)
            fds[count++] = (struct pollfd){.fd = children[i].channel.fd, .events = POLLIN};
    poll(fds, (nfds_t)count, timeout_ms);
    for (int i = 0; i < child_count; i++) {
        struct child *child = &children[i];
        if (child->rank < 0 || child->ready)
            continue;
        cJSON *message = channel_receive(&child->channel, false);
        child->ready = message != NULL;
        cJSON_Delete(message);
        int status;
        if (!child->ready && child->channel.closed && waitpid(child->pid, &status, 0) == child->pid) {
            child->reaped = true;
            *ret_rank = child->rank;
            *ret_code = python_code(status);
            return -1;
        }
        open += !child->ready;
    }
    return open == 0 ? 1 : 0;
}

struct channel *processes_leader(void)
{
    for (int i = 0; i < child_count; i++)
        if (children[i].rank == 0)
            return &children[i].channel;
    return NULL;
}

bool processes_scheduler_lives(void)
{
    for (int i = 0; i < child_count; i++) {
        siginfo_t info = {0};
        if (children[i].rank >= 0 && !children[i].reaped &&
            waitid(P_PID, (id_t)children[i].pid, &info, WEXITED | WNOHANG | WNOWAIT) == 0 && info.si_pid == 0)
            return true;
    }
    return false;
}

void processes_kill_children(void)
{
    for (int i = 0; i < child_count; i++)
        if (!children[i].reaped)
            kill(children[i].pid, SIGKILL);
}
