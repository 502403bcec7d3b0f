/* Happy path: for each step that is neither finished nor pointless: the server that it needs, the command, its result,
 * the state. Runs are stopped as soon as no step needs them. */
#include "ctl/investigate.h"

#include "base/duration.h"
#include "base/memory.h"
#include "base/text.h"
#include "ctl/endpoint.h"
#include "ctl/find_folder.h"
#include "ctl/follow.h"
#include "ctl/interrupt.h"
#include "ctl/investigate_read.h"
#include "ctl/now.h"
#include "ctl/progress.h"
#include "ctl/result_file.h"
#include "ctl/shell_words.h"
#include "ctl/show.h"
#include "ctl/spawn.h"
#include "sglang/sglang.h"
#include "sys/file.h"
#include "sys/process.h"
#include "sys/sibling.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    ERROR_BYTES = 64 * 1024,
    RESULT_MODE = 0600,
    CAPTURE_MOST = 4,
    GONE_MS = 5000,
    DYING_MS = 7000,
    STATUS_BITS = 32
};

static const struct {
    const char *kind, *text;
} kinds[] = {[INVESTIGATE_PLAIN] = {"plain", "own.log"}, [INVESTIGATE_DUMP] = {"dump", "dump.log"}};

/* ---- what is said ---- */

/* One line on standard error; text from outside is made safe. */
static void say(const char *format, ...) __attribute__((format(printf, 1, 2)));
static void say(const char *format, ...)
{
    struct output out;
    struct buffer text;
    va_list arguments;
    buffer_init(&text);
    va_start(arguments, format);
    buffer_format_list(&text, format, arguments);
    va_end(arguments);
    output_init(&out, STDERR_FILENO);
    output_safe(&out, OUTPUT_PLAIN, text.data);
    output_text(&out, "\n");
    output_flush(&out, NULL);
    output_fini(&out);
    buffer_fini(&text);
}

static void say_step(const struct investigate *work, enum investigation_step_id id)
{
    char duration[DURATION_TEXT];
    uint64_t left_ms = 0;
    const char *left = "time left: not known yet";
    if (investigate_left(work, id, &left_ms))
        left = left_ms > 0 ? duration_text(left_ms, duration) : "no server is needed any more";
    say("step %d of %d: %s (%s%s)", (int)id + 1, INVESTIGATION_STEPS, investigation_step_word(id), left,
        left_ms > 0 ? " left, a guess" : "");
}

/* ---- the runs ---- */

static bool is_wanted(void *user)
{
    struct progress *progress = user;
    if (progress != NULL)
        progress_wait(progress, "the server is starting");
    return interrupt_number() == 0;
}

static bool never(const char *state)
{
    (void)state;
    return false;
}

static bool is_in_folder(const struct investigate *work, const char *path)
{
    size_t length = strlen(work->directory);
    return strncmp(path, work->directory, length) == 0 && path[length] == '/';
}

/* An earlier call was killed, and its guard is still ending its run: the port and the GPU are not free before. */
static enum error_code wait_for_earlier(const struct investigate *work, struct error *err)
{
    struct find find = {0};
    struct json *found = NULL;
    enum error_code code = ERROR_NONE;
    if (work->earlier == NULL || find_run(work->earlier, &find, NULL) != ERROR_NONE)
        return ERROR_NONE;
    bool left = find.client != NULL && find_status(&find, &found, NULL) == ERROR_NONE && find_is_live(found) &&
                is_in_folder(work, show_member(found, "dir"));
    json_free(found);
    found = NULL;
    struct follow follow = {.find = &find, .is_reached = never, .wanted = is_wanted};
    if (left) {
        say("waiting for the end of run %s, which an earlier call has left ('kldumpctl stop %s --now' ends it at once)",
            find.name, find.name);
        code = follow_run(&follow, &found, err);
    }
    if (left && code == ERROR_NONE)
        find_folder_wait_gone(&find, GONE_MS);
    json_free(found);
    find_fini(&find);
    return code;
}

static void say_run(const struct investigate *work, const struct held_run_plan *plan)
{
    struct list words = {0};
    struct buffer text;
    buffer_init(&text);
    list_add_all(&words, (char *const[]){(char *)"kldumpctl", (char *)"run", NULL});
    list_add_all(&words, list_vector((struct list *)plan->options));
    list_add_all(&words, (char *const[]){(char *)"--name", (char *)plan->name, (char *)"--kind", (char *)plan->kind,
                                         (char *)"--dir", (char *)plan->directory, (char *)"--", NULL});
    shell_words(&text, list_vector(&words));
    say("  server: %s %s", text.data, work->shown);
    list_fini(&words);
    buffer_fini(&text);
}

static enum error_code start_run(struct investigate *work, enum investigate_kind kind, struct error *err)
{
    struct progress progress = {0};
    char took[DURATION_TEXT];
    investigate_choose_dumps(work); /* a guard that was killed has left one that is not sealed */
    char *text_path = memory_format("%s/%s", work->directory, kinds[kind].text);
    const struct held_run_plan plan = {.name = work->name,
                                       .kind = kinds[kind].kind,
                                       .directory = work->dumps,
                                       .options = &work->options,
                                       .command = list_vector(&work->server),
                                       .text_path = text_path};
    int64_t begun_ms = now_ms();
    say_run(work, &plan);
    enum error_code code = held_run_start(&plan, &work->run, err);
    if (code == ERROR_NONE)
        code = held_run_wait(&work->run, is_wanted, isatty(STDERR_FILENO) ? &progress : NULL, err);
    progress_end(&progress);
    free(text_path);
    if (code != ERROR_NONE)
        return code;
    work->kind = kind;
    work->start_ms = (uint64_t)(now_ms() - begun_ms);
    say("  it is up after %s; its text: %s", duration_text(work->start_ms, took), work->run.text_path);
    return ERROR_NONE;
}

static void stop_run(struct investigate *work)
{
    if (held_run_is_alive(&work->run, NULL))
        say("  the server is being stopped");
    held_run_stop(&work->run);
    work->kind = INVESTIGATE_NO_RUN;
}

/* What one result says of its server must be so of the one that is up. */
static enum error_code check_member(const char *file, const struct json *result, const char *path, const char *now,
                                    struct error *err)
{
    const char *then = show_member(result, path);
    if (strcmp(then, now != NULL ? now : "") == 0)
        return ERROR_NONE;
    return error_set(err, ERROR_FORBIDDEN,
                     "%s was measured on another server: %s is '%.100s' there and '%.100s' now; results of different "
                     "servers are not mixed: begin anew with another --dir",
                     file, path, then, now != NULL ? now : "");
}

static enum error_code check_result(const struct investigate *work, enum investigation_step_id id,
                                    const struct endpoint *endpoint, struct error *err)
{
    struct json *result = NULL;
    char hash[HASH_TEXT], *file = investigate_result(work, id, 0);
    enum error_code code = result_file_read(file, "kldump.kl/", &result, err);
    if (code == ERROR_NONE)
        code = check_member(file, result, "server.version", endpoint->server.version, err);
    if (code == ERROR_NONE)
        code = check_member(file, result, "server.model_path", endpoint->server.model_path, err);
    if (code == ERROR_NONE)
        code = check_member(file, result, "server.weight_version", endpoint->server.weight_version, err);
    generate_server_hash(&endpoint->server, hash);
    if (code == ERROR_NONE && investigate_steps[id].needs == work->kind)
        code = check_member(file, result, "server.settings_hash", hash, err);
    json_free(result);
    free(file);
    return code;
}

/* A server that has been started since may be another one: of another release, with other weights or settings. */
static enum error_code check_server(const struct investigate *work, struct error *err)
{
    static const enum investigation_step_id measured[] = {INVESTIGATION_KL_OWN, INVESTIGATION_KL_DUMP};
    struct endpoint endpoint = {0};
    enum error_code code = endpoint_open(work->name, &endpoint, err);
    for (size_t i = 0; i < sizeof measured / sizeof measured[0] && code == ERROR_NONE; i++)
        if (work->found.steps[measured[i]].state == INVESTIGATION_DONE)
            code = check_result(work, measured[i], &endpoint, err);
    endpoint_fini(&endpoint);
    return code;
}

static enum error_code ensure_run(struct investigate *work, enum investigate_kind kind, struct error *err)
{
    if (kind == INVESTIGATE_NO_RUN || (work->kind == kind && held_run_is_alive(&work->run, NULL)))
        return ERROR_NONE;
    stop_run(work);
    enum error_code code = start_run(work, kind, err);
    if (code == ERROR_NONE)
        code = investigate_prompts(work, err);
    return code == ERROR_NONE ? check_server(work, err) : code;
}

/* Whether a step from `from` on still needs a server. */
static bool needs_run(const struct investigate *work, int from)
{
    for (int id = from; id < INVESTIGATION_STEPS; id++)
        if (investigate_steps[id].needs != INVESTIGATE_NO_RUN && investigate_steps[id].pointless(work) == NULL &&
            !investigate_is_finished(work, (enum investigation_step_id)id))
            return true;
    return false;
}

/* ---- one command ---- */

/* As it can be typed again; CMD of a doctor without its secrets. */
static char *show_command(const struct list *arguments, const char *result)
{
    struct list shown = {0};
    struct buffer text;
    buffer_init(&text);
    sglang_operations.redact(arguments, &shown);
    buffer_text(&text, "kldumpctl ");
    shell_words(&text, list_vector(&shown));
    buffer_text(&text, " > ");
    shell_words(&text, (char *const[]){(char *)result, NULL});
    list_fini(&shown);
    char *command = buffer_steal(&text);
    buffer_fini(&text);
    return command;
}

/* Where the command that runs leaves the message of its failure. */
static char *error_path(const struct investigate *work)
{
    return memory_format("%s/.error", work->directory);
}

static void make_environment(const struct investigate *work, struct list *environment)
{
    char *path = error_path(work);
    unlink(path);
    list_add_all(environment, environ);
    list_environment_set(environment, OUTPUT_ERROR_FILE, path);
    free(path);
}

/* Its standard output becomes the result, as a whole or not at all. *ret_status: its exit status. */
static enum error_code run_command(struct investigate *work, const struct list *arguments, const char *result,
                                   int *ret_status, struct error *err)
{
    struct list words = {0}, environment = {0};
    struct file_replacement file;
    bool was_interrupted = false;
    int status = 0;
    char *program = sibling_path("kldumpctl");
    if (program == NULL)
        return error_set(err, ERROR_INTERNAL, "kldumpctl is not where it was; install kldump again");
    if (interrupt_number() != 0) { /* while the step was prepared: nobody would tell the command */
        free(program);
        return error_set(err, ERROR_INTERRUPTED, "interrupted");
    }
    list_add(&words, program);
    list_add_all(&words, arguments->items);
    free(program);
    make_environment(work, &environment);
    enum error_code code = file_replace_begin(result, RESULT_MODE, &file, err);
    if (code == ERROR_NONE) {
        const struct spawn spawn = {.argv = words.items,
                                    .environment = &environment,
                                    .output_fd = file.fd,
                                    .has_output = true,
                                    .dies_with_us = true};
        code = spawn_run(&spawn, &status, &was_interrupted, err);
        if (code == ERROR_NONE && status < PROCESS_SIGNALED && lseek(file.fd, 0, SEEK_END) > 0)
            code = file_replace_commit(&file, FILE_SYNC, err);
        else
            file_replace_abandon(&file);
    }
    list_fini(&environment);
    list_fini(&words);
    if (was_interrupted) {
        work->interrupted = true;
        raise(SIGINT); /* so that a second one, while the server is stopped, ends us */
    }
    if (code == ERROR_NONE)
        *ret_status = status;
    return code;
}

static enum error_code run_part(struct investigate *work, enum investigation_step_id id, size_t part, int *ret_status,
                                struct error *err)
{
    struct investigation_step *step = &work->found.steps[id];
    struct list arguments = {0};
    char *result = investigate_result(work, id, part);
    enum error_code code = investigate_steps[id].arguments(work, part, &arguments, err);
    if (code == ERROR_NONE) {
        free(step->command);
        step->command = show_command(&arguments, result);
        say("  %s", step->command);
        code = run_command(work, &arguments, result, ret_status, err);
    }
    list_fini(&arguments);
    free(result);
    return code;
}

/* ---- one step ---- */

static void fail(struct investigate *work, enum investigation_step_id id, int status, const char *why)
{
    struct investigation_step *step = &work->found.steps[id];
    step->state = INVESTIGATION_FAILED;
    step->status = status;
    free(step->why);
    step->why = memory_copy(why);
    say("  failed: %s", why);
}

/* The failed checks of a doctor, each with its advice. */
static char *doctor_says(const struct investigate *work)
{
    struct json *result = NULL;
    struct buffer text;
    char *path = investigate_result(work, INVESTIGATION_DOCTOR, 0);
    buffer_init(&text);
    result_file_read(path, "kldump.doctor/", &result, NULL);
    for (const struct json *c = json_first(json_member(result, "checks")); c != NULL; c = json_next(c))
        if (strcmp(show_member(c, "result"), "fail") == 0)
            buffer_format(&text, "%s%s: %s; %s", text.length > 0 ? "; " : "", show_member(c, "name"),
                          show_member(c, "value"), show_member(c, "advice"));
    json_free(result);
    free(path);
    char *failed = buffer_steal(&text);
    buffer_fini(&text);
    return failed;
}

/* What the command said itself, else what its status means. */
static char *why_failed(const struct investigate *work, enum investigation_step_id id, int status)
{
    const char *meaning = error_status_meaning(status);
    char *path = error_path(work), *why = NULL;
    struct buffer text;
    buffer_init(&text);
    file_read(path, ERROR_BYTES, &text, NULL);
    unlink(path);
    free(path);
    if (id == INVESTIGATION_DOCTOR)
        why = doctor_says(work);
    else if (status > PROCESS_SIGNALED)
        why = memory_format("it died of signal %d", status - PROCESS_SIGNALED);
    if (why == NULL || why[0] == '\0') {
        free(why);
        why = text.length > 0 ? buffer_steal(&text)
                              : memory_format("exit status %d (%s)", status, meaning != NULL ? meaning : "unknown");
    }
    buffer_fini(&text);
    return why;
}

/* What does not fit: an invariance is taken without dumps, a capture with fewer prompts, those whose divergence begins
 * earliest. */
static bool try_smaller(struct investigate *work, enum investigation_step_id id, int status)
{
    if (status != STATUS_FORBIDDEN)
        return false;
    if (id == INVESTIGATION_INVARIANCE && work->invariance_dumps) {
        work->invariance_dumps = false;
        say("  tried again without dumps");
        return true;
    }
    if (id == INVESTIGATION_CAPTURE && work->capture_most > 1) {
        work->capture_most /= 2;
        say("  tried again with %zu of the prompts", work->capture_most);
        return true;
    }
    return false;
}

static bool is_answer(const struct investigate_step *kind, int status)
{
    return status < STATUS_BITS && (kind->fine >> status & 1) != 0;
}

/* A command that could not begin may end with a status that is an answer of others, and has said nothing then. */
static bool has_results(const struct investigate *work, enum investigation_step_id id)
{
    bool there = true;
    for (size_t part = 0; part < investigate_steps[id].parts && there; part++) {
        char *path = investigate_result(work, id, part);
        there = result_file_is(path);
        free(path);
    }
    return there;
}

/* A server that dies breaks a request off first, and is gone seconds later: SGLang pauses for its diagnostics. Steps
 * that dump have followed their run and tell its end themselves; kl asks a server alone. `why` is replaced. */
static char *add_end_of_run(struct investigate *work, enum investigation_step_id id, char *why)
{
    struct error end = ERROR_INIT;
    if (id != INVESTIGATION_KL_OWN && id != INVESTIGATION_KL_DUMP)
        return why;
    say("  kl has failed; waiting %d s whether the server ends of the same", DYING_MS / 1000);
    if (!held_run_ends_within(&work->run, DYING_MS, &end))
        return why;
    char *both = memory_format("%s; %s", why, end.message);
    free(why);
    return both;
}

static void do_step(struct investigate *work, enum investigation_step_id id)
{
    const struct investigate_step *kind = &investigate_steps[id];
    struct investigation_step *step = &work->found.steps[id];
    struct error err = ERROR_INIT;
    int status = STATUS_DONE;
    say_step(work, id);
    enum error_code code = ensure_run(work, kind->needs, &err);
    int64_t begun_ms = now_ms();
    for (size_t part = 0; part < kind->parts && code == ERROR_NONE && is_answer(kind, status); part++)
        do
            code = run_part(work, id, part, &status, &err);
        while (code == ERROR_NONE && try_smaller(work, id, status));
    work->interrupted |= interrupt_number() != 0;
    if (work->interrupted)
        return;
    if (code != ERROR_NONE) {
        fail(work, id, held_run_status(&work->run, err.code), err.message);
        return;
    }
    if (!is_answer(kind, status) || !has_results(work, id)) {
        char *why = why_failed(work, id, status);
        if (status == STATUS_LOST)
            why = add_end_of_run(work, id, why);
        fail(work, id, status, why);
        free(why);
        return;
    }
    step->state = INVESTIGATION_DONE;
    step->status = status;
    step->result = memory_format("%s.json", investigation_step_name(id));
    step->took_ms = (uint64_t)(now_ms() - begun_ms);
    investigate_mark(work, id);
}

/* A doctor is of use before a server is started, and dumps are until they have been compared. */
static bool is_finished(const struct investigate *work, enum investigation_step_id id)
{
    if (!investigate_is_finished(work, id))
        return false;
    if (id == INVESTIGATION_DOCTOR)
        return !needs_run(work, (int)id + 1);
    return id != INVESTIGATION_CAPTURE || investigate_is_finished(work, INVESTIGATION_DIFF) ||
           investigate_dumps_are_there(work);
}

/* *ret_goes_on: whether the next step can be done. */
static enum error_code advance(struct investigate *work, enum investigation_step_id id, bool *ret_goes_on,
                               struct error *err)
{
    struct investigation_step *step = &work->found.steps[id];
    const char *why = investigate_steps[id].pointless(work);
    if (why == NULL && is_finished(work, id)) {
        say("step %d of %d: %s: finished earlier", (int)id + 1, INVESTIGATION_STEPS, investigation_step_word(id));
        return ERROR_NONE;
    }
    investigate_forget(work, id);
    if (why != NULL) {
        step->state = INVESTIGATION_NOT_NEEDED;
        step->why = memory_copy(why);
    } else {
        do_step(work, id);
    }
    if (work->kind != INVESTIGATE_NO_RUN && (work->interrupted || !needs_run(work, (int)id + 1)))
        stop_run(work);
    *ret_goes_on = step->state != INVESTIGATION_FAILED || investigate_steps[id].goes_on;
    enum error_code code = investigate_save(work, err);
    return code == ERROR_NONE ? investigate_read(work->directory, &work->found, err) : code;
}

enum error_code investigate_all(struct investigate *work, struct error *err)
{
    bool goes_on = true;
    work->capture_most = CAPTURE_MOST;
    work->invariance_dumps = true;
    enum error_code code = wait_for_earlier(work, err);
    if (code == ERROR_NONE)
        code = investigate_save(work, err);
    else if (code == ERROR_INTERRUPTED) /* the file keeps the earlier run's name: the next call waits for it, too */
        code = ERROR_NONE;
    for (int id = 0; id < INVESTIGATION_STEPS && code == ERROR_NONE && goes_on; id++) {
        work->interrupted |= interrupt_number() != 0;
        if (!work->interrupted)
            code = advance(work, (enum investigation_step_id)id, &goes_on, err);
    }
    stop_run(work);
    return code;
}
