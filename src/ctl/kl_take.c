#include "ctl/kl_take.h"

#include "base/memory.h"
#include "sglang/kl_helper.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { STAND_IN_COMMA = 16 }; /* an id that every model has */

enum error_code kl_take_check(const struct kl_take_plan *plan, struct error *err)
{
    size_t count = 0;
    enum error_code code = ERROR_NONE;
    struct stat file;
    /* a pipe can be read once only */
    bool is_pipe = plan->prompts_file != NULL && stat(plan->prompts_file, &file) == 0 && !S_ISREG(file.st_mode);
    if (!is_pipe)
        code = prompts_foresee(plan->prompts_file, plan->synthetic, KL_TAKE_PROMPTS, &count, err);
    if (code == ERROR_NONE && !is_pipe)
        code = prompts_enough(count, plan->least_samples, err);
    if (code == ERROR_NONE && plan->thresholds != NULL && access(plan->thresholds, R_OK) != 0)
        code = error_set(err, ERROR_BAD_VALUE, "--thresholds: '%s': %s", plan->thresholds, strerror(errno));
    return code;
}

static enum error_code get_prompts(const struct kl_take_plan *plan, struct endpoint *endpoint, struct prompts *prompts,
                                   struct error *err)
{
    enum error_code code =
        prompts_get(plan->prompts_file, plan->synthetic, KL_TAKE_PROMPTS, endpoint->server.vocabulary, prompts, err);
    if (code == ERROR_NONE)
        code = prompts_enough(prompts->count, plan->least_samples, err);
    return code == ERROR_NONE ? endpoint_tokenize(endpoint, prompts, err) : code;
}

/* The ids of what a second turn adds; a server without a tokenizer gets an id of its own. */
static enum error_code get_comma(const struct kl_take_plan *plan, struct endpoint *endpoint, struct kl_take *take,
                                 struct error *err)
{
    memcpy(take->comma, plan->comma, sizeof take->comma);
    take->plan.comma = take->comma;
    take->plan.comma_count = plan->comma_count;
    if (plan->comma_count > 0)
        return ERROR_NONE;
    struct prompts one = {.count = 1, .items = memory_new(sizeof one.items[0])};
    one.items[0].text = memory_copy(KL_HELPER_COMMA);
    enum error_code code = endpoint_tokenize(endpoint, &one, err);
    bool made_up = code == ERROR_SERVER;
    if (made_up) {
        take->comma[take->plan.comma_count++] = STAND_IN_COMMA;
        code = ERROR_NONE;
        *err = (struct error)ERROR_INIT;
    }
    for (size_t i = 0; code == ERROR_NONE && !made_up && i < one.items[0].length && i < KL_TAKE_COMMA_MOST; i++)
        take->comma[take->plan.comma_count++] = one.items[0].ids[i];
    take->report.comma_made_up = made_up;
    prompts_fini(&one);
    return code;
}

double kl_take_temperature(const struct generate_server *server)
{
    return kl_helper_temperature(server->version);
}

static void read_paths(struct kl_report *report)
{
    free(report->foreign);
    kl_reading_fini(&report->reading);
    report->foreign = foreign_text(&report->endpoint->foreign);
    const struct kl_server server = kl_report_server(report);
    kl_read(report->paths, &server, &report->reading);
}

enum error_code kl_take(struct endpoint *endpoint, const struct kl_take_plan *plan, struct kl_take *ret_take,
                        struct error *err)
{
    struct kl_report *report = &ret_take->report;
    enum error_code code = ERROR_NONE;
    *ret_take = (struct kl_take){
        .plan = {.prompts = &ret_take->prompts,
                 .new_tokens = (unsigned)plan->new_tokens,
                 .temperature = kl_take_temperature(&endpoint->server),
                 .progress = plan->progress,
                 .context = plan->context},
        .report = {.endpoint = endpoint, .plan = &ret_take->plan, .thresholds_path = plan->thresholds}};
    memcpy(ret_take->plan.wanted, plan->wanted, sizeof plan->wanted);
    if (plan->thresholds != NULL)
        code = kl_thresholds_read(plan->thresholds, endpoint->server.model_path, endpoint->server.tp_size,
                                  &report->thresholds, err);
    if (code == ERROR_NONE)
        code = get_prompts(plan, endpoint, &ret_take->prompts, err);
    if (code == ERROR_NONE)
        code = get_comma(plan, endpoint, ret_take, err);
    if (code == ERROR_NONE)
        code = kl_paths_take(endpoint, &ret_take->plan, report->paths, err);
    if (code != ERROR_NONE) {
        kl_take_fini(ret_take);
        return code;
    }
    generate_server_hash(&endpoint->server, report->settings_hash);
    read_paths(report);
    if (plan->explain != NULL && !foreign_seen(&endpoint->foreign)) {
        code = kl_explain_take(endpoint, report, plan->explain, &report->explanation, err);
        read_paths(report); /* somebody else may have come since */
    }
    if (code != ERROR_NONE)
        kl_take_fini(ret_take);
    return code;
}

void kl_take_fini(struct kl_take *take)
{
    for (int id = 0; id < KL_PATHS; id++)
        kl_path_fini(&take->report.paths[id]);
    kl_reading_fini(&take->report.reading);
    free(take->report.foreign);
    kl_explanation_fini(&take->report.explanation);
    prompts_fini(&take->prompts);
    *take = (struct kl_take){0};
}
