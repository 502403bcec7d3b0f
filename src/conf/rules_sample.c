#include "base/text.h"
#include "conf/rules_table.h"
#include "conf/settings_table.h"

#include <string.h>

enum { SAMPLE_WIDTH = 100 };

/* As a comment, broken at blanks. */
static void add_comment(struct buffer *out, const char *text)
{
    size_t column = 1;
    buffer_text(out, "#");
    while (*text != '\0') {
        size_t length = strcspn(text, " ");
        if (column + 1 + length > SAMPLE_WIDTH) {
            buffer_text(out, "\n#");
            column = 1;
        }
        buffer_text(out, " ");
        buffer_append(out, text, length);
        column += 1 + length;
        text += length;
        text += strspn(text, " ");
    }
    buffer_text(out, "\n");
}

static const char *example_of(const struct rules_row *row)
{
    static const char *const examples[] = {[RULES_TYPE_NAMES] = "NAME NAME",
                                           [RULES_TYPE_PATHS] = "/PATH /PATH",
                                           [RULES_TYPE_COUNT] = "NUMBER",
                                           [RULES_TYPE_SIZE] = "SIZE",
                                           [RULES_TYPE_SIZE_OR_PERCENT] = "SIZE|PCT"};
    return row->fallback[0] != '\0' ? row->fallback : examples[row->type];
}

void rules_sample(struct buffer *out)
{
    const char *section = "";
    add_comment(out, "Rules for all runs of kldump on this machine, read by kldumpd and by the guard of every run. "
                     "kldumpd.conf(5) explains them. What is commented out shows the default, or the form of a value "
                     "where nothing holds by default. Sizes take B K M G T KiB MiB GiB TiB (powers of 1024) and %, "
                     "times ms s min h. Comments need lines of their own. After a change: systemctl reload kldumpd.");
    for (int id = 0; id < RULES_COUNT; id++) {
        const struct rules_row *row = &rules_table[id];
        bool is_filesystem = strcmp(row->section, "filesystem") == 0;
        if (strcmp(row->section, section) != 0 && is_filesystem) {
            buffer_text(out, "\n");
            add_comment(out, "One such section for each filesystem with a rule of its own; PATH is any path on it.");
            buffer_text(out, "#[filesystem /PATH]\n");
        } else if (strcmp(row->section, section) != 0) {
            buffer_format(out, "\n[%s]\n", row->section);
        }
        section = row->section;
        buffer_text(out, "\n");
        add_comment(out, row->help);
        buffer_format(out, "#%s = %s\n", row->key, example_of(row));
    }
    buffer_text(out, "\n");
    add_comment(out, "What holds for a run whose user says nothing else, in arguments or a --config.");
    buffer_text(out, "[defaults]\n");
    for (int id = 0; id < SETTINGS_COUNT; id++) {
        const struct settings_row *row = &settings_table[id];
        if (row->key[0] == '\0')
            continue;
        buffer_text(out, "\n");
        add_comment(out, row->help);
        buffer_format(out, "#%s = %s\n", row->key, row->fallback[0] != '\0' ? row->fallback : row->metavar);
    }
}
