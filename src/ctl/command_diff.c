/* kldumpctl diff: proves which rows of two dumps belong together, and names the first operator that differs. */
#include "analysis/diff.h"
#include "analysis/report_html.h"
#include "analysis/report_json.h"
#include "base/list.h"
#include "base/memory.h"
#include "base/number.h"
#include "ctl/command.h"
#include "ctl/progress.h"
#include "ctl/report_text.h"
#include "sys/file.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { THREADS_MOST = 256, PAGE_MODE = 0644, LABEL_WIDTH = 13 };

struct request {
    bool as_json, all, first, trust_slots, strict_zero;
    const char *page;    /* of --html; NULL: none */
    const char *threads; /* as it was given */
    struct list history, stateful;
    struct list a_paths, b_paths;
};

static void request_fini(struct request *request)
{
    list_fini(&request->history);
    list_fini(&request->stateful);
    list_fini(&request->a_paths);
    list_fini(&request->b_paths);
}

/* ---- the page ---- */

/* The folder that `path` lies in; the caller's. */
static char *folder_of(const char *path)
{
    const char *slash = strrchr(path, '/');
    if (slash == NULL)
        return memory_copy(".");
    return slash == path ? memory_copy("/") : memory_copy_n(path, (size_t)(slash - path));
}

/* Refuses a page inside a dump, which `check` would take for a foreign file, and one that could not be written in the
 * end: the work would be for nothing. False after the usage error. */
static bool page_is_fine(const struct command *command, const char *page, const struct list *dumps)
{
    struct stat folder, dump, there;
    if (page[0] == '\0' || (stat(page, &there) == 0 && !S_ISREG(there.st_mode))) {
        command_usage_error(command, "--html '%.200s' is no file that can be written; name one, such as diff.html",
                            page);
        return false;
    }
    char *parent = folder_of(page);
    bool known = stat(parent, &folder) == 0 && S_ISDIR(folder.st_mode), outside = true;
    for (size_t i = 0; known && outside && i < dumps->count; i++)
        outside = stat(dumps->items[i], &dump) < 0 || dump.st_dev != folder.st_dev || dump.st_ino != folder.st_ino;
    if (!known)
        command_usage_error(command, "--html %.200s: there is no folder '%.200s'", page, parent);
    else if (!outside)
        command_usage_error(command, "--html %.200s lies in the folder of a dump; write the page beside it", page);
    free(parent);
    return known && outside;
}

static int write_page(const struct command *command, const struct diff *diff, const char *page)
{
    struct error err = ERROR_INIT;
    struct buffer text;
    buffer_init(&text);
    report_html(diff, &text);
    enum error_code code = file_replace(page, text.data, text.length, PAGE_MODE, FILE_NO_SYNC, &err);
    buffer_fini(&text);
    if (code == ERROR_NONE)
        return STATUS_DONE;
    error_prefix(&err, "--html");
    return command_fail(command, &err);
}

/* ---- the command ---- */

static void print(const struct request *request, const struct diff *diff, bool written, struct output *out)
{
    if (request->as_json) {
        report_json(diff, &out->pending);
        output_text(out, "\n");
        return;
    }
    report_text(diff, output_width(out), request->all, out);
    if (written)
        output_pair(out, LABEL_WIDTH, "page", OUTPUT_PLAIN, "%s", request->page);
}

static int compare(const struct command *command, struct request *request, unsigned threads, struct output *out)
{
    struct error err = ERROR_INIT;
    struct progress progress = {0};
    struct diff diff = {0};
    const struct diff_options options = {
        .a_paths = (const char *const *)list_vector(&request->a_paths),
        .b_paths = (const char *const *)list_vector(&request->b_paths),
        .threads = threads,
        .first = request->first,
        .trust_slots = request->trust_slots,
        .strict_zero = request->strict_zero,
        .stateful = request->stateful.count > 0 ? (const char *const *)list_vector(&request->stateful) : NULL,
        .progress = isatty(STDERR_FILENO) ? progress_show_to : NULL,
        .context = &progress,
    };
    enum error_code code = diff_run(&options, &diff, &err);
    progress_end(&progress);
    if (code != ERROR_NONE)
        return command_fail(command, &err);
    int status = (int)diff_status(&diff);
    int written = request->page != NULL ? write_page(command, &diff, request->page) : STATUS_DONE;
    print(request, &diff, request->page != NULL && written == STATUS_DONE, out);
    diff_fini(&diff);
    return written != STATUS_DONE ? written : status;
}

/* Sorts operands and options; false after the usage error. */
static bool take(const struct command *command, const struct command_operands *operands, struct request *request,
                 unsigned *ret_threads)
{
    uint64_t threads = 0;
    struct error err = ERROR_INIT;
    if (operands->count == 0) {
        command_usage_error(command, "name the folder of the decode run, and that of its scoring prefill");
        return false;
    }
    if (request->threads != NULL &&
        number_parse("--threads", request->threads, THREADS_MOST, &threads, &err) == ERROR_NONE && threads == 0)
        error_set(&err, ERROR_BAD_VALUE, "--threads: 0 is no number of threads; 1 to %d", THREADS_MOST);
    if (err.code != ERROR_NONE) {
        command_usage_error(command, "%s", err.message);
        return false;
    }
    list_add_all(&request->a_paths, list_vector(&request->history));
    list_add(&request->a_paths, operands->item[0]);
    list_add(&request->b_paths, operands->item[operands->count - 1]);
    *ret_threads = (unsigned)threads;
    return request->page == NULL || (page_is_fine(command, request->page, &request->a_paths) &&
                                     page_is_fine(command, request->page, &request->b_paths));
}

static int run(const struct command *command, struct output *out, int argc, char **argv)
{
    struct request request = {0};
    struct command_operands operands;
    unsigned threads = 0;
    int status = STATUS_USAGE;
    const struct command_option options[] = {
        {.name = "json", .flag = &request.as_json},
        {.name = "all", .flag = &request.all},
        {.name = "first", .flag = &request.first},
        {.name = "html", .value = &request.page},
        {.name = "history", .list = &request.history},
        {.name = "stateful", .list = &request.stateful},
        {.name = "trust-slots", .flag = &request.trust_slots},
        {.name = "strict-zero", .flag = &request.strict_zero},
        {.name = "threads", .value = &request.threads},
        {0},
    };
    if (command_parse(command, options, argc, argv, 2, &operands) && take(command, &operands, &request, &threads))
        status = compare(command, &request, threads, out);
    request_fini(&request);
    return status;
}

const struct command command_diff = {
    .name = "diff",
    .usage = "diff [OPTIONS] DEC [PRE]",
    .summary = "prove which rows of two dumps belong together, and name the first operator that differs",
    .help =
        "Examples:\n"
        "  kldumpctl diff dumps/dec dumps/pre\n"
        "  kldumpctl diff dumps/dec dumps/pre --html diff.html\n"
        "  kldumpctl diff dumps/both\n"
        "  kldumpctl diff dumps/dec dumps/pre --json | jq .verdict\n"
        "  kldumpctl diff --history node-p/dec node-d/dec dumps/pre\n"
        "\n"
        "DEC is the dump of a request that generated tokens, PRE that of one pass over exactly the same tokens: "
        "prompt\n"
        "ids + output ids, 0 new tokens. Without PRE both are in one folder. Nothing is unpickled, nothing is changed\n"
        "in the dumps.\n"
        "\n"
        "First the certificate: A1 to A9 say what is proven about the rows that are compared. Only when A1 to A4 hold\n"
        "is an operator named; else a message M1 to M15 says what was seen and what to do. Rows are compared bit by\n"
        "bit. 'op' is an operator with equal inputs and another output; 'gap' and 'glue' lie in code that no hook\n"
        "sees; 'op+cache' may also have read a wrong cache; 'state' carries a state that is not proven equal.\n"
        "\n"
        "  --first          stop at the verdict: no evidence of what comes behind it\n"
        "  --all            every operator that differs, every position, every blind spot\n"
        "  --html FILE      write the whole as one page, with maps and charts; no script, no network\n"
        "  --json           print one JSON object (schema kldump.diff/1)\n"
        "  --history DIR    a further folder of the decode side, as the prefill node's of a PD pair; may be repeated\n"
        "  --trust-slots    requests without ids are linked by their pool slot: accept that\n"
        "  --strict-zero    +0 and -0 are a difference\n"
        "  --stateful NAME  modules with this in their name carry state; may be repeated\n"
        "  --threads N      1 to 256 (default: one for each processor, up to 8); the output is the same\n"
        "\n"
        "Exit status: 0 no difference, 1 a difference, 2 usage, 3 alignment not proven, 4 a dump is unusable,\n"
        "5 a file on the needed path was refused, 87 no such folder.\n",
    .run = run,
};
