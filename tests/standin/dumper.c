/* dumper.c: see dumper.h.
 *
 * Order of a dumped tensor, as in the real one: filter, dump_index + 1, folder, file. A file that cannot be written is
 * skipped with a line and leaves what was written under the final name; a folder that cannot be made is an exception.
 */
#include "dumper.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <time.h>

#include "dump_write.h"
#include "faults.h"
#include "filter.h"
#include "knobs.h"
#include "log.h"
#include "text.h"
#include "version.h"

enum kind { KIND_BOOL, KIND_STRING, KIND_INT };

enum since { SINCE_ALWAYS, SINCE_GRAFTER, SINCE_PARALLEL_RANK };

static const struct key {
    const char *name;
    enum kind kind;
    const char *initial; /* NULL: None */
    enum since since;
} KEYS[] = {
    {"enable", KIND_BOOL, "false", SINCE_ALWAYS},
    {"filter", KIND_STRING, NULL, SINCE_ALWAYS},
    {"dir", KIND_STRING, "/tmp/dumper", SINCE_ALWAYS},
    {"enable_output_file", KIND_BOOL, "true", SINCE_ALWAYS},
    {"enable_output_console", KIND_BOOL, "true", SINCE_ALWAYS},
    {"enable_value", KIND_BOOL, "true", SINCE_ALWAYS},
    {"enable_grad", KIND_BOOL, "false", SINCE_ALWAYS},
    {"enable_model_value", KIND_BOOL, "false", SINCE_ALWAYS},
    {"enable_model_grad", KIND_BOOL, "false", SINCE_ALWAYS},
    {"exp_name", KIND_STRING, NULL, SINCE_ALWAYS},
    {"cleanup_previous", KIND_BOOL, "false", SINCE_ALWAYS},
    {"collective_timeout", KIND_INT, "60", SINCE_ALWAYS},
    {"server_port", KIND_STRING, "-1", SINCE_ALWAYS},
    {"non_intrusive_mode", KIND_STRING, "core", SINCE_ALWAYS},
    {"source_patcher_config", KIND_STRING, NULL, SINCE_ALWAYS},
    {"grafter_enable", KIND_BOOL, "false", SINCE_GRAFTER},
    {"grafter_role", KIND_STRING, "", SINCE_GRAFTER},
    {"grafter_b2t_filter", KIND_STRING, NULL, SINCE_GRAFTER},
    {"grafter_t2b_filter", KIND_STRING, NULL, SINCE_GRAFTER},
    {"grafter_master_address", KIND_STRING, "", SINCE_GRAFTER},
    {"grafter_master_port", KIND_INT, "-1", SINCE_GRAFTER},
    {"grafter_baseline_world_size", KIND_INT, "-1", SINCE_GRAFTER},
    {"grafter_target_world_size", KIND_INT, "-1", SINCE_GRAFTER},
    {"grafter_backend", KIND_STRING, "nccl", SINCE_GRAFTER},
    {"grafter_group_name", KIND_STRING, "graft", SINCE_GRAFTER},
    {"grafter_timeout", KIND_INT, "300", SINCE_GRAFTER},
    {"grafter_transform_path", KIND_STRING, NULL, SINCE_GRAFTER},
    {"include_parallel_rank_in_filename", KIND_BOOL, "false", SINCE_PARALLEL_RANK},
};
enum { KEY_COUNT = sizeof KEYS / sizeof KEYS[0] };

static struct {
    const struct model *model;
    const char *device;
    int rank, ranks;
    int attention_replicas;
    struct forward_place place;
    cJSON *config;
    pthread_mutex_t lock; /* guards config where another thread may look */
    bool hooks;
    bool every_module; /* mode all */
    long step, dump_index;
    long dumped_passes;
    bool capturing;
    char chosen_name[96];
    char message[512];
} state = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* ------------------------------------------------------------------ configuration */

static bool exists(const struct key *key)
{
    const struct version_rules *rules = version_rules();
    return key->since == SINCE_ALWAYS || (key->since == SINCE_GRAFTER && rules->has_grafter) ||
           (key->since == SINCE_PARALLEL_RANK && rules->has_parallel_rank);
}

static const char *text_of(const char *key)
{
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(state.config, key);
    return cJSON_IsString(item) ? item->valuestring : NULL;
}

static bool is_true(const char *key)
{
    return cJSON_IsTrue(cJSON_GetObjectItemCaseSensitive(state.config, key));
}

static bool only_blanks(const char *text)
{
    return text[strspn(text, " \t\r\n")] == '\0';
}

/* int() of Python: blanks around, nothing else. */
static bool whole_number(const char *text, long *ret_number)
{
    char *end;
    errno = 0;
    long number = strtol(text, &end, 10);
    if (end == text || !only_blanks(end) || errno != 0)
        return false;
    *ret_number = number;
    return true;
}

static cJSON *from_environment(const struct key *key, const char **ret_message)
{
    char name[64] = "DUMPER_";
    for (size_t i = 0; key->name[i] != '\0' && i + 8 < sizeof name; i++) {
        char c = key->name[i];
        name[7 + i] = (char)(c >= 'a' && c <= 'z' ? c - 'a' + 'A' : c);
        name[8 + i] = '\0';
    }
    const char *text = getenv(name);
    if (text == NULL || only_blanks(text))
        text = key->initial;
    if (text == NULL)
        return cJSON_CreateNull();
    if (key->kind == KIND_BOOL) /* not trimmed: " 1" and "yes" are false without a word */
        return cJSON_CreateBool(strcasecmp(text, "true") == 0 || strcmp(text, "1") == 0);
    if (key->kind == KIND_STRING)
        return cJSON_CreateString(text);
    long number;
    if (!whole_number(text, &number)) {
        snprintf(state.message, sizeof state.message, "ValueError: invalid literal for int() with base 10: '%s'", text);
        *ret_message = state.message;
        return NULL;
    }
    return cJSON_CreateNumber((double)number);
}

bool dumper_has_control(void)
{
    const char *port = text_of("server_port");
    return port != NULL && strcmp(port, "reuse") == 0;
}

/* enable or a usable port; a port that is neither `reuse` nor a number raises, but only when enable is off. */
static bool may_enable(bool *ret_raises)
{
    const char *port = text_of("server_port");
    long number = 0;
    *ret_raises = false;
    if (is_true("enable") || dumper_has_control())
        return true;
    if (port != NULL && !whole_number(port, &number)) {
        snprintf(state.message, sizeof state.message, "ValueError: invalid literal for int() with base 10: '%s'", port);
        *ret_raises = true;
    }
    return number > 0;
}

bool dumper_init(const struct model *model, const char *device, int rank, const struct arguments *arguments,
                 const char **ret_message)
{
    state.model = model;
    state.device = device;
    state.rank = rank;
    state.ranks = arguments->ranks;
    state.attention_replicas = arguments->attention_replicas;
    state.place = (struct forward_place){.tensor_rank = rank % arguments->tensor,
                                         .tensor_ranks = arguments->tensor,
                                         .stage = rank / arguments->tensor,
                                         .stages = arguments->stages};
    state.config = cJSON_CreateObject();
    for (size_t i = 0; i < KEY_COUNT; i++) {
        if (!exists(&KEYS[i]))
            continue;
        cJSON *item = from_environment(&KEYS[i], ret_message);
        if (item == NULL)
            return false;
        cJSON_AddItemToObject(state.config, KEYS[i].name, item);
    }
    if (faults_on(FAULTS_FILTER_DROPS_ALL) && strcmp(faults_value(FAULTS_FILTER_DROPS_ALL), "hidden") != 0)
        cJSON_ReplaceItemInObject(state.config, "filter", cJSON_CreateString("step == 0"));
    bool raises;
    may_enable(&raises);
    if (raises)
        *ret_message = state.message;
    return !raises;
}

void dumper_register_hooks(void)
{
    bool raises;
    const char *mode = text_of("non_intrusive_mode");
    state.hooks = version_rules()->has_hooks && may_enable(&raises) && !faults_on(FAULTS_NO_HOOKS) &&
                  !(mode != NULL && strcmp(mode, "off") == 0);
    /* Any unknown word is core. */
    state.every_module = mode != NULL && strcmp(mode, "all") == 0 && !faults_on(FAULTS_MODE_CORE);
}

bool dumper_enabled(void)
{
    pthread_mutex_lock(&state.lock);
    bool enabled = is_true("enable");
    pthread_mutex_unlock(&state.lock);
    return enabled;
}

bool dumper_folder(char *target, size_t size)
{
    pthread_mutex_lock(&state.lock);
    const char *exp = text_of("exp_name");
    if (exp == NULL && state.chosen_name[0] != '\0')
        exp = state.chosen_name;
    const char *dir = text_of("dir");
    bool known = is_true("enable") && exp != NULL && dir != NULL;
    if (known)
        snprintf(target, size, "%s/%s", dir, exp);
    pthread_mutex_unlock(&state.lock);
    return known;
}

bool dumper_needs_name(void)
{
    return is_true("enable") && text_of("exp_name") == NULL && state.chosen_name[0] == '\0';
}

void dumper_choose_name(char *name, size_t size)
{
    struct timespec now;
    struct tm parts;
    char date[32];
    clock_gettime(CLOCK_REALTIME, &now);
    gmtime_r(&now.tv_sec, &parts);
    strftime(date, sizeof date, "%Y%m%d_%H%M%S", &parts);
    snprintf(name, size, "dump_%s_%03ld%03d", date, now.tv_nsec / 1000000, (int)getpid() % 1000);
}

void dumper_set_name(const char *name)
{
    pthread_mutex_lock(&state.lock);
    snprintf(state.chosen_name, sizeof state.chosen_name, "%s", name);
    pthread_mutex_unlock(&state.lock);
    if (state.rank == 0)
        log_dumper(state.rank, "Choose exp_name=%s", name);
}

/* ------------------------------------------------------------------ files */

static void console_line(const char *path, const struct forward_tensor *tensor)
{
    if (tensor->shape.strings != NULL) {
        log_dumper(state.rank,
                   "[Dumper.Value] %s type=<class 'list'> shape=None dtype=None device=None id=1 "
                   "sample_value=['%s']",
                   path, tensor->shape.strings[0]);
        return;
    }
    char shape[64];
    if (tensor->shape.dimensions == 1)
        snprintf(shape, sizeof shape, "[%zu]", tensor->shape.size[0]);
    else
        snprintf(shape, sizeof shape, "[%zu, %zu]", tensor->shape.size[0], tensor->shape.size[1]);
    log_dumper(state.rank,
               "[Dumper.Value] %s type=<class 'torch.Tensor'> shape=torch.Size(%s) dtype=%s device=%s id=1 "
               "sample_value=tensor(...)",
               path, shape, torch_file_type_name(tensor->shape.type), tensor->shape.device);
}

struct visit {
    const struct forward_pass *pass;
    bool raised;
};

static bool raise_in_forward(struct visit *visit, const char *format, const char *detail)
{
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
    snprintf(state.message, sizeof state.message, format, detail);
#pragma GCC diagnostic pop
    visit->raised = true;
    return false;
}

static void save(const struct visit *visit, const struct forward_tensor *tensor, const char *folder)
{
    char record[640], path[2048];
    int used =
        snprintf(record, sizeof record, "step=%ld___rank=%d___dump_index=%ld___name=%s___recompute_status=disabled",
                 state.step, state.rank, state.dump_index, tensor->name);
    if (tensor->layer_id >= 0)
        snprintf(record + used, sizeof record - (size_t)used, "___layer_id=%d", tensor->layer_id);
    snprintf(path, sizeof path, "%s/%s.pt", folder, record);
    if (is_true("enable_output_console"))
        console_line(path, tensor);
    if (!is_true("enable_output_file"))
        return;

    struct text data, file;
    text_init(&data);
    text_init(&file);
    struct torch_file_value value = tensor->shape;
    if (value.strings == NULL) {
        forward_fill(state.model, visit->pass, &state.place, tensor, &data);
        value.data = data.data;
    }
    struct torch_file_meta meta = {.step = state.step,
                                   .rank = state.rank,
                                   .dump_index = state.dump_index,
                                   .name = tensor->name,
                                   .layer_id = tensor->layer_id,
                                   .world_size = state.ranks,
                                   .stages = state.place.stages,
                                   .attention_replicas = state.attention_replicas,
                                   .tokenizer_path = state.model->path};
    torch_file_build(&value, &meta, record, NULL, &file);
    dump_write_file(path, &file, &(struct dump_write_about){state.rank, state.dump_index, state.capturing});
    text_fini(&data);
    text_fini(&file);
    if (faults_on(FAULTS_SLOW_DUMP))
        knobs_sleep_ms((long)faults_number(FAULTS_SLOW_DUMP));
    if (state.rank == 0 && !state.capturing)
        knobs_hold(strrchr(folder, '/') + 1);
}

static bool on_tensor(void *context, const struct forward_tensor *tensor)
{
    struct visit *visit = context;
    if (!state.every_module && !tensor->core)
        return true;
    if (!is_true("enable") || !is_true("enable_value"))
        return true;
    const char *filter = faults_on(FAULTS_FILTER_DROPS_ALL) ? "step == 0" : text_of("filter");
    if (filter != NULL) {
        const char *message = NULL;
        enum filter_result result = filter_evaluate(filter, tensor->name, tensor->layer_id, &message);
        if (result == FILTER_ERROR)
            return raise_in_forward(visit, "%s", message);
        if (result == FILTER_NO)
            return true;
    }
    if (faults_on(FAULTS_CRASH_ON_DUMP) && state.dumped_passes >= faults_number(FAULTS_CRASH_ON_DUMP))
        return raise_in_forward(visit, "RuntimeError: %s", "the size of tensor a must match the size of tensor b");
    state.dump_index++;
    char folder[1200];
    if (!dumper_folder(folder, sizeof folder))
        return true;
    if (is_true("enable_output_file") && !dump_write_folders(folder)) {
        char detail[1400];
        snprintf(detail, sizeof detail, "[Errno %d] %s: '%s'", errno, strerror(errno), folder);
        return raise_in_forward(visit, "OSError: %.400s", detail);
    }
    save(visit, tensor, folder);
    return true;
}

/* What happens in the pass that follows as many dumped ones as the fault says. */
static bool is_due(enum faults_name fault)
{
    return faults_on(fault) && is_true("enable") && state.dumped_passes >= faults_number(fault);
}

static void compute_for(double seconds)
{
    double end = knobs_seconds() + seconds;
    while (knobs_seconds() < end)
        ;
}

static void before_pass(void)
{
    if (is_due(FAULTS_RANK_GONE) && state.rank == state.ranks - 1)
        kill(getpid(), SIGKILL);
    while (is_due(FAULTS_STALL_ON_DUMP))
        pause();
    if (faults_on(FAULTS_BUSY_PASS) && is_true("enable"))
        compute_for((double)faults_number(FAULTS_BUSY_PASS) / 1000);
}

static void reset_all(void)
{
    state.hooks = false;
    state.step = 0;
    state.dump_index = 0;
}

static void reset_by_fault(void)
{
    if (faults_on(FAULTS_RESET_HOOKS) && state.hooks && state.dumped_passes >= faults_number(FAULTS_RESET_HOOKS))
        reset_all();
}

void dumper_pass_by(const struct forward_pass *pass)
{
    forward_run(state.model, pass, &state.place, state.device, NULL, NULL);
}

bool dumper_forward(const struct forward_pass *pass, const char **ret_message)
{
    struct visit visit = {.pass = pass};
    bool raises = false;
    bool silent = faults_on(FAULTS_RANK_SILENT) && state.rank == state.ranks - 1;
    bool enabled = is_true("enable");
    if (enabled)
        reset_by_fault();
    before_pass();
    if (is_due(FAULTS_WATCHDOG_ON_DUMP)) {
        *ret_message = "Watchdog timeout";
        return false;
    }
    forward_run(state.model, pass, &state.place, state.device, state.hooks && !silent ? on_tensor : NULL, &visit);
    if (!visit.raised && may_enable(&raises) && enabled) {
        state.step++;
        state.dumped_passes++;
        log_dumper(state.rank, "step=%ld", state.step);
        reset_by_fault();
    }
    if (state.rank == 0)
        knobs_hold(NULL);
    *ret_message = state.message;
    return !visit.raised && !raises;
}

void dumper_capture(const struct forward_pass *pass)
{
    struct visit visit = {.pass = pass};
    if (!state.hooks)
        return;
    state.capturing = true;
    forward_run(state.model, pass, &state.place, state.device, on_tensor, &visit);
    state.capturing = false;
}

/* ------------------------------------------------------------------ control */

static const char *python_type(const cJSON *item)
{
    if (cJSON_IsBool(item))
        return "bool";
    if (cJSON_IsString(item))
        return "str";
    if (cJSON_IsArray(item))
        return "list";
    if (cJSON_IsObject(item))
        return "dict";
    /* A number without a fraction is an int in Python unless it was written with a point: the parser cannot tell. */
    return item->valuedouble == (double)(long long)item->valuedouble ? "int" : "float";
}

static const char *wrong_type(const struct key *key, const cJSON *item)
{
    const char *got = python_type(item);
    bool fits = cJSON_IsNull(item) || (key->kind == KIND_BOOL && cJSON_IsBool(item)) ||
                (key->kind == KIND_STRING && cJSON_IsString(item)) ||
                (key->kind == KIND_INT && (cJSON_IsBool(item) || strcmp(got, "int") == 0));
    if (fits)
        return NULL;
    static const char *const EXPECTED[] = {"bool", "str", "int"};
    snprintf(state.message, sizeof state.message, "DumperConfig.%s: expected %s, got %s", key->name,
             EXPECTED[key->kind], got);
    return state.message;
}

static const struct key *find_key(const char *name)
{
    for (size_t i = 0; i < KEY_COUNT; i++)
        if (exists(&KEYS[i]) && strcmp(KEYS[i].name, name) == 0)
            return &KEYS[i];
    return NULL;
}

static const char *configure(const cJSON *body)
{
    const cJSON *item;
    cJSON_ArrayForEach(item, body)
    {
        if (find_key(item->string) == NULL) {
            snprintf(state.message, sizeof state.message,
                     "DumperConfig.__init__() got an unexpected keyword argument '%.100s'", item->string);
            return state.message;
        }
    }
    for (size_t i = 0; i < KEY_COUNT; i++) {
        const cJSON *given = cJSON_GetObjectItemCaseSensitive(body, KEYS[i].name);
        const char *error = given != NULL ? wrong_type(&KEYS[i], given) : NULL;
        if (error != NULL)
            return error;
    }
    if (faults_on(FAULTS_RANK_DEAF) && state.rank == state.ranks - 1)
        return NULL;
    pthread_mutex_lock(&state.lock);
    cJSON_ArrayForEach(item, body)
    {
        if (faults_on(FAULTS_NO_DISABLE) && strcmp(item->string, "enable") == 0 && cJSON_IsFalse(item))
            continue;
        cJSON_ReplaceItemInObjectCaseSensitive(state.config, item->string, cJSON_Duplicate(item, true));
        if (strcmp(item->string, "exp_name") == 0)
            state.chosen_name[0] = '\0';
    }
    pthread_mutex_unlock(&state.lock);
    return NULL;
}

cJSON *dumper_control(const char *method, const cJSON *body, const char **ret_error)
{
    *ret_error = NULL;
    if (faults_on(FAULTS_NULL_ANSWER) && strcmp(method, "configure") == 0)
        return cJSON_CreateNull();
    if (strcmp(method, "configure") == 0) {
        *ret_error = body != NULL ? configure(body) : NULL;
    } else if (strcmp(method, "get_state") == 0) {
        cJSON *answer = cJSON_CreateObject();
        cJSON_AddItemToObject(answer, "config", cJSON_Duplicate(state.config, true));
        cJSON_AddNumberToObject(answer, "dump_index", (double)state.dump_index);
        cJSON_AddNumberToObject(answer, "step", (double)state.step);
        return answer;
    } else if (strcmp(method, "reset") == 0) {
        /* Keeps the configuration and takes the hooks away for ever. */
        reset_all();
    } else {
        snprintf(state.message, sizeof state.message, "Unknown dumper control method: '%.100s'", method);
        *ret_error = state.message;
    }
    if (*ret_error != NULL) {
        log_dumper(state.rank, "[ZmqRpc] error inside handler: %s", *ret_error);
        return NULL;
    }
    return cJSON_CreateObject();
}
