#include "sys/dump_folder.h"

#include "base/text.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

bool dump_folder_is_probe(const char *name)
{
    return text_starts(name, "kldump-probe-");
}

/* What kldump itself or a sealed dump leaves in a dump folder. */
static bool is_ours(int fd, const char *name)
{
    if (text_ends(name, ".kldump.json") || text_ends(name, ".kldump-run.json") || dump_folder_is_probe(name))
        return true;
    char seal[128];
    return text_is_name(name) && snprintf(seal, sizeof seal, "%s.kldump.json", name) > 0 &&
           faccessat(fd, seal, F_OK, AT_SYMLINK_NOFOLLOW) == 0;
}

enum error_code dump_folder_foreign(int fd, char *ret_name, size_t size, struct error *err)
{
    /* opened anew: a duplicate would share its place in the folder with `fd` */
    int own = openat(fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *folder = own >= 0 ? fdopendir(own) : NULL;
    if (folder == NULL) {
        int saved = errno;
        if (own >= 0)
            close(own);
        return error_set_errno(err, ERROR_SYSTEM, saved, "the folder cannot be read");
    }
    ret_name[0] = '\0';
    const struct dirent *entry;
    while (ret_name[0] == '\0' && (entry = readdir(folder)) != NULL) {
        const char *name = entry->d_name;
        if (strcmp(name, ".") != 0 && strcmp(name, "..") != 0 && !is_ours(own, name))
            text_clean(name, strlen(name), ret_name, size);
    }
    closedir(folder);
    return ERROR_NONE;
}
