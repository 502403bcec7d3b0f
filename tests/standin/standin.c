/* standin.c: kldump-standin, a server that behaves like SGLang with its dumper from outside; for tests and the demo.
 *
 * It plays the Python interpreter: `-m sglang.launch_server FLAGS` is the server, `-c CODE` prints the release that
 * is played. Tests call it through a link named python3. Faults: --help-faults.
 */
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "arguments.h"
#include "faults.h"
#include "processes.h"
#include "routes.h"
#include "server.h"
#include "text.h"
#include "title.h"
#include "tls.h"
#include "version.h"

static const char USAGE[] = "usage: kldump-standin -m sglang.launch_server --model-path DIR [FLAG...]\n"
                            "       kldump-standin FOLDER/sglang serve --model-path DIR [FLAG...]\n"
                            "       kldump-standin -c CODE          print the release that is played\n"
                            "       kldump-standin --help-faults    list what can go wrong\n"
                            "environment: KLDUMP_STANDIN_{VERSION,REPORTED,FAULTS},\n"
                            "             KLDUMP_STANDIN_{LOAD,START,STEP,TERM,CRASH,COREDUMP}_MS; DUMPER_* and "
                            "SGLANG_* as SGLang reads them\n";

/* Whatever code it is given. */
static int report(void)
{
    const char *version = version_reported();
    if (version != NULL) {
        puts(version);
        return 0;
    }
    fputs("importlib.metadata.PackageNotFoundError: No package metadata was found for sglang\n", stderr);
    return 1;
}

/* Behind `-m sglang.launch_server`, or behind `.../sglang serve` (the console script); -1 where it is neither. */
static int first_argument(int count, char **words)
{
    int at = 1;
    while (at < count && strcmp(words[at], "-m") != 0 && words[at][0] == '-' && strlen(words[at]) == 2)
        at++; /* switches of the interpreter, such as -u */
    if (at + 1 >= count)
        return -1;
    const char *slash = strrchr(words[at], '/');
    bool module = strcmp(words[at], "-m") == 0 && strcmp(words[at + 1], "sglang.launch_server") == 0;
    bool script = slash != NULL && strcmp(slash, "/sglang") == 0 && strcmp(words[at + 1], "serve") == 0;
    return module || script ? at + 2 : -1;
}

int main(int argc, char **argv)
{
    static char *copies[256]; /* static: kept to the end */
    int count = argc < 256 ? argc : 255;
    signal(SIGXFSZ, SIG_IGN); /* as the Python interpreter does: a write beyond the limit is an error, not the end */
    title_init(argc, argv);
    for (int i = 0; i < count; i++) /* the title is written over argv */
        copies[i] = text_duplicate(argv[i]);
    if (count >= 2 && strcmp(copies[1], "--help-faults") == 0) {
        faults_help();
        return 0;
    }
    if (!faults_init())
        return 2;
    if (count >= 3 && strcmp(copies[1], "-c") == 0) {
        if (processes_is_child(copies[2]))
            processes_child(copies[0], copies[2]);
        return report();
    }
    int first = first_argument(count, copies);
    if (first < 0) {
        fputs(USAGE, stderr);
        return 2;
    }
    static struct arguments arguments;
    arguments_parse(&arguments, count - first, copies + first);
    const char *certificate = NULL, *key = NULL;
    arguments_given("--ssl-keyfile", &key);
    if (!routes_init() || (arguments_given("--ssl-certfile", &certificate) && !tls_init(certificate, key)))
        return 1;
    server_run(&arguments, copies[0]);
}
