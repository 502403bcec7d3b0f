#include "analysis/report.h"
#include "base/memory.h"
#include "ctl/report_text.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LABEL_WIDTH = 13, REQUESTS_SHOWN = 6, LINES_SHOWN = 10, LINE_MOST = 100 };

struct strip {
    int64_t low; /* position of the first mark */
    size_t count;
    char *marks; /* [count] */
};

static struct strip strip_of(const struct diff *diff, const struct diff_observation *o,
                             const struct diff_request *request)
{
    size_t end = request->first_pair + request->pair_count;
    end = end < diff->pair_count ? end : diff->pair_count;
    struct strip strip = {.low = INT64_MAX};
    int64_t high = INT64_MIN;
    for (size_t i = request->first_pair; i < end; i++) {
        strip.low = diff->pairs[i].position < strip.low ? diff->pairs[i].position : strip.low;
        high = diff->pairs[i].position > high ? diff->pairs[i].position : high;
    }
    strip.count = strip.low <= high ? (size_t)(high - strip.low) + 1 : 0;
    uint8_t *worst = memory_new(strip.count + 1);
    for (size_t i = request->first_pair; i < end; i++) {
        uint8_t *mark = &worst[diff->pairs[i].position - strip.low];
        *mark = o->marks[i] > *mark ? o->marks[i] : *mark;
    }
    strip.marks = memory_new(strip.count + 1);
    for (size_t i = 0; i < strip.count; i++)
        strip.marks[i] = report_mark_character(worst[i]);
    free(worst);
    return strip;
}

/* How many positions from `from` on have the same character. */
static size_t uniform(const struct strip *strip, size_t from)
{
    size_t i = from;
    while (i < strip->count && strip->marks[i] == strip->marks[from])
        i++;
    return i - from;
}

static void print_line(struct output *out, int64_t position, enum output_style style, const char *text)
{
    char label[40];
    snprintf(label, sizeof label, "%*" PRId64, LABEL_WIDTH - 2, position);
    output_pair(out, LABEL_WIDTH, label, style, "%s", text);
}

static void print_marks(struct output *out, const struct strip *strip, size_t from, size_t count)
{
    char line[LINE_MOST + 1];
    size_t equal = 0;
    for (size_t i = 0; i < count; i++) {
        line[i] = strip->marks[from + i];
        equal += line[i] == '.' || line[i] == ' ';
    }
    line[count] = '\0';
    print_line(out, strip->low + (int64_t)from, equal == count ? OUTPUT_PLAIN : OUTPUT_YELLOW, line);
}

static void print_strip(struct output *out, const struct strip *strip, size_t room, bool all)
{
    size_t lines = 0, i = 0;
    while (i < strip->count && (all || lines < LINES_SHOWN)) {
        size_t count = strip->count - i < room ? strip->count - i : room, same = uniform(strip, i);
        if (same >= 2 * room) { /* of one kind for whole lines: said in one */
            char text[80];
            count = same;
            snprintf(text, sizeof text, "%c ... %zu alike", strip->marks[i], same);
            print_line(out, strip->low + (int64_t)i, OUTPUT_DIM, text);
        } else {
            print_marks(out, strip, i, count);
        }
        i += count;
        lines++;
    }
    if (i < strip->count)
        output_pair(out, LABEL_WIDTH, "", OUTPUT_DIM, "... %zu more: --all", strip->count - i);
}

void report_text_strip(const struct diff *diff, const struct diff_observation *observation, size_t columns, bool all,
                       struct output *out)
{
    size_t shown = all || diff->request_count < REQUESTS_SHOWN ? diff->request_count : REQUESTS_SHOWN;
    size_t room = columns > LABEL_WIDTH + 10 ? (columns - LABEL_WIDTH) / 10 * 10 : 10;
    room = room < LINE_MOST ? room : LINE_MOST;
    char name[REPORT_SHORT];
    output_paragraph(out, LABEL_WIDTH, columns, "tokens", OUTPUT_PLAIN, report_short(observation->name, name));
    output_paragraph(
        out, LABEL_WIDTH, columns, "", OUTPUT_DIM,
        ". equal, 1 to 8 less than 2^1 to 2^8 ULP, 9 more, ! NaN, # unequal without ULP, blank not compared");
    for (size_t q = 0; q < shown; q++) {
        const struct diff_request *request = &diff->requests[q];
        struct strip strip = strip_of(diff, observation, request);
        char *text = memory_format("request %s, prompt of %zu tokens",
                                   request->a_rid != NULL ? request->a_rid : "without id", request->prompt_length);
        output_paragraph(out, LABEL_WIDTH, columns, "", OUTPUT_PLAIN, text);
        print_strip(out, &strip, room, all);
        free(text);
        free(strip.marks);
    }
    if (shown < diff->request_count)
        output_pair(out, LABEL_WIDTH, "", OUTPUT_DIM, "%zu more requests: --all", diff->request_count - shown);
}
