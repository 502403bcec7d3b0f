/* standin.c: kldump-standin, a server that behaves like SGLang with its dumper from outside; for tests and the demo.
 *
 * It plays the Python interpreter: `-m sglang.launch_server FLAGS` is the server, `-c CODE` prints the release that
 * is played. Tests call it through a link named python3. Faults: --help-faults.
 */
#include <stdio.h>
#include <string.h>

#include "arguments.h"
#include "faults.h"
#include "processes.h"
#include "routes.h"
#include "server.h"
#include "text.h"
#include "title.h"
#include "version.h"

static const char USAGE[] =
    "usage: kldump-standin -m sglang.launch_server --model-path DIR [FLAG...]\n"
    "       kldump-standin -c CODE          print the release that is played\n"
    "       kldump-standin --help-faults    list what can go wrong\n"
    "environment: KLDUMP_STANDIN_VERSION, KLDUMP_STANDIN_FAULTS,\n"
    "             KLDUMP_STANDIN_{LOAD,START,STEP,TERM,CRASH}_MS; DUMPER_* and SGLANG_* as SGLang reads them\n";

int main(int argc, char **argv)
{
    static char *copies[256]; /* static: kept to the end */
    int count = argc < 256 ? argc : 255;
    title_init(argc, argv);
    for (int i = 0; i < count; i++) /* the title is written over argv */
        copies[i] = text_copy(argv[i]);
    if (count >= 2 && strcmp(copies[1], "--help-faults") == 0) {
        faults_help();
        return 0;
    }
    if (!faults_init())
        return 2;
    if (count >= 3 && strcmp(copies[1], "-c") == 0) {
        if (processes_is_child(copies[2]))
            processes_child(copies[0], copies[2]);
        puts(version_text());
        return 0;
    }
    int module = 1;
    while (module < count && strcmp(copies[module], "-m") != 0 && copies[module][0] == '-' &&
           strlen(copies[module]) == 2)
        module++; /* switches of the interpreter, such as -u */
    if (module + 1 >= count || strcmp(copies[module], "-m") != 0 ||
        strcmp(copies[module + 1], "sglang.launch_server") != 0) {
        fputs(USAGE, stderr);
        return 2;
    }
    static struct arguments arguments;
    arguments_parse(&arguments, count - module - 2, copies + module + 2);
    if (!routes_init())
        return 1;
    server_run(&arguments, copies[0]);
}
