/* kldump-run: the guard of one run, which is also the wrapper in a terminal (`kldumpctl run` becomes it). */
#include "loop/guard.h"
#include "sglang/sglang.h"

int main(int argc, char **argv)
{
    static char *none[] = {NULL};
    return guard_main(argc > 0 ? argv + 1 : none, &sglang_operations);
}
