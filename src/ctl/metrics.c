#include "ctl/metrics.h"
#include "base/memory.h"
#include "ctl/show.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* Gauges of a run with one number each. Those that change by themselves are left out once they are old. */
static const struct {
    const char *name, *path, *help;
    bool lasts;
} gauges[] = {
    {"kldump_free_bytes", "space.free_bytes", "Free space on the filesystem of the run's dumps.", false},
    {"kldump_floor_bytes", "space.floor_bytes", "Free space that must stay: the run is killed before it is crossed.",
     true},
    {"kldump_rate_bytes_per_second", "space.rate_bytes_per_s", "How fast free space shrinks now.", false},
    {"kldump_seconds_to_floor", "space.seconds_to_floor",
     "Time until the floor at the present rate; absent while nothing shrinks.", false},
    {"kldump_written_bytes", "space.written_bytes", "What the dumps of the run have taken.", true},
};

static const char *const states[] = {
#define X(constant, name, text) name,
#include "core/run_states.def"
#undef X
    "unknown"};

static const char *const outcomes[] = {
#define X(constant, name, status, text) name,
#include "core/run_outcomes.def"
#undef X
};

/* In a label's value \, " and the end of a line are written with a backslash, in both formats. */
static void add_value(struct buffer *out, const char *text)
{
    for (; *text != '\0'; text++)
        switch (*text) {
        case '\n':
            buffer_text(out, "\\n");
            break;
        case '\\':
        case '"':
            buffer_text(out, "\\");
            buffer_append(out, text, 1);
            break;
        default: /* readers that go line by line take other ends of lines than the format does */
            buffer_append(out, (unsigned char)*text < ' ' || *text == 0x7f ? "?" : text, 1);
        }
}

static char *labels_of(const struct json *run)
{
    static const char *const labels[][2] = {{"run", "name"}, {"owner", "owner"}, {"path", "space.path"}};
    struct buffer text;
    buffer_init(&text);
    for (size_t i = 0; i < sizeof labels / sizeof labels[0]; i++) {
        buffer_format(&text, "%s%s=\"", i > 0 ? "," : "", labels[i][0]);
        add_value(&text, show_member(run, labels[i][1]));
        buffer_text(&text, "\"");
    }
    char *labels_text = buffer_steal(&text);
    buffer_fini(&text); /* it begins anew */
    return labels_text;
}

/* The live runs, each with its labels. */
struct metrics {
    enum metrics_format format;
    size_t count;
    const struct json **run;
    char **labels;
};

static void gather(struct metrics *metrics, const struct find_list *list)
{
    metrics->run = memory_new((list->count + 1) * sizeof *metrics->run);
    metrics->labels = memory_new((list->count + 1) * sizeof *metrics->labels);
    for (size_t i = 0; i < list->count; i++) {
        if (!find_is_live(list->seen[i].run))
            continue;
        char *labels = labels_of(list->seen[i].run);
        size_t same = 0;
        while (same < metrics->count && strcmp(metrics->labels[same], labels) != 0)
            same++;
        if (same < metrics->count) {
            free(labels); /* one series twice would void the whole text */
            continue;
        }
        metrics->run[metrics->count] = list->seen[i].run;
        metrics->labels[metrics->count++] = labels;
    }
}

/* OpenMetrics names a counter without the "_total" of its samples. */
static void add_family(const struct metrics *metrics, struct buffer *out, const char *name, const char *type,
                       const char *help)
{
    const char *suffix = metrics->format == METRICS_TEXTFILE && strcmp(type, "counter") == 0 ? "_total" : "";
    buffer_format(out, "# HELP %s%s %s\n# TYPE %s%s %s\n", name, suffix, help, name, suffix, type);
}

static bool is_known_state(const char *state)
{
    for (size_t i = 0; i < sizeof states / sizeof states[0]; i++)
        if (strcmp(states[i], state) == 0)
            return true;
    return false;
}

static void add_states(const struct metrics *metrics, struct buffer *out)
{
    add_family(metrics, out, "kldump_run_state", "gauge", "1 for the state that the run is in, 0 for every other.");
    for (size_t r = 0; r < metrics->count; r++) {
        const char *state = show_member(metrics->run[r], "state");
        state = is_known_state(state) ? state : "unknown";
        for (size_t i = 0; i < sizeof states / sizeof states[0]; i++)
            if (strcmp(states[i], "ended") != 0) /* what has ended is counted, not shown */
                buffer_format(out, "kldump_run_state{%s,state=\"%s\"} %d\n", metrics->labels[r], states[i],
                              strcmp(states[i], state) == 0);
    }
}

static void add_gauges(const struct metrics *metrics, struct buffer *out)
{
    for (size_t g = 0; g < sizeof gauges / sizeof gauges[0]; g++) {
        add_family(metrics, out, gauges[g].name, "gauge", gauges[g].help);
        for (size_t r = 0; r < metrics->count; r++) {
            uint64_t value = 0;
            bool shown = gauges[g].lasts || show_age_ms(metrics->run[r]) <= SHOW_FRESH_MS;
            if (shown && show_number(metrics->run[r], gauges[g].path, &value))
                buffer_format(out, "%s{%s} %" PRIu64 "\n", gauges[g].name, metrics->labels[r], value);
        }
    }
}

static void add_ended(const struct metrics *metrics, const struct json *ended, struct buffer *out)
{
    if (ended == NULL)
        return;
    add_family(metrics, out, "kldump_runs_ended", "counter",
               "Runs that have ended, by outcome, as kldumpd counts them.");
    for (size_t i = 1; i < sizeof outcomes / sizeof outcomes[0]; i++) { /* the first is "none" */
        uint64_t count = 0;
        show_number(ended, outcomes[i], &count);
        buffer_format(out, "kldump_runs_ended_total{outcome=\"%s\"} %" PRIu64 "\n", outcomes[i], count);
    }
}

void metrics_text(const struct find_list *list, enum metrics_format format, struct buffer *out)
{
    struct metrics metrics = {.format = format};
    gather(&metrics, list);
    add_family(&metrics, out, "kldump_runs", "gauge", "Runs that are live.");
    buffer_format(out, "kldump_runs %zu\n", metrics.count);
    add_states(&metrics, out);
    add_gauges(&metrics, out);
    add_ended(&metrics, list->ended, out);
    if (format == METRICS_OPEN)
        buffer_text(out, "# EOF\n");
    for (size_t i = 0; i < metrics.count; i++)
        free(metrics.labels[i]);
    free(metrics.labels);
    free(metrics.run);
}
