/* kldumpctl capture [RUN] [--prompts FILE | --synthetic N:LEN[-LEN]:SEED] [--new N] [--name EXP] [--alone] [--json]
 *
 * Happy path: the prompts; whether all of it fits; then twice {flush, dump on, one batch, dump off and sealed}: decode
 * under EXP-dec, the scoring prefill of exactly prompt + output under EXP-pre; the ids and logprobs beside them.
 * Failures before the first byte: nothing is written. Later ones (an error of the server, a restart, tokens from the
 * cache, somebody else's requests, Ctrl-C): what is open is paused and sealed, the file says why it is incomplete, and
 * nothing further is dumped. */
#include "base/memory.h"
#include "base/number.h"
#include "base/text.h"
#include "ctl/capture_result.h"
#include "ctl/command.h"
#include "ctl/dump_session.h"
#include "ctl/interrupt.h"
#include "ctl/progress.h"
#include "ctl/show.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { NEW_TOKENS = 16, NEW_MAX = 1000000, NAME_MAX_BYTES = 60 };

static const char default_prompts[] = "4:48-96:1", default_name[] = "capture";

struct capture {
    const struct command *command;
    const char *run, *prompts_path, *synthetic;
    struct endpoint endpoint;
    struct prompts prompts;
    struct capture_result result;
    char experiment[CAPTURE_PHASES][SERVER_NAME_MAX];
    char *directory;
    struct list rids[CAPTURE_PHASES];
    const char *doing; /* for the line of progress; NULL: none is shown */
    struct progress progress;
    bool as_json, begun; /* begun: something may have been dumped */
};

static const struct {
    const char *suffix, *doing;
} phases[CAPTURE_PHASES] = {{"dec", "decoding"}, {"pre", "scoring"}};

/* ---- before the first byte ---- */

static enum error_code read_prompts(struct capture *capture, struct error *err)
{
    enum error_code code = prompts_get(capture->prompts_path, capture->synthetic, default_prompts,
                                       capture->endpoint.server.vocabulary, &capture->prompts, err);
    if (code == ERROR_NONE)
        code = endpoint_tokenize(&capture->endpoint, &capture->prompts, err);
    return code;
}

/* Prompts and their scoring requests must fit the context, and all that they dump the disk. */
static enum error_code check_fit(struct capture *capture, struct error *err)
{
    struct dump_session_load load = {0};
    unsigned new_tokens = capture->result.new_tokens;
    for (size_t i = 0; i < capture->prompts.count; i++) {
        size_t length = capture->prompts.items[i].length;
        enum error_code code =
            endpoint_takes(&capture->endpoint, capture->prompts.items[i].ids, length, new_tokens, err);
        if (code == ERROR_NONE)
            code = endpoint_takes(&capture->endpoint, NULL, length + new_tokens, 0, err);
        if (code != ERROR_NONE) {
            error_prefix(err, "prompt %zu", i);
            return code;
        }
        load.prefill_tokens += 2 * length + new_tokens;
        load.decode_tokens += new_tokens;
    }
    enum error_code code = dump_session_room(&capture->endpoint.find, &load, err);
    if (code != ERROR_NOT_FOUND)
        return code;
    error_prefix(err, "warning");
    command_fail(capture->command, err);
    return ERROR_NONE;
}

static void make_requests(struct capture *capture)
{
    struct capture_result *result = &capture->result;
    result->count = capture->prompts.count;
    result->requests = memory_new((result->count + 1) * sizeof *result->requests);
    for (int phase = 0; phase < CAPTURE_PHASES; phase++)
        for (size_t i = 0; i < result->count; i++)
            list_add_format(&capture->rids[phase], "kldump-%s-%zu", capture->experiment[phase], i);
    for (size_t i = 0; i < result->count; i++) {
        struct capture_request *request = &result->requests[i];
        request->prompt_length = capture->prompts.items[i].length;
        request->ids = memory_resize(NULL, request->prompt_length + result->new_tokens, sizeof *request->ids);
        memcpy(request->ids, capture->prompts.items[i].ids, request->prompt_length * sizeof *request->ids);
        for (int phase = 0; phase < CAPTURE_PHASES; phase++)
            request->rid[phase] = capture->rids[phase].items[i];
    }
}

static enum error_code find_directory(struct capture *capture, struct error *err)
{
    struct json *run = NULL;
    enum error_code code = find_status(&capture->endpoint.find, &run, err);
    if (code == ERROR_NONE)
        capture->directory = memory_copy(show_member(run, "dir"));
    json_free(run);
    return code;
}

static enum error_code prepare(struct capture *capture, struct error *err)
{
    enum error_code code = endpoint_open(capture->run, &capture->endpoint, err);
    if (code == ERROR_NONE)
        code = read_prompts(capture, err);
    if (code == ERROR_NONE)
        code = check_fit(capture, err);
    if (code == ERROR_NONE)
        code = find_directory(capture, err);
    if (code != ERROR_NONE)
        return code;
    struct capture_result *result = &capture->result;
    result->run = capture->endpoint.name;
    result->directory = capture->directory;
    result->prompts = &capture->prompts;
    result->server = &capture->endpoint.server;
    make_requests(capture);
    return ERROR_NONE;
}

/* ---- one phase ---- */

static bool still_wanted(void *user)
{
    struct capture *capture = user;
    if (capture->doing != NULL)
        progress_wait(&capture->progress, capture->doing);
    return interrupt_number() == 0;
}

static enum error_code interrupted(struct error *err)
{
    return interrupt_number() == 0 ? ERROR_NONE : error_set(err, ERROR_INTERRUPTED, "interrupted");
}

/* Takes the answer of one request over. */
static enum error_code take(struct capture_request *request, enum capture_phase phase, struct generate_answer *answer,
                            struct error *err)
{
    request->cached[phase] = answer->cached_tokens;
    if (phase == CAPTURE_DECODE) {
        request->output_count = answer->output_count;
        memcpy(request->ids + request->prompt_length, answer->output_ids, answer->output_count * sizeof *request->ids);
        request->decoded = answer->output_logprobs;
        answer->output_logprobs = NULL;
    } else {
        request->scored = answer->input_logprobs;
        answer->input_logprobs = NULL;
    }
    if (answer->cached_tokens != 0)
        return error_set(err, ERROR_STATE,
                         "%s found %zu tokens in the prefix cache, which had just been flushed; expected 0: keep other "
                         "clients away; prompts that begin alike need --alone",
                         request->rid[phase], answer->cached_tokens);
    return ERROR_NONE;
}

/* Requests first to first + count - 1 as one batch. */
static enum error_code send_batch(struct capture *capture, enum capture_phase phase, size_t first, size_t count,
                                  struct error *err)
{
    struct generate_prompt *prompts = memory_new(count * sizeof *prompts);
    struct generate_answers answers = {0};
    for (size_t i = 0; i < count; i++) {
        const struct capture_request *request = &capture->result.requests[first + i];
        prompts[i] =
            (struct generate_prompt){request->rid[phase], request->ids, request->prompt_length + request->output_count};
    }
    const struct generate_request request = {.prompts = prompts,
                                             .count = count,
                                             .new_tokens = phase == CAPTURE_DECODE ? capture->result.new_tokens : 0,
                                             .has_temperature = true,
                                             .ignore_eos = true,
                                             .logprobs = true,
                                             .logprob_start = phase == CAPTURE_DECODE ? -1 : 0};
    enum error_code code = endpoint_generate(&capture->endpoint, &request, &answers, err);
    for (size_t i = 0; code == ERROR_NONE && i < count; i++)
        code = take(&capture->result.requests[first + i], phase, &answers.items[i], err);
    generate_answers_fini(&answers);
    free(prompts);
    return code;
}

static enum error_code send_all(struct capture *capture, enum capture_phase phase, struct error *err)
{
    size_t count = capture->result.count, size = capture->result.alone ? 1 : count;
    capture->doing = isatty(STDERR_FILENO) ? phases[phase].doing : NULL;
    enum error_code code = ERROR_NONE;
    for (size_t i = 0; i < count && code == ERROR_NONE; i += size) {
        code = interrupted(err);
        if (code == ERROR_NONE && i > 0) /* prompts may begin alike */
            code = endpoint_flush(&capture->endpoint, err);
        if (code == ERROR_NONE)
            code = send_batch(capture, phase, i, size, err);
    }
    progress_end(&capture->progress);
    capture->doing = NULL;
    return code;
}

/* Pauses, whatever has happened; a first error stays. */
static enum error_code seal(struct capture *capture, enum capture_phase phase, enum error_code code, struct error *err)
{
    struct dump_session_end end = {0};
    struct error other = ERROR_INIT;
    const char *experiment = capture->result.experiment[phase], *reason = NULL;
    enum error_code ended = dump_session_end(&capture->endpoint.find, experiment, &end, &other);
    if (ended == ERROR_NONE && end.problem.code != ERROR_NONE) {
        other = end.problem;
        ended = other.code;
        if (code != ERROR_NONE)
            error_prefix(err, "%.400s; before", other.message);
    } else if (ended == ERROR_NONE && dump_session_status(&end) != STATUS_DONE) {
        if (json_get_string(end.seal, "reasons.0", &reason, NULL) != ERROR_NONE)
            reason = show_sealed_early(end.seal);
        ended = error_set(&other, ERROR_INCOMPLETE, "%s is incomplete: %.400s", experiment, reason);
    }
    capture->result.seal[phase] = end.seal;
    if (code != ERROR_NONE || ended == ERROR_NONE)
        return code;
    if (err != NULL)
        *err = other;
    return ended;
}

static enum error_code run_phase(struct capture *capture, enum capture_phase phase, struct error *err)
{
    const struct dump_session session = {.experiment = capture->result.experiment[phase],
                                         .hold = true,
                                         .wait_idle_ms = DUMP_SESSION_IDLE_MS,
                                         .own_rids = &capture->rids[phase]};
    struct json *answer = NULL;
    enum error_code code = interrupted(err);
    if (code == ERROR_NONE)
        code = endpoint_flush(&capture->endpoint, err);
    if (code == ERROR_NONE)
        code = dump_session_begin(&capture->endpoint.find, &session, &answer, err);
    if (code != ERROR_NONE)
        return code;
    json_free(answer);
    capture->begun = true;
    code = send_all(capture, phase, err);
    code = seal(capture, phase, code, err);
    return code == ERROR_NONE ? endpoint_check(&capture->endpoint, err) : code;
}

/* ---- all of it ---- */

static enum error_code check_scores(const struct capture *capture, struct error *err)
{
    struct capture_tally tally;
    capture_result_tally(&capture->result, &tally);
    if (!tally.shifted)
        return ERROR_NONE;
    return error_set(err, ERROR_SERVER,
                     "each of the %zu scored logprobs is bit for bit that of the token behind it: the server's "
                     "input_token_logprobs are shifted by one, and nothing can be read from them",
                     tally.tokens);
}

static void print(struct capture *capture, struct output *out, const char *path)
{
    const struct capture_result *result = &capture->result;
    struct capture_tally tally;
    capture_result_tally(result, &tally);
    for (int phase = 0; phase < CAPTURE_PHASES; phase++)
        if (result->seal[phase] != NULL)
            show_seal(out, result->seal[phase], result->directory);
    if (tally.tokens > 0)
        output_format(out, "logprobs: %zu of %zu tokens are bit-equal, the largest difference is %.3g\n",
                      tally.bit_equal, tally.tokens, tally.largest);
    output_format(out, "%zu prompts, %s, hash %s\n", result->count, result->prompts->source, result->prompts->hash);
    if (path != NULL) {
        output_text(out, "ids and logprobs: ");
        output_safe(out, OUTPUT_PLAIN, path);
        output_text(out, "\n");
    }
    if (result->reasons.count == 0) {
        output_text(out, "Compare them: kldumpctl diff ");
        output_safe(out, OUTPUT_PLAIN, result->directory);
        output_format(out, "/%s ", result->experiment[CAPTURE_DECODE]);
        output_safe(out, OUTPUT_PLAIN, result->directory);
        output_format(out, "/%s\n", result->experiment[CAPTURE_SCORE]);
    }
}

/* Keeps what there is and says it; the exit status. */
static int report(struct capture *capture, struct output *out, const struct error *problem)
{
    struct error err = ERROR_INIT;
    char *path = NULL;
    int status = STATUS_DONE;
    if (problem->code != ERROR_NONE)
        list_add(&capture->result.reasons, problem->message);
    struct json *object = capture_result_json(&capture->result);
    enum error_code code = capture_result_write(object, &capture->result, &path, &err);
    if (capture->as_json)
        output_json(out, object);
    else
        print(capture, out, path);
    output_flush(out, NULL);
    json_free(object);
    free(path);
    if (code != ERROR_NONE)
        status = command_fail(capture->command, &err);
    if (problem->code == ERROR_NONE)
        return status;
    err = *problem;
    error_prefix(&err, "the capture is incomplete");
    return command_fail(capture->command, &err);
}

static int capture_run_all(struct capture *capture, struct output *out)
{
    struct error err = ERROR_INIT;
    enum error_code code = prepare(capture, &err);
    if (code != ERROR_NONE)
        return command_fail(capture->command, &err);
    interrupt_watch("\nkldumpctl capture: ended at once; the guard pauses and seals the dump\n");
    capture->endpoint.wanted = still_wanted;
    capture->endpoint.user = capture;
    for (int phase = 0; phase < CAPTURE_PHASES && code == ERROR_NONE; phase++)
        code = run_phase(capture, (enum capture_phase)phase, &err);
    if (code == ERROR_NONE)
        code = check_scores(capture, &err);
    int status = capture->begun ? report(capture, out, &err) : command_fail(capture->command, &err);
    interrupt_unwatch();
    return status;
}

static bool read_options(struct capture *capture, const char *new_tokens, const char *name)
{
    struct error err = ERROR_INIT;
    uint64_t count = NEW_TOKENS;
    if (capture->prompts_path != NULL && capture->synthetic != NULL) {
        command_usage_error(capture->command, "--prompts and --synthetic exclude each other");
        return false;
    }
    if (number_option("--new", new_tokens, 1, NEW_MAX, &count, &err) != ERROR_NONE) {
        command_usage_error(capture->command, "%s", err.message);
        return false;
    }
    if (!text_is_name(name) || strlen(name) > NAME_MAX_BYTES) {
        command_usage_error(capture->command,
                            "--name: '%.70s' is not the name of an experiment; 1 to %d of A-Z a-z 0-9 . _ -, not "
                            "beginning with . or -",
                            name, NAME_MAX_BYTES);
        return false;
    }
    if (capture->run != NULL && strstr(capture->run, "://") != NULL) {
        command_usage_error(capture->command, "only a guarded run can be dumped; a URL is for kldumpctl kl");
        return false;
    }
    capture->result.new_tokens = (unsigned)count;
    capture->result.name = name;
    for (int phase = 0; phase < CAPTURE_PHASES; phase++) {
        snprintf(capture->experiment[phase], sizeof capture->experiment[phase], "%.60s-%s", name, phases[phase].suffix);
        capture->result.experiment[phase] = capture->experiment[phase];
    }
    return true;
}

static int run(const struct command *command, struct output *out, int argc, char **argv)
{
    struct capture capture = {.command = command};
    const char *new_tokens = NULL, *name = NULL;
    struct command_operands operands;
    const struct command_option options[] = {{.name = "prompts", .value = &capture.prompts_path},
                                             {.name = "synthetic", .value = &capture.synthetic},
                                             {.name = "new", .value = &new_tokens},
                                             {.name = "name", .value = &name},
                                             {.name = "alone", .flag = &capture.result.alone},
                                             {.name = "json", .flag = &capture.as_json},
                                             {0}};
    if (!command_parse(command, options, argc, argv, 1, &operands))
        return STATUS_USAGE;
    capture.run = operands.item[0];
    if (!read_options(&capture, new_tokens, name != NULL ? name : default_name))
        return STATUS_USAGE;
    int status = capture_run_all(&capture, out);
    capture_result_fini(&capture.result);
    for (int phase = 0; phase < CAPTURE_PHASES; phase++)
        list_fini(&capture.rids[phase]);
    prompts_fini(&capture.prompts);
    endpoint_fini(&capture.endpoint);
    free(capture.directory);
    return status;
}

const struct command command_capture = {
    .name = "capture",
    .usage = "capture [RUN] [--prompts FILE | --synthetic N:LEN[-LEN]:SEED] [--new N] [--name EXP] [--alone] [--json]",
    .summary = "decode prompts, score the same tokens, both dumped: what 'diff' compares",
    .help = "Examples:\n"
            "  kldumpctl capture t\n"
            "  kldumpctl capture t --synthetic 8:500-900:7 --new 32 --name long\n"
            "  kldumpctl capture t --prompts prompts.jsonl --alone --name one\n"
            "  kldumpctl diff DIR/long-dec DIR/long-pre\n"
            "\n"
            "Decodes the prompts greedily into experiment EXP-dec, then scores exactly prompt and output\n"
            "into EXP-pre, each after a flush and with request ids of its own. Both dumps are sealed;\n"
            "ids and logprobs are kept in EXP.capture.json beside them. What was found in the prefix\n"
            "cache, cut, aborted or joined by somebody else's requests is incomplete, with the reason:\n"
            "exit status 4. Refused before the first byte when the tokens do not fit above the floor.\n"
            "Ctrl-C seals what is there. A key of the server is taken from KLDUMP_API_KEY.\n"
            "\n"
            "Options:\n"
            "  --prompts FILE      lines of JSON with \"input_ids\" or \"text\"\n"
            "  --synthetic RECIPE  N prompts of LEN random ids, the same for the same SEED\n"
            "                      (default: 4:48-96:1)\n"
            "  --new N             tokens to decode after each prompt (default: 16)\n"
            "  --name EXP          the dumps are EXP-dec and EXP-pre (default: capture)\n"
            "  --alone             one request at a time: a fault of passes with one row vanishes in a\n"
            "                      batch\n"
            "  --json              the contents of EXP.capture.json as one object\n",
    .run = run,
};
