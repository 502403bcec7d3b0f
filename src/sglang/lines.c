#include "sglang/lines.h"

#include "base/buffer.h"
#include "base/number.h"
#include "base/text.h"

#include <ctype.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

/* What of the line itself is worth showing behind our words. */
enum detail {
    DETAIL_NONE,
    DETAIL_LINE, /* all of it */
    DETAIL_PORT, /* nothing of it; the port becomes ret_line->port */
    DETAIL_FLAGS /* the names of flags that follow: their values may be keys */
};

/* The first row whose pattern is in the line counts. */
static const struct line_row {
    const char *pattern;
    enum server_line_kind kind;
    enum detail detail;
    const char *text;
} rows[] = {
    {"skip the tensor", SERVER_LINE_SAVE_FAILED, DETAIL_LINE, "a tensor was not saved"},

    {"unrecognized arguments:", SERVER_LINE_UNKNOWN_FLAG, DETAIL_FLAGS,
     "this SGLang does not know an argument (another release spells it otherwise)"},
    {"error: ambiguous option:", SERVER_LINE_CAUSE, DETAIL_FLAGS, "a shortened argument fits several flags"},
    {"error: the following arguments are required:", SERVER_LINE_CAUSE, DETAIL_FLAGS, "arguments are missing"},
    {"launch_server.py: error:", SERVER_LINE_CAUSE, DETAIL_FLAGS, "the server refused its arguments"},
    {"sglang serve: error:", SERVER_LINE_CAUSE, DETAIL_FLAGS, "the server refused its arguments"},
    {"server_args=", SERVER_LINE_STAGE, DETAIL_NONE, "arguments read, processes start"},

    {"address already in use", SERVER_LINE_CAUSE, DETAIL_NONE,
     "the port is taken by another process: choose another with --port"},
    {"CUDA out of memory", SERVER_LINE_CAUSE, DETAIL_NONE,
     "the GPU is out of memory: end other users of it or lower --mem-fraction-static"},
    {"OutOfMemoryError", SERVER_LINE_CAUSE, DETAIL_NONE,
     "the GPU is out of memory: end other users of it or lower --mem-fraction-static"},
    {"Not enough memory", SERVER_LINE_CAUSE, DETAIL_NONE,
     "there is no room for the KV cache: raise --mem-fraction-static or free memory"},
    {"No space left on device", SERVER_LINE_CAUSE, DETAIL_NONE, "a disk is full"},
    {"Disk quota exceeded", SERVER_LINE_CAUSE, DETAIL_NONE, "the user's disk quota is used up"},
    {"Read-only file system", SERVER_LINE_CAUSE, DETAIL_NONE, "a filesystem is read-only"},
    {"Error while finding module specification for 'sglang", SERVER_LINE_CAUSE, DETAIL_NONE,
     "CMD's python has no sglang: activate the environment it is installed in, or give that python's path"},
    {": No module named sglang", SERVER_LINE_CAUSE, DETAIL_NONE,
     "CMD's python has no sglang: activate the environment it is installed in, or give that python's path"},
    {"is not a valid model identifier", SERVER_LINE_CAUSE, DETAIL_NONE, "the model was not found: check --model-path"},
    {"Repo id must be in the form", SERVER_LINE_CAUSE, DETAIL_NONE, "the model was not found: check --model-path"},
    {"does not appear to have a file named", SERVER_LINE_CAUSE, DETAIL_NONE,
     "the model folder is not complete: check --model-path"},
    {"gated repo", SERVER_LINE_CAUSE, DETAIL_NONE, "the model may be fetched only after its licence was accepted"},
    {"no NVIDIA driver", SERVER_LINE_CAUSE, DETAIL_NONE, "no NVIDIA driver was found"},
    {"torch._dynamo.exc.Unsupported", SERVER_LINE_CAUSE, DETAIL_NONE,
     "a compiled prefill graph met the dumper: prefill graphs must be off"},
    {"index out of range in self", SERVER_LINE_CAUSE, DETAIL_NONE, "a request had a token id beyond the vocabulary"},
    {"tcp://None:", SERVER_LINE_CAUSE, DETAIL_NONE,
     "the dumper found no address of this host: without a default route its control calls hang"},
    {"Can not get local ip by remote", SERVER_LINE_CAUSE, DETAIL_NONE,
     "the dumper found no address of this host: without a default route its control calls hang"},
    {"has not completed after", SERVER_LINE_CAUSE, DETAIL_NONE, "ranks wait for each other in the dumper"},
    {"Cannot allocate memory", SERVER_LINE_CAUSE, DETAIL_NONE, "the machine's memory is used up"},
    {"MemoryError", SERVER_LINE_CAUSE, DETAIL_NONE, "the machine's memory is used up"},
    {"Too many open files", SERVER_LINE_CAUSE, DETAIL_NONE, "too many open files: raise the limit (ulimit -n)"},
    {"Address already in use", SERVER_LINE_CAUSE, DETAIL_NONE,
     "a port is taken: --port, or that of the ranks (--nccl-port, --dist-init-addr)"},
    {"Fatal Python error", SERVER_LINE_CAUSE, DETAIL_LINE, "a process of the server crashed"},
    {" Killed  ", SERVER_LINE_CAUSE, DETAIL_NONE,
     "a shell says that its program was killed by signal 9, as the kernel does when memory is out"},
    {"watchdog timeout (", SERVER_LINE_CAUSE, DETAIL_NONE, "a pass took longer than --watchdog-timeout"},
    {"Initialization failed. warmup error", SERVER_LINE_CAUSE, DETAIL_NONE, "the server's own warm-up request failed"},
    {"crashed with exit code -9", SERVER_LINE_CAUSE, DETAIL_LINE,
     "a process of the server was killed by signal 9, as the kernel does when memory is out"},
    {"crashed with exit code -15", SERVER_LINE_CAUSE, DETAIL_LINE,
     "a process of the server was ended by signal 15: a whole group was signalled, not the main process alone"},
    {"crashed with exit code", SERVER_LINE_CAUSE, DETAIL_LINE, "a process of the server was killed or crashed"},
    {"scheduler died during initialization", SERVER_LINE_CAUSE, DETAIL_NONE, "a scheduler died while loading"},
    {"Scheduler hit an exception", SERVER_LINE_CAUSE, DETAIL_NONE, "a scheduler raised an exception"},

    {"SIGQUIT received", SERVER_LINE_SYMPTOM, DETAIL_NONE,
     "a process of the server failed and had all of it ended (SIGQUIT)"},
    {"Received sigquit from a child process", SERVER_LINE_SYMPTOM, DETAIL_NONE,
     "a process of the server failed while loading and had all of it ended (SIGQUIT)"},
    {"before crash diagnostics", SERVER_LINE_SYMPTOM, DETAIL_NONE, "a process of the server failed"},
    {"BrokenPipeError", SERVER_LINE_SYMPTOM, DETAIL_NONE, "another process of the server was gone (broken pipe)"},
    {"SIGTERM received", SERVER_LINE_SYMPTOM, DETAIL_NONE, "the server was asked to end (SIGTERM)"},
    {"Gracefully exiting", SERVER_LINE_SYMPTOM, DETAIL_NONE,
     "the server was asked to end (SIGTERM) and waits for its requests"},
    {"Health check failed. Server couldn't get a response", SERVER_LINE_SYMPTOM, DETAIL_NONE,
     "the server found that its scheduler does not answer"},

    {"Init torch distributed begin", SERVER_LINE_STAGE, DETAIL_NONE, "connecting the ranks"},
    {"Init parallel begin", SERVER_LINE_STAGE, DETAIL_NONE, "connecting the ranks"},
    {"Load weight begin", SERVER_LINE_STAGE, DETAIL_NONE, "loading weights"},
    {"Load weight end", SERVER_LINE_STAGE, DETAIL_NONE, "weights loaded"},
    {"KV Cache is allocated", SERVER_LINE_STAGE, DETAIL_NONE, "KV cache allocated"},
    {"Capture target prefill CUDA graph begin", SERVER_LINE_STAGE, DETAIL_NONE,
     "capturing prefill graphs, which should be off"},
    {"Capture piecewise CUDA graph begin", SERVER_LINE_STAGE, DETAIL_NONE,
     "capturing prefill graphs, which should be off"},
    {"Capture target decode CUDA graph begin", SERVER_LINE_STAGE, DETAIL_NONE,
     "capturing decode graphs, which should be off"},
    {"Capture cuda graph begin", SERVER_LINE_STAGE, DETAIL_NONE, "capturing decode graphs, which should be off"},
    {"Capture target decode CPU graph begin", SERVER_LINE_STAGE, DETAIL_NONE,
     "capturing decode graphs, which should be off"},
    {"Running FlashInfer autotune", SERVER_LINE_STAGE, DETAIL_NONE, "tuning kernels"},
    {"Running warmup ", SERVER_LINE_STAGE, DETAIL_NONE, "warming up before the port opens"},
    {"Application startup complete", SERVER_LINE_STAGE, DETAIL_NONE, "opening the port"},
    {"Uvicorn running on", SERVER_LINE_STAGE, DETAIL_PORT, "port open, warm-up request runs"},
    {"The server is fired up and ready to roll!", SERVER_LINE_READY, DETAIL_NONE, "ready, says the server"},
};

/* Follow-ups of another error, which they would hide. */
static const char *const follow_ups[] = {"BrokenPipeError", "EOFError", "ConnectionResetError", "KeyboardInterrupt"};

static const char *find(const char *line, size_t length, const char *pattern)
{
    return memmem(line, length, pattern, strlen(pattern));
}

/* The last line of a Python traceback: "some.ModuleError: words". */
static bool is_exception(const char *line, size_t length)
{
    size_t name = 0;
    while (name < length && (isalnum((unsigned char)line[name]) || line[name] == '_' || line[name] == '.'))
        name++;
    if (name + 1 >= length || line[name] != ':' || line[name + 1] != ' ')
        return false;
    for (size_t i = 0; i < sizeof follow_ups / sizeof follow_ups[0]; i++)
        if (find(line, name, follow_ups[i]) != NULL)
            return false;
    return (name > 5 && memcmp(line + name - 5, "Error", 5) == 0) ||
           (name > 9 && memcmp(line + name - 9, "Exception", 9) == 0);
}

static void append_flags(const char *rest, size_t length, struct buffer *text)
{
    for (size_t i = 0; i < length;) {
        size_t word = i;
        while (word < length && !isspace((unsigned char)rest[word]) && rest[word] != '=' && rest[word] != ',' &&
               rest[word] != ':')
            word++;
        if (word - i > 2 && rest[i] == '-' && rest[i + 1] == '-')
            buffer_format(text, " %.*s", (int)(word - i), rest + i);
        while (word < length && !isspace((unsigned char)rest[word]))
            word++;
        i = word < length ? word + 1 : length;
    }
}

static void fill(const struct line_row *row, const char *line, size_t length, const char *found,
                 struct server_line *ret_line)
{
    size_t pattern = strlen(row->pattern);
    const char *rest = found + pattern;
    size_t left = length - (size_t)(rest - line);
    struct buffer text;
    buffer_init(&text);
    buffer_text(&text, row->text);
    if (row->detail != DETAIL_NONE)
        buffer_text(&text, ":");
    if (row->detail == DETAIL_FLAGS)
        append_flags(rest, left, &text);
    else if (row->detail == DETAIL_LINE)
        buffer_format(&text, " %.*s", (int)(length < 400 ? length : 400), line);
    if (text.data[text.length - 1] == ':')
        text.length--;
    ret_line->kind = row->kind;
    text_clean(text.data, text.length, ret_line->text, sizeof ret_line->text);
    buffer_fini(&text);
}

/* "Uvicorn running on http://[::1]:30000 (Press CTRL+C to quit)" (0.5.10 to 0.5.23): the only place where a server that
 * a wrapper script started tells its port. */
static void read_port(const char *line, size_t length, struct server_line *ret_line)
{
    const char *address = find(line, length, "://");
    if (address == NULL)
        return;
    size_t end = (size_t)(address - line) + strlen("://"), digits;
    while (end < length && !isspace((unsigned char)line[end]))
        end++;
    for (digits = end; isdigit((unsigned char)line[digits - 1]); digits--)
        ;
    uint64_t port;
    if (line[digits - 1] != ':' || number_scan(line + digits, end - digits, &port) == 0 || port > UINT16_MAX)
        return;
    ret_line->port = (uint16_t)port;
    ret_line->https = address > line && address[-1] == 's';
}

enum { ROWS = sizeof rows / sizeof rows[0], PAIR_BITS = 4096 };

static unsigned pair(const char *at)
{
    return ((unsigned)(unsigned char)at[0] << 5 ^ (unsigned char)at[1]) % PAIR_BITS;
}

/* One pass over the line for all rows, since a server may print gigabytes: where no pattern begins with the two bytes
 * that stand there, none is looked at. ROWS: no row. */
static size_t find_row(const char *line, size_t length, const char **ret_found)
{
    uint64_t begins[PAIR_BITS / 64] = {0};
    size_t best = ROWS;
    for (size_t row = 0; row < ROWS; row++)
        begins[pair(rows[row].pattern) / 64] |= 1ull << pair(rows[row].pattern) % 64;
    for (size_t i = 0; i + 1 < length; i++) {
        if ((begins[pair(line + i) / 64] >> pair(line + i) % 64 & 1) == 0)
            continue;
        for (size_t row = 0; row < best; row++) {
            size_t pattern = strlen(rows[row].pattern);
            if (pattern > length - i || memcmp(line + i, rows[row].pattern, pattern) != 0)
                continue;
            best = row;
            *ret_found = line + i;
        }
    }
    return best;
}

static void read_plain(const char *line, size_t length, struct server_line *ret_line)
{
    const char *found = NULL;
    size_t row = find_row(line, length, &found);
    *ret_line = (struct server_line){.kind = SERVER_LINE_NOTHING};
    if (row < ROWS) {
        fill(&rows[row], line, length, found, ret_line);
        if (rows[row].detail == DETAIL_PORT)
            read_port(found, length - (size_t)(found - line), ret_line);
        return;
    }
    if (is_exception(line, length)) {
        ret_line->kind = SERVER_LINE_CAUSE;
        text_clean(line, length, ret_line->text, sizeof ret_line->text);
    }
}

/* Warnings are coloured (0.5.16 and 0.5.23 seen): ESC [ NUMBERS LETTER may stand anywhere. */
void lines_read(const char *line, size_t length, struct server_line *ret_line)
{
    if (memchr(line, '\x1b', length) == NULL) {
        read_plain(line, length, ret_line);
        return;
    }
    struct buffer plain;
    buffer_init(&plain);
    for (size_t i = 0; i < length;) {
        const char *escape = memchr(line + i, '\x1b', length - i);
        size_t end = escape != NULL ? (size_t)(escape - line) : length;
        buffer_append(&plain, line + i, end - i);
        i = end + (end < length ? 1 : 0);
        if (i >= length || escape == NULL || line[i] != '[')
            continue;
        for (i++; i < length && (isdigit((unsigned char)line[i]) || line[i] == ';'); i++)
            ;
        i += i < length ? 1 : 0;
    }
    read_plain(plain.data, plain.length, ret_line);
    buffer_fini(&plain);
}

/* How SGLang ends itself (0.5.16 and 0.5.23, seen): an error in any of its processes makes it kill its whole tree. */
static const struct {
    int exit_code, signal; /* -1: not this way */
    const char *text;
} endings[] = {
    {0, -1, "the server ended by itself with status 0"},
    {1, -1, "the server ended with status 1: its start failed, or its port was taken"},
    {2, -1, "the server refused its arguments (status 2)"},
    {3, -1, "the server ended with status 3: its start failed, most often because its port was taken"},
    {126, -1, "CMD could not be executed (status 126)"},
    {127, -1, "CMD or a program it starts was not found (status 127)"},
    {137, -1,
     "CMD ended with status 137: a shell says so when its program was killed by signal 9; after an error in one of its "
     "processes SGLang does that itself, so does the kernel when memory is out"},
    {-1, SIGKILL,
     "the server was killed by signal 9: after an error in one of its processes SGLang does that itself; "
     "so does the kernel when memory is out; up to 0.5.18 it also ends so after SIGTERM"},
    {-1, SIGHUP, "the server was ended by signal 1 (its terminal was gone)"},
    {-1, SIGBUS, "the server crashed (signal 7, bus error: often a full /dev/shm)"},
    {-1, SIGTERM, "the server was ended by signal 15 from outside before it had loaded"},
    {-1, SIGQUIT, "the server was ended by signal 3"},
    {-1, SIGINT, "the server was interrupted (signal 2)"},
    {-1, SIGSEGV, "the server crashed (signal 11, memory fault)"},
    {-1, SIGABRT, "the server crashed (signal 6, abort)"},
};

void lines_explain_exit(int exit_code, int signal, const char *cause, char *ret_text, size_t size)
{
    char words[240] = "";
    for (size_t i = 0; i < sizeof endings / sizeof endings[0]; i++)
        if (endings[i].exit_code == exit_code && endings[i].signal == signal)
            text_copy(words, sizeof words, endings[i].text);
    if (words[0] == '\0' && signal >= 0)
        snprintf(words, sizeof words, "the server was ended by signal %d", signal);
    else if (words[0] == '\0' && exit_code > 128 && exit_code < 128 + 65)
        snprintf(words, sizeof words,
                 "CMD ended with status %d: a shell says so when its program was ended by signal %d", exit_code,
                 exit_code - 128);
    else if (words[0] == '\0' && exit_code >= 0)
        snprintf(words, sizeof words, "the server ended with status %d", exit_code);
    else if (words[0] == '\0')
        text_copy(words, sizeof words, "the server ended; how is not known");
    snprintf(ret_text, size, "%s%s%s", words, cause[0] != '\0' ? "; likely cause: " : "", cause);
}
