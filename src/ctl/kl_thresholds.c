#include "ctl/kl_thresholds.h"

#include "base/buffer.h"
#include "json/json.h"
#include "sys/file.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#define SCHEMA "kldump.kl-thresholds/1"
static const struct json_limits limits = {1024 * 1024, JSON_DEPTH, 100000};

static bool is_model(const char *given, const char *model)
{
    const char *slash = strrchr(model, '/');
    return strcmp(given, model) == 0 || (slash != NULL && strcmp(given, slash + 1) == 0);
}

static enum error_code take_means(const struct json *entry, struct kl_thresholds *thresholds, struct error *err)
{
    const struct json *means = NULL;
    enum error_code code = json_get_object(entry, "mean", &means, err);
    for (int id = 0; id < KL_PATHS; id++)
        thresholds->mean[id] = NAN;
    for (const struct json *mean = json_first(means); code == ERROR_NONE && mean != NULL; mean = json_next(mean)) {
        int id = 0;
        while (id < KL_PATHS && strcmp(kl_path_member((enum kl_path_id)id), json_key(mean)) != 0)
            id++;
        if (id == KL_PATHS)
            return error_set(err, ERROR_FORMAT, "mean.%.60s is no path; the first is '%s'", json_key(mean),
                             kl_path_member(KL_PATH_MATCH));
        code = json_get_double(mean, "", &thresholds->mean[id], err);
        if (code == ERROR_NONE && !(thresholds->mean[id] > 0))
            return error_set(err, ERROR_FORMAT, "mean.%s is %g; expected more than 0", json_key(mean),
                             thresholds->mean[id]);
    }
    return code;
}

static enum error_code find(const struct json *file, const char *model, unsigned tp, struct kl_thresholds *ret,
                            struct error *err)
{
    const struct json *list = NULL;
    const char *schema = NULL, *name = NULL;
    uint64_t other = 0, size = 0;
    enum error_code code = json_get_string(file, "schema", &schema, err);
    if (code == ERROR_NONE && strcmp(schema, SCHEMA) != 0)
        return error_set(err, ERROR_FORMAT, "schema is '%.60s'; expected " SCHEMA, schema);
    if (code == ERROR_NONE)
        code = json_get_array(file, "thresholds", &list, err);
    for (const struct json *entry = json_first(list); code == ERROR_NONE && entry != NULL; entry = json_next(entry)) {
        code = json_get_string(entry, "model", &name, err);
        if (code == ERROR_NONE)
            code = json_get_u64(entry, "tp", &size, err);
        if (code != ERROR_NONE || !is_model(name, model))
            continue;
        if (size == tp)
            return take_means(entry, ret, err);
        other = size;
    }
    if (code != ERROR_NONE)
        return code;
    if (other > 0)
        return error_set(err, ERROR_BAD_VALUE,
                         "measured for %.200s at tp %" PRIu64 ", but the server runs at tp %u: measure there", model,
                         other, tp);
    return error_set(err, ERROR_BAD_VALUE, "nothing for model %.200s at tp %u: measure it, never take another's", model,
                     tp);
}

enum error_code kl_thresholds_read(const char *path, const char *model, unsigned tp,
                                   struct kl_thresholds *ret_thresholds, struct error *err)
{
    struct buffer text;
    struct json *file = NULL;
    struct kl_thresholds thresholds;
    buffer_init(&text);
    enum error_code code = file_read(path, limits.bytes, &text, err);
    if (code == ERROR_NONE)
        code = json_parse(text.data, text.length, limits, &file, err);
    if (code == ERROR_NONE)
        code = find(file, model, tp, &thresholds, err);
    if (code == ERROR_NONE)
        *ret_thresholds = thresholds;
    else
        error_prefix(err, "%.200s", path);
    json_free(file);
    buffer_fini(&text);
    return code;
}
