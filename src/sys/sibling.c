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
    const char *folders[] = {slash ? own : NULL, KLDUMP_LIBEXECDIR, KLDUMP_BINDIR};
    for (size_t i = 0; i < sizeof folders / sizeof folders[0]; i++) {
        if (!folders[i])
            continue;
        char *path = memory_format("%s/%s", folders[i], name);
        if (access(path, X_OK) == 0)
            return path;
        free(path);
    }
    return NULL;
}
