#include "ctl/kl_report.h"

#include "ctl/kl_explain_report.h"
#include "json/json.h"

#include <math.h>
#include <stdio.h>

const char *kl_report_target(const struct kl_report *report)
{
    return report->endpoint->is_run ? report->endpoint->name : report->endpoint->url;
}

struct kl_server kl_report_server(const struct kl_report *report)
{
    const struct generate_server *server = &report->endpoint->server;
    return (struct kl_server){.page_size = server->page_size,
                              .sliding_window = server->sliding_window,
                              .state_checkpoint_interval = server->state_checkpoint_interval,
                              .deterministic = server->deterministic,
                              .mixture_of_experts = server->moe_known && server->mixture_of_experts,
                              .one_at_a_time = server->one_at_a_time,
                              .foreign = foreign_seen(&report->endpoint->foreign) ? report->foreign : NULL};
}

bool kl_report_path_is_fine(const struct kl_report *report, enum kl_path_id id)
{
    const struct kl_path *path = &report->paths[id];
    if (path->grade == KL_GRADE_NOT_MEASURED)
        return true;
    bool below = report->thresholds_path != NULL && path->mean < report->thresholds.mean[id];
    return kl_grade_clean(path->grade) || below;
}

bool kl_report_is_fine(const struct kl_report *report)
{
    bool measured = false, fine = report->reading.condition != KL_CONDITION_REFUSED;
    for (int id = 0; id < KL_PATHS; id++) {
        measured = measured || report->paths[id].grade != KL_GRADE_NOT_MEASURED;
        fine = fine && kl_report_path_is_fine(report, (enum kl_path_id)id);
    }
    return measured && fine;
}

size_t kl_report_end(const struct kl_report *report)
{
    size_t end = 0;
    for (int id = 0; id < KL_PATHS; id++)
        for (size_t i = 0; i < report->paths[id].request_count; i++) {
            const struct kl_request *request = &report->paths[id].requests[i];
            if (request->count > 0 && request->first + request->count > end)
                end = request->first + request->count;
        }
    return end;
}

static void set_server(struct json *root, const struct kl_report *report)
{
    const struct generate_server *server = &report->endpoint->server;
    struct json *object = json_set_object(root, "server");
    json_set_string(object, "version", server->version);
    json_set_string(object, "model_path", server->model_path);
    json_set_u64(object, "tp", server->tp_size);
    json_set_u64(object, "page_size", server->page_size);
    json_set_u64(object, "sliding_window", server->sliding_window);
    json_set_u64(object, "state_checkpoint_interval", server->state_checkpoint_interval);
    json_set_bool(object, "radix_cache", server->radix_cache);
    json_set_bool(object, "deterministic", server->deterministic);
    json_set_null(object, "mixture_of_experts");
    if (server->moe_known)
        json_set_bool(object, "mixture_of_experts", server->mixture_of_experts);
    json_set_null(object, "graphs_off");
    if (server->graphs_known)
        json_set_bool(object, "graphs_off", server->graphs_off);
    json_set_string(object, "weight_version", server->weight_version);
    json_set_string(object, "settings_hash", report->settings_hash);
    json_set_child(object, "settings", json_copy(server->settings));
}

static void set_prompts(struct json *root, const struct kl_report *report)
{
    const struct kl_paths_plan *plan = report->plan;
    struct json *object = json_set_object(root, "prompts");
    json_set_string(object, "hash", plan->prompts->hash);
    json_set_string(object, "source", plan->prompts->source);
    json_set_u64(object, "count", plan->prompts->count);
    json_set_u64(root, "new_tokens", plan->new_tokens);
    json_set_double(root, "temperature", plan->temperature);
    struct json *comma = json_set_array(root, "comma");
    for (size_t i = 0; i < plan->comma_count; i++)
        json_append_double(comma, (double)plan->comma[i]);
}

static void set_doubles(struct json *object, const char *key, const double *values, size_t count)
{
    struct json *array = json_set_array(object, key);
    for (size_t i = 0; i < count; i++)
        json_append_double(array, values[i]);
}

static void append_request(struct json *array, const struct kl_request *request,
                           const struct kl_request_numbers *numbers)
{
    struct json *object = json_append_object(array), *ids;
    json_set_string(object, "rid", request->rid);
    json_set_u64(object, "prompt_length", request->prompt_length);
    json_set_u64(object, "cached_tokens", request->cached_tokens);
    json_set_string(object, "dropped", request->dropped);
    json_set_u64(object, "bit_equal", numbers->bit_equal);
    json_set_u64(object, "stray", numbers->stray);
    json_set_u64(object, "beyond", numbers->beyond);
    json_set_double(object, "mean", numbers->mean);
    json_set_double(object, "max", numbers->max);
    json_set_double(object, "max_abs", numbers->max_abs);
    json_set_null(object, "first_beyond");
    if (numbers->first_beyond != SIZE_MAX)
        json_set_u64(object, "first_beyond", numbers->first_beyond);
    json_set_u64(object, "first", request->first);
    ids = json_set_array(object, "ids");
    for (size_t i = 0; i < request->count; i++)
        json_append_double(ids, (double)request->ids[i]);
    set_doubles(object, "a", request->a, request->count);
    set_doubles(object, "b", request->b, request->count);
}

static void set_path(struct json *helpers, const struct kl_report *report, enum kl_path_id id)
{
    const struct kl_path *path = &report->paths[id];
    struct json *object = json_set_object(helpers, kl_path_member(id)), *shares, *requests;
    json_set_string(object, "how", kl_path_how(id));
    json_set_string(object, "grade", kl_grade_word(path->grade));
    json_set_bool(object, "fine", kl_report_path_is_fine(report, id));
    json_set_string(object, "why_not", path->why_not);
    json_set_double(object, "mean", path->tokens > 0 ? path->mean : NAN);
    json_set_double(object, "max", path->tokens > 0 ? path->max : NAN);
    json_set_double(object, "threshold", report->thresholds_path != NULL ? report->thresholds.mean[id] : NAN);
    shares = json_set_object(object, "share_above");
    for (size_t t = 0; t < KL_THRESHOLDS; t++) {
        char key[16];
        snprintf(key, sizeof key, "%g", kl_thresholds[t]);
        json_set_double(shares, key, path->share_above[t]);
    }
    json_set_u64(object, "tokens", path->tokens);
    json_set_u64(object, "kept", path->kept);
    json_set_u64(object, "bit_equal", path->bit_equal);
    json_set_u64(object, "stray", path->stray);
    json_set_u64(object, "beyond", path->beyond);
    requests = json_set_array(object, "requests");
    for (size_t i = 0; i < path->request_count; i++)
        append_request(requests, &path->requests[i], &path->numbers[i]);
}

static void set_reading(struct json *root, const struct kl_reading *reading)
{
    struct json *object = json_set_object(root, "reading");
    json_set_string(object, "signature", reading->signature);
    json_set_string(object, "condition", kl_condition_word(reading->condition));
    json_set_string(object, "where", kl_where_word(reading->where));
    json_set_string(object, "requests", reading->few ? "few" : "all");
    json_set_bool(object, "condition_2_open", reading->condition_2_open);
    json_set_bool(object, "condition_2_in_restore", reading->condition_2_in_restore);
    json_set_string(object, "text", reading->text);
    json_set_texts(object, "evidence", reading->evidence);
    json_set_texts(object, "next", reading->next);
}

struct json *kl_report_json(const struct kl_report *report)
{
    struct json *root = json_object(), *helpers;
    uint64_t window = report->endpoint->server.sliding_window;
    json_set_string(root, "schema", "kldump.kl/1");
    json_set_string(root, "target", kl_report_target(report));
    json_set_bool(root, "clean", kl_report_is_fine(report));
    set_prompts(root, report);
    set_server(root, report);
    json_set_null(root, "past_window");
    if (window > 0)
        json_set_bool(root, "past_window", kl_report_end(report) > window);
    json_set_string(root, "thresholds", report->thresholds_path);
    helpers = json_set_object(root, "helpers");
    for (int id = 0; id < KL_PATHS; id++)
        set_path(helpers, report, (enum kl_path_id)id);
    foreign_json(&report->endpoint->foreign, root);
    set_reading(root, &report->reading);
    kl_explain_report_json(&report->explanation, root);
    return root;
}
