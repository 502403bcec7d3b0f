#include "sys/sibling.h"

#include "base/memory.h"
#include "base/text.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

char *sibling_path(const char *name)
{
    char own[4096];
    ssize_t length = readlink("/proc/self/exe", own, sizeof own - 1);
    own[length > 0 ? length : 0] = '\0';
    char *slash = strrchr(own, '/'); /* " (deleted)" stands behind it */
    if (slash)
        *slash = '\0';
    /* From bin or sbin to libexec/kldump and back, in a prefix that was moved; only then where it was installed to. */
    static const char *const places[] = {"", "/../libexec/kldump", "/../../bin", KLDUMP_LIBEXECDIR, KLDUMP_BINDIR};
    enum { RELATIVE = 3 };
    for (size_t i = slash ? 0 : RELATIVE; i < sizeof places / sizeof places[0]; i++) {
        char *path = memory_format("%s%s/%s", i < RELATIVE ? own : "", places[i], name);
        if (access(path, X_OK) == 0)
            return path;
        free(path);
    }
    return NULL;
}
