/* kldumpctl investigate: the whole way from a server's command to the operator, one step after the other. */
#include "analysis/investigation_html.h"
#include "base/memory.h"
#include "base/number.h"
#include "ctl/command.h"
#include "ctl/interrupt.h"
#include "ctl/investigate.h"
#include "ctl/investigate_report.h"
#include "ctl/kl_take.h"
#include "ctl/options.h"
#include "ctl/prompts.h"
#include "ctl/shell_words.h"
#include "sglang/kl_helper.h"
#include "sglang/sglang.h"
#include "sys/dump_folder.h"
#include "sys/file.h"
#include "sys/process.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { FILE_MODE = 0600 };

struct request {
    bool as_json;
    const char *prompts, *synthetic, *new_tokens, *least;
};

/* ---- options ---- */

static enum error_code take_numbers(const struct request *request, struct investigate *work, struct error *err)
{
    work->new_tokens = KL_HELPER_NEW_TOKENS;
    work->least = KL_HELPER_SAMPLES;
    enum error_code code = prompts_choose(request->prompts, request->synthetic, err);
    if (code == ERROR_NONE)
        code = number_option("--new", request->new_tokens, KL_TAKE_NEW_LEAST, KL_TAKE_NEW_MOST, &work->new_tokens, err);
    return code != ERROR_NONE
               ? code
               : number_option("--min-samples", request->least, 1, KL_TAKE_SAMPLES_MOST, &work->least, err);
}

/* The options of both runs: all but name and folder, which are ours. */
static void take_options(char **argv, int count, struct list *options)
{
    static const char *const own[] = {"--name", "--dir"};
    for (int i = 0; i < count; i++) {
        bool is_own = false;
        for (size_t k = 0; k < sizeof own / sizeof own[0] && !is_own; k++) {
            size_t length = strlen(own[k]);
            is_own = strncmp(argv[i], own[k], length) == 0 && (argv[i][length] == '\0' || argv[i][length] == '=');
        }
        if (!is_own)
            list_add(options, argv[i]);
        else if (strchr(argv[i], '=') == NULL)
            i++;
    }
}

/* argv: options of a run, then "--" and CMD. */
static enum error_code take_settings(int argc, char **argv, struct investigate *work, struct error *err)
{
    struct settings settings = {0};
    struct list redacted = {0};
    int rest = 0;
    enum error_code code = options_read(argc, argv, NULL, &settings, &rest, err);
    if (code != ERROR_NONE)
        return code;
    if (settings.given[SETTINGS_KIND])
        code = error_set(err, ERROR_USAGE, "--kind: investigate starts a run of each kind, one after the other");
    work->name = memory_copy(settings.name);
    work->has_name = settings.given[SETTINGS_NAME];
    work->directory = dump_folder_foresee(settings.directory, NULL, NULL);
    take_options(argv, rest - 1, &work->options);
    list_add_all(&work->server, argv + rest);
    settings_fini(&settings);
    struct buffer shown;
    buffer_init(&shown);
    sglang_operations.redact(&work->server, &redacted);
    shell_words(&shown, list_vector(&redacted));
    work->shown = buffer_steal(&shown);
    buffer_fini(&shown);
    list_fini(&redacted);
    return code;
}

/* The prompts as they were asked for: a file by what it holds, whatever its name. */
static enum error_code take_prompts(const struct request *request, struct investigate *work, struct error *err)
{
    struct prompts prompts = {0};
    work->prompts_path = request->prompts;
    work->synthetic = request->synthetic != NULL || request->prompts != NULL ? request->synthetic : KL_TAKE_PROMPTS;
    /* These ids are for the hash alone: the vocabulary is not known before a server is up. */
    enum error_code code = prompts_get(work->prompts_path, work->synthetic, "", INT32_MAX, &prompts, err);
    if (code == ERROR_NONE)
        code = prompts_enough(prompts.count, work->least, err);
    if (code == ERROR_NONE) {
        work->given = memory_copy(prompts.source);
        memcpy(work->given_hash, prompts.hash, sizeof work->given_hash);
    }
    prompts_fini(&prompts);
    return code;
}

/* ---- the end ---- */

static int status_of(const struct investigate *work, const struct investigation_end *end)
{
    if (work->interrupted)
        return STATUS_INTERRUPTED;
    for (int id = 0; id < INVESTIGATION_STEPS; id++) {
        const struct investigation_step *step = &work->found.steps[id];
        if (step->state != INVESTIGATION_FAILED)
            continue;
        if (id == INVESTIGATION_DOCTOR)
            return STATUS_NOT_ARMED;
        if (step->status <= STATUS_NO)
            return STATUS_INCOMPLETE;
        return step->status < PROCESS_SIGNALED ? step->status : STATUS_INTERNAL;
    }
    return (int)end->status;
}

static enum error_code write_file(const struct investigate *work, const char *name, const struct buffer *text,
                                  struct error *err)
{
    char *path = memory_format("%s/%s", work->directory, name);
    enum error_code code = file_replace(path, text->data, text->length, FILE_MODE, FILE_NO_SYNC, err);
    free(path);
    return code;
}

/* As it can be typed. */
static void say_again(const struct investigate *work)
{
    struct buffer words;
    buffer_init(&words);
    shell_words(&words, (char *const[]){(char *)"--name", work->name, (char *)"--dir", work->directory, NULL});
    fprintf(stderr, "Go on with the same command, %s: what is finished is not done again.\n", words.data);
    buffer_fini(&words);
}

static int report(const struct command *command, const struct request *request, struct investigate *work,
                  struct output *out)
{
    struct error err = ERROR_INIT;
    struct investigation_end end;
    struct buffer text, page;
    buffer_init(&text);
    buffer_init(&page);
    investigation_conclude(&work->found, &end);
    struct json *json = investigate_report_json(&work->found, &end);
    json_print_pretty(json, &text);
    buffer_text(&text, "\n");
    investigation_html(&work->found, &end, &page);
    enum error_code code = write_file(work, "report.json", &text, &err);
    if (code == ERROR_NONE)
        code = write_file(work, "report.html", &page, &err);
    if (request->as_json)
        output_json(out, json);
    else
        investigate_report_text(&work->found, &end, out);
    if (code == ERROR_NONE)
        code = output_flush(out, &err);
    int status = status_of(work, &end);
    if (work->interrupted)
        say_again(work);
    json_free(json);
    buffer_fini(&text);
    buffer_fini(&page);
    investigation_end_fini(&end);
    return code == ERROR_NONE ? status : command_fail(command, &err);
}

static int investigate(const struct command *command, const struct request *request, struct investigate *work,
                       struct output *out)
{
    struct error err = ERROR_INIT;
    enum error_code code = take_prompts(request, work, &err);
    if (code == ERROR_NONE)
        code = investigate_open(work, &err);
    if (code != ERROR_NONE)
        return command_fail(command, &err);
    interrupt_watch("\nkldumpctl investigate: ended at once; the guard kills the server\n");
    code = investigate_all(work, &err);
    int status = code == ERROR_NONE ? report(command, request, work, out) : command_fail(command, &err);
    interrupt_unwatch();
    return status;
}

static int run(const struct command *command, struct output *out, int argc, char **argv)
{
    struct request request = {0};
    struct investigate work = {.lock_fd = -1, .run.pidfd = -1};
    struct error err = ERROR_INIT;
    const struct command_option options[] = {
        {.name = "prompts", .value = &request.prompts}, {.name = "synthetic", .value = &request.synthetic},
        {.name = "new", .value = &request.new_tokens},  {.name = "min-samples", .value = &request.least},
        {.name = "json", .flag = &request.as_json},     {0}};
    argc = command_take(command, options, argc - 1, ++argv);
    if (argc < 0)
        return STATUS_USAGE;
    enum error_code code = take_numbers(&request, &work, &err);
    if (code == ERROR_NONE)
        code = take_settings(argc, argv, &work, &err);
    int status = code == ERROR_NONE ? investigate(command, &request, &work, out)
                                    : command_usage_error(command, "%s", err.message);
    investigate_close(&work);
    return status;
}

const struct command command_investigate = {
    .name = "investigate",
    .usage = "investigate [OPTIONS] [--prompts FILE | --synthetic SPEC] [--new N] [--min-samples N] [--json] -- CMD...",
    .summary = "all steps from CMD, a server's command, to the condition and the operator",
    .help = "Examples:\n"
            "  kldumpctl investigate --dir look -- \\\n"
            "      python3 -m sglang.launch_server --model-path M --port 30000\n"
            "  kldumpctl investigate --dir look --prompts prompts.jsonl --floor 50G -- python3 -m ...\n"
            "  kldumpctl investigate --dir look --json -- python3 -m ... | jq .answer.end\n"
            "\n"
            "doctor; kl under your own flags; kl under those of a dump over the same prompts; ab of the two;\n"
            "invariance; capture of the prompts that diverge first; check; diff. Each step is a command of its own,\n"
            "which is shown, and its result lies in DIR. What an answer makes pointless is left out: where nothing\n"
            "diverges under your own flags, that is the end. DIR/report.html has the whole.\n"
            "\n"
            "Ctrl-C ends the step and the server in order. The same command with the same --dir goes on with what\n"
            "is not finished. No server is left behind, however this command ends.\n"
            "\n"
            "  --prompts FILE        JSON lines, each with \"input_ids\" or \"text\"\n"
            "  --synthetic SPEC      N:LEN[-LEN]:SEED, made from a seed (default: 32:1500-4500:1)\n"
            "  --new N               new tokens of each request (default: 512)\n"
            "  --min-samples N       be content with N prompts (default: 32)\n"
            "  --json                the report as one JSON object (schema kldump.investigate/1)\n"
            "\n"
            "Exit status: 0 no divergence, 1 a divergence, or numbers that cannot be read, 2 usage, 4 a step could\n"
            "not be done, 81 the server does not start, 88 refused, 130 interrupted; else that of the failed step.\n",
    .has_settings = true,
    .run = run,
};
