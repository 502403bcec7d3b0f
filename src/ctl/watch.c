/* Happy path: ask for the run, show it, wait a second, until it has ended; then show its last state.
 * Failures: the guard ends (its record tells the rest); it does not answer, as one that was stopped with Ctrl-Z: on a
 * terminal the last state stays, with a line that says so, and it is asked again; else that is the end. */
#include "ctl/watch.h"

#include "base/duration.h"
#include "base/memory.h"
#include "base/size.h"
#include "ctl/screen.h"
#include "ctl/show.h"
#include "ctl/spark.h"
#include "sys/file.h"
#include "sys/run_json.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { EVERY_MS = 1000, ANSWER_MS = 3000, END_PATIENCE_MS = 15000, RECORD_MAX = 32 * 1024 * 1024 };

struct watch {
    const struct command *command;
    struct find *find;
    struct output *out;
    bool as_json, utf8;
    bool lost;        /* the last question got no answer */
    struct error why; /* then: what was wrong */
    struct json *run; /* the newest that is known; NULL: none yet */
    struct spark spark;
};

static bool terminal_takes_utf8(void)
{
    static const char *const names[] = {"LC_ALL", "LC_CTYPE", "LANG"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        const char *value = getenv(names[i]);
        if (value != NULL && *value != '\0')
            return strcasestr(value, "utf-8") != NULL || strcasestr(value, "utf8") != NULL;
    }
    return false;
}

/* How free space went before we came, as far as the record has it. */
static void read_history(struct watch *watch)
{
    struct buffer text;
    struct json *record = NULL;
    if (watch->find->folder == NULL)
        return;
    char *path = memory_format("%s/record.json", watch->find->folder);
    buffer_init(&text);
    if (file_read(path, RECORD_MAX, &text, NULL) == ERROR_NONE)
        json_parse(text.data, text.length, (struct json_limits){RECORD_MAX, JSON_DEPTH, RUN_JSON_RECORD_VALUES},
                   &record, NULL);
    for (const struct json *p = json_first(json_member(record, "space_history")); p != NULL; p = json_next(p)) {
        uint64_t at_ms = 0, free_bytes = 0;
        if (show_number(p, "uptime_ms", &at_ms) && show_number(p, "free_bytes", &free_bytes))
            spark_add(&watch->spark, at_ms, free_bytes);
    }
    json_free(record);
    buffer_fini(&text);
    free(path);
}

static bool has_ended(const struct watch *watch)
{
    return watch->run != NULL && strcmp(show_member(watch->run, "state"), "ended") == 0;
}

static enum error_code ask_once(struct watch *watch, struct json **ret_run, struct error *err)
{
    struct json *result = NULL;
    const struct json *run = NULL;
    if (watch->find->client == NULL)
        return find_status(watch->find, ret_run, err);
    enum error_code code = find_call(watch->find, "status", NULL, ANSWER_MS, &result, err);
    if (code == ERROR_NONE)
        code = json_get_object(result, "run", &run, err);
    if (code == ERROR_NONE)
        *ret_run = json_copy(run);
    json_free(result);
    return code;
}

/* Fills run, or lost and why. */
static void ask(struct watch *watch)
{
    struct json *run = NULL;
    uint64_t at_ms = 0, free_bytes = 0;
    struct error *err = &watch->why;
    enum error_code code = watch->lost ? ERROR_UNREACHABLE : ask_once(watch, &run, err);
    if (code == ERROR_UNREACHABLE) {
        code = find_again(watch->find, watch->find->relayed ? 0 : END_PATIENCE_MS, err);
        if (code == ERROR_NONE)
            code = ask_once(watch, &run, err);
    }
    watch->lost = code != ERROR_NONE;
    if (watch->lost)
        return;
    json_free(watch->run);
    watch->run = run;
    if (show_number(run, "uptime_ms", &at_ms) && show_number(run, "space.free_bytes", &free_bytes))
        spark_add(&watch->spark, at_ms, free_bytes);
}

/* ---- the screen ---- */

static void add_trend(struct watch *watch, struct output *frame)
{
    enum { WORDS = 40 }; /* what follows the bars */
    char low[SIZE_TEXT], high[SIZE_TEXT], span[DURATION_TEXT];
    struct buffer bars;
    uint64_t lowest, highest, span_ms;
    if (watch->spark.count < 2)
        return;
    unsigned columns = screen_columns();
    buffer_init(&bars);
    spark_bounds(&watch->spark, &lowest, &highest, &span_ms);
    spark_draw(&watch->spark, columns > SHOW_LABEL + WORDS + 8 ? columns - SHOW_LABEL - WORDS : 8, watch->utf8, &bars);
    output_pair(frame, SHOW_LABEL, "Free space", OUTPUT_PLAIN, "%s %s to %s in %s", bars.data, size_text(lowest, low),
                size_text(highest, high), duration_text(span_ms, span));
    buffer_fini(&bars);
}

static void draw(struct watch *watch)
{
    struct output frame;
    output_init(&frame, watch->out->fd);
    if (watch->run != NULL)
        show_run(&frame, watch->run);
    add_trend(watch, &frame);
    if (watch->lost)
        output_pair(&frame, SHOW_LABEL, "No answer", OUTPUT_RED, "%s", watch->why.message);
    output_text(&frame, "\n");
    output_safe(&frame, OUTPUT_DIM, "q or Ctrl-C: leave; the run goes on");
    screen_draw(frame.pending.data);
    output_fini(&frame);
}

static void show_block(struct watch *watch)
{
    if (watch->as_json)
        show_json(watch->out, "kldump.status/1", watch->run);
    else
        show_run(watch->out, watch->run);
}

static int watch_screen(struct watch *watch)
{
    enum screen_event event = SCREEN_TIME;
    screen_open(watch->out->fd);
    while (event != SCREEN_LEAVE && !has_ended(watch)) {
        if (event == SCREEN_TIME)
            ask(watch);
        if (!has_ended(watch)) {
            draw(watch);
            event = screen_wait(EVERY_MS);
        }
    }
    screen_close();
    if (watch->run != NULL)
        show_block(watch); /* the last state stays on the terminal */
    return STATUS_DONE;
}

/* ---- a file or a pipe ---- */

static int watch_stream(struct watch *watch)
{
    for (bool first = true;; first = false) {
        ask(watch);
        if (watch->lost)
            return command_fail(watch->command, &watch->why);
        if (!first && !watch->as_json)
            output_text(watch->out, "\n");
        show_block(watch);
        enum error_code code = output_flush(watch->out, &watch->why);
        if (code != ERROR_NONE)
            return command_fail(watch->command, &watch->why);
        if (has_ended(watch) || watch->out->closed)
            return STATUS_DONE;
        nanosleep(&(struct timespec){.tv_sec = EVERY_MS / 1000}, NULL);
    }
}

int watch_run(const struct command *command, struct find *find, struct output *out, bool as_json)
{
    struct watch *watch = memory_new(sizeof *watch); /* the history is too large for a stack */
    *watch = (struct watch){.command = command, .find = find, .out = out, .as_json = as_json};
    watch->utf8 = terminal_takes_utf8();
    bool on_screen = !as_json && isatty(out->fd);
    if (on_screen)
        read_history(watch);
    int status = on_screen ? watch_screen(watch) : watch_stream(watch);
    json_free(watch->run);
    free(watch);
    return status;
}
