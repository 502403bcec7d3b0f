/* server.c: see server.h.
 *
 * Happy path: start the children, wait until every scheduler reports ready, bind the port, send the warm-up request to
 * it as any client would, print the ready line; then wait for signals. Failures: a child raises or dies while loading;
 * the port is taken (found only after loading); a child dies later; SIGTERM while loading has its default action.
 * Lines and exits: SGLang 0.5.23, live; the taken port: H200, 0.5.16, live.
 */
#include "server.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "faults.h"
#include "helpers.h"
#include "http.h"
#include "knobs.h"
#include "log.h"
#include "processes.h"
#include "routes.h"
#include "text.h"
#include "tls.h"
#include "version.h"

enum { OPEN_MAX_REQUESTS = 512, EXIT_PORT_TAKEN = 3 };

static const struct arguments *arguments;
static struct model model;
static volatile sig_atomic_t quit_while_loading;

static struct {
    pthread_mutex_t lock;
    pthread_mutex_t sending;
    pthread_cond_t answered;
    enum server_status status;
    long next_id;
    cJSON *answers; /* replies of the scheduler that nobody has fetched yet */
    char *rids[OPEN_MAX_REQUESTS];
    int open;
    double prefilled; /* tokens */
} shared = {
    .lock = PTHREAD_MUTEX_INITIALIZER, .sending = PTHREAD_MUTEX_INITIALIZER, .answered = PTHREAD_COND_INITIALIZER};

/* ------------------------------------------------------------------ for the routes */

enum server_status server_status(void)
{
    pthread_mutex_lock(&shared.lock);
    enum server_status status = shared.status;
    pthread_mutex_unlock(&shared.lock);
    return status;
}

static void set_status(enum server_status status)
{
    pthread_mutex_lock(&shared.lock);
    shared.status = status;
    pthread_mutex_unlock(&shared.lock);
}

const struct arguments *server_arguments(void)
{
    return arguments;
}

const struct model *server_model(void)
{
    return &model;
}

static cJSON *fetch_answer(long id)
{
    cJSON *item;
    cJSON_ArrayForEach(item, shared.answers)
    {
        if ((long)cJSON_GetNumberValue(cJSON_GetObjectItemCaseSensitive(item, "id")) == id)
            return cJSON_DetachItemViaPointer(shared.answers, item);
    }
    return NULL;
}

static long send_numbered(int replica, cJSON *message)
{
    /* Not under the lock of the answers: the reader must go on while a long message waits for room. */
    pthread_mutex_lock(&shared.sending);
    long id = ++shared.next_id;
    cJSON_AddNumberToObject(message, "id", (double)id);
    channel_send(processes_leader(replica), message);
    pthread_mutex_unlock(&shared.sending);
    return id;
}

/* NULL when `timeout_ms` (negative: none) is over. */
static cJSON *wait_for_answer(long id, long timeout_ms)
{
    struct timespec end;
    cJSON *answer;
    int late = 0;
    clock_gettime(CLOCK_REALTIME, &end);
    end.tv_sec += timeout_ms / 1000 + (end.tv_nsec + timeout_ms % 1000 * 1000000) / 1000000000;
    end.tv_nsec = (end.tv_nsec + timeout_ms % 1000 * 1000000) % 1000000000;
    pthread_mutex_lock(&shared.lock);
    while ((answer = fetch_answer(id)) == NULL && late != ETIMEDOUT) {
        if (timeout_ms < 0)
            pthread_cond_wait(&shared.answered, &shared.lock);
        else
            late = pthread_cond_timedwait(&shared.answered, &shared.lock, &end);
    }
    pthread_mutex_unlock(&shared.lock);
    return answer;
}

static void join_answers(cJSON *whole, cJSON *part)
{
    cJSON *list = cJSON_GetObjectItemCaseSensitive(whole, "answer");
    cJSON *more = cJSON_DetachItemFromObjectCaseSensitive(part, "answer"), *one;
    while (list != NULL && more != NULL && (one = cJSON_DetachItemFromArray(more, 0)) != NULL)
        cJSON_AddItemToArray(list, one);
    cJSON_Delete(more);
}

cJSON *server_ask_all(cJSON *message)
{
    long ids[16];
    int replicas = arguments->replicas;
    cJSON *whole = NULL, *errors = cJSON_CreateArray();
    for (int i = 0; i < replicas; i++)
        ids[i] = send_numbered(i, cJSON_Duplicate(message, true));
    cJSON_Delete(message);
    for (int i = 0; i < replicas; i++) {
        cJSON *reply = wait_for_answer(ids[i], -1);
        cJSON *error = cJSON_DetachItemFromObjectCaseSensitive(reply, "error");
        if (error != NULL)
            cJSON_AddItemToArray(errors, error);
        if (whole == NULL) {
            whole = reply;
            continue;
        }
        join_answers(whole, reply);
        cJSON_Delete(reply);
    }
    if (cJSON_GetArraySize(errors) > 0)
        cJSON_AddItemToObject(whole, "errors", errors);
    else
        cJSON_Delete(errors);
    return whole;
}

void server_probe(cJSON *message)
{
    cJSON_Delete(wait_for_answer(send_numbered(0, message), -1));
}

cJSON *server_ask_for(cJSON *message, int client_fd)
{
    static _Atomic unsigned turn;
    cJSON *answer;
    int replica = (int)(turn++ % (unsigned)arguments->replicas);
    long id = send_numbered(replica, message);
    while ((answer = wait_for_answer(id, 100)) == NULL) {
        struct pollfd client = {.fd = client_fd, .events = POLLRDHUP};
        if (poll(&client, 1, 0) <= 0 || (client.revents & (POLLRDHUP | POLLHUP | POLLERR)) == 0)
            continue;
        cJSON *abort = cJSON_CreateObject();
        cJSON_AddStringToObject(abort, "op", "abort");
        cJSON_AddNumberToObject(abort, "call", (double)id);
        cJSON_Delete(wait_for_answer(send_numbered(replica, abort), -1));
        return NULL;
    }
    return answer;
}

static void *read_answers(void *leader)
{
    cJSON *message;
    while ((message = channel_receive(leader, true)) != NULL) {
        const cJSON *prefilled = cJSON_GetObjectItemCaseSensitive(message, "prefilled");
        pthread_mutex_lock(&shared.lock);
        shared.prefilled += prefilled != NULL ? prefilled->valuedouble : 0;
        cJSON_AddItemToArray(shared.answers, message);
        pthread_cond_broadcast(&shared.answered);
        pthread_mutex_unlock(&shared.lock);
    }
    return NULL;
}

void server_request_begin(const char *rid)
{
    pthread_mutex_lock(&shared.lock);
    if (shared.open < OPEN_MAX_REQUESTS)
        shared.rids[shared.open++] = text_duplicate(rid);
    pthread_mutex_unlock(&shared.lock);
}

void server_request_end(const char *rid)
{
    pthread_mutex_lock(&shared.lock);
    for (int i = 0; i < shared.open; i++) {
        if (strcmp(shared.rids[i], rid) != 0)
            continue;
        free(shared.rids[i]);
        shared.rids[i] = shared.rids[--shared.open];
        break;
    }
    pthread_mutex_unlock(&shared.lock);
}

void server_request_refused(const char *rid)
{
    if (faults_on(FAULTS_DRAIN_STUCK))
        server_request_begin(rid);
}

double server_prefilled(void)
{
    pthread_mutex_lock(&shared.lock);
    double tokens = shared.prefilled;
    pthread_mutex_unlock(&shared.lock);
    return tokens;
}

int server_open_requests(void)
{
    pthread_mutex_lock(&shared.lock);
    int open = shared.open;
    pthread_mutex_unlock(&shared.lock);
    return open;
}

/* ------------------------------------------------------------------ ends */

static char shared_memory[2][64]; /* "": none */

/* Every real server has such files; here only as a fault, so that killed tests leave nothing. */
static void make_shared_memory(void)
{
    static const off_t BYTES[] = {16384, 32};
    if (!faults_on(FAULTS_SHM_LEFT))
        return;
    unsigned pid = (unsigned)getpid();
    snprintf(shared_memory[0], sizeof shared_memory[0], "/dev/shm/sglang_loads_%012x_%08x.shm", pid, pid);
    snprintf(shared_memory[1], sizeof shared_memory[1], "/dev/shm/sem.loky-%u-standin", pid);
    for (size_t i = 0; i < 2; i++) {
        int fd = open(shared_memory[i], O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
        if (fd < 0 || ftruncate(fd, BYTES[i]) != 0)
            log_line("kldump-standin: cannot make %s: %s", shared_memory[i], strerror(errno));
        if (fd >= 0)
            close(fd);
    }
}

_Noreturn static void kill_all_and_self(void)
{
    log_line("kill_process_tree called: parent_pid=%d, include_parent=True, pid=%d", (int)getpid(), (int)getpid());
    processes_kill_children();
    kill(getpid(), SIGKILL);
    for (;;)
        pause();
}

_Noreturn static void crash_while_serving(void)
{
    log_line("SIGQUIT received. signum=None, frame=None. It usually means one child failed.");
    if (version_number() >= 514) {
        log_line("Sleeping 5 seconds before crash diagnostics to let GPU activity settle.");
        knobs_sleep_ms(knobs_get()->crash_ms);
        if (processes_scheduler_lives() && strcmp(arguments->device, "cuda") == 0) {
            log_line("Waiting 60.0 seconds for CUDA coredumps before exiting");
            knobs_sleep_ms(knobs_get()->coredump_ms);
        } else {
            log_line("No live scheduler processes found; skipping py-spy and CUDA coredump.");
        }
    }
    kill_all_and_self();
}

_Noreturn static void shut_down(int status)
{
    int pid = (int)getpid();
    log_line("kill_process_tree called: parent_pid=%d, include_parent=False, pid=%d", pid, pid);
    processes_kill_children();
    for (size_t i = 0; i < 2; i++)
        if (shared_memory[i][0] != '\0')
            unlink(shared_memory[i]);
    log_line("INFO:     Shutting down");
    log_line("INFO:     Waiting for application shutdown.");
    log_line("INFO:     Application shutdown complete.");
    log_line("INFO:     Finished server process [%d]", pid);
    log_line("kill_process_tree called: parent_pid=%d, include_parent=False, pid=%d", pid, pid);
    _exit(status);
}

/* ------------------------------------------------------------------ loading */

static void on_quit(int signal_number)
{
    (void)signal_number;
    quit_while_loading = 1;
}

static void first_lines(void)
{
    struct text given;
    text_init(&given);
    for (int i = 0; i < arguments->count; i++)
        text_format(&given, "%s'%s'", i > 0 ? ", " : "", arguments->given[i]);
    if (version_number() >= 516)
        fputs("sglang/launch_server.py:71: UserWarning: 'python -m sglang.launch_server' is still supported, but "
              "'sglang serve' is the recommended entrypoint.\n",
              stderr);
    if (arguments_given("--disable-cuda-graph", NULL) && version_number() >= 514)
        log_line("\033[1;33m'--disable-cuda-graph' is deprecated and will be removed in a future release. Use "
                 "'--cuda-graph-backend-{decode,prefill}=disabled' instead.\033[0m");
    if (strcmp(arguments->attention_backend, "torch_native") == 0)
        log_line("Cuda graph is disabled because of using torch native attention backend");
    const char *key = arguments->api_key;
    log_line(
        "server_args={'model_path': '%s', 'host': '%s', 'port': %d, 'tp_size': %d, 'api_key': %s%s%s, 'argv': [%s]}",
        arguments->model_path, arguments->host, arguments->port, arguments->tensor, key != NULL ? "'" : "",
        key != NULL ? key : "None", key != NULL ? "'" : "", given.data != NULL ? given.data : "");
    text_fini(&given);
}

_Noreturn static void died_while_loading(int rank, int code)
{
    log_line("Rank %d scheduler is dead. Please check if there are relevant logs.", rank);
    fprintf(stderr,
            "Traceback (most recent call last):\nRuntimeError: Rank %d scheduler died during initialization "
            "(exit code: %d). If exit code is -9 (SIGKILL), a common cause is the OS OOM killer.\n",
            rank, code);
    processes_kill_children();
    exit(1);
}

static void wait_until_loaded(void)
{
    int rank = 0, code = 0, ready = 0;
    double begun = knobs_seconds();
    while (ready == 0) {
        ready = processes_poll_ready(5, &rank, &code);
        if (faults_on(FAULTS_ORPHANS) && (knobs_seconds() - begun) * 1000 > (double)knobs_get()->load_ms / 4)
            kill(getpid(), SIGKILL);
        if (quit_while_loading) {
            log_line("Received sigquit from a child process. It usually means the child failed.");
            kill_all_and_self();
        }
    }
    if (ready < 0)
        died_while_loading(rank, code);
}

/* ------------------------------------------------------------------ serving */

static void *serve(void *listener)
{
    http_serve(*(const int *)listener, routes_handle);
    return NULL;
}

static bool warm_up(void)
{
    static const char TEXT[] = "{\"text\":\"The capital city of France is\",\"sampling_params\":{\"temperature\":0,"
                               "\"max_new_tokens\":8}}";
    static const char IDS[] = "{\"input_ids\":[10,11,12],\"sampling_params\":{\"temperature\":0,\"max_new_tokens\":8}}";
    static const char HALF[] = "{\"input_ids\":[10,11,12,13],\"bootstrap_host\":\"2.2.2.2\",\"bootstrap_room\":0,"
                               "\"sampling_params\":{\"temperature\":0,\"max_new_tokens\":8}}";
    const char *key = arguments->api_key;
    bool half = strcmp(arguments->role, "null") != 0;
    const char *body = half ? HALF : arguments_given("--skip-tokenizer-init", NULL) ? IDS : TEXT;
    knobs_sleep_ms(knobs_get()->start_ms);
    if (http_call(arguments->host, arguments->port, "GET", "/model_info", "", key) != 200)
        return false;
    for (int i = 0; i < arguments->replicas; i++)
        if (http_call(arguments->host, arguments->port, "POST", "/generate", body, key) != 200)
            return false;
    if (version_number() >= 512)
        http_call(arguments->host, arguments->port, "POST", "/freeze_gc", "", key);
    return true;
}

static void *start_up(void *unused)
{
    (void)unused;
    while (faults_on(FAULTS_HANG_STARTING))
        pause();
    if (!arguments_given("--skip-server-warmup", NULL) && !warm_up()) {
        log_line("Initialization failed. warmup error: the server did not answer its own request");
        kill_all_and_self();
    }
    pthread_mutex_lock(&shared.lock);
    if (shared.status == SERVER_STARTING)
        shared.status = SERVER_UP;
    pthread_mutex_unlock(&shared.lock);
    log_line("The server is fired up and ready to roll!");
    if (faults_on(FAULTS_FIRED_UP_THEN_EXIT))
        _exit(EXIT_PORT_TAKEN); /* the children die with their parent */
    return NULL;
}

/* The warm-up goes to whoever owns the port, and the ready line is printed all the same. */
_Noreturn static void port_taken(int error)
{
    log_line("ERROR:    [Errno %d] error while attempting to bind on address ('%s', %d): %s", error, arguments->host,
             arguments->port, error == EADDRINUSE ? "address already in use" : strerror(error));
    warm_up();
    log_line("The server is fired up and ready to roll!");
    processes_kill_children();
    _exit(EXIT_PORT_TAKEN);
}

static void open_port(void)
{
    static int listener;
    int pid = (int)getpid();
    log_line("Engine startup timings (s): load_weight=0.08, kv_cache_allocation=0.68, scheduler_e2e=3.00, "
             "cuda_graph={prefill=0.00, decode=0.00, target_verify=0.00, draft_prefill=0.00, draft_decode=0.00, "
             "draft_extend=0.00}, tokenizer_e2e=32.85");
    log_line("INFO:     Started server process [%d]", pid);
    log_line("INFO:     Waiting for application startup.");
    log_line("INFO:     Application startup complete.");
    listener = http_listen(arguments->host, arguments->port);
    if (listener < 0)
        port_taken(errno);
    log_line("INFO:     Uvicorn running on http%s://%s:%d (Press CTRL+C to quit)", tls_on() ? "s" : "", arguments->host,
             arguments->port);
    pthread_t thread;
    if (pthread_create(&thread, NULL, serve, &listener) != 0 || pthread_create(&thread, NULL, start_up, NULL) != 0)
        kill_all_and_self();
}

/* ------------------------------------------------------------------ waiting for the end */

static void remaining(struct text *list)
{
    pthread_mutex_lock(&shared.lock);
    for (int i = 0; i < shared.open; i++)
        text_format(list, "%s'%s'", i > 0 ? ", " : "", shared.rids[i]);
    pthread_mutex_unlock(&shared.lock);
}

static void drain_step(double since, double *last_line)
{
    double now = knobs_seconds();
    double pause_s = (double)knobs_get()->term_ms / 1000;
    if (now - since < pause_s || now - *last_line < pause_s)
        return;
    struct text rids;
    text_init(&rids);
    remaining(&rids);
    int open = server_open_requests();
    log_line("Gracefully exiting... Remaining number of requests %d. Remaining requests remaining_rids=[%s].", open,
             rids.data != NULL ? rids.data : "");
    text_fini(&rids);
    *last_line = now;
    if (open > 0)
        return;
    if (version_rules()->graceful_exit)
        shut_down(0);
    kill_all_and_self();
}

static void look_for_dead_children(void)
{
    char name[32];
    int pid, code;
    if (!processes_find_dead(name, sizeof name, &pid, &code) || strcmp(name, "resource_tracker") == 0)
        return;
    /* One that raised has told by SIGQUIT and ended with 0. */
    if (code == 0)
        return;
    log_line("Subprocess %s (pid=%d) crashed with exit code %d. Triggering SIGQUIT for cleanup...", name, pid, code);
    crash_while_serving();
}

_Noreturn static void wait_for_signals(void)
{
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGTERM);
    sigaddset(&set, SIGINT);
    sigaddset(&set, SIGQUIT);
    double draining_since = 0, last_line = 0;
    for (;;) {
        struct timespec tick = {.tv_nsec = 20000000};
        int number = sigtimedwait(&set, NULL, &tick);
        if (number == SIGQUIT)
            crash_while_serving();
        if (number == SIGINT)
            shut_down(0);
        if (number == SIGTERM && draining_since <= 0 && !faults_on(FAULTS_IGNORE_TERM)) {
            log_line("SIGTERM received. signum=None frame=None. Draining requests and shutting down...");
            draining_since = last_line = knobs_seconds();
            set_status(SERVER_DRAINING);
        }
        if (draining_since > 0)
            drain_step(draining_since, &last_line);
        look_for_dead_children();
    }
}

_Noreturn void server_run(const struct arguments *given, const char *program)
{
    arguments = given;
    signal(SIGPIPE, SIG_IGN);
    if (faults_on(FAULTS_IGNORE_TERM))
        signal(SIGTERM, SIG_IGN);
    signal(SIGQUIT, on_quit);
    shared.answers = cJSON_CreateArray();
    model_load(&model, arguments->model_path, arguments->dtype);
    if (arguments->context > 0)
        model.context = arguments->context;
    first_lines();
    helpers_print();
    make_shared_memory();
    processes_start(arguments, program);
    wait_until_loaded();

    /* From here on the three signals are taken by this thread alone; those that follow inherit the mask. */
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGTERM);
    sigaddset(&set, SIGINT);
    sigaddset(&set, SIGQUIT);
    pthread_sigmask(SIG_BLOCK, &set, NULL);
    pthread_t thread;
    for (int i = 0; i < arguments->replicas; i++)
        if (pthread_create(&thread, NULL, read_answers, processes_leader(i)) != 0)
            kill_all_and_self();
    open_port();
    wait_for_signals();
}
