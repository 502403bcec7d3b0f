#include "sys/dump_folder.h"

#include "base/memory.h"
#include "base/text.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
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

static char *absolute(const char *path)
{
    if (path[0] == '/')
        return memory_copy(path);
    char *here = getcwd(NULL, 0);
    char *full = memory_format("%s/%s", here != NULL ? here : "", path);
    free(here);
    return full;
}

/* The nearest folder that is there, or NULL; what follows it is moved from `path` to *rest. */
static char *find_nearest(char *path, char **rest, int *ret_problem)
{
    struct stat status;
    char *nearest;
    size_t length = strlen(path);
    while (length > 1 && path[length - 1] == '/')
        path[--length] = '\0';
    while ((nearest = realpath(path, NULL)) == NULL) {
        int problem = errno;
        if (problem == ENOENT && lstat(path, &status) == 0)
            problem = ELOOP; /* a link that leads nowhere: it can be neither entered nor made */
        if (*ret_problem == 0 || problem != ENOENT)
            *ret_problem = problem;
        char *slash = strrchr(path, '/');
        if (slash == NULL || path[1] == '\0')
            return NULL;
        char *longer = memory_format("%s%s", slash, *rest);
        free(*rest);
        *rest = longer;
        slash[slash == path ? 1 : 0] = '\0';
    }
    return nearest;
}

/* Takes the parts "." and ".." out of an absolute path; true when there were any. */
static bool remove_dots(char *path)
{
    bool found = false;
    size_t to = 0;
    for (const char *from = path; *from == '/';) {
        size_t length = 1 + strcspn(from + 1, "/");
        bool up = length == 3 && memcmp(from, "/..", 3) == 0, same = length == 2 && from[1] == '.';
        found = found || up || same;
        if (up) {
            while (to > 0 && path[--to] != '/')
                ;
        } else if (length > 1 && !same) {
            memmove(path + to, from, length);
            to += length;
        }
        from += length;
    }
    if (to == 0)
        path[to++] = '/';
    path[to] = '\0';
    return found;
}

char *dump_folder_foresee(const char *path, char **ret_nearest, int *ret_problem)
{
    int problem = 0;
    char *part = absolute(path), *rest = memory_copy("");
    char *nearest = find_nearest(part, &rest, &problem);
    if (nearest == NULL)
        nearest = memory_copy("/");
    char *whole = memory_format("%s%s", strcmp(nearest, "/") == 0 && rest[0] != '\0' ? "" : nearest, rest);
    free(part);
    free(rest);
    if (remove_dots(whole)) { /* they stand where nothing is yet: what would be made there is no link */
        free(nearest);
        char *again = dump_folder_foresee(whole, ret_nearest, ret_problem);
        free(whole);
        return again;
    }
    if (ret_problem != NULL)
        *ret_problem = problem;
    if (ret_nearest != NULL)
        *ret_nearest = nearest;
    else
        free(nearest);
    return whole;
}
