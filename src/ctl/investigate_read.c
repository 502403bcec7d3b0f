#include "ctl/investigate_read.h"

#include "base/memory.h"
#include "ctl/result_file.h"
#include "json/json.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* One result while it is read: the first error stays, and what is asked behind it is not looked at. */
struct source {
    const struct json *json;
    enum error_code code;
    struct error *err;
};

/* ---- members ---- */

/* NULL where it is missing or null. */
static char *text_of(struct source *source, const char *path)
{
    const char *text = NULL;
    if (source->code == ERROR_NONE)
        source->code = json_optional_string(source->json, path, NULL, &text, source->err);
    return text != NULL ? memory_copy(text) : NULL;
}

static const char *word_of(struct source *source, const char *path)
{
    const char *text = "";
    if (source->code == ERROR_NONE)
        source->code = json_get_string(source->json, path, &text, source->err);
    return text;
}

static uint64_t count_of(struct source *source, const char *path)
{
    uint64_t value = 0;
    if (source->code == ERROR_NONE)
        source->code = json_get_u64(source->json, path, &value, source->err);
    return value;
}

static uint64_t count_or_0(struct source *source, const char *path)
{
    uint64_t value = 0;
    if (source->code == ERROR_NONE)
        source->code = json_optional_u64(source->json, path, 0, &value, source->err);
    return value;
}

static double number_or_0(struct source *source, const char *path)
{
    double value = 0;
    if (source->code == ERROR_NONE)
        source->code = json_optional_double(source->json, path, 0, &value, source->err);
    return value;
}

static bool truth_of(struct source *source, const char *path)
{
    bool value = false;
    if (source->code == ERROR_NONE)
        source->code = json_get_bool(source->json, path, &value, source->err);
    return value;
}

/* *ret_known (may be NULL): it is neither missing nor null. */
static bool truth_or_false(struct source *source, const char *path, bool *ret_known)
{
    bool value = false;
    if (source->code == ERROR_NONE)
        source->code = json_optional_bool(source->json, path, false, &value, source->err);
    if (ret_known != NULL)
        *ret_known = json_type(json_find(source->json, path)) == JSON_BOOL;
    return value;
}

static char **texts_of(struct source *source, const char *path)
{
    struct list list = {0};
    if (source->code == ERROR_NONE)
        source->code = json_get_list(source->json, path, &list, source->err);
    return list_vector(&list);
}

static const struct json *array_of(struct source *source, const char *path)
{
    const struct json *array = NULL;
    if (source->code == ERROR_NONE)
        source->code = json_get_array(source->json, path, &array, source->err);
    return array;
}

/* The index of the word among `count` that `word_at` knows. */
static int index_of(struct source *source, const char *path, const char *(*word_at)(int index), int count)
{
    const char *word = word_of(source, path);
    for (int i = 0; source->code == ERROR_NONE && i < count; i++)
        if (strcmp(word_at(i), word) == 0)
            return i;
    if (source->code == ERROR_NONE)
        source->code =
            error_set(source->err, ERROR_FORMAT, "%s is '%.60s'; expected one of '%s' to '%s' (a newer kldump?)", path,
                      word, word_at(0), word_at(count - 1));
    return 0;
}

static const char *condition_at(int index)
{
    return kl_condition_word((enum kl_condition)index);
}

static const char *where_at(int index)
{
    return kl_where_word((enum kl_where)index);
}

static const char *grade_at(int index)
{
    return kl_grade_word((enum kl_grade)index);
}

/* ---- kl ---- */

static void read_path(struct source *source, enum kl_path_id id, struct investigation_kl *kl)
{
    char *object = memory_format("helpers.%s", kl_path_member(id));
    struct source path = {.err = source->err};
    if (source->code == ERROR_NONE)
        source->code = json_get_object(source->json, object, &path.json, source->err);
    path.code = source->code;
    if (path.code == ERROR_NONE) {
        kl->paths[id].grade = (enum kl_grade)index_of(&path, "grade", grade_at, KL_GRADE_NONZERO + 1);
        kl->paths[id].kept = (size_t)count_of(&path, "kept");
        kl->paths[id].tokens = (size_t)count_of(&path, "tokens");
        kl->paths[id].beyond = (size_t)count_of(&path, "beyond");
        kl->paths[id].mean = number_or_0(&path, "mean");
        kl->paths[id].max = number_or_0(&path, "max");
        kl->paths[id].why_not = text_of(&path, "why_not");
        source->code = path.code;
        if (path.code != ERROR_NONE)
            error_prefix(source->err, "%s", object);
    }
    free(object);
}

/* Of the requests of match, which the helper's rule has not dropped, those with a token beyond stray. */
static size_t count_few(struct source *source)
{
    size_t few = 0;
    const struct json *requests = array_of(source, "helpers.match.requests");
    for (const struct json *one = json_first(requests); one != NULL && source->code == ERROR_NONE;
         one = json_next(one)) {
        struct source request = {.json = one, .err = source->err};
        few += count_of(&request, "beyond") > 0 && json_type(json_member(one, "dropped")) == JSON_NULL;
        source->code = request.code;
        if (request.code != ERROR_NONE)
            error_prefix(source->err, "helpers.match.requests");
    }
    return few;
}

static void read_kl(struct source *source, struct investigation_kl *kl)
{
    kl->known = true;
    kl->condition = (enum kl_condition)index_of(source, "reading.condition", condition_at, KL_CONDITION_REFUSED + 1);
    kl->where = (enum kl_where)index_of(source, "reading.where", where_at, KL_WHERE_DECODE + 1);
    kl->signature = text_of(source, "reading.signature");
    kl->text = text_of(source, "reading.text");
    kl->evidence = texts_of(source, "reading.evidence");
    kl->next = texts_of(source, "reading.next");
    kl->condition_2_open = truth_of(source, "reading.condition_2_open");
    kl->condition_2_in_restore = truth_of(source, "reading.condition_2_in_restore");
    for (int id = 0; id < KL_PATHS; id++)
        read_path(source, (enum kl_path_id)id, kl);
    kl->requests = kl->paths[KL_PATH_MATCH].kept;
    kl->few = count_few(source);
    kl->prompt_count = count_of(source, "prompts.count");
    kl->prompts_hash = text_of(source, "prompts.hash");
    kl->new_tokens = count_of(source, "new_tokens");
    kl->temperature = number_or_0(source, "temperature");
    kl->deterministic = truth_of(source, "server.deterministic");
    kl->radix_cache = truth_of(source, "server.radix_cache");
    kl->mixture_of_experts = truth_or_false(source, "server.mixture_of_experts", &kl->moe_known);
    kl->graphs_off = truth_or_false(source, "server.graphs_off", &kl->graphs_known);
    kl->tp = count_of(source, "server.tp");
    kl->window = count_or_0(source, "server.sliding_window");
    kl->past_window = truth_or_false(source, "past_window", NULL);
    kl->version = text_of(source, "server.version");
    kl->model = text_of(source, "server.model_path");
}

static void read_own(struct source *source, struct investigation *in)
{
    read_kl(source, &in->own);
}

static void read_dump(struct source *source, struct investigation *in)
{
    read_kl(source, &in->dump);
}

/* ---- ab ---- */

/* A is what the user's own flags gave, B what those of a dump did. */
static void read_ab(struct source *source, struct investigation *in)
{
    struct list settings = {0};
    for (const struct json *one = json_first(array_of(source, "settings")); one != NULL && source->code == ERROR_NONE;
         one = json_next(one)) {
        struct source setting = {.json = one, .err = source->err};
        const char *name = word_of(&setting, "name"), *a = word_of(&setting, "a"), *b = word_of(&setting, "b");
        if (!truth_of(&setting, "by_chance"))
            list_add_format(&settings, "%s: %s under your flags, %s in a dump", name, a, b);
        source->code = setting.code;
        if (setting.code != ERROR_NONE)
            error_prefix(source->err, "settings");
    }
    in->settings = list_vector(&settings);
}

/* ---- invariance ---- */

static void read_axis(const struct json *json, struct source *source, struct investigation_axis *axis)
{
    struct source one = {.json = json, .err = source->err};
    axis->word = memory_copy(json_key(json));
    axis->state = memory_copy(word_of(&one, "state"));
    axis->first_size = count_or_0(&one, "changed_at.size");
    axis->cached = truth_or_false(&one, "changed_at.cached", NULL);
    axis->unchanged = count_or_0(&one, "unchanged_at");
    axis->cases = json_count(array_of(&one, "cases"));
    axis->module = text_of(&one, "module");
    axis->kind = axis->module != NULL ? text_of(&one, "kind") : NULL;
    axis->why_not = text_of(&one, "why_not");
    source->code = one.code;
    if (one.code != ERROR_NONE)
        error_prefix(source->err, "axes.%.40s", axis->word);
}

static void read_invariance(struct source *source, struct investigation *in)
{
    const struct json *axes = NULL;
    in->invariance_known = true;
    in->invariance_condition = text_of(source, "reading.condition_1");
    in->invariance_most = count_of(source, "most");
    if (source->code == ERROR_NONE)
        source->code = json_get_object(source->json, "axes", &axes, source->err);
    if (source->code != ERROR_NONE)
        return;
    in->axes = memory_new((json_count(axes) + 1) * sizeof in->axes[0]);
    for (const struct json *one = json_first(axes); one != NULL && source->code == ERROR_NONE; one = json_next(one))
        read_axis(one, source, &in->axes[in->axis_count++]);
}

/* ---- capture ---- */

static void read_capture(struct source *source, struct investigation *in)
{
    in->capture.known = true;
    in->capture.complete = truth_of(source, "complete");
    in->capture.reasons = texts_of(source, "reasons");
    in->capture.alone = truth_of(source, "alone");
    in->capture.restore = truth_or_false(source, "restore", NULL);
    in->capture.shifted = truth_or_false(source, "logprobs.shifted", NULL);
    in->capture.tokens = (size_t)count_of(source, "logprobs.tokens");
    in->capture.bit_equal = (size_t)count_of(source, "logprobs.bit_equal");
    in->capture.largest = number_or_0(source, "logprobs.largest_difference");
    in->capture.requests = json_count(array_of(source, "requests"));
}

/* ---- diff ---- */

/* What does not hold, the fatal ones first. */
static void read_certificate(struct source *source, struct investigation *in)
{
    struct list fatal = {0}, other = {0};
    for (const struct json *one = json_first(array_of(source, "alignment.certificate"));
         one != NULL && source->code == ERROR_NONE; one = json_next(one)) {
        struct source proof = {.json = one, .err = source->err};
        const char *id = word_of(&proof, "id"), *claim = word_of(&proof, "claim"), *state = word_of(&proof, "state");
        char *evidence = text_of(&proof, "evidence");
        bool is_fatal = truth_of(&proof, "fatal");
        if (proof.code == ERROR_NONE && strcmp(state, "holds") != 0)
            list_add_format(is_fatal ? &fatal : &other, "%s %s, that %s%s%s", id, state, claim,
                            evidence != NULL ? ": " : "", evidence != NULL ? evidence : "");
        free(evidence);
        source->code = proof.code;
        if (proof.code != ERROR_NONE)
            error_prefix(source->err, "alignment.certificate");
    }
    if (other.count > 0)
        list_add_all(&fatal, other.items);
    list_fini(&other);
    in->diff.certificate = list_vector(&fatal);
}

static void read_against(struct source *source, struct investigation *in)
{
    struct list list = {0};
    for (const struct json *one = json_first(array_of(source, "alignment.messages"));
         one != NULL && source->code == ERROR_NONE; one = json_next(one)) {
        struct source message = {.json = one, .err = source->err};
        const char *id = word_of(&message, "id"), *cause = word_of(&message, "cause");
        char *evidence = text_of(&message, "evidence");
        list_add_format(&list, "%s: %s%s%s", id, cause, evidence != NULL ? ": " : "", evidence != NULL ? evidence : "");
        free(evidence);
        source->code = message.code;
        if (message.code != ERROR_NONE)
            error_prefix(source->err, "alignment.messages");
    }
    char **refused = texts_of(source, "refused");
    for (char **file = refused; *file != NULL; file++)
        list_add_format(&list, "refused: %s", *file);
    list_vector_free(refused);
    in->diff.against = list_vector(&list);
}

static void read_verdict(struct source *source, struct investigation *in)
{
    struct source verdict = {.err = source->err};
    bool is_answered = in->diff.status == STATUS_DONE || in->diff.status == STATUS_NO;
    if (source->code != ERROR_NONE || !is_answered)
        return;
    source->code = verdict.code = json_get_object(source->json, "verdict", &verdict.json, source->err);
    if (source->code != ERROR_NONE)
        return;
    in->diff.kind = memory_copy(word_of(&verdict, "kind"));
    in->diff.module = text_of(&verdict, "module");
    in->diff.class = text_of(&verdict, "class");
    in->diff.class_kind = text_of(&verdict, "class_kind");
    in->diff.needs = text_of(&verdict, "needs");
    in->diff.confidence = text_of(&verdict, "confidence");
    in->diff.reading = text_of(&verdict, "reading");
    in->diff.what = text_of(&verdict, "what");
    in->diff.after = text_of(&verdict, "after");
    in->diff.first_unequal = text_of(&verdict, "first_unequal");
    in->diff.has_layer = json_type(json_member(verdict.json, "layer")) != JSON_NULL;
    in->diff.layer = count_or_0(&verdict, "layer");
    in->diff.has_position = json_type(json_member(verdict.json, "position")) != JSON_NULL;
    if (verdict.code == ERROR_NONE)
        verdict.code = json_optional_i64(verdict.json, "position", 0, &in->diff.position, verdict.err);
    in->diff.tested = count_of(&verdict, "tested");
    in->diff.unequal = count_of(&verdict, "unequal");
    list_vector_free(in->diff.blind);
    in->diff.blind = texts_of(&verdict, "blind");
    source->code = verdict.code;
    if (verdict.code != ERROR_NONE)
        error_prefix(source->err, "verdict");
}

static void read_diff(struct source *source, struct investigation *in)
{
    const char *pairing = word_of(source, "pairing");
    in->diff.known = true;
    in->diff.status = (int)count_of(source, "status");
    in->diff.proven = truth_of(source, "alignment.proven");
    in->diff.prefills = strcmp(pairing, "whole") == 0 || strcmp(pairing, "restored") == 0;
    in->diff.tp = count_of(source, "tp_size");
    read_certificate(source, in);
    read_against(source, in);
    in->diff.blind = memory_new(sizeof in->diff.blind[0]);
    read_verdict(source, in);
}

/* ---- all of them ---- */

static const struct {
    const char *file, *schema;
    void (*read)(struct source *source, struct investigation *in);
} results[] = {
    {"kl-own.json", "kldump.kl/1", read_own},
    {"kl-dump.json", "kldump.kl/1", read_dump},
    {"ab.json", "kldump.ab/1", read_ab},
    {"invariance.json", "kldump.invariance/1", read_invariance},
    {"capture.json", "kldump.capture/1", read_capture},
    {"diff.json", "kldump.diff/1", read_diff},
};
enum { RESULTS = sizeof results / sizeof results[0] };

static enum error_code read_result(const char *directory, size_t index, struct investigation *in, struct error *err)
{
    char *path = memory_format("%s/%s", directory, results[index].file);
    struct json *json = NULL;
    enum error_code code = ERROR_NONE;
    if (result_file_is(path)) {
        code = result_file_read(path, results[index].schema, &json, err);
        struct source source = {.json = json, .code = code, .err = err};
        if (code == ERROR_NONE)
            results[index].read(&source, in);
        if (code == ERROR_NONE && source.code != ERROR_NONE) {
            code = ERROR_USAGE;
            error_prefix(err, "'%s' is damaged, or of another kldump", path);
            if (err != NULL)
                err->code = code;
        }
        json_free(json);
    }
    free(path);
    return code;
}

static bool has_page(const char *directory)
{
    char *path = memory_format("%s/diff.html", directory);
    bool is_there = result_file_is(path);
    free(path);
    return is_there;
}

/* What is read is handed over, and what was there goes with `fresh`. */
static void exchange(struct investigation *fresh, struct investigation *investigation)
{
    struct investigation old = *investigation;
    investigation->own = fresh->own;
    investigation->dump = fresh->dump;
    investigation->settings = fresh->settings;
    investigation->invariance_known = fresh->invariance_known;
    investigation->invariance_condition = fresh->invariance_condition;
    investigation->invariance_most = fresh->invariance_most;
    investigation->axes = fresh->axes;
    investigation->axis_count = fresh->axis_count;
    investigation->capture = fresh->capture;
    investigation->diff = fresh->diff;
    *fresh = old;
    fresh->name = fresh->directory = fresh->command = NULL;
    memset(fresh->steps, 0, sizeof fresh->steps);
}

enum error_code investigate_read(const char *directory, struct investigation *investigation, struct error *err)
{
    struct investigation fresh = {0};
    enum error_code code = ERROR_NONE;
    for (size_t i = 0; i < RESULTS && code == ERROR_NONE; i++)
        code = read_result(directory, i, &fresh, err);
    if (code == ERROR_NONE) {
        if (fresh.diff.known && has_page(directory))
            fresh.diff.page = memory_copy("diff.html");
        exchange(&fresh, investigation);
    }
    investigation_fini(&fresh);
    return code;
}
