#include "ctl/prompts.h"

#include "base/buffer.h"
#include "base/memory.h"
#include "base/number.h"
#include "base/random.h"
#include "json/json.h"
#include "sys/file.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum {
    FILE_MAX = 1 << 30,
    FIRST_ID = 16, /* below lie ids with a meaning of their own, and those that warm-ups begin with */
    SAFE_IDS = 112,
    COUNT_MAX = 100000,
    LENGTH_MAX = 10000000,
    TOTAL_MAX = 100000000
};

void prompts_hash(struct prompts *prompts)
{
    uint64_t hash = HASH_BEGIN;
    for (size_t i = 0; i < prompts->count; i++) {
        hash = hash_number(hash, prompts->items[i].length);
        for (size_t k = 0; k < prompts->items[i].length; k++)
            hash = hash_number(hash, (uint64_t)prompts->items[i].ids[k]);
        if (prompts->items[i].ids == NULL)
            hash = hash_text(hash, prompts->items[i].text);
    }
    hash_show(hash, prompts->hash);
}

static size_t add(struct prompts *prompts)
{
    prompts->items = memory_resize(prompts->items, prompts->count + 1, sizeof *prompts->items);
    memset(&prompts->items[prompts->count], 0, sizeof *prompts->items);
    return prompts->count++;
}

/* ---- JSON lines ---- */

static enum error_code read_ids(const struct json *list, struct prompts *prompts, struct error *err)
{
    size_t count = json_count(list), k = 0, i = add(prompts);
    if (count == 0)
        return error_set(err, ERROR_FORMAT, "input_ids is empty; expected one id at least");
    prompts->items[i].ids = memory_resize(NULL, count, sizeof *prompts->items[i].ids);
    prompts->items[i].length = count;
    for (const struct json *id = json_first(list); id != NULL; id = json_next(id), k++) {
        uint64_t value = 0;
        if (json_get_u64(id, "", &value, NULL) != ERROR_NONE || value > INT32_MAX)
            return error_set(err, ERROR_FORMAT, "input_ids.%zu is no token id; expected a whole number from 0 on", k);
        prompts->items[i].ids[k] = (int64_t)value;
    }
    return ERROR_NONE;
}

static enum error_code read_line(const char *line, size_t length, struct prompts *prompts, struct error *err)
{
    struct json *json = NULL;
    const struct json *list = NULL;
    const char *text = NULL;
    enum error_code code =
        json_parse(line, length, (struct json_limits){FILE_MAX, JSON_DEPTH, JSON_ANY_VALUES}, &json, err);
    if (code == ERROR_NONE && json_member(json, "input_ids") != NULL) {
        code = json_get_array(json, "input_ids", &list, err);
        if (code == ERROR_NONE)
            code = read_ids(list, prompts, err);
    } else if (code == ERROR_NONE && json_get_string(json, "text", &text, NULL) == ERROR_NONE && text[0] != '\0') {
        size_t i = add(prompts);
        prompts->items[i].text = memory_copy(text);
    } else if (code == ERROR_NONE) {
        code = error_set(err, ERROR_FORMAT, "expected {\"input_ids\": [..]} or {\"text\": \"..\"}");
    }
    json_free(json);
    return code;
}

static enum error_code read_lines(const struct buffer *file, struct prompts *prompts, struct error *err)
{
    size_t number = 0;
    for (const char *line = file->data, *end = file->data + file->length; line < end;) {
        const char *newline = memchr(line, '\n', (size_t)(end - line));
        size_t length = (size_t)((newline != NULL ? newline : end) - line);
        number++;
        if (strspn(line, " \t\r") < length) {
            enum error_code code = read_line(line, length, prompts, err);
            if (code != ERROR_NONE) {
                error_prefix(err, "line %zu", number);
                return code;
            }
        }
        line += length + 1;
    }
    return prompts->count > 0 ? ERROR_NONE : error_set(err, ERROR_FORMAT, "there is no prompt in it");
}

enum error_code prompts_read(const char *path, struct prompts *ret_prompts, struct error *err)
{
    struct buffer file;
    struct prompts prompts = {0};
    buffer_init(&file);
    enum error_code code = file_read(path, FILE_MAX, &file, err);
    if (code == ERROR_NONE) {
        code = read_lines(&file, &prompts, err);
        if (code != ERROR_NONE)
            error_prefix(err, "%.300s", path);
    }
    buffer_fini(&file);
    if (code != ERROR_NONE) {
        prompts_fini(&prompts);
        return code;
    }
    const char *name = strrchr(path, '/');
    prompts.source = memory_copy(name != NULL ? name + 1 : path);
    prompts_hash(&prompts);
    *ret_prompts = prompts;
    return ERROR_NONE;
}

/* ---- from a seed ---- */

struct recipe {
    uint64_t count, shortest, longest, seed;
};

/* Digits up to one of `ends`; the place behind them, or NULL. */
static const char *read_number(const char *text, const char *ends, uint64_t *value)
{
    size_t digits = number_scan(text, strlen(text), value);
    return digits > 0 && strchr(ends, text[digits]) != NULL ? text + digits : NULL;
}

static bool read_recipe(const char *text, struct recipe *recipe)
{
    const char *at = read_number(text, ":", &recipe->count);
    if (at == NULL || *at == '\0')
        return false;
    at = read_number(at + 1, "-:", &recipe->shortest);
    if (at == NULL || *at == '\0')
        return false;
    recipe->longest = recipe->shortest;
    if (*at == '-') {
        at = read_number(at + 1, ":", &recipe->longest);
        if (at == NULL || *at == '\0')
            return false;
    }
    at = read_number(at + 1, "", &recipe->seed);
    return at != NULL && *at == '\0';
}

/* The first ids are all different: no two prompts share a prefix, so none finds another's in the cache. */
static void fill(const struct recipe *recipe, uint64_t span, struct prompts *prompts)
{
    uint64_t state = recipe->seed;
    uint64_t first = random_next(&state) % span;
    for (uint64_t i = 0; i < recipe->count; i++) {
        size_t length = (size_t)(recipe->shortest + random_next(&state) % (recipe->longest - recipe->shortest + 1));
        size_t place = add(prompts);
        int64_t *ids = memory_resize(NULL, length, sizeof *ids);
        ids[0] = (int64_t)(FIRST_ID + (first + i) % span);
        for (size_t k = 1; k < length; k++)
            ids[k] = (int64_t)(FIRST_ID + random_next(&state) % span);
        prompts->items[place].ids = ids;
        prompts->items[place].length = length;
    }
}

static enum error_code take_recipe(const char *text, struct recipe *ret_recipe, struct error *err)
{
    struct recipe recipe = {0};
    if (!read_recipe(text, &recipe))
        return error_set(err, ERROR_BAD_VALUE,
                         "'%.60s' is not of the form N:LEN:SEED or N:LEN-LEN:SEED, such as "
                         "32:2000-4000:7",
                         text);
    if (recipe.count < 1 || recipe.count > COUNT_MAX || recipe.shortest < 1 || recipe.longest > LENGTH_MAX ||
        recipe.shortest > recipe.longest || recipe.count * recipe.longest > TOTAL_MAX)
        return error_set(err, ERROR_BAD_VALUE,
                         "'%.60s': expected 1 to %d prompts of 1 to %d ids, %d in all, the shorter length first", text,
                         COUNT_MAX, LENGTH_MAX, TOTAL_MAX);
    *ret_recipe = recipe;
    return ERROR_NONE;
}

enum error_code prompts_make(const char *text, uint64_t vocabulary, struct prompts *ret_prompts, struct error *err)
{
    struct recipe recipe = {0};
    struct prompts prompts = {0};
    uint64_t ids = vocabulary != 0 ? vocabulary : SAFE_IDS;
    enum error_code code = take_recipe(text, &recipe, err);
    if (code != ERROR_NONE)
        return code;
    if (ids <= FIRST_ID || recipe.count > ids - FIRST_ID)
        return error_set(err, ERROR_BAD_VALUE,
                         "'%.60s': %" PRIu64 " prompts cannot all begin differently with ids from %d to %" PRIu64 "%s",
                         text, recipe.count, FIRST_ID, ids - 1,
                         vocabulary == 0 ? " (the size of the vocabulary is not known; give the prompts in a file)"
                                         : "");
    fill(&recipe, ids - FIRST_ID, &prompts);
    prompts.source = memory_format("synthetic %s", text);
    prompts_hash(&prompts);
    *ret_prompts = prompts;
    return ERROR_NONE;
}

enum error_code prompts_choose(const char *path, const char *recipe, struct error *err)
{
    if (path != NULL && recipe != NULL)
        return error_set(err, ERROR_USAGE, "--prompts and --synthetic exclude each other");
    return ERROR_NONE;
}

enum error_code prompts_enough(size_t count, uint64_t least, struct error *err)
{
    if (count >= least)
        return ERROR_NONE;
    return error_set(err, ERROR_BAD_VALUE,
                     "%zu prompts; at least %" PRIu64 " are wanted, as fewer tell little of a mean: give more, or "
                     "--min-samples %zu",
                     count, least, count);
}

enum error_code prompts_get(const char *path, const char *recipe, const char *usual, uint64_t vocabulary,
                            struct prompts *ret_prompts, struct error *err)
{
    enum error_code code = path != NULL ? prompts_read(path, ret_prompts, err)
                                        : prompts_make(recipe != NULL ? recipe : usual, vocabulary, ret_prompts, err);
    if (code == ERROR_FORMAT) { /* of whoever wrote the file, no failure of ours */
        code = ERROR_BAD_VALUE;
        if (err != NULL)
            err->code = code;
    }
    return code;
}

enum error_code prompts_foresee(const char *path, const char *recipe, const char *usual, size_t *ret_count,
                                struct error *err)
{
    struct prompts prompts = {0};
    struct recipe wanted = {0};
    enum error_code code = path != NULL ? prompts_get(path, NULL, usual, 0, &prompts, err)
                                        : take_recipe(recipe != NULL ? recipe : usual, &wanted, err);
    if (code == ERROR_NONE)
        *ret_count = path != NULL ? prompts.count : (size_t)wanted.count;
    prompts_fini(&prompts);
    return code;
}

void prompts_fini(struct prompts *prompts)
{
    for (size_t i = 0; i < prompts->count; i++) {
        free(prompts->items[i].ids);
        free(prompts->items[i].text);
    }
    free(prompts->items);
    free(prompts->source);
    *prompts = (struct prompts){0};
}
