/* kldumpctl logs [RUN] [-f] [--json] */
#include "base/text.h"
#include "ctl/command.h"
#include "ctl/find.h"

#include <string.h>
#include <unistd.h>

enum { WAIT_MS = 30000, END_PATIENCE_MS = 15000 };

/* On a terminal, what a server prints must not move the cursor or change its title. */
static void print(struct output *out, struct buffer *text)
{
    if (!isatty(out->fd)) {
        buffer_append(&out->pending, text->data, text->length);
        return;
    }
    for (const char *line = text->data, *last = text->data + text->length; line < last;) {
        const char *end = memchr(line, '\n', (size_t)(last - line));
        char clean[8192];
        output_text(out, text_clean(line, (size_t)((end != NULL ? end : last) - line), clean, sizeof clean));
        output_text(out, end != NULL ? "\n" : "");
        line = end != NULL ? end + 1 : last;
    }
}

static void print_json(struct output *out, uint64_t next, const struct buffer *text)
{
    if (text->length == 0)
        return;
    struct json *part = json_object();
    json_set_string(part, "schema", "kldump.logs/1");
    json_set_u64(part, "next_offset", next);
    json_set_bytes(part, "text", text->data, text->length);
    output_json(out, part);
    json_free(part);
}

static enum error_code print_all(struct output *out, struct find *find, bool follow, bool as_json, struct error *err)
{
    uint64_t offset = 0;
    bool waits = false; /* only when all that is there has been shown */
    enum error_code code = ERROR_NONE;
    struct buffer text;
    buffer_init(&text);
    while (code == ERROR_NONE && !out->closed) {
        uint64_t next = offset;
        bool ended = false;
        buffer_clear(&text);
        code = find_logs(find, offset, waits ? WAIT_MS : 0, &text, &next, &ended, err);
        if (code == ERROR_UNREACHABLE && follow) {
            bool relayed = find->relayed;
            code = find_again(find, END_PATIENCE_MS, err);
            if (code == ERROR_NONE) /* where the run is over, what it still printed is in its folder */
                continue;
            code = relayed ? code : ERROR_NONE;
            break;
        }
        if (code == ERROR_INTERRUPTED && output_is_closed(out))
            code = ERROR_NONE;
        if (code != ERROR_NONE || out->closed)
            break;
        if (as_json)
            print_json(out, next, &text);
        else
            print(out, &text);
        code = output_flush(out, err);
        bool more = next > offset;
        offset = next;
        waits = follow && !more;
        if (!more && (ended || !follow))
            break;
    }
    buffer_fini(&text);
    return code;
}

static int run(const struct command *command, struct output *out, int argc, char **argv)
{
    bool follow = false, as_json = false;
    struct error err = ERROR_INIT;
    struct command_operands operands;
    struct find find = {0};
    const struct command_option options[] = {
        {.name = "follow", .letter = 'f', .flag = &follow}, {.name = "json", .flag = &as_json}, {0}};
    if (!command_parse(command, options, argc, argv, 1, &operands))
        return STATUS_USAGE;
    enum error_code code = find_run(operands.item[0], &find, &err);
    find.for_reader = true;
    if (code == ERROR_NONE)
        code = print_all(out, &find, follow, as_json, &err);
    find_fini(&find);
    return code == ERROR_NONE ? STATUS_DONE : command_fail(command, &err);
}

const struct command command_logs = {
    .name = "logs",
    .usage = "logs [RUN] [-f] [--json]",
    .summary = "what the server of a run printed",
    .help = "Examples:\n"
            "  kldumpctl logs t | tail -n 50\n"
            "  kldumpctl logs t -f\n"
            "\n"
            "The newest part is kept. Of a run that has ended, it is read from the run's folder.\n"
            "\n"
            "Options:\n"
            "  -f, --follow    stay and show what comes, until the run ends\n"
            "  --json          the same in parts: {\"next_offset\", \"text\"}, one a line\n",
    .run = run,
};
