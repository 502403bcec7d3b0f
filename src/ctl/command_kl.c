/* kldumpctl kl: measures decode against prefill on the paths of SGLang's own helpers, and says which condition is
 * broken. */
#include "base/memory.h"
#include "base/number.h"
#include "ctl/command.h"
#include "ctl/interrupt.h"
#include "ctl/kl_take.h"
#include "ctl/kl_vary.h"
#include "ctl/kl_vary_report.h"
#include "ctl/options.h"
#include "ctl/progress.h"
#include "ctl/result_file.h"
#include "sglang/kl_helper.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { FILE_MODE = 0644 };

struct request {
    bool as_json, all;
    const char *new_tokens, *least, *comma, *paths, *explain, *out;
    struct kl_explain_take_wish wish;
    struct kl_take_plan plan;
    struct list vary;
    const char *of_run[SETTINGS_COUNT]; /* options of the runs of --vary */
    char **command;                     /* CMD; NULL: none */
};

/* ---- options ---- */

/* "12" or "12,13" */
static enum error_code take_comma(struct request *request, struct error *err)
{
    char *copy = memory_copy(request->comma != NULL ? request->comma : ""), *rest = copy, *word;
    enum error_code code = ERROR_NONE;
    while (request->comma != NULL && code == ERROR_NONE && (word = strsep(&rest, ",")) != NULL) {
        uint64_t id = 0;
        code = number_parse("--comma", word, INT32_MAX, &id, err);
        if (code == ERROR_NONE && request->plan.comma_count == KL_TAKE_COMMA_MOST)
            code = error_set(err, ERROR_BAD_VALUE, "--comma: more than %d ids", KL_TAKE_COMMA_MOST);
        else if (code == ERROR_NONE)
            request->plan.comma[request->plan.comma_count++] = (int64_t)id;
    }
    free(copy);
    return code;
}

/* "match,restore": members as in --json */
static enum error_code take_paths(struct request *request, struct error *err)
{
    char *copy = memory_copy(request->paths != NULL ? request->paths : ""), *rest = copy, *word;
    enum error_code code = ERROR_NONE;
    for (int id = 0; id < KL_PATHS; id++)
        request->plan.wanted[id] = request->paths == NULL;
    while (request->paths != NULL && code == ERROR_NONE && (word = strsep(&rest, ",")) != NULL) {
        int id = 0;
        while (id < KL_PATHS && strcmp(kl_path_member((enum kl_path_id)id), word) != 0)
            id++;
        if (id == KL_PATHS)
            code = error_set(err, ERROR_BAD_VALUE,
                             "--paths: '%.60s' is none of match, match_alone, prefill_cache_hit, decode_cache_hit, "
                             "restore",
                             word);
        else
            request->plan.wanted[id] = true;
    }
    free(copy);
    return code;
}

/* "worst" or "restore:3", of a path that is measured */
static enum error_code take_wish(struct request *request, struct error *err)
{
    if (request->explain == NULL)
        return ERROR_NONE;
    enum error_code code = kl_explain_take_read_wish(request->explain, &request->wish, err);
    if (code == ERROR_NONE && !request->wish.worst && !request->plan.wanted[request->wish.path])
        code = error_set(err, ERROR_BAD_VALUE, "--explain: --paths leaves %s out", kl_path_member(request->wish.path));
    request->plan.explain = &request->wish;
    return code;
}

/* What goes with --vary, and what does not. */
static enum error_code check_vary(const struct request *request, const struct command_operands *operands,
                                  struct error *err)
{
    if (request->vary.count == 0) {
        for (int id = 0; id < SETTINGS_COUNT; id++)
            if (request->of_run[id] != NULL)
                return error_set(err, ERROR_USAGE, "--%s is of the runs that --vary starts",
                                 settings_flag((enum settings_id)id));
        return operands->rest == NULL ? ERROR_NONE : error_set(err, ERROR_USAGE, "CMD after -- is for --vary");
    }
    if (operands->count > 0)
        return error_set(err, ERROR_USAGE, "--vary starts the server itself: leave '%.60s' out, and give CMD after --",
                         operands->item[0]);
    if (operands->rest == NULL || operands->rest[0] == NULL)
        return error_set(err, ERROR_USAGE, "--vary needs the server's command: kl --vary page-size=1,16 -- CMD...");
    if (request->all)
        return error_set(err, ERROR_USAGE, "--all is of one measurement; each one's result is kept, see kldumpctl ab");
    return ERROR_NONE;
}

/* What would cost a measurement, or the start of a server, if it were found behind it. */
static enum error_code check_before(const struct request *request, struct error *err)
{
    enum error_code code = kl_take_check(&request->plan, err);
    if (code == ERROR_NONE && request->out != NULL && (code = result_file_foresee(request->out, err)) != ERROR_NONE)
        error_prefix(err, "--out");
    return code;
}

/* False after the usage error. */
static bool take_options(const struct command *command, struct request *request,
                         const struct command_operands *operands)
{
    struct error err = ERROR_INIT;
    request->plan.new_tokens = KL_HELPER_NEW_TOKENS;
    request->plan.least_samples = KL_HELPER_SAMPLES;
    prompts_choose(request->plan.prompts_file, request->plan.synthetic, &err);
    if (err.code == ERROR_NONE)
        number_option("--new", request->new_tokens, KL_TAKE_NEW_LEAST, KL_TAKE_NEW_MOST, &request->plan.new_tokens,
                      &err);
    if (err.code == ERROR_NONE)
        number_option("--min-samples", request->least, 1, KL_TAKE_SAMPLES_MOST, &request->plan.least_samples, &err);
    if (err.code == ERROR_NONE)
        take_comma(request, &err);
    if (err.code == ERROR_NONE)
        take_paths(request, &err);
    if (err.code == ERROR_NONE)
        take_wish(request, &err);
    if (err.code == ERROR_NONE)
        check_vary(request, operands, &err);
    if (err.code == ERROR_NONE)
        check_before(request, &err);
    if (err.code != ERROR_NONE)
        command_usage_error(command, "%s", err.message);
    return err.code == ERROR_NONE;
}

/* ---- one measurement ---- */

static bool wants_json(const struct request *request)
{
    return request->as_json || request->out != NULL;
}

static int status_of(const struct kl_report *report)
{
    if (foreign_seen(&report->endpoint->foreign))
        return STATUS_INCOMPLETE;
    return kl_report_is_fine(report) ? STATUS_DONE : STATUS_NO;
}

/* Writes and prints the JSON where it is wanted; takes it over. */
static int finish(const struct command *command, const struct request *request, struct json *json, int status,
                  struct output *out)
{
    struct error err = ERROR_INIT;
    enum error_code code = ERROR_NONE;
    if (request->out != NULL)
        code = result_file_write(request->out, json, FILE_MODE, &err);
    if (request->as_json)
        output_json(out, json);
    json_free(json);
    if (code == ERROR_NONE)
        return status;
    error_prefix(&err, "--out");
    return command_fail(command, &err);
}

static int measure(const struct command *command, struct request *request, struct endpoint *endpoint,
                   struct output *out)
{
    struct error err = ERROR_INIT;
    struct progress progress = {0};
    struct kl_take take;
    request->plan.progress = isatty(STDERR_FILENO) ? progress_show_to : NULL;
    request->plan.context = &progress;
    enum error_code code = kl_take(endpoint, &request->plan, &take, &err);
    progress_end(&progress);
    if (code != ERROR_NONE)
        return command_fail(command, &err);
    if (!request->as_json)
        kl_report_text(&take.report, request->all, out);
    int status = finish(command, request, wants_json(request) ? kl_report_json(&take.report) : NULL,
                        status_of(&take.report), out);
    kl_take_fini(&take);
    return status;
}

static int measure_at(const struct command *command, struct request *request, const char *target, struct output *out)
{
    struct error err = ERROR_INIT;
    struct endpoint endpoint;
    if (endpoint_open(target, &endpoint, &err) != ERROR_NONE)
        return command_fail(command, &err);
    int status = measure(command, request, &endpoint, out);
    endpoint_fini(&endpoint);
    return status;
}

/* ---- --vary ---- */

/* The settings of its runs, checked as `run` does. */
static enum error_code read_settings(const struct request *request, struct settings *ret_settings, struct error *err)
{
    struct list words = {0};
    int rest = 0;
    options_words(request->of_run, &words);
    list_add(&words, "--");
    list_add_all(&words, request->command);
    enum error_code code = options_read((int)words.count, words.items, NULL, ret_settings, &rest, err);
    list_fini(&words);
    if (code == ERROR_NONE && request->of_run[SETTINGS_KIND] != NULL && ret_settings->kind != SETTINGS_KIND_PLAIN) {
        settings_fini(ret_settings);
        code = error_set(err, ERROR_USAGE, "--kind: the runs of --vary are of the kind plain, as nothing is dumped");
    }
    return code;
}

static int vary_all(const struct command *command, const struct request *request, struct kl_vary_all *all,
                    struct output *out)
{
    struct error err = ERROR_INIT;
    int status = STATUS_DONE;
    interrupt_watch("\nkldumpctl kl: ended at once; the guard ends the server\n");
    enum error_code code = kl_vary_measure(all, &status, &err);
    interrupt_unwatch();
    if (code != ERROR_NONE) {
        command_fail(command, &err);
        return status;
    }
    if (!request->as_json)
        kl_vary_report_text(all, out);
    return finish(command, request, kl_vary_report_json(all), kl_vary_report_status(all), out);
}

static int vary(const struct command *command, const struct request *request, struct output *out)
{
    struct error err = ERROR_INIT;
    struct settings settings;
    struct kl_vary_all all = {0};
    struct list options = {0};
    const char *of_run[SETTINGS_COUNT];
    if (read_settings(request, &settings, &err) != ERROR_NONE)
        return command_usage_error(command, "%s", err.message);
    memcpy(of_run, request->of_run, sizeof of_run);
    of_run[SETTINGS_NAME] = of_run[SETTINGS_KIND] = of_run[SETTINGS_DIRECTORY] = NULL;
    options_words(of_run, &options);
    const struct kl_vary_plan plan = {.take = request->plan,
                                      .wanted = &request->vary,
                                      .settings = &settings,
                                      .options = &options,
                                      .command = request->command,
                                      .show = isatty(STDERR_FILENO)};
    enum error_code code = kl_vary_prepare(&plan, &all, &err);
    int status = code == ERROR_NONE ? vary_all(command, request, &all, out) : command_fail(command, &err);
    kl_vary_all_fini(&all);
    list_fini(&options);
    settings_fini(&settings);
    return status;
}

/* ---- the command ---- */

static int run(const struct command *command, struct output *out, int argc, char **argv)
{
    struct request request = {0};
    struct command_operands operands;
    const struct command_option own[] = {
        {.name = "prompts", .value = &request.plan.prompts_file},
        {.name = "synthetic", .value = &request.plan.synthetic},
        {.name = "new", .value = &request.new_tokens},
        {.name = "min-samples", .value = &request.least},
        {.name = "paths", .value = &request.paths},
        {.name = "thresholds", .value = &request.plan.thresholds},
        {.name = "comma", .value = &request.comma},
        {.name = "explain", .value = &request.explain},
        {.name = "vary", .list = &request.vary},
        {.name = "out", .value = &request.out},
        {.name = "json", .flag = &request.as_json},
        {.name = "all", .flag = &request.all},
    };
    enum { OWN = sizeof own / sizeof own[0] };
    struct command_option options[OWN + SETTINGS_COUNT + 1] = {0};
    memcpy(options, own, sizeof own);
    options_rows(request.of_run, options + OWN);
    int status = STATUS_USAGE;
    if (command_parse(command, options, argc, argv, 1, &operands) && take_options(command, &request, &operands)) {
        request.command = operands.rest;
        status = request.vary.count > 0
                     ? vary(command, &request, out)
                     : measure_at(command, &request, operands.count > 0 ? operands.item[0] : NULL, out);
    }
    list_fini(&request.vary);
    return status;
}

const struct command command_kl = {
    .name = "kl",
    .usage = "kl [OPTIONS] [RUN|URL]\n"
             "kl --vary NAME=VALUE,... [OPTIONS] -- CMD...",
    .summary = "measure decode against prefill on five paths, and say which condition is broken",
    .help =
        "Examples:\n"
        "  kldumpctl kl quiet-otter-3\n"
        "  kldumpctl kl http://127.0.0.1:30000 --prompts prompts.jsonl --out kl.json\n"
        "  kldumpctl kl --synthetic 64:2000-6000:7 --new 1024\n"
        "  kldumpctl kl --thresholds thresholds.json && echo good\n"
        "  kldumpctl kl --explain worst\n"
        "  kldumpctl kl --paths match,restore --json | jq .reading\n"
        "  kldumpctl kl --vary page-size=1,16 --vary disable-overlap-schedule=on -- \\\n"
        "      python3 -m sglang.launch_server --model-path M --port 30000\n"
        "\n"
        "Two conditions stand behind a zero: every operator is batch-invariant (1), and decode and prefill compute "
        "the\n"
        "same function (2). The paths are those of SGLang's own helpers: match, prefill cache hit and decode cache "
        "hit;\n"
        "beside them match with one request at a time, and restore, prefill against prefill. Each token's logprobs\n"
        "are compared: bit-equal, stray (two ways of taking one logprob), or beyond; k3 is the helpers' estimate.\n"
        "The reading says which condition is broken, what decided, and what to do next. Nobody else may use the "
        "server\n"
        "meanwhile: its prefix cache is flushed.\n"
        "\n"
        "  --prompts FILE       JSON lines, each with \"input_ids\" or \"text\"\n"
        "  --synthetic SPEC     N:LEN[-LEN]:SEED, made from a seed (default: 32:1500-4500:1)\n"
        "  --new N              new tokens of each request (default: 512)\n"
        "  --min-samples N      be content with N prompts (default: 32)\n"
        "  --paths LIST         of match, match_alone, prefill_cache_hit, decode_cache_hit, restore (default: all)\n"
        "  --thresholds FILE    means that a path must be below, measured for this model and this tp\n"
        "  --comma IDS          ids before a second turn (default: those of a comma)\n"
        "  --explain REQ        what the wrong output is the right answer to: REQ is scored again under altered\n"
        "                       contexts; worst, or a path and a number as restore:3\n"
        "  --vary NAME=VALUE,.. start CMD as given twice, then with each value of its argument NAME (on, off: of a\n"
        "                       switch), and say whether a setting that should not matter moves the numbers; with\n"
        "                       the options of a run (kldumpctl help run); results are kept in DIR\n"
        "  --all                every request\n"
        "  --out FILE           write the result as JSON, with every logprob\n"
        "  --json               print that (schema kldump.kl/1; of --vary kldump.kl-vary/1, without logprobs)\n"
        "\n"
        "KLDUMP_API_KEY holds the server's key where it wants one.\n"
        "\n"
        "Exit status: 0 every path clean or below its threshold, 1 not, 2 usage, 4 somebody else used the server,\n"
        "85 it failed or changed, 87 no such run; of --vary also 80 CMD takes no argument, 81 a server did not start,\n"
        "130 interrupted.\n",
    .run = run,
};
