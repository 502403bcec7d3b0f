/* Writes the reports of every scenario of diff_world.h into a folder: SCENARIO.html, SCENARIO.json, and as text for 40,
 * 80 and 200 columns. test_reports.py looks at them, and so may you: report_samples FOLDER [SCENARIO]. */
#include "analysis/report_html.h"
#include "analysis/report_json.h"
#include "base/memory.h"
#include "ctl/report_text.h"
#include "diff_world.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void write_file(const char *folder, const char *scenario, const char *ending, const struct buffer *text)
{
    char *path = memory_format("%s/%s.%s", folder, scenario, ending);
    FILE *file = fopen(path, "we");
    if (file == NULL || fwrite(text->data, 1, text->length, file) != text->length || fclose(file) != 0) {
        perror(path);
        exit(1);
    }
    free(path);
}

static void write_text(const char *folder, const char *scenario, const struct diff *diff, size_t width, bool all)
{
    struct output out;
    output_init(&out, STDOUT_FILENO);
    out.colour = false;
    char *ending = memory_format("%zu%s.txt", width, all ? "-all" : "");
    report_text(diff, width, all, &out);
    write_file(folder, scenario, ending, &out.pending);
    free(ending);
    output_fini(&out);
}

static void write_all(const char *folder, const char *scenario)
{
    struct diff diff = {0};
    struct buffer text;
    diff_world_make(scenario, &diff);
    buffer_init(&text);
    report_html(&diff, &text);
    write_file(folder, scenario, "html", &text);
    buffer_clear(&text);
    report_json(&diff, &text);
    write_file(folder, scenario, "json", &text);
    buffer_fini(&text);
    static const size_t widths[] = {40, 80, 200};
    for (size_t i = 0; i < sizeof widths / sizeof widths[0]; i++)
        write_text(folder, scenario, &diff, widths[i], false);
    write_text(folder, scenario, &diff, 80, true);
    diff_fini(&diff);
}

int main(int argc, char **argv)
{
    if (argc < 2) {
        fprintf(stderr, "usage: report_samples FOLDER [SCENARIO]\n");
        return 2;
    }
    for (const char *const *scenario = diff_world_scenarios; *scenario != NULL; scenario++)
        if (argc < 3 || strcmp(argv[2], *scenario) == 0)
            write_all(argv[1], *scenario);
    return 0;
}
