#include "ctl/kl_report.h"

#include "base/list.h"
#include "base/memory.h"
#include "ctl/kl_explain_report.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LABEL_WIDTH = 13, COLUMNS = 12, FIRST_SHARE = 4, SHARES = 5, CELL = 64, TABLE_WIDTH = 112, STRIP = 60 };

static void pair(struct output *out, const char *label, const char *text)
{
    output_pair(out, LABEL_WIDTH, label, OUTPUT_PLAIN, "%s", text);
}

/* ---- what was measured where ---- */

static void print_server(const struct kl_report *report, struct output *out)
{
    const struct generate_server *server = &report->endpoint->server;
    output_pair(out, LABEL_WIDTH, "server", OUTPUT_PLAIN, "%s: %s, SGLang %s, tp %u", kl_report_target(report),
                server->model_path, server->version, server->tp_size);
    if (server->deterministic)
        pair(out, "",
             "deterministic inference on: results do not depend on the batch; decode may still differ from "
             "prefill");
    else
        output_pair(out, LABEL_WIDTH, "", OUTPUT_YELLOW,
                    "deterministic inference off: condition 1 cannot be expected to hold");
    if (server->moe_known && server->mixture_of_experts)
        pair(out, "", "mixture of experts: a last bit before a router is amplified");
}

static void print_prompts(const struct kl_report *report, struct output *out)
{
    const struct kl_paths_plan *plan = report->plan;
    size_t shortest = SIZE_MAX, longest = 0;
    for (size_t i = 0; i < plan->prompts->count; i++) {
        size_t length = plan->prompts->items[i].length;
        shortest = length < shortest ? length : shortest;
        longest = length > longest ? length : longest;
    }
    output_pair(out, LABEL_WIDTH, "prompts", OUTPUT_PLAIN,
                "%zu of %zu to %zu ids (%s), %u new tokens each, temperature %g", plan->prompts->count, shortest,
                longest, plan->prompts->source, plan->new_tokens, plan->temperature);
    output_pair(out, LABEL_WIDTH, "", OUTPUT_DIM, "hash of prompts %s, of settings %s: compare under equal ones only",
                plan->prompts->hash, report->settings_hash);
    if (report->comma_made_up && plan->wanted[KL_PATH_DECODE_CACHE_HIT])
        output_pair(out, LABEL_WIDTH, "", OUTPUT_DIM,
                    "the server has no tokenizer: id %" PRId64 " stands for the comma before a second turn (--comma)",
                    plan->comma[0]);
}

static void print_window(const struct kl_report *report, struct output *out)
{
    uint64_t window = report->endpoint->server.sliding_window;
    size_t end = kl_report_end(report);
    if (window == 0 || end == 0)
        return;
    if (end > window)
        output_pair(out, LABEL_WIDTH, "window", OUTPUT_PLAIN,
                    "%" PRIu64 " positions; measured up to position %zu, past it", window, end - 1);
    else
        output_pair(out, LABEL_WIDTH, "window", OUTPUT_YELLOW,
                    "%" PRIu64 " positions; measured up to position %zu only, so nothing is said about what lies past "
                    "it: take longer prompts or more new tokens",
                    window, end - 1);
}

/* ---- the table ---- */

static char *cell(char (*cells)[CELL], size_t column, const char *format, ...) __attribute__((format(printf, 3, 4)));
static char *cell(char (*cells)[CELL], size_t column, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(cells[column], CELL, format, arguments);
    va_end(arguments);
    return cells[column];
}

static const char *short_number(double value, char text[16])
{
    if (value == 0)
        return "0";
    snprintf(text, 16, "%.1e", value);
    return text;
}

static void fill_row(const struct kl_report *report, enum kl_path_id id, char (*cells)[CELL])
{
    const struct kl_path *path = &report->paths[id];
    char number[16];
    cell(cells, 0, "%s", kl_path_word(id));
    for (size_t i = 1; i < COLUMNS; i++)
        cell(cells, i, "-");
    cell(cells, 1, "%s", kl_grade_word(path->grade));
    if (path->grade == KL_GRADE_NOT_MEASURED)
        return;
    cell(cells, 2, "%s", short_number(path->mean, number));
    cell(cells, 3, "%s", short_number(path->max, number));
    for (size_t t = 0; t < SHARES; t++)
        cell(cells, FIRST_SHARE + t, path->share_above[t] > 0 ? "%.3g%%" : "0", 100 * path->share_above[t]);
    cell(cells, 9, "%zu", path->bit_equal);
    cell(cells, 10, "%zu", path->stray);
    cell(cells, 11, "%zu", path->beyond);
}

static enum output_style style_of(const struct kl_report *report, enum kl_path_id id)
{
    enum kl_grade grade = report->paths[id].grade;
    if (grade == KL_GRADE_NOT_MEASURED)
        return OUTPUT_DIM;
    if (kl_grade_clean(grade))
        return OUTPUT_GREEN;
    return kl_report_path_is_fine(report, id) ? OUTPUT_YELLOW : OUTPUT_RED;
}

/* On a narrow terminal without the shares above thresholds: --json has them. */
static bool is_shown(size_t column, size_t width)
{
    return width == 0 || width >= TABLE_WIDTH || column < FIRST_SHARE || column >= FIRST_SHARE + SHARES;
}

static void print_table(const struct kl_report *report, struct output *out)
{
    static const char *const headings[COLUMNS] = {"path",   "grade",  ">mean k3", ">max",       ">>1e-9", ">>1e-6",
                                                  ">>1e-4", ">>1e-3", ">>1e-2",   ">bit-equal", ">stray", ">beyond"};
    char cells[COLUMNS][CELL];
    const char *shown[COLUMNS];
    struct list texts = {0};
    enum output_style styles[KL_PATHS];
    size_t columns = 0, width = output_width(out);
    for (size_t i = 0; i < COLUMNS; i++)
        if (is_shown(i, width))
            shown[columns++] = headings[i];
    for (size_t id = 0; id < KL_PATHS; id++) {
        styles[id] = style_of(report, (enum kl_path_id)id);
        fill_row(report, (enum kl_path_id)id, cells);
        for (size_t i = 0; i < COLUMNS; i++)
            if (is_shown(i, width))
                list_add(&texts, cells[i]);
    }
    output_text(out, "\n");
    output_table(out, columns, shown, KL_PATHS, (const char *const *)list_vector(&texts), styles);
    output_text(out, "\n");
    list_fini(&texts);
}

/* ---- what else is to be known of a path ---- */

static void print_dropped(const struct kl_path *path, const char *word, struct output *out)
{
    size_t dropped = 0, cached = 0;
    const char *why = NULL;
    for (size_t i = 0; i < path->request_count; i++) {
        dropped += path->requests[i].dropped != NULL;
        why = path->requests[i].dropped != NULL ? path->requests[i].dropped : why;
        cached += path->requests[i].cached_tokens > 0;
    }
    bool from_empty = path->request_count > 0 && (strcmp(word, kl_path_word(KL_PATH_MATCH)) == 0 ||
                                                  strcmp(word, kl_path_word(KL_PATH_MATCH_ALONE)) == 0);
    if (path->measured && dropped > 0)
        output_pair(out, LABEL_WIDTH, "dropped", OUTPUT_PLAIN, "%s: %zu of %zu requests: %s", word, dropped,
                    path->request_count, why);
    if (from_empty && cached > 0)
        output_pair(out, LABEL_WIDTH, "cache", OUTPUT_YELLOW,
                    "%s: %zu of %zu requests were decoded on a cached prefix that they share with another", word,
                    cached, path->request_count);
}

static void print_notes(const struct kl_report *report, struct output *out)
{
    for (int id = 0; id < KL_PATHS; id++) {
        const struct kl_path *path = &report->paths[id];
        const char *word = kl_path_word((enum kl_path_id)id);
        if (path->why_not != NULL)
            output_pair(out, LABEL_WIDTH, "not measured", OUTPUT_DIM, "%s: %s", word, path->why_not);
        print_dropped(path, word, out);
    }
    for (int id = 0; id < KL_PATHS && report->thresholds_path != NULL; id++) {
        double limit = report->thresholds.mean[id], mean = report->paths[id].mean;
        if (report->paths[id].grade == KL_GRADE_NOT_MEASURED || isnan(limit))
            continue;
        output_pair(out, LABEL_WIDTH, "threshold", mean < limit ? OUTPUT_PLAIN : OUTPUT_RED, "%s: %.2g, %s %.2g (%s)",
                    kl_path_word((enum kl_path_id)id), mean, mean < limit ? "below" : "not below", limit,
                    report->thresholds_path);
    }
}

/* ---- the reading ---- */

static void print_list(const char *label, char *const *texts, struct output *out)
{
    for (; *texts != NULL; texts++) {
        pair(out, label, *texts);
        label = "";
    }
}

static void print_reading(const struct kl_report *report, struct output *out)
{
    const struct kl_reading *reading = &report->reading;
    bool clean = reading->condition == KL_CONDITION_NONE;
    output_pair(out, LABEL_WIDTH, "reading", clean ? OUTPUT_GREEN : OUTPUT_RED, "%s", reading->text);
    print_list("evidence", reading->evidence, out);
    if (!foreign_seen(&report->endpoint->foreign))
        output_pair(out, LABEL_WIDTH, "others", OUTPUT_DIM, "%s", report->foreign);
    print_list("next", reading->next, out);
    if (reading->condition == KL_CONDITION_2 && !report->explanation.asked)
        pair(out, "", "kldumpctl kl --explain worst: what the wrong output is the right answer to");
}

/* ---- by position ---- */

/* '.' bit-equal, ':' stray; else the largest k3: 1 up to 1e-9, 2 up to 1e-6, ... 7 above 0.1; '!' NaN. */
static char mark_of(double a, double b)
{
    enum kl_class class = kl_class_of(a, b);
    if (class != KL_CLASS_BEYOND)
        return class == KL_CLASS_EQUAL ? '.' : ':';
    double k3 = kl_k3(a, b);
    if (isnan(k3))
        return '!';
    size_t t = 0;
    while (t < KL_THRESHOLDS && k3 > kl_thresholds[t])
        t++;
    return (char)('1' + t);
}

static unsigned rank_of(char mark)
{
    static const char order[] = " .:1234567!";
    return (unsigned)(strchr(order, mark) - order);
}

/* The worst mark of each bin over the requests `from` to `to`. */
static void print_strip(const struct kl_path *path, size_t from, size_t to, const char *title, struct output *out)
{
    size_t low = SIZE_MAX, high = 0;
    char marks[STRIP + 1];
    for (size_t i = from; i < to; i++) {
        const struct kl_request *request = &path->requests[i];
        if (request->count == 0 || request->dropped != NULL)
            continue;
        low = request->first < low ? request->first : low;
        high = request->first + request->count > high ? request->first + request->count : high;
    }
    if (low >= high)
        return;
    size_t bin = (high - low + STRIP - 1) / STRIP, bins = (high - low + bin - 1) / bin;
    memset(marks, ' ', sizeof marks);
    marks[bins] = '\0';
    for (size_t i = from; i < to; i++) {
        const struct kl_request *request = &path->requests[i];
        for (size_t t = 0; request->dropped == NULL && t < request->count; t++) {
            char *mark = &marks[(request->first + t - low) / bin], own = mark_of(request->a[t], request->b[t]);
            *mark = rank_of(own) > rank_of(*mark) ? own : *mark;
        }
    }
    output_pair(out, LABEL_WIDTH, "", OUTPUT_PLAIN, "%s, positions %zu to %zu, %zu a mark", title, low, high - 1, bin);
    pair(out, "", marks);
}

static void print_positions(const struct kl_report *report, bool all, struct output *out)
{
    if (kl_report_is_fine(report) && !all)
        return;
    output_text(out, "\n");
    pair(out, "by position",
         ". bit-equal, : stray, else the largest k3: 1 up to 1e-9, 2 1e-6, 3 1e-4, 4 1e-3, 5 1e-2, "
         "6 0.1, 7 more, ! NaN");
    for (int id = 0; id < KL_PATHS; id++) {
        const struct kl_path *path = &report->paths[id];
        if (path->beyond > 0 || all)
            print_strip(path, 0, path->request_count, kl_path_word((enum kl_path_id)id), out);
        for (size_t i = 0; all && i < path->request_count; i++) {
            const struct kl_request *request = &path->requests[i];
            char *title = memory_format("%s: prompt %zu, cached %zu, mean k3 %.2g%s%s", request->rid,
                                        request->prompt_length, request->cached_tokens, path->numbers[i].mean,
                                        request->dropped != NULL ? ", dropped: " : "",
                                        request->dropped != NULL ? request->dropped : "");
            print_strip(path, i, i + 1, title, out);
            free(title);
        }
    }
}

void kl_report_text(const struct kl_report *report, bool all, struct output *out)
{
    print_server(report, out);
    print_prompts(report, out);
    print_window(report, out);
    print_table(report, out);
    print_notes(report, out);
    print_reading(report, out);
    kl_explain_report_text(&report->explanation, LABEL_WIDTH, out);
    print_positions(report, all, out);
}
