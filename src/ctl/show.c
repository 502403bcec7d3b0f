#include "ctl/show.h"
#include "base/duration.h"
#include "base/memory.h"
#include "base/size.h"
#include "base/text.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { COUNT_TEXT = 32 };

const char *show_member(const struct json *json, const char *path)
{
    const char *text = "";
    return json_get_string(json, path, &text, NULL) == ERROR_NONE ? text : "";
}

bool show_number(const struct json *json, const char *path, uint64_t *ret_value)
{
    double value = 0;
    *ret_value = 0;
    if (json_get_u64(json, path, ret_value, NULL) == ERROR_NONE)
        return true;
    /* times may have a fraction */
    if (json_get_double(json, path, &value, NULL) != ERROR_NONE || !(value >= 0 && value < 9e15))
        return false;
    *ret_value = (uint64_t)value;
    return true;
}

uint64_t show_age_ms(const struct json *run)
{
    uint64_t told = 0, reading = 0;
    show_number(run, "told_age_ms", &told);
    show_number(run, "space.reading_age_ms", &reading);
    return reading > told ? reading : told;
}

double show_time(const char *at)
{
    struct tm parts = {0};
    const char *rest = strptime(at, "%Y-%m-%dT%H:%M:%S", &parts);
    return rest != NULL ? (double)timegm(&parts) : -1;
}

const char *show_seconds(uint64_t ms, char *text, size_t size)
{
    snprintf(text, size, "%" PRIu64 ".%" PRIu64 " s", ms / 1000, ms % 1000 / 100);
    return text;
}

/* "1,234,567" */
static const char *count_text(uint64_t value, char *text)
{
    char digits[24];
    int length = snprintf(digits, sizeof digits, "%" PRIu64, value), used = 0;
    for (int i = 0; i < length; i++) {
        if (i > 0 && (length - i) % 3 == 0)
            text[used++] = ',';
        text[used++] = digits[i];
    }
    text[used] = '\0';
    return text;
}

enum output_style show_style(const char *state, const char *outcome)
{
    static const struct {
        const char *word;
        enum output_style style;
    } styles[] = {{"armed", OUTPUT_GREEN},    {"ready", OUTPUT_GREEN},     {"dumping", OUTPUT_YELLOW},
                  {"sealing", OUTPUT_YELLOW}, {"stopping", OUTPUT_YELLOW}, {"completed", OUTPUT_GREEN},
                  {"stopped", OUTPUT_GREEN}};
    bool ended = strcmp(state, "ended") == 0;
    for (size_t i = 0; i < sizeof styles / sizeof styles[0]; i++)
        if (strcmp(ended ? outcome : state, styles[i].word) == 0)
            return styles[i].style;
    return ended ? OUTPUT_RED : OUTPUT_PLAIN;
}

static bool has_ended(const struct json *run)
{
    return strcmp(show_member(run, "state"), "ended") == 0;
}

/* What the state means; while the server starts, the stage that it has reached. */
static const char *state_text(const struct json *run)
{
    static const struct {
        const char *name, *text;
    } states[] = {
#define X(constant, name, text) {name, text},
#include "core/run_states.def"
#undef X
    };
    const char *state = show_member(run, "state"), *stage = show_member(run, "stage");
    bool starting = strcmp(state, "loading") == 0 || strcmp(state, "warming") == 0;
    if (has_ended(run))
        return show_member(run, "outcome");
    if (starting && stage[0] != '\0')
        return stage;
    for (size_t i = 0; i < sizeof states / sizeof states[0]; i++)
        if (strcmp(states[i].name, state) == 0)
            return states[i].text;
    return stage;
}

/* Of somebody else: kldumpd tells no more. */
static bool is_redacted(const struct json *run)
{
    uint64_t uid = 0;
    return show_number(run, "uid", &uid) && uid != geteuid() && json_member(run, "dir") == NULL;
}

/* "alice"; of a user without a name "uid 1234". */
static const char *owner_text(const struct json *run, char *text, size_t size)
{
    const char *owner = show_member(run, "owner");
    bool is_number = owner[0] != '\0' && owner[strspn(owner, "0123456789")] == '\0';
    snprintf(text, size, "%s%s", is_number ? "uid " : "", owner);
    return text;
}

static void show_state(struct output *out, const struct json *run)
{
    char owner[128];
    uint64_t uptime = 0;
    char since[DURATION_TEXT];
    const char *state = show_member(run, "state"), *text = state_text(run);
    show_number(run, "uptime_ms", &uptime);
    output_pair(out, SHOW_LABEL, "Run", OUTPUT_BOLD, "%s", show_member(run, "name"));
    output_pair(out, SHOW_LABEL, "State", show_style(state, show_member(run, "outcome")), "%s%s%s", state,
                text[0] != '\0' ? ": " : "", text);
    if (!has_ended(run) && show_member(run, "message")[0] != '\0')
        output_pair(out, SHOW_LABEL, "", OUTPUT_PLAIN, "%s", show_member(run, "message"));
    if (is_redacted(run))
        output_pair(out, SHOW_LABEL, "Since", OUTPUT_PLAIN, "%s, by %s", show_member(run, "started_at"),
                    owner_text(run, owner, sizeof owner));
    else
        output_pair(out, SHOW_LABEL, "Since", OUTPUT_PLAIN, "%s, %s %s, by %s", show_member(run, "started_at"),
                    has_ended(run) ? "ran" : "up", duration_text(uptime, since), owner_text(run, owner, sizeof owner));
}

static void show_server(struct output *out, const struct json *run)
{
    uint64_t pid = 0;
    const char *version = show_member(run, "sglang_version"), *url = show_member(run, "url");
    if (!has_ended(run) && show_number(run, "pid", &pid))
        output_pair(out, SHOW_LABEL, "Server", OUTPUT_PLAIN, "pid %" PRIu64 "%s%s%s%s", pid, url[0] != '\0' ? ", " : "",
                    url, version[0] != '\0' ? ", SGLang " : "", version);
    else if (version[0] != '\0')
        output_pair(out, SHOW_LABEL, "Server", OUTPUT_PLAIN, "SGLang %s", version);
}

static bool is_true(const struct json *json, const char *path)
{
    bool value = false;
    return json_get_bool(json, path, &value, NULL) == ERROR_NONE && value;
}

bool show_is_plain(const struct json *run)
{
    return strcmp(show_member(run, "kind"), "plain") == 0;
}

static void show_proofs(struct output *out, const struct json *run)
{
    static const struct {
        const char *verdict;
        enum output_style style;
    } styles[] = {{"proven", OUTPUT_GREEN}, {"limited", OUTPUT_YELLOW}, {"failed", OUTPUT_RED}};
    const char *verdict = show_member(run, "proofs.verdict"), *text = show_member(run, "proofs.text");
    const char *decode = show_member(run, "proofs.decode_graphs"), *prefill = show_member(run, "proofs.prefill_graphs");
    uint64_t ranks = 0;
    enum output_style style = OUTPUT_PLAIN;
    for (size_t i = 0; i < sizeof styles / sizeof styles[0]; i++)
        if (strcmp(verdict, styles[i].verdict) == 0)
            style = styles[i].style;
    if (show_is_plain(run)) {
        output_pair(out, SHOW_LABEL, "Kind", OUTPUT_PLAIN,
                    "plain: guarded as it is; nothing is proven, and nothing can be dumped");
        if (decode[0] != '\0')
            output_pair(out, SHOW_LABEL, "", OUTPUT_PLAIN, "decode graphs %s, prefill graphs %s", decode, prefill);
        return;
    }
    if (is_true(run, "revoked"))
        output_pair(out, SHOW_LABEL, "Proofs", OUTPUT_RED, "void: %s",
                    text[0] != '\0' ? text : "a reset has removed the hooks");
    else
        output_pair(out, SHOW_LABEL, "Proofs", style, "%s%s%s", verdict[0] != '\0' ? verdict : "none yet",
                    text[0] != '\0' ? ": " : "", text);
    /* what was proven mostly says it already */
    if (decode[0] != '\0' && strstr(text, "graphs") == NULL && show_number(run, "proofs.ranks", &ranks))
        output_pair(out, SHOW_LABEL, "", OUTPUT_PLAIN, "decode graphs %s, prefill graphs %s, %" PRIu64 " rank%s",
                    decode, prefill, ranks, ranks == 1 ? "" : "s");
}

static void show_dump(struct output *out, const struct json *run)
{
    const char *experiment = show_member(run, "exp"), *disturbance = show_member(run, "disturbance");
    if (experiment[0] != '\0')
        output_pair(out, SHOW_LABEL, "Dump", OUTPUT_YELLOW, "on%s: %s/%s",
                    is_true(run, "external") ? ", by somebody else" : "", show_member(run, "dir"), experiment);
    else if (show_is_plain(run))
        output_pair(out, SHOW_LABEL, "Folder", OUTPUT_PLAIN, "%s", show_member(run, "dir"));
    else
        output_pair(out, SHOW_LABEL, "Dump", OUTPUT_PLAIN, "off; folder %s", show_member(run, "dir"));
    if (disturbance[0] != '\0')
        output_pair(out, SHOW_LABEL, "", OUTPUT_YELLOW, "disturbed: %s", disturbance);
}

static void show_written(struct output *out, const struct json *run)
{
    char a[SIZE_TEXT], b[SIZE_TEXT];
    uint64_t written = 0, budget = 0;
    bool has_budget = show_number(run, "space.budget_bytes", &budget) && budget > 0;
    if (!show_number(run, "space.written_bytes", &written) || (written == 0 && !has_budget))
        return;
    output_pair(out, SHOW_LABEL, "Written", has_budget && written >= budget ? OUTPUT_YELLOW : OUTPUT_PLAIN,
                has_budget ? "%s of dumps, of a budget of %s" : "%s of dumps", size_text(written, a),
                size_text(budget, b));
}

static void show_inodes(struct output *out, const struct json *run)
{
    char a[COUNT_TEXT], b[COUNT_TEXT], c[COUNT_TEXT];
    uint64_t left = 0, floor = 0, act = 0;
    if (!show_number(run, "space.free_inodes", &left) || !show_number(run, "space.floor_inodes", &floor) ||
        !show_number(run, "space.act_inodes", &act))
        return;
    output_pair(out, SHOW_LABEL, "Inodes", left / 2 < act ? OUTPUT_YELLOW : OUTPUT_PLAIN,
                "%s free; floor %s, killed at %s", count_text(left, a), count_text(floor, b), count_text(act, c));
}

/* What the level means while the run lives; "" where nothing is amiss. */
static const char *level_text(const char *level)
{
    static const struct {
        const char *name, *text;
    } levels[] = {{"warn", "getting low"},
                  {"soft", "at the soft level: dumping is switched off"},
                  {"floor", "at the floor: the run is killed"},
                  {"blind", "cannot be read now"}};
    for (size_t i = 0; i < sizeof levels / sizeof levels[0]; i++)
        if (strcmp(levels[i].name, level) == 0)
            return levels[i].text;
    return "";
}

static void show_rate(struct output *out, const struct json *run)
{
    char rate_text[SIZE_TEXT], left[DURATION_TEXT];
    uint64_t rate = 0, seconds = 0;
    if (!show_number(run, "space.rate_bytes_per_s", &rate))
        return;
    if (rate > 0 && show_number(run, "space.seconds_to_floor", &seconds) && seconds < 365ull * 86400)
        output_pair(out, SHOW_LABEL, "Rate", OUTPUT_PLAIN, "%s/s: the floor is %s away", size_text(rate, rate_text),
                    duration_text(seconds * 1000, left));
    else
        output_pair(out, SHOW_LABEL, "Rate", OUTPUT_PLAIN, "%s/s", size_text(rate, rate_text));
}

static void show_levels(struct output *out, const struct json *run)
{
    char a[SIZE_TEXT], b[SIZE_TEXT], c[SIZE_TEXT], d[SIZE_TEXT], age_text[DURATION_TEXT];
    uint64_t free_bytes = 0, floor = 0, act = 0, soft = 0, age = 0, pending = 0;
    const char *level = level_text(show_member(run, "space.level"));
    show_number(run, "space.free_bytes", &free_bytes);
    show_number(run, "space.floor_bytes", &floor);
    show_number(run, "space.act_bytes", &act);
    bool has_soft = show_number(run, "space.soft_bytes", &soft);
    bool low = free_bytes < act + floor / 4 || level[0] != '\0';
    output_pair(out, SHOW_LABEL, "Space", low ? OUTPUT_YELLOW : OUTPUT_PLAIN, "%s %s; floor %s, killed at %s%s%s",
                size_text(free_bytes, a), has_ended(run) ? "were free at the end" : "free", size_text(floor, b),
                size_text(act, c), has_soft ? ", dumping off at " : "", has_soft ? size_text(soft, d) : "");
    if (has_ended(run))
        return;
    if (level[0] != '\0')
        output_pair(out, SHOW_LABEL, "", OUTPUT_RED, "%s", level);
    if (show_number(run, "space.reading_age_ms", &age) && age > 5000)
        output_pair(out, SHOW_LABEL, "", OUTPUT_RED, "the reading is %s old", duration_text(age, age_text));
    if (show_number(run, "space.pending_bytes", &pending) && pending > 0)
        output_pair(out, SHOW_LABEL, "", OUTPUT_PLAIN, "%s of it is spoken for: still in memory, on the way to a disk",
                    size_text(pending, a));
}

static void show_tokens(struct output *out, const struct json *run)
{
    char a[SIZE_TEXT], n[COUNT_TEXT];
    uint64_t tokens = 0, per_token = 0, per_pass = 0, files = 0;
    if (show_number(run, "space.tokens_to_floor", &tokens) &&
        show_number(run, "costs.bytes_per_prefill_token", &per_token))
        output_pair(out, SHOW_LABEL, "Tokens", OUTPUT_PLAIN, "about %s prefill tokens still fit, %s each",
                    count_text(tokens, n), size_text(per_token, a));
    if (show_number(run, "costs.bytes_per_decode_pass", &per_pass) && show_number(run, "costs.files_per_pass", &files))
        output_pair(out, SHOW_LABEL, "", OUTPUT_PLAIN, "a decode pass costs %s; a pass has up to %s files",
                    size_text(per_pass, a), count_text(files, n));
}

static void show_space(struct output *out, const struct json *run)
{
    uint64_t free_bytes = 0;
    if (!show_number(run, "space.free_bytes", &free_bytes))
        return;
    show_levels(out, run);
    show_written(out, run);
    if (has_ended(run))
        return;
    show_inodes(out, run);
    show_rate(out, run);
    show_tokens(out, run);
}

/* "3 steps, 312 files, 1.2 GiB" */
static const char *amounts(const struct json *seal, char *text, size_t size)
{
    char s[COUNT_TEXT], f[COUNT_TEXT], b[SIZE_TEXT];
    uint64_t steps = 0, files = 0, bytes = 0;
    bool has_steps = show_number(seal, "steps", &steps);
    show_number(seal, "files", &files);
    show_number(seal, "bytes", &bytes);
    snprintf(text, size, "%s%s%s file%s, %s", has_steps ? count_text(steps, s) : "",
             has_steps ? (steps == 1 ? " step, " : " steps, ") : "", count_text(files, f), files == 1 ? "" : "s",
             size_text(bytes, b));
    return text;
}

const char *show_sealed_early(const struct json *seal)
{
    static const struct {
        const char *by, *text;
    } reasons[] = {{"soft", "free space was at the soft level"},
                   {"budget", "the byte budget of the run was used up"},
                   {"other", "somebody else has switched it off or changed it"},
                   {"stop", "the run was stopped"},
                   {"death", "the run has ended"}};
    const char *by = show_member(seal, "sealed_by");
    for (size_t i = 0; i < sizeof reasons / sizeof reasons[0]; i++)
        if (strcmp(reasons[i].by, by) == 0)
            return reasons[i].text;
    return "";
}

static void show_seals(struct output *out, const struct json *run)
{
    char text[160];
    const char *label = "Seals";
    for (const struct json *s = json_first(json_member(run, "seals")); s != NULL; s = json_next(s), label = "") {
        bool complete = is_true(s, "complete");
        output_pair(out, SHOW_LABEL, label, complete ? OUTPUT_GREEN : OUTPUT_RED, "%s: %s, %s",
                    show_member(s, "experiment"), complete ? "complete" : "incomplete", amounts(s, text, sizeof text));
        for (const struct json *r = json_first(json_member(s, "reasons")); r != NULL; r = json_next(r))
            output_pair(out, SHOW_LABEL, "", OUTPUT_PLAIN, "  %s", show_member(r, ""));
    }
}

void show_run(struct output *out, const struct json *run)
{
    char owner[128];
    show_state(out, run);
    if (is_redacted(run)) {
        output_pair(out, SHOW_LABEL, "", OUTPUT_YELLOW, "run of %s: only name, state and space are shown to you",
                    owner_text(run, owner, sizeof owner));
    } else {
        show_server(out, run);
        show_proofs(out, run);
        show_dump(out, run);
    }
    show_space(out, run);
    if (!has_ended(run) && show_member(run, "guarantee")[0] != '\0')
        output_pair(out, SHOW_LABEL, "Guarantee", OUTPUT_PLAIN, "%s", show_member(run, "guarantee"));
    show_seals(out, run);
    if (has_ended(run)) {
        struct buffer why;
        buffer_init(&why);
        show_why(run, &why);
        output_pair(out, SHOW_LABEL, "Why", OUTPUT_BOLD, "%s", why.data);
        buffer_fini(&why);
    }
}

void show_json(struct output *out, const char *schema, const struct json *run)
{
    struct json *answer = json_object();
    json_set_string(answer, "schema", schema);
    json_append(json_set_array(answer, "runs"), json_copy(run));
    output_json(out, answer);
    json_free(answer);
}

void show_seal(struct output *out, const struct json *seal, const char *directory)
{
    char text[160];
    bool complete = is_true(seal, "complete");
    output_safe(out, OUTPUT_BOLD, show_member(seal, "experiment"));
    output_text(out, ": ");
    output_safe(out, complete ? OUTPUT_GREEN : OUTPUT_RED, complete ? "complete" : "incomplete");
    output_format(out, ", %s\n", amounts(seal, text, sizeof text));
    if (show_sealed_early(seal)[0] != '\0') {
        output_text(out, "  switched off: ");
        output_safe(out, OUTPUT_YELLOW, show_sealed_early(seal));
        output_text(out, "\n");
    }
    for (const struct json *r = json_first(json_member(seal, "reasons")); r != NULL; r = json_next(r)) {
        output_text(out, "  ");
        output_safe(out, OUTPUT_PLAIN, show_member(r, ""));
        output_text(out, "\n");
    }
    if (directory[0] != '\0') {
        output_text(out, "  ");
        output_safe(out, OUTPUT_PLAIN, directory);
        output_text(out, "/");
        output_safe(out, OUTPUT_PLAIN, show_member(seal, "experiment"));
        output_text(out, "\n");
    }
}

void show_outcome(struct output *out, const struct json *run)
{
    const char *state = show_member(run, "state"), *outcome = show_member(run, "outcome"),
               *message = show_member(run, "message");
    output_safe(out, OUTPUT_BOLD, show_member(run, "name"));
    output_text(out, ": ");
    output_safe(out, show_style(state, outcome), has_ended(run) ? outcome : state);
    if (message[0] != '\0') {
        output_text(out, ": ");
        output_safe(out, OUTPUT_PLAIN, message);
    }
    output_text(out, "\n");
}

int show_exit_status(const struct json *run)
{
    uint64_t status = 0;
    return show_number(run, "exit_status", &status) && status < 256 ? (int)status : STATUS_INTERNAL;
}

void show_event(struct output *out, const struct json *event)
{
    char up[32];
    uint64_t uptime = 0;
    const char *at = show_member(event, "at"), *level = show_member(event, "level");
    const char *clock = strchr(at, 'T');
    show_number(event, "uptime_ms", &uptime);
    output_format(out, "%-12.12s ", clock != NULL ? clock + 1 : "");
    output_format(out, "%10s  ", show_seconds(uptime, up, sizeof up));
    output_safe(out,
                strcmp(level, "error") == 0  ? OUTPUT_RED
                : strcmp(level, "warn") == 0 ? OUTPUT_YELLOW
                                             : OUTPUT_PLAIN,
                show_member(event, "text"));
    output_text(out, "\n");
}
