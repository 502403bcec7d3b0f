#include "conf/settings_table.h"

#include <stdio.h>
#include <string.h>

enum { HELP_COLUMN = 24, HELP_WIDTH = 80 };

/* Appends `text` from column HELP_COLUMN on, broken at blanks. */
static void add_wrapped(struct buffer *out, const char *text)
{
    size_t column = HELP_COLUMN;
    while (*text != '\0') {
        size_t length = strcspn(text, " ");
        if (column + length > HELP_WIDTH && column > HELP_COLUMN) {
            buffer_format(out, "\n%*s", HELP_COLUMN, "");
            column = HELP_COLUMN;
        }
        if (column > HELP_COLUMN)
            buffer_text(out, " ");
        buffer_append(out, text, length);
        column += length + 1;
        text += length;
        text += strspn(text, " ");
    }
    buffer_text(out, "\n");
}

static void add_row(struct buffer *out, const char *label, const struct settings_row *row)
{
    char help[400];
    size_t width = strlen(label);
    snprintf(help, sizeof help, row->fallback[0] != '\0' ? "%s (default: %s)" : "%s", row->help, row->fallback);
    buffer_text(out, label);
    if (width + 2 > HELP_COLUMN)
        buffer_format(out, "\n%*s", HELP_COLUMN, "");
    else
        buffer_format(out, "%*s", (int)(HELP_COLUMN - width), "");
    add_wrapped(out, help);
}

void settings_help(struct buffer *out)
{
    char label[80];
    for (int id = 0; id < SETTINGS_COUNT; id++) {
        const struct settings_row *row = &settings_table[id];
        snprintf(label, sizeof label, "  --%s %s", row->flag, row->metavar);
        if (row->flag[0] != '\0')
            add_row(out, label, row);
    }
    buffer_text(out, "\nOnly in section [run] of the config file:\n");
    for (int id = 0; id < SETTINGS_COUNT; id++) {
        const struct settings_row *row = &settings_table[id];
        snprintf(label, sizeof label, "  %s = %s", row->key, row->metavar);
        if (row->flag[0] == '\0')
            add_row(out, label, row);
    }
    buffer_text(out, "\nSizes take B K M G T KiB MiB GiB TiB (powers of 1024); times take ms s min h.\n"
                     "A number without a unit is refused.\n");
}
