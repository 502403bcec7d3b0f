/* kldumpctl capture [RUN] [--prompts FILE | --synthetic N:LEN[-LEN]:SEED] [--new N] [--name EXP] [--alone] [--restore]
 * [--json]
 *
 * Happy path: the prompts; whether all of it fits; then twice {flush, dump on, one batch, dump off and sealed}: decode
 * under EXP-dec, the scoring prefill of exactly prompt + output under EXP-pre; the ids and logprobs beside them. With
 * --restore the decode is not dumped; behind the scoring the same ids are scored twice more under EXP-restored, whole
 * and then behind the prefix that this has left in the cache. The first is dumped, too: only so does the dump itself
 * say which tokens are in the cache, and with which keys and values it was filled.
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

enum { NEW_TOKENS = 16, NEW_MAX = 1000000 };

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
} phases[CAPTURE_PHASES] = {{"dec", "decoding"}, {"pre", "scoring"}, {"restored", "scoring behind the cache"}};

/* The one that is dumped first, and what `diff` is given: side DEC, side PRE. */
static const struct kind {
    enum capture_phase first, last, decode_side, reference;
} usual = {CAPTURE_DECODE, CAPTURE_SCORE, CAPTURE_DECODE, CAPTURE_SCORE},
  restoring = {CAPTURE_SCORE, CAPTURE_RESTORE, CAPTURE_RESTORE, CAPTURE_SCORE};

static const struct kind *kind_of(const struct capture *capture)
{
    return capture->result.restore ? &restoring : &usual;
}

/* ---- before the first byte ---- */

static enum error_code read_prompts(struct capture *capture, struct error *err)
{
    enum error_code code = prompts_get(capture->prompts_path, capture->synthetic, default_prompts,
                                       capture->endpoint.server.vocabulary, &capture->prompts, err);
    if (code == ERROR_NONE)
        code = endpoint_tokenize(&capture->endpoint, &capture->prompts, err);
    return code;
}

/* A prefix can be restored of whole pages, and not the last token. */
static size_t restorable(const struct capture *capture, size_t length)
{
    size_t page = capture->endpoint.server.page_size > 0 ? (size_t)capture->endpoint.server.page_size : 1;
    return (length - 1) / page * page;
}

static enum error_code check_restorable(const struct capture *capture, struct error *err)
{
    const struct generate_server *server = &capture->endpoint.server;
    if (!capture->result.restore)
        return ERROR_NONE;
    if (!server->radix_cache)
        return error_set(err, ERROR_STATE,
                         "--restore: the prefix cache of %s is off, so nothing is restored; start it with its radix "
                         "cache on",
                         capture->endpoint.name);
    for (size_t i = 0; i < capture->prompts.count; i++)
        if (restorable(capture, capture->prompts.items[i].length) == 0)
            return error_set(err, ERROR_BAD_VALUE,
                             "--restore: prompt %zu has %zu tokens; expected more than a page of the cache, %" PRIu64,
                             i, capture->prompts.items[i].length, server->page_size > 0 ? server->page_size : 1);
    return ERROR_NONE;
}

static void add_load(const struct capture *capture, size_t length, struct dump_session_load *load)
{
    size_t whole = length + capture->result.new_tokens;
    if (capture->result.restore) {
        load->prefill_tokens += 2 * whole + (whole - restorable(capture, length));
    } else {
        load->prefill_tokens += length + whole;
        load->decode_tokens += capture->result.new_tokens;
    }
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
        add_load(capture, length, &load);
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
    bool is_sent[CAPTURE_PHASES] = {result->new_tokens > 0, true, result->restore};
    for (int phase = 0; phase < CAPTURE_PHASES; phase++)
        for (size_t i = 0; i < result->count && is_sent[phase]; i++)
            list_add_format(&capture->rids[phase], "kldump-%s-%zu", capture->experiment[phase], i);
    for (size_t i = 0; i < result->count; i++) {
        struct capture_request *request = &result->requests[i];
        request->prompt_length = capture->prompts.items[i].length;
        request->ids = memory_resize(NULL, request->prompt_length + result->new_tokens + 1, sizeof *request->ids);
        memcpy(request->ids, capture->prompts.items[i].ids, request->prompt_length * sizeof *request->ids);
        for (int phase = 0; phase < CAPTURE_PHASES; phase++)
            request->rid[phase] = is_sent[phase] ? capture->rids[phase].items[i] : NULL;
    }
}

static enum error_code prepare(struct capture *capture, struct error *err)
{
    enum error_code code = endpoint_open(capture->run, &capture->endpoint, err);
    if (code == ERROR_NONE)
        code = dump_session_directory(&capture->endpoint.find, &capture->directory, err);
    if (code == ERROR_NONE)
        code = read_prompts(capture, err);
    if (code == ERROR_NONE)
        code = check_restorable(capture, err);
    if (code == ERROR_NONE)
        code = check_fit(capture, err);
    if (code != ERROR_NONE)
        return code;
    struct capture_result *result = &capture->result;
    result->run = capture->endpoint.name;
    result->directory = capture->directory;
    result->prompts = &capture->prompts;
    result->server = &capture->endpoint.server;
    result->foreign = &capture->endpoint.foreign;
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

/* What is sent: one of the phases, or what fills the cache for the last one. */
enum what { DECODE = CAPTURE_DECODE, SCORE = CAPTURE_SCORE, RESTORE = CAPTURE_RESTORE, FILL };

static enum error_code check_cached(const struct capture *capture, const struct capture_request *request,
                                    enum what what, size_t cached, struct error *err)
{
    if (what == RESTORE && cached == 0)
        return error_set(err, ERROR_INCOMPLETE,
                         "%s found nothing in the prefix cache, which its own tokens had just filled; expected %zu: "
                         "nothing was restored",
                         request->rid[CAPTURE_RESTORE], restorable(capture, request->prompt_length));
    if (what != RESTORE && cached != 0)
        return error_set(err, ERROR_INCOMPLETE,
                         "%s found %zu tokens in the prefix cache, which had just been flushed; expected 0: keep other "
                         "clients away; prompts that begin alike need --alone",
                         request->rid[what == FILL ? CAPTURE_RESTORE : (enum capture_phase)what], cached);
    return ERROR_NONE;
}

/* Takes the answer of one request over. */
static enum error_code take(const struct capture *capture, struct capture_request *request, enum what what,
                            struct generate_answer *answer, struct error *err)
{
    if (what == DECODE) {
        request->output_count = answer->output_count;
        memcpy(request->ids + request->prompt_length, answer->output_ids, answer->output_count * sizeof *request->ids);
        request->decoded = answer->output_logprobs;
        answer->output_logprobs = NULL;
    } else if (what != FILL) {
        *(what == SCORE ? &request->scored : &request->restored) = answer->input_logprobs;
        answer->input_logprobs = NULL;
    }
    if (what != FILL)
        request->cached[what] = answer->cached_tokens;
    return check_cached(capture, request, what, answer->cached_tokens, err);
}

/* Requests first to first + count - 1 as one batch. The server restores at most as many tokens as lie before the first
 * logprob that is wanted. */
static enum error_code send_batch(struct capture *capture, enum what what, size_t first, size_t count,
                                  struct error *err)
{
    enum capture_phase phase = what == FILL ? CAPTURE_RESTORE : (enum capture_phase)what;
    struct generate_prompt *prompts = memory_new(count * sizeof *prompts);
    int64_t *starts = memory_new(count * sizeof *starts);
    struct generate_answers answers = {0};
    for (size_t i = 0; i < count; i++) {
        const struct capture_request *request = &capture->result.requests[first + i];
        prompts[i] =
            (struct generate_prompt){request->rid[phase], request->ids, request->prompt_length + request->output_count};
        starts[i] = what == DECODE ? -1 : what == RESTORE ? (int64_t)request->prompt_length - 1 : 0;
    }
    const struct generate_request request = {.prompts = prompts,
                                             .count = count,
                                             .new_tokens = what == DECODE ? capture->result.new_tokens : 0,
                                             .has_temperature = true,
                                             .ignore_eos = true,
                                             .logprobs = true,
                                             .logprob_start = starts[0],
                                             .logprob_starts = what == RESTORE ? starts : NULL};
    enum error_code code = endpoint_generate(&capture->endpoint, &request, &answers, err);
    for (size_t i = 0; code == ERROR_NONE && i < count; i++)
        code = take(capture, &capture->result.requests[first + i], what, &answers.items[i], err);
    generate_answers_fini(&answers);
    free(starts);
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
        if (code == ERROR_NONE && phase == CAPTURE_RESTORE)
            code = send_batch(capture, FILL, i, size, err);
        if (code == ERROR_NONE)
            code = send_batch(capture, (enum what)phase, i, size, err);
    }
    progress_end(&capture->progress);
    capture->doing = NULL;
    return code;
}

/* The outputs that --restore scores are decoded without a dump. */
static enum error_code decode_undumped(struct capture *capture, struct error *err)
{
    if (!capture->result.restore || capture->result.new_tokens == 0)
        return ERROR_NONE;
    enum error_code code = endpoint_flush(&capture->endpoint, err);
    return code == ERROR_NONE ? send_all(capture, CAPTURE_DECODE, err) : code;
}

/* Whose request was in a dump is known by its id; one beside the dumps is seen by the endpoint alone. */
static enum error_code check_server(struct capture *capture, struct error *err)
{
    enum error_code code = endpoint_check(&capture->endpoint, err);
    if (code != ERROR_NONE || !foreign_seen(&capture->endpoint.foreign))
        return code;
    char *text = foreign_text(&capture->endpoint.foreign);
    code = error_set(err, ERROR_INCOMPLETE, "%s", text);
    free(text);
    return code;
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
    code = dump_session_close(&capture->endpoint.find, session.experiment, code, &capture->result.seal[phase], err);
    return code == ERROR_NONE ? check_server(capture, err) : code;
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
    const struct kind *kind = kind_of(capture);
    for (int phase = 0; phase < CAPTURE_PHASES; phase++)
        if (result->seal[phase] != NULL)
            show_seal(out, result->seal[phase], result->directory);
    if (tally.tokens > 0)
        output_format(out, "logprobs%s: %zu of %zu tokens are bit-equal, the largest difference is %.3g\n",
                      result->restore ? " behind the restored prefix" : "", tally.bit_equal, tally.tokens,
                      tally.largest);
    output_format(out, "%zu prompts, %s, hash %s\n", result->count, result->prompts->source, result->prompts->hash);
    if (path != NULL) {
        output_text(out, "ids and logprobs: ");
        output_safe(out, OUTPUT_PLAIN, path);
        output_text(out, "\n");
    }
    if (result->reasons.count == 0) {
        output_text(out, "Compare them: kldumpctl diff ");
        output_safe(out, OUTPUT_PLAIN, result->directory);
        output_format(out, "/%s ", result->experiment[kind->decode_side]);
        output_safe(out, OUTPUT_PLAIN, result->directory);
        output_format(out, "/%s\n", result->experiment[kind->reference]);
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
    code = decode_undumped(capture, &err);
    for (enum capture_phase phase = kind_of(capture)->first; phase <= kind_of(capture)->last && code == ERROR_NONE;
         phase++)
        code = run_phase(capture, phase, &err);
    if (code == ERROR_NONE)
        code = check_scores(capture, &err);
    int status = capture->begun ? report(capture, out, &err) : command_fail(capture->command, &err);
    interrupt_unwatch();
    return status;
}

/* The names of the experiments and what goes with them; false after the usage error. */
static bool take_name(struct capture *capture, const char *name)
{
    size_t most = SERVER_NAME_MAX - 2 - strlen(phases[kind_of(capture)->last].suffix);
    if (!text_is_name(name) || strlen(name) > most) {
        command_usage_error(capture->command,
                            "--name: '%.70s' is not the name of an experiment; 1 to %zu of A-Z a-z 0-9 . _ -, not "
                            "beginning with . or -",
                            name, most);
        return false;
    }
    capture->result.name = name;
    for (int phase = 0; phase < CAPTURE_PHASES; phase++) {
        snprintf(capture->experiment[phase], sizeof capture->experiment[phase], "%.60s-%s", name, phases[phase].suffix);
        if (phase == (int)kind_of(capture)->first || phase == (int)kind_of(capture)->last)
            capture->result.experiment[phase] = capture->experiment[phase];
    }
    return true;
}

static bool read_options(struct capture *capture, const char *new_tokens, const char *name)
{
    struct error err = ERROR_INIT;
    uint64_t count = NEW_TOKENS, least = capture->result.restore ? 0 : 1;
    if (prompts_choose(capture->prompts_path, capture->synthetic, &err) != ERROR_NONE ||
        number_option("--new", new_tokens, least, NEW_MAX, &count, &err) != ERROR_NONE) {
        command_usage_error(capture->command, "%s", err.message);
        return false;
    }
    if (capture->run != NULL && strstr(capture->run, "://") != NULL) {
        command_usage_error(capture->command, "only a guarded run can be dumped; a URL is for kldumpctl kl");
        return false;
    }
    capture->result.new_tokens = (unsigned)count;
    return take_name(capture, name);
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
                                             {.name = "restore", .flag = &capture.result.restore},
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
    .usage = "capture [RUN] [--prompts FILE | --synthetic N:LEN[-LEN]:SEED] [--new N] [--name EXP] [--alone] "
             "[--restore] [--json]",
    .summary = "decode prompts, score the same tokens, both dumped: what 'diff' compares",
    .help = "Examples:\n"
            "  kldumpctl capture t\n"
            "  kldumpctl capture t --synthetic 8:500-900:7 --new 32 --name long\n"
            "  kldumpctl capture t --prompts prompts.jsonl --alone --name one\n"
            "  kldumpctl diff DIR/long-dec DIR/long-pre\n"
            "  kldumpctl capture t --restore --name r; kldumpctl diff DIR/r-restored DIR/r-pre\n"
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
            "                      With --restore also 0: the prompts alone, of which one row is computed\n"
            "  --name EXP          the dumps are EXP-dec and EXP-pre (default: capture)\n"
            "  --alone             one request at a time: a fault of passes with one row vanishes in a\n"
            "                      batch\n"
            "  --restore           for a restored prefix that is wrong: the decode is not dumped; the ids\n"
            "                      are scored whole into EXP-pre, and into EXP-restored behind the prefix\n"
            "                      that they have left in the cache, which the answers must prove\n"
            "  --json              the contents of EXP.capture.json as one object\n",
    .run = run,
};
