/* arguments.c: see arguments.h. */
#include "arguments.h"

#include <cjson/cJSON.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "faults.h"
#include "text.h"
#include "version.h"

struct flag {
    const char *name;
    bool takes_value;
    int from, until;
};

static const struct flag FLAGS[] = {
#define FLAG(name, value, from, until) {name, value, from, until},
#include "arguments.def"
#undef FLAG
};
enum { FLAG_COUNT = sizeof FLAGS / sizeof FLAGS[0] };

static const struct {
    const char *alias, *name;
} ALIASES[] = {
    {"--model", "--model-path"},
    {"--tp", "--tp-size"},
    {"--tensor-parallel-size", "--tp-size"},
    {"--pp", "--pp-size"},
    {"--dp", "--dp-size"},
    {"--data-parallel-size", "--dp-size"},
    {"--pipeline-parallel-size", "--pp-size"},
};

static bool was_given[FLAG_COUNT];
static const char *value_of[FLAG_COUNT];

static bool known_here(const struct flag *flag)
{
    if (faults_on(FAULTS_BAD_FLAG) && strcmp(flag->name, faults_value(FAULTS_BAD_FLAG)) == 0)
        return false;
    return flag->from <= version_number() && version_number() <= flag->until;
}

static void usage(FILE *stream)
{
    fprintf(stream, "usage: %s [-h]", version_number() >= 516 ? "sglang serve" : "launch_server.py");
    for (size_t i = 0; i < FLAG_COUNT; i++)
        if (known_here(&FLAGS[i]))
            fprintf(stream, "\n                        [%s%s]", FLAGS[i].name, FLAGS[i].takes_value ? " VALUE" : "");
    fprintf(stream, "\n");
}

_Noreturn static void fail(const char *format, const char *detail)
{
    usage(stderr);
    fprintf(stderr, "%s: error: ", version_number() >= 516 ? "sglang serve" : "launch_server.py");
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
    fprintf(stderr, format, detail);
#pragma GCC diagnostic pop
    fprintf(stderr, "\n");
    exit(2);
}

/* Exact name, alias, or the only flag that begins so; -1 for none. */
static int find_flag(const char *name, size_t length)
{
    int found = -1;
    for (size_t i = 0; i < sizeof ALIASES / sizeof ALIASES[0]; i++)
        if (strlen(ALIASES[i].alias) == length && strncmp(ALIASES[i].alias, name, length) == 0)
            return find_flag(ALIASES[i].name, strlen(ALIASES[i].name));
    for (int i = 0; i < FLAG_COUNT; i++) {
        if (!known_here(&FLAGS[i]) || strncmp(FLAGS[i].name, name, length) != 0)
            continue;
        if (strlen(FLAGS[i].name) == length)
            return i;
        if (found >= 0)
            fail("ambiguous option: %s could match several", name);
        found = i;
    }
    return length > 2 ? found : -1;
}

bool arguments_given(const char *flag, const char **ret_value)
{
    for (size_t i = 0; i < FLAG_COUNT; i++) {
        if (strcmp(FLAGS[i].name, flag) != 0 || !was_given[i])
            continue;
        if (ret_value != NULL)
            *ret_value = value_of[i];
        return true;
    }
    return false;
}

/* All that are unknown are named, with the words behind them, which belong to nobody. */
static void refuse_unknown(const struct text *unknown)
{
    if (unknown->length > 0)
        fail("unrecognized arguments: %s", unknown->data);
}

static void read_all(int count, char **given)
{
    struct text unknown;
    text_init(&unknown);
    for (int i = 0; i < count; i++) {
        char *argument = given[i];
        if (strcmp(argument, "-h") == 0 || strcmp(argument, "--help") == 0) {
            usage(stdout);
            exit(0);
        }
        char *equals = strchr(argument, '=');
        size_t length = equals != NULL ? (size_t)(equals - argument) : strlen(argument);
        int flag = strncmp(argument, "--", 2) == 0 ? find_flag(argument, length) : -1;
        if (flag < 0) {
            text_format(&unknown, "%s%s", unknown.length > 0 ? " " : "", argument);
            continue;
        }
        was_given[flag] = true;
        if (!FLAGS[flag].takes_value)
            continue;
        if (equals != NULL)
            value_of[flag] = equals + 1;
        else if (i + 1 < count && strncmp(given[i + 1], "--", 2) != 0)
            value_of[flag] = given[++i];
        else
            fail("argument %s: expected one argument", FLAGS[flag].name);
    }
    refuse_unknown(&unknown);
    text_fini(&unknown);
}

static const char *value(const char *flag, const char *otherwise)
{
    const char *value = NULL;
    return arguments_given(flag, &value) ? value : otherwise;
}

static long number(const char *flag, long otherwise)
{
    const char *value = NULL;
    if (!arguments_given(flag, &value))
        return otherwise;
    char *end;
    long result = strtol(value, &end, 10);
    if (end == value || *end != '\0')
        fail("argument %s: invalid int value", flag);
    return result;
}

/* Precedence from 0.5.14 on: JSON, then the backend flags, then the phase's boolean, then --disable-cuda-graph. */
static const char *resolve_graph(const char *phase, const char *otherwise)
{
    char flag[64];
    const char *json = value("--cuda-graph-config", NULL);
    cJSON *config = json != NULL ? cJSON_Parse(json) : NULL;
    const cJSON *backend = cJSON_GetObjectItemCaseSensitive(cJSON_GetObjectItemCaseSensitive(config, phase), "backend");
    if (cJSON_IsString(backend))
        return backend->valuestring; /* kept for the life of the process */
    snprintf(flag, sizeof flag, "--cuda-graph-backend-%s", phase);
    const char *chosen = value(flag, NULL);
    if (chosen != NULL)
        return chosen;
    snprintf(flag, sizeof flag, "--disable-%s-cuda-graph", phase);
    if (strcmp(phase, "prefill") == 0 && arguments_given("--disable-piecewise-cuda-graph", NULL))
        return "disabled"; /* the older spelling, up to 0.5.18 */
    return arguments_given(flag, NULL) || arguments_given("--disable-cuda-graph", NULL) ? "disabled" : otherwise;
}

static void resolve_graphs(struct arguments *arguments)
{
    if (strcmp(arguments->attention_backend, "torch_native") == 0 || strcmp(arguments->device, "cpu") == 0) {
        arguments->decode_graph = arguments->prefill_graph = "disabled";
    } else if (version_rules()->separate_graph_phases) {
        arguments->decode_graph = resolve_graph("decode", "full");
        arguments->prefill_graph = resolve_graph("prefill", "breakable");
    } else {
        arguments->decode_graph = arguments_given("--disable-cuda-graph", NULL) ? "disabled" : "full";
        bool off = version_number() < 510 ? !arguments_given("--enable-piecewise-cuda-graph", NULL)
                                          : arguments_given("--disable-piecewise-cuda-graph", NULL);
        arguments->prefill_graph = off ? "disabled" : "tc_piecewise";
    }
}

/* Faults that are not hidden are what the server itself believes. */
static void apply_graph_faults(struct arguments *arguments)
{
    if (faults_on(FAULTS_GRAPH_DECODE) && strcmp(faults_value(FAULTS_GRAPH_DECODE), "hidden") != 0)
        arguments->decode_graph = "full";
    if (faults_on(FAULTS_GRAPH_PREFILL) && strcmp(faults_value(FAULTS_GRAPH_PREFILL), "hidden") != 0)
        arguments->prefill_graph = version_rules()->separate_graph_phases ? "breakable" : "tc_piecewise";
}

static void read_shape(struct arguments *arguments)
{
    int replicas = (int)number("--dp-size", 1);
    bool attention = arguments_given("--enable-dp-attention", NULL) && replicas > 1;
    arguments->tensor = (int)number("--tp-size", 1);
    arguments->stages = (int)number("--pp-size", 1);
    arguments->ranks = arguments->tensor * arguments->stages;
    arguments->attention_replicas = attention ? replicas : 0;
    arguments->replicas = attention ? 1 : replicas;
    if (arguments->tensor < 1 || arguments->stages < 1 || replicas < 1 || arguments->ranks * arguments->replicas > 16)
        fail("argument %s: the stand-in plays 1 to 16 ranks", "--tp-size/--pp-size/--dp-size");
    if (attention && (arguments->tensor % replicas != 0 || arguments->stages > 1))
        fail("argument %s: must be divisible by --dp-size, in one stage", "--tp-size");
    arguments->role = value("--disaggregation-mode", "null");
    arguments->draft = value("--speculative-algorithm", NULL) != NULL;
}

void arguments_parse(struct arguments *arguments, int count, char **given)
{
    read_all(count, given);
    *arguments = (struct arguments){.count = count, .given = given};
    arguments->model_path = value("--model-path", NULL);
    if (arguments->model_path == NULL)
        fail("the following arguments are required: %s", "--model-path/--model");
    arguments->host = value("--host", "127.0.0.1");
    arguments->port = (int)number("--port", 30000);
    read_shape(arguments);
    arguments->device = value("--device", "cuda");
    arguments->attention_backend =
        value("--attention-backend", strcmp(arguments->device, "cpu") == 0 ? "torch_native" : "fa3");
    arguments->dtype = value("--dtype", "auto");
    arguments->api_key = value("--api-key", NULL);
    arguments->admin_api_key = value("--admin-api-key", NULL);
    arguments->max_total_tokens = (size_t)number("--max-total-tokens", 65536);
    arguments->max_running_requests = (size_t)number("--max-running-requests", 2048);
    arguments->context = (size_t)number("--context-length", 0);
    arguments->chunked_prefill_size =
        number("--chunked-prefill-size", strcmp(arguments->device, "cpu") == 0 ? 4096 : 8192);
    arguments->page_size = (size_t)number("--page-size", 1);
    if (arguments->page_size < 1 || arguments->page_size > 1024)
        fail("argument %s: the stand-in plays 1 to 1024", "--page-size");
    arguments->radix_cache = !arguments_given("--disable-radix-cache", NULL);
    arguments->overlap = !arguments_given("--disable-overlap-schedule", NULL) && arguments->stages == 1;
    resolve_graphs(arguments);
    apply_graph_faults(arguments);
}
