#include "sglang/settings.h"

#include "base/buffer.h"
#include "base/number.h"
#include "base/text.h"
#include "json/json.h"
#include "sglang/command.h"
#include "sglang/filter.h"
#include "sglang/flags.h"
#include "sglang/prefix.h"
#include "sglang/versions.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

/* Which values of the user are fine beside ours. An empty or blank variable counts as unset (SGLang 0.5.23, dumper.py).
 */
enum fine {
    FINE_SAME,    /* exactly our value */
    FINE_FALSE,   /* anything that the dumper reads as false: all but "1" and "true" */
    FINE_TRUE,    /* only what the dumper reads as true: "yes" and "on" are silently false */
    FINE_FILTER,  /* a filter of the checked grammar */
    FINE_INTEGER, /* what Python's int() reads; anything else ends the schedulers */
    FINE_NO,      /* a "no" of the server's own environment: false, 0, no, n */
    FINE_REPLACED /* any: ours replaces it, nothing is lost */
};

enum source { SOURCE_VALUE, SOURCE_DIRECTORY, SOURCE_EXPERIMENT, SOURCE_TEMPORARY };

/* The table of environment settings. `value` NULL with SOURCE_VALUE: only checked, the default is right. */
static const struct environment_row {
    const char *name;
    enum source source;
    const char *value;
    enum fine fine;
    const char *reason;
} environment_rows[] = {
    {"DUMPER_ENABLE", SOURCE_VALUE, "0", FINE_FALSE,
     "from the start it would record graph capture, warm-up and health probes; `kldumpctl dump` switches it on"},
    {"DUMPER_SERVER_PORT", SOURCE_VALUE, "reuse", FINE_SAME,
     "it must be exactly that: without it there are no hooks, a number opens a port to everybody, and any other word "
     "ends the schedulers while they load"},
    {"DUMPER_NON_INTRUSIVE_MODE", SOURCE_VALUE, "all", FINE_SAME,
     "core writes neither hidden states nor logits, off writes nothing, and any other word is taken for core"},
    {"DUMPER_DIR", SOURCE_DIRECTORY, NULL, FINE_SAME,
     "dumps go to the folder that is watched; choose it with --dir and unset the variable"},
    {"DUMPER_EXP_NAME", SOURCE_EXPERIMENT, NULL, FINE_SAME,
     "without a name pipeline ranks wait for each other for ever; `kldumpctl dump RUN EXP` names each experiment"},
    {"DUMPER_ENABLE_OUTPUT_CONSOLE", SOURCE_VALUE, "0", FINE_FALSE,
     "a line with sample values for each tensor is slow and private"},
    {"DUMPER_ENABLE_OUTPUT_FILE", SOURCE_VALUE, NULL, FINE_TRUE, "without files there is no dump"},
    {"DUMPER_ENABLE_VALUE", SOURCE_VALUE, NULL, FINE_TRUE, "without values nothing at all is written"},
    {"DUMPER_FILTER", SOURCE_VALUE, NULL, FINE_FILTER, "it is run as code inside the forward pass"},
    {"DUMPER_COLLECTIVE_TIMEOUT", SOURCE_VALUE, NULL, FINE_INTEGER,
     "the dumper reads it with int(): another text ends the schedulers while they load"},
    {"DUMPER_CLEANUP_PREVIOUS", SOURCE_VALUE, NULL, FINE_FALSE, "it deletes the dumps of other runs"},
    {"DUMPER_INCLUDE_PARALLEL_RANK_IN_FILENAME", SOURCE_VALUE, NULL, FINE_FALSE,
     "the rank is in the file name already"},
    {"PYTHONUNBUFFERED", SOURCE_VALUE, "1", FINE_REPLACED, "lines printed just before the end are not lost"},
    {"SGLANG_ENABLE_HEALTH_ENDPOINT_GENERATION", SOURCE_VALUE, "0", FINE_NO,
     "each health probe would be a forward pass in the dump"},
    {"TMPDIR", SOURCE_TEMPORARY, NULL, FINE_REPLACED, "the server's sockets are removed with the run"},
};
enum { ENVIRONMENT_ROWS = sizeof environment_rows / sizeof environment_rows[0] };

/* Names that the dumper reads and that are left to the user. */
static const char *const known_names[] = {"DUMPER_ENABLE_GRAD", "DUMPER_ENABLE_MODEL_VALUE", "DUMPER_ENABLE_MODEL_GRAD",
                                          "DUMPER_SOURCE_PATCHER_CONFIG"};

static bool is_disabled(const char *value)
{
    return value != NULL && strcmp(value, "disabled") == 0;
}

/* The configuration is fine when it leaves each phase alone or disables it; a broken one is refused by the server. */
static bool is_graphs_off(const char *value)
{
    struct json *json = NULL;
    if (value == NULL || json_parse(value, strlen(value), (struct json_limits){65536, JSON_DEPTH, JSON_ANY_VALUES},
                                    &json, NULL) != ERROR_NONE)
        return true;
    bool fine = true;
    static const char *const paths[] = {"decode.backend", "prefill.backend"};
    for (size_t i = 0; i < sizeof paths / sizeof paths[0]; i++) {
        const char *backend = NULL;
        if (json_find(json, paths[i]) != NULL &&
            (json_get_string(json, paths[i], &backend, NULL) != ERROR_NONE || !is_disabled(backend)))
            fine = false;
    }
    json_free(json);
    return fine;
}

static bool is_zero(const char *value)
{
    return value != NULL && strcmp(value, "0") == 0;
}

/* The table of arguments that contradict dumping; `fine` NULL: no value is fine. `ours`: what is needed instead. */
static const struct argument_row {
    enum flags_id flag;
    bool (*fine)(const char *value);
    const char *ours;
    const char *reason;
} argument_rows[] = {
    {FLAGS_CUDA_GRAPH_BACKEND_DECODE, is_disabled, "--cuda-graph-backend-decode disabled",
     "a replayed graph calls no hook"},
    {FLAGS_CUDA_GRAPH_BACKEND_PREFILL, is_disabled, "--cuda-graph-backend-prefill disabled",
     "a replayed graph calls no hook"},
    {FLAGS_CUDA_GRAPH_CONFIG, is_graphs_off, "backend \"disabled\" for decode and prefill",
     "it wins over every other graph flag, and a replayed graph calls no hook"},
    {FLAGS_CUDA_GRAPH_BS, NULL, "this flag left out", "a list of graph sizes asks for graphs, which call no hook"},
    {FLAGS_CUDA_GRAPH_BS_DECODE, NULL, "this flag left out",
     "a list of graph sizes asks for graphs, which call no hook"},
    {FLAGS_CUDA_GRAPH_BS_PREFILL, NULL, "this flag left out",
     "a list of graph sizes asks for graphs, which call no hook"},
    {FLAGS_PIECEWISE_TOKENS, NULL, "this flag left out", "a list of graph sizes asks for graphs, which call no hook"},
    {FLAGS_ENFORCE_PIECEWISE, NULL, "this flag left out", "a replayed graph calls no hook"},
    {FLAGS_ENABLE_PIECEWISE, NULL, "this flag left out", "a replayed graph calls no hook"},
    {FLAGS_DEBUG_CUDA_GRAPH, NULL, "this flag left out", "it sends every pass through the graphs"},
    {FLAGS_ENABLE_TORCH_COMPILE, NULL, "this flag left out",
     "compiled code calls no hook, and on a CPU it ignores disabled graphs"},
    {FLAGS_TENSOR_DUMP_FOLDER, NULL, "this flag left out",
     "it is another, older dumper that writes every pass from the start and cannot be switched off"},
    {FLAGS_TENSOR_DUMP_LAYERS, NULL, "this flag left out", "it belongs to another, older dumper"},
    {FLAGS_TENSOR_DUMP_INPUT, NULL, "this flag left out", "it belongs to another, older dumper"},
    {FLAGS_TENSOR_DUMP_INJECT, NULL, "this flag left out", "it belongs to another, older dumper"},
    {FLAGS_USE_RAY, NULL, "this flag left out",
     "the schedulers would be children of Ray, not of kldump: they could be neither watched nor killed"},
    {FLAGS_GRPC_MODE, NULL, "this flag left out", "the dumper is controlled through the HTTP server"},
    {FLAGS_SMG_GRPC_MODE, NULL, "this flag left out", "the dumper is controlled through the HTTP server"},
    {FLAGS_ENCODER_ONLY, NULL, "this flag left out", "there is neither prefill nor decode in an encoder"},
    {FLAGS_NODE_RANK, is_zero, "--node-rank 0",
     "only node 0 controls the dumper; guard node 0, and start the others without kldumpctl"},
};

/* Arguments that are taken and worth a word. */
static const struct note_row {
    enum flags_id flag;
    const char *text;
} note_rows[] = {
    {FLAGS_WATCHDOG_TIMEOUT, "kept as given: a pass that dumps for longer ends the server"},
    {FLAGS_TWO_BATCH_OVERLAP, "layers may run without their hooks: verification decides"},
    {FLAGS_PDMUX, "passes may run without their hooks: verification decides"},
    {FLAGS_CONFIG, "settings in the file are not read by kldump: verification decides"},
    {FLAGS_CUDA_GRAPH_MAX_BS, "has no effect: graphs are off"},
    {FLAGS_CUDA_GRAPH_MAX_BS_DECODE, "has no effect: graphs are off"},
};

/* Far beyond any dump of one pass, and small enough for time.sleep (SGLang 0.5.23: 300 s, then the server is ended). */
static const char watchdog_seconds[] = "86400";

static bool is_blank(const char *value)
{
    return value == NULL || value[strspn(value, " \t\n\r\f\v")] == '\0';
}

static bool is_dumper_true(const char *value)
{
    return strcmp(value, "1") == 0 || strcasecmp(value, "true") == 0;
}

static bool is_environment_no(const char *value)
{
    static const char *const words[] = {"false", "0", "no", "n"};
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++)
        if (strcasecmp(value, words[i]) == 0)
            return true;
    return false;
}

/* Blanks around and a sign are allowed, as in Python. */
static bool is_integer(const char *value)
{
    const char *digits = value + strspn(value, " \t\n\r\f\v");
    digits += *digits == '-' || *digits == '+' ? 1 : 0;
    size_t length = strspn(digits, "0123456789");
    return length > 0 && length < 19 && is_blank(digits + length);
}

static bool is_fine(enum fine fine, const char *value, const char *ours)
{
    if (is_blank(value))
        return true;
    switch (fine) {
    case FINE_SAME:
        return ours != NULL && strcmp(value, ours) == 0;
    case FINE_FALSE:
        return !is_dumper_true(value);
    case FINE_TRUE:
        return is_dumper_true(value);
    case FINE_FILTER: /* has its own check: filter.h */
        return true;
    case FINE_INTEGER:
        return is_integer(value);
    case FINE_NO:
        return is_environment_no(value);
    case FINE_REPLACED:
        return true;
    }
    return false;
}

static const char *our_value(const struct environment_row *row, const struct server_launch *launch)
{
    switch (row->source) {
    case SOURCE_DIRECTORY:
        return launch->directory;
    case SOURCE_EXPERIMENT:
        return launch->first_experiment;
    case SOURCE_TEMPORARY:
        return launch->temporary;
    case SOURCE_VALUE:
        break;
    }
    return row->value;
}

/* Why this value is refused, where it is another reason than the row's. */
static const char *reason_of(const struct environment_row *row, const char *value)
{
    bool leaves = strchr(value, '/') != NULL || strcmp(value, ".") == 0 || strcmp(value, "..") == 0;
    if (row->source == SOURCE_EXPERIMENT && leaves)
        return "it leaves the folder that is watched; `kldumpctl dump RUN EXP` names each experiment";
    return row->reason;
}

static enum error_code check_variable(const char *name, const char *value, const struct server_launch *launch,
                                      struct error *err)
{
    for (size_t i = 0; i < ENVIRONMENT_ROWS; i++) {
        const struct environment_row *row = &environment_rows[i];
        const char *ours = our_value(row, launch);
        if (strcmp(row->name, name) != 0)
            continue;
        if (row->fine == FINE_FILTER && !is_blank(value))
            return filter_check(value, err);
        if (is_fine(row->fine, value, ours))
            return ERROR_NONE;
        char shown[128];
        const char *wanted = ours != NULL ? ours : row->fine == FINE_TRUE ? "1" : row->fine == FINE_FALSE ? "0" : "";
        if (row->fine == FINE_INTEGER)
            wanted = "60";
        return error_set(err, ERROR_SETTINGS, "%s=%s contradicts %s%s%s: %s", name,
                         text_clean(value, strlen(value), shown, sizeof shown), wanted[0] != '\0' ? name : "leaving it",
                         wanted[0] != '\0' ? "=" : " unset", wanted, reason_of(row, value));
    }
    return ERROR_NONE;
}

/* "env -i" and "env -u NAME" in front of the server: what we set would not reach it. */
static enum error_code check_drops(const struct list *argv, const struct command_parts *parts,
                                   const struct server_launch *launch, struct error *err)
{
    for (size_t i = 0; i < ENVIRONMENT_ROWS; i++) {
        const struct environment_row *row = &environment_rows[i];
        if (our_value(row, launch) != NULL && prefix_drops(argv, parts->prefix_end, row->name))
            return error_set(err, ERROR_SETTINGS,
                             "env in CMD takes %s away, which contradicts %s=%s: %s; leave -i and -u out", row->name,
                             row->name, our_value(row, launch), row->reason);
    }
    return ERROR_NONE;
}

/* The environment, and assignments in front of the python ("env DUMPER_ENABLE=1 python3 ..."), which would win. */
static enum error_code check_environment(const struct list *argv, const struct command_parts *parts,
                                         const struct list *environment, const struct server_launch *launch,
                                         struct error *err)
{
    for (size_t i = 0; i < environment->count + parts->prefix_end; i++) {
        const char *item = i < environment->count ? environment->items[i] : argv->items[i - environment->count];
        size_t length = strcspn(item, "=");
        char name[64];
        if (item[length] != '=' || length >= sizeof name)
            continue;
        snprintf(name, sizeof name, "%.*s", (int)length, item);
        enum error_code code = check_variable(name, item + length + 1, launch, err);
        if (code != ERROR_NONE)
            return code;
    }
    return check_drops(argv, parts, launch, err);
}

static enum error_code check_arguments(const struct list *argv, size_t from, struct error *err)
{
    struct flags_found found, attention;
    char shown[128];
    for (size_t i = 0; i < sizeof argument_rows / sizeof argument_rows[0]; i++) {
        const struct argument_row *row = &argument_rows[i];
        if (!flags_find(argv, from, row->flag, &found) || (row->fine != NULL && row->fine(found.value)))
            continue;
        const char *value = found.value != NULL ? found.value : "";
        return error_set(err, ERROR_SETTINGS, "%s%s%s contradicts %s: %s", flags_name(row->flag),
                         value[0] != '\0' ? " " : "", text_clean(value, strlen(value), shown, sizeof shown), row->ours,
                         row->reason);
    }
    uint64_t replicas;
    if (flags_find(argv, from, FLAGS_DP_SIZE, &found) && found.value != NULL &&
        !(number_parse("", found.value, UINT32_MAX, &replicas, NULL) == ERROR_NONE && replicas == 1) &&
        !flags_find(argv, from, FLAGS_ENABLE_DP_ATTENTION, &attention))
        return error_set(err, ERROR_SETTINGS,
                         "--dp-size %s contradicts --dp-size 1: replicas write files of the same names over each "
                         "other; dump one replica (or use --enable-dp-attention)",
                         text_clean(found.value, strlen(found.value), shown, sizeof shown));
    return ERROR_NONE;
}

static void note_names(const struct list *environment, struct list *ret_notes)
{
    for (size_t i = 0; i < environment->count; i++) {
        const char *item = environment->items[i];
        char name[64];
        snprintf(name, sizeof name, "%.*s", (int)strcspn(item, "="), item);
        if (text_starts(item, "SGLANG_DUMPER_"))
            list_add_format(ret_notes, "%s is ignored: only 0.5.9 and older read that prefix", name);
        if (!text_starts(item, "DUMPER_") || text_starts(item, "DUMPER_GRAFTER_"))
            continue;
        bool known = false;
        for (size_t k = 0; k < ENVIRONMENT_ROWS; k++)
            known = known || strcmp(name, environment_rows[k].name) == 0;
        for (size_t k = 0; k < sizeof known_names / sizeof known_names[0]; k++)
            known = known || strcmp(name, known_names[k]) == 0;
        if (!known)
            list_add_format(ret_notes, "%s is not a name that the dumper reads: it is ignored", name);
    }
}

/* The other names are set for the guard's own sake, in every kind of run. */
static bool is_dumpers(const char *name)
{
    return text_starts(name, "DUMPER_");
}

static void set_environment(const struct server_launch *launch, struct list *environment, struct list *ret_notes)
{
    for (size_t i = 0; i < ENVIRONMENT_ROWS; i++) {
        const struct environment_row *row = &environment_rows[i];
        const char *ours = our_value(row, launch);
        if (ours == NULL || (launch->plain && is_dumpers(row->name)))
            continue;
        list_environment_set(environment, row->name, ours);
        list_add_format(ret_notes, "set %s=%s: %s", row->name, ours, row->reason);
    }
}

static void add_arguments(const struct command_parts *parts, const struct versions_spelling *spelling,
                          struct list *argv, struct list *environment, struct list *ret_notes)
{
    struct flags_found found;
    struct list added = {NULL, 0};
    struct buffer joined;
    list_add(&added, spelling->decode_graphs_off);
    list_add(&added, spelling->prefill_graphs_off);
    if (!flags_find(argv, parts->arguments, FLAGS_WATCHDOG_TIMEOUT, &found)) {
        list_add(&added, flags_name(FLAGS_WATCHDOG_TIMEOUT));
        list_add(&added, watchdog_seconds);
    }
    buffer_init(&joined);
    for (size_t i = 0; i < added.count; i++)
        buffer_format(&joined, "%s%s", i == 0 ? "" : " ", added.items[i]);
    if (parts->form == COMMAND_WRAPPER) {
        list_environment_set(environment, SETTINGS_WRAPPER_VARIABLE, joined.data);
        list_add_format(ret_notes,
                        "CMD is not SGLang itself, so nothing is appended; it must hand $" SETTINGS_WRAPPER_VARIABLE
                        " (%s) to the server: verification decides",
                        joined.data);
    } else {
        list_add_all(argv, list_vector(&added));
        list_add_format(ret_notes,
                        "added %s: a replayed graph calls no hook, and a slow dump must not trip the watchdog",
                        joined.data);
    }
    buffer_fini(&joined);
    list_fini(&added);
}

/* Whatever CMD says holds. A dump that its environment begins is nobody's but its user's. */
static void prepare_plain(const struct server_launch *launch, struct list *environment, struct list *ret_notes)
{
    for (size_t i = 0; i < environment->count; i++)
        if (is_dumpers(environment->items[i]))
            list_add_format(ret_notes,
                            "%.*s is left to the server: what it dumps in a plain run is neither counted nor audited",
                            (int)strcspn(environment->items[i], "="), environment->items[i]);
    set_environment(launch, environment, ret_notes);
}

enum error_code settings_prepare(const struct server_command *command, const char *version,
                                 const struct server_launch *launch, struct list *argv, struct list *environment,
                                 struct list *ret_notes, struct error *err)
{
    const struct versions_spelling *spelling = NULL;
    struct command_parts parts;
    bool guessed = false;
    struct flags_found found;
    if (launch->plain) {
        prepare_plain(launch, environment, ret_notes);
        return ERROR_NONE;
    }
    enum error_code code = versions_find(version, &spelling, &guessed, err);
    if (code != ERROR_NONE)
        return code;
    command_split(argv, &parts);
    if (command->is_wrapper)
        parts = (struct command_parts){.form = COMMAND_WRAPPER, .arguments = 1, .prefix_end = prefix_end(argv, 0)};
    code = check_environment(argv, &parts, environment, launch, err);
    if (code == ERROR_NONE && parts.form != COMMAND_WRAPPER) /* a wrapper's own flags may mean anything */
        code = check_arguments(argv, parts.arguments, err);
    if (code != ERROR_NONE)
        return code;
    if (guessed) {
        char shown[64];
        list_add_format(ret_notes, "the SGLang version is not known (%s): flags are spelt as from %u.%u.%u on",
                        version[0] != '\0' ? text_clean(version, strlen(version), shown, sizeof shown)
                                           : "it could not be asked",
                        spelling->from.major, spelling->from.minor, spelling->from.patch);
    }
    note_names(environment, ret_notes);
    if (command->filter != NULL)
        list_add_format(ret_notes, "kept DUMPER_FILTER=%s: dumps hold only what it lets through", command->filter);
    if (prefix_holds_output(argv, parts.prefix_end))
        list_add(ret_notes, "conda run holds the server's output back until it ends: add --no-capture-output");
    for (size_t i = 0; i < sizeof note_rows / sizeof note_rows[0]; i++)
        if (parts.form != COMMAND_WRAPPER && flags_find(argv, parts.arguments, note_rows[i].flag, &found))
            list_add_format(ret_notes, "%s: %s", flags_name(note_rows[i].flag), note_rows[i].text);
    set_environment(launch, environment, ret_notes);
    add_arguments(&parts, spelling, argv, environment, ret_notes);
    return ERROR_NONE;
}
