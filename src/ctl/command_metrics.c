/* kldumpctl metrics [--textfile FILE] */
#include "base/text.h"
#include "ctl/command.h"
#include "ctl/find.h"
#include "ctl/metrics.h"
#include "sys/file.h"

#include <sys/stat.h>

/* For node_exporter, which is another user, whatever our umask. */
static enum error_code write_file(const char *path, const struct buffer *text, struct error *err)
{
    mode_t before = umask(022);
    enum error_code code = file_replace(path, text->data, text->length, 0644, FILE_SYNC, err);
    umask(before);
    return code;
}

static int run(const struct command *command, struct output *out, int argc, char **argv)
{
    const char *path = NULL;
    struct error err = ERROR_INIT;
    struct command_operands operands;
    struct find_list list = {0};
    const struct command_option options[] = {{.name = "textfile", .value = &path}, {0}};
    if (!command_parse(command, options, argc, argv, 0, &operands))
        return STATUS_USAGE;
    if (path != NULL && !text_ends(path, ".prom"))
        return command_usage_error(command, "--textfile: '%.200s' must end in .prom: node_exporter reads no other file",
                                   path);
    if (find_all(&list, &err) != ERROR_NONE)
        return command_fail(command, &err);
    struct buffer text;
    int status = command_notes(command, &list);
    if (status != STATUS_DONE) { /* nothing could be seen, which is not that there is nothing */
        find_list_fini(&list);
        return status;
    }
    buffer_init(&text);
    metrics_text(&list, path != NULL ? METRICS_TEXTFILE : METRICS_OPEN, &text);
    if (path == NULL)
        output_text(out, text.data);
    else if (write_file(path, &text, &err) != ERROR_NONE)
        status = command_fail(command, &err);
    buffer_fini(&text);
    find_list_fini(&list);
    return status;
}

const struct command command_metrics = {
    .name = "metrics",
    .usage = "metrics [--textfile FILE]",
    .summary = "figures of all live runs for Prometheus",
    .help = "Examples:\n"
            "  kldumpctl metrics\n"
            "  kldumpctl metrics --textfile /var/lib/prometheus/node-exporter/kldump.prom\n"
            "\n"
            "Prints OpenMetrics text: state, free space, floor, rate, time to the floor and bytes\n"
            "written of every live run, and how many have ended with which outcome.\n"
            "\n"
            "Options:\n"
            "  --textfile FILE    write it for node_exporter's textfile collector instead: FILE, which\n"
            "                     must end in .prom, is replaced as a whole\n",
    .run = run,
};
