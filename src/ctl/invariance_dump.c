#include "ctl/invariance_dump.h"

#include "analysis/diff.h"
#include "analysis/report.h"
#include "analysis/report_json.h"
#include "base/memory.h"
#include "ctl/dump_session.h"
#include "ctl/show.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum side { REFERENCE, CHANGED, SIDES };
static const char *const suffixes[SIDES] = {"ref", "new"};

/* What is sent for both sides. */
struct example {
    size_t request, position; /* that changed */
    size_t first[SIDES], count[SIDES];
    size_t length[SIDES]; /* ids of each prompt; 0: all */
    bool fills;           /* CHANGED is sent twice: first it fills the cache */
    unsigned new_tokens;
    int64_t logprob_start;
    bool is_scored; /* the logprob that changed is among the answers */
};

struct work {
    struct endpoint *endpoint;
    const struct invariance_dump_plan *plan;
    enum invariance_axis_id id;
    struct example example;
    char experiments[SIDES][SERVER_NAME_MAX];
    struct token {
        int64_t id;
        double logprob;
    } tokens[SIDES]; /* the one that changed */
};

const char *invariance_dump_again_word(enum invariance_dump_again again)
{
    static const char *const words[] = {"unknown", "same", "changed"};
    return words[again];
}

/* ---- what is sent ---- */

static size_t prompt_length(const struct invariance_dump_plan *plan, size_t request)
{
    return plan->take->prompts->items[request].length;
}

/* What is dumped scores where it can: a request for one new token runs a decode pass more in some releases (SGLang
 * 0.5.10 to 0.5.20, overlap schedule), whose rows would be compared in place of the prefill's. The first new token
 * itself is to be had in no other way. */
static struct example make_example(const struct invariance_dump_plan *plan, enum invariance_axis_id id,
                                   const struct invariance_case *one)
{
    size_t request = one->first.request, position = one->first.position, length = prompt_length(plan, request);
    struct example example = {.request = request,
                              .position = position,
                              .first = {request, request},
                              .count = {1, 1},
                              .is_scored = position < length};
    if (id == INVARIANCE_EXTEND && one->cached) {
        example.length[REFERENCE] = example.length[CHANGED] = position;
        example.fills = true;
        example.logprob_start = (int64_t)position - 1;
        example.is_scored = false;
    } else if (id == INVARIANCE_EXTEND) {
        example.length[CHANGED] = one->size;
    } else {
        example.first[CHANGED] = 0;
        example.count[CHANGED] = one->size;
    }
    if (id != INVARIANCE_EXTEND && position >= length) {
        example.new_tokens = (unsigned)(position - length + 1);
        example.logprob_start = -1;
        example.is_scored = true;
    }
    return example;
}

static struct dump_session_load load_of(const struct work *work)
{
    const struct example *example = &work->example;
    struct dump_session_load load = {0};
    for (int side = 0; side < SIDES; side++)
        for (size_t i = 0; i < example->count[side]; i++) {
            size_t all = prompt_length(work->plan, example->first[side] + i);
            load.prefill_tokens += example->length[side] > 0 ? example->length[side] : all;
            load.decode_tokens += example->new_tokens;
        }
    load.prefill_tokens += example->fills;
    return load;
}

static struct token token_of(const struct work *work, const struct generate_answer *answer)
{
    size_t last = work->example.new_tokens - 1;
    if (work->example.new_tokens > 0)
        return (struct token){answer->output_ids[last], answer->output_logprobs[last]};
    return (struct token){0, answer->input_logprobs[work->example.position]};
}

static bool is_same(const struct token *a, const struct token *b)
{
    return a->id == b->id && memcmp(&a->logprob, &b->logprob, sizeof a->logprob) == 0;
}

/* ---- the dumps ---- */

static enum error_code send(struct work *work, enum side side, const struct list *rids, struct error *err)
{
    const struct example *example = &work->example;
    const struct invariance_take_batch batch = {.rids = rids,
                                                .first = example->first[side],
                                                .count = example->count[side],
                                                .length = example->length[side],
                                                .new_tokens = example->new_tokens,
                                                .logprob_start = example->logprob_start};
    struct generate_answers answers = {0};
    enum error_code code = ERROR_NONE;
    for (int time = 0; code == ERROR_NONE && time < (side == CHANGED && example->fills ? 2 : 1); time++) {
        generate_answers_fini(&answers);
        code = invariance_take_send(work->endpoint, work->plan->take->prompts, &batch, &answers, err);
    }
    if (code != ERROR_NONE)
        return code;
    const struct generate_answer *answer = &answers.items[example->request - example->first[side]];
    if (example->is_scored)
        work->tokens[side] = token_of(work, answer);
    if (side == CHANGED && example->fills && answer->cached_tokens + 1 != example->position)
        code = error_set(err, ERROR_INCOMPLETE, "%s: %zu of its %zu tokens were found in the cache; expected %zu",
                         rids->items[0], answer->cached_tokens, example->position, example->position - 1);
    generate_answers_fini(&answers);
    return code;
}

static enum error_code take_side(struct work *work, enum side side, struct error *err)
{
    struct list rids = {0};
    const struct dump_session session = {
        .experiment = work->experiments[side], .hold = true, .wait_idle_ms = DUMP_SESSION_IDLE_MS, .own_rids = &rids};
    struct json *answer = NULL, *seal = NULL;
    for (size_t i = 0; i < work->example.count[side]; i++)
        list_add_format(&rids, "kldump-%s-%zu", session.experiment, work->example.first[side] + i);
    enum error_code code = endpoint_flush(work->endpoint, err);
    if (code == ERROR_NONE)
        code = dump_session_begin(&work->endpoint->find, &session, &answer, err);
    if (code == ERROR_NONE) {
        code = send(work, side, &rids, err);
        code = dump_session_close(&work->endpoint->find, session.experiment, code, &seal, err);
    }
    json_free(answer);
    json_free(seal);
    list_fini(&rids);
    return code;
}

/* ---- what they say ---- */

/* Why the rows are not proven to belong together, or cannot be compared. */
static char *tell_unproven(const struct diff *diff)
{
    const char *evidence = diff->message_count > 0 ? diff->messages[0].evidence : NULL;
    for (int id = 0; evidence == NULL && id < DIFF_PROOF_COUNT; id++)
        if (diff->proofs[id].state == DIFF_PROOF_FAILS)
            evidence = diff->proofs[id].evidence;
    return memory_format("%s%s%s", report_summary(diff), evidence != NULL ? ": " : "",
                         evidence != NULL ? evidence : "");
}

static char *tell_equal(const struct invariance_dump *dump)
{
    static const char *const texts[] = {
        [INVARIANCE_DUMP_UNKNOWN] =
            "no dumped module differs: behind the last one, the head or the logprobs; or it did not happen again",
        [INVARIANCE_DUMP_SAME] =
            "no dumped module differs, and nor did the logprob while it was dumped: which passes the "
            "server makes of a batch may be others each time",
        [INVARIANCE_DUMP_AGAIN] = "no dumped module differs: behind the last one: the head or the logprobs"};
    return memory_copy(texts[dump->again]);
}

/* Attention that reads keys and values which were prefilled in a batch, too: the cause is in that prefill. */
static bool is_prefilled_otherwise(const struct diff *diff)
{
    return diff->verdict.kind == DIFF_KIND_STATE && diff->proofs[DIFF_PROOF_A7].state == DIFF_PROOF_FAILS;
}

static enum error_code read_module(const struct diff *diff, struct invariance_dump *dump, struct error *err)
{
    static const struct json_limits limits = {.bytes = SIZE_MAX, .depth = JSON_DEPTH, .values = JSON_ANY_VALUES};
    struct buffer text;
    struct json *json = NULL;
    buffer_init(&text);
    report_json(diff, &text);
    enum error_code code = json_parse(text.data, text.length, limits, &json, err);
    buffer_fini(&text);
    if (code == ERROR_NONE)
        code = invariance_inputs_module_of(json, &dump->module, err);
    json_free(json);
    return code;
}

static enum error_code compare(const struct work *work, struct invariance_dump *dump, struct error *err)
{
    const char *changed[] = {dump->changed, NULL}, *reference[] = {dump->reference, NULL};
    const struct diff_options options = {.a_paths = changed, .b_paths = reference, .first = true};
    struct diff diff = {0};
    if (work->plan->take->progress != NULL)
        work->plan->take->progress(work->plan->take->context, "comparing", 0, 1);
    enum error_code code = diff_run(&options, &diff, err);
    if (code != ERROR_NONE)
        return code;
    if (!report_has_verdict(&diff))
        dump->why_not = tell_unproven(&diff);
    else if (diff.verdict.kind == DIFF_KIND_NONE)
        dump->why_not = tell_equal(dump);
    else if (work->id != INVARIANCE_DECODE && diff.pairing == DIFF_PAIRING_RUNS)
        dump->why_not =
            memory_copy("this release runs a decode pass behind the only new token, which hides the rows of "
                        "the prefill: start the server without its overlap schedule");
    else if (is_prefilled_otherwise(&diff))
        dump->why_not = memory_copy("attention over keys and values that were prefilled in the batch, too, and differ "
                                    "already is the first difference of a decode row: see prefill");
    else
        code = read_module(&diff, dump, err);
    diff_fini(&diff);
    return code;
}

/* ---- an axis ---- */

static enum error_code take_both(struct work *work, struct invariance_dump *dump, struct error *err)
{
    const struct dump_session_load load = load_of(work);
    enum error_code code = dump_session_room(&work->endpoint->find, &load, err);
    if (code != ERROR_NONE && code != ERROR_NOT_FOUND) /* what a token costs is not known: the guard is there, still */
        return code;
    code = ERROR_NONE;
    char **folders[SIDES] = {&dump->reference, &dump->changed};
    for (int side = 0; code == ERROR_NONE && side < SIDES; side++) {
        if (work->plan->take->progress != NULL)
            work->plan->take->progress(work->plan->take->context, "dumping", (uint64_t)side, SIDES);
        code = take_side(work, (enum side)side, err);
        *folders[side] = memory_format("%s/%s", work->plan->directory, work->experiments[side]);
    }
    if (code == ERROR_NONE && work->example.is_scored)
        dump->again =
            is_same(&work->tokens[REFERENCE], &work->tokens[CHANGED]) ? INVARIANCE_DUMP_SAME : INVARIANCE_DUMP_AGAIN;
    return code == ERROR_NONE ? compare(work, dump, err) : code;
}

static void name_experiments(const struct invariance_dump_plan *plan, enum invariance_axis_id id,
                             char ret_names[SIDES][SERVER_NAME_MAX])
{
    for (int side = 0; side < SIDES; side++)
        snprintf(ret_names[side], SERVER_NAME_MAX, "%.*s-%s-%s", INVARIANCE_DUMP_NAME, plan->experiment,
                 invariance_axis_word(id), suffixes[side]);
}

enum error_code invariance_dump_axis(struct endpoint *endpoint, const struct invariance_dump_plan *plan,
                                     enum invariance_axis_id id, const struct invariance_axis *axis,
                                     struct invariance_dump *ret_dump, struct error *err)
{
    const struct invariance_case *before;
    struct work work = {.endpoint = endpoint, .plan = plan, .id = id};
    struct invariance_dump dump = {0};
    struct error problem = ERROR_INIT;
    work.example = make_example(plan, id, invariance_first(axis, &before));
    name_experiments(plan, id, work.experiments);
    enum error_code code = take_both(&work, &dump, &problem);
    if (code == ERROR_SPACE || code == ERROR_INCOMPLETE) { /* what was measured is not lost for that */
        dump.why_not = memory_copy(problem.message);
        code = ERROR_NONE;
    }
    if (code == ERROR_NONE) {
        *ret_dump = dump;
        return ERROR_NONE;
    }
    invariance_dump_fini(&dump);
    if (err != NULL)
        *err = problem;
    return error_prefix(err, "--dump, %s", invariance_axis_word(id));
}

void invariance_dump_fini(struct invariance_dump *dump)
{
    free(dump->reference);
    free(dump->changed);
    free(dump->why_not);
    invariance_inputs_module_fini(&dump->module);
    *dump = (struct invariance_dump){0};
}

/* ---- before anything is measured ---- */

static enum error_code check_names(const struct invariance_dump_plan *plan, struct error *err)
{
    for (int id = 0; id < INVARIANCE_AXES; id++) {
        char names[SIDES][SERVER_NAME_MAX];
        name_experiments(plan, (enum invariance_axis_id)id, names);
        for (int side = 0; side < SIDES; side++) {
            char *folder = memory_format("%s/%s", plan->directory, names[side]);
            bool is_there = access(folder, F_OK) == 0;
            if (is_there)
                error_set(err, ERROR_EXISTS, "--dump: %s is there already; choose another name, or move it away",
                          folder);
            free(folder);
            if (is_there)
                return ERROR_EXISTS;
        }
    }
    return ERROR_NONE;
}

enum error_code invariance_dump_check(struct endpoint *endpoint, struct invariance_dump_plan *plan, struct error *err)
{
    if (!endpoint->is_run)
        return error_set(err, ERROR_USAGE, "--dump: only a guarded run can be dumped");
    enum error_code code = dump_session_directory(&endpoint->find, &plan->directory, err);
    if (code == ERROR_NONE)
        code = check_names(plan, err);
    if (code != ERROR_NONE)
        return code;
    struct dump_session_load least = {.prefill_tokens = UINT64_MAX};
    for (size_t i = 0; i < plan->take->most; i++)
        if (2 * prompt_length(plan, i) < least.prefill_tokens)
            least.prefill_tokens = 2 * prompt_length(plan, i);
    code = dump_session_room(&endpoint->find, &least, err);
    if (code == ERROR_NOT_FOUND)
        return ERROR_NONE;
    return code == ERROR_NONE ? code : error_prefix(err, "--dump");
}
