#include "ctl/runs_table.h"
#include "base/memory.h"
#include "base/size.h"
#include "base/text.h"
#include "ctl/show.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { NAME, OWNER, STATE, FREE, FLOOR, RATE, TO_FLOOR, AGE, COLUMNS };
enum { GAP = 2, CELL = 32, NAME_LEAST = 8 };

static const char *const headings[COLUMNS] = {"NAME",   "OWNER", "STATE",     ">FREE",
                                              ">FLOOR", ">RATE", ">TO-FLOOR", ">AGE"};
/* What goes first where there is no room for all. */
static const int dispensable[] = {RATE, FLOOR, AGE, OWNER, FREE, TO_FLOOR};

/* "300G", "20.5G", "312B": as in what --floor takes. */
static const char *short_size(uint64_t bytes, char *ret_text)
{
    static const char units[] = "BKMGT";
    size_t unit = 0;
    double value = (double)bytes;
    for (; value >= 1023.95 && unit < 4; unit++)
        value /= 1024;
    snprintf(ret_text, CELL, "%.*f%c", unit == 0 || value >= 99.95 ? 0 : 1, value, units[unit]);
    return ret_text;
}

/* "8s", "12min", "30h", "5d": down to the last whole one. */
static const char *short_time(uint64_t seconds, char *ret_text)
{
    static const struct {
        uint64_t below, unit;
        const char *name;
    } units[] = {{120, 1, "s"}, {7200, 60, "min"}, {172800, 3600, "h"}, {UINT64_MAX, 86400, "d"}};
    size_t i = 0;
    while (seconds >= units[i].below)
        i++;
    snprintf(ret_text, CELL, "%" PRIu64 "%s", seconds / units[i].unit, units[i].name);
    return ret_text;
}

static char *size_cell(const struct json *run, const char *path, const char *after)
{
    char text[CELL];
    uint64_t bytes = 0;
    return show_number(run, path, &bytes) ? memory_format("%s%s", short_size(bytes, text), after) : memory_copy("-");
}

static char *to_floor_cell(const struct json *run)
{
    char text[CELL];
    uint64_t seconds = 0;
    if (!show_number(run, "space.seconds_to_floor", &seconds))
        return memory_copy("-");
    return memory_copy(seconds < 1000ull * 86400 ? short_time(seconds, text) : ">999d");
}

/* How long it has run; of an ended one, how long ago that was. */
static char *age_cell(const struct json *run, double now)
{
    char text[CELL];
    uint64_t up_ms = 0;
    double started = show_time(show_member(run, "started_at"));
    bool live = find_is_live(run), has_uptime = show_number(run, "uptime_ms", &up_ms);
    double seconds = now - started - (live ? 0 : (double)up_ms / 1000);
    if (live && has_uptime)
        return memory_copy(short_time(up_ms / 1000, text));
    if (started < 0 || seconds > 1e9 || (!live && !has_uptime))
        return memory_copy("-");
    return memory_format("%s%s", short_time(seconds > 0 ? (uint64_t)seconds : 0, text), live ? "" : " ago");
}

/* "armed", "dumping: e1", "ended: floor"; of a live one from which nothing new has come "armed (5min old)". */
static char *state_cell(const struct json *run, bool fresh)
{
    char text[CELL], age[CELL + 16] = "";
    uint64_t told_ms = 0;
    const char *state = show_member(run, "state"), *more = show_member(run, find_is_live(run) ? "exp" : "outcome");
    bool is_told = show_number(run, "told_age_ms", &told_ms) && told_ms > SHOW_FRESH_MS;
    if (!fresh)
        snprintf(age, sizeof age, " (%s%s old)", is_told ? "" : "space ", short_time(show_age_ms(run) / 1000, text));
    return memory_format("%s%s%s%s", state[0] != '\0' ? state : "-", more[0] != '\0' ? ": " : "", more, age);
}

static char *text_cell(const struct json *run, const char *key)
{
    char clean[256];
    const char *text = show_member(run, key);
    return memory_copy(text[0] != '\0' ? text_clean(text, strlen(text), clean, sizeof clean) : "-");
}

static void fill(char **cell, const struct json *run, double now)
{
    bool live = find_is_live(run), fresh = live && show_age_ms(run) <= SHOW_FRESH_MS;
    cell[NAME] = text_cell(run, "name");
    cell[OWNER] = text_cell(run, "owner");
    cell[STATE] = state_cell(run, fresh || !live);
    /* what the disk has now is no matter of a run that is over */
    cell[FREE] = fresh ? size_cell(run, "space.free_bytes", "") : memory_copy("-");
    cell[FLOOR] = live ? size_cell(run, "space.floor_bytes", "") : memory_copy("-");
    cell[RATE] = fresh ? size_cell(run, "space.rate_bytes_per_s", "/s") : memory_copy("-");
    cell[TO_FLOOR] = fresh ? to_floor_cell(run) : memory_copy("-");
    cell[AGE] = age_cell(run, now);
}

static size_t width_of(int column, size_t rows, char *const *cells)
{
    size_t width = output_columns(headings[column] + (headings[column][0] == '>'));
    for (size_t r = 0; r < rows; r++) {
        size_t own = output_columns(cells[r * COLUMNS + (size_t)column]);
        width = own > width ? own : width;
    }
    return width;
}

/* Cuts at the end, with a mark. */
static void cut(char *text, size_t columns)
{
    size_t used = 0, i = 0;
    if (output_columns(text) <= columns)
        return;
    while (text[i] != '\0' && used + 1 < columns) {
        do
            i++;
        while (((unsigned char)text[i] & 0xc0) == 0x80);
        used++;
    }
    text_copy(text + i, 2, "~");
}

/* Which columns are shown; the rest of the room is the names'. */
static void choose(size_t columns, size_t rows, char **cells, bool *ret_shown)
{
    size_t widths[COLUMNS], total = 0;
    for (int c = 0; c < COLUMNS; c++) {
        ret_shown[c] = true;
        widths[c] = width_of(c, rows, cells);
        total += widths[c] + (c > 0 ? GAP : 0);
    }
    for (size_t i = 0; columns > 0 && total > columns && i < sizeof dispensable / sizeof dispensable[0]; i++) {
        ret_shown[dispensable[i]] = false;
        total -= widths[dispensable[i]] + GAP;
    }
    if (columns == 0 || total <= columns)
        return;
    size_t excess = total - columns;
    size_t name = widths[NAME] > NAME_LEAST + excess ? widths[NAME] - excess : NAME_LEAST;
    for (size_t r = 0; r < rows; r++)
        cut(cells[r * COLUMNS + NAME], name);
}

void runs_table(struct output *out, const struct find_list *list, size_t columns, double now)
{
    size_t rows = list->count, shown_count = 0, used = 0;
    bool shown[COLUMNS];
    const char *titles[COLUMNS];
    char **cells = memory_new((rows * COLUMNS + 1) * sizeof *cells);
    const char **chosen = memory_new((rows * COLUMNS + 1) * sizeof *chosen);
    enum output_style *styles = memory_new((rows + 1) * sizeof *styles);
    for (size_t r = 0; r < rows; r++) {
        const struct json *run = list->seen[r].run;
        fill(cells + r * COLUMNS, run, now);
        styles[r] = show_style(show_member(run, "state"), show_member(run, "outcome"));
    }
    choose(columns, rows, cells, shown);
    for (int c = 0; c < COLUMNS; c++)
        if (shown[c])
            titles[shown_count++] = headings[c];
    for (size_t i = 0; i < rows * COLUMNS; i++)
        if (shown[i % COLUMNS])
            chosen[used++] = cells[i];
    output_table(out, shown_count, titles, rows, chosen, styles);
    for (size_t i = 0; i < rows * COLUMNS; i++)
        free(cells[i]);
    free(cells);
    free(chosen);
    free(styles);
}
