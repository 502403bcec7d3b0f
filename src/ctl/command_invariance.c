/* kldumpctl invariance: whether a result depends on what it is computed among. */
#include "analysis/diff.h"
#include "base/memory.h"
#include "base/number.h"
#include "base/text.h"
#include "ctl/command.h"
#include "ctl/interrupt.h"
#include "ctl/invariance_dump.h"
#include "ctl/invariance_inputs.h"
#include "ctl/invariance_report.h"
#include "ctl/invariance_take.h"
#include "ctl/progress.h"
#include "ctl/result_file.h"
#include "sys/file.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { LEAST = 2, MOST_DEFAULT = 8, NEW_DEFAULT = 32, NEW_MOST = 1000000, SCRIPT_MODE = 0644 };
#define PROMPTS_DEFAULT "8:100-200:1"

struct request {
    bool as_json;
    const char *prompts_file, *synthetic, *new_tokens, *most, *kl, *diff, *dump, *repro;
    uint64_t new_count, most_count; /* most_count 0: as many as there are prompts, up to MOST_DEFAULT */
};

static bool is_wanted(void *user)
{
    (void)user;
    return interrupt_number() == 0;
}

/* ---- options ---- */

/* Of --dump and --repro. */
static enum error_code check_outputs(const struct request *request, struct error *err)
{
    if (request->repro != NULL && request->diff == NULL && request->dump == NULL)
        return error_set(err, ERROR_USAGE,
                         "--repro: which operator it is has to be known: --dump EXP names it, or --diff FILE of "
                         "'kldumpctl diff --json'");
    if (request->dump != NULL && (!text_is_name(request->dump) || strlen(request->dump) > INVARIANCE_DUMP_NAME))
        return error_set(err, ERROR_USAGE,
                         "--dump: '%.70s' is not the name of an experiment; 1 to %d of A-Z a-z 0-9 . _ -, not "
                         "beginning with . or -",
                         request->dump, INVARIANCE_DUMP_NAME);
    if (request->repro != NULL && result_file_foresee(request->repro, err) != ERROR_NONE)
        return error_prefix(err, "--repro");
    return ERROR_NONE;
}

/* False after the usage error. */
static bool take_options(const struct command *command, struct request *request)
{
    struct error err = ERROR_INIT;
    request->new_count = NEW_DEFAULT;
    if (prompts_choose(request->prompts_file, request->synthetic, &err) == ERROR_NONE)
        check_outputs(request, &err);
    if (err.code == ERROR_NONE)
        number_option("--new", request->new_tokens, LEAST, NEW_MOST, &request->new_count, &err);
    if (err.code == ERROR_NONE)
        number_option("--most", request->most, LEAST, INVARIANCE_TAKE_MOST, &request->most_count, &err);
    if (err.code != ERROR_NONE)
        command_usage_error(command, "%s", err.message);
    return err.code == ERROR_NONE;
}

static enum error_code get_prompts(const struct request *request, struct endpoint *endpoint,
                                   struct prompts *ret_prompts, size_t *ret_most, struct error *err)
{
    enum error_code code = prompts_get(request->prompts_file, request->synthetic, PROMPTS_DEFAULT,
                                       endpoint->server.vocabulary, ret_prompts, err);
    if (code != ERROR_NONE)
        return code;
    size_t most = ret_prompts->count < MOST_DEFAULT ? ret_prompts->count : MOST_DEFAULT;
    if (request->most_count > 0)
        most = (size_t)request->most_count;
    if (most > ret_prompts->count || most < LEAST)
        return error_set(err, ERROR_BAD_VALUE, "%zu prompts; a batch of %zu needs as many, and at least %d",
                         ret_prompts->count, most > LEAST ? most : LEAST, LEAST);
    *ret_most = most;
    return endpoint_tokenize(endpoint, ret_prompts, err);
}

/* ---- the script ---- */

/* On how many rows the operator of --diff had another result: the batch of a decode, or the rows of an extend. */
static uint64_t rows_of(const struct invariance_report *report)
{
    const struct invariance_case *before, *first = invariance_first(&report->axes[INVARIANCE_DECODE], &before);
    size_t rows = report->plan->most;
    if (first != NULL)
        return first->size;
    for (size_t i = 0; invariance_first(&report->axes[INVARIANCE_EXTEND], &before) != NULL && i < report->plan->most;
         i++)
        if (report->plan->prompts->items[i].length > rows)
            rows = report->plan->prompts->items[i].length;
    return rows;
}

static enum error_code write_script(const struct invariance_module *module, const char *path, struct error *err)
{
    struct buffer text;
    buffer_init(&text);
    enum error_code code = invariance_report_script(module, &text, err);
    if (code == ERROR_NONE)
        code = file_replace(path, text.data, text.length, SCRIPT_MODE, FILE_NO_SYNC, err);
    buffer_fini(&text);
    return code;
}

/* Of --diff, before anything is measured: whether there is a script of this operator at all. */
static enum error_code check_script(struct invariance_report *report, struct error *err)
{
    struct buffer text;
    buffer_init(&text);
    report->module.rows = 1;
    report->module.reference_rows = LEAST;
    enum error_code code = invariance_report_script(&report->module, &text, err);
    buffer_fini(&text);
    return code == ERROR_NONE ? code : error_prefix(err, "--repro");
}

/* What the dumps name may have no script, or nothing may have changed: that is told, and what was measured stands. */
static enum error_code make_script(const struct request *request, struct invariance_report *report, struct error *err)
{
    struct error problem = ERROR_INIT;
    if (request->diff != NULL) {
        report->module.rows = 1;
        report->module.reference_rows = rows_of(report);
    }
    const struct invariance_module *module = invariance_report_module(report);
    if (module == NULL)
        error_set(&problem, ERROR_BAD_VALUE, "no operator is named");
    else
        write_script(module, request->repro, &problem);
    if (problem.code == ERROR_NONE) {
        report->script = request->repro;
    } else if (problem.code == ERROR_BAD_VALUE && request->diff == NULL) {
        report->no_script = memory_copy(problem.message);
    } else {
        *err = problem;
        return error_prefix(err, "--repro");
    }
    return ERROR_NONE;
}

/* ---- the command ---- */

static int tell(const struct command *command, const struct request *request, struct invariance_report *report,
                struct output *out)
{
    struct error err = ERROR_INIT;
    bool foreign = foreign_seen(&report->endpoint->foreign);
    report->foreign = foreign_text(&report->endpoint->foreign);
    invariance_read(report->axes, &report->match, foreign ? report->foreign : NULL, &report->reading);
    if (request->dump != NULL && report->reading.condition == INVARIANCE_BROKEN &&
        invariance_report_module(report) != NULL) {
        free(report->reading.next);
        report->reading.next = memory_copy("the operator that is named, or one that is batch-invariant in its place "
                                           "(deterministic inference); then the same once more");
    }
    enum error_code code = request->repro != NULL && !foreign ? make_script(request, report, &err) : ERROR_NONE;
    if (request->as_json) {
        struct json *json = invariance_report_json(report);
        output_json(out, json);
        json_free(json);
    } else {
        invariance_report_text(report, out);
    }
    if (code != ERROR_NONE)
        return command_fail(command, &err);
    bool is_changed = false;
    for (int id = 0; id < INVARIANCE_AXES; id++) {
        enum invariance_state state = invariance_state_of(&report->axes[id]);
        is_changed |= state == INVARIANCE_CHANGED || state == INVARIANCE_NOT_REPEATABLE;
    }
    if (foreign)
        return STATUS_INCOMPLETE;
    return is_changed ? STATUS_NO : STATUS_DONE;
}

static enum error_code dump(struct invariance_report *report, struct endpoint *endpoint,
                            const struct invariance_dump_plan *plan, struct error *err)
{
    enum error_code code = ERROR_NONE;
    bool is_any = false;
    for (int id = 0; code == ERROR_NONE && id < INVARIANCE_AXES; id++) {
        if (invariance_state_of(&report->axes[id]) != INVARIANCE_CHANGED)
            continue;
        is_any = true;
        code = invariance_dump_axis(endpoint, plan, (enum invariance_axis_id)id, &report->axes[id], &report->dumps[id],
                                    err);
        const char *verdict = report->dumps[id].module.verdict;
        report->axes[id].operator_proven = verdict != NULL && strcmp(verdict, diff_kind_word(DIFF_KIND_OP)) == 0;
    }
    return code == ERROR_NONE && is_any ? endpoint_check(endpoint, err) : code;
}

/* What the files say comes first: nobody waits for a measurement that ends in a wrong file. */
static enum error_code measure(const struct request *request, struct invariance_take_plan *plan,
                               struct endpoint *endpoint, struct invariance_report *report, struct error *err)
{
    enum error_code code = ERROR_NONE;
    generate_server_hash(&endpoint->server, report->settings_hash);
    if (request->kl != NULL)
        code = invariance_inputs_match(request->kl, plan->prompts->hash, report->settings_hash, &report->match, err);
    if (code == ERROR_NONE && request->diff != NULL)
        code = invariance_inputs_module(request->diff, &report->module, err);
    if (code == ERROR_NONE && request->repro != NULL && request->diff != NULL)
        code = check_script(report, err);
    struct invariance_dump_plan dumps = {.experiment = request->dump, .take = plan};
    if (code == ERROR_NONE && request->dump != NULL)
        code = invariance_dump_check(endpoint, &dumps, err);
    interrupt_watch(NULL);
    endpoint->wanted = is_wanted;
    if (code == ERROR_NONE)
        code = invariance_take(endpoint, plan, report->axes, err);
    if (code == ERROR_NONE && request->dump != NULL && !foreign_seen(&endpoint->foreign))
        code = dump(report, endpoint, &dumps, err);
    interrupt_unwatch();
    free(dumps.directory);
    return code;
}

static int run_on(const struct command *command, const struct request *request, struct endpoint *endpoint,
                  struct output *out)
{
    struct error err = ERROR_INIT;
    struct progress progress = {0};
    struct prompts prompts = {0};
    struct invariance_take_plan plan = {.prompts = &prompts,
                                        .new_tokens = (unsigned)request->new_count,
                                        .progress = isatty(STDERR_FILENO) ? progress_show_to : NULL,
                                        .context = &progress};
    struct invariance_report report = {.endpoint = endpoint,
                                       .plan = &plan,
                                       .kl_path = request->kl,
                                       .diff_path = request->diff,
                                       .experiment = request->dump};
    enum error_code code = get_prompts(request, endpoint, &prompts, &plan.most, &err);
    if (code == ERROR_NONE)
        code = measure(request, &plan, endpoint, &report, &err);
    progress_end(&progress);
    int status = code == ERROR_NONE ? tell(command, request, &report, out) : command_fail(command, &err);
    for (int id = 0; id < INVARIANCE_AXES; id++) {
        invariance_dump_fini(&report.dumps[id]);
        invariance_axis_fini(&report.axes[id]);
    }
    free(report.no_script);
    invariance_reading_fini(&report.reading);
    free(report.foreign);
    invariance_inputs_module_fini(&report.module);
    prompts_fini(&prompts);
    return status;
}

static int run(const struct command *command, struct output *out, int argc, char **argv)
{
    struct request request = {0};
    struct command_operands operands;
    struct endpoint endpoint;
    struct error err = ERROR_INIT;
    const struct command_option options[] = {
        {.name = "prompts", .value = &request.prompts_file},
        {.name = "synthetic", .value = &request.synthetic},
        {.name = "new", .value = &request.new_tokens},
        {.name = "most", .value = &request.most},
        {.name = "kl", .value = &request.kl},
        {.name = "diff", .value = &request.diff},
        {.name = "dump", .value = &request.dump},
        {.name = "repro", .value = &request.repro},
        {.name = "json", .flag = &request.as_json},
        {0},
    };
    if (!command_parse(command, options, argc, argv, 1, &operands) || !take_options(command, &request))
        return STATUS_USAGE;
    if (endpoint_open(operands.count > 0 ? operands.item[0] : NULL, &endpoint, &err) != ERROR_NONE)
        return command_fail(command, &err);
    int status = run_on(command, &request, &endpoint, out);
    endpoint_fini(&endpoint);
    return status;
}

const struct command command_invariance = {
    .name = "invariance",
    .usage = "invariance [OPTIONS] [RUN|URL]",
    .summary = "find out whether a result depends on what it is computed among: condition 1",
    .help =
        "Examples:\n"
        "  kldumpctl invariance quiet-otter-3\n"
        "  kldumpctl invariance http://127.0.0.1:30000 --prompts prompts.jsonl --most 32\n"
        "  kldumpctl invariance --prompts prompts.jsonl --kl kl.json\n"
        "  kldumpctl invariance quiet-otter-3 --dump why --repro repro.py; python3 repro.py\n"
        "  kldumpctl invariance --json | jq .reading\n"
        "\n"
        "Three axes, each with an answer of its own: prompts scored alone and in batches; the same position as a row\n"
        "of the whole prompt, of a short extend, and of one row on a cached prefix; tokens decoded alone and in\n"
        "batches. Logprobs are compared bit for bit, and the first size that changes one is named. The reference is\n"
        "taken twice: where that differs, nothing is said about sizes. Condition 1 holds only where match of\n"
        "'kldumpctl kl' over the same prompts is clean, too. Nobody else may use the server meanwhile: its prefix\n"
        "cache is flushed.\n"
        "\n"
        "  --prompts FILE    JSON lines, each with \"input_ids\" or \"text\"\n"
        "  --synthetic SPEC  N:LEN[-LEN]:SEED, made from a seed (default: 8:100-200:1)\n"
        "  --new N           new tokens of each request that decodes (default: 32)\n"
        "  --most N          the largest batch, up to 256 (default: the number of prompts, up to 8)\n"
        "  --kl FILE         the result of 'kldumpctl kl --json' over the same prompts and settings\n"
        "  --dump EXP        name the operator: of each axis that changed the smallest example is dumped twice, as\n"
        "                    EXP-AXIS-ref and EXP-AXIS-new, and compared\n"
        "  --diff FILE       the result of 'kldumpctl diff --json' that names the operator\n"
        "  --repro OUT.py    write ten lines of Python that call that operator on few rows and on more\n"
        "  --json            print one JSON object (schema kldump.invariance/1)\n"
        "\n"
        "KLDUMP_API_KEY holds the server's key where it wants one.\n"
        "\n"
        "Exit status: 0 nothing changes a result, 1 something does, 2 usage, 4 somebody else used the server,\n"
        "85 it failed or changed, 87 no such run, 130 interrupted.\n",
    .run = run,
};
