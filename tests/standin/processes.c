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
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "faults.h"
#include "knobs.h"
#include "log.h"
#include "scheduler.h"
#include "text.h"
#include "title.h"

enum { RANKS_MAX = 16, CHILDREN_MAX = RANKS_MAX + 3 };

static const char SPAWN[] = "from multiprocessing.spawn import spawn_main; spawn_main(tracker_fd=%d, pipe_handle=%d)";
static const char TRACKER[] = "from multiprocessing.resource_tracker import main;main(%d)";

struct child {
    char name[32];
    pid_t pid;   /* 0: not our child, or not yet */
    pid_t told;  /* a child of the controller's, by its own word */
    int replica; /* with `rank` */
    int rank;    /* -1: no scheduler */
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
    char *argv[] = {text_duplicate(program), text_duplicate("-c"), text_duplicate(code),
                    strstr(code, "spawn_main") != NULL ? text_duplicate("--multiprocessing-fork") : NULL, NULL};
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

static struct child *add_child(const char *name, int replica, int rank)
{
    struct child *child = &children[child_count++];
    snprintf(child->name, sizeof child->name, "%s", name);
    child->replica = replica;
    child->rank = rank;
    return child;
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
    struct child *child = add_child("resource_tracker", -1, -1);
    child->pid = spawn(program, code, &ends[0], 1);
    channel_init(&child->channel, -1);
    close(ends[0]);
    return ends[1]; /* the tracker ends when the last holder of this end is gone */
}

/* What a child is to be, sent before it exists: it starts even if this process dies at once. fds[0] is its end. */
static struct child *prepare_child(const char *name, int replica, int rank, const struct arguments *arguments,
                                   cJSON *start, int *fds)
{
    int pair[2];
    make_pair(pair);
    fds[0] = pair[1];
    struct child *child = add_child(name, replica, rank);
    channel_init(&child->channel, pair[0]);
    cJSON_AddNumberToObject(start, "rank", rank);
    cJSON_AddNumberToObject(start, "replica", replica);
    add_arguments(start, arguments);
    channel_send(&child->channel, start);
    return child;
}

static pid_t spawn_child(const char *program, int tracker_fd, const int *fds, int count)
{
    char code[160];
    int kept[RANKS_MAX + 4];
    memcpy(kept, fds, (size_t)count * sizeof fds[0]);
    kept[count] = tracker_fd;
    snprintf(code, sizeof code, SPAWN, tracker_fd, fds[0]);
    return spawn(program, code, kept, count + 1);
}

/* One scheduler that is yet to be spawned, here or by the controller of the replicas. */
struct planned {
    struct child *child;
    int fds[RANKS_MAX + 4];
    int count;
};

static int plan_world(const struct arguments *arguments, int replica, struct planned *planned)
{
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
    for (int rank = 0; rank < arguments->ranks; rank++) {
        char name[32];
        snprintf(name, sizeof name, "scheduler_%d", rank);
        if (rank > 0) {
            start = cJSON_CreateObject();
            cJSON_AddNumberToObject(start, "leader", peer_ends[rank - 1]);
        }
        struct planned *one = &planned[rank];
        one->child = prepare_child(name, replica, rank, arguments, start, one->fds);
        one->count = rank == 0 ? arguments->ranks : 2;
        memcpy(one->fds + 1, rank == 0 ? leader_ends : &peer_ends[rank - 1],
               (size_t)(one->count - 1) * sizeof one->fds[0]);
    }
    return arguments->ranks;
}

/* Several replicas have a parent of their own, which is all of them that the main process watches. */
static void start_controller(const char *program, const struct arguments *arguments, int tracker_fd,
                             const struct planned *planned, int count)
{
    cJSON *start = cJSON_CreateObject(), *list = cJSON_AddArrayToObject(start, "spawn");
    int fds[256], used = 1;
    for (int i = 0; i < count; i++) {
        cJSON_AddItemToArray(list, cJSON_CreateIntArray(planned[i].fds, planned[i].count));
        memcpy(fds + used, planned[i].fds, (size_t)planned[i].count * sizeof fds[0]);
        used += planned[i].count;
    }
    cJSON_AddNumberToObject(start, "tracker", tracker_fd);
    struct child *child = prepare_child("data_parallel_controller", -1, -1, arguments, start, fds);
    char code[160];
    fds[used++] = tracker_fd;
    snprintf(code, sizeof code, SPAWN, tracker_fd, fds[0]);
    child->pid = spawn(program, code, fds, used);
    close(fds[0]);
}

void processes_start(const struct arguments *arguments, const char *program)
{
    static struct planned planned[RANKS_MAX];
    int tracker_fd = start_tracker(program), count = 0, fd;
    for (int i = 0; i < arguments->replicas; i++)
        count += plan_world(arguments, i, planned + count);
    if (arguments->replicas > 1 || arguments->attention_replicas > 0)
        start_controller(program, arguments, tracker_fd, planned, count);
    else
        for (int i = 0; i < count; i++)
            planned[i].child->pid = spawn_child(program, tracker_fd, planned[i].fds, planned[i].count);
    for (int i = 0; i < count; i++)
        for (int k = 0; k < planned[i].count; k++)
            close(planned[i].fds[k]);
    struct child *child = prepare_child("detokenizer", -1, -1, arguments, cJSON_CreateObject(), &fd);
    child->pid = spawn_child(program, tracker_fd, &fd, 1);
    close(fd);
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

static void die_by_quit(int signal_number)
{
    signal(signal_number, SIG_DFL);
    raise(signal_number);
}

_Noreturn static void control_replicas(const char *program, const cJSON *start)
{
    static const struct rlimit NO_CORE = {0};
    const cJSON *one, *fd;
    int tracker = cJSON_GetObjectItemCaseSensitive(start, "tracker")->valueint;
    setrlimit(RLIMIT_CORE, &NO_CORE); /* SIGQUIT of a scheduler ends this process */
    signal(SIGQUIT, die_by_quit);
    cJSON_ArrayForEach(one, cJSON_GetObjectItemCaseSensitive(start, "spawn"))
    {
        cJSON_ArrayForEach(fd, one) fcntl(fd->valueint, F_SETFD, FD_CLOEXEC);
    }
    cJSON_ArrayForEach(one, cJSON_GetObjectItemCaseSensitive(start, "spawn"))
    {
        int fds[RANKS_MAX + 4], count = 0;
        cJSON_ArrayForEach(fd, one) fds[count++] = fd->valueint;
        spawn_child(program, tracker, fds, count);
    }
    cJSON_ArrayForEach(one, cJSON_GetObjectItemCaseSensitive(start, "spawn"))
    {
        cJSON_ArrayForEach(fd, one) close(fd->valueint);
    }
    knobs_sleep_ms(knobs_get()->load_ms / 2);
    prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
    title_set(faults_on(FAULTS_RENAMED) ? "[kworker/2:0]" : "sglang::data_parallel_controller");
    signal(SIGINT, SIG_IGN);
    signal(SIGCHLD, SIG_IGN);
    for (;;) /* a scheduler's end goes unnoticed */
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
    if (cJSON_HasObjectItem(start, "spawn"))
        control_replicas(program, start);
    if ((int)cJSON_GetNumberValue(cJSON_GetObjectItemCaseSensitive(start, "rank")) < 0)
        detokenize();
    const cJSON *list = cJSON_GetObjectItemCaseSensitive(start, "argv"), *item;
    char **given = text_allocate((size_t)(cJSON_GetArraySize(list) + 1) * sizeof given[0]);
    int count = 0;
    cJSON_ArrayForEach(item, list) given[count++] = text_duplicate(item->valuestring);
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
        if (child->reaped || child->pid == 0 || waitpid(child->pid, &status, WNOHANG) != child->pid)
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
        if (child->ready)
            child->told = (pid_t)cJSON_GetNumberValue(cJSON_GetObjectItemCaseSensitive(message, "pid"));
        cJSON_Delete(message);
        int status = SIGKILL; /* of one that is not our child nothing else is known */
        if (!child->ready && child->channel.closed &&
            (child->pid == 0 || waitpid(child->pid, &status, 0) == child->pid)) {
            child->reaped = child->pid != 0;
            *ret_rank = child->rank;
            *ret_code = python_code(status);
            return -1;
        }
        open += !child->ready;
    }
    return open == 0 ? 1 : 0;
}

struct channel *processes_leader(int replica)
{
    for (int i = 0; i < child_count; i++)
        if (children[i].rank == 0 && children[i].replica == replica)
            return &children[i].channel;
    return NULL;
}

bool processes_scheduler_lives(void)
{
    for (int i = 0; i < child_count; i++) {
        siginfo_t info = {0};
        if (children[i].rank >= 0 && children[i].pid == 0 && kill(children[i].told, 0) == 0)
            return true;
        if (children[i].rank >= 0 && children[i].pid != 0 && !children[i].reaped &&
            waitid(P_PID, (id_t)children[i].pid, &info, WEXITED | WNOHANG | WNOWAIT) == 0 && info.si_pid == 0)
            return true;
    }
    return false;
}

void processes_kill_children(void)
{
    for (int i = 0; i < child_count; i++) {
        pid_t pid = children[i].pid != 0 ? children[i].pid : children[i].told;
        if (!children[i].reaped && pid > 0)
            kill(pid, SIGKILL);
    }
}
