/* ranks.c: see ranks.h. */
#include "ranks.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "channel.h"
#include "dumper.h"
#include "knobs.h"
#include "log.h"
#include "text.h"

enum { PEERS_MAX = 16 };

static const struct arguments *arguments;
static struct channel peers[PEERS_MAX];
static int peer_count;

void ranks_init(const struct arguments *given, const int *fds, int count)
{
    arguments = given;
    peer_count = count < PEERS_MAX ? count : PEERS_MAX;
    for (int i = 0; i < peer_count; i++)
        channel_init(&peers[i], fds[i]);
}

cJSON *ranks_ask(int rank, cJSON *message)
{
    if (!channel_send(&peers[rank - 1], message))
        return NULL;
    return channel_receive(&peers[rank - 1], true);
}

void ranks_log(const char *format, ...)
{
    char line[512];
    va_list values;
    va_start(values, format);
    vsnprintf(line, sizeof line, format, values);
    va_end(values);
    log_line("%s", line);
    for (int rank = arguments->tensor; rank <= peer_count; rank += arguments->tensor) {
        cJSON *message = cJSON_CreateObject();
        cJSON_AddStringToObject(message, "op", "log");
        cJSON_AddStringToObject(message, "line", line);
        cJSON_Delete(ranks_ask(rank, message));
    }
}

static cJSON *number_list(const int64_t *numbers, size_t count)
{
    cJSON *list = cJSON_CreateArray();
    for (size_t i = 0; i < count; i++)
        cJSON_AddItemToArray(list, cJSON_CreateNumber((double)numbers[i]));
    return list;
}

static size_t context_length(const int64_t *lengths, size_t count)
{
    size_t length = 0;
    for (size_t i = 0; i < count; i++)
        length += (size_t)lengths[i];
    return length;
}

static cJSON *message_of(const struct forward_pass *pass, const char *exp_name)
{
    cJSON *message = cJSON_CreateObject();
    cJSON_AddStringToObject(message, "op", "pass");
    cJSON_AddNumberToObject(message, "kind", pass->kind);
    cJSON_AddBoolToObject(message, "decode", pass->decode);
    cJSON_AddItemToObject(message, "input_ids", number_list(pass->input_ids, pass->token_count));
    cJSON_AddItemToObject(message, "positions", number_list(pass->positions, pass->token_count));
    cJSON_AddItemToObject(message, "seq_lens", number_list(pass->sequence_lengths, pass->request_count));
    cJSON_AddItemToObject(message, "pool", number_list(pass->pool_indices, pass->request_count));
    cJSON_AddItemToObject(message, "contexts",
                          number_list(pass->contexts, context_length(pass->sequence_lengths, pass->request_count)));
    cJSON_AddItemToObject(message, "last_rows", number_list(pass->last_rows, pass->request_count));
    if (pass->rids != NULL)
        cJSON_AddItemToObject(message, "rids", cJSON_CreateStringArray(pass->rids, (int)pass->request_count));
    if (exp_name != NULL)
        cJSON_AddStringToObject(message, "exp_name", exp_name);
    return message;
}

/* A rank whose attention replica has nothing to do runs an empty pass, for the collectives of the others. */
static bool takes_part(int rank, int replica)
{
    int replicas = arguments->attention_replicas;
    return replicas == 0 || rank / (arguments->tensor / replicas) == replica;
}

/* Broadcasting the name takes all stages, and the later ones wait for the first one's output (0.5.23, live). */
static void wait_for_ever(void)
{
    knobs_sleep_ms(200);
    log_dumper(0, "WARNING: 'broadcast_object_list in _get_default_exp_name' has not completed after 60s. This usually "
                  "indicates not all ranks are participating.");
    for (;;)
        pause();
}

/* Keys and values that come from elsewhere are no pass. */
static bool run_own(const struct forward_pass *pass, const char **ret_error)
{
    if (pass->kind != FORWARD_TRANSFER)
        return dumper_forward(pass, ret_error);
    dumper_pass_by(pass);
    return true;
}

bool ranks_run(const struct forward_pass *pass, int replica, const char **ret_error)
{
    const struct forward_pass empty = {.kind = pass->kind};
    char name[96];
    bool named = pass->kind != FORWARD_TRANSFER && dumper_needs_name();
    if (named && arguments->stages > 1)
        wait_for_ever();
    if (named) {
        dumper_choose_name(name, sizeof name);
        dumper_set_name(name);
    }
    for (int i = 0; i < peer_count; i++)
        channel_send(&peers[i], message_of(takes_part(i + 1, replica) ? pass : &empty, named ? name : NULL));
    if (pass->kind != FORWARD_TRANSFER)
        knobs_sleep_ms(knobs_get()->step_ms);
    if (!run_own(takes_part(0, replica) ? pass : &empty, ret_error))
        return false;
    if (!takes_part(0, replica))
        dumper_pass_by(pass); /* its tokens are known where requests are kept */
    for (int i = 0; i < peer_count; i++) {
        cJSON_Delete(channel_receive(&peers[i], true));
        while (peers[i].closed) /* a collective without its peer never ends */
            pause();
    }
    return true;
}

static int64_t *numbers_of(const cJSON *message, const char *key, size_t *ret_count)
{
    const cJSON *list = cJSON_GetObjectItemCaseSensitive(message, key), *item;
    *ret_count = (size_t)cJSON_GetArraySize(list);
    int64_t *numbers = text_allocate((*ret_count + 1) * sizeof numbers[0]);
    size_t i = 0;
    cJSON_ArrayForEach(item, list) numbers[i++] = (int64_t)item->valuedouble;
    return numbers;
}

bool ranks_repeat(const cJSON *message, const char **ret_error)
{
    size_t tokens, requests, ignored;
    int64_t *input_ids = numbers_of(message, "input_ids", &tokens);
    int64_t *positions = numbers_of(message, "positions", &ignored);
    int64_t *lengths = numbers_of(message, "seq_lens", &requests);
    int64_t *pool = numbers_of(message, "pool", &ignored);
    int64_t *contexts = numbers_of(message, "contexts", &ignored);
    int64_t *last = numbers_of(message, "last_rows", &ignored);
    const cJSON *rids = cJSON_GetObjectItemCaseSensitive(message, "rids"), *item;
    const char **names = text_allocate((requests + 1) * sizeof names[0]);
    size_t i = 0;
    cJSON_ArrayForEach(item, rids)
    {
        if (i < requests)
            names[i++] = item->valuestring;
    }
    const char *exp_name = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(message, "exp_name"));
    if (exp_name != NULL)
        dumper_set_name(exp_name);
    struct forward_pass pass = {
        .kind = (enum forward_kind)cJSON_GetNumberValue(cJSON_GetObjectItemCaseSensitive(message, "kind")),
        .decode = cJSON_IsTrue(cJSON_GetObjectItemCaseSensitive(message, "decode")),
        .token_count = tokens,
        .input_ids = input_ids,
        .positions = positions,
        .request_count = requests,
        .sequence_lengths = lengths,
        .pool_indices = pool,
        .contexts = contexts,
        .last_rows = last,
        .rids = rids != NULL ? names : NULL,
    };
    bool ok = run_own(&pass, ret_error);
    free(input_ids);
    free(positions);
    free(lengths);
    free(pool);
    free(contexts);
    free(last);
    free(names);
    return ok;
}
