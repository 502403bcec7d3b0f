#include "ctl/investigate_report.h"

#include <stddef.h>

/* ---- the answer and the steps ---- */

static void set_answer(struct json *root, const struct investigation_end *end)
{
    struct json *object = json_set_object(root, "answer");
    json_set_string(object, "end", end->name);
    json_set_u64(object, "status", (uint64_t)end->status);
    json_set_string(object, "condition", kl_condition_word(end->condition));
    json_set_string(object, "where", kl_where_word(end->where));
    json_set_bool(object, "condition_1_first", end->condition_1_first);
    json_set_bool(object, "condition_2_too", end->condition_2_too);
    json_set_string(object, "module", end->module);
    json_set_string(object, "text", end->text);
    json_set_texts(object, "evidence", end->evidence);
    json_set_texts(object, "not_measured", end->not_measured);
    json_set_texts(object, "next", end->next);
}

static void set_steps(struct json *root, const struct investigation *in)
{
    struct json *array = json_set_array(root, "steps");
    for (int id = 0; id < INVESTIGATION_STEPS; id++) {
        const struct investigation_step *step = &in->steps[id];
        struct json *object = json_append_object(array);
        json_set_string(object, "step", investigation_step_name((enum investigation_step_id)id));
        json_set_string(object, "state", investigation_state_word(step->state));
        json_set_null(object, "exit_status");
        if (step->state == INVESTIGATION_DONE || step->state == INVESTIGATION_FAILED)
            json_set_i64(object, "exit_status", step->status);
        json_set_string(object, "why", step->why);
        json_set_string(object, "command", step->command);
        json_set_string(object, "result", step->result);
        json_set_null(object, "took_ms");
        if (step->took_ms > 0)
            json_set_u64(object, "took_ms", step->took_ms);
        json_set_bool(object, "taken_over", step->taken_over);
    }
}

/* ---- what the results say ---- */

static void set_kl(struct json *root, const char *key, const struct investigation_kl *kl)
{
    json_set_null(root, key);
    if (!kl->known)
        return;
    struct json *object = json_set_object(root, key), *paths;
    json_set_string(object, "signature", kl->signature);
    json_set_string(object, "condition", kl_condition_word(kl->condition));
    json_set_string(object, "where", kl_where_word(kl->where));
    json_set_string(object, "text", kl->text);
    json_set_string(object, "prompts_hash", kl->prompts_hash);
    json_set_u64(object, "requests", kl->requests);
    json_set_u64(object, "dirty_requests", kl->few);
    paths = json_set_object(object, "paths");
    for (int id = 0; id < KL_PATHS; id++) {
        bool measured = kl->paths[id].grade != KL_GRADE_NOT_MEASURED;
        struct json *path = json_set_object(paths, kl_path_member((enum kl_path_id)id));
        json_set_string(path, "grade", kl_grade_word(kl->paths[id].grade));
        json_set_null(path, "mean");
        json_set_null(path, "max");
        if (measured) {
            json_set_double(path, "mean", kl->paths[id].mean);
            json_set_double(path, "max", kl->paths[id].max);
        }
        json_set_u64(path, "tokens", kl->paths[id].tokens);
        json_set_u64(path, "kept", kl->paths[id].kept);
        json_set_u64(path, "beyond", kl->paths[id].beyond);
        json_set_string(path, "why_not", kl->paths[id].why_not);
    }
}

static void set_invariance(struct json *root, const struct investigation *in)
{
    json_set_null(root, "invariance");
    if (!in->invariance_known)
        return;
    struct json *object = json_set_object(root, "invariance"), *axes;
    json_set_string(object, "condition_1", in->invariance_condition);
    json_set_u64(object, "most", in->invariance_most);
    axes = json_set_array(object, "axes");
    for (size_t i = 0; i < in->axis_count; i++) {
        const struct investigation_axis *axis = &in->axes[i];
        struct json *one = json_append_object(axes);
        json_set_string(one, "axis", axis->word);
        json_set_string(one, "state", axis->state);
        json_set_known_u64(one, "first_size", axis->first_size > 0, axis->first_size);
        json_set_bool(one, "cached", axis->cached);
        json_set_known_u64(one, "unchanged", axis->unchanged > 0, axis->unchanged);
        json_set_string(one, "module", axis->module);
        json_set_string(one, "kind", axis->kind);
        json_set_string(one, "why_not", axis->why_not);
    }
}

static void set_capture(struct json *root, const struct investigation *in)
{
    json_set_null(root, "capture");
    if (!in->capture.known)
        return;
    struct json *object = json_set_object(root, "capture");
    json_set_bool(object, "complete", in->capture.complete);
    json_set_texts(object, "reasons", in->capture.reasons);
    json_set_bool(object, "shifted", in->capture.shifted);
    json_set_bool(object, "alone", in->capture.alone);
    json_set_bool(object, "restore", in->capture.restore);
    json_set_u64(object, "requests", in->capture.requests);
    json_set_u64(object, "tokens", in->capture.tokens);
    json_set_u64(object, "bit_equal", in->capture.bit_equal);
    json_set_double(object, "largest_difference", in->capture.largest);
}

static void set_diff(struct json *root, const struct investigation *in)
{
    json_set_null(root, "diff");
    if (!in->diff.known)
        return;
    struct json *object = json_set_object(root, "diff");
    const struct {
        const char *key, *text;
    } texts[] = {
        {"kind", in->diff.kind},   {"module", in->diff.module},         {"class", in->diff.class},
        {"needs", in->diff.needs}, {"class_kind", in->diff.class_kind}, {"confidence", in->diff.confidence},
        {"what", in->diff.what},   {"reading", in->diff.reading},       {"page", in->diff.page},
    };
    json_set_u64(object, "exit_status", (uint64_t)in->diff.status);
    json_set_bool(object, "proven", in->diff.proven);
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++)
        json_set_string(object, texts[i].key, texts[i].text);
    json_set_null(object, "layer");
    if (in->diff.has_layer)
        json_set_u64(object, "layer", in->diff.layer);
    json_set_null(object, "position");
    if (in->diff.has_position)
        json_set_i64(object, "position", in->diff.position);
    json_set_u64(object, "tested", in->diff.tested);
    json_set_u64(object, "unequal", in->diff.unequal);
    json_set_bool(object, "prefills", in->diff.prefills);
    json_set_texts(object, "certificate", in->diff.certificate);
    json_set_texts(object, "against", in->diff.against);
    json_set_texts(object, "blind", in->diff.blind);
}

struct json *investigate_report_json(const struct investigation *investigation, const struct investigation_end *end)
{
    struct json *root = json_object(), *kl;
    json_set_string(root, "schema", "kldump.investigate/1");
    json_set_string(root, "name", investigation->name);
    json_set_string(root, "dir", investigation->directory);
    json_set_string(root, "command", investigation->command);
    set_answer(root, end);
    set_steps(root, investigation);
    kl = json_set_object(root, "kl");
    set_kl(kl, "own", &investigation->own);
    set_kl(kl, "dump", &investigation->dump);
    json_set_texts(root, "settings", investigation->settings);
    set_invariance(root, investigation);
    set_capture(root, investigation);
    set_diff(root, investigation);
    return root;
}
