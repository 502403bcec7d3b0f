/* scheduler.c: see scheduler.h.
 *
 * Happy path: load, report `ready` to the main process, then loop {take messages; one prefill pass over what waits, or
 * one decode pass over what runs; answer}. Rank 0 leads: it sends each pass to the other ranks and waits for them, so
 * a control call lands between two passes. Failures: an exception in a pass or in loading = scheduler_raise(); the
 * main process gone = the same with BrokenPipeError, which reaches whoever is the parent by then.
 */
#include "scheduler.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "dumper.h"
#include "faults.h"
#include "helpers.h"
#include "knobs.h"
#include "log.h"
#include "passes.h"
#include "ranks.h"
#include "request.h"
#include "text.h"
#include "title.h"
#include "version.h"

static const struct arguments *arguments;
static struct model model;
static struct channel *main_process;
static struct channel leader;
static int rank, replica;
static pid_t first_parent;

/* An exception: the traceback, SIGQUIT to the parent, then the process ends by itself with 0 (SGLang 0.5.23, live). */
_Noreturn static void scheduler_raise(const char *message)
{
    if (strcmp(message, "Watchdog timeout") == 0)
        log_line("Scheduler watchdog timeout (self.watchdog_timeout=300.0, self.soft=False)");
    else
        log_line("Scheduler hit an exception: Traceback (most recent call last):\n"
                 "  File \"sglang/srt/managers/scheduler.py\", line 1, in run_scheduler_process\n%s\n",
                 message);
    if (getppid() != first_parent && faults_on(FAULTS_LATE_QUIT))
        knobs_sleep_ms((long)faults_number(FAULTS_LATE_QUIT));
    pid_t parent = getppid();
    /* Orphans of the real server send it to their new parent too. Never to process 1: systemd would dump core. */
    if (parent > 1)
        kill(parent, SIGQUIT);
    knobs_sleep_ms(20);
    _exit(0);
}

/* ------------------------------------------------------------------ loading */

static void set_role(void)
{
    char title[96], under[64] = "", role[32] = "";
    int used = 0, replicas = arguments->attention_replicas, tensor_rank = rank % arguments->tensor;
    if (arguments->replicas > 1)
        used += snprintf(role, sizeof role, " DP%d", replica);
    else if (replicas > 0)
        used += snprintf(role, sizeof role, " DP%d", tensor_rank / (arguments->tensor / replicas));
    if (arguments->stages > 1)
        used += snprintf(role + used, sizeof role - (size_t)used, " PP%d", rank / arguments->tensor);
    if (arguments->tensor > 1)
        snprintf(role + used, sizeof role - (size_t)used, " TP%d", tensor_rank);
    snprintf(under, sizeof under, "%s", role);
    for (char *at = under; *at != '\0'; at++)
        *at = (char)(*at == ' ' ? '_' : *at);
    snprintf(title, sizeof title, "sglang::scheduler%s", under);
    title_set(faults_on(FAULTS_RENAMED) ? "[kworker/0:1-events]" : title);
    log_set_role(role);
}

static void loading_faults(void)
{
    if (faults_on(FAULTS_CRASH_LOADING))
        scheduler_raise("RuntimeError: the weights do not fit the model");
    if (faults_on(FAULTS_EXIT_LOADING))
        _exit((int)faults_number(FAULTS_EXIT_LOADING));
    while (faults_on(FAULTS_HANG_LOADING))
        pause();
}

/* Graph settings that do not survive their capture (0.5.16 on an H200; compile on a CPU: 0.5.23). */
static void capture(void)
{
    if (strcmp(arguments->decode_graph, "breakable") == 0 && arguments_given("--cuda-graph-backend-decode", NULL))
        scheduler_raise("RuntimeError: Offset increment outside graph capture encountered unexpectedly.");
    if (strcmp(arguments->prefill_graph, "full") == 0 && arguments_given("--cuda-graph-backend-prefill", NULL))
        scheduler_raise("RuntimeError: CUDA error: operation not permitted when stream is capturing");
    if (strcmp(arguments->device, "cpu") == 0 && arguments_given("--enable-torch-compile", NULL)) {
        log_line("Capture target decode CPU graph begin. backend=disabled");
        scheduler_raise("AttributeError: 'TorchNativeAttnBackend' object has no attribute 'init_cpu_graph_state'");
    }
}

/* With dumping on from the start the hooks fire in each capture (0.5.16 on an H200). */
static void capture_under_hooks(void)
{
    enum { CAPTURES = 3, TOKENS = 4 };
    const int64_t numbers[TOKENS] = {0}, last = TOKENS - 1, length = TOKENS;
    const struct forward_pass pass = {.kind = FORWARD_EAGER,
                                      .token_count = TOKENS,
                                      .input_ids = numbers,
                                      .positions = numbers,
                                      .request_count = 1,
                                      .sequence_lengths = &length,
                                      .pool_indices = numbers,
                                      .contexts = numbers,
                                      .last_rows = &last};
    bool graphs = strcmp(arguments->decode_graph, "disabled") != 0 || strcmp(arguments->prefill_graph, "disabled") != 0;
    for (int i = 0; graphs && dumper_enabled() && i < CAPTURES; i++)
        dumper_capture(&pass);
}

static void load(void)
{
    const char *message = NULL;
    long half = knobs_get()->load_ms / 2;
    knobs_sleep_ms(half); /* imports: no title, and the death of the parent goes unnoticed */
    prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
    set_role();
    signal(SIGINT, SIG_IGN);
    log_line("Init parallel begin.");
    log_line("Init parallel ends. elapsed=0.07 s");
    log_line("Load weight begin. avail mem=22.04 GB");
    loading_faults();
    knobs_sleep_ms(half);
    log_line("Load weight end. elapsed=0.08 s, type=%s, avail mem=22.04 GB, mem usage=0.00 GB.", model.architecture);
    const char *device = strcmp(arguments->device, "cpu") == 0 ? "cpu" : "cuda:0";
    if (!dumper_init(&model, device, rank, arguments, &message))
        scheduler_raise(message);
    dumper_register_hooks();
    if (dumper_has_control()) {
        const char *address = faults_on(FAULTS_NO_ADDRESS) ? "None" : "127.0.0.1";
        int port = 40000 + (int)getpid() % 10000;
        log_dumper(rank, "[ZmqRpc] server started at tcp://%s:%d", address, port);
        log_dumper(rank, "[ZmqRpc] all_addresses=['tcp://%s:%d']", address, port);
        if (rank == 0)
            log_dumper(rank, "Standalone HTTP server disabled, reusing existing ports");
    }
    log_line("KV Cache is allocated. dtype: %s, #tokens: %zu, K size: 0.00 GB, V size: 0.00 GB",
             torch_file_type_name(model.type_of_values), arguments->max_total_tokens);
    log_line("Memory pool end. avail mem=22.02 GB");
    if (strcmp(arguments->prefill_graph, "disabled") == 0)
        log_line("Disable prefill CUDA graph because cuda_graph_config resolved prefill.backend='disabled' (e.g. via "
                 "--cuda-graph-backend-prefill=disabled or auto-disable rules).");
    else
        log_line("Capture target prefill CUDA graph begin. backend=%s", arguments->prefill_graph);
    if (strcmp(arguments->decode_graph, "disabled") != 0)
        log_line("Capture target decode CUDA graph begin. backend=%s", arguments->decode_graph);
    capture();
    capture_under_hooks();
    log_line("max_total_num_tokens=%zu, chunked_prefill_size=%ld, max_prefill_tokens=16384, max_running_requests=%zu, "
             "context_len=%zu, available_gpu_mem=22.02 GB",
             arguments->max_total_tokens, arguments->chunked_prefill_size, arguments->max_running_requests,
             model.context);
    if (rank == 0)
        log_line("Tree cache initialized: source=default impl=UnifiedRadixCache hybrid_swa=False hybrid_ssm=False "
                 "hicache_attached=False");
}

static void report_ready(void)
{
    cJSON *ready = cJSON_CreateObject();
    cJSON_AddStringToObject(ready, "op", "ready");
    cJSON_AddNumberToObject(ready, "pid", (double)getpid());
    if (!channel_send(main_process, ready))
        scheduler_raise("BrokenPipeError: [Errno 32] Broken pipe");
}

/* ------------------------------------------------------------------ control */

static void add_error(cJSON *reply, int on_rank, const char *error)
{
    char text[700];
    snprintf(text, sizeof text, "RPC error on rank-%d: %s", on_rank, error);
    log_print("[Scheduler] handle_dumper_control error: %s", text);
    cJSON_DeleteItemFromObject(reply, "answer");
    cJSON_AddStringToObject(reply, "error", text);
}

/* Ranks in order; those after a failing one are not asked. */
static cJSON *control_all(const cJSON *message)
{
    const char *method = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(message, "method"));
    const cJSON *body = cJSON_GetObjectItemCaseSensitive(message, "body");
    cJSON *reply = cJSON_CreateObject();
    cJSON *answers = cJSON_AddArrayToObject(reply, "answer");
    const char *error = NULL;
    cJSON *own = dumper_control(method != NULL ? method : "", body, &error);
    if (error != NULL) {
        add_error(reply, 0, error);
        return reply;
    }
    cJSON_AddItemToArray(answers, own);
    for (int i = 1; i < arguments->ranks; i++) {
        cJSON *theirs = ranks_ask(i, cJSON_Duplicate(message, true));
        const char *text = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(theirs, "error"));
        if (text != NULL)
            add_error(reply, i, text);
        else
            cJSON_AddItemToArray(answers, cJSON_DetachItemFromObjectCaseSensitive(theirs, "answer"));
        cJSON_Delete(theirs);
        if (text != NULL)
            break;
    }
    return reply;
}

static void reply_to(long id, cJSON *reply)
{
    cJSON_AddNumberToObject(reply, "id", (double)id);
    channel_send(main_process, reply);
}

static bool never_answers(const cJSON *message)
{
    const char *method = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(message, "method"));
    if (faults_on(FAULTS_NO_ADDRESS))
        return true;
    return faults_on(FAULTS_CONTROL_HANG) && method != NULL && strcmp(method, "get_state") == 0 && dumper_enabled();
}

static void on_message(const cJSON *message)
{
    const char *op = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(message, "op"));
    long id = (long)cJSON_GetNumberValue(cJSON_GetObjectItemCaseSensitive(message, "id"));
    if (op == NULL)
        return;
    if (strcmp(op, "generate") == 0) {
        passes_accept(id, message);
    } else if (strcmp(op, "control") == 0) {
        if (!never_answers(message))
            reply_to(id, control_all(message));
    } else if (strcmp(op, "flush") == 0) {
        bool idle = !passes_busy();
        if (idle) {
            request_cache_clear();
            ranks_log("Cache flushed successfully!");
        }
        cJSON *reply = cJSON_CreateObject();
        cJSON_AddBoolToObject(reply, "ok", idle);
        passes_tell_prefilled(reply);
        reply_to(id, reply);
    } else if (strcmp(op, "abort") == 0) {
        passes_abort((long)cJSON_GetNumberValue(cJSON_GetObjectItemCaseSensitive(message, "call")));
        reply_to(id, cJSON_CreateObject());
    } else if (strcmp(op, "exit") == 0) {
        _exit(0);
    }
}

/* ------------------------------------------------------------------ loops */

_Noreturn static void lead(const cJSON *start)
{
    int peers[16], count = 0;
    const cJSON *item;
    cJSON_ArrayForEach(item, cJSON_GetObjectItemCaseSensitive(start, "peers"))
    {
        if (count < 16)
            peers[count++] = item->valueint;
    }
    passes_init(arguments, &model, main_process, peers, count);
    helpers_start();
    report_ready();
    for (;;) {
        cJSON *message;
        while ((message = channel_receive(main_process, !passes_busy())) != NULL) {
            on_message(message);
            cJSON_Delete(message);
        }
        if (main_process->closed)
            _exit(0);
        const char *error = NULL;
        if (!passes_step(&error))
            scheduler_raise(error);
    }
}

_Noreturn static void follow(void)
{
    report_ready();
    for (;;) {
        cJSON *message = channel_receive(&leader, true);
        if (message == NULL)
            _exit(0);
        const char *op = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(message, "op"));
        const char *error = NULL;
        cJSON *reply = cJSON_CreateObject();
        if (op != NULL && strcmp(op, "pass") == 0) {
            if (!ranks_repeat(message, &error))
                scheduler_raise(error);
        } else if (op != NULL && strcmp(op, "log") == 0) {
            log_line("%s", cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(message, "line")));
        } else {
            const char *method = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(message, "method"));
            cJSON *answer =
                dumper_control(method != NULL ? method : "", cJSON_GetObjectItemCaseSensitive(message, "body"), &error);
            if (error != NULL)
                cJSON_AddStringToObject(reply, "error", error);
            else
                cJSON_AddItemToObject(reply, "answer", answer);
        }
        cJSON_Delete(message);
        channel_send(&leader, reply);
    }
}

_Noreturn void scheduler_run(const struct arguments *given, struct channel *channel, const cJSON *start)
{
    arguments = given;
    main_process = channel;
    first_parent = getppid();
    rank = (int)cJSON_GetNumberValue(cJSON_GetObjectItemCaseSensitive(start, "rank"));
    replica = (int)cJSON_GetNumberValue(cJSON_GetObjectItemCaseSensitive(start, "replica"));
    model_load(&model, arguments->model_path, arguments->dtype);
    if (arguments->context > 0)
        model.context = arguments->context;
    model.page_size = arguments->page_size;
    load();
    if (rank == 0)
        lead(start);
    channel_init(&leader, cJSON_GetObjectItemCaseSensitive(start, "leader")->valueint);
    follow();
}
