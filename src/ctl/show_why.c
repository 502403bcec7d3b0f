/* What a run died of, from the run object alone: the message of its guard or of kldumpd, which has the numbers, after a
 * word for the outcome. Where nobody was left to give the numbers, those that were seen last. */
#include "base/size.h"
#include "ctl/show.h"

#include <string.h>

static const struct {
    const char *outcome, *text;
} words[] = {
    {"completed", "completed"},
    {"stopped", "stopped"},
    {"floor", "killed at the floor"},
    {"budget", "killed at the byte budget"},
    {"verify-failed", "ended, since the hooks could not be proven"},
    {"start-failed", "ended before it was ready"},
    {"start-timeout", "ended, since it was not ready in time"},
    {"server-exited", "the server ended by itself"},
    {"control-lost", "killed, since the dumper's control was lost"},
    {"guard-lost", "killed, since its guard was lost"},
    {"unkillable", "over, but processes that cannot be killed remain"},
};

static void add_last_seen(const struct json *run, struct buffer *text)
{
    char a[SIZE_TEXT], b[SIZE_TEXT], c[SIZE_TEXT];
    uint64_t free_bytes = 0, floor = 0, rate = 0, written = 0;
    if (!show_number(run, "space.free_bytes", &free_bytes) || !show_number(run, "space.floor_bytes", &floor))
        return;
    show_number(run, "space.rate_bytes_per_s", &rate);
    buffer_format(text, "; seen last: %s free, floor %s, shrinking by %s/s", size_text(free_bytes, a),
                  size_text(floor, b), size_text(rate, c));
    if (show_number(run, "space.written_bytes", &written))
        buffer_format(text, ", %s written", size_text(written, a));
}

void show_why(const struct json *run, struct buffer *text)
{
    const char *outcome = show_member(run, "outcome"), *message = show_member(run, "message"), *word = outcome;
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++)
        if (strcmp(words[i].outcome, outcome) == 0)
            word = words[i].text;
    buffer_format(text, "%s%s%s", word, message[0] != '\0' ? ": " : "", message);
    if (strcmp(outcome, "guard-lost") == 0 || strcmp(outcome, "control-lost") == 0)
        add_last_seen(run, text);
}
