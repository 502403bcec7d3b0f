/* The steps: what each runs, on which server, and when it is not needed. */
#include "ctl/investigate.h"

#include "base/memory.h"
#include "ctl/result_file.h"
#include "ctl/show.h"

#include <stdlib.h>
#include <sys/stat.h>

enum { INVARIANCE_NEW = 32, INVARIANCE_LEAST = 2 };
enum { PARTS_OF_CHECK = 2 };

static const char script[] = "repro.py", page[] = "diff.html"; /* written beside a result */

static void add_file(struct list *arguments, const struct investigate *work, const char *option, const char *name)
{
    if (option != NULL)
        list_add(arguments, option);
    list_add_format(arguments, "%s/%s", work->directory, name);
}

static enum error_code doctor(struct investigate *work, size_t part, struct list *arguments, struct error *err)
{
    (void)part;
    (void)err;
    list_add(arguments, "doctor");
    list_add(arguments, "--json");
    list_add_all(arguments, list_vector(&work->options));
    list_add_all(arguments,
                 (char *const[]){(char *)"--name", work->name, (char *)"--dir", work->dumps, (char *)"--", NULL});
    list_add_all(arguments, list_vector(&work->server));
    return ERROR_NONE;
}

static enum error_code kl(struct investigate *work, size_t part, struct list *arguments, struct error *err)
{
    (void)part;
    (void)err;
    list_add(arguments, "kl");
    list_add(arguments, work->name);
    add_file(arguments, work, "--prompts", "prompts.jsonl");
    list_add(arguments, "--new");
    list_add_format(arguments, "%llu", (unsigned long long)work->new_tokens);
    list_add(arguments, "--min-samples");
    list_add_format(arguments, "%llu", (unsigned long long)work->least);
    list_add(arguments, "--json");
    return ERROR_NONE;
}

static enum error_code ab(struct investigate *work, size_t part, struct list *arguments, struct error *err)
{
    (void)part;
    (void)err;
    list_add(arguments, "ab");
    add_file(arguments, work, NULL, "kl-own.json");
    add_file(arguments, work, NULL, "kl-dump.json");
    list_add(arguments, "--json");
    return ERROR_NONE;
}

static enum error_code invariance(struct investigate *work, size_t part, struct list *arguments, struct error *err)
{
    (void)part;
    (void)err;
    list_add(arguments, "invariance");
    list_add(arguments, work->name);
    add_file(arguments, work, "--prompts", "prompts.jsonl");
    add_file(arguments, work, "--kl", "kl-dump.json");
    list_add(arguments, "--new");
    list_add_format(arguments, "%llu",
                    (unsigned long long)(work->new_tokens < INVARIANCE_NEW ? work->new_tokens : INVARIANCE_NEW));
    if (work->invariance_dumps) {
        list_add_all(arguments, (char *const[]){(char *)"--dump", (char *)"invariance", NULL});
        add_file(arguments, work, "--repro", script);
    }
    list_add(arguments, "--json");
    return ERROR_NONE;
}

/* ---- the dumps ---- */

static enum error_code capture(struct investigate *work, size_t part, struct list *arguments, struct error *err)
{
    size_t count = 0;
    uint64_t new_tokens = 0;
    (void)part;
    enum error_code code = investigate_choose(work, work->capture_most, &count, &new_tokens, err);
    if (code != ERROR_NONE)
        return code;
    work->capture_most = count;
    const struct investigate_way *way = investigate_way(work);
    list_add(arguments, "capture");
    list_add(arguments, work->name);
    add_file(arguments, work, "--prompts", "capture-prompts.jsonl");
    list_add(arguments, "--new");
    list_add_format(arguments, "%llu", (unsigned long long)new_tokens);
    if (way->alone)
        list_add(arguments, "--alone");
    if (way->restore)
        list_add(arguments, "--restore");
    list_add(arguments, "--json");
    return ERROR_NONE;
}

/* Adds the folders of the capture's two dumps, the one that differs from a prefill first. */
static enum error_code add_dumps(const struct investigate *work, struct list *arguments, struct error *err)
{
    struct json *result = NULL;
    const char *folder = NULL, *experiments[2] = {NULL, NULL};
    bool restore = false;
    char *path = investigate_result(work, INVESTIGATION_CAPTURE, 0);
    enum error_code code = result_file_read(path, "kldump.capture/", &result, err);
    if (code == ERROR_NONE)
        code = json_get_string(result, "dir", &folder, err);
    if (code == ERROR_NONE)
        code = json_get_bool(result, "restore", &restore, err);
    if (code == ERROR_NONE)
        code = json_get_string(result, restore ? "restored.experiment" : "decode.experiment", &experiments[0], err);
    if (code == ERROR_NONE)
        code = json_get_string(result, "score.experiment", &experiments[1], err);
    for (size_t i = 0; i < 2 && code == ERROR_NONE; i++)
        list_add_format(arguments, "%s/%s", folder, experiments[i]);
    json_free(result);
    free(path);
    return code;
}

bool investigate_dumps_are_there(const struct investigate *work)
{
    struct list folders = {0};
    struct stat status;
    bool there = add_dumps(work, &folders, NULL) == ERROR_NONE;
    for (size_t i = 0; i < folders.count; i++)
        there = there && stat(folders.items[i], &status) == 0 && S_ISDIR(status.st_mode);
    list_fini(&folders);
    return there;
}

static enum error_code check(struct investigate *work, size_t part, struct list *arguments, struct error *err)
{
    struct list folders = {0};
    enum error_code code = add_dumps(work, &folders, err);
    list_add(arguments, "check");
    if (code == ERROR_NONE)
        list_add(arguments, folders.items[part]);
    list_add(arguments, "--json");
    list_fini(&folders);
    return code;
}

static enum error_code diff(struct investigate *work, size_t part, struct list *arguments, struct error *err)
{
    (void)part;
    list_add(arguments, "diff");
    enum error_code code = add_dumps(work, arguments, err);
    list_add(arguments, "--json");
    add_file(arguments, work, "--html", page);
    return code;
}

/* ---- what makes a step pointless ---- */

static const char *needed(const struct investigate *work)
{
    (void)work;
    return NULL;
}

static const char *of_kl(const struct investigation_kl *result, const char *clean)
{
    if (result->known && result->condition == KL_CONDITION_NONE)
        return clean;
    if (result->known && result->condition == KL_CONDITION_REFUSED)
        return "nothing can be read from the numbers of kl";
    return NULL;
}

static const char *own_is_enough(const struct investigate *work)
{
    return of_kl(&work->found.own, "there is no divergence over these prompts");
}

static const char *nothing_to_look_for(const struct investigate *work)
{
    const char *why = own_is_enough(work);
    return why != NULL ? why : of_kl(&work->found.dump, "the fault does not show under the flags of a dump");
}

static const char *cannot_batch(const struct investigate *work)
{
    const char *why = nothing_to_look_for(work);
    return why == NULL && work->prompt_count < INVARIANCE_LEAST ? "one prompt alone makes no batch" : why;
}

static const char *not_in_a_capture(const struct investigate *work)
{
    const char *why = nothing_to_look_for(work);
    return why == NULL && work->found.dump.known && investigate_way(work) == NULL
               ? "only a second turn on a cached first one differs, which no capture repeats"
               : why;
}

#define STATUS_BIT(status) (1U << (status))
#define STEP_BIT(id)       (1U << INVESTIGATION_##id)
enum { YES = STATUS_BIT(STATUS_DONE), YES_OR_NO = STATUS_BIT(STATUS_DONE) | STATUS_BIT(STATUS_NO) };

const struct investigate_step investigate_steps[INVESTIGATION_STEPS] = {
    [INVESTIGATION_DOCTOR] = {INVESTIGATE_NO_RUN, false, YES, 0, 1, doctor, needed, NULL},
    [INVESTIGATION_KL_OWN] = {INVESTIGATE_PLAIN, false, YES_OR_NO, 0, 1, kl, needed, NULL},
    [INVESTIGATION_KL_DUMP] = {INVESTIGATE_DUMP, false, YES_OR_NO, 0, 1, kl, own_is_enough, NULL},
    [INVESTIGATION_AB] = {INVESTIGATE_NO_RUN, true, YES_OR_NO, STEP_BIT(KL_OWN) | STEP_BIT(KL_DUMP), 1, ab,
                          own_is_enough, NULL},
    [INVESTIGATION_INVARIANCE] = {INVESTIGATE_DUMP, true, YES_OR_NO, STEP_BIT(KL_DUMP), 1, invariance, cannot_batch,
                                  script},
    [INVESTIGATION_CAPTURE] = {INVESTIGATE_DUMP, false, YES, STEP_BIT(KL_DUMP), 1, capture, not_in_a_capture, NULL},
    [INVESTIGATION_CHECK] = {INVESTIGATE_NO_RUN, true, YES, STEP_BIT(CAPTURE), PARTS_OF_CHECK, check, not_in_a_capture,
                             NULL},
    [INVESTIGATION_DIFF] = {INVESTIGATE_NO_RUN, false, YES_OR_NO | STATUS_BIT(STATUS_UNPROVEN), STEP_BIT(CAPTURE), 1,
                            diff, not_in_a_capture, page},
};
