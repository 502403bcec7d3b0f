#include "ctl/invariance_inputs.h"

#include "base/memory.h"
#include "base/text.h"
#include "ctl/foreign.h"
#include "ctl/result_file.h"

#include <stdlib.h>
#include <string.h>

/* What was given is no such result: whoever gave it is told, it is no failure of ours. */
static enum error_code named(const char *option, enum error_code code, struct error *err)
{
    if (code == ERROR_FORMAT)
        code = err->code = ERROR_BAD_VALUE;
    if (code != ERROR_NONE)
        error_prefix(err, "%s", option);
    return code;
}

static enum error_code in_file(const char *path, enum error_code code, struct error *err)
{
    if (code != ERROR_NONE)
        error_prefix(err, "'%.200s'", path);
    return code;
}

/* ---- match ---- */

static enum error_code check_same(const struct json *json, const char *member, const char *what, const char *wanted,
                                  struct error *err)
{
    const char *found = NULL;
    enum error_code code = json_get_string(json, member, &found, err);
    if (code == ERROR_NONE && strcmp(found, wanted) != 0)
        code = error_set(err, ERROR_BAD_VALUE,
                         "it is over other %s: hash %.32s, and those here have %s; measure both over the same", what,
                         found, wanted);
    return code;
}

static enum error_code get_grade(const struct json *json, const char *member, enum kl_grade *ret_grade,
                                 struct error *err)
{
    const char *word = NULL;
    enum error_code code = json_get_string(json, member, &word, err);
    if (code != ERROR_NONE)
        return code;
    for (int grade = KL_GRADE_NOT_MEASURED; grade <= KL_GRADE_NONZERO; grade++)
        if (strcmp(kl_grade_word((enum kl_grade)grade), word) == 0) {
            *ret_grade = (enum kl_grade)grade;
            return ERROR_NONE;
        }
    return error_set(err, ERROR_FORMAT, "%s is '%.40s'; expected bit-equal, stray, noise, nonzero or not measured",
                     member, word);
}

static enum error_code read_match(const struct json *json, const char *prompts_hash, const char *settings_hash,
                                  struct invariance_match *match, struct error *err)
{
    enum error_code code = foreign_check_result(json, err);
    if (code == ERROR_NONE)
        code = check_same(json, "prompts.hash", "prompts", prompts_hash, err);
    if (code == ERROR_NONE)
        code = check_same(json, "server.settings_hash", "settings of the server", settings_hash, err);
    if (code == ERROR_NONE)
        code = get_grade(json, "helpers.match.grade", &match->together, err);
    if (code == ERROR_NONE)
        code = get_grade(json, "helpers.match_alone.grade", &match->alone, err);
    return code;
}

enum error_code invariance_inputs_match(const char *path, const char *prompts_hash, const char *settings_hash,
                                        struct invariance_match *ret_match, struct error *err)
{
    struct json *json = NULL;
    struct invariance_match match = {.given = true};
    enum error_code code = result_file_read(path, "kldump.kl/", &json, err);
    if (code == ERROR_NONE)
        code = in_file(path, read_match(json, prompts_hash, settings_hash, &match, err), err);
    json_free(json);
    if (code == ERROR_NONE)
        *ret_match = match;
    return named("--kl", code, err);
}

/* ---- the operator ---- */

/* The row of the first tensor whose name is MODULE.inputs... or MODULE.output...; false where there is none. */
static bool find_row(const struct json *json, const char *module, const char *part, const char **ret_dtype,
                     uint64_t *ret_elements)
{
    char *beginning = memory_format("%s.%s", module, part);
    bool is_found = false;
    for (const struct json *o = json_first(json_member(json, "observations")); o != NULL && !is_found;
         o = json_next(o)) {
        const char *name = NULL;
        if (json_get_string(o, "name", &name, NULL) != ERROR_NONE || !text_starts(name, beginning))
            continue;
        is_found = json_get_string(o, "dtype", ret_dtype, NULL) == ERROR_NONE &&
                   json_get_u64(o, "row_elements", ret_elements, NULL) == ERROR_NONE && *ret_elements > 0;
    }
    free(beginning);
    return is_found;
}

static char *text_of(const struct json *json, const char *member)
{
    const char *text = NULL;
    return json_get_string(json, member, &text, NULL) == ERROR_NONE ? memory_copy(text) : NULL;
}

enum error_code invariance_inputs_module_of(const struct json *diff, struct invariance_module *ret_module,
                                            struct error *err)
{
    const char *module = NULL, *kind = NULL, *dtype = NULL, *other = NULL;
    uint64_t inputs = 0, outputs = 0;
    if (json_get_string(diff, "verdict.module", &module, NULL) != ERROR_NONE)
        return error_set(err, ERROR_BAD_VALUE,
                         "this result names no module; expected one of two dumps of which the rows differ");
    enum error_code code = json_get_string(diff, "verdict.class_kind", &kind, err);
    if (code != ERROR_NONE)
        return code;
    bool has_rows =
        find_row(diff, module, "inputs", &other, &inputs) && find_row(diff, module, "output", &dtype, &outputs);
    struct invariance_module found = {.module = memory_copy(module),
                                      .kind = memory_copy(kind),
                                      .dtype = has_rows ? memory_copy(dtype) : NULL,
                                      .inputs = inputs,
                                      .outputs = outputs,
                                      .verdict = text_of(diff, "verdict.kind"),
                                      .confidence = text_of(diff, "verdict.confidence"),
                                      .advice = text_of(diff, "verdict.what")};
    found.residual = find_row(diff, module, "inputs.1", &other, &inputs);
    found.has_layer = json_get_u64(diff, "verdict.layer", &found.layer, NULL) == ERROR_NONE;
    (void)json_get_u64(diff, "verdict.dec_rows", &found.rows, NULL);
    (void)json_get_u64(diff, "verdict.pre_rows", &found.reference_rows, NULL);
    *ret_module = found;
    return ERROR_NONE;
}

enum error_code invariance_inputs_module(const char *path, struct invariance_module *ret_module, struct error *err)
{
    struct json *json = NULL;
    enum error_code code = result_file_read(path, "kldump.diff/", &json, err);
    if (code == ERROR_NONE)
        code = in_file(path, invariance_inputs_module_of(json, ret_module, err), err);
    json_free(json);
    return named("--diff", code, err);
}

void invariance_inputs_module_fini(struct invariance_module *module)
{
    free(module->module);
    free(module->kind);
    free(module->dtype);
    free(module->verdict);
    free(module->confidence);
    free(module->advice);
    *module = (struct invariance_module){0};
}
