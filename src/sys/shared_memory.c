#include "sys/shared_memory.h"

#include "base/memory.h"
#include "base/text.h"
#include "sys/process.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const char shared_memory_folder[] = "/dev/shm";

void shared_memory_find(bool (*wanted)(const char *name), struct list *ret_names)
{
    DIR *folder = opendir(shared_memory_folder);
    if (!folder)
        return;
    const struct dirent *entry;
    while ((entry = readdir(folder)) != NULL) {
        char shown[300];
        struct stat status;
        text_clean(entry->d_name, strlen(entry->d_name), shown, sizeof shown);
        if (strcmp(shown, entry->d_name) == 0 && wanted(entry->d_name) &&
            fstatat(dirfd(folder), entry->d_name, &status, AT_SYMLINK_NOFOLLOW) == 0 && S_ISREG(status.st_mode) &&
            status.st_uid == geteuid())
            list_add(ret_names, entry->d_name);
    }
    closedir(folder);
}

/* One line of /proc/PID/maps ends in the path. */
static void shared_memory_mark_line(const char *line, const struct list *names, bool *used)
{
    const char *path = strstr(line, shared_memory_folder);
    if (!path || path[sizeof shared_memory_folder - 1] != '/')
        return;
    const char *name = path + sizeof shared_memory_folder;
    for (size_t i = 0; i < names->count; i++) {
        size_t length = strlen(names->items[i]);
        if (strncmp(name, names->items[i], length) == 0 && (name[length] == '\n' || name[length] == '\0'))
            used[i] = true;
    }
}

static void shared_memory_mark_used(pid_t pid, const struct list *names, bool *used)
{
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/maps", (int)pid);
    FILE *maps = fopen(path, "re");
    if (!maps)
        return;
    char *line = NULL;
    size_t size = 0;
    while (getline(&line, &size, maps) > 0)
        shared_memory_mark_line(line, names, used);
    free(line);
    fclose(maps);
}

void shared_memory_drop_used(struct list *names)
{
    struct process_list all = {0};
    struct list unused = {0};
    if (names->count == 0)
        return;
    bool *used = memory_new((names->count + 1) * sizeof *used);
    process_snapshot(&all);
    for (size_t i = 0; i < all.count; i++)
        shared_memory_mark_used(all.items[i].pid, names, used);
    for (size_t i = 0; i < names->count; i++)
        if (!used[i])
            list_add(&unused, names->items[i]);
    process_list_fini(&all);
    list_fini(names);
    *names = unused;
    free(used);
}
