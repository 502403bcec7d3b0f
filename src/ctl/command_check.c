/* kldumpctl check: audits the folder of one experiment. */
#include "analysis/audit_folder.h"
#include "base/list.h"
#include "base/size.h"
#include "ctl/command.h"
#include "ctl/progress.h"
#include "json/json.h"
#include "sys/audit_json.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

enum {
    LABEL_WIDTH = 13,
    RANGES_SHOWN = 40,
    IDS_SHOWN = 8,
    MODULES_SHOWN = 8,
};

/* ---- --expect ---- */

static enum error_code read_whole(const char *path, struct buffer *ret_text, struct error *err)
{
    bool standard_input = strcmp(path, "-") == 0;
    int fd = standard_input ? STDIN_FILENO : open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return error_set_errno(err, errno == ENOENT ? ERROR_USAGE : ERROR_SYSTEM, errno, "cannot read --expect '%s'",
                               path);
    enum error_code code = ERROR_NONE;
    char block[16384];
    for (;;) {
        ssize_t n = read(fd, block, sizeof block);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            code = error_set_errno(err, ERROR_SYSTEM, errno, "cannot read --expect '%s'", path);
        if (n <= 0)
            break;
        buffer_append(ret_text, block, (size_t)n);
        if (ret_text->length > AUDIT_JSON_EXPECTED_LIMIT) {
            code = error_set(err, ERROR_TOO_LARGE, "--expect '%s' is longer than %d bytes", path,
                             AUDIT_JSON_EXPECTED_LIMIT);
            break;
        }
    }
    if (!standard_input)
        close(fd);
    return code;
}

static enum error_code read_expected(const char *path, struct audit_expected *ret_expected, struct error *err)
{
    struct buffer text;
    buffer_init(&text);
    enum error_code code = read_whole(path, &text, err);
    if (code == ERROR_NONE) {
        code = audit_json_read_expected(text.data, text.length, ret_expected, err);
        if (code != ERROR_NONE) {
            code = ERROR_USAGE;
            error_prefix(err, "--expect '%s'", path);
            if (err != NULL)
                err->code = code;
        }
    }
    buffer_fini(&text);
    return code;
}

/* ---- progress ---- */

static void show_progress(void *context, uint64_t done, uint64_t total)
{
    progress_show(context, "files", done, total);
}

/* ---- the report for people ---- */

/* A row of the table stands for passes of one rank that follow each other and are alike. */
struct group {
    const struct audit_pass *first, *last;
    uint64_t bytes;
};

static bool alike(const struct audit_pass *a, const struct audit_pass *b)
{
    return a->rank == b->rank && b->step == a->step + 1 && a->phase == b->phase && a->files == b->files &&
           a->tokens == b->tokens && a->requests == b->requests && a->layers == b->layers &&
           a->has_request_ids == b->has_request_ids && a->foreign == b->foreign;
}

static size_t make_groups(const struct audit *audit, struct group *groups, size_t most)
{
    size_t count = 0;
    for (size_t i = 0; i < audit->pass_count; i++) {
        const struct audit_pass *pass = &audit->passes[i];
        if (i > 0 && alike(pass - 1, pass)) {
            if (count <= most) {
                groups[count - 1].last = pass;
                groups[count - 1].bytes += pass->bytes;
            }
            continue;
        }
        if (count < most)
            groups[count] = (struct group){.first = pass, .last = pass, .bytes = pass->bytes};
        count++;
    }
    return count;
}

static void print_passes(struct output *out, const struct audit *audit)
{
    enum { COLUMNS = 9 };
    static const char *const headings[COLUMNS] = {">RANK",     ">STEPS", "PHASE",   ">PASSES", ">TOKENS",
                                                  ">REQUESTS", ">FILES", ">LAYERS", ">BYTES"};
    struct group groups[RANGES_SHOWN];
    size_t count = make_groups(audit, groups, RANGES_SHOWN);
    size_t shown = count < RANGES_SHOWN ? count : RANGES_SHOWN;
    struct list cells = {0};
    for (size_t i = 0; i < shown; i++) {
        const struct audit_pass *first = groups[i].first, *last = groups[i].last;
        char size[SIZE_TEXT];
        list_add_format(&cells, "%" PRIu32, first->rank);
        if (first == last)
            list_add_format(&cells, "%" PRIu64, first->step);
        else
            list_add_format(&cells, "%" PRIu64 "-%" PRIu64, first->step, last->step);
        list_add(&cells, audit_phase_name(first->phase));
        list_add_format(&cells, "%" PRIu64, last->step - first->step + 1);
        list_add_format(&cells, "%" PRIu64, first->tokens);
        list_add_format(&cells, "%" PRIu64, first->requests);
        list_add_format(&cells, "%" PRIu64, first->files);
        list_add_format(&cells, "%" PRIu32, first->layers);
        list_add(&cells, size_text(groups[i].bytes, size));
    }
    if (shown > 0) {
        output_text(out, "\n");
        output_table(out, COLUMNS, headings, shown, (const char *const *)cells.items, NULL);
        output_text(out, "tokens, requests, files and layers are of one pass\n");
    }
    if (count > shown)
        output_format(out, "... and %zu more rows; --json has all passes\n", count - shown);
    list_fini(&cells);
}

static void print_modules(struct output *out, const struct audit *audit)
{
    enum { COLUMNS = 6 };
    static const char *const headings[COLUMNS] = {"MODULE", ">EXTEND", ">DECODE", ">FILES", ">BYTES", ">SHARE"};
    size_t shown = audit->module_count < MODULES_SHOWN ? audit->module_count : MODULES_SHOWN;
    struct list cells = {0};
    for (size_t i = 0; i < shown; i++) {
        const struct audit_module *module = &audit->modules[i];
        char size[SIZE_TEXT];
        list_add(&cells, module->name);
        list_add_format(&cells, "%" PRIu32, module->extend_layers);
        list_add_format(&cells, "%" PRIu32, module->decode_layers);
        list_add_format(&cells, "%" PRIu64, module->files);
        list_add(&cells, size_text(module->bytes, size));
        list_add_format(&cells, "%.1f %%",
                        100.0 * (double)module->bytes / (double)(audit->bytes > 0 ? audit->bytes : 1));
    }
    if (shown > 0) {
        output_text(out, "\n");
        output_table(out, COLUMNS, headings, shown, (const char *const *)cells.items, NULL);
        output_text(out, "extend, decode: layers that have a tensor of it in such a pass");
        if (audit->module_count > shown)
            output_format(out, "; %zu smaller modules more, --json has all", audit->module_count - shown);
        output_text(out, "\n");
    }
    list_fini(&cells);
}

static void print_ids(struct output *out, const char *label, const struct list *ids)
{
    struct buffer line;
    buffer_init(&line);
    for (size_t i = 0; i < ids->count && i < IDS_SHOWN; i++)
        buffer_format(&line, "%s%s", i == 0 ? "" : ", ", ids->items[i]);
    if (ids->count > IDS_SHOWN)
        buffer_format(&line, ", ... (%zu)", ids->count);
    if (ids->count > 0)
        output_pair(out, LABEL_WIDTH, label, OUTPUT_PLAIN, "%s", line.data);
    buffer_fini(&line);
}

static void print_report(struct output *out, const struct audit *audit, const char *folder, bool known)
{
    char size[SIZE_TEXT];
    output_pair(out, LABEL_WIDTH, "folder", OUTPUT_PLAIN, "%s", folder);
    output_pair(out, LABEL_WIDTH, "verdict", audit->complete ? OUTPUT_GREEN : OUTPUT_RED, "%s%s",
                audit->complete ? "complete" : "INCOMPLETE",
                known || !audit->complete ? "" : ", as far as the files alone can tell");
    for (size_t i = 0; i < audit->reasons.count; i++)
        output_pair(out, LABEL_WIDTH, i == 0 ? "reasons" : "", OUTPUT_PLAIN, "- %s", audit->reasons.items[i]);
    for (size_t i = 0; i < audit->notes.count; i++)
        output_pair(out, LABEL_WIDTH, i == 0 ? "notes" : "", OUTPUT_PLAIN, "- %s", audit->notes.items[i]);
    output_pair(out, LABEL_WIDTH, "contents", OUTPUT_PLAIN,
                "%" PRIu64 " files, %s; %" PRIu64 " rank%s, %" PRIu64 " step%s, %" PRIu32 " layer%s", audit->files,
                size_text(audit->bytes, size), audit->ranks, audit->ranks == 1 ? "" : "s", audit->steps,
                audit->steps == 1 ? "" : "s", audit->layers, audit->layers == 1 ? "" : "s");
    char usable[200];
    if (!audit->complete && audit->pass_count > 0)
        output_pair(out, LABEL_WIDTH, "usable", OUTPUT_PLAIN, "%s", audit_usable_text(audit, usable, sizeof usable));
    print_ids(out, "requests", &audit->request_ids);
    print_ids(out, "foreign", &audit->foreign_request_ids);
    print_passes(out, audit);
    print_modules(out, audit);
}

static int run(const struct command *command, struct output *out, int argc, char **argv)
{
    bool as_json = false;
    const char *expect = NULL;
    const struct command_option options[] = {
        {.name = "json", .flag = &as_json}, {.name = "expect", .value = &expect}, {0}};
    struct command_operands operands;
    if (!command_parse(command, options, argc, argv, 1, &operands))
        return STATUS_USAGE;
    if (operands.count != 1)
        return command_usage_error(command, "name the folder of one experiment");

    if (expect != NULL && strcmp(expect, "-") == 0)
        prctl(PR_SET_PDEATHSIG, SIGKILL); /* a guard's: its audit is of no use to anybody without it */
    struct error err = ERROR_INIT;
    struct audit_expected expected = {0};
    struct audit audit;
    audit_init(&audit);
    struct progress progress = {0};
    const struct audit_folder_options how = {.progress = isatty(STDERR_FILENO) ? show_progress : NULL,
                                             .context = &progress};
    enum error_code code = expect != NULL ? read_expected(expect, &expected, &err) : ERROR_NONE;
    if (code == ERROR_NONE)
        code = audit_folder(operands.item[0], &expected, &how, &audit, &err);
    progress_end(&progress);
    int status = code != ERROR_NONE ? command_fail(command, &err) : audit.complete ? STATUS_DONE : STATUS_INCOMPLETE;
    if (code == ERROR_NONE && as_json) {
        struct json *object = audit_json_make(&audit, operands.item[0]);
        json_print(object, &out->pending);
        output_text(out, "\n");
        json_free(object);
    } else if (code == ERROR_NONE) {
        print_report(out, &audit, operands.item[0], expected.known);
    }
    audit_fini(&audit);
    audit_expected_fini(&expected);
    return status;
}

const struct command command_check = {
    .name = "check",
    .usage = "check [--json] [--expect FILE] DIR",
    .summary = "say whether a dump is complete, and what is in it",
    .help = "Examples:\n"
            "  kldumpctl check dumps/dec\n"
            "  kldumpctl check --json dumps/dec | jq .complete,.reasons\n"
            "\n"
            "Looks at every dump file of one experiment's folder: names, dump_index and step of each rank, sizes, the\n"
            "archive's end (a full disk leaves empty and cut files), request ids, and the marks that a replayed CUDA\n"
            "graph leaves. Nothing is unpickled, nothing is changed. When a run was guarded, what the server counted\n"
            "is in EXP.kldump.json beside the folder, with the outcome of this check. A dump that is not complete may\n"
            "have usable steps: those that are whole on every rank.\n"
            "\n"
            "  --json           print one JSON object (schema kldump.check/1)\n"
            "  --expect FILE    what the writer counted, as JSON; '-' reads standard input:\n"
            "                   "
            "{\"exact\":true,\"ranks\":[{\"index_from\":0,\"index_to\":246,\"step_from\":0,\"step_to\":2}],\n"
            "                    \"own_request_ids\":[\"my-1\"],\"failed_saves\":0}\n"
            "                   exact false: the server was killed, the counters are the last that were read\n"
            "\n"
            "Exit status: 0 complete, 4 incomplete, 2 usage, 87 no such folder.\n",
    .run = run,
};
