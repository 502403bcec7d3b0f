/* passes.c: see passes.h. */
#include "passes.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "dumper.h"
#include "faults.h"
#include "forward.h"
#include "knobs.h"
#include "log.h"
#include "operators.h"
#include "ranks.h"
#include "request.h"
#include "state_probe.h"
#include "text.h"
#include "version.h"

enum { BATCH_MAX = 256 };

static const struct arguments *arguments;
static const struct model *model;
static struct channel *main_process;

static struct request *waiting; /* in order of arrival */
static struct request *running;
static unsigned long decode_count;
static double prefilled; /* tokens, since they were last told */

/* ------------------------------------------------------------------ lists */

static void append(struct request **list, struct request *request)
{
    while (*list != NULL)
        list = &(*list)->next;
    request->next = NULL;
    *list = request;
}

static void take_out(struct request **list, const struct request *request)
{
    while (*list != NULL && *list != request)
        list = &(*list)->next;
    if (*list != NULL)
        *list = request->next;
}

bool passes_busy(void)
{
    return waiting != NULL || running != NULL;
}

void passes_init(const struct arguments *given, const struct model *played, struct channel *channel, const int *fds,
                 int count)
{
    arguments = given;
    model = played;
    main_process = channel;
    ranks_init(arguments, fds, count);
    request_pool_init(arguments->max_running_requests);
}

/* ------------------------------------------------------------------ building a batch */

struct batch {
    struct request *requests[BATCH_MAX];
    size_t spans[BATCH_MAX]; /* tokens of each request in this pass */
    size_t count;
};

enum what { PREFILL, DECODE, TRANSFER };

static bool batch_wants_logprobs(const struct batch *batch)
{
    for (size_t i = 0; i < batch->count; i++)
        if (!batch->requests[i]->return_logprob)
            return false;
    return true;
}

/* What a pass over this batch raises in some release or with some flag (0.5.23, 0.5.12 on a CPU, 0.5.16 on an H200). */
static const char *what_kills(const struct batch *batch, bool ids_known)
{
    bool logprobs = false;
    for (size_t i = 0; i < batch->count; i++) {
        const struct request *request = batch->requests[i];
        logprobs = logprobs || (request->return_logprob && request->logprob_start >= 0);
    }
    if (!ids_known)
        return "IndexError: index out of range in self";
    if (version_number() == 512 && logprobs && strcmp(arguments->device, "cpu") == 0)
        return "RuntimeError: Found no NVIDIA driver on your system.";
    if (version_number() >= 514 && strcmp(arguments->prefill_graph, "tc_piecewise") == 0 && dumper_enabled() &&
        !batch_wants_logprobs(batch))
        return "torch._dynamo.exc.Unsupported: Attempted to call function marked as skipped";
    return NULL;
}

/* The arrays of a pass over a batch; to be freed with free_rows. */
struct rows {
    size_t count;  /* of tokens */
    size_t padded; /* to the size of a graph */
    bool known;    /* an id beyond the vocabulary kills the server (SGLang 0.5.23, live) */
    int64_t *input_ids, *positions, *contexts;
    int64_t lengths[BATCH_MAX], pool[BATCH_MAX], last[BATCH_MAX];
    const char *rids[BATCH_MAX];
};

static void make_rows(const struct batch *batch, bool padded, struct rows *rows)
{
    size_t context = 0, row = 0, place = 0;
    *rows = (struct rows){.known = true};
    for (size_t i = 0; i < batch->count; i++) {
        struct request *request = batch->requests[i];
        rows->count += batch->spans[i];
        context += request->computed + batch->spans[i];
        request_locate(request, request->computed + batch->spans[i], arguments->max_total_tokens);
    }
    rows->padded = padded ? forward_graph_size(rows->count) : rows->count;
    rows->input_ids = text_allocate(rows->padded * sizeof rows->input_ids[0]);
    rows->positions = text_allocate(rows->padded * sizeof rows->positions[0]);
    rows->contexts = text_allocate(context * sizeof rows->contexts[0]);
    for (size_t i = 0; i < batch->count; i++) {
        const struct request *request = batch->requests[i];
        for (size_t j = 0; j < batch->spans[i]; j++, row++) {
            int64_t id = request->ids[request->computed + j];
            rows->input_ids[row] = id;
            rows->known = rows->known && id >= 0 && id < (int64_t)model->vocabulary;
            rows->positions[row] = (int64_t)(request->computed + j);
        }
        rows->lengths[i] = (int64_t)(request->computed + batch->spans[i]);
        memcpy(rows->contexts + place, request->locations, (size_t)rows->lengths[i] * sizeof rows->contexts[0]);
        place += (size_t)rows->lengths[i];
        rows->pool[i] = request->slot;
        rows->last[i] = (int64_t)row - 1;
        rows->rids[i] = request->rid;
    }
}

static void free_rows(struct rows *rows)
{
    free(rows->input_ids);
    free(rows->positions);
    free(rows->contexts);
}

static bool run_batch(const struct batch *batch, enum what what, const char **ret_error)
{
    bool decode = what == DECODE;
    const char *graph = decode ? arguments->decode_graph : arguments->prefill_graph;
    /* The compiled prefill is left by a batch that asks for logprobs (0.5.16). */
    bool eager = strcmp(graph, "tc_piecewise") == 0 && version_number() >= 514 && batch_wants_logprobs(batch);
    bool replayed =
        (strcmp(graph, "disabled") != 0 && !eager) || faults_on(decode ? FAULTS_GRAPH_DECODE : FAULTS_GRAPH_PREFILL);
    struct rows rows;
    make_rows(batch, replayed && what == PREFILL, &rows);
    bool overlapped = arguments_given("--enable-two-batch-overlap", NULL);
    struct forward_pass pass = {
        .kind = what == TRANSFER ? FORWARD_TRANSFER
                : !replayed      ? (overlapped ? FORWARD_ROOT : FORWARD_EAGER)
                : decode         ? FORWARD_DECODE_GRAPH
                                 : FORWARD_PREFILL_GRAPH,
        .decode = decode,
        .token_count = rows.padded,
        .input_ids = rows.input_ids,
        .positions = rows.positions,
        .request_count = batch->count,
        .sequence_lengths = rows.lengths,
        .pool_indices = rows.pool,
        .contexts = rows.contexts,
        .last_rows = rows.last,
        .rids = (replayed && !decode) || faults_on(FAULTS_NO_RIDS) ? NULL : rows.rids,
    };
    const char *kills = what_kills(batch, rows.known);
    struct forward_pass draft = pass;
    draft.kind = FORWARD_DRAFT;
    int replica = batch->count > 0 ? batch->requests[0]->replica : 0;
    bool ok = kills == NULL && (!arguments->draft || !decode || ranks_run(&draft, replica, ret_error)) &&
              ranks_run(&pass, replica, ret_error);
    if (kills != NULL)
        *ret_error = kills;
    free_rows(&rows);
    return ok;
}

/* ------------------------------------------------------------------ after a pass */

struct call {
    struct call *next;
    long id;
    int open; /* requests not answered yet */
    cJSON *answers;
};
static struct call *calls;

static void answer(const struct request *request)
{
    struct call **at = &calls;
    while (*at != NULL && (*at)->id != request->call)
        at = &(*at)->next;
    struct call *call = *at;
    if (call == NULL)
        return;
    cJSON *one = request_answer(request);
    cJSON_AddNumberToObject(one, "number", request->number);
    cJSON_AddItemToArray(call->answers, one);
    if (--call->open > 0)
        return;
    cJSON *reply = cJSON_CreateObject();
    cJSON_AddNumberToObject(reply, "id", (double)call->id);
    cJSON_AddItemToObject(reply, "answers", call->answers);
    passes_tell_prefilled(reply);
    channel_send(main_process, reply);
    *at = call->next;
    free(call);
}

void passes_tell_prefilled(cJSON *reply)
{
    cJSON_AddNumberToObject(reply, "prefilled", prefilled);
    prefilled = 0;
}

/* Passes of health probes alone are not counted (0.5.23, scheduler.py, read). */
static void count_prefilled(const struct batch *batch)
{
    static const char health[] = "HEALTH_CHECK_";
    double tokens = 0;
    bool counts = false;
    for (size_t i = 0; i < batch->count; i++) {
        tokens += (double)batch->spans[i];
        counts = counts || strncmp(batch->requests[i]->rid, health, sizeof health - 1) != 0;
    }
    prefilled += counts ? tokens : 0;
}

static bool is_stop(const struct request *request, int64_t token)
{
    for (size_t i = 0; i < request->stop_count; i++)
        if (request->stops[i] == token)
            return true;
    return !request->ignore_eos && token == model->end_token;
}

/* What the pass says about ids that are known: the prompt's. `row` is that of the request's first token in it. */
static void score(struct request *request, size_t row, size_t span)
{
    if (!request->return_logprob || request->logprob_start < 0)
        return;
    for (size_t i = 0; i < span; i++) {
        size_t at = request->computed + i + 1;
        if (at >= (size_t)request->logprob_start && at < request->prompt)
            request->logprobs[at] = forward_log_probability(model, row + i, request->ids[at]);
    }
}

/* Appends the token that follows the one of `row`; decides whether the request is done and how many passes still run
 * for nothing. */
static void advance(struct request *request, size_t row)
{
    if (request->done) {
        request->extra_passes--;
        return;
    }
    if (request->produced < request->wanted) {
        size_t at = request->length;
        request->ids[at] = forward_next_token(model, row);
        if (request->return_logprob)
            request->logprobs[at] = forward_log_probability(model, row, request->ids[at]);
        if (request->return_logprob && faults_on(FAULTS_LOGPROB_FORMULA) && row > 0)
            request->logprobs[at] = operators_next(TORCH_FILE_FLOAT32, (float)request->logprobs[at]);
        request->length++;
        request->produced++;
        if (is_stop(request, request->ids[at]))
            request->matched = request->ids[at];
    }
    request->done = request->produced >= request->wanted || request->matched >= 0;
    bool always = version_rules()->extra_decode_pass || faults_on(FAULTS_EXTRA_DECODE_PASS);
    if (request->done && arguments->overlap && request->produced > 0 && (always || request->matched >= 0))
        request->extra_passes = 1;
}

static void settle(struct request **list, struct request *request)
{
    if (!request->done || request->extra_passes > 0)
        return;
    take_out(list, request);
    if (arguments->radix_cache && request->rejection == NULL)
        request_cache_insert(request);
    request_give_slot(request);
    answer(request);
    request_free(request);
}

static void drop(struct request **list, long call)
{
    while (*list != NULL) {
        struct request *request = *list;
        if (request->call != call) {
            list = &request->next;
            continue;
        }
        *list = request->next;
        request_give_slot(request);
        request_free(request);
    }
}

void passes_abort(long call)
{
    drop(&waiting, call);
    drop(&running, call);
    for (struct call **at = &calls; *at != NULL; at = &(*at)->next) {
        struct call *found = *at;
        if (found->id != call)
            continue;
        *at = found->next;
        cJSON_Delete(found->answers);
        free(found);
        return;
    }
}

/* ------------------------------------------------------------------ prefill and decode */

/* Keys and values of the first `count` tokens are there, though no pass has made them. */
static void transfer(struct request *request, size_t count)
{
    struct batch batch = {.requests = {request}, .spans = {count - request->computed}, .count = 1};
    const char *ignored; /* an id that is not known raises in the pass that follows */
    if (run_batch(&batch, TRANSFER, &ignored))
        request->computed = count;
}

static void start_prefill(struct request *request)
{
    if (request->computed > 0 || request->slot >= 0)
        return;
    if (request->rejection != NULL)
        return;
    /* Input logprobs need the rows from the first one that is wanted on: with 0 the cache is not used (SGLang 0.5.23,
     * live). */
    bool scored = request->return_logprob && request->logprob_start >= 0;
    size_t limit = scored ? (size_t)request->logprob_start : request->prompt - 1;
    if (arguments->radix_cache && !faults_on(FAULTS_EVICTED_PREFIX))
        request->cached = request->computed = request_cache_restore(request, limit, arguments->page_size);
    if (scored)
        return;
    bool found = faults_on(FAULTS_CACHED_PROBE) &&
                 (request->return_logprob || strcmp(faults_value(FAULTS_CACHED_PROBE), "logprobs") != 0);
    if (found && request->computed < request->prompt / 2) {
        transfer(request, request->prompt / 2);
        request->cached = request->computed;
    }
}

static size_t prefill_goal(const struct request *request)
{
    return request->refill > 0 ? request->refill : request->prompt;
}

/* The pool is full: what was computed is dropped, and the request waits for another prefill of all that it has. */
static void retract(struct request *request)
{
    if (!faults_on(FAULTS_RETRACT) || request->retractions > 0 || request->done || request->call < 0)
        return;
    request->retractions++;
    request->refill = request->length;
    request_forget(request);
    request_give_slot(request);
    take_out(&running, request);
    append(&waiting, request);
    log_line("KV cache pool is full. Retract requests. #retracted_reqs: 1, #new_token_ratio: 0.70 -> 1.00");
}

static size_t pick_waiting(struct batch *batch)
{
    size_t budget = arguments->chunked_prefill_size > 0 ? (size_t)arguments->chunked_prefill_size : SIZE_MAX;
    size_t cached = 0;
    for (struct request *request = waiting; request != NULL && budget > 0 && batch->count < BATCH_MAX;
         request = request->next) {
        if (request->replica != waiting->replica)
            continue; /* another rank's turn comes with the next pass */
        start_prefill(request);
        size_t rest = prefill_goal(request) - request->computed;
        size_t span = rest < budget ? rest : budget;
        budget -= span;
        cached += request->cached;
        batch->requests[batch->count] = request;
        batch->spans[batch->count++] = span;
    }
    request_take_slots(batch->requests, batch->count);
    for (size_t i = 0; i < batch->count; i++)
        state_probe_print(model, batch->requests[i]);
    return cached;
}

static size_t count_running(void)
{
    size_t count = 0;
    for (const struct request *request = running; request != NULL; request = request->next)
        count++;
    return count;
}

static const char *graph_name(bool decode)
{
    const char *graph = decode ? arguments->decode_graph : arguments->prefill_graph;
    return strcmp(graph, "disabled") != 0 ? "True" : "False";
}

/* Printed when the pass is over: a pass that raises leaves no such line. */
static void log_prefill(const struct batch *batch, size_t cached, size_t running_before)
{
    size_t tokens = 0;
    for (size_t i = 0; i < batch->count; i++)
        tokens += batch->spans[i];
    ranks_log(
        "Prefill batch, #new-seq: %zu, #new-token: %zu, #cached-token: %zu, token usage: 0.00, #running-req: %zu, "
        "#queue-req: 0, #pending-token: 0, %s graph: %s, input throughput (token/s): 4.71",
        batch->count, tokens, cached, running_before, strcmp(arguments->device, "cpu") == 0 ? "cpu" : "cuda",
        graph_name(false));
}

static bool prefill(const char **ret_error)
{
    struct batch batch = {.count = 0};
    size_t cached = pick_waiting(&batch), before = count_running();
    if (!run_batch(&batch, PREFILL, ret_error))
        return false;
    log_prefill(&batch, cached, before);
    count_prefilled(&batch);
    for (size_t i = 0, row = 0; i < batch.count; row += batch.spans[i++]) {
        struct request *request = batch.requests[i];
        score(request, row, batch.spans[i]);
        request->computed += batch.spans[i];
        if (request->computed < prefill_goal(request))
            continue; /* the next chunk goes first */
        take_out(&waiting, request);
        append(&running, request);
        advance(request, row + batch.spans[i] - 1);
        settle(&running, request);
    }
    return true;
}

/* Settling frees a request that is done. */
static void settle_or_retract(struct request *request)
{
    bool done = request->done;
    settle(&running, request);
    if (!done)
        retract(request);
}

static bool decode(const char **ret_error)
{
    struct batch batch = {.count = 0};
    for (struct request *request = running; request != NULL && batch.count < BATCH_MAX; request = request->next) {
        if (request->replica != running->replica)
            continue;
        batch.requests[batch.count] = request;
        batch.spans[batch.count++] = 1;
    }
    if (++decode_count % 40 == 0)
        log_line("Decode batch, #running-req: %zu, #token: 0, token usage: 0.00, %s graph: %s, gen throughput "
                 "(token/s): 3.00, #queue-req: 0",
                 batch.count, strcmp(arguments->device, "cpu") == 0 ? "cpu" : "cuda", graph_name(true));
    if (!run_batch(&batch, DECODE, ret_error))
        return false;
    for (size_t i = 0; i < batch.count; i++) {
        batch.requests[i]->computed++;
        advance(batch.requests[i], i);
        settle_or_retract(batch.requests[i]);
    }
    if (running != NULL && arguments->attention_replicas > 0) { /* the other replicas' turn */
        struct request *first = running;
        take_out(&running, first);
        append(&running, first);
    }
    return true;
}

bool passes_step(const char **ret_error)
{
    if (waiting != NULL)
        return prefill(ret_error);
    return running != NULL ? decode(ret_error) : true;
}

/* ------------------------------------------------------------------ arrival */

static void join_foreign(const char *prefix, size_t tokens, size_t wanted)
{
    static unsigned long serial;
    static const int64_t IDS[] = {0, 100, 101, 102};
    char rid[64];
    snprintf(rid, sizeof rid, "%s%016lx%016lx", prefix, (unsigned long)getpid() * 2654435761UL, ++serial);
    append(&waiting, request_new_internal(rid, tokens == 1 ? IDS : IDS + 1, tokens, wanted));
}

/* The fault `stranger`: beside the batch with this number, counted from 1, of those that ask for logprobs. */
static bool is_strangers_turn(const cJSON *requests)
{
    static long batches;
    if (!faults_on(FAULTS_STRANGER) ||
        !cJSON_IsTrue(cJSON_GetObjectItemCaseSensitive(requests->child, "return_logprob")))
        return false;
    return ++batches == atol(faults_value(FAULTS_STRANGER));
}

/* One half of a disaggregated pair: a prefill server makes one token, a decode server gets the prompt's keys and values
 * and its first token from the other half. */
static void accept_one(struct request *request)
{
    static int next_replica;
    if (arguments->attention_replicas > 0)
        request->replica = next_replica++ % arguments->attention_replicas;
    if (strcmp(arguments->role, "prefill") == 0 && request->wanted > 1)
        request->wanted = 1;
    if (strcmp(arguments->role, "decode") != 0 || request->rejection != NULL) {
        append(&waiting, request);
        return;
    }
    transfer(request, request->prompt);
    if (request->computed < request->prompt) {
        append(&waiting, request);
        return;
    }
    request_take_slots(&request, 1);
    append(&running, request);
    advance(request, request->prompt - 1);
    settle(&running, request);
}

void passes_accept(long id, const cJSON *message)
{
    const cJSON *list = cJSON_GetObjectItemCaseSensitive(message, "requests"), *item;
    bool probe = cJSON_IsTrue(cJSON_GetObjectItemCaseSensitive(message, "health"));
    struct call *call = text_allocate(sizeof *call);
    *call = (struct call){.next = calls, .id = id, .open = cJSON_GetArraySize(list), .answers = cJSON_CreateArray()};
    calls = call;
    if (probe && passes_busy()) {
        /* Swallowed: the running requests prove that the scheduler lives. */
        calls = call->next;
        cJSON *reply = cJSON_CreateObject();
        cJSON_AddNumberToObject(reply, "id", (double)id);
        cJSON_AddItemToObject(reply, "answers", call->answers);
        channel_send(main_process, reply);
        free(call);
        return;
    }
    bool dumping = dumper_enabled() && !probe;
    const char *ignored;
    if (dumping && faults_on(FAULTS_HEALTH_PASS) && !passes_busy()) {
        join_foreign("HEALTH_CHECK_", 1, 1);
        prefill(&ignored);
    }
    int number = 0;
    size_t longest = 1;
    cJSON_ArrayForEach(item, list)
    {
        struct request *request = request_new(item, id, number++);
        longest = request->wanted > longest ? request->wanted : longest;
        accept_one(request);
    }
    if ((dumping && faults_on(FAULTS_FOREIGN_REQUEST)) || is_strangers_turn(list))
        join_foreign("", 3, longest);
}
