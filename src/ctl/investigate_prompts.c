/* The prompts of an investigation: once as ids for all steps, and those of them that are worth a dump. */
#include "ctl/investigate.h"

#include "base/memory.h"
#include "base/number.h"
#include "base/text.h"
#include "ctl/endpoint.h"
#include "ctl/result_file.h"
#include "ctl/show.h"
#include "sys/file.h"

#include <stdlib.h>
#include <string.h>

/* A capture decodes greedily, so its tokens are others than those of kl: some more than where the divergence began. */
enum { MARGIN = 4, NEW_LEAST = 16, FILE_MODE = 0600 };

/* ---- all of them ---- */

static char *prompts_path(const struct investigate *work)
{
    return memory_format("%s/prompts.jsonl", work->directory);
}

static void add_line(struct buffer *text, const int64_t *ids, size_t length)
{
    buffer_text(text, "{\"input_ids\": [");
    for (size_t k = 0; k < length; k++)
        buffer_format(text, "%s%lld", k > 0 ? ", " : "", (long long)ids[k]);
    buffer_text(text, "]}\n");
}

static enum error_code write_lines(const char *path, const struct prompts *prompts, const size_t *chosen, size_t count,
                                   struct error *err)
{
    struct buffer text;
    buffer_init(&text);
    for (size_t i = 0; i < count; i++) {
        size_t k = chosen != NULL ? chosen[i] : i;
        add_line(&text, prompts->items[k].ids, prompts->items[k].length);
    }
    enum error_code code = file_replace(path, text.data, text.length, FILE_MODE, FILE_SYNC, err);
    buffer_fini(&text);
    return code;
}

bool investigate_prompts_are_there(struct investigate *work)
{
    struct prompts prompts = {0};
    char *path = prompts_path(work);
    bool there = work->prompts_hash[0] != '\0' && prompts_read(path, &prompts, NULL) == ERROR_NONE &&
                 strcmp(prompts.hash, work->prompts_hash) == 0;
    if (there)
        work->prompt_count = prompts.count;
    else
        work->prompts_hash[0] = '\0';
    prompts_fini(&prompts);
    free(path);
    return there;
}

enum error_code investigate_prompts(struct investigate *work, struct error *err)
{
    struct endpoint endpoint = {0};
    struct prompts prompts = {0};
    if (investigate_prompts_are_there(work))
        return ERROR_NONE;
    enum error_code code = endpoint_open(work->name, &endpoint, err);
    if (code == ERROR_NONE)
        code = prompts_get(work->prompts_path, work->synthetic, "", endpoint.server.vocabulary, &prompts, err);
    if (code == ERROR_NONE)
        code = endpoint_tokenize(&endpoint, &prompts, err);
    if (code == ERROR_NONE) {
        char *path = prompts_path(work);
        code = write_lines(path, &prompts, NULL, prompts.count, err);
        free(path);
    }
    if (code == ERROR_NONE) {
        text_copy(work->prompts_hash, sizeof work->prompts_hash, prompts.hash);
        work->prompt_count = prompts.count;
        code = investigate_save(work, err);
    }
    prompts_fini(&prompts);
    endpoint_fini(&endpoint);
    return code;
}

/* ---- those that diverge ---- */

struct candidate {
    size_t prompt;
    uint64_t first_beyond, behind; /* absolute; behind the prompt's end */
};

static int by_first(const void *left, const void *right)
{
    const struct candidate *a = left, *b = right;
    if (a->first_beyond != b->first_beyond)
        return a->first_beyond < b->first_beyond ? -1 : 1;
    return a->prompt < b->prompt ? -1 : a->prompt > b->prompt;
}

/* The number of the prompt is the last part of a request's id. */
static bool read_candidate(const struct json *request, size_t prompt_count, struct candidate *ret_candidate)
{
    uint64_t length = 0, number = 0, first = 0;
    const char *rid = strrchr(show_member(request, "rid"), '-');
    if (rid == NULL || number_parse("rid", rid + 1, prompt_count - 1, &number, NULL) != ERROR_NONE ||
        show_member(request, "dropped")[0] != '\0' || !show_number(request, "first_beyond", &first) ||
        !show_number(request, "prompt_length", &length) || first < length)
        return false;
    *ret_candidate = (struct candidate){(size_t)number, first, first - length};
    return true;
}

static size_t find_candidates(const struct json *kl, const char *path, size_t prompt_count,
                              struct candidate **ret_candidates)
{
    const struct json *requests = json_member(json_member(json_member(kl, "helpers"), path), "requests");
    struct candidate *candidates = memory_new((json_count(requests) + 1) * sizeof *candidates);
    size_t count = 0;
    for (const struct json *request = json_first(requests); request != NULL; request = json_next(request))
        count += read_candidate(request, prompt_count, &candidates[count]);
    qsort(candidates, count, sizeof *candidates, by_first);
    *ret_candidates = candidates;
    return count;
}

static enum error_code write_chosen(const struct investigate *work, const struct candidate *candidates, size_t count,
                                    struct error *err)
{
    struct prompts prompts = {0};
    char *all = prompts_path(work), *path = memory_format("%s/capture-prompts.jsonl", work->directory);
    size_t *chosen = memory_new((count + 1) * sizeof *chosen);
    for (size_t i = 0; i < count; i++)
        chosen[i] = candidates[i].prompt;
    enum error_code code = prompts_read(all, &prompts, err);
    if (code == ERROR_NONE)
        code = write_lines(path, &prompts, chosen, count, err);
    prompts_fini(&prompts);
    free(chosen);
    free(path);
    free(all);
    return code;
}

/* The first whose path is dirty, the simplest first: one row against many. What a second turn alone shows no capture
 * does. */
static const struct investigate_way ways[] = {
    {.path = KL_PATH_MATCH_ALONE, .alone = true},
    {.path = KL_PATH_MATCH},
    {.path = KL_PATH_RESTORE, .restore = true},
    {.path = KL_PATH_PREFILL_CACHE_HIT, .restore = true, .prompts_alone = true},
};

const struct investigate_way *investigate_way(const struct investigate *work)
{
    for (size_t i = 0; i < sizeof ways / sizeof ways[0]; i++) {
        enum kl_grade grade = work->found.dump.paths[ways[i].path].grade;
        if (work->found.dump.known && grade != KL_GRADE_NOT_MEASURED && !kl_grade_clean(grade))
            return &ways[i];
    }
    return NULL;
}

static uint64_t tokens_to_reach(const struct investigate *work, const struct investigate_way *way,
                                const struct candidate *candidates, size_t count)
{
    uint64_t behind = NEW_LEAST - MARGIN;
    for (size_t i = 0; i < count; i++)
        behind = candidates[i].behind > behind ? candidates[i].behind : behind;
    if (way->prompts_alone)
        return 0;
    return behind + MARGIN < work->new_tokens ? behind + MARGIN : work->new_tokens;
}

enum error_code investigate_choose(struct investigate *work, size_t most, size_t *ret_count, uint64_t *ret_new,
                                   struct error *err)
{
    struct json *kl = NULL;
    struct candidate *candidates = NULL;
    const struct investigate_way *way = investigate_way(work);
    const char *path = kl_path_member(way->path);
    char *file = investigate_result(work, INVESTIGATION_KL_DUMP, 0);
    enum error_code code = result_file_read(file, "kldump.kl/", &kl, err);
    size_t count = code == ERROR_NONE ? find_candidates(kl, path, work->prompt_count, &candidates) : 0;
    if (code == ERROR_NONE && count == 0)
        code = error_set(err, ERROR_INCOMPLETE, "%s names no request of %s that diverges", file, path);
    count = count < most ? count : most;
    if (code == ERROR_NONE)
        code = write_chosen(work, candidates, count, err);
    if (code == ERROR_NONE) {
        *ret_new = tokens_to_reach(work, way, candidates, count);
        *ret_count = count;
    }
    free(candidates);
    json_free(kl);
    free(file);
    return code;
}
